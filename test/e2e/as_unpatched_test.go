// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/criproxy"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// Without a pinning file, a patched kubelet does what an unpatched one does. This test has a
// separate cluster because a type that was once active stays active.
func TestWithoutFileTheKubeletIsAsUnpatched(t *testing.T) {
	in(t, long, unpatchedBinaries)
	c := alone(t, config)
	t.Run("a pod that asks runs as an ordinary one, with a warning", func(t *testing.T) {
		p := start(t, c, fixture.Namespace(t, c.Client, "management"), fixture.Pod("asks", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")))[0]
		if _, has := p.Spec.Containers[0].Resources.Requests[cores]; has || p.Annotations[managementTarget] != "" || !strings.Contains(p.Annotations[partition.WarningAnnotation], "active") {
			t.Errorf("the pod has the annotations %v and %v", p.Annotations, p.Spec.Containers[0].Resources)
		}
		if usage := containerUsage(t, p, 0); usage.CPUs != allCPUs(t) {
			t.Errorf("its container has CPUs %s, want %s", usage.CPUs, allCPUs(t))
		}
		if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409) {
			t.Errorf("the pod has weight %d (%v), want %d", usage.Weight, err, weight(409))
		}
	})
	t.Run("a static pod that asks is left as it is", func(t *testing.T) {
		writeStaticPods(t, c, staticPod("static", map[string]string{managementTarget: soft}, fixture.Busy, "cpu=400m memory=16Mi", ""))
		p := awaitRunning(t, c, "default", "static-"+host.NodeName)
		if _, has := p.Spec.Containers[0].Resources.Requests[cores]; has || p.Annotations[managementTarget] == "" {
			t.Errorf("the pod has the annotations %v and %v, want those of its manifest", p.Annotations, p.Spec.Containers[0].Resources)
		}
	})
	t.Run("the node object is the same", func(t *testing.T) {
		patched := registered(t, c)
		c.UseKubelet(upstreamKubelet)
		unpatched := registered(t, c)
		if patched.Status.NodeInfo.KubeletVersion == unpatched.Status.NodeInfo.KubeletVersion {
			t.Fatalf("both kubelets have the version %s, so one binary is compared with itself", patched.Status.NodeInfo.KubeletVersion)
		}
		if a, b := comparable(patched), comparable(unpatched); a != b {
			t.Errorf("the node of the patched kubelet is\n%s\nand that of the unpatched one\n%s", a, b)
		}
	})
	proxy := throughProxy(t, c)
	unpatched := observe(t, c, proxy, upstreamKubelet, "", nil)
	t.Run("the requests to the runtime are the same", func(t *testing.T) {
		patched := observe(t, c, proxy, "", "", nil)
		for _, method := range exact {
			if len(unpatched.requests[method]) == 0 {
				t.Errorf("the unpatched kubelet sent no %s, so nothing is compared", method)
			}
			expectSame(t, method, patched.requests[method], unpatched.requests[method])
		}
		expectSame(t, "methods", patched.methods(), unpatched.methods())
		expectSame(t, "names of metrics", patched.metrics, unpatched.metrics)
	})
	t.Run("a partition adds no call", func(t *testing.T) {
		partitioned := observe(t, c, proxy, "", pinning, asks)
		for _, method := range slices.Sorted(maps.Keys(unpatched.requests)) {
			t.Logf("%-28s unpatched %3d, partitioned %3d", method, len(unpatched.requests[method]), len(partitioned.requests[method]))
		}
		t.Logf("API: unpatched %v, partitioned %v", unpatched.apiCalls, partitioned.apiCalls)
		for call, got := range partitioned.apiCalls {
			// The kubelet may or may not report two changes of a status together.
			if want := unpatched.apiCalls[call]; got > want+1 {
				t.Errorf("there were %d API calls %s, and an unpatched kubelet made %d", got, call, want)
			}
		}
		for _, method := range exact {
			if got, want := len(partitioned.requests[method]), len(unpatched.requests[method]); got > want {
				t.Errorf("there were %d calls of %s, and an unpatched kubelet made %d", got, method, want)
			}
		}
		expectSame(t, "methods", partitioned.methods(), unpatched.methods())
	})
}

// exact lists the methods whose requests must be the same, one by one. How often a kubelet
// lists and looks is a matter of time.
var exact = []string{"RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainerResources"}

// observed is what a kubelet has done for a fixed set of pods.
type observed struct {
	// requests are those to the runtime, by their methods, without what identifies a pod.
	requests map[string][]string
	// metrics are the names of the kubelet's metrics.
	metrics []string
	// apiCalls counts changes of pods that the kubelet has asked for.
	apiCalls map[string]int
}

// methods returns the methods that were called, but for those of garbage collection, which runs
// every minute or every five.
func (o observed) methods() []string {
	methods := slices.Sorted(maps.Keys(o.requests))
	return slices.DeleteFunc(methods, func(method string) bool {
		return slices.Contains([]string{"ListImages", "ImageFsInfo", "RemoveImage", "RemoveContainer", "RemovePodSandbox"}, method)
	})
}

// observe starts a kubelet with a pinning file, and has it run, resize and end a fixed set of
// pods. Those that may be partitioned have the annotations.
func observe(t *testing.T, c *host.Cluster, proxy *criproxy.Proxy, kubelet, file string, annotations map[string]string) observed {
	t.Helper()
	if err := c.ChangeCPUManagerPolicy("static"); err != nil {
		t.Fatal(err)
	}
	c.UseKubelet(kubelet)
	restart(t, c, file)
	const namespace = "fixed"
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{partition.AllowedAnnotation: "management"}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	awaitPods := func(count int) {
		t.Helper()
		waitFor(t, time.Minute, fmt.Sprintf("there are %d pods", count), func() error {
			left, err := c.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err == nil && len(left.Items) != count {
				err = fmt.Errorf("there are %d", len(left.Items))
			}
			return err
		})
	}
	awaitPods(0)
	waitFor(t, 20*time.Second, "the default service account of "+namespace, func() error {
		_, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	proxy.Forget()
	audited := auditSize(t, c)
	full := fixture.Pod("full", annotations, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "cpu=200m memory=32Mi"), fixture.Container("d", fixture.Awake, "cpu=50m memory=16Mi", ""))
	// A sidecar, since a reconciliation may or may not see an init container that ends.
	full.Spec.InitContainers = []v1.Container{fixture.Sidecar("sidecar", fixture.Awake, "cpu=50m memory=16Mi", "")}
	pods := []*v1.Pod{full, fixture.Pod("besteffort", annotations, fixture.Container("c", fixture.Awake, "", "")), fixture.Exclusive("exclusive", 1)}
	no := false
	for _, p := range pods {
		p.Spec.AutomountServiceAccountToken, p.Spec.EnableServiceLinks = &no, &no
	}
	// The exclusive one first: if the shared CPUs changed while the others ran, a
	// reconciliation might or might not come in between, and move them.
	start(t, c, namespace, pods[2])
	start(t, c, namespace, pods[:2]...)
	// Calls are counted over this period and the one after the resize.
	time.Sleep(reconciliations(2))
	if err := resizeMemory(t, c, namespace, "full", "24Mi", "64Mi"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(reconciliations(2))
	o := observed{requests: map[string][]string{}, metrics: metricNames(t, c), apiCalls: apiCalls(t, c, audited)}
	for i, p := range pods {
		if err := c.Client.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitPods(len(pods) - 1 - i)
	}
	calls, err := proxy.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if create, ok := call.Request.(*runtimeapi.CreateContainerRequest); ok {
			// The kubelet takes variables of Services from a map, in any order.
			slices.SortFunc(create.Config.Envs, func(a, b *runtimeapi.KeyValue) int { return strings.Compare(a.Key, b.Key) })
		}
		data, err := protojson.Marshal(call.Request)
		if err != nil {
			t.Fatal(err)
		}
		// protojson varies its white space on purpose.
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		text := compact.String()
		for _, id := range identities {
			text = id.ReplaceAllString(text, "*")
		}
		o.requests[call.Method] = append(o.requests[call.Method], text)
	}
	for _, texts := range o.requests {
		slices.Sort(texts)
	}
	return o
}

// identities match what differs between two pods of one manifest.
var identities = []*regexp.Regexp{
	regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), // UIDs
	regexp.MustCompile(`"kubernetes.io/config.seen":"[^"]*"`),
	regexp.MustCompile(`[0-9a-f]{64}`),                    // containers and sandboxes
	regexp.MustCompile(`containers/[a-z]+/[0-9a-f]{8}\b`), // termination logs
}

// expectSame compares what both kubelets did, and reports what only one of them did.
func expectSame(t *testing.T, what string, patched, unpatched []string) {
	t.Helper()
	if slices.Equal(patched, unpatched) {
		return
	}
	only := func(of, other []string) (found []string) {
		rest := slices.Clone(other)
		for _, text := range of {
			if i := slices.Index(rest, text); i >= 0 {
				rest = slices.Delete(rest, i, i+1)
			} else {
				found = append(found, text)
			}
		}
		return found
	}
	t.Errorf("%s: only the patched kubelet has\n%s\nonly the unpatched one has\n%s", what, strings.Join(only(patched, unpatched), "\n"), strings.Join(only(unpatched, patched), "\n"))
}

// metricNames returns the names and types of the kubelet's metrics.
func metricNames(t *testing.T, c *host.Cluster) []string {
	t.Helper()
	names := map[string]bool{}
	for _, path := range []string{"metrics", "metrics/resource", "metrics/cadvisor", "metrics/probes"} {
		data, err := c.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(host.NodeName).SubResource("proxy").Suffix(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				names[path+" "+strings.TrimSpace(rest)] = true
			}
		}
	}
	// This one appears when the kubelet first looks for pods to evict, sooner or later.
	delete(names, "metrics kubelet_metrics_provider gauge")
	return slices.Sorted(maps.Keys(names))
}

