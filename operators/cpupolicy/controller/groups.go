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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/rollout"
)

// groupsReconciler asks for what CPUManagerPolicies want of their nodes, and reports what became of
// it. It asks as a person does; nodesReconciler carries it out. One look is about all groups, since
// a node is in one at most.
type groupsReconciler struct {
	client client.Client // its reads are of the cache
	nodes  nodeclient.Client
	now    func() time.Time
	// longestDrain is the most that a drain gets of its timeout.
	longestDrain time.Duration
}

// +kubebuilder:rbac:groups=cpupolicy.workload.openshift.io,resources=cpumanagerpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cpupolicy.workload.openshift.io,resources=cpumanagerpolicies/status,verbs=patch

func addGroupsReconciler(mgr manager.Manager, longestDrain time.Duration) error {
	one := oneRequest("groups")
	return builder.ControllerManagedBy(mgr).Named("cpumanagerpolicy").
		Watches(&v1alpha1.CPUManagerPolicy{}, one).
		Watches(&corev1.Node{}, one, builder.WithPredicates(nodeChanges)).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(&groupsReconciler{
			client: mgr.GetClient(), nodes: nodeclient.Client{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient()}, now: clock, longestDrain: longestDrain,
		})
}

// Reconcile implements reconcile.Reconciler.
func (r *groupsReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var groups v1alpha1.CPUManagerPolicyList
	if err := r.client.List(ctx, &groups); err != nil {
		return reconcile.Result{}, err
	}
	var nodes corev1.NodeList // nobody may change them
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	members, conflicts, invalid := membersOf(groups.Items, nodes.Items)
	var errs []error
	var result reconcile.Result
	for i := range groups.Items {
		group := &groups.Items[i]
		v := viewOf(group, members[group.Name])
		if v.unobserved { // that nobody could observe a node changes none
			result.RequeueAfter = keepFailed
		}
		v.problems = append(v.problems, invalid[group.Name]...)
		if drain := group.Spec.Drain; drain != nil && drain.Timeout != nil && drain.Timeout.Duration > r.longestDrain {
			v.problems = append(v.problems, fmt.Sprintf("spec.drain.timeout is %s, and pods get %s, because of the controller's settings.operationTimeout; shorten spec.drain.timeout, or raise settings.operationTimeout", drain.Timeout.Duration, r.longestDrain))
		}
		for _, c := range conflicts {
			if slices.Contains(c.Groups, group.Name) {
				v.problems = append(v.problems, c.Error())
			}
		}
		if !nodegroup.Paused(group) {
			for _, node := range v.next {
				if err := r.ask(ctx, group, node.Name); err != nil && !isGone(err) {
					errs = append(errs, fmt.Errorf("CPUManagerPolicy %s: node %s: %w", group.Name, node.Name, err))
				}
			}
		}
		before := group.DeepCopy()
		v.report(group)
		if equality.Semantic.DeepEqual(before.Status, group.Status) {
			continue
		}
		if err := r.client.Status().Patch(ctx, group, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("CPUManagerPolicy %s: %w", group.Name, err))
		}
	}
	return result, errors.Join(errs...)
}

// membersOf returns the nodes of each group, those that are in two, and what is wrong with groups.
func membersOf(groups []v1alpha1.CPUManagerPolicy, nodes []corev1.Node) (members map[string][]*corev1.Node, conflicts []nodegroup.Conflict, invalid map[string][]string) {
	members, invalid = map[string][]*corev1.Node{}, map[string][]string{}
	var known []nodegroup.Group
	for _, g := range groups {
		group, err := nodegroup.NewGroup(g.Name, g.Spec.Nodes.Names, g.Spec.Nodes.Selector)
		if err != nil {
			invalid[g.Name] = append(invalid[g.Name], err.Error())
			continue
		}
		known = append(known, group)
	}
	byName := map[string]*corev1.Node{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	names, conflicts := nodegroup.Members(known, nodes)
	for group, of := range names {
		for _, name := range of {
			members[group] = append(members[group], byName[name])
		}
	}
	return members, conflicts, invalid
}

// ask asks for the group's policy on a node.
func (r *groupsReconciler) ask(ctx context.Context, group *v1alpha1.CPUManagerPolicy, name string) error {
	return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		if !wants(group, node) {
			return nil // the cache was old
		}
		before := maps.Clone(node.Annotations)
		status := nodestatus.Status{
			State: nodestatus.Requested, Policy: cpupolicy.Policy(group.Spec.Policy), Since: r.now(),
			ID: fmt.Sprintf("%s-%s", group.Spec.Policy, rand.String(12)), Group: group.Name, GroupUID: group.UID, Generation: group.Generation,
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, nodestatus.StatusAnnotation, status.String())
		return cpupolicy.CheckWrite(before, node.Annotations, cpupolicy.Controller)
	})
}

