// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
)

const (
	// GroupKind is the kind of groups of nodes.
	GroupKind = "CPUManagerPolicy"

	groupsPath = "/apis/" + Group + "/v1alpha1/cpumanagerpolicies"
)

// has reports whether a group names or selects a node.
func has(g *v1alpha1.CPUManagerPolicy, node *corev1.Node) (bool, error) {
	group, err := nodegroup.NewGroup(g.Name, g.Spec.Nodes.Names, g.Spec.Nodes.Selector)
	if err != nil {
		return false, fmt.Errorf("%s %s: spec.nodes.selector: %w", GroupKind, g.Name, err)
	}
	return group.Has(node), nil
}

// NodeGroup returns a CPUManagerPolicy of the cluster.
func (c Client) NodeGroup(ctx context.Context, name string) (*v1alpha1.CPUManagerPolicy, error) {
	if err := c.Installed(ctx); err != nil {
		return nil, err
	}
	data, err := raw(c.Kube.CoreV1().RESTClient().Get().AbsPath(groupsPath, name).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no %s %q", GroupKind, name)
	}
	return decodeGroup(name, data, err)
}

// Applied returns what the cluster would make of a manifest of one CPUManagerPolicy, with its defaults: a new object, or
// the one that is there with this spec. It is checked, and nothing is written.
func (c Client) Applied(ctx context.Context, manifest []byte) (*v1alpha1.CPUManagerPolicy, error) {
	var wanted map[string]any
	if err := yaml.UnmarshalStrict(manifest, &wanted); err != nil {
		return nil, err
	}
	object := unstructured.Unstructured{Object: wanted}
	name := object.GetName()
	if object.GetAPIVersion() != v1alpha1.GroupVersion.String() || object.GetKind() != GroupKind || name == "" {
		return nil, fmt.Errorf("apiVersion %q, kind %q, metadata.name %q: must be a %s of %s with a name, and alone in its file", object.GetAPIVersion(), object.GetKind(), name, GroupKind, v1alpha1.GroupVersion.String())
	}
	if err := c.Installed(ctx); err != nil {
		return nil, err
	}
	var group *v1alpha1.CPUManagerPolicy
	// The controller may write its status in between.
	return group, retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		group, err = c.applied(ctx, name, object.DeepCopy())
		return err
	})
}

