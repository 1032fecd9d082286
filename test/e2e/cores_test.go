// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// After each start of the kubelet the node reports the cores of the types in the file, and of
// no others, whatever it reported before. What others have added to the node stays.
func TestNodeReportsItsCoresAfterEachStart(t *testing.T) {
	in(t, maybe(unpatchedBinaries))
	c := partitioned(t)
	nodes := c.Client.CoreV1().Nodes()
	expect := func(t *testing.T) *v1.Node {
		t.Helper()
		node := getNode(t, c)
		for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
			got := list[cores]
			if want := int64(runtime.NumCPU()) * 1000; got.Value() != want {
				t.Errorf("the node's %s has %d cores, want %d", what, got.Value(), want)
			}
			if _, stale := list["stale.workload.openshift.io/cores"]; stale {
				t.Errorf("the node's %s still has the stale type: %v", what, list)
			}
		}
		return node
	}
	t.Run("a node to which others have added, with a stale type", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		labels := `{"metadata": {"labels": {"example.com/theirs": "label"}, "annotations": {"example.com/theirs": "annotation"}}}`
		if _, err := nodes.Patch(t.Context(), host.NodeName, types.MergePatchType, []byte(labels), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		status := `{"status": {"capacity": {"example.com/gpu": "3", "stale.workload.openshift.io/cores": "4k", "management.workload.openshift.io/cores": "1"},
			"allocatable": {"example.com/gpu": "2", "stale.workload.openshift.io/cores": "4k"}}}`
		if _, err := nodes.Patch(t.Context(), host.NodeName, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		node := expect(t)
		gpus, free := node.Status.Capacity["example.com/gpu"], node.Status.Allocatable["example.com/gpu"]
		if node.Labels["example.com/theirs"] != "label" || node.Annotations["example.com/theirs"] != "annotation" || gpus.Value() != 3 || free.Value() != 3 {
			t.Errorf("the node lacks what others have added: labels %v, annotations %v, capacity %v, allocatable %v", node.Labels, node.Annotations, node.Status.Capacity, node.Status.Allocatable)
		}
	})
	t.Run("a node that was deleted", func(t *testing.T) {
		registered(t, c)
		expect(t)
	})
	t.Run("a node that an unpatched kubelet has registered", func(t *testing.T) {
		needs(t, unpatchedBinaries)
		c.UseKubelet(upstreamKubelet)
		t.Cleanup(func() { c.UseKubelet("") })
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		registered(t, c)
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		c.UseKubelet("")
		restart(t, c, pinning)
		expect(t)
	})
	t.Run("a type that is taken out of the file", func(t *testing.T) {
		restart(t, c, `{"management": {"cpuset": "0"}, "stale": {"cpuset": ""}}`)
		if _, has := getNode(t, c).Status.Capacity["stale.workload.openshift.io/cores"]; !has {
			t.Error("the node does not report the cores of the second type")
		}
		restart(t, c, pinning)
		expect(t)
	})
}

