// SPDX-License-Identifier: Apache-2.0

// Package explain says of one pod, workload or manifest what was asked, what became of it and
// why, what to change, and which nodes have room for it.
//
// It decides nothing: the core does (workload.openshift.io/partition), and package simulate
// asks it about pods that do not exist. Only Read makes requests.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/crio"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/partition"
)

// Cluster is what is known of the cluster, or of the one to which manifests will go.
type Cluster struct {
	// Namespace is that of the object; see [simulate.Namespace] for what is not known.
	Namespace simulate.Namespace
	// Status has the types and the nodes. Nil means that nothing is known of them: every type
	// is active then, and no node has room.
	Status *status.Status
	// Runtime is the container runtime of the pod's node, as in its status; empty is unknown.
	Runtime string
}

// Explanation is what is to be said of a pod, or of the pods of a workload.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Simulated: no pod was looked at; this is what would become of one that is created now.
	Simulated bool `json:"simulated,omitempty"`
	// Type and Effect are what the pod asks for, or asked for before it was skipped. They are
	// empty if it does not ask, or asks in an invalid way.
	Type   string           `json:"type,omitempty"`
	Effect partition.Effect `json:"effect,omitempty"`
	// Outcome is empty for an ordinary pod that does not ask, and for one on which nothing has
	// decided.
	Outcome partition.Outcome `json:"outcome,omitempty"`
	Reason  partition.Reason  `json:"reason,omitempty"`
	// Why says what happened in words, from the core's table of reasons where that has them.
	Why string `json:"why,omitempty"`
	// Change is what to do to have the pod partitioned.
	Change []string `json:"change,omitempty"`
	// Runtime says what becomes of annotations that the container runtime reads for the pod's CPUs.
	Runtime []string `json:"runtime,omitempty"`
	// Containers are those of a partitioned pod, with what they originally asked for.
	Containers []Container `json:"containers,omitempty"`
	// CoresMillicores is what a partitioned pod requests of a node's cores.
	CoresMillicores int64 `json:"coresMillicores,omitempty"`
	// Node is where the pod is.
	Node string `json:"node,omitempty"`
	// NodeReports says whether that node reports the type's cores. Nil means that it is not
	// known, or that the pod is not partitioned.
	NodeReports *bool `json:"nodeReports,omitempty"`
	// Ended means that the pod still exists, but has finished.
	Ended bool `json:"ended,omitempty"`
	// Room are the nodes that report the type's cores, those with the most free cores first.
	// Empty means that no node does; nil, that the nodes are not known, or that the pod has
	// a node or has ended.
	// Whether the pod may go there otherwise, by selectors, taints or memory, is not looked at.
	Room []Room `json:"room,omitzero"`
	// Zones says for a pod that waits which nodes have a NUMA node with room. Nil means that it needs none, or does not wait, or that no
	// node has reported any.
	Zones []Zone `json:"zones,omitzero"`
}

// Container is a container of a partitioned pod.
type Container struct {
	Name string `json:"name"`
	// RequestMillicores and LimitMillicores are the original ones; zero means none.
	RequestMillicores int64 `json:"requestMillicores"`
	LimitMillicores   int64 `json:"limitMillicores,omitempty"`
}

// Room is a node that reports the cores of the type.
type Room struct {
	Node           string `json:"node"`
	FreeMillicores int64  `json:"freeMillicores"`
	// Enough: the node has as many free cores as the pod requests.
	Enough bool `json:"enough"`
}

// Well reports whether the pod is ordinary and does not ask, or is partitioned with a right to be, and has room, or a
// node that still has its pool.
func (e *Explanation) Well() bool {
	if len(e.Zones) > 0 && !e.Zones[0].Enough {
		return false
	}
	if e.Outcome != partition.Partitioned {
		return e.Type == "" && e.Reason == partition.NoReason && e.Change == nil
	}
	if len(e.Change) > 0 {
		return false
	}
	return e.Room == nil || len(e.Room) > 0 && e.Room[0].Enough
}

// NamespaceOf returns the namespace of an object with pods, or nothing for any other object.
func NamespaceOf(object runtime.Object) string {
	meta, template := templateOf(object)
	if template == nil {
		return ""
	}
	return cmp.Or(meta.Namespace, metav1.NamespaceDefault)
}

