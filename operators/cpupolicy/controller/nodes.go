// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/companion/metrics"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/drain"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/rollout"
)

// nodesReconciler carries out what is asked of nodes. One look is about all of them, since what
// happens on one decides what may happen on another.
type nodesReconciler struct {
	client     client.Client // its reads are of the cache
	nodes      nodeclient.Client
	namespace  string
	situations situations
	observer   observer
	rollout    rollout.Rollout
	runner     runner
	store      reportedNodes
	recorder   events.EventRecorder
	config     Settings
	now        func() time.Time
	// retries is how long to wait after each look in a row that was not complete.
	retries workqueue.TypedRateLimiter[reconcile.Request]
	// unobserved is when the Job of a node has last failed that nobody could look at. It is no loss if the
	// process ends.
	unobserved map[types.UID]time.Time
	// foreign are the nodes to which another manager writes, as an Event has said.
	foreign map[types.UID]bool
	// waits is for what requests wait, by node, as an Event has said.
	waits map[types.UID]string
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,verbs=get;list;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=partition-control-plane,verbs=get;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,verbs=create

func addNodesReconciler(mgr manager.Manager, namespace string, settings Settings) error {
	r, err := newNodesReconciler(mgr, namespace, settings)
	if err != nil {
		return err
	}
	one := oneRequest("nodes")
	return builder.ControllerManagedBy(mgr).Named("cpupolicy-nodes").
		Watches(&corev1.Node{}, one, builder.WithPredicates(nodeChanges)).
		Watches(&batchv1.Job{}, one).
		Watches(&v1alpha1.CPUManagerPolicy{}, one).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

func newNodesReconciler(mgr manager.Manager, namespace string, settings Settings) (*nodesReconciler, error) {
	clientset, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	nodes := nodeclient.Client{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient()}
	recorder := companion.Recorder(mgr, Name)
	jobs := jobsIn(mgr.GetAPIReader(), mgr.GetClient(), settings.AgentNamespace)
	store := reportedNodes{
		Nodes:    rollout.Nodes{Client: nodes, Namespace: namespace, Read: readOperation, Write: writeOperation},
		recorder: recorder,
	}
	runner := runner{nodes: nodes, jobs: jobs, labels: labels{nodes}, drainer: drain.Drainer{Client: clientset, Namespace: namespace}, config: settings, now: clock}
	r := &nodesReconciler{
		client:     mgr.GetClient(),
		nodes:      nodes,
		namespace:  namespace,
		situations: situations{reader: mgr.GetAPIReader(), others: mgr.GetClient()},
		observer:   observer{nodes: nodes, jobs: jobs, labels: labels{nodes}, config: settings, now: clock, looks: map[string]bootLook{}},
		store:      store,
		recorder:   recorder,
		retries:    workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](2*time.Second, time.Minute),
		config:     settings,
		now:        clock,
	}
	runner.drained = r.afterDrain
	r.runner, r.rollout = runner, rollout.Rollout{Store: store, Runner: runner}
	return r, nil
}

// oneRequest makes the same request of every event: a look is about all objects.
func oneRequest(name string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
}

// nodeChanges lets pass what may make a difference, and no heartbeat.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return !maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable || before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		nodegroup.IsReady(before) != nodegroup.IsReady(after)
}}

// stripNode drops what nobody here reads from the cache.
func stripNode(node *corev1.Node) {
	node.Status.Images, node.Status.VolumesAttached, node.Status.VolumesInUse, node.Status.Addresses = nil, nil, nil, nil
}

// poll is how often a look comes again while something is under way that may change unseen: pods
// that go, a label.
const poll = 5 * time.Second

// idlePeriod is how often it comes again otherwise: neither an observation that grows old nor a lock that a person takes away
// makes an event.
const idlePeriod = 30 * time.Second

