// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/config"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
	nrtcache "sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology/cache"

	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/scheduler/internal/framework"
	"workload.openshift.io/scheduler/ledger"
)

// report shows a zone of eight CPUs with so many free.
func report(node string, free int64) *v1alpha2.NodeResourceTopology {
	eight := *resource.NewQuantity(8, resource.DecimalSI)
	return &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{numaresources.HeartbeatAnnotation: time.Now().UTC().Format(time.RFC3339)}},
		Attributes: v1alpha2.AttributeList{{Name: numaresources.AttributePolicy, Value: "single-numa-node"}, {Name: numaresources.AttributeScope, Value: "pod"}},
		Zones: v1alpha2.ZoneList{{Name: numaresources.ZoneName(0), Type: numaresources.ZoneType, Resources: v1alpha2.ResourceInfoList{
			{Name: "cpu", Capacity: eight, Allocatable: eight, Available: *resource.NewQuantity(free, resource.DecimalSI)}}}},
	}
}

func pod(name, cpus string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpus)}}}}},
		Status:     corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed},
	}
}

func nodeInfo(name string, pods ...*corev1.Pod) framework.NodeInfo {
	info := schedulerframework.NewNodeInfo(pods...)
	info.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return info
}

// cycle is the state of a scheduling cycle after PreFilter.
func cycle(p *Plugin, pod *corev1.Pod) framework.CycleState {
	state := schedulerframework.NewCycleState()
	p.preFilter(state, pod)
	return state
}

func newPlugin(t testing.TB) *Plugin {
	t.Helper()
	l := ledger.New(false)
	noderesourcetopology.NewCache = func(framework.Handle) nrtcache.Interface { return scored{l} }
	args := &config.NodeResourceTopologyMatchArgs{ScoringStrategy: config.ScoringStrategy{Type: config.LeastAllocated}}
	upstream, err := noderesourcetopology.New(t.Context(), args, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Plugin{Plugin: upstream, scores: upstream.(framework.ScorePlugin), shared: &shared{ledger: l, waiting: &waiting{pods: map[types.UID]*corev1.Pod{}}}}
}

// Upstream's Score would read reports itself. Then a node to which a pod is on its way would look as free as before.
func TestScoreReadsTheLedger(t *testing.T) {
	p := newPlugin(t)
	for _, node := range []string{"free", "reserved"} {
		p.ledger.SetReport(report(node, 8))
	}
	p.Reserve(t.Context(), nil, pod("a", "4"), "reserved")
	scores := map[string]int64{}
	for _, node := range []string{"free", "reserved"} {
		score, status := p.Score(t.Context(), cycle(p, pod("b", "2")), pod("b", "2"), nodeInfo(node))
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		scores[node] = score
	}
	if scores["free"] <= scores["reserved"] {
		t.Errorf("with least allocated the scores are %v", scores)
	}
	p.Unreserve(t.Context(), nil, pod("a", "4"), "reserved")
	if score, _ := p.Score(t.Context(), cycle(p, pod("b", "2")), pod("b", "2"), nodeInfo("reserved")); score != scores["free"] {
		t.Errorf("the score after the pod does not come is %d, want %d", score, scores["free"])
	}
}

func TestScoresAreOfPodsThatAskForTheSame(t *testing.T) {
	p := newPlugin(t)
	p.ledger.SetReport(report("node", 8))
	score := func(pod *corev1.Pod) int64 {
		state := cycle(p, pod)
		if status := p.Filter(t.Context(), state, pod, nodeInfo("node")); !status.IsSuccess() {
			t.Fatal(status)
		}
		score, status := p.Score(t.Context(), state, pod, nodeInfo("node"))
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		return score
	}
	small, large := score(pod("a", "1")), score(pod("b", "7"))
	upstream := p.scores
	p.scores = nil // they are not computed again
	again, largeAgain := score(pod("c", "1")), score(pod("d", "7"))
	p.scores = upstream
	if small <= large || again != small || largeAgain != large {
		t.Errorf("with least allocated the scores are %d and %d, and then %d and %d", small, large, again, largeAgain)
	}
	overhead := pod("e", "1")
	overhead.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("4")}
	if got := score(overhead); got >= small {
		t.Errorf("the score of a pod with overhead is %d, and without it %d", got, small)
	}
}

