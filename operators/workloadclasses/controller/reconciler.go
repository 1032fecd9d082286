// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// reconciler carries out what the rules decide about the nodes of all classes. It remembers nothing:
// all of it stands on nodes and Machines.
type reconciler struct {
	rules    *rules
	cache    client.Reader // Nodes, and the pods of classes
	live     client.Reader
	writer   client.Client
	nodes    nodeclient.Client
	machines *machines // nil without
	policy   workloadclasses.Policy
	timing   workloadclasses.Timing
	recorder events.EventRecorder
	now      func() time.Time
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

func addReconciler(mgr manager.Manager, rules *rules, settings Settings) error {
	r := &reconciler{
		rules: rules, cache: mgr.GetClient(), live: mgr.GetAPIReader(), writer: mgr.GetClient(),
		nodes:  nodeclient.Client{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient()},
		policy: settings.policy(), timing: settings.timing(),
		recorder: companion.Recorder(mgr, Name),
		now:      time.Now,
	}
	if api := machineAPIs[settings.Machines]; api != nil {
		r.machines = &machines{machineAPI: api, reader: mgr.GetAPIReader(), writer: mgr.GetClient(), namespace: settings.MachineNamespace}
	}
	// A look is about all classes, and a wave is of many pods.
	soon := companion.Later[client.Object](all, time.Second)
	return builder.ControllerManagedBy(mgr).Named(Name).
		Watches(&corev1.Node{}, soon, builder.WithPredicates(nodeChanges)).
		Watches(&corev1.Pod{}, soon, builder.WithPredicates(waits)).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)}).
		Complete(r)
}

var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// nodeChanges leaves out what changes nothing before the next period.
var nodeChanges = predicate.Funcs{
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.Annotations[workloadclasses.OperationAnnotation] != after.Annotations[workloadclasses.OperationAnnotation] ||
			workloadclasses.Held(before) != workloadclasses.Held(after)
	},
}

// waits is for pods that have just become Unschedulable.
var waits = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return workloadclasses.Unschedulable(e.Object.(*corev1.Pod), time.Now())
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !workloadclasses.Unschedulable(e.ObjectOld.(*corev1.Pod), time.Now()) && workloadclasses.Unschedulable(e.ObjectNew.(*corev1.Pod), time.Now())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// look is what one reconciliation has read.
type look struct {
	config *workloadclasses.Config
	now    time.Time
	nodes  []corev1.Node
	fleet  *fleet
	// byNode are the pods of classes on a node, and waiting those of a class that are Unschedulable: one of those that
	// are alike, since a wave is of hundreds.
	byNode  map[string][]corev1.Pod
	waiting map[string][]corev1.Pod
	// turns has the operation that changes a set.
	turns map[string]string
	// kept counts the nodes of the class that is looked at which are empty and stay.
	kept map[workloadclasses.ObstacleCode]float64
	// wrote says that a step was done, and another may follow at once.
	wrote bool
	// underWay says that an operation waits for time to pass.
	underWay bool
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	l := &look{config: r.rules.current.Load(), now: r.now(), byNode: map[string][]corev1.Pod{}, waiting: map[string][]corev1.Pod{}, turns: map[string]string{}}
	var nodes corev1.NodeList
	if err := r.cache.List(ctx, &nodes); err != nil {
		return reconcile.Result{}, err
	}
	l.nodes = nodes.Items
	var pods corev1.PodList
	if err := r.cache.List(ctx, &pods, client.HasLabels{workloadclasses.ClassLabel}); err != nil {
		return reconcile.Result{}, err
	}
	alike := map[string]bool{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" {
			l.byNode[pod.Spec.NodeName] = append(l.byNode[pod.Spec.NodeName], pod)
		} else if class := pod.Labels[workloadclasses.ClassLabel]; workloadclasses.Unschedulable(&pod, l.now) {
			if key := class + " " + workloadclasses.Alike(&pod); !alike[key] {
				alike[key] = true
				l.waiting[class] = append(l.waiting[class], pod)
			}
		}
	}
	// Operations are read from the API, and machines after them.
	var errs []error
	for i := range l.nodes {
		if _, ok := l.nodes[i].Annotations[workloadclasses.OperationAnnotation]; !ok {
			continue
		}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(&l.nodes[i]), &l.nodes[i]); apierrors.IsNotFound(err) {
			l.nodes[i].DeletionTimestamp = &metav1.Time{Time: l.now} // held below
		} else if err != nil {
			return reconcile.Result{}, err
		}
	}
	if r.machines != nil {
		var err error
		if l.fleet, err = r.machines.look(ctx); err != nil {
			return reconcile.Result{}, err
		}
		for i := range l.nodes {
			// A kubelet can write any operation to its own Node.
			o, err := workloadclasses.OperationOf(&l.nodes[i])
			if machine := l.fleet.byNode[l.nodes[i].Name]; err == nil && o.Phase == workloadclasses.Removing && machine != nil && machine.UID == o.UID && machine.Set == o.Set {
				l.turns[o.Set] = o.ID
			}
		}
	}
	metrics.Leaving.Reset()
	for i := range l.config.Classes {
		if err := r.class(ctx, l, &l.config.Classes[i]); err != nil {
			errs = append(errs, fmt.Errorf("class %s: %w", l.config.Classes[i].Name, err))
		}
	}
	errs = append(errs, r.leftovers(ctx, l))
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case l.wrote:
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	case l.underWay:
		return reconcile.Result{RequeueAfter: min(5*time.Second, r.policy.Period)}, nil
	}
	return reconcile.Result{RequeueAfter: r.policy.Period}, nil
}

