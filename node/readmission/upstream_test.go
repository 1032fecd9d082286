// SPDX-License-Identifier: Apache-2.0

package readmission

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
)

// upstream returns the pods that upstream's own predicates and preemption reject, in the order in which a
// kubelet looks at them: "name reason".
func upstream(t *testing.T, node *v1.Node, pods []v1.Pod) (rejected []string) {
	t.Helper()
	var active []*v1.Pod
	kill := func(pod *v1.Pod, _ bool, _ *int64, change func(*v1.PodStatus)) error {
		var status v1.PodStatus
		change(&status)
		rejected = append(rejected, pod.Name+" "+status.Reason)
		active = slices.DeleteFunc(active, func(other *v1.Pod) bool { return other == pod })
		return nil
	}
	handler := lifecycle.NewPredicateAdmitHandler(
		func(context.Context, bool) (*v1.Node, error) { return node.DeepCopy(), nil },
		preemption.NewCriticalPodAdmissionHandler(func() []*v1.Pod { return slices.Clone(active) }, kill, record.NewFakeRecorder(1000)),
		func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil },
	)
	admit := func(static bool) {
		for i := range pods {
			pod := pods[i].DeepCopy()
			if IsStatic(pod) != static || !static && (pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded) {
				continue
			}
			if static { // its file has no such annotation
				pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
			}
			result := handler.Admit(klog.NewContext(t.Context(), logr.Discard()), &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: slices.Clone(active), Operation: lifecycle.AddOperation})
			if result.Admit {
				active = append(active, pod)
			} else {
				rejected = append(rejected, pod.Name+" "+result.Reason)
			}
		}
	}
	admit(true)
	admit(false)
	return rejected
}

func tolerates(key string, operator v1.TolerationOperator, value string, effect v1.TaintEffect) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: operator, Value: value, Effect: effect})
	}
}

// requires adds a term to the required node affinity of a pod, whose expressions must all hold.
func requires(expressions ...v1.NodeSelectorRequirement) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		if pod.Spec.Affinity == nil {
			pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{}}}
		}
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: expressions})
	}
}

