// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/scheduler/ledger"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// world is a node of two zones with four CPUs each, and the scheduler's account of it.
type world struct {
	ledger  *ledger.Ledger
	now     time.Time
	version int
	pods    map[string]*corev1.Pod
	// generations are those of pods on the node, by their names.
	generations map[string]int64
}

func newWorld(allowUnknown bool) *world {
	w := &world{ledger: ledger.New(allowUnknown), now: noon, pods: map[string]*corev1.Pod{}, generations: map[string]int64{}}
	w.ledger.Now = func() time.Time { return w.now }
	return w
}

// report is one that shows so many free CPUs of each zone, and these pods.
func (w *world) report(free0, free1 int64, pods ...string) *v1alpha2.NodeResourceTopology {
	w.version++
	print := podfingerprint.NewFingerprint(0)
	for _, name := range pods {
		_ = print.Add("default", name)
	}
	r := &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: "node", ResourceVersion: fmt.Sprint(w.version), Annotations: map[string]string{numaresources.HeartbeatAnnotation: w.now.Format(time.RFC3339)}},
		Attributes: v1alpha2.AttributeList{
			{Name: numaresources.AttributePolicy, Value: "single-numa-node"}, {Name: numaresources.AttributeScope, Value: "pod"},
			{Name: podfingerprint.Attribute, Value: print.Sign()}, {Name: podfingerprint.AttributeMethod, Value: podfingerprint.MethodWithExclusiveResources},
		},
	}
	for i, free := range []int64{free0, free1} {
		four := *resource.NewQuantity(4, resource.DecimalSI)
		r.Zones = append(r.Zones, v1alpha2.Zone{Name: numaresources.ZoneName(i), Type: numaresources.ZoneType, Resources: v1alpha2.ResourceInfoList{
			{Name: "cpu", Capacity: four, Allocatable: four, Available: *resource.NewQuantity(free, resource.DecimalSI)},
		}})
	}
	return r
}

// pod is one of so many CPUs; it is the same for the same name.
func (w *world) pod(name string, cpus int) *corev1.Pod {
	if w.pods[name] == nil {
		w.pods[name] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(cpus))}}}}},
			Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed},
		}
	}
	return w.pods[name].DeepCopy()
}

// started is the pod with the status of a kubelet that has admitted it now.
func (w *world) started(name string) *corev1.Pod {
	w.pods[name].Status.StartTime = &metav1.Time{Time: w.now}
	w.pods[name].Status.Phase = corev1.PodRunning
	return w.pods[name].DeepCopy()
}

// full has the node report that pods a and b fill it.
func (w *world) full() {
	for _, name := range []string{"a", "b"} {
		w.ledger.SetPod(w.pod(name, 4), "node")
		w.ledger.SetPod(w.started(name), "node")
	}
	w.now = w.now.Add(time.Second)
	w.ledger.SetReport(w.report(0, 0, "a", "b"))
}

// withInit has a pod run whose init container, which has ended, had so many CPUs.
func (w *world) withInit(name string, init, cpus int) {
	w.ledger.SetReport(w.report(4, 0))
	w.pod(name, cpus)
	w.pods[name].Spec.InitContainers = w.pod(name+"-init", init).Spec.Containers
	w.pods[name].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
	w.pods[name].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.ledger.SetPod(w.started(name), "node")
	w.now = w.now.Add(time.Second)
}

func (w *world) check(pod *corev1.Pod, here ...string) string {
	var pods []*corev1.Pod
	for _, name := range here {
		pods = append(pods, w.pods[name])
	}
	names := strings.Join(here, " ")
	if w.generations[names] == 0 {
		w.generations[names] = int64(len(w.generations) + 1)
	}
	refusal := w.ledger.Check(w.ledger.Ask(pod), "node", ledger.Pods{Generation: w.generations[names], All: slices.Values(pods)})
	switch {
	case refusal == nil:
		return ""
	case refusal.Lack == nil:
		return refusal.Message
	}
	return string(refusal.Lack.Reason)
}

