// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

func node(t testing.TB, text string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := yaml.UnmarshalStrict([]byte(text), n); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return n
}

// state is the annotation of a node; since is in minutes before now.
func state(s State, minutes int) string {
	return "'" + Record{s, now.Add(-time.Duration(minutes) * time.Minute)}.String() + "'"
}

const (
	stateKey = "workloadclasses.workload.openshift.io/state: "
	noDown   = "cluster-autoscaler.kubernetes.io/scale-down-disabled: 'true'"
)

func TestWrite(t *testing.T) {
	for name, test := range map[string]struct {
		before    string
		state     State
		precluded bool
		want      string
	}{
		"a node in no state only keeps the autoscaler off": {
			"{}", None, false,
			"metadata: {annotations: {" + noDown + "}}",
		},
		"an avoided node gets its taint beside others": {
			"spec: {taints: [{key: a, effect: NoSchedule}]}", PreferNoSchedule, true,
			"{metadata: {annotations: {" + noDown + ", ci-workload-preclude: tests, " + stateKey + state(PreferNoSchedule, 0) + "}}, spec: {taints: [{key: a, effect: NoSchedule}, {key: ci-workload-avoid, effect: PreferNoSchedule}]}}",
		},
		"a node that stays in its state keeps its time": {
			"{metadata: {annotations: {" + stateKey + state(PreferNoSchedule, 7) + "}}, spec: {taints: [{key: ci-workload-avoid, effect: PreferNoSchedule}]}}", PreferNoSchedule, false,
			"{metadata: {annotations: {" + noDown + ", " + stateKey + state(PreferNoSchedule, 7) + "}}, spec: {taints: [{key: ci-workload-avoid, effect: PreferNoSchedule}]}}",
		},
		"an empty node is cordoned": {
			"{metadata: {annotations: {" + stateKey + state(PreferNoSchedule, 7) + "}}, spec: {taints: [{key: ci-workload-avoid, effect: PreferNoSchedule}]}}", NoSchedule, false,
			"{metadata: {annotations: {" + noDown + ", " + stateKey + state(NoSchedule, 0) + "}}, spec: {unschedulable: true}}",
		},
		"after eight minutes a taint takes the place of the cordon": {
			"{metadata: {annotations: {" + stateKey + state(NoSchedule, 8) + "}}, spec: {unschedulable: true}}", NoSchedule, false,
			"{metadata: {annotations: {" + noDown + ", " + stateKey + state(NoSchedule, 8) + "}}, spec: {taints: [{key: status-taint.cluster-autoscaler.kubernetes.io/ci-workload-avoid, effect: NoSchedule}]}}",
		},
		"a node that is wanted back is free of all": {
			"{metadata: {annotations: {ci-workload-preclude: tests, " + stateKey + state(NoSchedule, 8) + "}}, spec: {taints: [{key: status-taint.cluster-autoscaler.kubernetes.io/ci-workload-avoid, effect: NoSchedule}]}}", None, false,
			"metadata: {annotations: {" + noDown + "}}",
		},
		"a cordoned node that is wanted back is uncordoned": {
			"{metadata: {annotations: {" + stateKey + state(NoSchedule, 3) + "}}, spec: {unschedulable: true}}", None, false,
			"metadata: {annotations: {" + noDown + "}}",
		},
		"a person's cordon is not touched": {
			"spec: {unschedulable: true}", None, false,
			"spec: {unschedulable: true}",
		},
		"a person's cordon of an avoided node is not touched": {
			"{metadata: {annotations: {" + stateKey + state(PreferNoSchedule, 3) + "}}, spec: {unschedulable: true}}", None, false,
			"{metadata: {annotations: {" + stateKey + state(PreferNoSchedule, 3) + "}}, spec: {unschedulable: true}}",
		},
		"after a person uncordoned the time begins again": {
			"metadata: {annotations: {" + stateKey + state(NoSchedule, 3) + "}}", NoSchedule, false,
			"{metadata: {annotations: {" + noDown + ", " + stateKey + state(NoSchedule, 0) + "}}, spec: {unschedulable: true}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := node(t, test.before), node(t, test.want)
			for range 2 {
				Write(got, Decision{State: test.state}, test.precluded, "tests", now, DefaultPolicy())
				if !equality.Semantic.DeepEqual(got, want) {
					t.Fatalf("got\n%s\nwant\n%s", toYAML(t, got), toYAML(t, want))
				}
			}
			if CordonedByOthers(node(t, test.before), Record{}) && strings.Contains(name, "person's") {
				return
			}
			Clear(got)
			before := node(t, test.before)
			Clear(before)
			if len(got.Annotations) > 0 || got.Spec.Unschedulable || !equality.Semantic.DeepEqual(got.Spec.Taints, before.Spec.Taints) {
				t.Errorf("cleared it is\n%s", toYAML(t, got))
			}
		})
	}
}

