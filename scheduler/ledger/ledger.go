// SPDX-License-Identifier: Apache-2.0

// Package ledger has the scheduler's account of the zones of nodes: what each node has reported, and which pods are there that its
// report does not show yet. A pod is in the account from the moment at which a node is chosen for it. It makes no request, and knows
// nothing of the scheduler.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/numaresources/alignment"
)

// Ledger is the account of all nodes. Its methods may be called at the same time.
type Ledger struct {
	// Now is the time, and AllowUnknown whether pods may go to nodes of which nothing is known.
	Now          func() time.Time
	AllowUnknown bool

	mutex sync.RWMutex
	nodes map[string]*account
}

// New returns an empty account.
func New(allowUnknown bool) *Ledger {
	return &Ledger{Now: time.Now, AllowUnknown: allowUnknown, nodes: map[string]*account{}}
}

// releaseLimit is how long a node's report is awaited after pods that it showed have gone.
const releaseLimit = time.Minute

// account is that of one node.
type account struct {
	mutex sync.Mutex
	// report is what the node last reported, heartbeat when it was begun, and err why it says nothing.
	report    *v1alpha2.NodeResourceTopology
	heartbeat time.Time
	node      alignment.Node
	err       error
	pods      map[types.UID]*entry
	// ghosts are pods that went before a report showed them. A kubelet may still have them.
	ghosts map[types.UID]*entry
	// released is when the last pod has gone that the report shows; zero if the report is later.
	released time.Time
	// others are computed from the pods, and reduced from all; nil if that is still to be done.
	others  *alignment.Others
	reduced *v1alpha2.NodeResourceTopology
	// last is what was last found out about a pod that comes to these others; nil if nothing was.
	last *answer
}

// answer is what a node lacks for a need; nil if nothing.
type answer struct {
	need alignment.Need
	lack *alignment.Lack
}

// entry is a pod on a node.
type entry struct {
	pod *corev1.Pod
	// reserved is the resource version of the report when it came.
	reserved string
	shown    bool
	need     alignment.Need
	// gone is, for a ghost, when the report was written that stood there when it went.
	gone time.Time
}

