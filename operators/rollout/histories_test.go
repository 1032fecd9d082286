// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"workload.openshift.io/operators/api/nodegroup"
)

// This file runs seeded histories: two controllers, since the old one may not know yet that it was
// replaced, that go by looks of any age, at nodes and locks of different times, are stopped at any
// call while others act, end at any call, meet conflicts, and do not hear of writes that took effect;
// users who ask at any time; nodes that come and go; persons who cordon; another program that
// claims. And all of that for two companions at once, whose operations have the same names, on nodes of which
// two are of the control plane.
//
// What must hold: nothing starts beside something else on its node, without the claim, in spite of a
// refusal, or beyond the limit of a lock, of which that of the control plane is for both companions; no controller replaces a newer operation, takes back an end,
// or reports one that was not observed; nobody else's claim or cordon is overrun. And in the end, once
// nothing disturbs any more: each operation that was not replaced has ended, and was started unless it
// was refused or ran out of time; no claim and no lock is left.

const (
	owner     = "rollouttest"
	timeLimit = 10 * time.Minute
)

// owners are the companions.
var owners = []string{owner, "second"}

var (
	histories = flag.Int("histories", 50_000, "how many histories TestHistories runs")
	seed      = flag.Uint64("seed", 0, "the one history that TestHistories tells; 0 means all, and none told")
)

// shared is the lock of the control plane.
var shared = nodegroup.ControlPlaneLock.String()

// locks are those of the nodes n0, n1 and n2. Each companion has a lock "group".
var locks = [][]Lock{{{shared, 1}, {"group", 2}}, {{shared, 1}, {"group", 2}}, {{"group", 2}}}

// job is what the fake runner has done of an operation.
type job struct {
	owner           string
	node            int
	begun, finished bool
	end             Phase // empty while it is under way
}

type storedNode struct {
	operations map[string]Operation // by owner
	claim      nodegroup.Claim
	cordoned   bool
	version    int
	exists     bool
	// born counts the nodes that this one replaces.
	born int
	// byPerson means that the cordon is nobody's claim's.
	byPerson, waits bool
}

// state is what a companion sees.
func (n storedNode) state(owner string) State {
	return State{Operation: n.operations[owner], Claim: n.claim, Cordoned: n.cordoned}
}

// operation is one of a companion: two companions may use the same id.
type operation struct{ owner, id string }

// view is the Store and the Runner of a companion.
type view struct {
	*world
	owner string
}

func (v view) of(id string) operation { return operation{v.owner, id} }

// key is a lock as the world has it.
func (v view) key(lock string) string {
	if lock == shared {
		return lock
	}
	return v.owner + "/" + lock
}

type lease struct {
	holders nodegroup.Holders
	version int
}

type world struct {
	*rand.Rand
	now      time.Time
	nodes    [3]storedNode
	leases   map[string]*lease
	jobs     map[operation]*job
	refused  map[operation]bool
	born     map[operation]int // which node of its name an operation was asked of
	looks    map[string][]Look // by owner
	ids      map[string]int
	depth    int
	quiet    bool
	problems []string
	tell     bool
	story    []string
	counts   map[string]int
}

func newWorld(seed uint64, counts map[string]int) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), leases: map[string]*lease{shared: {}}, jobs: map[operation]*job{}, refused: map[operation]bool{}, born: map[operation]int{}, looks: map[string][]Look{}, ids: map[string]int{}, counts: counts}
	for _, owner := range owners {
		w.leases[owner+"/group"], w.looks[owner] = &lease{}, make([]Look, 0, 8)
	}
	for i := range w.nodes {
		w.nodes[i] = newNode()
	}
	return w
}

func newNode() storedNode {
	return storedNode{exists: true, operations: map[string]Operation{}}
}

func (w *world) say(format string, args ...any) {
	if w.tell {
		w.story = append(w.story, strings.Repeat("    ", w.depth)+fmt.Sprintf(format, args...))
	}
}

func (w *world) wrong(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
	w.say("WRONG: "+format, args...)
}

func (w *world) one(in int) bool { return w.IntN(in) == 0 }

func operationID(n int) string { return "op" + strconv.Itoa(n) }

func index(node string) int { return int(node[1] - '0') }

// crash ends a controller at a call.
type crash struct{}

var errLost = errors.New("the connection was lost")

// before is called before a call of a controller takes effect, after after it.
func (w *world) before(call string, args ...any) error {
	if w.quiet {
		return nil
	}
	if w.depth < 3 && w.one(8) {
		w.say(call+" is under way, and meanwhile:", args...)
		w.depth++
		for range 1 + w.IntN(3) {
			w.event()
		}
		w.depth--
	}
	switch w.IntN(60) {
	case 0:
		panic(crash{})
	case 1:
		return errLost
	}
	w.say(call, args...)
	return nil
}