// class evaluates one class, and does at most one write for each of its nodes.
func (r *reconciler) class(ctx context.Context, l *look, class *workloadclasses.Class) error {
	policy := r.policy
	var views []workloadclasses.NodeView
	var names []string
	nodes := map[string]*corev1.Node{}
	for i := range l.nodes {
		node := &l.nodes[i]
		if of := l.config.ClassOfNode(node.Labels); of == nil || of.Name != class.Name {
			continue
		}
		view, err := r.view(ctx, l, node, l.waiting[class.Name])
		if err != nil {
			return err
		}
		views, names = append(views, view), append(names, node.Name)
		nodes[node.Name] = node
	}
	if l.fleet != nil {
		policy.Minimum = l.fleet.minimum(names)
	}
	l.kept = map[workloadclasses.ObstacleCode]float64{}
	evaluation := workloadclasses.Evaluate(views, len(l.waiting[class.Name]) > 0, l.now, policy)
	count := map[string]float64{string(workloadclasses.None): 0, string(workloadclasses.PreferNoSchedule): 0, string(workloadclasses.NoSchedule): 0, "Leaving": 0}
	var errs []error
	for _, d := range evaluation.Decisions {
		node := nodes[d.Name]
		view := views[slices.IndexFunc(views, func(v workloadclasses.NodeView) bool { return v.Name == d.Name })]
		if view.Leaving {
			count["Leaving"]++
			errs = append(errs, r.step(ctx, l, class, node, view.Demanded))
			continue
		}
		count[string(d.State)]++
		switch {
		case d.GiveBack:
			errs = append(errs, r.begin(ctx, l, class, node))
		case view.Held == "" || workloadclasses.HeldByMark(node):
			errs = append(errs, r.write(ctx, l, class, d, evaluation.Precluded == d.Name))
		}
	}
	for state, n := range count {
		metrics.Nodes.WithLabelValues(class.Name, state).Set(n)
	}
	for _, code := range workloadclasses.ObstacleCodes {
		metrics.Kept.WithLabelValues(class.Name, string(code)).Set(l.kept[code])
	}
	return errors.Join(errs...)
}

