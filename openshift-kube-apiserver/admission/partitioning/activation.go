package partitioning

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
)

// activation knows which workload types are active (design, section 4.2). It
// counts nodes as events arrive, so a pod's admission costs the same in a cluster
// of one node and of 15,000, and keeps nothing for each node.
type activation struct {
	mu    sync.Mutex
	nodes int
	// reporting counts the nodes that report the cores of a type.
	reporting map[string]int
	// latched are the types of the annotation on kube-system.
	latched map[string]bool
	// decided are the types for which the configuration, or the object that it names,
	// decides, and how. Neither nodes nor the latch have a say in them.
	decided map[string]bool
	// undecided is set until what the configuration names has been seen.
	undecided atomic.Bool

	// types is what requests read of each type that a node reports, that is latched, or that
	// the configuration lists.
	types atomic.Pointer[map[string]typeState]
	// failed is set while the latch cannot be written.
	failed atomic.Bool
	// latchedNow is told of types that this server has latched; it must not block. Nil tells
	// nobody.
	latchedNow func(workloadTypes []string)
	// missing is told of each node that joins or changes without the cores of an active
	// type; it must not block. Nil tells nobody.
	missing func(node *v1.Node, workloadType string)
	// changed wakes the writer of the latch.
	changed chan struct{}
	// seen reports whether all nodes and the latch have been seen; nil before follow.
	seen atomic.Pointer[func() bool]
}

func newActivation(settings config.Activation) *activation {
	a := &activation{reporting: map[string]int{}, latched: map[string]bool{}, decided: map[string]bool{}, changed: make(chan struct{}, 1)}
	for _, workloadType := range settings.Types {
		a.decided[workloadType] = settings.Source == config.SourceTypes
	}
	a.undecided.Store(settings.Source == config.SourceInfrastructure)
	a.publish()
	return a
}

// decide sets whether the types are active that the nodes do not decide.
func (a *activation) decide(active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for workloadType := range a.decided {
		a.decided[workloadType] = active
	}
	a.publish()
	a.undecided.Store(false)
}

// synced reports whether all nodes and the latch have been seen. Before that a rule that
// seems to hold may not, and what is latched cannot be taken back.
func (a *activation) synced() bool {
	seen := a.seen.Load()
	return seen != nil && (*seen)()
}

// settled reports whether it is known who decides on the type: what the configuration names
// must have been seen for the types that it decides on, and for no other.
func (a *activation) settled(workloadType string) bool {
	return !a.undecided.Load() || !(*a.types.Load())[workloadType].configured
}

// typeState is what is known of a type.
type typeState struct {
	active bool
	// configured: the nodes have no say in it.
	configured bool
	// known types are the labels of metrics. What a single node says makes none: it may say
	// anything.
	known bool
	// missing is the number of nodes that do not report the type, and unlatched whether the
	// latch should have it and cannot be written; only report knows them.
	missing   int
	unlatched bool
}

// known reports whether the type may be the label of a metric.
func (a *activation) known(workloadType string) bool { return (*a.types.Load())[workloadType].known }

// report returns the state of each known type.
func (a *activation) report() map[string]typeState {
	a.mu.Lock()
	defer a.mu.Unlock()
	states := map[string]typeState{}
	for workloadType, state := range *a.types.Load() {
		if !state.known {
			continue
		}
		state.missing = a.nodes - a.reporting[workloadType]
		state.unlatched = state.active && !state.configured && !a.latched[workloadType] && a.failed.Load()
		states[workloadType] = state
	}
	return states
}

// active reports whether pods may be partitioned as the type.
func (a *activation) active(workloadType string) bool { return (*a.types.Load())[workloadType].active }

// follow subscribes to the nodes and to the namespace with the latch, and tells synced.
func (a *activation) follow(nodes, namespaces cache.SharedIndexInformer) error {
	nodeHandler, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { a.count(nil, asNode(object)) },
		UpdateFunc: func(before, after any) { a.count(asNode(before), asNode(after)) },
		DeleteFunc: func(object any) { a.count(asNode(object), nil) },
	})
	if err != nil {
		return err
	}
	namespaceHandler, err := namespaces.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			namespace, ok := final(object).(*v1.Namespace)
			return ok && namespace.Name == metav1.NamespaceSystem
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { a.readLatch(object) },
			UpdateFunc: func(_, after any) { a.readLatch(after) },
			DeleteFunc: func(any) { a.readLatch(&v1.Namespace{}) },
		},
	})
	if err != nil {
		return err
	}
	seen := func() bool { return nodeHandler.HasSynced() && namespaceHandler.HasSynced() && namespaces.HasSynced() }
	a.seen.Store(&seen)
	return nil
}

// final returns the last known state of a deleted object.
func final(object any) any {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return object
}

func asNode(object any) *v1.Node {
	node, _ := final(object).(*v1.Node)
	return node
}

// count replaces a node by its next state; nil is a node that is not there.
func (a *activation) count(before, after *v1.Node) {
	if before != nil && after != nil && counts(before) == counts(after) && sameCores(before, after) {
		return
	}
	a.mu.Lock()
	a.add(before, -1)
	a.add(after, +1)
	a.publish()
	a.mu.Unlock()
	// Before all nodes are seen a type may seem active that is not.
	if after == nil || !counts(after) || a.missing == nil || !a.synced() {
		return
	}
	for workloadType, state := range *a.types.Load() {
		if cores := after.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))]; state.active && cores.Sign() <= 0 {
			a.missing(after, workloadType)
		}
	}
}