// Reconcile implements reconcile.Reconciler.
func (r *nodesReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	look := rollout.Look{Now: r.now(), Owner: Name, TimeLimit: r.config.OperationTimeout.Duration, Holders: map[string]nodegroup.Holders{}}
	var err error
	if look.Holders, err = r.holders(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var cached corev1.NodeList // nobody may change them
	if err := r.client.List(ctx, &cached, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	var groups v1alpha1.CPUManagerPolicyList
	if err := r.client.List(ctx, &groups); err != nil {
		return reconcile.Result{}, err
	}
	// An error of one node must not keep the others waiting, so none is returned.
	var errs []error
	busy := false
	var idle []*corev1.Node
	locks, holding := newGroupLocks(groups.Items, cached.Items), map[string]bool{}
	for _, holders := range look.Holders {
		for _, h := range holders {
			holding[h.Node] = true
		}
	}
	r.sayForeign(cached.Items)
	for i := range cached.Items {
		node := &cached.Items[i]
		if !r.concerns(node) && !holding[node.Name] {
			idle = append(idle, node)
			continue
		}
		underWay, err := r.lookAt(ctx, &look, node.Name, locks)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node.Name, err))
		}
		busy = busy || underWay
	}
	again, err := r.rollout.Step(ctx, look)
	errs = append(errs, err, r.keepObserved(ctx, idle))
	after := idlePeriod
	if busy {
		after = poll
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err, "A look at the nodes is not complete")
		after = r.retries.When(request)
	} else {
		r.retries.Forget(request)
	}
	if !again.IsZero() {
		after = min(after, max(time.Second, again.Sub(r.now())))
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// concerns reports whether something is asked of a node, or acts on it.
func (r *nodesReconciler) concerns(node *corev1.Node) bool {
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	if err != nil {
		r.recorder.Eventf(node, nil, corev1.EventTypeWarning, "CPUPolicyUnreadable", "ReadStatus", "%s", err.Error())
	} else if status.UnderWay() {
		return true
	}
	claim, err := nodegroup.ClaimOf(node)
	if err != nil {
		r.sayClaimUnreadable(node, err)
		return false
	}
	return claim.Owner == Name || node.Annotations[CordonedAnnotation] != ""
}

func (r *nodesReconciler) sayClaimUnreadable(node *corev1.Node, err error) {
	r.recorder.Eventf(node, nil, corev1.EventTypeWarning, "ClaimUnreadable", "ReadClaim", "%s", err.Error())
}

// mostObserved is how many nodes are observed at once that nobody asks for, and mostObservedAgain how many if they
// were in this boot: that can wait, and after an outage all nodes become Ready at once.
const mostObserved, mostObservedAgain = 20, 2

// keepObserved has nodes observed that are due, a few at a time, and last those that could not be.
func (r *nodesReconciler) keepObserved(ctx context.Context, nodes []*corev1.Node) error {
	type due struct {
		node   *corev1.Node
		reason string
		was    time.Time
	}
	var all []due
	failed := r.unobserved
	r.unobserved = map[types.UID]time.Time{}
	for _, node := range nodes {
		if reason, was, is := r.observer.due(node); is {
			all = append(all, due{node, reason, was})
			if at, has := failed[node.UID]; has {
				r.unobserved[node.UID] = at
			}
		}
	}
	// The cache has no order, and each look must come to the same nodes until they are observed.
	slices.SortFunc(all, func(a, b due) int {
		return cmp.Or(r.unobserved[a.node.UID].Compare(r.unobserved[b.node.UID]), a.was.Compare(b.was), strings.Compare(a.node.Name, b.node.Name))
	})
	var errs []error
	underWay := 0
	for _, d := range all {
		if underWay >= mostObserved {
			break // the end of a Job is an event
		}
		if !d.was.IsZero() && underWay >= mostObservedAgain {
			continue
		}
		l, err := r.observer.look(ctx, d.node.DeepCopy(), d.reason) // it writes into the node what was seen
		if err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("node %s: %w", d.node.Name, err))
		}
		if l.problem != "" {
			r.recorder.Eventf(d.node, nil, corev1.EventTypeWarning, nodestatus.NotObserved, "ObserveNode", "%s", l.problem)
		}
		switch {
		case l.done:
			delete(r.unobserved, d.node.UID)
		case l.ended.IsZero():
			underWay++
		default:
			r.unobserved[d.node.UID] = l.ended
		}
	}
	return errors.Join(errs...)
}

