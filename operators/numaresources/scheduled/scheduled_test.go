// SPDX-License-Identifier: Apache-2.0

// Package scheduled has the tests of topo-aware-scheduler against a kube-apiserver and etcd. The test plays the kubelets: it looks at
// bound pods late and in any order, gives each the lowest zone that has room, and reports late what is left. In one test, kubelets and exporters
// are real, and machines and runtimes are not.
//
// TEST_ASSET_SCHEDULER names the program, TEST_ASSET_PLUGIN kubectl-partition, TEST_ASSET_PARTITION_NODE partition-node, and TEST_ASSET_KWOK kwok.
// make scheduler-test sets them. Of older releases, it names their schedulers and their kube-apiservers, and no other program.
package scheduled

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/partition"
)

func TestMain(m *testing.M) { testenv.Main(m, nil, v1alpha2.AddToScheme) }

const (
	schedulerName = "topo-aware-scheduler"
	namespace     = "default"
	patience      = 2 * time.Minute
)

// program is the file that an environment variable names.
func program(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s names no program; make scheduler-test does", variable)
	}
	return path
}

// configuration is a file for the program, which uses a kubeconfig.
func configuration(t testing.TB, kubeconfig string) string {
	t.Helper()
	match := numaresources.MatchArgs{ScoringStrategy: &numaresources.MatchScoring{Type: "MostAllocated"}}
	text := numaresources.SchedulerConfiguration{Name: schedulerName, Lease: "numa", Namespace: namespace, Match: match}.String()
	return connected(t, strings.Replace(text, "leaderElect: true", "leaderElect: false", 1), kubeconfig)
}

