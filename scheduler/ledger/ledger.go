// SPDX-License-Identifier: Apache-2.0

// Package ledger has the scheduler's account of the zones of nodes: what each node has reported, and which pods are there that its
// report does not show yet. A pod is in the account from the moment at which a node is chosen for it. It makes no request, and knows
// nothing of the scheduler.
package ledger

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

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

	nodes sync.Map // the *account of each
	// near has accounts by the generation of their nodes' pods: names take longer to look up than all else.
	near [8192]atomic.Pointer[account]
}

// New returns an empty account.
func New(allowUnknown bool) *Ledger {
	return &Ledger{Now: time.Now, AllowUnknown: allowUnknown}
}

// releaseLimit is how long a node's report is awaited after pods that it showed have gone.
const releaseLimit = time.Minute

// account is that of one node.
type account struct {
	mutex sync.Mutex
	// same is the generation of the node's pods that were found to be those of the account; zero if none were.
	same int64
	// report is what the node last reported, heartbeat when it was begun, and err why it says nothing.
	report    *v1alpha2.NodeResourceTopology
	heartbeat time.Time
	node      alignment.Node
	err       error
	pods      map[types.UID]*entry
	// ghosts are pods that went, with what no report shows of them. A kubelet may still have them.
	ghosts map[types.UID]*entry
	// released is when the last pod has gone that the report shows; zero if the report is later.
	released time.Time
	// others are computed from the pods, and reduced from all; nil if that is still to be done.
	others  *alignment.Others
	reduced *v1alpha2.NodeResourceTopology
	// answers has what was found out about pods that come to these, the last at the end. There are few, so they are not in a map.
	answers []answer
}

// kind is what a pod asks for, by [alignment.Asked].
type kind = unique.Handle[string]

// answer is what was found out about pods of a kind that come to a node: why they may not, or nil, and the score that somebody has computed
// last, if anybody has.
type answer struct {
	kind     kind
	refusal  *Refusal
	scoredBy any
	score    int64
}

// mostAnswers is how many answers are remembered of a node.
const mostAnswers = 32

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
	a, ok := l.nodes.Load(node)
	if !ok {
		a, _ = l.nodes.LoadOrStore(node, &account{pods: map[types.UID]*entry{}, ghosts: map[types.UID]*entry{}})
	}
	return a.(*account)
}