// lookAt adds a node to a look: it takes a request up, has the node observed, and says what
// prevents it. It reports whether something is under way.
func (r *nodesReconciler) lookAt(ctx context.Context, look *rollout.Look, name string, locks *groupLocks) (busy bool, err error) {
	// What decides comes from the API.
	var node corev1.Node
	if err := r.nodes.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	refused, err := r.takeUp(ctx, &node, look.Holders, locks)
	if err != nil {
		return true, err
	}
	if err := r.uncordonForgotten(ctx, &node); err != nil {
		return true, err
	}
	state, err := r.store.StateOf(&node)
	if err != nil { // nobody acts on the node until somebody has repaired its claim, which makes an event
		r.sayClaimUnreadable(&node, err)
		return false, nil
	}
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	if err != nil {
		status = nodestatus.Status{}
	}
	n := rollout.Node{Name: name, State: state, DespiteCordon: status.Group == ""}
	if cpupolicy.IsControlPlane(&node) {
		n.Locks = append(n.Locks, rollout.Lock{Name: nodegroup.ControlPlaneLock.String(), Max: 1})
	}
	group, of := locks.of(status.Group)
	if group != nil {
		n.Locks, n.Waits = append(n.Locks, of.lock), of.waitsFor(name)
		n.Refused = noLongerWanted(group, locks.members()[group.Name], name, status)
	} else if status.Group != "" {
		n.Refused = fmt.Sprintf("the CPUManagerPolicy %s is gone", status.Group)
	}
	if status.State == nodestatus.Requested && status.ID == "" {
		n.Waits = leftAlone(&node)
	}
	n.Refused = cmp.Or(n.Refused, refused)
	if state.Operation.Phase == rollout.Requested && n.Refused == "" && n.Waits == "" {
		if err := r.judge(ctx, &node, status, group, &n); err != nil {
			return true, err
		}
	}
	if state.Operation.Phase != rollout.Running { // afterDrain says it of what has begun
		r.sayWaits(&node, waitsFor(status, n))
	}
	look.Nodes = append(look.Nodes, n)
	return state.Operation.ID != "" && !state.Operation.Phase.Ended() || state.Claim.Owner == Name, nil
}

// beingObserved is for what a request waits for some seconds.
const beingObserved = "is being observed"

// paused is for what a request on a paused node waits, with or without an id.
const paused = "the node is paused: it has the annotation " + nodegroup.PausedAnnotation

// waitsFor returns for what a request waits; empty if it does not, or if nothing is requested.
func waitsFor(status nodestatus.Status, n rollout.Node) string {
	switch {
	case status.State == nodestatus.Requested && status.ID == "":
		return n.Waits
	case n.Operation.Phase != rollout.Requested || n.Refused != "":
		return ""
	case n.Waits != "":
		return n.Waits
	}
	if err := (nodegroup.Claim{Owner: Name, Operation: status.ID}).Check(n.Name, n.Claim, n.Cordoned, n.DespiteCordon); err != nil {
		return err.Error()
	}
	return ""
}

// sayForeign counts the nodes to which another manager writes, and says so once in an Event on each.
func (r *nodesReconciler) sayForeign(nodes []corev1.Node) {
	known := r.foreign
	r.foreign = map[types.UID]bool{}
	for i := range nodes {
		node := &nodes[i]
		found := harvester.Wrote(node, nodeKind)
		if found == nil {
			continue
		}
		if r.foreign[node.UID] = true; !known[node.UID] {
			r.recorder.Eventf(node, nil, corev1.EventTypeWarning, "ForeignManager", "LeaveAlone", "Nothing begins on this node: %s", found.Error())
		}
	}
	metrics.ForeignObjects.WithLabelValues(Name, harvester.Name).Set(float64(len(r.foreign)))
}

