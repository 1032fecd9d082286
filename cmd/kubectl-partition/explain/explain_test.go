// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// asking returns a pod that asks for management.
func asking(requests, limits string) *v1.Pod {
	pod := podtest.Pod(map[string]string{"target.workload.openshift.io/management": ""}, podtest.Container("c", requests, limits))
	pod.TypeMeta, pod.Namespace, pod.Name = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "a", "p"
	return pod
}

// admitted returns the pod as admission left it, with a gate.
func admitted(pod *v1.Pod, gate partition.Gate) *v1.Pod {
	if d := partition.Mutate(partition.V1(pod), partition.Policy{Gate: gate}); d.Outcome == partition.Skipped {
		pod.Annotations[partition.WarningAnnotation] = d.Message()
	}
	return pod
}

func with(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(pod); return pod }

var (
	allowed = map[string]string{partition.AllowedAnnotation: "management"}
	active  = &status.Status{
		Types: []status.Type{{Name: "management", Active: ptr.To(true)}},
		Nodes: []status.Node{{Name: "full", Type: "management", CoresMillicores: 8000, RequestedMillicores: 7900}, {Name: "free", Type: "management", CoresMillicores: 8000}, {Name: "other", Type: "infra", CoresMillicores: 8000}, {Name: "lost", Type: "management", RequestedMillicores: 400}},
	}
	unread   = &status.Status{Servers: []status.Server{{Plugin: status.Unreachable}}, NodesUnknown: true}
	inactive = &status.Status{Types: []status.Type{{Name: "management", Active: ptr.To(false), Missing: []string{"n1"}}}}
	without  = &status.Status{Types: active.Types, Nodes: active.Nodes, Servers: []status.Server{{URL: "https://192.0.2.1", Plugin: status.Absent}}}
	large    = &status.Status{Types: []status.Type{{Name: "management", Active: ptr.To(false), Missing: strings.Fields("a b c d e f g h i j k l")}}}
)