func (c Client) applied(ctx context.Context, name string, object *unstructured.Unstructured) (*v1alpha1.CPUManagerPolicy, error) {
	client := c.Kube.CoreV1().RESTClient()
	write := client.Post().AbsPath(groupsPath)
	is, err := raw(client.Get().AbsPath(groupsPath, name).Do(ctx))
	switch {
	case err == nil:
		there := &unstructured.Unstructured{}
		if err := json.Unmarshal(is, &there.Object); err != nil {
			return nil, err
		}
		there.Object["spec"] = object.Object["spec"]
		annotations := there.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(annotations, object.GetAnnotations())
		there.SetAnnotations(annotations)
		object, write = there, client.Put().AbsPath(groupsPath, name)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s %s: %w", GroupKind, name, err)
	}
	body, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	data, err := raw(write.Param("fieldManager", fieldManager).Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
	return decodeGroup(name, data, err)
}

// raw returns what kube-apiserver has answered. Its errors have what that says; those of rest.Result.Raw do not.
func raw(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func decodeGroup(name string, data []byte, err error) (*v1alpha1.CPUManagerPolicy, error) {
	g := &v1alpha1.CPUManagerPolicy{}
	if err == nil {
		err = json.Unmarshal(data, g)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", GroupKind, name, err)
	}
	return g, nil
}

// Outcome is what a group would do to a node.
type Outcome string

const (
	WouldSwitch Outcome = "would be switched"
	HasPolicy   Outcome = "has the policy"
	WouldRefuse Outcome = "would be refused"
	// Waiting: it is switched, or refused, once something has ended that Reasons have.
	Waiting Outcome = "waits"
	// NotAgain: it has failed with this spec, so that the group does not try it again.
	NotAgain Outcome = "not tried again"
	// InTwoGroups: neither switches it.
	InTwoGroups Outcome = "in two groups"
)

// GroupPlan says what a group would do to its nodes.
type GroupPlan struct {
	Name   string           `json:"name"`
	Policy cpupolicy.Policy `json:"policy"`
	// MaxUnavailable is how many nodes are switched at a time, a number or a percentage.
	MaxUnavailable string        `json:"maxUnavailable"`
	Cordon         bool          `json:"cordon,omitempty"`
	Drain          bool          `json:"drain,omitempty"`
	Nodes          []PlannedNode `json:"nodes"`
	// Missing are names for which there is no node yet.
	Missing []string `json:"missing,omitempty"`
}

// PlannedNode is a node of a group.
type PlannedNode struct {
	Name string `json:"name"`
	// Policy is the one in force; empty if nobody has observed it.
	Policy  cpupolicy.Policy `json:"policy,omitempty"`
	Outcome Outcome          `json:"outcome"`
	Reasons []string         `json:"reasons,omitempty"`
	// Evicted are the pods, as namespace/name, that a drain would evict first.
	Evicted  []string `json:"evicted,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	// broken means that it has failed once the kubelet had been stopped.
	broken bool
}

// Plan says what a group would do to its nodes now. It writes nothing: each request is a dry run. Warnings returns what
// kube-apiserver has warned of since it was called last, and may be nil.
func (c Client) Plan(ctx context.Context, g *v1alpha1.CPUManagerPolicy, warnings func() []string) (*GroupPlan, error) {
	others, err := c.otherGroups(ctx, g.Name)
	if err != nil {
		return nil, err
	}
	nodes, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	plan := &GroupPlan{Name: g.Name, Policy: cpupolicy.Policy(g.Spec.Policy), MaxUnavailable: "1", Cordon: g.Spec.Cordon, Drain: g.Spec.Drain != nil, Nodes: []PlannedNode{}}
	if g.Spec.MaxUnavailable != nil {
		plan.MaxUnavailable = g.Spec.MaxUnavailable.String()
	}
	plan.Missing = slices.Clone(g.Spec.Nodes.Names)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		plan.Missing = slices.DeleteFunc(plan.Missing, func(name string) bool { return name == node.Name })
		if in, err := has(g, node); err != nil {
			return nil, err
		} else if !in {
			continue
		}
		planned, err := c.planNode(ctx, g, node, others)
		if err != nil {
			return nil, err
		}
		if warnings != nil {
			planned.Warnings = append(planned.Warnings, warnings()...)
		}
		plan.Nodes = append(plan.Nodes, planned)
	}
	return plan, plan.stop(g.Spec.MaxUnavailable)
}

// stop lets nodes wait that are not switched since others have failed.
func (p *GroupPlan) stop(maxUnavailable *intstr.IntOrString) error {
	most, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(maxUnavailable, intstr.FromInt32(1)), len(p.Nodes), true)
	if err != nil {
		return fmt.Errorf("%s %s: spec.maxUnavailable: %w", GroupKind, p.Name, err)
	}
	var broken []string
	for _, n := range p.Nodes {
		if n.broken {
			broken = append(broken, n.Name)
		}
	}
	if len(broken) < most || most == 0 {
		return nil
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Outcome == WouldSwitch {
			n.Outcome, n.Evicted = Waiting, nil
			n.Reasons = []string{fmt.Sprintf("%s failed once the kubelet had been stopped, and maxUnavailable is %s", strings.Join(broken, ", "), p.MaxUnavailable)}
		}
	}
	return nil
}

// otherGroups returns the groups of the cluster but for one.
func (c Client) otherGroups(ctx context.Context, but string) ([]v1alpha1.CPUManagerPolicy, error) {
	data, err := raw(c.Kube.CoreV1().RESTClient().Get().AbsPath(groupsPath).Do(ctx))
	var list v1alpha1.CPUManagerPolicyList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", GroupKind, err)
	}
	return slices.DeleteFunc(list.Items, func(g v1alpha1.CPUManagerPolicy) bool { return g.Name == but }), nil
}

func (c Client) planNode(ctx context.Context, g *v1alpha1.CPUManagerPolicy, node *corev1.Node, others []v1alpha1.CPUManagerPolicy) (PlannedNode, error) {
	now, policy := NodeOf(node), cpupolicy.Policy(g.Spec.Policy)
	planned := PlannedNode{Name: node.Name, Policy: now.Policy}
	for i := range others {
		// One whose selector is none has no node.
		if in, err := has(&others[i], node); err == nil && in {
			planned.Outcome = InTwoGroups
			planned.Reasons = append(planned.Reasons, fmt.Sprintf("the %s %s has it, too", GroupKind, others[i].Name))
		}
	}
	if planned.Outcome == InTwoGroups {
		return planned, nil
	}
	last, _, _ := nodestatus.ReadStatus(node.Annotations) // what cannot be read counts as none
	waits := func(format string, args ...any) (PlannedNode, error) {
		planned.Outcome, planned.Reasons = Waiting, []string{fmt.Sprintf(format, args...)}
		return planned, nil
	}
	// The order is the controller's.
	switch {
	case now.UnderWay():
		return waits("the policy %s is %s there", now.Requested, now.State)
	case now.Policy == policy:
		planned.Outcome = HasPolicy
		return planned, nil
	case cpupolicy.FailedFor(g, last):
		planned.Outcome, planned.Reasons, planned.broken = NotAgain, Lines(now.Message), last.Begun
		return planned, nil
	case now.Policy == "":
		return waits("its policy was not observed since it booted")
	case nodegroup.Paused(node):
		return waits("it is paused")
	case nodegroup.Paused(g):
		return waits("the group is paused")
	case !nodegroup.IsReady(node):
		return waits("it is not Ready")
	case node.Spec.Unschedulable:
		return waits("it is cordoned")
	case now.Claim != nil:
		return waits("it is claimed by %s for its operation %s", now.Claim.Owner, now.Claim.Operation)
	case now.UnreadableClaim != "":
		return waits("%s", now.UnreadableClaim)
	}
	var evicted []corev1.Pod
	if g.Spec.Drain != nil {
		pods, stays, err := c.drained(ctx, node.Name)
		if err != nil {
			return planned, err
		}
		planned.Reasons, evicted = stays, pods
		for i := range pods {
			planned.Evicted = append(planned.Evicted, pods[i].Namespace+"/"+pods[i].Name)
		}
		slices.Sort(planned.Evicted)
	}
	_, err := c.request(ctx, node, Request{Node: node.Name, Policy: policy, DryRun: true})
	var refused *RefusedError
	underWay := false
	switch {
	case errors.As(err, &refused):
		reasons, later := withoutEvicted(refused.Reasons, evicted)
		// A group asks again once another node of the control plane is done.
		underWay = len(planned.Reasons) == 0 && !slices.ContainsFunc(reasons, func(r Reason) bool {
			return r.Code != metav1.CauseType(cpupolicy.ControlPlaneUnderWay) && r.Code != metav1.CauseType(cpupolicy.ControlPlaneNotReady)
		})
		for _, reason := range reasons {
			planned.Reasons = append(planned.Reasons, reason.Text)
		}
		for _, reason := range later {
			planned.Warnings = append(planned.Warnings, "the agent looks again after the drain: "+reason.Text)
		}
	case err != nil:
		return planned, err
	}
	switch {
	case len(planned.Reasons) == 0:
		planned.Outcome = WouldSwitch
	case underWay:
		planned.Outcome = Waiting
	default:
		planned.Outcome, planned.Evicted = WouldRefuse, nil // it is refused before anything is evicted
	}
	return planned, nil
}

// drained returns the pods that a drain evicts from a node, and why it cannot be drained: pods that nobody would bring
// back. It is kubectl drain's choice, less the companion's own pods and what has ended.
func (c Client) drained(ctx context.Context, node string) (pods []corev1.Pod, stays []string, err error) {
	list, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, nil, fmt.Errorf("pods of node %s: %w", node, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		owner := metav1.GetControllerOf(pod)
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		switch {
		case ended, mirror, pod.Namespace == c.Namespace, owner != nil && owner.Kind == "DaemonSet":
		case owner == nil:
			stays = append(stays, fmt.Sprintf("pod %s/%s has no controller, so that a drain would end it for good; delete it, or move it", pod.Namespace, pod.Name))
		default:
			pods = append(pods, *pod)
		}
	}
	return pods, stays, nil
}

// withoutEvicted leaves out reasons that are about pods which a drain evicts, or about the virtual machines in them. What
// an agent has said of containers it looks at again after the drain; later has that.
func withoutEvicted(all []Reason, evicted []corev1.Pod) (reasons, later []Reason) {
	if len(evicted) == 0 {
		return all, nil
	}
	var about []string
	for i := range evicted {
		about = append(about, fmt.Sprintf("pod %s/%s", evicted[i].Namespace, evicted[i].Name))
		if vm := evicted[i].Labels["vm.kubevirt.io/name"]; vm != "" {
			about = append(about, fmt.Sprintf("VirtualMachineInstance %s/%s", evicted[i].Namespace, vm))
		}
	}
	said := false
	for _, reason := range all {
		switch {
		case slices.Contains(about, reason.Object):
		case reason.Code == metav1.CauseType(cpupolicy.ContainersHoldCPUs):
			later = append(later, reason)
		case reason.Code == nodestatus.CauseObserved && !said:
		default:
			said = said || reason.Code == metav1.CauseType(cpupolicy.NodeRefuses)
			reasons = append(reasons, reason)
		}
	}
	return reasons, later
}

// Lines returns the lines of a message that are not empty.
func Lines(message string) []string {
	return strings.FieldsFunc(strings.TrimSpace(message), func(r rune) bool { return r == '\n' })
}