func (w *world) after() error {
	if w.quiet {
		return nil
	}
	switch w.IntN(60) {
	case 0:
		w.counts["crashes after a write"]++
		panic(crash{})
	case 1:
		w.counts["answers lost"]++
		return errLost
	}
	return nil
}

// Get implements Store.
func (w view) Get(_ context.Context, node string) (State, error) {
	if err := w.before("get %s", node); err != nil {
		return State{}, err
	}
	n := w.nodes[index(node)]
	if !n.exists {
		return State{}, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	return n.state(w.owner), nil
}

// Update implements Store.
func (w view) Update(_ context.Context, node string, change func(*State) error) error {
	n := &w.nodes[index(node)]
	version, s := n.version, n.state(w.owner)
	if !n.exists {
		return apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	if err := change(&s); err != nil {
		return err
	}
	if err := w.before("%s writes %s: %s %s, claim %s", w.owner, node, s.Operation.ID, s.Operation.Phase, s.Claim.Operation); err != nil {
		return err
	}
	if n.version != version {
		w.counts["conflicts"]++
		w.say("conflict")
		return apierrors.NewConflict(corev1.Resource("nodes"), node, nil)
	}
	w.check(node, *n, s)
	n.operations[w.owner], n.claim, n.version = s.Operation, s.Claim, n.version+1
	return w.after()
}

// check looks at a controller's write.
func (w view) check(node string, was storedNode, is State) {
	from, to := was.operations[w.owner], is.Operation
	switch {
	case from.ID != to.ID:
		w.wrong("%s: operation %s was replaced by %s", node, from.ID, to.ID)
	case from.Phase.Ended() && from.Overdue && !to.Overdue && strings.Contains(to.Message, "; then: ") && from.Phase == to.Phase && from.Since.Equal(to.Since):
		// it has ended by the time limit, and now there is a result
	case from.Phase.Ended() && from != to:
		w.wrong("%s: operation %s was %s and became %s", node, from.ID, from.Phase, to.Phase)
	case from.Phase == Running && to.Phase == Requested:
		w.wrong("%s: operation %s was running, and is requested again", node, from.ID)
	}
	if j := w.jobs[w.of(to.ID)]; to.Phase != from.Phase && to.Phase.Ended() && to.Message == "" && (j == nil || j.end != to.Phase) {
		w.wrong("%s: operation %s is reported as %s, and was %+v", node, to.ID, to.Phase, j)
	}
	if was.claim.Owner != "" && was.claim.Owner != w.owner && is.Claim != was.claim {
		w.wrong("%s: the claim of %s was removed", node, was.claim.Owner)
	}
	if was.claim == (nodegroup.Claim{}) && is.Claim != was.claim && was.byPerson && from.Phase == Requested {
		w.wrong("%s: claimed though a person has cordoned it", node)
	}
	if is.Claim.Owner == w.owner && is.Claim != was.claim && from.Phase.Ended() {
		w.wrong("%s: claimed for operation %s, which had ended", node, from.ID)
	}
	if was.claim.Owner == w.owner && is.Claim != was.claim {
		if j := w.jobs[w.of(was.claim.Operation)]; j != nil && j.begun && j.end == "" {
			w.wrong("%s: operation %s lost its claim while it runs", node, was.claim.Operation)
		}
	}
}

// UpdateHolders implements Store.
func (w view) UpdateHolders(_ context.Context, name string, change func(nodegroup.Holders) (nodegroup.Holders, error)) error {
	l := w.leases[w.key(name)]
	version := l.version
	holders, err := change(l.holders)
	if err != nil {
		return err
	}
	if err := w.before("%s writes lock %s: %v", w.owner, name, holders); err != nil {
		return err
	}
	if l.version != version {
		w.counts["conflicts"]++
		w.say("conflict")
		return apierrors.NewConflict(corev1.Resource("leases"), name, nil)
	}
	l.holders, l.version = holders, l.version+1
	return w.after()
}

// Start implements Runner.
func (w view) Start(_ context.Context, node, id string) error {
	if err := w.before("%s starts %s on %s", w.owner, id, node); err != nil {
		return err
	}
	n := &w.nodes[index(node)]
	if !n.exists || n.born != w.born[w.of(id)] {
		return apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	if w.jobs[w.of(id)] != nil || !w.quiet && w.one(10) {
		return nil // it began before, was finished, or has something to do first
	}
	w.counts["starts"]++
	j := &job{owner: w.owner, node: index(node), begun: true}
	w.jobs[w.of(id)] = j
	w.say("%s of %s begins on %s", id, w.owner, node)
	for other, o := range w.jobs {
		if o != j && o.begun && o.end == "" && o.node == j.node {
			w.wrong("%s: operations %s and %s run at once", node, id, other.id)
		}
	}
	if s := n.state(w.owner); !s.owns(w.owner, id) {
		w.wrong("%s: operation %s runs without a claim: %+v", node, id, s)
	}
	if w.refused[w.of(id)] {
		w.wrong("%s: operation %s runs though it was refused", node, id)
	}
	for _, lock := range locks[j.node] {
		running := 0
		for _, o := range w.jobs {
			if o.begun && o.end == "" && slices.Contains(locks[o.node], lock) && (o.owner == w.owner || lock.Name == shared) {
				running++
			}
		}
		if running > lock.Max {
			w.wrong("%s: with operation %s, %d run that need the lock %s", node, id, running, lock.Name)
		}
	}
	return w.after()
}

// Observe implements Runner.
func (w view) Observe(_ context.Context, node, id string) (Result, error) {
	if err := w.before("%s observes %s", w.owner, id); err != nil {
		return Result{}, err
	}
	switch j := w.jobs[w.of(id)]; {
	case !w.quiet && w.one(10):
		return Result{Seen: Unknown}, nil
	case j == nil || j.finished:
		return Result{Seen: Absent}, nil
	case j.end == "":
		return Result{Seen: UnderWay}, nil
	default:
		return Result{Seen: Over, Phase: j.end}, nil
	}
}

// Finish implements Runner.
func (w view) Finish(_ context.Context, node, id string) error {
	if err := w.before("%s finishes %s", w.owner, id); err != nil {
		return err
	}
	j := w.jobs[w.of(id)]
	if j == nil {
		j = &job{owner: w.owner, node: index(node)}
		w.jobs[w.of(id)] = j
	}
	if j.begun && j.end == "" {
		w.wrong("%s: operation %s is finished while it runs", node, id)
	}
	j.finished = true
	return w.after()
}

// look returns what a companion sees now.
func (w view) look() Look {
	look := Look{Now: w.now, Owner: w.owner, TimeLimit: timeLimit, Holders: make(map[string]nodegroup.Holders, 2), Nodes: make([]Node, 0, len(w.nodes))}
	for i, n := range w.nodes {
		if !n.exists {
			continue
		}
		node := Node{Name: "n" + strconv.Itoa(i), State: n.state(w.owner), Locks: locks[i]}
		if n.waits {
			node.Waits = "paused"
		}
		if w.refused[w.of(node.Operation.ID)] {
			node.Refused = "not possible"
		}
		look.Nodes = append(look.Nodes, node)
	}
	for _, name := range []string{shared, "group"} {
		look.Holders[name] = w.leases[w.key(name)].holders
	}
	return look
}

// step runs a controller once, with the newest look or an older one.
func (w view) step(look Look) (again time.Time) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(crash); !is {
				panic(r)
			}
			w.say("it ends")
		}
	}()
	again, err := Rollout{w, w}.Step(context.Background(), look)
	if err != nil && w.quiet {
		w.wrong("an error while nothing disturbs: %v", err)
	}
	return again
}

