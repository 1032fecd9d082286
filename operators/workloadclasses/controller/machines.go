// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/workloadclasses"
)

// machineAPI is what differs between OpenShift's machines and Cluster API's. Few fields are read, so
// there are no types.
type machineAPI struct {
	machine, set schema.GroupVersionKind
	// between is the kind between set and machine, if there is one.
	between schema.GroupVersionKind
	// marks are the annotations that make a set's controller choose a Machine. An empty value counts
	// for nothing.
	marks []string
	// minimum is the annotation of a set with its autoscaler's minimum.
	minimum string
	// autoscaler is the kind that names a set in spec.scaleTargetRef, if there is one.
	autoscaler schema.GroupVersionKind
	// paused is the annotation of a set whose controller does nothing, if there is one.
	paused string
}

var machineAPIs = map[MachineAPI]*machineAPI{
	// openshift/machine-api-operator, pkg/controller/machineset/delete_policy.go
	MachineSet: {
		machine:    schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"},
		set:        schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "MachineSet"},
		marks:      []string{"machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine"},
		minimum:    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
		autoscaler: schema.GroupVersionKind{Group: "autoscaling.openshift.io", Version: "v1beta1", Kind: "MachineAutoscaler"},
	},
	// kubernetes-sigs/cluster-api, core/reconcilers/machineset/machineset_deletion_order.go
	MachineDeployment: {
		machine: schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
		set:     schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineDeployment"},
		between: schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineSet"},
		marks:   []string{"cluster.x-k8s.io/delete-machine"},
		minimum: "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
		paused:  "cluster.x-k8s.io/paused",
	},
}

// machines reads and writes the machines of nodes. Its rights on sets are those of /scale: it cannot
// change their templates.
type machines struct {
	*machineAPI
	reader    client.Reader // of the API, not of a cache
	writer    client.Client
	namespace string
}

// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=list;patch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=list
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets/scale,verbs=update
// +kubebuilder:rbac:groups=autoscaling.openshift.io,resources=machineautoscalers,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments/scale,verbs=update

// fleet is all machines at a moment. Sets were read before Machines.
type fleet struct {
	byNode map[string]*workloadclasses.Machine
	sets   map[string]*workloadclasses.Set
	// marked are the Machines that have marks of ours.
	marked []*workloadclasses.Machine
}

func (f *fleet) set(machine *workloadclasses.Machine) *workloadclasses.Set {
	if machine == nil || machine.Set == "" {
		return nil
	}
	return f.sets[machine.Set]
}

func (m *machines) list(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	if kind.Empty() {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := m.reader.List(ctx, list, client.InNamespace(m.namespace)); err != nil {
		return nil, fmt.Errorf("%s of namespace %s: %w", kind.Kind, m.namespace, err)
	}
	return list.Items, nil
}

// look reads all machines.
func (m *machines) look(ctx context.Context) (*fleet, error) {
	f := &fleet{byNode: map[string]*workloadclasses.Machine{}, sets: map[string]*workloadclasses.Set{}}
	autoscalers, err := m.list(ctx, m.autoscaler)
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	minima := map[string]int32{}
	for i := range autoscalers {
		content := autoscalers[i].Object
		kind, _, _ := unstructured.NestedString(content, "spec", "scaleTargetRef", "kind")
		name, _, _ := unstructured.NestedString(content, "spec", "scaleTargetRef", "name")
		if least, ok, _ := unstructured.NestedInt64(content, "spec", "minReplicas"); ok && kind == m.set.Kind {
			minima[name] = max(minima[name], int32(least))
		}
	}
	sets, err := m.list(ctx, m.set)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		f.sets[sets[i].GetName()] = m.setOf(&sets[i], minima)
	}
	between, err := m.list(ctx, m.between)
	if err != nil {
		return nil, err
	}
	owners, used, wanted := map[types.UID]string{}, map[string]int{}, map[string]int32{}
	for i := range between {
		owner := metav1.GetControllerOf(&between[i])
		if owner == nil || owner.Kind != m.set.Kind {
			continue
		}
		owners[between[i].GetUID()] = owner.Name
		replicas, _, _ := unstructured.NestedInt64(between[i].Object, "spec", "replicas")
		set := f.sets[owner.Name]
		if set == nil {
			continue
		}
		wanted[owner.Name] += int32(replicas)
		set.Settled = set.Settled && observed(&between[i])
		if replicas > 0 {
			if used[owner.Name]++; used[owner.Name] > 1 {
				set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.Rollout, Why: fmt.Sprintf("a rollout of %s %s is under way", m.set.Kind, owner.Name)}
			}
		}
	}
	all, err := m.list(ctx, m.machine)
	if err != nil {
		return nil, err
	}
	there := map[string]int32{}
	for i := range all {
		machine := m.machineOf(&all[i], owners)
		if machine.Node != "" {
			if other := f.byNode[machine.Node]; other != nil {
				// Two name one node: neither is known to be the node's.
				other.Set, machine.Set = "", ""
			}
			f.byNode[machine.Node] = machine
		}
		if machine.Operation != "" {
			f.marked = append(f.marked, machine)
		}
		set := f.set(machine)
		if set == nil || machine.Deleting {
			continue
		}
		there[set.Name]++
		switch {
		case set.Obstacle.Code != "":
		case machine.Coming:
			set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.ScaleUp, Why: fmt.Sprintf("set %s is being scaled up: Machine %s does not run yet", machine.Set, machine.Name.Name)}
		case !machine.Running:
			set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.MachineNotRunning, Why: fmt.Sprintf("Machine %s of set %s does not run", machine.Name.Name, machine.Set)}
		case machine.Marked && machine.Operation == "":
			set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.MarkedByOthers, Why: fmt.Sprintf("somebody else marked Machine %s of set %s for deletion", machine.Name.Name, machine.Set)}
		}
	}
	// Their own count of replicas is late, and Cluster API's has those that are being deleted.
	for name, set := range f.sets {
		set.Settled = set.Settled && there[name] == set.Replicas && (m.between.Empty() || wanted[name] == set.Replicas)
	}
	return f, nil
}