// Pod explains a pod that exists.
func Pod(pod *v1.Pod, cluster Cluster) (*Explanation, error) {
	e, err := existing(pod, cluster)
	if e != nil {
		e.runtime(pod, cluster.Runtime)
	}
	return e, err
}

// runtime says what becomes of the annotations that a runtime reads, once the outcome is known.
func (e *Explanation) runtime(pod *v1.Pod, runtime string) {
	for _, annotation := range crio.Annotations(pod, e.Outcome == partition.Partitioned, runtime) {
		e.Runtime = append(e.Runtime, annotation.Key+" "+annotation.Text)
	}
}

func existing(pod *v1.Pod, cluster Cluster) (*Explanation, error) {
	e := &Explanation{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Ended: status.Ended(pod)}
	target, errs := partition.ParseTarget(pod.Annotations)
	if workloadType, ok := reported.PartitionedType(pod); ok {
		e.Type, e.Effect, e.Outcome = workloadType, target.Effect, partition.Partitioned
		if _, ok := partition.PartitionedType(pod); !ok {
			e.Why = "the static pod is in its pool; its mirror pod requests cpu, because the namespace refuses pods without it"
		}
		e.partitioned(pod, cluster)
		e.allowed(pod, cluster)
		return e, nil
	}
	warning := pod.Annotations[partition.WarningAnnotation]
	if decision, ok := partition.ParseMessage(warning); ok {
		e.Type, e.Outcome, e.Reason, e.Why = decision.Target.Type, decision.Outcome, decision.Reason, warning
		if e.Type == "" { // it is not known any more what the target was
			e.Change = append(e.Change, "correct the target annotation in the manifest of the static pod, on node "+e.Node)
			return e, nil
		}
		if e.Reason == partition.ReasonNodeDoesNotCount {
			return e, nil // a new one would be for the same node
		}
		asking := pod.DeepCopy()
		delete(asking.Annotations, partition.WarningAnnotation)
		asking.Annotations[partition.TargetAnnotation(e.Type)] = decision.Target.AnnotationValue()
		return e, e.again(asking, cluster)
	}
	if !status.Undecided(pod) {
		e.Why = cmp.Or(warning, "it has no target annotation, so it is an ordinary pod")
		return e, nil
	}
	e.Type, e.Effect = target.Type, target.Effect
	asks := "it asks for a type"
	if target.Type == "" && len(errs) == 0 {
		asks = "it has cores of a type, and no target annotation"
	}
	e.Why = asks + ", but nothing has decided on it: it was created by a kube-apiserver without the admission plugin, or it is a static pod of a kubelet without a pinning file"
	return e, e.again(pod, cluster)
}

// allowed says of a partitioned pod that its namespace does not allow the type. A static pod needs no permission.
func (e *Explanation) allowed(pod *v1.Pod, cluster Cluster) {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror || cluster.Namespace.Annotations == nil || e.Ended {
		return
	}
	if rule, not := partition.RuleOf(partition.NamespaceReason(cluster.Namespace.Annotations, e.Type)); not {
		e.Why = "it is partitioned without a right to be: " + rule.Text + "; it is older than the admission plugin, or got past it, or the namespace allowed the type once"
		e.Change = append(e.Change, "delete it, or let its namespace allow the type")
	}
}

// again says what would become of the pod if it were created now, and what to change first.
func (e *Explanation) again(pod *v1.Pod, cluster Cluster) error {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		result, err := simulate.StaticPod(pod, onNode(pod.Spec.NodeName, cluster))
		if err != nil {
			return err
		}
		e.change(result.Decision, cluster, "restart the kubelet of node "+pod.Spec.NodeName+", which decides on static pods")
		return nil
	}
	if server := cluster.withoutPlugin(); server != "" {
		e.Change = append(e.Change, needsPlugin(server))
		return nil
	}
	result, err := simulate.Pod(pod, cluster.Namespace, cluster.active())
	if err != nil {
		return err
	}
	e.change(result.Decision, cluster, "create the pod again: a new one would be partitioned; an existing one never changes")
	return nil
}