// view is what the rules see of a node.
func (r *reconciler) view(ctx context.Context, l *look, node *corev1.Node, waiting []corev1.Pod) (workloadclasses.NodeView, error) {
	_, leaving := node.Annotations[workloadclasses.OperationAnnotation]
	record, _ := workloadclasses.RecordOf(node)
	view := workloadclasses.NodeView{Name: node.Name, Created: node.CreationTimestamp.Time, Record: record, Held: workloadclasses.Held(node), Leaving: leaving}
	there := l.byNode[node.Name]
	for i := range there {
		if workloadclasses.Holds(&there[i], l.now) {
			view.Pods++
		}
	}
	// The cache has no pods but those of classes, and may be late: an empty node is looked at.
	if view.Pods == 0 || len(waiting) > 0 && (record.State == workloadclasses.PreferNoSchedule || record.State == workloadclasses.NoSchedule) {
		var err error
		if there, err = r.podsOn(ctx, node.Name); err != nil {
			return view, err
		}
		view.Pods = 0
		for i := range there {
			if workloadclasses.Holds(&there[i], l.now) {
				view.Pods++
			}
		}
	}
	view.Used = workloadclasses.UsedCPU(there)
	view.Free = max(0, node.Status.Allocatable.Cpu().MilliValue()-view.Used)
	view.Demanded = slices.ContainsFunc(waiting[:min(len(waiting), 100)], func(pod corev1.Pod) bool { return workloadclasses.Fits(&pod, node, there) })
	return view, nil
}

// podsOn lists the pods of a node from the API.
func (r *reconciler) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}

// write brings a decision onto a node.
func (r *reconciler) write(ctx context.Context, l *look, class *workloadclasses.Class, d workloadclasses.Decision, precluded bool) error {
	// Most decisions change nothing, and the cached node shows it.
	if i := slices.IndexFunc(l.nodes, func(n corev1.Node) bool { return n.Name == d.Name }); i >= 0 {
		after := l.nodes[i].DeepCopy()
		workloadclasses.Write(after, d, precluded, class.Name, l.now, r.policy)
		if sameNode(&l.nodes[i], after) {
			return nil
		}
	}
	var before, after workloadclasses.State
	err := r.nodes.UpdateNode(ctx, d.Name, func(node *corev1.Node) error {
		if _, ok := node.Annotations[workloadclasses.OperationAnnotation]; ok || workloadclasses.Held(node) != "" && !workloadclasses.HeldByMark(node) {
			return nil
		}
		record, _ := workloadclasses.RecordOf(node)
		before, after = record.State, d.State
		workloadclasses.Write(node, d, precluded, class.Name, l.now, r.policy)
		return nil
	})
	if client.IgnoreNotFound(err) == nil && cmp.Or(before, workloadclasses.None) != after && after != "" {
		klog.FromContext(ctx).Info("Changed how new pods avoid a node", "class", class.Name, "node", d.Name, "from", cmp.Or(before, workloadclasses.None), "to", after)
	}
	return client.IgnoreNotFound(err)
}

func sameNode(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && slices.Equal(a.Spec.Taints, b.Spec.Taints) && maps.Equal(a.Annotations, b.Annotations)
}

// situation reads what a step is decided upon. The pods come last.
func (r *reconciler) situation(ctx context.Context, l *look, node *corev1.Node, o workloadclasses.Operation, demanded bool) (workloadclasses.Situation, error) {
	record, _ := workloadclasses.RecordOf(node)
	s := workloadclasses.Situation{Cordoned: record.State == workloadclasses.NoSchedule, Demanded: demanded}
	if !nodegroup.Paused(node) { // what has begun ends
		s.Held = workloadclasses.Held(node)
	}
	if claim, err := nodegroup.ClaimOf(node); err == nil && claim.Owner != Name && o.ID != "" {
		s.Held = "its claim was released"
	}
	if l.fleet != nil {
		s.Machine = l.fleet.byNode[node.Name]
		s.Set = l.fleet.set(s.Machine)
	}
	if s.Set != nil {
		turn := l.turns[s.Set.Name]
		s.Turn = turn == "" || turn == o.ID
	}
	pods, err := r.podsOn(ctx, node.Name)
	if err != nil {
		return s, err
	}
	for i := range pods {
		pod := &pods[i]
		if workloadclasses.Holds(pod, l.now) && s.Pod == "" {
			s.Pod = pod.Namespace + "/" + pod.Name
		}
		if leaves(pod) {
			s.Leave++
		}
	}
	return s, nil
}