func TestLedger(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*world) string
		want string
	}{
		{"a pod that has been placed counts before any report", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 4), "node")
			return w.check(w.pod("b", 1), "a")
		}, "Unreported"},
		{"one that does not come after all no longer counts", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 4), "node")
			w.ledger.RemovePod("a", "node", false)
			return w.check(w.pod("b", 1))
		}, ""},
		{"a report that was begun before the pod started does not show it", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 2), "node")
			w.ledger.SetReport(w.report(4, 0)) // late
			w.now = w.now.Add(time.Second)
			w.ledger.SetPod(w.started("a"), "node")
			return w.check(w.pod("b", 3), "a")
		}, "Unreported"},
		{"a later report shows it", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 1), "node")
			w.ledger.SetPod(w.started("a"), "node")
			w.now = w.now.Add(time.Second)
			w.ledger.SetReport(w.report(3, 0))
			return w.check(w.pod("b", 3), "a")
		}, ""},
		{"the same second is not later, and the fingerprint is another's", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 1), "node")
			w.ledger.SetPod(w.started("a"), "node")
			w.ledger.SetReport(w.report(3, 0, "other"))
			return w.check(w.pod("b", 3), "a")
		}, "Unreported"},
		{"the same second with a fingerprint of just this pod", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 1), "node")
			w.ledger.SetPod(w.started("a"), "node")
			w.ledger.SetReport(w.report(3, 0, "a"))
			return w.check(w.pod("b", 3), "a")
		}, ""},
		{"a fingerprint that stood there when the pod came is an earlier pod's", func(w *world) string {
			w.ledger.SetReport(w.report(3, 0, "a"))
			w.ledger.SetPod(w.pod("a", 1), "node")
			w.ledger.SetPod(w.started("a"), "node")
			return w.check(w.pod("b", 3), "a")
		}, "Unreported"},
		{"what an init container has beyond the rest of its pod is in no report, also when it has ended", func(w *world) string {
			w.withInit("a", 2, 1)
			w.ledger.SetReport(w.report(3, 0, "a"))
			return w.check(w.pod("b", 3), "a")
		}, "Kept"},
		{"the rest of a pod gets what an init container has of as many", func(w *world) string {
			w.withInit("a", 1, 1)
			w.ledger.SetReport(w.report(3, 0, "a"))
			return w.check(w.pod("b", 3), "a")
		}, ""},
		{"what an init container has goes with its pod", func(w *world) string {
			w.withInit("a", 2, 1)
			w.ledger.SetReport(w.report(3, 0, "a"))
			w.ledger.RemovePod("a", "node", true)
			if got := w.check(w.pod("b", 3)); got != "Unreported" {
				return "at first " + got // the kubelet may still have it
			}
			w.now = w.now.Add(3 * time.Second)
			w.ledger.SetReport(w.report(4, 0))
			return w.check(w.pod("b", 4))
		}, ""},
		{"a fingerprint has pods with devices of no zone", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.pod("kvm", 1)
			w.pods["kvm"].Status.QOSClass = corev1.PodQOSBurstable
			w.pods["kvm"].Spec.Containers[0].Resources.Requests["devices.kubevirt.io/kvm"] = resource.MustParse("1")
			w.pod("a", 1)
			for _, name := range []string{"kvm", "a"} {
				w.ledger.SetPod(w.started(name), "node")
			}
			w.ledger.SetReport(w.report(3, 0, "kvm", "a"))
			return w.check(w.pod("b", 3), "a", "kvm")
		}, ""},
		{"a pod that is deleted before a report shows it may still have its zone", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 2), "node")
			w.ledger.RemovePod("a", "node", true)
			return w.check(w.pod("b", 3))
		}, "Unreported"},
		{"until the node has reported for a while", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 2), "node")
			w.ledger.RemovePod("a", "node", true)
			w.now = w.now.Add(3 * time.Second)
			w.ledger.SetReport(w.report(4, 0))
			return w.check(w.pod("b", 3))
		}, ""},
		{"or until it is known that it has ended", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 2), "node")
			w.ledger.RemovePod("a", "node", true)
			if !w.ledger.Lingers("a", "node") {
				return "it does not linger"
			}
			if got := w.check(w.pod("b", 3)); got != "Unreported" {
				return "before " + got
			}
			w.pods["a"].Status.Phase = corev1.PodFailed
			w.ledger.SetPod(w.pod("a", 2), "node")
			if w.ledger.Lingers("a", "node") {
				return "it lingers"
			}
			return w.check(w.pod("b", 3))
		}, ""},
		{"a pod that was refused has nothing", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 2), "node")
			w.pods["a"].Status.Phase = corev1.PodFailed
			w.ledger.SetPod(w.pod("a", 2), "node")
			return w.check(w.pod("b", 3))
		}, ""},
		{"a node without a report", func(w *world) string { return w.check(w.pod("a", 1)) }, "the node has reported no NUMA nodes"},
		{"a stale report", func(w *world) string {
			w.ledger.SetReport(w.report(4, 4))
			w.now = w.now.Add(16 * time.Minute)
			return w.check(w.pod("a", 1))
		}, "the node's report of NUMA nodes is older than 15m0s"},
		{"a report that was deleted", func(w *world) string {
			w.ledger.SetReport(w.report(4, 4))
			w.ledger.RemoveReport("node")
			return w.check(w.pod("a", 1))
		}, "the node has reported no NUMA nodes"},
		{"a kubelet of which nothing is known", func(w *world) string {
			r := w.report(4, 4)
			r.Attributes = v1alpha2.AttributeList{{Name: numaresources.AttributePolicyUnknown, Value: string(numaresources.KubeletUnreachable)}}
			w.ledger.SetReport(r)
			return w.check(w.pod("a", 1))
		}, "it is not known how the kubelet runs: KubeletUnreachable"},
		{"a pod that needs no alignment on a node without a report", func(w *world) string {
			w.pod("a", 1)
			w.pods["a"].Status.QOSClass = corev1.PodQOSBurstable
			return w.check(w.pod("a", 1))
		}, ""},
		{"a pod that is to leave makes room where it is certain", func(w *world) string {
			w.full()
			return w.check(w.pod("c", 3), "b")
		}, ""},
		{"pods that have left are awaited before others are to leave", func(w *world) string {
			w.full()
			w.ledger.RemovePod("a", "node", true)
			if !w.ledger.AwaitsRelease("node") {
				return "it awaits no release"
			}
			return w.check(w.pod("c", 3)) // b is to leave, too
		}, "Unreported"},
		{"the next report ends that", func(w *world) string {
			w.full()
			w.ledger.RemovePod("a", "node", true)
			w.ledger.SetReport(w.report(4, 0, "b"))
			if w.ledger.AwaitsRelease("node") {
				return "it awaits a release"
			}
			return w.check(w.pod("c", 3), "b")
		}, ""},
		{"a pod that is to leave counts again if it stays", func(w *world) string {
			w.full()
			if got := w.check(w.pod("c", 3), "a", "b"); got != "NoZone" {
				return "at first " + got
			}
			if got := w.check(w.pod("c", 3), "b"); got != "" {
				return "without a " + got
			}
			return w.check(w.pod("c", 3), "a", "b")
		}, "NoZone"},
		{"a pod that is nominated comes first", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.pod("nominated", 4)
			return w.check(w.pod("a", 1), "nominated")
		}, "Unreported"},
		{"what was found out of a node counts no more once a pod has come", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			if got := w.check(w.pod("b", 1)); got != "" {
				return "at first " + got
			}
			w.ledger.SetPod(w.pod("a", 4), "node")
			return w.check(w.pod("b", 1), "a")
		}, "Unreported"},
		{"nor once a report has come", func(w *world) string {
			w.ledger.SetReport(w.report(0, 0))
			if got := w.check(w.pod("a", 1)); got != "NoZone" {
				return "at first " + got
			}
			w.ledger.SetReport(w.report(4, 0))
			return w.check(w.pod("a", 1))
		}, ""},
		{"nor once it is heard that a pod has started, which the report shows", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			w.ledger.SetPod(w.pod("a", 1), "node")
			started := w.started("a")
			w.now = w.now.Add(time.Second)
			w.ledger.SetReport(w.report(3, 0))
			if got := w.check(w.pod("b", 3), "a"); got != "Unreported" {
				return "at first " + got
			}
			w.ledger.SetPod(started, "node")
			return w.check(w.pod("b", 3), "a")
		}, ""},
		{"nor for a pod that needs more", func(w *world) string {
			w.ledger.SetReport(w.report(2, 0))
			if got := w.check(w.pod("a", 2)); got != "" {
				return "at first " + got
			}
			return w.check(w.pod("b", 3))
		}, "NoZone"},
		{"nor among pods that come first", func(w *world) string {
			w.ledger.SetReport(w.report(4, 0))
			if got := w.check(w.pod("a", 1)); got != "" {
				return "at first " + got
			}
			w.pod("nominated", 4)
			return w.check(w.pod("a", 1), "nominated")
		}, "Unreported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.do(newWorld(false)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A kubelet that restarts gives memory to init containers that have ended, and takes it back when another container starts.
func TestMemoryThatInitContainersGetAgainCounts(t *testing.T) {
	w := newWorld(false)
	report := func(started time.Time) {
		w.now = w.now.Add(time.Minute)
		r := w.report(4, 0, "a")
		r.Attributes = append(r.Attributes, v1alpha2.AttributeInfo{Name: numaresources.AttributeStarted, Value: started.Format(time.RFC3339)})
		r.Zones[0].Resources = append(r.Zones[0].Resources, v1alpha2.ResourceInfo{Name: "memory", Capacity: resource.MustParse("8Gi"), Allocatable: resource.MustParse("8Gi"), Available: resource.MustParse("5Gi")})
		w.ledger.SetReport(r)
	}
	runs := func() {
		w.pods["a"].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: w.now}}}}}
		w.ledger.SetPod(w.pods["a"].DeepCopy(), "node")
	}
	for name, memory := range map[string]string{"a": "3Gi", "b": "5Gi"} {
		w.pod(name, 1)
		w.pods[name].Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse(memory)
	}
	w.pods["a"].Spec.InitContainers = []corev1.Container{{Name: "init", Resources: w.pods["a"].Spec.Containers[0].Resources}}
	w.started("a")
	runs()
	check := func(when, want string) {
		t.Helper()
		if got := w.check(w.pod("b", 1), "a"); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	report(noon.Add(-time.Hour))
	check("while the kubelet runs that started the pod", "")
	report(w.now)
	check("once the kubelet has restarted", "Kept")
	w.now = w.now.Add(time.Minute)
	runs()
	check("once a container has restarted", "")
}

func TestUnknownNodesCanBeAllowed(t *testing.T) {
	w := newWorld(true)
	if got := w.check(w.pod("a", 1)); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestReportForScoresHasNoRoomThatMayBeTaken(t *testing.T) {
	w := newWorld(false)
	w.ledger.SetReport(w.report(4, 3))
	w.ledger.SetPod(w.pod("a", 2), "node")
	var got []string
	for _, zone := range w.ledger.Report("node").Zones {
		got = append(got, zone.Resources[0].Available.String())
	}
	if strings.Join(got, " ") != "2 1" {
		t.Errorf("the zones have %v free, want 2 and 1", got)
	}
}