func TestPodsAreExplained(t *testing.T) {
	for name, test := range map[string]struct {
		pod       *v1.Pod
		namespace map[string]string
		status    *status.Status
		outcome   partition.Outcome
		reason    partition.Reason
		why       string
		change    string
		well      bool
	}{
		"a partitioned pod": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), allowed, active, partition.Partitioned, "", "", "", true},
		"a partitioned pod that no node can take": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), allowed, inactive, partition.Partitioned, "", "", "", false},
		"a partitioned pod whose namespace does not allow the type": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), map[string]string{}, active, partition.Partitioned, "", "it is partitioned without a right to be: the namespace is not annotated", "delete it, or let its namespace allow the type", false},
		"a partitioned pod of which the namespace is not known": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), nil, active, partition.Partitioned, "", "", "", true},
		"the mirror of a partitioned static pod needs no right": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey], p.Spec.NodeName = "1", "free" }), map[string]string{}, active, partition.Partitioned, "", "", "", true},
		"a partitioned pod, where the nodes are not known": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), allowed, unread, partition.Partitioned, "", "", "", true},
		"a pod that was skipped while its type was inactive": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), allowed, active, partition.Skipped, partition.ReasonTypeInactive, "no pool of this type is active", "create the pod again", false},
		"a pod whose type is still inactive": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), allowed, inactive, partition.Skipped, partition.ReasonTypeInactive, "no pool of this type is active", "if the nodes decide, give them a pool of the type, or the label workload.openshift.io/partitioning=ignore if they will never have one: n1", false},
		"a pod whose type many nodes keep inactive": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), allowed, large, partition.Skipped, partition.ReasonTypeInactive, "no pool of this type is active", "have one: a, b, c, d, e, f, g, h, i, j, and 2 more", false},
		"a pod whose namespace is not annotated": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonNamespaceNotAnnotated)), map[string]string{}, active, partition.Skipped, partition.ReasonNamespaceNotAnnotated, "is not annotated", "kubectl annotate --overwrite namespace a workload.openshift.io/allowed=management", false},
		"a pod that has another reason by now": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonNamespaceNotAnnotated)), allowed, inactive, partition.Skipped, partition.ReasonNamespaceNotAnnotated, "is not annotated", "if it were created now: workload type \"management\" ignored: no pool", false},
		"a Guaranteed pod": {
			admitted(asking("cpu=400m memory=1Mi", "cpu=400m memory=1Mi"), partition.AnyType), allowed, active, partition.Skipped, partition.ReasonGuaranteed, "Guaranteed", "", false},
		"a pod for a node that does not count": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonNodeDoesNotCount)), allowed, active, partition.Skipped, partition.ReasonNodeDoesNotCount, "the pod can run only on nodes that do not count", "", false},
		"a pod on which nothing has decided": {
			asking("cpu=400m memory=1Mi", ""), allowed, active, partition.Ordinary, "", "without the admission plugin", "create the pod again", false},
		"a pod on which nothing has decided, nor would": {
			asking("cpu=400m memory=1Mi", ""), allowed, without, partition.Ordinary, "", "without the admission plugin", "run kube-apiserver https://192.0.2.1 with the admission plugin", false},
		"a pod that was skipped by a kube-apiserver that is gone": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), allowed, without, partition.Skipped, partition.ReasonTypeInactive, "no pool of this type is active", "run kube-apiserver https://192.0.2.1 with", false},
		"a pod that does not ask, without the plugin": {
			with(asking("", ""), func(p *v1.Pod) { p.Annotations = nil }), allowed, without, partition.Ordinary, "", "no target annotation", "", true},
		"a pod with an invalid target": {
			with(asking("", ""), func(p *v1.Pod) { p.Annotations["target.workload.openshift.io/management"] = "{" }), allowed, active, partition.Ordinary, "", "without the admission plugin", "if it were created now", false},
		"the mirror pod of a static pod with an invalid target": {
			with(asking("", ""), func(p *v1.Pod) {
				p.Annotations = map[string]string{"target.workload.openshift.io/management": "{", v1.MirrorPodAnnotationKey: "1"}
				p.Spec.NodeName = "free"
				d := partition.Mutate(partition.V1(p), partition.Policy{Gate: partition.AnyType, NeverRefuse: true})
				p.Annotations[partition.WarningAnnotation] = d.Message()
			}), nil, active, partition.Skipped, partition.ReasonInvalidTarget, "workload type ignored: metadata.annotations", "correct the target annotation", false},
		"a pod with cores and no target": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), func(p *v1.Pod) { p.Annotations = nil }), allowed, active, partition.Ordinary, "", "it has cores of a type, and no target annotation", "if it were created now: cores of a workload type were turned back", false},
		"a mirror pod that got its cpu back": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), func(p *v1.Pod) {
				p.Annotations[v1.MirrorPodAnnotationKey], p.Spec.NodeName = "1", "free"
				partition.RestoreCPU(partition.V1(p))
			}), nil, active, partition.Partitioned, "", "the static pod is in its pool", "", true},
		"a pod that does not ask": {
			with(asking("", ""), func(p *v1.Pod) { p.Annotations = nil }), allowed, active, partition.Ordinary, "", "no target annotation", "", true},
		"a copy that got its cpu back": {
			with(asking("", ""), func(p *v1.Pod) {
				p.Annotations = map[string]string{partition.WarningAnnotation: "cores were turned back"}
			}), allowed, active, partition.Ordinary, "", "cores were turned back", "", true},
		"a pod that was skipped, where no kube-apiserver says which types are active": {
			admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), allowed, unread, partition.Skipped, partition.ReasonTypeInactive, "no pool of this type is active", "create the pod again", false},
		"the mirror pod of a static pod whose node is not known": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey], p.Spec.NodeName = "1", "free" }),
			nil, unread, partition.Skipped, partition.ReasonTypeInactive, "no pool", "restart the kubelet of node free", false},
		"the mirror pod of a static pod whose node has no pool": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey], p.Spec.NodeName = "1", "other" }),
			nil, active, partition.Skipped, partition.ReasonTypeInactive, "no pool", "", false},
		"the mirror pod of a static pod whose node has a pool by now": {
			with(admitted(asking("cpu=400m memory=1Mi", ""), partition.Always(partition.ReasonTypeInactive)), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey], p.Spec.NodeName = "1", "free" }),
			nil, active, partition.Skipped, partition.ReasonTypeInactive, "no pool", "restart the kubelet of node free", false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Pod(test.pod, Cluster{Namespace: simulate.Namespace{Annotations: test.namespace}, Status: test.status})
			if err != nil {
				t.Fatal(err)
			}
			if e.Outcome != test.outcome || e.Reason != test.reason || !strings.Contains(e.Why, test.why) || e.Well() != test.well {
				t.Errorf("got %+v, want %+v", e, test)
			}
			if change := strings.Join(e.Change, "\n"); (test.change == "") != (change == "") || !strings.Contains(change, test.change) {
				t.Errorf("to change is %q, want %q", change, test.change)
			}
		})
	}
}