// sayWaits says in an Event for what a request waits, each time that this is something else.
func (r *nodesReconciler) sayWaits(node *corev1.Node, waits string) {
	switch {
	case waits == "":
		delete(r.waits, node.UID)
	case waits != beingObserved && r.waits[node.UID] != waits:
		if r.waits == nil {
			r.waits = map[types.UID]string{}
		}
		r.waits[node.UID] = waits
		r.recorder.Eventf(node, nil, corev1.EventTypeNormal, "CPUPolicyWaits", "SwitchPolicy", "The request waits: %s", waits)
	}
}

// judge says what keeps a request from being carried out. It has the node observed first. The group
// is nil if a person asks.
func (r *nodesReconciler) judge(ctx context.Context, node *corev1.Node, status nodestatus.Status, group *v1alpha1.CPUManagerPolicy, n *rollout.Node) error {
	if n.Waits = leftAlone(node); n.Waits != "" {
		return nil
	}
	if n.Claim != (nodegroup.Claim{}) && n.Claim.Operation != status.ID || n.Cordoned && !n.DespiteCordon {
		return nil // it waits for that, and the owner of the claim may be changing what would be observed
	}
	done, problem, err := r.observer.observe(ctx, node, status.ID)
	switch {
	case err != nil:
		return err
	case problem != "" && status.Group != "":
		// Nobody would ask again, and the next Job may see more.
		n.Waits = problem
		return nil
	case problem != "":
		n.Refused = problem
		return nil
	case !done:
		n.Waits = beingObserved
		return nil
	}
	situation, err := r.situations.of(ctx, node, status.Policy)
	if err != nil {
		return err
	}
	if group != nil && group.Spec.Cordon && group.Spec.Drain != nil {
		if n.Refused, err = r.withoutDrained(ctx, &situation); err != nil || n.Refused != "" {
			return err
		}
	}
	n.Waits, n.Refused = inTheWay(status, situation)
	return nil
}

// inTheWay returns for what a request waits, and why it is refused; both are empty if nothing prevents it.
func inTheWay(status nodestatus.Status, situation cpupolicy.Situation) (waits, refused string) {
	var reasons []string
	for _, f := range cpupolicy.Preconditions(cpupolicy.Request{ID: status.ID, Policy: status.Policy, AllowEvicted: status.AllowEvicted}, situation) {
		switch {
		case f.Warning:
		case status.Group != "" && (f.Code == cpupolicy.ControlPlaneUnderWay || f.Code == cpupolicy.ControlPlaneNotReady):
			waits = f.String() // nobody would ask again
		default:
			reasons = append(reasons, f.String())
		}
	}
	return waits, strings.Join(reasons, "\n")
}

// noLongerWanted returns why a group does not want any more what it has asked of a node; empty if it does.
func noLongerWanted(group *v1alpha1.CPUManagerPolicy, members []*corev1.Node, name string, status nodestatus.Status) string {
	switch {
	case cpupolicy.Policy(group.Spec.Policy) != status.Policy:
		return fmt.Sprintf("the CPUManagerPolicy %s asks for the policy %s now", group.Name, group.Spec.Policy)
	case !slices.ContainsFunc(members, func(member *corev1.Node) bool { return member.Name == name }):
		return fmt.Sprintf("the CPUManagerPolicy %s does not have this node any longer, or another one has it as well", group.Name)
	}
	return ""
}