// The node never reports zero cores. The kubelet would reject pods then, and static pods for
// good. Upstream reports zero of an extended resource if the node registers before the device
// manager has started, and that waits until the runtime is ready.
func TestCoresAreNeverZero(t *testing.T) {
	in(t)
	c := partitioned(t)
	proxy := sharedThroughProxy(t, c)
	var readyAt atomic.Pointer[time.Time]
	proxy.Then("Status", func(proto.Message) error {
		if at := readyAt.Load(); at != nil && time.Now().Before(*at) {
			return errors.New("the runtime is not ready yet")
		}
		return nil
	})
	watching, err := c.Client.CoreV1().Nodes().Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: c.Config.Node.Name}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		states := 0
		for event := range watching.ResultChan() {
			node, ok := event.Object.(*v1.Node)
			if !ok {
				continue
			}
			states++
			for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
				if quantity := list[cores]; quantity.Sign() <= 0 {
					t.Errorf("the node's %s had %s cores", what, quantity.String())
				}
			}
		}
		ended <- states
	}()
	const starts = 10
	for i := range starts {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		if i%5 == 1 {
			at := time.Now().Add(3 * time.Second)
			readyAt.Store(&at)
			// Without checkpoints of the device manager, upstream takes the node for a new one.
			for _, directory := range []string{filepath.Join(c.KubeletDir(), "device-plugins"), "/var/lib/kubelet/device-plugins"} {
				if err := os.RemoveAll(directory); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	watching.Stop()
	if states := <-ended; states < starts {
		t.Errorf("only %d states of the node were seen, want %d at least", states, starts)
	}
}

// A kubelet without this project leaves the cores at zero, and the static pods of the next one come
// before its first status. Upstream rejects a static pod once, and for good.
func TestStaticPodsComeBackToANodeWithoutCores(t *testing.T) {
	in(t)
	c := partitioned(t)
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() { // its status may be forbidden still
			if err := errors.Join(c.StopKubelet(), c.StartKubelet(cleanup(t))); err != nil {
				t.Error(err)
			}
		}
	})
	config := clientConfig(t, "")
	config.Impersonate.UserName, config.Impersonate.Groups = "system:node:"+host.NodeName, []string{"system:nodes", "system:authenticated"}
	kubelet, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	zero := func(client kubernetes.Interface, options metav1.PatchOptions) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), host.NodeName, types.MergePatchType, fmt.Appendf(nil, `{"status": {"capacity": {%[1]q: "0"}, "allocatable": {%[1]q: "0"}}}`, cores), options, "status")
		return err
	}
	if err := zero(c.Client, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	allow := guard(t, c, "nodes/status", `!("system:nodes" in request.userInfo.groups)`, func() error {
		return zero(kubelet, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	})
	writeStaticPods(t, c, staticPod("comes-back", asks, fixture.Awake, "cpu=100m memory=16Mi", ""))
	if err := c.Kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	p := awaitRunning(t, c, metav1.NamespaceDefault, "comes-back-"+host.NodeName)
	if request := p.Spec.Containers[0].Resources.Requests[cores]; request.Value() != 100 {
		t.Errorf("the static pod requests %v", p.Spec.Containers[0].Resources.Requests)
	}
	if has := getNode(t, c).Status.Allocatable[cores]; has.Sign() != 0 {
		t.Errorf("the node has %s cores, so nothing was seen", &has)
	}
	allow()
	waitFor(t, time.Minute, "the node has its cores", func() error {
		if has := getNode(t, c).Status.Allocatable[cores]; has.Value() != int64(runtime.NumCPU())*1000 {
			return fmt.Errorf("it has %s", &has)
		}
		return nil
	})
}

// Only a pod on a node holds cores, until it has finished. A pod that waits for a scheduling
// gate holds none, nor does a finished one that a finalizer keeps.
func TestOnlyPodsOnANodeHoldCores(t *testing.T) {
	in(t)
	c := partitioned(t)
	reportingNode(t, c, "reporting", "management")
	namespace := fixture.Namespace(t, c.Client, "management")
	create := creating(t, c, namespace)
	build := func(name string, millicores int) *v1.Pod {
		p := fixture.Pod(name, asks, fixture.Container("c", "true", fmt.Sprintf("cpu=%dm memory=16Mi", millicores), ""))
		p.Finalizers = []string{"example.com/for-good"}
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "reporting"}
		return p
	}
	if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "reporting", types.MergePatchType, []byte(`{"metadata": {"labels": {"`+v1.LabelHostname+`": "reporting"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	made := func(p *v1.Pod) *v1.Pod {
		t.Helper()
		p, err := create(p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeFinalizers(t, c, p) })
		return p
	}
	scheduled := func(name string) {
		t.Helper()
		waitFor(t, 20*time.Second, "pod "+name+" is scheduled", func() error {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && p.Spec.NodeName == "" {
				err = fmt.Errorf("its conditions are %v", p.Status.Conditions)
			}
			return err
		})
	}
	gated := build("gated", 4000)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/never"}}
	made(gated)
	// The node has 4000 cores.
	made(build("first", 4000))
	scheduled("first")
	made(build("second", 4000))
	awaitUnschedulable(t, c, namespace, "second", string(cores))
	// Its kubelet would write this. Then the pod is deleted, and its finalizer keeps it.
	if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "first", types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.CoreV1().Pods(namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	scheduled("second")
	if p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), "first", metav1.GetOptions{}); err != nil || p.DeletionTimestamp == nil {
		t.Errorf("the finished pod is not being deleted: %v (%v)", p, err)
	}
}

// A partitioned pod with a cpu request of zero has the same CPUs, weight and quota on a node as
// one without cpu.
func TestZeroCPURequestChangesNothingOnTheNode(t *testing.T) {
	in(t)
	c := partitioned(t)
	var usages []string
	for _, quota := range []*v1.ResourceQuotaSpec{nil, {Hard: fixture.Resources("requests.cpu=10")}} {
		namespace := fixture.Namespace(t, c.Client, "management")
		constrain(t, c, namespace, nil, quota)
		p := start(t, c, namespace, fixture.Pod("p", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")))[0]
		if _, has := p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; has != (quota != nil) {
			t.Errorf("the pod has %v, want a cpu of zero: %v", p.Spec.Containers[0].Resources, quota != nil)
		}
		expectNoLeak(t, p, onPool)
		of, err := host.PodUsage(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, usage := range []host.Usage{of, containerUsage(t, p, 0)} {
			usages = append(usages, fmt.Sprintf("CPUs %s, weight %d, quota %v", usage.CPUs, usage.Weight, usage.Quota))
		}
	}
	if usages[0] != usages[2] || usages[1] != usages[3] {
		t.Errorf("without cpu, pod and container have %q; with a cpu of zero %q", usages[:2], usages[2:])
	}
}