func TestTheNodeOfAPodIsLookedUp(t *testing.T) {
	for name, test := range map[string]struct {
		node    string
		status  *status.Status
		phase   v1.PodPhase
		reports *bool
		ended   bool
	}{
		"a node that reports the type":           {"free", active, v1.PodRunning, ptr.To(true), false},
		"a node that reports the type no longer": {"lost", active, v1.PodRunning, ptr.To(false), false},
		"a node that reports another type":       {"other", active, v1.PodRunning, ptr.To(false), false},
		"nodes that are not known":               {"free", unread, v1.PodRunning, nil, false},
		"a pod that has ended":                   {"free", active, v1.PodSucceeded, ptr.To(true), true},
		"a pod that has ended and had no node":   {"", inactive, v1.PodFailed, nil, true},
	} {
		pod := with(admitted(asking("cpu=400m memory=1Mi", ""), partition.AnyType), func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = test.node, test.phase })
		e, err := Pod(pod, Cluster{Status: test.status})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(e.NodeReports, test.reports) || e.Ended != test.ended {
			t.Errorf("%s: the node reports the type: %v, ended %v, want %+v", name, ptr.Deref(e.NodeReports, false), e.Ended, test)
		}
		if lost := !test.ended && !ptr.Deref(test.reports, true); e.Well() == lost || (len(e.Change) > 0) != lost {
			t.Errorf("%s: well: %v, to change is %q", name, e.Well(), e.Change)
		}
	}
}