// afterDrain looks again, since a drain may have taken most of an hour: at the control plane, at the other nodes
// of the group, and at what the restarted kubelet would reject. Of what the agent said only the pods have changed.
func (r *nodesReconciler) afterDrain(ctx context.Context, node *corev1.Node, status nodestatus.Status, group *v1alpha1.CPUManagerPolicy) (waits, refused string, err error) {
	var nodes corev1.NodeList // nobody may change them
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return "", "", err
	}
	situation, err := r.situations.of(ctx, node, status.Policy)
	if err != nil {
		return "", "", err
	}
	situation.Refused = situation.Refused.Without(operation.ContainersHoldCPUs)
	var groups v1alpha1.CPUManagerPolicyList
	if err := r.client.List(ctx, &groups); err != nil {
		return "", "", err
	}
	all, _, _ := membersOf(groups.Items, nodes.Items)
	members := all[group.Name]
	if refused = noLongerWanted(group, members, node.Name, status); refused != "" {
		return "", refused, nil
	}
	if waits, refused = inTheWay(status, situation); waits == "" && refused == "" {
		// Whether the group is paused is of no account: the operation has begun.
		waits = newGroupLock(group, members).crowded(node.Name)
	}
	if waits != "" {
		r.sayWaits(node, waits)
	}
	return waits, refused, nil
}

// withoutDrained takes out of a situation what a drain removes before the switch: pods, and the VMs
// whose pods these are. Then the agent's word about them does not count either; it looks again at the
// switch. What else it refuses, a drain does not change. It returns why the node cannot be drained.
func (r *nodesReconciler) withoutDrained(ctx context.Context, situation *cpupolicy.Situation) (refused string, err error) {
	left, err := r.runner.drainer.Left(ctx, situation.Node.Name)
	var undrainable *drain.UndrainableError
	if errors.As(err, &undrainable) {
		return err.Error(), nil
	}
	if err != nil || len(left) == 0 {
		return "", err
	}
	goes := map[types.UID]bool{}
	for _, pod := range left {
		goes[pod.UID] = true
		if vmi := pod.Labels[virtv1.CreatedByLabel]; vmi != "" {
			goes[types.UID(vmi)] = true
		}
	}
	situation.Pods = slices.DeleteFunc(situation.Pods, func(pod corev1.Pod) bool { return goes[pod.UID] })
	situation.VMs = slices.DeleteFunc(situation.VMs, func(vmi virtv1.VirtualMachineInstance) bool { return goes[vmi.UID] })
	situation.Refused = situation.Refused.Without(operation.ContainersHoldCPUs)
	return "", nil
}

// takeUp gives a request an id, unless the node is left alone. From then on only the controller writes the annotation.
// For a node of the control plane it takes the lock first, so that of two requests one wins, and the next one is
// refused at once; it returns why this one has not. What claims to run and has no id was never begun by this
// controller.
func (r *nodesReconciler) takeUp(ctx context.Context, node *corev1.Node, holders map[string]nodegroup.Holders, locks *groupLocks) (refused string, err error) {
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	if err != nil || !status.UnderWay() || status.ID != "" || leftAlone(node) != "" {
		return "", nil
	}
	id := fmt.Sprintf("%s-%s", status.Policy, rand.String(12))
	if status.State == nodestatus.Requested && cpupolicy.IsControlPlane(node) {
		if refused, err = r.takeLock(ctx, node, id, holders); err != nil {
			return "", err
		}
	}
	if err := r.nodes.UpdateNode(ctx, node.Name, func(live *corev1.Node) error {
		status, _, err = nodestatus.ReadStatus(live.Annotations)
		if err != nil || !status.UnderWay() || status.ID != "" {
			return err
		}
		if status.State == nodestatus.Requested {
			group := locks.groupFor(live.Name, status.Policy)
			status.ID, status.GroupUID, status.Generation = id, group.UID, group.Generation
		} else {
			status.State, status.Message = nodestatus.Failed, "it has no id, and nobody carries it out"
		}
		status.Since = r.now()
		live.Annotations[nodestatus.StatusAnnotation] = status.String()
		*node = *live
		return nil
	}); err != nil {
		return "", err
	}
	klog.FromContext(ctx).Info("Took a request up", "node", node.Name, "operation", status.ID)
	return refused, nil
}