// observed reports whether the controller of an object has seen its newest spec.
func observed(object *unstructured.Unstructured) bool {
	seen, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return seen == object.GetGeneration()
}

func (m *machines) setOf(object *unstructured.Unstructured, minima map[string]int32) *workloadclasses.Set {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(object.Object, fields...)
		return n
	}
	set := &workloadclasses.Set{
		Name: object.GetName(), Replicas: int32(number("spec", "replicas")), Generation: object.GetGeneration(), ResourceVersion: object.GetResourceVersion(),
		Settled: observed(object),
	}
	if least, ok := minima[set.Name]; ok {
		set.Minimum = ptr.To(least)
	}
	if value, ok := object.GetAnnotations()[m.minimum]; ok {
		if least, err := strconv.ParseInt(value, 10, 32); err != nil {
			set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.MinimumUnreadable, Why: fmt.Sprintf("annotation %s of set %s is no number", m.minimum, set.Name)}
		} else {
			set.Minimum = ptr.To(max(int32(least), ptr.Deref(set.Minimum, 0)))
		}
	}
	authority, _, _ := unstructured.NestedString(object.Object, "status", "authoritativeAPI")
	_, paused := object.GetAnnotations()[m.paused]
	stopped, _, _ := unstructured.NestedBool(object.Object, "spec", "paused")
	switch {
	case object.GetDeletionTimestamp() != nil:
		set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.SetDeleting, Why: fmt.Sprintf("set %s is being deleted", set.Name)}
	case authority != "" && authority != "MachineAPI":
		set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.OtherAPI, Why: fmt.Sprintf("set %s is not managed by this API: status.authoritativeAPI is %s", set.Name, authority)}
	case paused && m.paused != "" || stopped:
		set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.SetPaused, Why: fmt.Sprintf("set %s is paused", set.Name)}
	}
	return set
}

func (m *machines) machineOf(object *unstructured.Unstructured, owners map[types.UID]string) *workloadclasses.Machine {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(object.Object, fields...)
		return s
	}
	phase, healthy := text("status", "phase"), text("status", "errorReason") == "" && text("status", "errorMessage") == ""
	machine := &workloadclasses.Machine{
		Name: client.ObjectKeyFromObject(object), UID: object.GetUID(), Node: text("status", "nodeRef", "name"),
		Deleting: object.GetDeletionTimestamp() != nil,
		Running:  phase == "Running" && healthy,
		// Both APIs have these phases, and none at first.
		Coming: slices.Contains([]string{"", "Pending", "Provisioning", "Provisioned"}, phase) && healthy,
	}
	sets := 0
	for _, owner := range object.GetOwnerReferences() {
		switch {
		case owner.Kind == m.set.Kind && m.between.Empty():
			machine.Set = owner.Name
			sets++
		case owner.Kind == m.between.Kind && !m.between.Empty():
			machine.Set = owners[owner.UID]
			sets++
		}
	}
	if sets != 1 {
		machine.Set = ""
	}
	for _, key := range m.marks {
		_, ok := object.GetAnnotations()[key]
		machine.Marked = machine.Marked || ok
	}
	if o, err := workloadclasses.ParseOperation(object.GetAnnotations()[workloadclasses.OperationAnnotation]); err == nil {
		machine.Operation = o.ID
	}
	return machine
}

// mark writes an operation and its marks to a Machine, all in one write; the zero operation removes
// them. The UID keeps it from a new Machine of the same name.
func (m *machines) mark(ctx context.Context, machine *workloadclasses.Machine, o workloadclasses.Operation) error {
	annotations := map[string]any{}
	for _, key := range append(slices.Clone(m.marks), workloadclasses.OperationAnnotation) {
		switch {
		case o.ID == "":
			annotations[key] = nil
		case key == workloadclasses.OperationAnnotation:
			annotations[key] = o.String()
		default:
			annotations[key] = Name + "-" + o.ID
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": machine.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(m.machine)
	object.SetNamespace(machine.Name.Namespace)
	object.SetName(machine.Name.Name)
	return m.writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// shrink takes one replica from a set if it is still what was read.
func (m *machines) shrink(ctx context.Context, set *workloadclasses.Set) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(m.set)
	object.SetNamespace(m.namespace)
	object.SetName(set.Name)
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]any{"namespace": m.namespace, "name": set.Name, "resourceVersion": set.ResourceVersion},
		"spec":     map[string]any{"replicas": int64(set.Replicas - 1)},
	}}
	return m.writer.SubResource("scale").Update(ctx, object, client.WithSubResourceBody(scale))
}

// minimum returns the sum of the minima of the sets that some nodes are of; one if none is known. It may be
// zero: the autoscaler scales up a set without nodes.
func (f *fleet) minimum(nodes []string) int {
	minima := map[string]int{}
	for _, node := range nodes {
		if set := f.set(f.byNode[node]); set != nil && set.Minimum != nil {
			minima[set.Name] = int(*set.Minimum)
		}
	}
	if len(minima) == 0 {
		return 1
	}
	sum := 0
	for _, least := range minima {
		sum += least
	}
	return sum
}