// change says what to change, by what was decided of a pod that is created now.
func (e *Explanation) change(now partition.Decision, cluster Cluster, nothing string) {
	if now.Outcome == partition.Partitioned {
		e.Change = append(e.Change, nothing)
		return
	}
	if message := now.Message(); message != "" && message != e.Why {
		e.Change = append(e.Change, "if it were created now: "+message)
	}
	switch now.Reason {
	case partition.ReasonNamespaceNotAnnotated, partition.ReasonNamespaceOtherTypes:
		// People copy the command into a shell, so it has no word that others have written and that no server has
		// looked at. No pod can ask for a type that is not a valid one.
		allowed := slices.DeleteFunc(partition.ParseTypes(cluster.Namespace.Annotations[partition.AllowedAnnotation]), func(name string) bool { return partition.ValidateType(name) != nil })
		namespace := e.Namespace
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			namespace = "NAMESPACE"
		}
		e.Change = append(e.Change, fmt.Sprintf("kubectl annotate --overwrite namespace %s %s=%s", namespace, partition.AllowedAnnotation, strings.Join(append(allowed, now.Target.Type), ",")))
	case partition.ReasonTypeInactive:
		if missing := cluster.missing(now.Target.Type); len(missing) > 0 {
			const most = 10
			e.Change = append(e.Change, fmt.Sprintf("if the nodes decide, give them a pool of the type, or the label %s=ignore if they will never have one: %s", partition.Domain+"/partitioning", strings.Join(untrusted.First(missing, most), ", ")))
		}
	}
}

// Template explains what would become of the pods of a workload, or of a manifest. It returns
// nil for an object without pods.
func Template(object runtime.Object, cluster Cluster) (*Explanation, error) {
	meta, template := templateOf(object)
	if template == nil {
		return nil, nil
	}
	e := &Explanation{Kind: object.GetObjectKind().GroupVersionKind().Kind, Namespace: meta.Namespace, Name: cmp.Or(meta.Name, meta.GenerateName), Simulated: true}
	var result simulate.Result
	var err error
	if e.Kind == "Pod" {
		result, err = simulate.Pod(object.(*v1.Pod), cluster.Namespace, cluster.active())
	} else {
		result, err = simulate.Template(template, cluster.Namespace, cluster.active())
	}
	if err != nil {
		return nil, err
	}
	e.simulated(result)
	defer func() { e.runtime(&v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, "") }()
	switch server := cluster.withoutPlugin(); {
	case server != "" && (e.Type != "" || e.Reason != partition.NoReason):
		e.Outcome, e.Reason = partition.Ordinary, partition.NoReason
		e.Why = "kube-apiserver " + server + " has no admission plugin, so the pod stays as it is"
		e.Change = append(e.Change, needsPlugin(server))
	case e.Outcome == partition.Partitioned:
		e.partitioned(result.Pod, cluster)
	case e.Outcome == partition.Ordinary && e.Reason == partition.NoReason:
		e.Why = "it has no target annotation, so its pods are ordinary"
	default:
		e.change(result.Decision, cluster, "")
	}
	return e, nil
}

// StaticPod explains what would become of a static pod of a manifest. The pod needs no room, and
// nothing of its namespace. Its node is known only if the manifest is that of its mirror.
func StaticPod(pod *v1.Pod, cluster Cluster) (*Explanation, error) {
	e := &Explanation{Kind: "Pod", Namespace: cmp.Or(pod.Namespace, metav1.NamespaceDefault), Name: pod.Name, Node: pod.Spec.NodeName, Simulated: true}
	result, err := simulate.StaticPod(pod, onNode(e.Node, cluster))
	if err != nil {
		return nil, err
	}
	e.simulated(result)
	if e.Outcome == partition.Partitioned {
		e.partitioned(result.Pod, cluster)
		e.Room = nil
	}
	e.runtime(pod, cluster.Runtime)
	return e, nil
}

// simulated fills in what was decided of a pod that does not exist.
func (e *Explanation) simulated(result simulate.Result) {
	decision := result.Decision
	e.Type, e.Effect, e.Outcome, e.Reason = decision.Target.Type, decision.Target.Effect, decision.Outcome, decision.Reason
	if e.Outcome != partition.Partitioned {
		rule, _ := partition.RuleOf(e.Reason)
		e.Why = cmp.Or(decision.Message(), rule.Text)
	}
}