func isIn(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// The Node of these tests has the labels a=b and number=5.
func TestForeseeRejectsWhatNoLongerGoesWithTheNode(t *testing.T) {
	small := func(change ...func(*v1.Pod)) v1.Pod { return with(testPod("p", "10m"), append(change, burstable)...) }
	critical := priority(2_000_000_000)
	for _, test := range []struct {
		name   string
		taints []v1.Taint
		pod    v1.Pod
		want   string // the reason, and what is said
	}{
		{name: "a label that the pod selects is there", pod: small(selects("a", "b"))},
		{name: "a label that the pod selects has gone", pod: small(selects("c", "d")), want: "NodeAffinity requires of its node c=d, which has no label c"},
		{name: "a label that the pod selects has another value", pod: small(selects("a", "c")), want: "NodeAffinity requires of its node a=c, which has a=b"},
		{name: "one of two alternatives holds", pod: small(requires(isIn("c", v1.NodeSelectorOpExists)), requires(isIn("a", v1.NodeSelectorOpIn, "b")))},
		{name: "no alternative holds", pod: small(requires(isIn("c", v1.NodeSelectorOpExists), isIn("a", v1.NodeSelectorOpIn, "b")), requires(isIn("a", v1.NodeSelectorOpIn, "x", "y"))),
			want: "NodeAffinity requires of its node the label c, or a in (x, y), which has a=b, no label c"},
		{name: "an alternative holds, and the nodeSelector does not", pod: small(selects("c", "d"), requires(isIn("e", v1.NodeSelectorOpExists)), requires(isIn("a", v1.NodeSelectorOpExists))),
			want: "NodeAffinity requires of its node c=d, which has no label c"},
		{name: "a value that is excluded", pod: small(requires(isIn("a", v1.NodeSelectorOpNotIn, "b"))), want: "NodeAffinity requires of its node a not in (b), which has a=b"},
		{name: "a label that must not be", pod: small(requires(isIn("a", v1.NodeSelectorOpDoesNotExist))), want: "NodeAffinity requires of its node no label a, which has a=b"},
		{name: "a number that is too small", pod: small(requires(isIn("number", v1.NodeSelectorOpGt, "5"))), want: "NodeAffinity requires of its node number>5, which has number=5"},
		{name: "an affinity without alternatives", pod: small(requires()), want: "NodeAffinity requires of its node an empty term, which no node satisfies"},
		{name: "another node by name", pod: small(func(pod *v1.Pod) {
			requires()(pod)
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = []v1.NodeSelectorRequirement{isIn("metadata.name", v1.NodeSelectorOpIn, "n2")}
		}), want: "NodeAffinity requires of its node metadata.name=n2"},
		{name: "a preference is no requirement", pod: small(func(pod *v1.Pod) {
			pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{isIn("c", v1.NodeSelectorOpExists)}}}}}}
		})},
		{name: "a static pod requires labels, too", pod: small(staticPod, selects("c", "d")), want: "NodeAffinity requires of its node c=d"},
		{name: "a critical pod, too", pod: small(critical, selects("c", "d")), want: "NodeAffinity requires of its node c=d"},
		{name: "a pod that has ended is not admitted again", pod: small(failed, selects("c", "d"))},

		{name: "a taint NoExecute has come", taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}, pod: small(), want: "TaintToleration does not tolerate the taint k=v:NoExecute"},
		{name: "it is tolerated", taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}, pod: small(tolerates("k", v1.TolerationOpEqual, "v", v1.TaintEffectNoExecute))},
		{name: "it is tolerated whatever its value is", taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}, pod: small(tolerates("k", v1.TolerationOpExists, "", ""))},
		{name: "everything is tolerated", taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}, pod: small(tolerates("", v1.TolerationOpExists, "", ""))},
		{name: "it is tolerated with another effect", taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}, pod: small(tolerates("k", v1.TolerationOpExists, "", v1.TaintEffectNoSchedule)), want: "TaintToleration does not tolerate the taint k:NoExecute"},
		{name: "taints for the scheduler end no pod", taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}, {Key: "l", Effect: v1.TaintEffectPreferNoSchedule}}, pod: small()},
		{name: "taints end no static pod", taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}, pod: small(staticPod)},
		{name: "taints end a critical pod", taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}, pod: small(critical), want: "TaintToleration does not tolerate the taint k:NoExecute"},

		{name: "a device of a DRA driver by its class", pod: small(byDRA("deviceclass.resource.kubernetes.io/gpu"))},
		{name: "a device of a DRA driver by a name of which the device plugin has none left", pod: small(byDRA("example.com/gone"))},
		{name: "such a name without the driver", pod: small(asks("example.com/gone", "1")), want: "OutOfexample.com/gone asks for 1 of example.com/gone"},

		{name: "the label is named before the taint", taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}, pod: small(selects("c", "d")), want: "NodeAffinity requires of its node c=d"},
		{name: "a resource is named before the label", pod: with(testPod("p", "9"), burstable, selects("c", "d")), want: "OutOfcpu asks for 9 of cpu"},
		{name: "but not for a critical pod, for which others could end", pod: with(testPod("p", "9"), burstable, selects("c", "d"), critical), want: "NodeAffinity requires of its node c=d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := testNode("", Kubelet{})
			node.Labels, node.Spec.Taints = map[string]string{"a": "b", "number": "5"}, test.taints
			node.Status.Allocatable["example.com/gone"] = resource.MustParse("0")
			var got []string
			text := ""
			for _, r := range Foresee(node, Kubelet{}, []v1.Pod{test.pod}) {
				got, text = append(got, r.Pod.Name+" "+r.Reason), r.Text
			}
			if want := upstream(t, node, []v1.Pod{test.pod}); !slices.Equal(got, want) {
				t.Errorf("upstream rejects %q, and foreseen are %q", want, got)
			}
			reason, want, _ := strings.Cut(test.want, " ")
			if test.want == "" && len(got) > 0 || test.want != "" && !slices.Equal(got, []string{"p " + reason}) || !strings.HasPrefix(text, want) || strings.HasSuffix(want, "NoExecute") && text != want {
				t.Errorf("foreseen are %q: %s; want %s", got, text, test.want)
			}
		})
	}
}