// Labels of nodes that have no pool and never will, so that no type waits for them. A
// kubelet may label its own node: one that does so only loses the pods that it could have
// had.
const (
	// ignoreLabel and ignoreValue are what an administrator writes.
	ignoreLabel = partition.Domain + "/partitioning"
	ignoreValue = "ignore"
	// virtualLabel and virtualValue are those of virtual-kubelet, which calls its nodes Linux.
	virtualLabel = "type"
	virtualValue = "virtual-kubelet"
)

// counts reports whether a type can be active only if the node reports it.
func counts(node *v1.Node) bool {
	system, labelled := node.Labels[v1.LabelOSStable]
	return (!labelled || system == string(v1.Linux)) && node.Labels[ignoreLabel] != ignoreValue && node.Labels[virtualLabel] != virtualValue
}

func (a *activation) add(node *v1.Node, n int) {
	if node == nil || !counts(node) {
		return
	}
	a.nodes += n
	for name, quantity := range node.Status.Capacity {
		if workloadType, ok := partition.TypeOfCores(string(name)); ok && quantity.Sign() > 0 {
			if a.reporting[workloadType] += n; a.reporting[workloadType] == 0 {
				delete(a.reporting, workloadType)
			}
		}
	}
}

// sameCores spares the lock for nearly every node event, which is a heartbeat.
func sameCores(before, after *v1.Node) bool {
	return subset(before, after) && subset(after, before)
}

func subset(of, in *v1.Node) bool {
	for name, quantity := range of.Status.Capacity {
		if _, ok := partition.TypeOfCores(string(name)); ok && quantity.Sign() > 0 {
			if other := in.Status.Capacity[name]; other.Sign() <= 0 {
				return false
			}
		}
	}
	return true
}

func (a *activation) readLatch(object any) {
	namespace, ok := object.(*v1.Namespace)
	if !ok {
		return
	}
	latched := map[string]bool{}
	for _, workloadType := range partition.ParseTypes(namespace.Annotations[partition.EnabledAnnotation]) {
		latched[workloadType] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latched = latched
	a.publish()
}

// publish recomputes what requests read. The caller holds the lock.
func (a *activation) publish() {
	types := make(map[string]typeState, len(a.latched)+len(a.reporting)+len(a.decided))
	for workloadType, reporting := range a.reporting {
		// There is a node if one reports.
		active := reporting == a.nodes
		types[workloadType] = typeState{active: active, known: active || reporting > 1}
	}
	for workloadType := range a.latched {
		types[workloadType] = typeState{active: true, known: true}
	}
	for workloadType, active := range a.decided {
		types[workloadType] = typeState{active: active, known: true, configured: true}
	}
	a.types.Store(&types)
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// unlatched returns the active types that the latch does not have yet.
func (a *activation) unlatched() (missing []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for workloadType, state := range *a.types.Load() {
		if state.active && !state.configured && !a.latched[workloadType] {
			missing = append(missing, workloadType)
		}
	}
	slices.Sort(missing)
	return missing
}

// run writes the latch whenever a type became active, and tries again where that failed:
// kube-system may not exist yet, or a webhook that guards it may be away. write returns
// those types that it added.
func (a *activation) run(ctx context.Context, write func(context.Context, []string) ([]string, error)) {
	const (
		untilSynced  = 100 * time.Millisecond
		firstRetry   = time.Second
		longestRetry = time.Minute
	)
	var again <-chan time.Time
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-again:
		}
		again = nil
		if !a.synced() {
			again = time.After(untilSynced)
			continue
		}
		missing := a.unlatched()
		if len(missing) == 0 {
			a.failed.Store(false)
			continue
		}
		added, err := write(ctx, missing)
		a.failed.Store(err != nil)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Workload types are active and could not be latched: they end to be active when a node without them joins; trying again", "workloadTypes", missing,
				"namespace", metav1.NamespaceSystem, "annotation", partition.EnabledAnnotation, "after", retry)
			again = time.After(retry)
			retry = min(2*retry, longestRetry)
			continue
		}
		retry = firstRetry
		klog.FromContext(ctx).Info("Workload types became active", "workloadTypes", missing)
		if len(added) > 0 && a.latchedNow != nil {
			a.latchedNow(added)
		}
	}
}

// latch adds types to the enabled annotation, and returns those that were not there. It
// reads the annotation first and writes on condition that it is still that, so that no
// replica undoes what another has latched.
func latch(ctx context.Context, client kubernetes.Interface, workloadTypes []string) (added []string, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err
		}
		latched := partition.ParseTypes(namespace.Annotations[partition.EnabledAnnotation])
		added = slices.DeleteFunc(slices.Clone(workloadTypes), func(workloadType string) bool { return slices.Contains(latched, workloadType) })
		if len(added) == 0 {
			return nil
		}
		types := slices.Concat(latched, added)
		slices.Sort(types)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": namespace.ResourceVersion,
			"annotations":     map[string]string{partition.EnabledAnnotation: strings.Join(slices.Compact(types), ",")},
		}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, apitypes.MergePatchType, patch, metav1.PatchOptions{FieldManager: "workload-partitioning"})
		return err
	})
	return added, err
}