// wants reports whether a group has something to ask of a node: it was seen to have another policy,
// nothing is under way there, and this group has not failed there with this spec.
func wants(group *v1alpha1.CPUManagerPolicy, node *corev1.Node) bool {
	policy := nodestatus.InForce(node)
	if policy == "" || policy == cpupolicy.Policy(group.Spec.Policy) || leftAlone(node) != "" {
		return false
	}
	// A status that cannot be read is as good as none.
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	return err != nil || !status.UnderWay() && !cpupolicy.FailedFor(group, status)
}

// brokenBy reports whether a node has failed for a group after its kubelet was stopped. What is wrong with the
// spec may be wrong on every node, so that this one counts against maxUnavailable, healthy or not, until it has
// the policy or is tried again.
func brokenBy(group *v1alpha1.CPUManagerPolicy, node *corev1.Node, status nodestatus.Status) bool {
	return status.Begun && cpupolicy.FailedFor(group, status) && nodestatus.InForce(node) != cpupolicy.Policy(group.Spec.Policy)
}

// view is what a look shows of a group.
type view struct {
	nodes, updated, updating, failed, unavailable int
	// requested are those of the updating ones that have not begun.
	requested int
	// broken are the failed nodes that keep others from being switched.
	broken []string
	// unobserved means that the policy of a node is not known yet, or cannot be.
	unobserved bool
	// next are the nodes for which there is room.
	next     []*corev1.Node
	problems []string
}

func viewOf(group *v1alpha1.CPUManagerPolicy, members []*corev1.Node) (v view) {
	v.nodes = len(members)
	var waiting []*corev1.Node
	for _, node := range members {
		status, _, _ := nodestatus.ReadStatus(node.Annotations)
		switch {
		case status.UnderWay():
			v.updating++
			if status.State == nodestatus.Requested {
				v.requested++
			}
		case nodestatus.InForce(node) == cpupolicy.Policy(group.Spec.Policy):
			v.updated++
		case cpupolicy.FailedFor(group, status):
			v.failed++
			if brokenBy(group, node, status) {
				v.broken = append(v.broken, node.Name)
			}
			v.problems = append(v.problems, fmt.Sprintf("node %s: %s", node.Name, status.Message))
		case harvester.Wrote(node, nodeKind) != nil:
			v.problems = append(v.problems, fmt.Sprintf("node %s is left alone: %s", node.Name, harvester.Wrote(node, nodeKind)))
		case nodestatus.InForce(node) == "" && nodegroup.IsReady(node) && !nodegroup.Paused(node):
			if v.unobserved = true; clock().Sub(readySince(node)) > keepFailed {
				v.problems = append(v.problems, fmt.Sprintf("node %s: nobody has observed its policy; its Events say why", node.Name))
			}
		case wants(group, node) && !unavailable(node): // one more would be one too many
			waiting = append(waiting, node)
		}
		if unavailable(node) {
			v.unavailable++
		}
	}
	most, err := limitOf(group, len(members))
	if err != nil {
		v.problems = append(v.problems, err.Error())
		return v
	}
	if len(v.broken) >= most && v.updated+v.failed < v.nodes {
		v.problems = slices.Insert(v.problems, 0, fmt.Sprintf("no further node is switched: %s failed once the kubelet had been stopped, and maxUnavailable is %d; "+
			"change the spec, or ask for each of them again", strings.Join(v.broken, ", "), most))
	}
	room := most - v.updating - unavailableOthers(group, members)
	v.next = waiting[:min(len(waiting), max(0, room))]
	return v
}

// readySince returns when a node became Ready; the zero value if it is not.
func readySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func unavailable(node *corev1.Node) bool { return !nodegroup.IsReady(node) || node.Spec.Unschedulable }

// unavailableOthers counts the nodes that are broken, and those that are unavailable for another reason than an
// operation of this companion that is under way, or one of this group that still has the node: that holds the
// group's lock.
func unavailableOthers(group *v1alpha1.CPUManagerPolicy, members []*corev1.Node) (n int) {
	for _, node := range members {
		status, claim := statusAndClaim(node)
		if brokenBy(group, node, status) || unavailable(node) && !status.UnderWay() && !holdsLock(group, status, claim) {
			n++
		}
	}
	return n
}

// statusAndClaim are zero if they cannot be read.
func statusAndClaim(node *corev1.Node) (status nodestatus.Status, claim nodegroup.Claim) {
	status, _, _ = nodestatus.ReadStatus(node.Annotations)
	if c, err := nodegroup.ClaimOf(node); err == nil {
		claim = c
	}
	return status, claim
}

// holdsLock reports whether the operation that has a node was begun under the group's lock.
func holdsLock(group *v1alpha1.CPUManagerPolicy, status nodestatus.Status, claim nodegroup.Claim) bool {
	return claim.Owner == Name && claim.Operation == status.ID && status.Group == group.Name
}

// unavailableBeside names the nodes that are unavailable, or about to be, and do not hold the group's
// lock: one that waits for its switch and died meanwhile, and what a person or another companion does.
func unavailableBeside(group *v1alpha1.CPUManagerPolicy, members []*corev1.Node) (names []string) {
	for _, node := range members {
		status, claim := statusAndClaim(node)
		foreign := claim.Owner != "" && claim.Owner != Name
		if !holdsLock(group, status, claim) && (unavailable(node) || status.State == nodestatus.Running || foreign) {
			names = append(names, node.Name)
		}
	}
	return names
}