// takeLock takes the lock of the control plane for an operation that its node does not show yet. It returns who else
// has it. What an earlier call has left for this node is replaced; what the claim on it still needs is not.
func (r *nodesReconciler) takeLock(ctx context.Context, node *corev1.Node, id string, holders map[string]nodegroup.Holders) (refused string, err error) {
	claim, err := nodegroup.ClaimOf(node)
	if err != nil {
		return err.Error(), nil
	}
	err = r.nodes.UpdateHolders(ctx, nodegroup.ControlPlaneLock, func(h nodegroup.Holders) (nodegroup.Holders, error) {
		h = slices.DeleteFunc(slices.Clone(h), func(of nodegroup.Holder) bool {
			return of.Owner == Name && of.Node == node.Name && of.Operation != claim.Operation
		})
		h, err := h.Add(nodegroup.Holder{Owner: Name, Operation: id, Node: node.Name, Since: r.now()}, 1)
		if err == nil {
			holders[nodegroup.ControlPlaneLock.String()] = h
		}
		return h, err
	})
	var full *nodegroup.FullError
	if errors.As(err, &full) {
		return "the lock of the control plane is " + full.Error(), nil
	}
	return "", err
}

// uncordonForgotten removes a cordon whose operation is not the node's any more, or has ended: a
// controller that was stopped for minutes may have put it there, or a person has released the claim. If
// the mark of such a cordon stayed, it would undo a later one of somebody else.
func (r *nodesReconciler) uncordonForgotten(ctx context.Context, node *corev1.Node) error {
	id := node.Annotations[CordonedAnnotation]
	// One that has ended keeps its claim until it has uncordoned the node, unless somebody took that away.
	if op := readOperation(node); id == "" || op.ID == id && !op.Phase.Ended() {
		return nil
	}
	if claim, err := nodegroup.ClaimOf(node); err != nil || claim.Operation == id {
		return nil
	}
	return r.runner.uncordon(ctx, node.Name, id)
}

// holders returns who holds which lock. One that cannot be read is held by nobody who is known, and nobody can take
// it; an Event says so. What is no holder is taken out.
func (r *nodesReconciler) holders(ctx context.Context) (map[string]nodegroup.Holders, error) {
	var leases coordinationv1.LeaseList
	if err := r.nodes.Reader.List(ctx, &leases, client.InNamespace(r.namespace)); err != nil {
		return nil, err
	}
	var shared coordinationv1.Lease
	if err := r.nodes.Reader.Get(ctx, nodegroup.ControlPlaneLock, &shared); err == nil {
		leases.Items = append(leases.Items, shared)
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	holders := map[string]nodegroup.Holders{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		h, err := nodegroup.HoldersOf(lease)
		if err != nil {
			r.recorder.Eventf(lease, nil, corev1.EventTypeWarning, "LockUnreadable", "ReadLock", "%s", err.Error())
			continue
		}
		if value := lease.Annotations[nodegroup.HoldersAnnotation]; value != "" && value != h.String() {
			klog.FromContext(ctx).Info("Repairing a lock", "lease", klog.KObj(lease), "was", untrusted.Abbreviate(value, 1000), "is", h.String())
			if err := r.nodes.UpdateHolders(ctx, client.ObjectKeyFromObject(lease), func(h nodegroup.Holders) (nodegroup.Holders, error) { return h, nil }); err != nil {
				return nil, err
			}
		}
		name := lease.Name
		if key := client.ObjectKeyFromObject(lease); key == nodegroup.ControlPlaneLock {
			name = key.String()
		}
		if len(h) > 0 {
			holders[name] = h
		}
	}
	return holders, nil
}