func TestPodsThatShareCPUsAreNotScored(t *testing.T) {
	p := newPlugin(t)
	shared := pod("a", "500m")
	shared.Status.QOSClass = corev1.PodQOSBurstable
	if status := p.PreScore(t.Context(), cycle(p, shared), shared, nil); !status.IsSkip() {
		t.Errorf("got %v", status)
	}
	if status := p.PreScore(t.Context(), cycle(p, pod("b", "1")), pod("b", "1"), nil); !status.IsSuccess() {
		t.Errorf("got %v", status)
	}
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name    string
		pod     *corev1.Pod
		node    string
		want    framework.Code
		message string
		again   bool
	}{
		{"a pod that fits", pod("a", "4"), "node", framework.Success, "", false},
		{"a pod that may fit later may have others evicted", pod("a", "5"), "node", framework.Unschedulable, "node-0 lacks 1 of cpu", true},
		{"a pod that never fits has none evicted", pod("a", "9"), "node", framework.UnschedulableAndUnresolvable, "larger than every zone", false},
		{"nobody is evicted from a node of which nothing is known, which may report", pod("a", "1"), "other", framework.UnschedulableAndUnresolvable, "has reported no NUMA nodes", true},
		{"a pod that shares CPUs goes anywhere", pod("a", "500m"), "other", framework.Success, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlugin(t)
			p.ledger.SetReport(report("node", 4))
			status := p.Filter(t.Context(), cycle(p, test.pod), test.pod, nodeInfo(test.node))
			if status.Code() != test.want || !strings.Contains(status.Message(), test.message) {
				t.Errorf("got %v", status)
			}
			p.waiting.tell()
			if again := len(p.waiting.next()) == 1; again != test.again {
				t.Errorf("looked at again: %v", again)
			}
		})
	}
}

// BenchmarkCycle is what the plugin costs each pod on 1,000 nodes with four zones: a filter and a score of each, and then a node.
func BenchmarkCycle(b *testing.B) {
	for _, sizes := range []int{1, 4} {
		b.Run(fmt.Sprintf("sizes=%d", sizes), func(b *testing.B) {
			p := newPlugin(b)
			var nodes []framework.NodeInfo
			for i := range 1000 {
				name := fmt.Sprintf("node-%d", i)
				r := report(name, 8)
				for zone := 1; zone < 4; zone++ {
					r.Zones = append(r.Zones, r.Zones[0])
					r.Zones[zone].Name = numaresources.ZoneName(zone)
				}
				p.ledger.SetReport(r)
				here := []*corev1.Pod{pod(name+"-a", "2"), pod(name+"-b", "1")}
				for _, pod := range here {
					p.ledger.SetPod(pod, name)
				}
				nodes = append(nodes, nodeInfo(name, here...))
			}
			b.ReportAllocs()
			turn := 0
			for b.Loop() {
				turn++
				next := pod(fmt.Sprintf("pod-%d", turn), fmt.Sprint(1+turn%sizes))
				state := cycle(p, next)
				for _, node := range nodes {
					if status := p.Filter(b.Context(), state, next, node); !status.IsSuccess() {
						b.Fatal(status)
					}
				}
				for _, node := range nodes {
					if _, status := p.Score(b.Context(), state, next, node); !status.IsSuccess() {
						b.Fatal(status)
					}
				}
				node := nodes[turn%len(nodes)]
				p.Reserve(b.Context(), state, next, node.Node().Name)
				p.Unreserve(b.Context(), state, next, node.Node().Name)
			}
		})
	}
}

func TestWaitingPodsTakeTurns(t *testing.T) {
	w := &waiting{pods: map[types.UID]*corev1.Pod{}}
	for i := range againMost + 10 {
		w.add(pod(string(rune('a'+i)), "1"))
	}
	if pods := w.next(); pods != nil {
		t.Errorf("%d pods are looked at without news", len(pods))
	}
	w.tell()
	first, second, third := w.next(), w.next(), w.next()
	if len(first) != againMost || len(second) != 10 || third != nil {
		t.Errorf("there are turns of %d, %d and %d", len(first), len(second), len(third))
	}
}

func TestAPodIsLookedAtAgainOnceTheReportsAreRead(t *testing.T) {
	p := newPlugin(t)
	p.synced = []cache.InformerSynced{func() bool { return false }}
	status := p.preFilter(schedulerframework.NewCycleState(), pod("a", "1"))
	if status.Code() != framework.UnschedulableAndUnresolvable {
		t.Errorf("got %v", status)
	}
	p.waiting.tell()
	if again := p.waiting.next(); len(again) != 1 {
		t.Errorf("%d pods are looked at again", len(again))
	}
}

func TestHeartbeatsAreNoNews(t *testing.T) {
	p := newPlugin(t)
	was, is := report("node", 4), report("node", 4)
	is.Annotations[numaresources.HeartbeatAnnotation] = time.Now().UTC().Add(time.Minute).Format(time.RFC3339)
	p.ledger.SetReport(is)
	stale := report("node", 4)
	stale.Annotations[numaresources.HeartbeatAnnotation] = time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	for _, test := range []struct {
		name string
		was  *v1alpha2.NodeResourceTopology
		is   *v1alpha2.NodeResourceTopology
		want framework.QueueingHint
	}{
		{"a heartbeat", was, is, framework.QueueSkip},
		{"more is free", report("node", 3), is, framework.Queue},
		{"it was stale", stale, is, framework.Queue},
		{"the first report", nil, is, framework.Queue},
	} {
		t.Run(test.name, func(t *testing.T) {
			var old any
			if test.was != nil {
				old = test.was
			}
			hint, err := p.isNews(klog.Background(), nil, old, test.is)
			if err != nil || hint != test.want {
				t.Errorf("got %v, %v", hint, err)
			}
		})
	}
}