// auditSize returns the size of the audit log, for apiCalls.
func auditSize(t *testing.T, c *host.Cluster) int64 {
	t.Helper()
	info, err := os.Stat(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// apiCalls counts the changes of pods that the kubelet has asked for since the audit log had a
// size, by verb, pod and subresource.
func apiCalls(t *testing.T, c *host.Cluster, since int64) map[string]int {
	t.Helper()
	data, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range bytes.Lines(data[since:]) {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Name, Subresource string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username == "system:node:"+host.NodeName {
			counts[event.Verb+" "+event.ObjectRef.Name+"/"+event.ObjectRef.Subresource]++
		}
	}
	return counts
}

// comparable prints what two kubelets of different versions must report alike in their node.
func comparable(node *v1.Node) string {
	n := node.DeepCopy()
	n.ObjectMeta = metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations, Finalizers: n.Finalizers}
	n.Status.NodeInfo.KubeletVersion = ""
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime, n.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	var lists []string
	for name, list := range map[string]v1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
		for _, key := range slices.Sorted(maps.Keys(list)) {
			quantity := list[key]
			lists = append(lists, fmt.Sprintf("%s %s: %s", name, key, quantity.String()))
		}
	}
	slices.Sort(lists)
	n.Status.Capacity, n.Status.Allocatable = nil, nil
	return strings.Join(lists, "\n") + "\n" + n.String()
}