// plainConfiguration is a file for kube-scheduler.
func plainConfiguration(t testing.TB, kubeconfig string) string {
	t.Helper()
	return connected(t, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n", kubeconfig)
}

func connected(t testing.TB, text, kubeconfig string) string {
	t.Helper()
	text += "clientConnection: {kubeconfig: " + kubeconfig + ", qps: 1000, burst: 1000}\n"
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubelets are those of all nodes.
type kubelets struct {
	t      testing.TB
	client client.Client
	random *rand.Rand
	mutex  sync.Mutex
	nodes  map[string]*node
	// refused are the pods that found no zone.
	refused []string
}

type node struct {
	// free has the free CPUs of each zone, of so many.
	free []int64
	cpus int64
	pods map[string]placed
}

type placed struct {
	zone int
	cpus int64
}

// start starts the program and some nodes of two zones. All ends with the test.
func start(t *testing.T, nodes int, cpus int64) *kubelets {
	t.Helper()
	file := program(t, "TEST_ASSET_SCHEDULER")
	plane := testenv.Start(t)
	k := &kubelets{t: t, client: plane.Client, random: rand.New(rand.NewPCG(1, 69)), nodes: map[string]*node{}}
	k.clear()
	t.Cleanup(k.clear)
	for i := range nodes {
		k.add(fmt.Sprintf("node-%d", i), []int64{cpus, cpus})
	}
	testenv.RunFile(t, file, "--config="+configuration(t, plane.Kubeconfig), "--secure-port=0")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.play(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *kubelets) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// clear removes all pods, nodes and reports.
func (k *kubelets) clear() {
	ctx := context.Background()
	k.must(k.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	k.must(k.client.DeleteAllOf(ctx, &corev1.Node{}))
	k.must(k.client.DeleteAllOf(ctx, &v1alpha2.NodeResourceTopology{}))
}

// add creates a node with so many free CPUs in each zone, and waits until it is ready.
func (k *kubelets) add(name string, free []int64, change ...func(*corev1.Node)) {
	k.t.Helper()
	var total int64
	for _, cpus := range free {
		total += cpus
	}
	resources := corev1.ResourceList{
		"cpu": *resource.NewQuantity(total, resource.DecimalSI), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("500"),
		corev1.ResourceName(partition.CoresResource("management")): resource.MustParse("4000"),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}},
	}
	for _, f := range change {
		f(n)
	}
	k.must(k.client.Create(k.t.Context(), n))
	for !ready(n) {
		time.Sleep(100 * time.Millisecond)
		k.must(k.client.Get(k.t.Context(), client.ObjectKeyFromObject(n), n))
	}
	// kube-apiserver has tainted it, as one that is not ready.
	k.must(k.client.Patch(k.t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"taints": null}}`))))
	k.mutex.Lock()
	k.nodes[name] = &node{free: free, cpus: free[0], pods: map[string]placed{}}
	k.mutex.Unlock()
	k.report(k.t.Context(), name, time.Now())
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// report writes what a node has free, as was read at some time.
func (k *kubelets) report(ctx context.Context, name string, at time.Time) {
	k.mutex.Lock()
	n := k.nodes[name]
	print := podfingerprint.NewFingerprint(len(n.pods))
	for pod := range n.pods {
		_ = print.Add(namespace, pod)
	}
	report := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	zones := v1alpha2.ZoneList{}
	for i, free := range n.free {
		cpus := *resource.NewQuantity(n.cpus, resource.DecimalSI)
		zones = append(zones, v1alpha2.Zone{Name: numaresources.ZoneName(i), Type: numaresources.ZoneType, Resources: v1alpha2.ResourceInfoList{{Name: "cpu", Capacity: cpus, Allocatable: cpus, Available: *resource.NewQuantity(free, resource.DecimalSI)}}})
	}
	k.mutex.Unlock()
	err := k.client.Get(ctx, client.ObjectKeyFromObject(report), report)
	found := err == nil
	if client.IgnoreNotFound(err) != nil {
		return // the test is over
	}
	report.Zones = zones
	report.Attributes = v1alpha2.AttributeList{
		{Name: numaresources.AttributePolicy, Value: "single-numa-node"}, {Name: numaresources.AttributeScope, Value: "container"},
		{Name: podfingerprint.Attribute, Value: print.Sign()}, {Name: podfingerprint.AttributeMethod, Value: podfingerprint.MethodWithExclusiveResources},
	}
	metav1.SetMetaDataAnnotation(&report.ObjectMeta, numaresources.HeartbeatAnnotation, at.UTC().Format(time.RFC3339))
	if found {
		_ = k.client.Update(ctx, report)
	} else {
		_ = k.client.Create(ctx, report)
	}
}

// play looks at what was bound and what is gone, once.
func (k *kubelets) play(ctx context.Context) {
	var pods corev1.PodList
	if k.client.List(ctx, &pods, client.InNamespace(namespace)) != nil {
		return
	}
	k.random.Shuffle(len(pods.Items), func(i, j int) { pods.Items[i], pods.Items[j] = pods.Items[j], pods.Items[i] })
	changed := map[string]bool{}
	there := map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		there[pod.Name] = pod.DeletionTimestamp == nil
		if n := pod.Spec.NodeName; n != "" && pod.Status.StartTime == nil && pod.DeletionTimestamp == nil && k.random.IntN(4) > 0 {
			changed[n] = k.admit(ctx, pod) || changed[n]
		}
	}
	k.mutex.Lock()
	for name, n := range k.nodes {
		for pod, of := range n.pods {
			if !there[pod] {
				n.free[of.zone] += of.cpus
				delete(n.pods, pod)
				changed[name] = true
			}
		}
	}
	k.mutex.Unlock()
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp != nil {
			_ = k.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
	}
	at := time.Now()
	if len(changed) > 0 {
		time.Sleep(time.Duration(k.random.IntN(500)) * time.Millisecond) // reports come late
	}
	for name := range changed {
		k.report(ctx, name, at)
	}
}

// admit gives a pod the lowest zone that has room for it.
func (k *kubelets) admit(ctx context.Context, pod *corev1.Pod) bool {
	k.mutex.Lock()
	n := k.nodes[pod.Spec.NodeName]
	cpus := int64(0)
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		cpus = pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	zone := slices.IndexFunc(n.free, func(free int64) bool { return free >= cpus })
	now := metav1.Now()
	pod.Status.StartTime, pod.Status.Phase = &now, corev1.PodRunning
	if zone < 0 {
		k.refused = append(k.refused, pod.Name)
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "TopologyAffinityError"
	} else if cpus > 0 {
		n.free[zone] -= cpus
		n.pods[pod.Name] = placed{zone, cpus}
	}
	k.mutex.Unlock()
	_ = k.client.Status().Update(ctx, pod)
	return cpus > 0 && zone >= 0 // nothing of a refused one is to be reported
}

// pod creates a Guaranteed pod with so many CPUs.
func (k *kubelets) pod(name, cpus string, change ...func(*corev1.Pod)) *corev1.Pod {
	k.t.Helper()
	list := corev1.ResourceList{"cpu": resource.MustParse(cpus), "memory": resource.MustParse("64Mi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName,
			Containers:    []corev1.Container{{Name: "app", Image: "app", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	k.must(k.client.Create(k.t.Context(), pod))
	return pod
}

// read returns a pod as it is now, or nil if it is gone.
func (k *kubelets) read(name string) *corev1.Pod {
	k.t.Helper()
	pod := &corev1.Pod{}
	err := k.client.Get(k.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	k.must(err)
	return pod
}

// waits returns what the scheduler says of a pod that has no node.
func waits(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func (k *kubelets) eventually(check func() error) {
	k.t.Helper()
	testenv.Eventually(k.t, patience, check)
}

// runs waits until a pod has been admitted.
func (k *kubelets) runs(name string) {
	k.t.Helper()
	k.eventually(func() error {
		if pod := k.read(name); pod == nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s: %+v", name, pod)
		}
		return nil
	})
}

// noneRefused fails the test if a kubelet refused a pod.
func (k *kubelets) noneRefused() {
	k.t.Helper()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if len(k.refused) > 0 {
		k.t.Errorf("%d pods were bound and found no zone: %q", len(k.refused), k.refused)
	}
}

func TestPodsGoWhereAZoneHasRoom(t *testing.T) {
	k := start(t, 0, 0)
	k.add("node-0", []int64{8, 8})
	k.pod("first", "5")
	k.runs("first")
	k.pod("second", "6")
	k.runs("second")
	// 5 CPUs are free, 3 in one zone and 2 in the other.
	k.pod("third", "4")
	k.eventually(func() error {
		if why := waits(k.read("third")); !strings.Contains(why, `container "app" fits into no zone: node-0 lacks 1 of cpu`) {
			return fmt.Errorf("the pod waits since %q", why)
		}
		return nil
	})
	t.Run("a partitioned pod is placed by its cores alone", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		k.must(k.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		metav1.SetMetaDataAnnotation(&ns.ObjectMeta, partition.AllowedAnnotation, "management")
		k.must(k.client.Update(t.Context(), ns))
		k.pod("partitioned", "4", func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, partition.TargetAnnotation("management"), `{"effect":"PreferredDuringScheduling"}`)
			pod.Spec.Containers[0].Resources.Limits = nil // else its CPUs are its own
		})
		if requests := k.read("partitioned").Spec.Containers[0].Resources.Requests; !requests.Cpu().IsZero() {
			t.Fatalf("it is not partitioned, and requests %v", requests)
		}
		k.runs("partitioned")
	})
	t.Run("a larger pod waits, though the node has as many CPUs", func(t *testing.T) {
		k.pod("large", "5")
		testenv.Always(t, 3*time.Second, func() error {
			if pod := k.read("large"); pod.Spec.NodeName != "" {
				return fmt.Errorf("the pod is on %s", pod.Spec.NodeName)
			}
			return nil
		})
	})
	t.Run("it is placed once a zone has room", func(t *testing.T) {
		k.must(k.client.Delete(t.Context(), k.read("first"), client.GracePeriodSeconds(0)))
		k.runs("large")
	})
	k.noneRefused()
}

func TestAPodThatAKubeletHasRefusedKeepsNoOtherFromTheNode(t *testing.T) {
	k := start(t, 0, 0)
	k.add("node-0", []int64{4, 4})
	for _, name := range []string{"first", "second"} {
		k.pod(name, "3")
		k.runs(name)
	}
	// One CPU of each zone is free.
	k.pod("of-another", "2", func(pod *corev1.Pod) { pod.Spec.SchedulerName, pod.Spec.NodeName = "another", "node-0" })
	k.eventually(func() error {
		if pod := k.read("of-another"); pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the pod is %s", pod.Status.Phase)
		}
		return nil
	})
	k.pod("fits", "1")
	k.runs("fits")
}

func TestNothingIsPlacedByAStaleReport(t *testing.T) {
	k := start(t, 1, 8)
	k.report(t.Context(), "node-0", time.Now().Add(-time.Hour))
	k.pod("aligned", "2")
	k.eventually(func() error {
		if why := waits(k.read("aligned")); !strings.Contains(why, "older than 15m0s") {
			return fmt.Errorf("the pod waits since %q", why)
		}
		return nil
	})
	k.pod("shared", "500m")
	k.runs("shared")
	k.report(t.Context(), "node-0", time.Now())
	k.runs("aligned")
	k.noneRefused()
}

func TestABurstFillsZonesAndNoPodIsRefused(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			k := start(t, 4, 16)
			random := rand.New(rand.NewPCG(seed, 69))
			asked := map[string]int64{}
			var all int64
			for i := range 200 {
				cpus := 1 + random.Int64N(4)
				name := fmt.Sprintf("pod-%d", i)
				asked[name] = cpus
				all += cpus
				k.pod(name, fmt.Sprint(cpus))
			}
			const total = 4 * 2 * 16
			var running int64
			// The zones' sum is an upper bound of the best fill. There are pods of one CPU, so it can be reached.
			best := min(all, total)
			k.eventually(func() error {
				var pods corev1.PodList
				k.must(k.client.List(t.Context(), &pods, client.InNamespace(namespace)))
				running = 0
				for _, pod := range pods.Items {
					switch {
					case pod.Status.Phase == corev1.PodRunning:
						running += asked[pod.Name]
					case pod.Spec.NodeName != "" && pod.Status.StartTime == nil:
						return fmt.Errorf("pod %s is on its way", pod.Name)
					}
				}
				if running*100 < best*95 {
					return fmt.Errorf("%d of %d CPUs are filled", running, best)
				}
				return nil
			})
			k.noneRefused()
			t.Logf("%d of at most %d CPUs are filled, %.1f %%, with no refusal", running, best, 100*float64(running)/float64(best))
		})
	}
}

func TestPreemptionEvictsOnlyForAPodThatIsPlaced(t *testing.T) {
	k := start(t, 1, 8)
	low, high := priority(k, "low", 1), priority(k, "high", 1000)
	alone := func() {
		k.must(k.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	}
	t.Run("as many are evicted as make it certain", func(t *testing.T) {
		names := []string{"half-0", "half-1", "half-2", "half-3"}
		for _, name := range names {
			k.pod(name, "4", low)
			k.runs(name)
		}
		// Each zone has two halves, and nobody knows which. Two may be of different zones. Of three, two are of the same.
		k.pod("whole", "8", high)
		k.runs("whole")
		if left := k.left(names...); left != 1 {
			t.Errorf("%d of four pods are left, want one", left)
		}
	})
	t.Run("a pod that is larger than each zone evicts nobody", func(t *testing.T) {
		alone()
		k.pod("small", "2", low)
		k.runs("small")
		k.pod("larger", "9", high)
		k.eventually(func() error {
			if why := waits(k.read("larger")); !strings.Contains(why, "larger than every zone") {
				return fmt.Errorf("the pod waits since %q", why)
			}
			return nil
		})
		testenv.Always(t, 2*time.Second, func() error {
			if k.left("small") != 1 {
				return fmt.Errorf("the small pod was evicted")
			}
			return nil
		})
	})
	t.Run("a pod evicts one, and no second while the report is late", func(t *testing.T) {
		alone()
		for _, name := range []string{"zone-a", "zone-b"} {
			k.pod(name, "8", low)
			k.runs(name)
		}
		k.pod("urgent", "8", high)
		k.runs("urgent")
		if left := k.left("zone-a", "zone-b"); left != 1 {
			t.Errorf("%d of two pods are left, want one", left)
		}
	})
	k.noneRefused()
}

// left counts the pods that are there, and stay.
func (k *kubelets) left(names ...string) (count int) {
	k.t.Helper()
	for _, name := range names {
		if pod := k.read(name); pod != nil && pod.DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// priority creates a PriorityClass, and returns how a pod gets it.
func priority(k *kubelets, name string, value int32) func(*corev1.Pod) {
	k.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	k.must(client.IgnoreAlreadyExists(k.client.Create(k.t.Context(), class)))
	k.t.Cleanup(func() { _ = k.client.Delete(context.Background(), class) })
	return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = name }
}

func TestItEndsWhileTheClusterIsAway(t *testing.T) {
	file := program(t, "TEST_ASSET_SCHEDULER")
	ends := func(t *testing.T, process *testenv.Process) {
		if !process.Running() {
			t.Fatalf("it has ended by itself:\n%s", process.Log())
		}
		began := time.Now()
		_ = process.Terminate(t, 30*time.Second)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s to end", took)
		} else {
			t.Logf("it took %s to end", took)
		}
	}
	t.Run("nothing listens when it starts", func(t *testing.T) {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		// Nothing listens on the port of discard.
		text := "{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}\n"
		if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		process := testenv.RunFile(t, file, "--config="+configuration(t, kubeconfig), "--secure-port=0")
		time.Sleep(3 * time.Second)
		ends(t, process)
	})
	t.Run("kube-apiserver does not answer when it starts", func(t *testing.T) {
		kubeconfig, silence := between(t, testenv.Start(t))
		silence()
		ports, err := testenv.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		// With a port, it first asks who may read its metrics.
		process := testenv.RunFile(t, file, "--config="+configuration(t, kubeconfig), fmt.Sprintf("--secure-port=%d", ports[0]), "--cert-dir="+t.TempDir())
		time.Sleep(3 * time.Second)
		ends(t, process)
	})
	t.Run("kube-apiserver stops answering while it binds pods", func(t *testing.T) {
		plane := testenv.Start(t)
		k := &kubelets{t: t, client: plane.Client, nodes: map[string]*node{}}
		k.clear()
		t.Cleanup(k.clear)
		k.add("node-0", []int64{100, 100})
		kubeconfig, silence := between(t, plane)
		process := testenv.RunFile(t, file, "--config="+configuration(t, kubeconfig), "--secure-port=0")
		bound := func(name string) error {
			if pod := k.read(name); pod.Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node", name)
			}
			return nil
		}
		k.pod("first", "1")
		k.eventually(func() error { return bound("first") })
		for i := range 20 {
			k.pod(fmt.Sprintf("pod-%d", i), "1")
		}
		silence()
		time.Sleep(3 * time.Second)
		ends(t, process)
	})
}

// between passes connections on to kube-apiserver, until it is told to be silent: then nothing that is sent arrives. It returns a kubeconfig.
func between(t *testing.T, plane *testenv.ControlPlane) (kubeconfig string, silence func()) {
	t.Helper()
	server := strings.TrimPrefix(plane.Config.Host, "https://")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var silent atomic.Bool
	pass := func(to, from net.Conn) {
		defer to.Close()
		buffer := make([]byte, 32*1024)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if silent.Load() {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go pass(client, behind)
			go pass(behind, client)
		}
	}()
	text, err := os.ReadFile(plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(string(text), server, listener.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, func() { silent.Store(true) }
}