// event lets something happen.
func (w *world) event() {
	i := w.IntN(len(w.nodes))
	n := &w.nodes[i]
	v := view{w, owners[w.IntN(len(owners))]}
	changed := true
	switch e := w.IntN(20); {
	case e < 9:
		changed = false
		look, looks := v.look(), w.looks[v.owner]
		if len(looks) < cap(looks) {
			looks = append(looks, look)
			w.looks[v.owner] = looks
		} else {
			looks[w.IntN(len(looks))] = look
		}
		if w.one(3) {
			look = looks[w.IntN(len(looks))]
		}
		if w.one(4) { // nodes and locks are not read at once
			look.Holders = looks[w.IntN(len(looks))].Holders
		}
		w.say("a controller of %s looks (as of %s)", v.owner, look.Now.Sub(time.Unix(0, 0)))
		v.step(look)
	case e < 12:
		// A webhook keeps users from asking twice. It may not be there.
		if op := n.operations[v.owner]; n.exists && (op.ID == "" || op.Phase.Ended() || w.one(6)) {
			w.ids[v.owner]++
			id := operationID(w.ids[v.owner])
			n.operations[v.owner] = Operation{ID: id, Phase: Requested, Since: w.now}
			w.refused[v.of(id)], w.born[v.of(id)] = w.one(10), n.born
			w.counts["requests"]++
			w.say("a user asks %s for %s on n%d (refused: %v)", v.owner, id, i, w.refused[v.of(id)])
		}
	case e < 15:
		changed = false
		w.progress()
	case e == 15:
		d := time.Duration(w.IntN(int(timeLimit/time.Second))) * time.Second
		w.now, changed = w.now.Add(d), false
		w.say("%s pass", d)
	case e == 16:
		n.cordoned, n.byPerson = !n.cordoned, !n.cordoned
		w.say("a person cordons n%d: %v", i, n.cordoned)
	case e == 17 && n.claim.Owner == "other":
		n.claim = nodegroup.Claim{}
		w.say("another program releases n%d", i)
	case e == 17 && (nodegroup.Claim{Owner: "other", Operation: "x"}).Check("", n.claim, n.cordoned, false) == nil && n.exists:
		n.claim = nodegroup.Claim{Owner: "other", Operation: "x", Since: w.now}
		w.say("another program claims n%d", i)
	case e == 18:
		n.waits, changed = !n.waits, false
	case e == 19 && w.one(2):
		if n.exists {
			for _, j := range w.jobs {
				if j.begun && j.end == "" && j.node == i {
					j.end = Failed
				}
			}
		}
		was := *n
		*n = newNode()
		n.exists, n.version, n.born = !was.exists, was.version, was.born+1
		w.say("n%d exists: %v", i, n.exists)
	case e == 19 && w.one(3):
		delete(n.operations, v.owner)
		w.say("somebody makes the operation of n%d unreadable", i)
	}
	if changed {
		n.version++
	}
}