// Nodes and pods at random: upstream's predicates and its preemption reject the same pods, in the same
// order, for the same reasons.
func TestForeseeRejectsWhatUpstreamRejects(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Log("the seed of random numbers is", seed)
	random := rand.New(rand.NewSource(seed))
	some := func(of ...string) string { return of[random.Intn(len(of))] }
	rejected := map[string]int{}
	for range 2000 {
		node := testNode("", Kubelet{Reserved: resource.MustParse(some("0", "500m", "2"))})
		node.Labels = map[string]string{}
		node.Status.Allocatable[v1.ResourcePods] = resource.MustParse(some("2", "5", "9"))
		for range 2 + random.Intn(3) {
			node.Labels[some("a", "b", "c")] = some("1", "2")
		}
		for range random.Intn(2) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: some("k", "l"), Value: some("1", "2"), Effect: v1.TaintEffect(some("NoExecute", "NoSchedule"))})
		}
		var pods []v1.Pod
		for i := range 1 + random.Intn(7) {
			pod := testPod(fmt.Sprint("p", i), some("0", "300m", "1", "1700m"))
			pod.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
			pod.Status.QOSClass = v1.PodQOSClass(some("Guaranteed", "Burstable", "BestEffort"))
			// No two pods ask for the same: upstream takes pods to preempt in no particular order.
			asks(v1.ResourceMemory, fmt.Sprintf("%d", (1+random.Intn(4))<<30+i))(&pod)
			if random.Intn(4) == 0 {
				asks(v1.ResourceName(some("example.com/nic", "example.com/none", "management.workload.openshift.io/cores", "ephemeral-storage")), some("1", "2", "3000"))(&pod)
			}
			if random.Intn(8) == 0 {
				byDRA(v1.ResourceName(some("deviceclass.resource.kubernetes.io/nic", "example.com/nic")))(&pod)
			}
			if random.Intn(8) == 0 {
				pod.Spec.NodeSelector = map[string]string{some("a", "b", "c"): some("1", "2")}
			}
			for range max(0, random.Intn(5)-2) {
				operator := v1.NodeSelectorOperator(some("In", "NotIn", "Exists", "DoesNotExist"))
				r := isIn(some("a", "b", "c"), operator)
				if operator == v1.NodeSelectorOpIn || operator == v1.NodeSelectorOpNotIn {
					r.Values = []string{some("1", "2")}
				}
				requires(r)(&pod)
			}
			if random.Intn(2) == 0 {
				tolerates(some("k", "l"), v1.TolerationOpExists, "", v1.TaintEffect(some("", "NoExecute", "NoSchedule")))(&pod)
			}
			if random.Intn(3) == 0 {
				pod.Spec.Priority = ptr.To([]int32{0, 1000, 2_000_000_000, 2_000_001_000}[random.Intn(4)])
			}
			if random.Intn(6) == 0 {
				staticPod(&pod)
			}
			if random.Intn(10) == 0 {
				pod.Status.Phase = v1.PodPhase(some("Failed", "Succeeded", "Pending"))
			}
			pods = append(pods, pod)
		}
		var got []string
		for _, r := range Foresee(node, Kubelet{}, pods) {
			got = append(got, r.Pod.Name+" "+r.Reason)
			rejected[r.Reason]++
		}
		if want := upstream(t, node, pods); !slices.Equal(got, want) {
			t.Fatalf("upstream rejects %q, and foreseen are %q\nnode %+v\npods %+v", want, got, node, pods)
		}
	}
	t.Log(rejected)
	for _, reason := range []string{NodeAffinity, TaintToleration, Preempting, UnexpectedAdmissionError, "OutOfcpu", "OutOfmemory", "OutOfpods"} {
		if rejected[reason] == 0 {
			t.Errorf("no pod was rejected for %s; the test has seen %v", reason, rejected)
		}
	}
}