func TestStaticPodsNeedNeitherNamespaceNorRoom(t *testing.T) {
	hard := asking("cpu=400m memory=1Mi", "")
	hard.Annotations["target.workload.openshift.io/management"] = "{"
	for name, test := range map[string]struct {
		pod     *v1.Pod
		status  *status.Status
		outcome partition.Outcome
		why     string
		well    bool
	}{
		"one that would be partitioned":             {asking("cpu=400m memory=1Mi", ""), inactive, partition.Partitioned, "", true},
		"the mirror of one whose node has no pool":  {with(asking("cpu=400m memory=1Mi", ""), func(p *v1.Pod) { p.Spec.NodeName = "other" }), active, partition.Skipped, "no pool", false},
		"one with an invalid target is not refused": {hard, active, partition.Skipped, "workload type ignored", false},
		"one that does not ask":                     {with(asking("", ""), func(p *v1.Pod) { p.Annotations = nil }), active, partition.Ordinary, "", true},
	} {
		e, err := StaticPod(test.pod, Cluster{Namespace: simulate.Namespace{Annotations: map[string]string{}}, Status: test.status})
		if err != nil {
			t.Fatal(err)
		}
		if e.Outcome != test.outcome || !strings.Contains(e.Why, test.why) || e.Well() != test.well || e.Room != nil {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}

func TestWorkloadsAreSimulated(t *testing.T) {
	deployment := func(pod *v1.Pod) *appsv1.Deployment {
		return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
			Spec: appsv1.DeploymentSpec{Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec}}}
	}
	large := asking("cpu=9 memory=1Mi", "")
	hard := asking("cpu=400m memory=1Mi", "")
	hard.Annotations["target.workload.openshift.io/management"] = `{"effect": "RequiredDuringScheduling"}`
	for name, test := range map[string]struct {
		object  runtime.Object
		cluster Cluster
		want    Explanation
	}{
		"a Deployment whose pods have room": {deployment(asking("cpu=400m memory=1Mi", "cpu=500m")), Cluster{Namespace: simulate.Namespace{Annotations: allowed}, Status: active}, Explanation{
			Kind: "Deployment", Name: "web", Effect: partition.Preferred, Outcome: partition.Partitioned,
			Containers: []Container{{"c", 400, 500}}, CoresMillicores: 400, Room: []Room{{"free", 8000, true}, {"full", 100, false}}}},
		"a Deployment whose pods have none": {deployment(large), Cluster{Namespace: simulate.Namespace{Annotations: allowed}, Status: active}, Explanation{
			Kind: "Deployment", Name: "web", Effect: partition.Preferred, Outcome: partition.Partitioned,
			Containers: []Container{{"c", 9000, 0}}, CoresMillicores: 9000, Room: []Room{{"free", 8000, false}, {"full", 100, false}}}},
		"a manifest, of a cluster of which nothing is known": {asking("cpu=400m memory=1Mi", ""), Cluster{}, Explanation{
			Kind: "Pod", Name: "p", Effect: partition.Preferred, Outcome: partition.Partitioned, Containers: []Container{{"c", 400, 0}}, CoresMillicores: 400}},
		"a hard pod in a namespace that allows other types": {hard, Cluster{Namespace: simulate.Namespace{Annotations: map[string]string{partition.AllowedAnnotation: "infra"}}, Status: active}, Explanation{
			Kind: "Pod", Name: "p", Effect: partition.Required, Outcome: partition.Refused, Reason: partition.ReasonNamespaceOtherTypes,
			Why:    `workload type "management" refused: the namespace's annotation workload.openshift.io/allowed does not list it`,
			Change: []string{"kubectl annotate --overwrite namespace a workload.openshift.io/allowed=infra,management"}}},
		"a namespace whose annotation has what a shell would run": {hard, Cluster{Namespace: simulate.Namespace{Annotations: map[string]string{partition.AllowedAnnotation: "infra, $(id), a b,`id`"}}, Status: active}, Explanation{
			Kind: "Pod", Name: "p", Effect: partition.Required, Outcome: partition.Refused, Reason: partition.ReasonNamespaceOtherTypes,
			Why:    `workload type "management" refused: the namespace's annotation workload.openshift.io/allowed does not list it`,
			Change: []string{"kubectl annotate --overwrite namespace a workload.openshift.io/allowed=infra,management"}}},
		"a hard pod where kube-apiserver has no plugin": {hard, Cluster{Namespace: simulate.Namespace{Annotations: allowed}, Status: without}, Explanation{
			Kind: "Pod", Name: "p", Effect: partition.Required, Outcome: partition.Ordinary,
			Why:    "kube-apiserver https://192.0.2.1 has no admission plugin, so the pod stays as it is",
			Change: []string{"run kube-apiserver https://192.0.2.1 with the admission plugin; kubectl partition status shows whether it has it"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Template(test.object, test.cluster)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Namespace, test.want.Type, test.want.Simulated = "a", "management", true
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got  %+v\nwant %+v", *got, test.want)
			}
		})
	}
	if got, err := Template(&v1.ConfigMap{}, Cluster{}); got != nil || err != nil {
		t.Errorf("an object without pods: %+v, %v", got, err)
	}
}

func TestAnnotationsOfTheRuntimeAreExplained(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "app", Annotations: map[string]string{"cpu-quota.crio.io": "disable"}}}
	pod.Spec.NodeName = "n1"
	for runtime, want := range map[string]string{"containerd://2.4.2": "the runtime of the node is containerd://2.4.2", "cri-o://1.37.0": "whole CPUs"} {
		e, err := Pod(pod, Cluster{Runtime: runtime})
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Runtime) != 1 || !strings.Contains(e.Runtime[0], want) || !e.Well() {
			t.Errorf("on %s it is %q, want %q", runtime, e.Runtime, want)
		}
	}
}