// templateOf returns the template of a workload, or nil for an object without pods.
func templateOf(object runtime.Object) (metav1.ObjectMeta, *v1.PodTemplateSpec) {
	switch o := object.(type) {
	case *v1.Pod:
		return o.ObjectMeta, &v1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	case *appsv1.Deployment:
		return o.ObjectMeta, &o.Spec.Template
	case *appsv1.DaemonSet:
		return o.ObjectMeta, &o.Spec.Template
	case *appsv1.StatefulSet:
		return o.ObjectMeta, &o.Spec.Template
	case *appsv1.ReplicaSet:
		return o.ObjectMeta, &o.Spec.Template
	case *batchv1.Job:
		return o.ObjectMeta, &o.Spec.Template
	case *batchv1.CronJob:
		return o.ObjectMeta, &o.Spec.JobTemplate.Spec.Template
	case *v1.ReplicationController:
		return o.ObjectMeta, o.Spec.Template
	}
	return metav1.ObjectMeta{}, nil
}

// partitioned fills in what a partitioned pod asked for, and where there is room for it.
func (e *Explanation) partitioned(pod *v1.Pod, cluster Cluster) {
	cores := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceName(partition.CoresResource(e.Type))]
	e.CoresMillicores = cores.Value()
	ordinary := partition.AsOrdinary(pod, e.Type)
	for _, container := range append(slices.Clone(ordinary.Spec.InitContainers), ordinary.Spec.Containers...) {
		e.Containers = append(e.Containers, Container{Name: container.Name, RequestMillicores: container.Resources.Requests.Cpu().MilliValue(), LimitMillicores: container.Resources.Limits.Cpu().MilliValue()})
	}
	if cluster.Status == nil || cluster.Status.NodesUnknown || e.Ended && e.Node == "" {
		return
	}
	if e.Node != "" {
		e.NodeReports = ptr.To(slices.ContainsFunc(cluster.Status.Nodes, func(of status.Node) bool {
			return of.Name == e.Node && of.Type == e.Type && of.CoresMillicores > 0
		}))
		if !*e.NodeReports && !e.Ended {
			e.Change = append(e.Change, "give node "+e.Node+" a pool of the type, or create the pod again on a node that has one: nothing confines it now")
		}
		return
	}
	e.Room = []Room{}
	for _, node := range cluster.Status.Nodes {
		if node.Type != e.Type || node.CoresMillicores == 0 {
			continue
		}
		free := node.CoresMillicores - node.RequestedMillicores
		e.Room = append(e.Room, Room{Node: node.Name, FreeMillicores: free, Enough: free >= e.CoresMillicores})
	}
	slices.SortFunc(e.Room, func(a, b Room) int {
		return cmp.Or(cmp.Compare(b.FreeMillicores, a.FreeMillicores), cmp.Compare(a.Node, b.Node))
	})
}

// active answers whether pods are partitioned as a type in the cluster.
func (c Cluster) active() simulate.Types {
	if c.Status == nil {
		return nil
	}
	return c.Status.Gate()
}

// withoutPlugin is [status.Status.WithoutPlugin].
func (c Cluster) withoutPlugin() string {
	if c.Status == nil {
		return ""
	}
	return c.Status.WithoutPlugin()
}

func needsPlugin(server string) string {
	return "run kube-apiserver " + server + " with the admission plugin; kubectl partition status shows whether it has it"
}

// onNode answers whether a node is known to have a pool of a type. Without a node, or where
// nodes are not known, it returns nil.
func onNode(name string, c Cluster) simulate.Types {
	if name == "" || c.Status == nil || c.Status.NodesUnknown {
		return nil
	}
	var types []string
	for _, node := range c.Status.Nodes {
		if node.Name == name && node.CoresMillicores > 0 {
			types = append(types, node.Type)
		}
	}
	return simulate.Active(types...)
}

// missing returns the nodes that count and do not report a type.
func (c Cluster) missing(workloadType string) []string {
	if c.Status == nil {
		return nil
	}
	for _, t := range c.Status.Types {
		if t.Name == workloadType {
			return t.Missing
		}
	}
	return nil
}