// look returns the account of a node, and locks it.
func (l *Ledger) look(node string, generation int64) *account {
	near := &l.near[uint64(generation)%uint64(len(l.near))]
	if a := near.Load(); a != nil && generation != 0 {
		a.mutex.Lock()
		if a.same == generation {
			return a
		}
		a.mutex.Unlock()
	}
	a := l.account(node)
	a.mutex.Lock()
	if a.same == generation {
		near.Store(a)
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
	a.changed()
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
		if a.ghosts[pod.UID] != nil {
			delete(a.ghosts, pod.UID)
			a.changed()
		}
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
	need := a.node.Needed(pod)
	if !need.Equal(e.need) || e.pod != nil && begin(pod) != begin(e.pod) {
		a.changed()
	}
	e.pod, e.need = pod, need
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

// Lingers reports whether a pod that is gone counts until a report comes.
func (l *Ledger) Lingers(uid types.UID, node string) bool {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.ghosts[uid] != nil
}

func (a *account) remove(uid types.UID, deleted bool, now time.Time) {
	e := a.pods[uid]
	if e == nil {
		return
	}
	delete(a.pods, uid)
	if e.need.Any() {
		a.changed()
		if e.shown {
			a.released = now
			e.need = alignment.Need{Items: a.hidden(e)}
		}
		if e.need.Any() && deleted && !ended(e.pod) && a.report != nil {
			e.gone = a.heartbeat
			a.ghosts[uid] = e
		}
	}
	a.settle()
}

// changed forgets what was computed. It is called if a report, or what pods need, or whether the report shows them, has changed.
func (a *account) changed() { a.others, a.reduced, a.same, a.answers = nil, nil, 0, a.answers[:0] }

// settle finds out which pods the report shows. A report that was begun later than a pod started shows it, since a kubelet gives a pod
// what it needs before it says that the pod has started; both times are of the node's clock, in whole seconds. A report shows
// exactly the pods of its fingerprint, too, if it came after them: one that was there before may be about an earlier pod of the name.
func (a *account) settle() {
	at := a.heartbeat
	if a.report == nil || a.err != nil || at.IsZero() {
		return
	}
	waiting := false
	for _, e := range a.pods {
		if !e.shown && e.pod.Status.StartTime != nil && e.pod.Status.StartTime.Time.Before(at) {
			a.show(e)
		}
		waiting = waiting || !e.shown
	}
	for uid, e := range a.ghosts {
		if at.Sub(e.gone) >= 2*time.Second {
			delete(a.ghosts, uid)
			a.changed()
		}
	}
	if !waiting && a.released.IsZero() {
		return
	}
	begun := func(e *entry) bool {
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
	// That of pods with anything for themselves has those with a device of no zone. Which resources are such the report does not say.
	matches := func(devices bool) bool {
		print := podfingerprint.NewFingerprint(len(a.pods))
		for _, e := range a.pods {
			if begun(e) && (method == podfingerprint.MethodAll || e.need.Any() || devices && alignment.AsksForDevice(e.pod)) {
				_ = print.Add(e.pod.Namespace, e.pod.Name) // it returns no error
			}
		}
		return print.Check(sign) == nil
	}
	if !matches(true) && !matches(false) {
		return
	}
	for _, e := range a.pods {
		if !e.shown && begun(e) {
			a.show(e)
		}
	}
	a.released = time.Time{}
}

// show notes that the report shows a pod.
func (a *account) show(e *entry) {
	e.shown = true
	if e.need.Any() {
		a.changed()
	}
}

// hidden is what no report shows of a pod that the kubelet has admitted.
func (a *account) hidden(e *entry) []alignment.Item {
	b := begin(e.pod)
	return a.node.Hidden(e.need, b.started, time.Unix(b.last, 0))
}

// beginning is whether a container of a pod has started that is no init container, and when the last such container did, or else the
// pod, in seconds.
type beginning struct {
	started bool
	last    int64
}

func begin(pod *corev1.Pod) (b beginning) {
	if at := pod.Status.StartTime; at != nil {
		b.last = at.Unix()
	}
	for _, c := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if state.Running != nil {
				b = beginning{true, max(b.last, state.Running.StartedAt.Unix())}
			} else if state.Terminated != nil {
				b = beginning{true, max(b.last, state.Terminated.StartedAt.Unix())}
			}
		}
	}
	return b
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
			continue
		}
		others.Hidden = append(others.Hidden, a.hidden(e)...)
		others.Spanning = others.Spanning || a.node.SpansMemory(e.need)
	}
	for _, e := range a.ghosts {
		others.Unreported = append(others.Unreported, e.need)
	}
	a.others = &others
	return others
}

// Ask is a pod that looks for a node, with all of it that is the same for every node.
type Ask struct {
	pod  *corev1.Pod
	kind kind
	// mayNeed is whether it may need alignment on a node of which nothing is known.
	mayNeed bool
	at      time.Time
}

// Ask returns a pod as Check takes it. It is good for some moments.
func (l *Ledger) Ask(pod *corev1.Pod) *Ask {
	return &Ask{pod, unique.Make(alignment.Asked(pod)), alignment.MayNeed(pod), l.Now()}
}

// Pods are those on a node as the scheduler supposes. For other pods, and for other nodes, the generation is another one; zero is none.
type Pods struct {
	Generation int64
	All        iter.Seq[*corev1.Pod]
}

var (
	errNoReport  = errors.New("the node has reported no NUMA nodes")
	errOldReport = fmt.Errorf("the node's report of NUMA nodes is older than %s", numaresources.Stale)
)

// unknown says why a node's report cannot be relied upon.
func (a *account) unknown(now time.Time) error {
	switch {
	case a.report == nil:
		return errNoReport
	case numaresources.IsOld(a.heartbeat, now):
		return errOldReport
	}
	return a.err
}