func TestRecordOf(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"no JSON":           {"x", "invalid character"},
		"an unknown state":  {`{"state":"Gone","since":"2026-11-28T12:00:00Z"}`, `no state "Gone"`},
		"a key twice":       {`{"state":"None","state":"None"}`, "duplicate field"},
		"a year too far":    {`{"state":"None","since":"0000-01-01T00:00:00Z"}`, "out of range"},
		"a value too large": {`{"state":"` + strings.Repeat("x", 5000) + `"}`, "at most 4096"},
	} {
		n := node(t, "metadata: {name: n1}")
		n.Annotations = map[string]string{StateAnnotation: test.value}
		_, err := RecordOf(n)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "node n1") || len(err.Error()) > 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHolds(t *testing.T) {
	ended := "status: {phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {finishedAt: '2026-11-28T11:56:00Z'}}}]}"
	long := "status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {finishedAt: '2026-11-28T11:55:00Z'}}}]}"
	for name, test := range map[string]struct {
		pod  string
		want bool
	}{
		"a pod that runs does":                          {"{}", true},
		"one that is terminating does":                  {"metadata: {deletionTimestamp: '2026-11-28T11:00:00Z'}", true},
		"one that ended four minutes ago does":          {ended, true},
		"one that ended five minutes ago does not":      {long, false},
		"an ended one with a finalizer does":            {"metadata: {finalizers: [a/b]}\n" + long, true},
		"an ended one without a time does not":          {"metadata: {creationTimestamp: '2026-11-28T11:00:00Z'}\nstatus: {phase: Failed}", false},
		"a DaemonSet's does not":                        {"metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}", false},
		"a ReplicaSet's does":                           {"metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: d, uid: u, controller: true}]}", true},
		"a mirror of a static pod does not":             {"metadata: {annotations: {kubernetes.io/config.mirror: a}}", false},
		"one that may be evicted does not":              {"metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: 'true'}}", false},
		"one that says that it may not be evicted does": {"metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'}}", true},
	} {
		if got := Holds(parse(t, test.pod), now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnschedulable(t *testing.T) {
	condition := func(reason, at string) string {
		return "status: {conditions: [{type: PodScheduled, status: 'False', reason: " + reason + ", lastTransitionTime: '2026-11-28T" + at + "Z'}]}"
	}
	for name, test := range map[string]struct {
		pod  string
		want bool
	}{
		"one for which no node was found is":     {condition("Unschedulable", "11:46:00"), true},
		"one that has waited a quarter is not":   {condition("Unschedulable", "11:45:00"), false},
		"one that was not looked at yet is not":  {"{}", false},
		"one with a scheduling gate is not":      {condition("SchedulingGated", "11:59:00"), false},
		"one that is being deleted is not":       {"metadata: {deletionTimestamp: '2026-11-28T11:59:00Z'}\n" + condition("Unschedulable", "11:59:00"), false},
		"one that has got a node by then is not": {"spec: {nodeName: a}\n" + condition("Unschedulable", "11:59:00"), false},
	} {
		if got := Unschedulable(parse(t, test.pod), now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestHeld(t *testing.T) {
	for name, test := range map[string]struct {
		node, want string
		byMark     bool
	}{
		"a node of nobody is not held":           {"{}", "", false},
		"a keep mark holds":                      {"metadata: {annotations: {ci-scheduling.ci.openshift.io/keep-node: ''}}", "a person keeps it", true},
		"a label does so, too":                   {"metadata: {labels: {ci-scheduling.ci.openshift.io/keep-node: 'true'}}", "a person keeps it", true},
		"a pause holds":                          {"metadata: {annotations: {workload.openshift.io/paused: ''}}", "it is paused", false},
		"a cordon of others holds":               {"spec: {unschedulable: true}", "somebody cordoned it", false},
		"ours does not":                          {"{metadata: {annotations: {" + stateKey + state(NoSchedule, 1) + "}}, spec: {unschedulable: true}}", "", false},
		"another companion's claim holds":        {`metadata: {annotations: {nodegroup.workload.openshift.io/claim: '{"owner":"tuning","operation":"a"}', ci-scheduling.ci.openshift.io/keep-node: ''}}`, "tuning has claimed it", false},
		"a claim that cannot be read holds":      {"metadata: {annotations: {nodegroup.workload.openshift.io/claim: x}}", "no claim", false},
		"an operation that cannot be read holds": {"metadata: {annotations: {workloadclasses.workload.openshift.io/operation: x}}", "invalid character", false},
		"a claim of ours without operation too":  {`metadata: {annotations: {nodegroup.workload.openshift.io/claim: '{"owner":"workloadclasses","operation":"a"}'}}`, "has claimed it", false},
	} {
		n := node(t, test.node)
		got := Held(n)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) || HeldByMark(n) != test.byMark {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestFits(t *testing.T) {
	const n = `
metadata: {name: n1, labels: {ci-workload: tests}}
spec: {unschedulable: true, taints: [{key: w, value: w, effect: NoSchedule}, {key: node.kubernetes.io/unschedulable, effect: NoSchedule}, {key: ci-workload-avoid, effect: PreferNoSchedule}]}
status: {allocatable: {cpu: '4', pods: '2'}}`
	const tolerated = "nodeSelector: {ci-workload: tests}, tolerations: [{key: w, operator: Exists}]"
	for name, test := range map[string]struct {
		pod   string
		there []string
		want  bool
	}{
		"a pod that tolerates the class's taint fits": {"spec: {" + tolerated + ", containers: [{name: a, resources: {requests: {cpu: '3'}}}]}", nil, true},
		"one that does not tolerate it does not":      {"spec: {nodeSelector: {ci-workload: tests}}", nil, false},
		"one of another class does not":               {"spec: {nodeSelector: {ci-workload: builds}, tolerations: [{key: w, operator: Exists}]}", nil, false},
		"its overhead counts":                         {"spec: {" + tolerated + ", overhead: {cpu: 300m}, containers: [{name: a, resources: {requests: {cpu: 3800m}}}]}", nil, false},
		"pods that are there count":                   {"spec: {" + tolerated + ", containers: [{name: a, resources: {requests: {cpu: '3'}}}]}", []string{"spec: {containers: [{name: a, resources: {requests: {cpu: '2'}}}]}"}, false},
		"ended pods do not":                           {"spec: {" + tolerated + ", containers: [{name: a, resources: {requests: {cpu: '3'}}}]}", []string{"spec: {containers: [{name: a, resources: {requests: {cpu: '2'}}}]}\nstatus: {phase: Failed}"}, true},
		"the number of pods counts":                   {"spec: {" + tolerated + "}", []string{"{}", "{}"}, false},
		"a resource that the node has not counts":     {"spec: {" + tolerated + ", containers: [{name: a, resources: {requests: {example.com/gpu: '1'}}}]}", nil, false},
		"one that precludes the node does not":        {"spec: {" + tolerated + ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}}}}", nil, false},
	} {
		var there []corev1.Pod
		for _, text := range test.there {
			there = append(there, *parse(t, text))
		}
		if got := Fits(parse(t, test.pod), node(t, n), there); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// template is what the cluster autoscaler takes for a new node of a set, after it has seen a node of it: the labels,
// and the taints that are not of a state (autoscaler, cluster-autoscaler/utils/taints, SanitizeTaints). A cordoned
// node is no template that it keeps (processors/nodeinfosprovider, isNodeGoodTemplateCandidate). It is a model: that
// module cannot be imported.
func template(node *corev1.Node) *corev1.Node {
	if node.Spec.Unschedulable {
		return nil
	}
	template := node.DeepCopy()
	template.Spec.Taints = slices.DeleteFunc(template.Spec.Taints, func(taint corev1.Taint) bool {
		return strings.HasPrefix(taint.Key, "status-taint.cluster-autoscaler.kubernetes.io/") || strings.HasPrefix(taint.Key, "startup-taint.cluster-autoscaler.kubernetes.io/") ||
			strings.HasPrefix(taint.Key, "node.kubernetes.io/")
	})
	return template
}

// Whatever stands on the last node of a class when it goes, its set is scaled up from zero for a pod of the class.
func TestASetAtZeroIsScaledUp(t *testing.T) {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte("spec: {nodeSelector: {ci-workload: tests}, tolerations: [{key: w, operator: Exists}], containers: [{name: a, resources: {requests: {cpu: '3'}}}]}"), pod); err != nil {
		t.Fatal(err)
	}
	policy := DefaultPolicy()
	in := func(s State, minutes int) func(*corev1.Node) {
		return func(n *corev1.Node) {
			Write(n, Decision{State: s}, true, "tests", now.Add(-time.Duration(minutes)*time.Minute), policy)
			Write(n, Decision{State: s}, true, "tests", now, policy)
		}
	}
	leaving := func(before func(*corev1.Node)) func(*corev1.Node) {
		return func(n *corev1.Node) {
			before(n)
			Begin(n, Operation{ID: "a", Phase: Draining, Since: now})
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		// none means that the node is no template that is kept.
		none bool
	}{
		"in state None":                       {in(None, 5), false},
		"avoided":                             {in(PreferNoSchedule, 5), false},
		"cordoned":                            {in(NoSchedule, 5), true},
		"blocked by the taint":                {in(NoSchedule, 9), false},
		"given back after a cordon":           {leaving(in(NoSchedule, 2)), true},
		"given back after it was blocked":     {leaving(in(NoSchedule, 9)), true},
		"freed after it was to be given back": {func(n *corev1.Node) { leaving(in(NoSchedule, 9))(n); Free(n, now) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			last := node(t, "{metadata: {name: n1, labels: {ci-workload: tests}}, spec: {taints: [{key: w, effect: NoSchedule}]}, status: {allocatable: {cpu: '4', pods: '2'}}}")
			test.change(last)
			kept := template(last)
			if test.none != (kept == nil) {
				t.Fatalf("the template is %+v", kept)
			}
			if kept == nil {
				return
			}
			kept.Name = "new"
			for _, taint := range kept.Spec.Taints {
				if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(has corev1.Toleration) bool { return has.ToleratesTaint(klog.Background(), &taint, false) }) {
					t.Errorf("a new node would have the taint %s, which the pod does not tolerate", taint.ToString())
				}
			}
			if !Fits(pod, kept, nil) {
				t.Errorf("the pod would not fit on %+v", kept)
			}
		})
	}
}

func TestAlike(t *testing.T) {
	const base = "spec: {nodeSelector: {a: b}, tolerations: [{key: w, operator: Exists}], containers: [{name: a, resources: {requests: {cpu: '1'}}}]}"
	alike := func(text string) string {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(text), pod); err != nil {
			t.Fatal(err)
		}
		return Alike(pod)
	}
	for name, test := range map[string]struct {
		from, to string
		same     bool
	}{
		"another name":               {"spec:", "metadata: {name: a}\nspec:", true},
		"the same request in words":  {"cpu: '1'", "cpu: 1000m", true},
		"two containers that sum up": {"{name: a, resources: {requests: {cpu: '1'}}}", "{name: a, resources: {requests: {cpu: 500m}}}, {name: b, resources: {requests: {cpu: 500m}}}", true},
		"another request":            {"cpu: '1'", "cpu: '2'", false},
		"an overhead":                {"spec: {", "spec: {overhead: {cpu: 300m}, ", false},
		"another selector":           {"{a: b}", "{a: c}", false},
		"another toleration":         {"key: w", "key: x", false},
		"a precluded node":           {"spec: {", "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}}}, ", false},
	} {
		if got := alike(base) == alike(strings.Replace(base, test.from, test.to, 1)); got != test.same {
			t.Errorf("%s: alike is %v", name, got)
		}
	}
}
