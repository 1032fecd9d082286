// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
	"workload.openshift.io/operators/internal/testenv"
)

const program = "partition-node"

func TestMain(m *testing.M) {
	testenv.Main(m, testenv.Programs{program: func() int {
		main()
		return 0
	}}, v1alpha2.AddToScheme)
}

const (
	namespace = "partition-numaresources-exporter"
	account   = "partition-topology"
	patience  = 30 * time.Second
)

// kubelet plays one: podresources on a socket, and configz with a certificate of its own.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	socket, certificate string
	host, port          string

	mu          sync.Mutex
	policy      string
	allocatable *podresourcesv1.AllocatableResourcesResponse
	pods        []*podresourcesv1.PodResources
	// exporter is the exporter's pod, and young is whether the kubelet has not heard of its pods yet.
	exporter *corev1.Pod
	young    bool
	tokens   []string
	server   *grpc.Server
}

func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.young {
		return &podresourcesv1.ListPodResourcesResponse{}, nil
	}
	own := &podresourcesv1.PodResources{Namespace: k.exporter.Namespace, Name: k.exporter.Name}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: append(slices.Clone(k.pods), own)}, nil
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.allocatable, nil
}

func (k *kubelet) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

// start recreates the socket, as a kubelet that has restarted does.
func (k *kubelet) start(t *testing.T) {
	t.Helper()
	if k.server != nil {
		k.server.Stop()
	}
	_ = os.Remove(k.socket)
	listener, err := net.Listen("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(k.server, k)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(k.server)
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	// The path of a socket is short.
	dir, err := os.MkdirTemp("", "topology-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &kubelet{
		socket: filepath.Join(dir, "kubelet.sock"), certificate: filepath.Join(dir, "kubelet.crt"), policy: "single-numa-node",
		allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}},
	}
	k.start(t)
	t.Cleanup(func() { k.server.Stop() })
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("the-node", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.certificate, certPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tokens = append(k.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		fmt.Fprintf(w, `{"kubeletconfig":{"topologyManagerPolicy":%q,"topologyManagerScope":"pod","cpuManagerPolicy":"static","memoryManagerPolicy":"None"}}`, k.policy)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	k.host, k.port = at.Hostname(), at.Port()
	return k
}

// exporter is a node's, with its token.
type exporter struct {
	plane      *testenv.ControlPlane
	node       *corev1.Node
	pod        *corev1.Pod
	token      string
	kubeconfig string
	config     string
}

// install brings the manifests, a Node, and a pod of the exporters on it.
func install(t *testing.T, node string) *exporter {
	t.Helper()
	e := &exporter{plane: testenv.Start(t), node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, config: filepath.Join(t.TempDir(), "config.yaml")}
	e.plane.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(testenv.Module(), "deploy", "numaresources"))
	e.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "exporter-of-" + node},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "topology", Image: "partition-node"}}},
	}
	for _, object := range []client.Object{e.node, e.pod} {
		if err := e.plane.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = e.plane.Client.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0))
		})
	}
	t.Cleanup(func() {
		_ = e.plane.Client.Delete(context.WithoutCancel(t.Context()), &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: node}})
	})
	e.token = e.bound(t, e.pod)
	e.kubeconfig = e.plane.KubeconfigOf(t, e.token)
	e.configure(t, "{}")
	return e
}

func (e *exporter) bound(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return e.plane.Token(t, namespace, account, pod)
}

func (e *exporter) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts the exporter of a host with two NUMA nodes of two CPUs each.
func (e *exporter) start(t *testing.T, k *kubelet, more ...string) *testenv.Process {
	t.Helper()
	k.change(func() { k.exporter = e.pod })
	sysfs := topologytest.Sysfs(t, topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 1, MemoryPerNode: 4 << 30})
	arguments := append([]string{"topology", "--kubeconfig=" + e.kubeconfig, "--config=" + e.config, "--podresources-socket=" + k.socket, "--sysfs=" + sysfs,
		"--kubelet-host=" + k.host, "--kubelet-port=" + k.port, "--cluster-ca=", "--kubelet-certificate=" + k.certificate}, more...)
	return testenv.Run(t, program, arguments...)
}

// await waits until the NodeResourceTopology has these CPUs available, by zone, and an attribute, and returns it.
func (e *exporter) await(t *testing.T, cpus []string, attribute string) *v1alpha2.NodeResourceTopology {
	t.Helper()
	now := &v1alpha2.NodeResourceTopology{}
	testenv.Eventually(t, patience, func() error {
		if err := e.plane.Client.Get(t.Context(), client.ObjectKey{Name: e.node.Name}, now); err != nil {
			return err
		}
		var available, attributes []string
		for _, zone := range now.Zones {
			for _, r := range zone.Resources {
				available = append(available, r.Name+":"+r.Available.String())
			}
		}
		for _, a := range now.Attributes {
			attributes = append(attributes, a.Name+"="+a.Value)
		}
		if !slices.Equal(available, cpus) || !slices.Contains(attributes, attribute) {
			return fmt.Errorf("it has %q and %q, want %q and %s", available, attributes, cpus, attribute)
		}
		return nil
	})
	return now
}