// Refusal is why a pod may not go to a node.
type Refusal struct {
	// Lack is why there is no room, or nil if nothing is known of the node.
	Lack    *alignment.Lack
	Message string
}

// refuse returns nil if there is no lack.
func refuse(lack *alignment.Lack) *Refusal {
	if lack == nil {
		return nil
	}
	return &Refusal{lack, lack.String()}
}

// Check returns nil if the kubelet of a node will admit a pod. If the pods that are on the node leave out some that are in the account,
// they are to leave, and if there are others, they are to come first.
func (l *Ledger) Check(ask *Ask, node string, here Pods) *Refusal {
	a := l.look(node, here.Generation)
	defer a.mutex.Unlock()
	if err := a.unknown(ask.at); err != nil {
		if l.AllowUnknown || !ask.mayNeed {
			return nil
		}
		return &Refusal{Message: err.Error()}
	}
	if here.Generation != 0 && here.Generation == a.same {
		return a.check(ask)
	}
	return a.compare(ask, here)
}

// answered returns what was found out about such pods before; nil if nothing was.
func (a *account) answered(ask *Ask) *answer {
	for i := len(a.answers) - 1; i >= 0; i-- {
		if a.answers[i].kind == ask.kind {
			return &a.answers[i]
		}
	}
	return nil
}

// check checks a pod among those of the account. Pods that come together are mostly alike, so answers are remembered.
func (a *account) check(ask *Ask) *Refusal {
	if found := a.answered(ask); found != nil {
		return found.refusal
	}
	found := answer{kind: ask.kind}
	if need := a.node.Needed(ask.pod); need.Any() {
		found.refusal = refuse(a.node.Check(need, a.unreported()))
	}
	if len(a.answers) == mostAnswers {
		a.answers = a.answers[:0]
	}
	a.answers = append(a.answers, found)
	return found.refusal
}

// Score returns what [Ledger.SetScore] was told of a node by the same, for a pod that asks for the same, if nothing has changed there.
func (l *Ledger) Score(ask *Ask, node string, generation int64, by any) (int64, bool) {
	a := l.look(node, generation)
	defer a.mutex.Unlock()
	if found := a.answered(ask); found != nil && found.scoredBy == by && a.unknown(ask.at) == nil {
		return found.score, true
	}
	return 0, false
}

// SetScore remembers a score that was computed from [Ledger.Report], if that is still the same.
func (l *Ledger) SetScore(ask *Ask, node string, by any, report *v1alpha2.NodeResourceTopology, value int64) {
	a := l.account(node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if found := a.answered(ask); found != nil && report != nil && report == a.reduced {
		found.scoredBy, found.score = by, value
	}
}

// compare checks a pod among others than those of the account, if they are others.
func (a *account) compare(ask *Ask, here Pods) *Refusal {
	need := a.node.Needed(ask.pod)
	if !need.Any() {
		return nil
	}
	var coming []alignment.Need
	supposed := map[types.UID]bool{}
	for p := range here.All {
		supposed[p.UID] = true
		if a.pods[p.UID] == nil && p.UID != ask.pod.UID {
			if of := a.node.Needed(p); of.Any() {
				coming = append(coming, of)
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
	if len(coming) == 0 && len(leaving) == 0 {
		if !supposed[ask.pod.UID] {
			a.same = here.Generation
		}
		return a.check(ask)
	}
	others := a.unreported()
	others.Unreported = slices.Concat(others.Unreported, coming)
	switch {
	case len(leaving) == 0:
		return refuse(a.node.Check(need, others))
	case unreported || a.awaitsRelease(ask.at):
		// Pods are to be evicted for this one: only where it is certain that it has room then.
		return refuse(&alignment.Lack{Reason: alignment.Unreported})
	}
	return refuse(a.node.CheckWithout(need, others, staying, leaving))
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
	total, others := alignment.Amounts{}, a.unreported()
	for _, need := range append(slices.Clone(others.Unreported), alignment.Need{Items: others.Hidden}) {
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