// leaves reports whether a pod has to leave a node that is given back.
func leaves(pod *corev1.Pod) bool {
	return workloadclasses.OfDaemonSet(pod) && !workloadclasses.Tolerates(pod) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// begin claims a node that has been empty for a period, if nothing keeps it.
func (r *reconciler) begin(ctx context.Context, l *look, class *workloadclasses.Class, node *corev1.Node) error {
	o := workloadclasses.Operation{ID: "give-back-" + rand.String(10), Phase: workloadclasses.Draining, Since: l.now}
	s, err := r.situation(ctx, l, node, workloadclasses.Operation{}, false)
	if err != nil {
		return err
	}
	if obstacle := s.Obstacle(o); obstacle.Code != "" {
		// The node stays cordoned: it is still the first to go.
		l.kept[obstacle.Code]++
		r.event(node, corev1.EventTypeNormal, "NotGivenBack", "Wait", "node %s is empty and stays: %s", node.Name, obstacle.Why)
		return r.write(ctx, l, class, workloadclasses.Decision{Name: node.Name, State: workloadclasses.NoSchedule}, node.Annotations[workloadclasses.PrecludeAnnotation] != "")
	}
	began := false
	err = r.nodes.UpdateNode(ctx, node.Name, func(node *corev1.Node) error {
		record, err := workloadclasses.RecordOf(node)
		if err != nil {
			return err
		}
		_, leaving := node.Annotations[workloadclasses.OperationAnnotation]
		if leaving || record.State != workloadclasses.NoSchedule || l.now.Sub(record.Since) < r.policy.Period || workloadclasses.Held(node) != "" {
			return nil // the cache was late
		}
		has, err := nodegroup.ClaimOf(node)
		if err != nil {
			return err
		}
		claim := nodegroup.Claim{Owner: Name, Operation: o.ID, Since: l.now}
		if err := claim.Check(node.Name, has, false, false); err != nil { // the cordon is ours
			return err
		}
		nodegroup.Put(node, claim)
		workloadclasses.Begin(node, o)
		began = true
		return nil
	})
	if err == nil && began {
		l.wrote = true
		metrics.Operations.WithLabelValues(class.Name, "Begun").Inc()
		klog.FromContext(ctx).Info("Giving back a node", "class", class.Name, "node", node.Name, "operation", o.ID)
		r.event(node, corev1.EventTypeNormal, "GivingBack", "Drain", "node %s is empty, and is given back", node.Name)
	}
	return client.IgnoreNotFound(err)
}

// step does the next step of the operation on a node.
func (r *reconciler) step(ctx context.Context, l *look, class *workloadclasses.Class, node *corev1.Node, demanded bool) error {
	o, err := workloadclasses.OperationOf(node)
	if err != nil || node.DeletionTimestamp != nil {
		return err
	}
	metrics.Leaving.WithLabelValues(class.Name, node.Name, string(o.Phase)).Set(float64(o.Since.Unix()))
	s, err := r.situation(ctx, l, node, o, demanded)
	if err != nil {
		return err
	}
	action := workloadclasses.Step(o, s, l.now, r.timing)
	logger := klog.FromContext(ctx).WithValues("class", class.Name, "node", node.Name, "operation", o.ID)
	switch action.Kind {
	case workloadclasses.Wait:
		l.underWay = true
		logger.V(2).Info("Waiting", "phase", o.Phase, "why", action.Why)
	case workloadclasses.Evict:
		l.underWay = true
		err = r.evict(ctx, node.Name)
	case workloadclasses.Persist:
		err = r.update(ctx, node.Name, o, func(node *corev1.Node) { workloadclasses.Begin(node, action.Operation) })
		if action.Operation.Phase == workloadclasses.Removing {
			l.turns[action.Operation.Set] = o.ID
		} else if err == nil {
			metrics.Operations.WithLabelValues(class.Name, "Returned").Inc()
			r.event(node, corev1.EventTypeNormal, "NotGivenBack", "Free", "node %s is not given back: %s", node.Name, action.Operation.Reason)
		}
	case workloadclasses.Mark:
		err = r.machines.mark(ctx, s.Machine, o)
	case workloadclasses.Scale:
		if err = r.machines.shrink(ctx, s.Set); err == nil {
			metrics.Operations.WithLabelValues(class.Name, "Scaled").Inc()
			r.event(node, corev1.EventTypeNormal, "GivenBack", "Scale", "set %s of node %s goes from %d to %d replicas", s.Set.Name, node.Name, s.Set.Replicas, s.Set.Replicas-1)
		}
	case workloadclasses.Unmark:
		err = r.machines.mark(ctx, s.Machine, workloadclasses.Operation{})
	case workloadclasses.Release:
		err = r.update(ctx, node.Name, o, func(node *corev1.Node) {
			if claim, err := nodegroup.ClaimOf(node); err == nil && claim.Owner == Name {
				nodegroup.Put(node, nodegroup.Claim{})
			}
			workloadclasses.Free(node, l.now)
		})
	}
	if action.Kind != workloadclasses.Wait && action.Kind != workloadclasses.Evict {
		l.wrote = true
		logger.Info("Step of an operation", "phase", o.Phase, "did", action.Kind, "to", action.Operation.Phase, "reason", action.Operation.Reason, "err", err)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // another look tells
	}
	return err
}

// update changes a node as long as it has this operation, in this phase.
func (r *reconciler) update(ctx context.Context, name string, o workloadclasses.Operation, change func(*corev1.Node)) error {
	return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		if has, err := workloadclasses.OperationOf(node); err != nil || has.ID != o.ID || has.Phase != o.Phase {
			return err
		}
		change(node)
		return nil
	})
}