func TestAnExporterSaysWhatItsNodeHas(t *testing.T) {
	e, k := install(t, "numa"), newKubelet(t)
	process := e.start(t, k)
	const known = "topologyManagerPolicy=single-numa-node"
	first := e.await(t, []string{"cpu:1", "cpu:2"}, known)
	if owners := first.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != e.node.UID || owners[0].BlockOwnerDeletion != nil {
		t.Errorf("its owners are %v, want the Node", owners)
	}
	if at, err := time.Parse(time.RFC3339, first.Annotations["nodetopology.openshift.io/heartbeat"]); err != nil || time.Since(at) > patience {
		t.Errorf("its heartbeat is of %s: %v", at, err)
	}
	if costs := fmt.Sprint(first.Zones[0].Costs, first.Zones[1].Costs); costs != "[{node-0 10} {node-1 20}] [{node-0 20} {node-1 10}]" {
		t.Errorf("the costs are %s", costs)
	}
	k.change(func() {
		if slices.ContainsFunc(k.tokens, func(token string) bool { return token != e.token }) || len(k.tokens) == 0 {
			t.Errorf("the kubelet was shown %d tokens, want that of the pod", len(k.tokens))
		}
	})

	t.Run("it writes nothing while nothing changes", func(t *testing.T) {
		testenv.Always(t, 5*time.Second, func() error {
			now := &v1alpha2.NodeResourceTopology{}
			if err := e.plane.Client.Get(t.Context(), client.ObjectKey{Name: e.node.Name}, now); err != nil || now.ResourceVersion != first.ResourceVersion {
				return fmt.Errorf("it has the resource version %s, and had %s: %w", now.ResourceVersion, first.ResourceVersion, err)
			}
			return nil
		})
	})
	changed := func(cpus []string, attribute string, do func()) {
		t.Helper()
		began := time.Now()
		do()
		e.await(t, cpus, attribute)
		took := time.Since(began)
		if t.Logf("written after %s", took.Round(time.Millisecond)); took > 5*time.Second {
			t.Errorf("it took %s, want five seconds at most", took)
		}
	}
	t.Run("a pod with an exclusive CPU", func(t *testing.T) {
		changed([]string{"cpu:1", "cpu:1"}, known, func() {
			k.change(func() {
				k.pods = []*podresourcesv1.PodResources{{Namespace: "a", Name: "b", Containers: []*podresourcesv1.ContainerResources{{Name: "c", CpuIds: []int64{3}}}}}
			})
		})
	})
	t.Run("a resource that is registered late", func(t *testing.T) {
		changed([]string{"cpu:1", "example.com/nic:1", "cpu:1"}, known, func() {
			k.change(func() {
				k.allocatable = &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}, Devices: []*podresourcesv1.ContainerDevices{
					{ResourceName: "example.com/nic", DeviceIds: []string{"x"}, Topology: &podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: 0}}}},
				}}
			})
		})
	})
	t.Run("a kubelet that starts with another policy", func(t *testing.T) {
		changed([]string{"cpu:1", "cpu:2"}, "topologyManagerPolicy=restricted", func() {
			k.change(func() {
				k.policy, k.pods, k.allocatable = "restricted", nil, &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}}
			})
			k.start(t)
		})
	})
	t.Run("a kubelet whose certificate is not verified", func(t *testing.T) {
		other, _, err := cert.GenerateSelfSignedCertKey("another", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		good, err := os.ReadFile(k.certificate)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text []byte) {
			if err := os.WriteFile(k.certificate, text, 0o600); err != nil {
				t.Fatal(err)
			}
			k.start(t) // or it is noticed within a minute
		}
		write(other)
		now := e.await(t, []string{"cpu:1", "cpu:2"}, "policyUnknown=CertificateNotVerified")
		for _, attribute := range now.Attributes {
			if strings.Contains(attribute.Name, "Policy") {
				t.Errorf("it has %s=%s", attribute.Name, attribute.Value)
			}
		}
		write(good)
		e.await(t, []string{"cpu:1", "cpu:2"}, "topologyManagerPolicy=restricted")
	})
	t.Run("a configuration that is edited", func(t *testing.T) {
		e.configure(t, "podsFingerprinting: Enabled\n")
		e.await(t, []string{"cpu:1", "cpu:2"}, "nodeTopologyPodsFingerprintMethod=all")
		e.configure(t, "paused: true\n")
		testenv.Eventually(t, patience, func() error {
			if !strings.Contains(process.Log(), "paused: true") {
				return errors.New("it is not configured")
			}
			return nil
		})
		k.change(func() { k.allocatable = &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1}} })
		testenv.Always(t, 3*time.Second, func() error {
			now := &v1alpha2.NodeResourceTopology{}
			if err := e.plane.Client.Get(t.Context(), client.ObjectKey{Name: e.node.Name}, now); err != nil || len(now.Zones[1].Resources) != 1 || now.Zones[1].Resources[0].Available.Value() != 2 {
				return fmt.Errorf("it has %v: %w", now.Zones, err)
			}
			return nil
		})
		e.configure(t, "no such: field\n")
		e.configure(t, "{}")
		e.await(t, []string{"cpu:1", "cpu:0"}, "topologyManagerPolicy=restricted")
	})
	t.Run("its heartbeat", func(t *testing.T) {
		e.configure(t, "heartbeatPeriod: 2s\n")
		before := e.await(t, []string{"cpu:1", "cpu:0"}, "topologyManagerPolicy=restricted")
		testenv.Eventually(t, patience, func() error {
			now := e.await(t, []string{"cpu:1", "cpu:0"}, "topologyManagerPolicy=restricted")
			if now.Annotations["nodetopology.openshift.io/heartbeat"] == before.Annotations["nodetopology.openshift.io/heartbeat"] {
				return errors.New("there is none")
			}
			return nil
		})
		e.configure(t, "{}")
	})
	t.Run("a kubelet that was down for a while", func(t *testing.T) {
		k.server.Stop()
		time.Sleep(10 * time.Second)
		k.change(func() { k.allocatable = &podresourcesv1.AllocatableResourcesResponse{CpuIds: []int64{1, 2}} })
		began := time.Now()
		k.start(t)
		e.await(t, []string{"cpu:1", "cpu:1"}, "topologyManagerPolicy=restricted")
		took := time.Since(began)
		if t.Logf("written after %s", took.Round(time.Millisecond)); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	t.Run("a kubelet that has started and does not know its pods yet", func(t *testing.T) {
		k.change(func() {
			k.pods = []*podresourcesv1.PodResources{{Namespace: "a", Name: "b", Containers: []*podresourcesv1.ContainerResources{{Name: "c", CpuIds: []int64{2}}}}}
		})
		before := e.await(t, []string{"cpu:1", "cpu:0"}, "topologyManagerPolicy=restricted")
		k.change(func() { k.young = true })
		k.start(t)
		testenv.Eventually(t, patience, func() error {
			if !strings.Contains(process.Log(), "does not know its pods yet") {
				return errors.New("it has not looked")
			}
			return nil
		})
		now := &v1alpha2.NodeResourceTopology{}
		if err := e.plane.Client.Get(t.Context(), client.ObjectKey{Name: e.node.Name}, now); err != nil || now.ResourceVersion != before.ResourceVersion {
			t.Errorf("it has %v: %v", now.Zones, err)
		}
		k.change(func() { k.pods, k.young = nil, false })
		e.await(t, []string{"cpu:1", "cpu:1"}, "topologyManagerPolicy=restricted")
	})
	t.Run("a DRA driver that gives CPUs", func(t *testing.T) {
		// Those of other drivers and other nodes change nothing.
		slice := func(driver, node string) *resourcev1.ResourceSlice {
			return &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver},
				Spec:       resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}},
			}
		}
		drives := slice("dra.cpu", e.node.Name)
		for _, object := range []*resourcev1.ResourceSlice{slice("gpu.example.com", e.node.Name), slice("dra.cpu", "elsewhere"), drives} {
			if err := e.plane.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.plane.Client.Delete(context.WithoutCancel(t.Context()), object) })
			// Or it is noticed within a minute.
			k.start(t)
			if object == drives {
				e.await(t, []string{"cpu:0", "cpu:0"}, "cpuDriver=dra.cpu")
				continue
			}
			e.await(t, []string{"cpu:1", "cpu:1"}, "topologyManagerPolicy=restricted")
		}
		if err := e.plane.Client.Delete(t.Context(), drives); err != nil {
			t.Fatal(err)
		}
		k.start(t)
		now := e.await(t, []string{"cpu:1", "cpu:1"}, "topologyManagerPolicy=restricted")
		for _, attribute := range now.Attributes {
			if attribute.Name == "cpuDriver" {
				t.Errorf("it has %s=%s", attribute.Name, attribute.Value)
			}
		}
	})
	t.Run("it takes 30 MiB at most", func(t *testing.T) {
		memory := process.Memory(t)
		if t.Logf("it takes %.1f MiB", float64(memory)/(1<<20)); memory > 30<<20 {
			t.Errorf("it takes %d bytes", memory)
		}
	})
	t.Run("it ends when it is told to", func(t *testing.T) {
		if err := process.Terminate(t, 5*time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestAnExporterThatAnotherOneHasPreceded(t *testing.T) {
	e, k := install(t, "preceded"), newKubelet(t)
	theirs := &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: e.node.Name}, TopologyPolicies: []string{"SingleNUMANodeContainerLevel"},
		Zones: v1alpha2.ZoneList{{Name: "node-7", Type: "Node"}}, Attributes: v1alpha2.AttributeList{{Name: "topologyManagerPolicy", Value: "none"}},
	}
	if err := e.plane.Client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	e.start(t, k)
	now := e.await(t, []string{"cpu:1", "cpu:2"}, "topologyManagerPolicy=single-numa-node")
	if len(now.TopologyPolicies) > 0 || len(now.OwnerReferences) != 1 || now.OwnerReferences[0].UID != e.node.UID || now.UID != theirs.UID {
		t.Errorf("it is %+v", now)
	}
}

func TestAnExporterWritesForItsOwnNode(t *testing.T) {
	e := install(t, "mine")
	other := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Zones: v1alpha2.ZoneList{{Name: "node-0", Type: "Node"}}}
	if err := e.plane.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.plane.Client.Delete(context.WithoutCancel(t.Context()), other) })
	pending := e.pod.DeepCopy()
	pending.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "pending"}
	pending.Spec.NodeName = ""
	if err := e.plane.Client.Create(t.Context(), pending); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.plane.Client.Delete(context.WithoutCancel(t.Context()), pending, client.GracePeriodSeconds(0))
	})
	as := func(token string) client.Client {
		config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.BearerToken = token
		c, err := client.New(config, client.Options{Scheme: e.plane.Client.Scheme(), Mapper: e.plane.Client.RESTMapper()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bound := as(e.token)
	topology := func(name string, owner ...metav1.OwnerReference) *v1alpha2.NodeResourceTopology {
		return &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner}, Zones: v1alpha2.ZoneList{{Name: "node-0", Type: "Node"}}}
	}
	mine := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "mine", UID: e.node.UID}
	for name, test := range map[string]struct {
		write func() error
		err   string
	}{
		"its own":          {func() error { return bound.Create(t.Context(), topology("mine", mine), client.DryRunAll) }, ""},
		"another's":        {func() error { return bound.Create(t.Context(), topology("another", mine), client.DryRunAll) }, "runs on node mine and may not write noderesourcetopologies another"},
		"another's update": {func() error { return bound.Update(t.Context(), other.DeepCopy(), client.DryRunAll) }, "may not write noderesourcetopologies other"},
		"another's end":    {func() error { return bound.Delete(t.Context(), other.DeepCopy(), client.DryRunAll) }, "may not write noderesourcetopologies other"},
		"all at once": {func() error {
			return bound.DeleteAllOf(t.Context(), &v1alpha2.NodeResourceTopology{}, client.DryRunAll)
		}, "cannot deletecollection"},
		"another owner": {func() error {
			owner := mine
			owner.Kind = "Pod"
			return bound.Create(t.Context(), topology("mine", owner), client.DryRunAll)
		}, "must be its Node"},
		"a number that takes hours to read": {func() error {
			resources := map[string]any{"name": "cpu", "capacity": int64(8), "allocatable": "8", "available": "1e-99999999"}
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha2.SchemeGroupVersion.String(), "kind": "NodeResourceTopology", "metadata": map[string]any{"name": "mine"},
				"zones": []any{map[string]any{"name": "node-0", "type": "Node", "resources": []any{resources}}},
			}}
			return bound.Create(t.Context(), object, client.DryRunAll)
		}, "has an exponent of more than three digits"},
		"a token without a pod":    {func() error { return as(e.bound(t, nil)).Create(t.Context(), topology("mine"), client.DryRunAll) }, "bound to no node"},
		"a pod that is on no node": {func() error { return as(e.bound(t, pending)).Create(t.Context(), topology("mine"), client.DryRunAll) }, "bound to no node"},
		"its Node":                 {func() error { return bound.Delete(t.Context(), e.node.DeepCopy(), client.DryRunAll) }, "cannot delete resource"},
		"a look at other nodes":    {func() error { return bound.List(t.Context(), &corev1.NodeList{}) }, "cannot list resource"},
	} {
		t.Run(name, func(t *testing.T) {
			// A policy works a moment after it was made.
			testenv.Eventually(t, patience, func() error {
				err := test.write()
				switch {
				case test.err == "" && err != nil:
					return err
				case test.err != "" && (err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.err)):
					return fmt.Errorf("the error is %v, want %q", err, test.err)
				}
				return nil
			})
		})
	}
}