// progress lets something that runs end, and reports whether anything runs.
func (w *world) progress() (busy bool) {
	for _, owner := range owners {
		for id := 1; id <= w.ids[owner]; id++ { // not by map, so that each history can be repeated
			j := w.jobs[operation{owner, operationID(id)}]
			if j == nil || !j.begun || j.end != "" {
				continue
			}
			if busy = true; w.one(2) {
				j.end = []Phase{Succeeded, Failed, RolledBack}[w.IntN(3)]
				w.say("%s of %s ends: %s", operationID(id), owner, j.end)
				break
			}
		}
	}
	return busy
}

// settle lets everything come to its end.
func (w *world) settle() {
	w.quiet = true
	for i := range w.nodes {
		n := &w.nodes[i]
		n.waits, n.cordoned, n.byPerson, n.version = false, false, false, n.version+1
		if n.claim.Owner == "other" {
			n.claim = nodegroup.Claim{}
		}
	}
	w.say("nothing disturbs any more")
	for range 200 {
		busy := w.progress()
		for _, owner := range owners {
			v := view{w, owner}
			look := v.look()
			again := v.step(look)
			busy = busy || !again.IsZero() && again.Sub(look.Now) <= startAgain
		}
		if !busy {
			break
		}
	}
	for i, n := range w.nodes {
		for _, owner := range owners {
			id := n.operations[owner].ID
			j := w.jobs[operation{owner, id}]
			switch op := n.operations[owner]; {
			case !n.exists || id == "":
			case !op.Phase.Ended():
				w.wrong("n%d: operation %s of %s was lost: it stays %s", i, id, owner, op.Phase)
			case !w.refused[operation{owner, id}] && !strings.HasPrefix(op.Message, "no result after") && (j == nil || !j.begun):
				w.wrong("n%d: operation %s of %s was lost: it is %s, and never ran", i, id, owner, op.Phase)
			}
		}
		if n.claim != (nodegroup.Claim{}) {
			w.wrong("n%d: the claim of %s is left", i, n.claim.Operation)
		}
	}
	for name, l := range w.leases {
		if len(l.holders) > 0 {
			w.wrong("the lock %s is left to %v", name, l.holders)
		}
	}
}

func run(seed uint64, counts map[string]int, tell bool) *world {
	w := newWorld(seed, counts)
	w.tell = tell
	for range 10 + w.IntN(26) {
		w.event()
		if len(w.problems) > 0 {
			return w
		}
	}
	w.settle()
	return w
}

func TestHistories(t *testing.T) {
	first, last := uint64(1), uint64(*histories)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	start, workers := time.Now(), uint64(runtime.GOMAXPROCS(0))
	counts, failed := make([]map[string]int, workers), make([]uint64, workers)
	var wait sync.WaitGroup
	for i := range workers {
		counts[i] = map[string]int{}
		wait.Go(func() {
			for s := first + i; s <= last && failed[i] == 0; s += workers {
				if w := run(s, counts[i], false); len(w.problems) > 0 {
					failed[i] = s
				}
			}
		})
	}
	wait.Wait()
	for _, s := range failed {
		if s != 0 {
			w := run(s, map[string]int{}, true)
			t.Fatalf("history %d (go test -run TestHistories -seed=%d):\n%s\n%s", s, s, strings.Join(w.story, "\n"), strings.Join(w.problems, "\n"))
		}
	}
	for _, more := range counts[1:] {
		for what, n := range more {
			counts[0][what] += n
		}
	}
	t.Logf("%d histories in %s: %v", last-first+1, time.Since(start).Round(time.Millisecond), counts[0])
	for _, what := range []string{"requests", "starts", "conflicts", "answers lost", "crashes after a write"} {
		if *seed == 0 && counts[0][what] == 0 {
			t.Errorf("the histories have no %s", what)
		}
	}
}