// evict asks for the eviction of the pods that have to leave. A disruption budget may refuse it; the
// taint and time decide then.
func (r *reconciler) evict(ctx context.Context, node string) error {
	pods, err := r.podsOn(ctx, node)
	if err != nil {
		return err
	}
	for i := range pods {
		if pod := &pods[i]; leaves(pod) && pod.DeletionTimestamp == nil {
			eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
			if err := r.writer.SubResource("eviction").Create(ctx, pod, eviction); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
	}
	return nil
}

// leftovers frees what belongs to no class and no operation any more: nodes that left their class, claims
// without an operation, and Machines with our marks whose node has no such operation.
func (r *reconciler) leftovers(ctx context.Context, l *look) error {
	var errs []error
	running := map[string]bool{}
	for i := range l.nodes {
		node := &l.nodes[i]
		o, _ := workloadclasses.OperationOf(node)
		if o.ID != "" {
			running[o.ID] = true
		}
		classless := l.config.ClassOfNode(node.Labels) == nil
		marked := node.Annotations[workloadclasses.StateAnnotation] != "" || node.Annotations[workloadclasses.PrecludeAnnotation] != "" || o.ID != ""
		claim, err := nodegroup.ClaimOf(node)
		orphan := err == nil && claim.Owner == Name && o.ID != claim.Operation
		if !(classless && marked) && !orphan || nodegroup.Paused(node) {
			continue
		}
		errs = append(errs, client.IgnoreNotFound(r.nodes.UpdateNode(ctx, node.Name, func(node *corev1.Node) error {
			o, err := workloadclasses.OperationOf(node)
			if err != nil {
				return err
			}
			if claim, err := nodegroup.ClaimOf(node); err == nil && claim.Owner == Name && (classless || claim.Operation != o.ID) {
				nodegroup.Put(node, nodegroup.Claim{})
			}
			if classless {
				workloadclasses.Clear(node)
			}
			return nil
		})))
	}
	if l.fleet == nil {
		return errors.Join(errs...)
	}
	for _, machine := range l.fleet.marked {
		// Until its set has as many Machines as it wants, the marks say which one of them goes.
		set := l.fleet.set(machine)
		if !machine.Deleting && !running[machine.Operation] && (set == nil || set.Settled) {
			klog.FromContext(ctx).Info("Taking back the marks of a Machine whose node has no operation", "machine", machine.Name)
			errs = append(errs, client.IgnoreNotFound(r.machines.mark(ctx, machine, workloadclasses.Operation{})))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) event(node *corev1.Node, kind, reason, action, format string, arguments ...any) {
	if r.recorder != nil {
		r.recorder.Eventf(node, nil, kind, reason, action, format, arguments...)
	}
}