func (l *Ledger) account(node string) *account {
	l.mutex.RLock()
	a := l.nodes[node]
	l.mutex.RUnlock()
	if a != nil {
		return a
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if a = l.nodes[node]; a == nil {
		a = &account{pods: map[types.UID]*entry{}, ghosts: map[types.UID]*entry{}}
		l.nodes[node] = a
	}
	return a
}

// SetReport is called with each report; RemoveReport when it is deleted.
func (l *Ledger) SetReport(report *v1alpha2.NodeResourceTopology) {
	a := l.account(report.Name)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.report, a.heartbeat = report, numaresources.HeartbeatOf(report.Annotations)
	a.node, a.err = alignment.Read(report)
	for _, e := range a.pods {
		e.need = a.node.Needed(e.pod)
	}
	a.settle()
}

// RemoveReport forgets what a node has reported.
func (l *Ledger) RemoveReport(node string) {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.report, a.heartbeat, a.node, a.err = nil, time.Time{}, alignment.Node{}, nil
	a.changed()
}

// SetPod is called when a node has been chosen for a pod, and whenever a pod that has a node changes.
func (l *Ledger) SetPod(pod *corev1.Pod, node string) {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if ended(pod) {
		a.remove(pod.UID, false, l.Now())
		return
	}
	e := a.pods[pod.UID]
	if e == nil {
		e = &entry{}
		if a.report != nil {
			e.reserved = a.report.ResourceVersion
		}
		a.pods[pod.UID] = e
	}
	e.pod, e.need = pod, a.node.Needed(pod)
	a.settle()
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// RemovePod is called when a pod is gone, or when it does not come after all: then bound is false.
func (l *Ledger) RemovePod(uid types.UID, node string, bound bool) {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.remove(uid, bound, l.Now())
}

func (a *account) remove(uid types.UID, deleted bool, now time.Time) {
	e := a.pods[uid]
	if e == nil {
		return
	}
	delete(a.pods, uid)
	if e.need.Any() {
		switch {
		case e.shown:
			a.released = now
		case deleted && !ended(e.pod) && a.report != nil:
			e.gone = a.heartbeat
			a.ghosts[uid] = e
		}
	}
	a.settle()
}

func (a *account) changed() { a.others, a.reduced, a.last = nil, nil, nil }

// settle finds out which pods the report shows. A report that was begun later than a pod started shows it, since a kubelet gives a pod
// what it needs before it says that the pod has started; both times are of the node's clock, in whole seconds. A report shows
// exactly the pods of its fingerprint, too, if it came after them: one that was there before may be about an earlier pod of the name.
func (a *account) settle() {
	a.changed()
	at := a.heartbeat
	if a.report == nil || a.err != nil || at.IsZero() {
		return
	}
	waiting := false
	for _, e := range a.pods {
		if !e.shown && e.pod.Status.StartTime != nil && e.pod.Status.StartTime.Time.Before(at) {
			e.shown = initialized(e.pod)
		}
		waiting = waiting || !e.shown
	}
	for uid, e := range a.ghosts {
		if at.Sub(e.gone) >= 2*time.Second {
			delete(a.ghosts, uid)
		}
	}
	if !waiting && a.released.IsZero() {
		return
	}
	started := func(e *entry) bool {
		return e.shown || e.pod.Status.StartTime != nil && !e.pod.Status.StartTime.Time.After(at) && e.reserved != a.report.ResourceVersion
	}
	var sign, method string
	for _, attribute := range a.report.Attributes {
		switch attribute.Name {
		case podfingerprint.Attribute:
			sign = attribute.Value
		case podfingerprint.AttributeMethod:
			method = attribute.Value
		}
	}
	if sign == "" {
		return
	}
	print := podfingerprint.NewFingerprint(len(a.pods))
	for _, e := range a.pods {
		if started(e) && (method == podfingerprint.MethodAll || e.need.Any()) {
			_ = print.Add(e.pod.Namespace, e.pod.Name) // it returns no error
		}
	}
	if print.Check(sign) != nil {
		return
	}
	for _, e := range a.pods {
		e.shown = e.shown || started(e) && initialized(e.pod)
	}
	a.released = time.Time{}
}

// initialized reports whether a pod's init containers have ended. Until then they may have more than the rest of the pod, and a report
// leaves them out, as podresources does.
func initialized(pod *corev1.Pod) bool {
	return len(pod.Spec.InitContainers) == 0 || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

// unreported computes what Check of package alignment is told of a node's pods.
func (a *account) unreported() alignment.Others {
	if a.others != nil {
		return *a.others
	}
	others := alignment.Others{}
	for _, uid := range slices.Sorted(maps.Keys(a.pods)) {
		e := a.pods[uid]
		if !e.need.Any() {
			continue
		}
		if !e.shown {
			others.Unreported = append(others.Unreported, e.need)
		} else if a.node.SpansMemory(e.need) {
			others.Spanning = true
		}
	}
	for _, e := range a.ghosts {
		others.Unreported = append(others.Unreported, e.need)
	}
	a.others = &others
	return others
}

// check checks a need among the node's pods. It remembers the last answer, since pods that come together are mostly alike.
func (a *account) check(need alignment.Need) *alignment.Lack {
	if a.last == nil || !a.last.need.Equal(need) {
		a.last = &answer{need, a.node.Check(need, a.unreported())}
	}
	return a.last.lack
}

// unknown says why a node's report cannot be relied upon.
func (a *account) unknown(now time.Time) error {
	switch {
	case a.report == nil:
		return fmt.Errorf("the node has reported no NUMA nodes")
	case numaresources.IsOld(a.heartbeat, now):
		return fmt.Errorf("the node's report of NUMA nodes is older than %s", numaresources.Stale)
	}
	return a.err
}

// Refusal is why a pod may not go to a node.
type Refusal struct {
	// Unknown is why nothing is known of the node, and else Lack why there is no room.
	Unknown error
	Lack    *alignment.Lack
}

// Check returns nil if the kubelet of a node will admit a pod. here are the pods on the node as the scheduler supposes: if it
// leaves out some that are in the account, they are to leave, and if it has others, they are to come first.
func (l *Ledger) Check(pod *corev1.Pod, node string, here []*corev1.Pod) *Refusal {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err := a.unknown(l.Now()); err != nil {
		if l.AllowUnknown || !alignment.MayNeed(pod) {
			return nil
		}
		return &Refusal{Unknown: err}
	}
	need := a.node.Needed(pod)
	if !need.Any() {
		return nil
	}
	others := a.unreported()
	supposed := map[types.UID]bool{}
	come := false
	for _, p := range here {
		supposed[p.UID] = true
		if a.pods[p.UID] == nil && p.UID != pod.UID {
			if of := a.node.Needed(p); of.Any() {
				if !come {
					others.Unreported, come = slices.Clone(others.Unreported), true
				}
				others.Unreported = append(others.Unreported, of)
			}
		}
	}
	var staying, leaving []alignment.Need
	unreported := false
	for uid, e := range a.pods {
		switch {
		case !e.need.Any():
		case supposed[uid]:
			if e.shown {
				staying = append(staying, e.need)
			}
		case e.shown:
			leaving = append(leaving, e.need)
		default:
			unreported = true
		}
	}
	var lack *alignment.Lack
	switch {
	case len(leaving) > 0 && (unreported || a.awaitsRelease(l.Now())):
		// Pods are to be evicted for this one: only where it is certain that it has room then.
		lack = &alignment.Lack{Reason: alignment.Unreported}
	case len(leaving) > 0:
		lack = a.node.CheckWithout(need, others, staying, leaving)
	case come:
		lack = a.node.Check(need, others)
	default:
		lack = a.check(need)
	}
	if lack != nil {
		return &Refusal{Lack: lack}
	}
	return nil
}

func (a *account) awaitsRelease(now time.Time) bool {
	return !a.released.IsZero() && now.Sub(a.released) < releaseLimit
}

// AwaitsRelease reports whether pods have gone from a node that its report still shows.
func (l *Ledger) AwaitsRelease(node string) bool {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.awaitsRelease(l.Now())
}

// Waits reports whether a node has pods that its report does not show.
func (l *Ledger) Waits(node string) bool {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return len(a.unreported().Unreported) > 0 || !a.released.IsZero()
}

// Report returns a node's report for comparing nodes, less what pods have that it does not show: of each zone, since they may be in
// any. It is nil for a node of which nothing is known, and not to be changed.
func (l *Ledger) Report(node string) *v1alpha2.NodeResourceTopology {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.unknown(l.Now()) != nil {
		return nil
	}
	if a.reduced != nil {
		return a.reduced
	}
	total := alignment.Amounts{}
	for _, need := range a.unreported().Unreported {
		for _, item := range need.Items {
			for name, amount := range item.Amounts {
				total[name] += amount
			}
		}
	}
	a.reduced = a.report
	if len(total) > 0 {
		a.reduced = a.report.DeepCopy()
		for i := range a.reduced.Zones {
			for j := range a.reduced.Zones[i].Resources {
				r := &a.reduced.Zones[i].Resources[j]
				r.Available.Set(max(0, r.Available.Value()-total[corev1.ResourceName(r.Name)]))
			}
		}
	}
	return a.reduced
}