func limitOf(group *v1alpha1.CPUManagerPolicy, nodes int) (int, error) {
	return rollout.Limit(ptr.Deref(group.Spec.MaxUnavailable, intstr.FromInt32(1)), nodes)
}

// groupLock is the lock of a group, and why none of its nodes may begin now; empty if one may.
type groupLock struct {
	lock  rollout.Lock
	waits string
	// down are the nodes that unavailableBeside names, and most is how many may be.
	down []string
	most int
}

// waitsFor returns why a node may not begin now; empty if it may.
func (l groupLock) waitsFor(name string) string { return cmp.Or(l.waits, l.crowded(name)) }

// crowded says that too many other nodes are down; empty if they are not. That a node is down itself keeps others, and
// not itself: somebody must find out, and say so.
func (l groupLock) crowded(name string) string {
	others := slices.DeleteFunc(slices.Clone(l.down), func(down string) bool { return down == name })
	if l.most > 0 && len(others) >= l.most {
		return fmt.Sprintf("%d nodes of its group are unavailable", len(others))
	}
	return ""
}

// groupLocks are those of one look: each is made once, and only if it is needed.
type groupLocks struct {
	groups  []v1alpha1.CPUManagerPolicy
	members func() map[string][]*corev1.Node
	made    map[string]groupLock
}

func newGroupLocks(groups []v1alpha1.CPUManagerPolicy, nodes []corev1.Node) *groupLocks {
	return &groupLocks{groups, sync.OnceValue(func() map[string][]*corev1.Node {
		members, _, _ := membersOf(groups, nodes)
		return members
	}), map[string]groupLock{}}
}

// of returns the group of a name, and its lock; nil if there is none.
func (l *groupLocks) of(name string) (*v1alpha1.CPUManagerPolicy, groupLock) {
	at := slices.IndexFunc(l.groups, func(g v1alpha1.CPUManagerPolicy) bool { return name != "" && g.Name == name })
	if at < 0 {
		return nil, groupLock{}
	}
	group := &l.groups[at]
	if _, is := l.made[name]; !is {
		l.made[name] = newGroupLock(group, l.members()[name])
	}
	return group, l.made[name]
}

// groupFor returns the group that a node is in, if that has the policy; else the zero value.
func (l *groupLocks) groupFor(name string, policy cpupolicy.Policy) v1alpha1.CPUManagerPolicy {
	for _, group := range l.groups {
		if cpupolicy.Policy(group.Spec.Policy) == policy && slices.ContainsFunc(l.members()[group.Name], func(member *corev1.Node) bool { return member.Name == name }) {
			return group
		}
	}
	return v1alpha1.CPUManagerPolicy{}
}

func newGroupLock(group *v1alpha1.CPUManagerPolicy, members []*corev1.Node) groupLock {
	l := groupLock{lock: rollout.Lock{Name: "group-" + group.Name, Max: 1}}
	most, err := limitOf(group, len(members))
	if err != nil {
		l.waits = err.Error()
		return l
	}
	if nodegroup.Paused(group) {
		l.waits = "its group is paused"
	}
	l.down, l.most = unavailableBeside(group, members), most
	l.lock.Max = max(1, most-len(l.down))
	return l
}

// report writes what a look has shown into a group's status.
func (v view) report(group *v1alpha1.CPUManagerPolicy) {
	s := &group.Status
	s.ObservedGeneration = group.Generation
	s.Nodes, s.UpdatedNodes, s.UpdatingNodes = int32(v.nodes), int32(v.updated), int32(v.updating)
	s.FailedNodes, s.UnavailableNodes = int32(v.failed), int32(v.unavailable)
	set := func(kind string, is bool, reason, otherwise, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, ObservedGeneration: group.Generation, Reason: otherwise}
		if is {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, untrusted.Abbreviate(message, 32<<10)
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	set(v1alpha1.ConditionPaused, nodegroup.Paused(group), "Annotated", "NotPaused", "The annotation "+nodegroup.PausedAnnotation+" is there: nothing new begins.")
	progress := fmt.Sprintf("%d of %d nodes are being switched.", v.updating-v.requested, v.nodes)
	if v.requested > 0 {
		progress += fmt.Sprintf(" %d more have been asked to; an Event on each says for what it waits.", v.requested)
	}
	set(v1alpha1.ConditionProgressing, v.updating > 0, "Updating", "Idle", progress)
	set(v1alpha1.ConditionAvailable, v.nodes > 0 && v.updated == v.nodes, "AllUpdated", "NotAllUpdated", fmt.Sprintf("All %d nodes run with the policy %s.", v.nodes, group.Spec.Policy))
	set(v1alpha1.ConditionDegraded, len(v.problems) > 0, "Problems", "NoProblems", strings.Join(v.problems, "\n"))
}
