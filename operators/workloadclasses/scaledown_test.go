// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// begun is an operation and a situation in which it goes on.
func begun(phase Phase) (Operation, Situation) {
	one := int32(1)
	o := Operation{ID: "a1", Phase: phase, Since: now.Add(-time.Minute)}
	if phase != Draining {
		o.Machine, o.UID, o.Set, o.Replicas, o.Generation = types.NamespacedName{Namespace: "m", Name: "m1"}, "u1", "s", 8, 5
	}
	return o, Situation{
		Cordoned: true, Turn: true,
		Machine: &Machine{Name: types.NamespacedName{Namespace: "m", Name: "m1"}, UID: "u1", Node: "n1", Set: "s", Running: true},
		Set:     &Set{Name: "s", Replicas: 8, Generation: 5, Settled: true, Minimum: &one},
	}
}

func TestStep(t *testing.T) {
	marked := func(_ *Operation, s *Situation) { s.Machine.Operation, s.Machine.Marked = "a1", true }
	for name, test := range map[string]struct {
		phase  Phase
		change func(*Operation, *Situation)
		// want is the kind of the action, and part of why or of the reason that is written.
		want ActionKind
		why  string
	}{
		"within the grace DaemonSets' pods leave":          {Draining, func(o *Operation, _ *Situation) { o.Since = now.Add(-39 * time.Second) }, Evict, "leave"},
		"while some are left it waits":                     {Draining, func(_ *Operation, s *Situation) { s.Leave = 1 }, Evict, "leave"},
		"then size and generation of the set are recorded": {Draining, func(*Operation, *Situation) {}, Persist, ""},
		"another one's turn is waited for":                 {Draining, func(_ *Operation, s *Situation) { s.Turn = false }, Wait, "set s changes its size"},
		"a set that changes its size is waited for":        {Draining, func(_ *Operation, s *Situation) { s.Set.Settled = false }, Wait, "set s changes its size"},
		"after five minutes the node is freed":             {Draining, func(o *Operation, _ *Situation) { o.Since = now.Add(-301 * time.Second) }, Persist, "too long"},
		"a pod that came frees the node":                   {Draining, func(_ *Operation, s *Situation) { s.Pod = "x/y" }, Persist, "pod x/y came"},
		"a pod that waits frees the node":                  {Draining, func(_ *Operation, s *Situation) { s.Demanded = true }, Persist, "waits would fit"},
		"a keep mark frees the node":                       {Draining, func(_ *Operation, s *Situation) { s.Held = "it is kept" }, Persist, "it is kept"},
		"a person's uncordon frees the node":               {Draining, func(_ *Operation, s *Situation) { s.Cordoned = false }, Persist, "uncordoned"},
		"a node without Machine is freed":                  {Draining, func(_ *Operation, s *Situation) { s.Machine = nil }, Persist, "no Machine"},
		"a Machine of two sets is left":                    {Draining, func(_ *Operation, s *Situation) { s.Set = nil }, Persist, "more than one"},
		"a Machine that somebody else marked is left":      {Draining, func(_ *Operation, s *Situation) { s.Machine.Marked = true }, Persist, "somebody else marked"},
		"the minimum is kept":                              {Draining, func(_ *Operation, s *Situation) { s.Set.Replicas = 1 }, Persist, "minimum of 1"},
		"without an autoscaler nothing is given back":      {Draining, func(_ *Operation, s *Situation) { s.Set.Minimum = nil }, Persist, "no autoscaler"},
		"during a rollout nothing is given back":           {Draining, func(_ *Operation, s *Situation) { s.Set.Obstacle = Obstacle{Rollout, "a rollout is under way"} }, Persist, "a rollout"},
		"the Machine is marked first":                      {Removing, func(*Operation, *Situation) {}, Mark, ""},
		"then its set has one less":                        {Removing, marked, Scale, ""},
		"a pod that came after the mark frees the node":    {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Pod = "x/y" }, Persist, "pod x/y came"},
		"once it has one less the set is waited for": {Removing, func(o *Operation, s *Situation) {
			marked(o, s)
			s.Set.Generation, s.Set.Replicas, s.Set.Settled = 6, 7, false
		}, Wait, "deletes its Machine"},
		"a Machine that is being deleted is waited for":     {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Machine.Deleting = true }, Wait, "being deleted"},
		"a Machine that is gone is waited for":              {Removing, func(_ *Operation, s *Situation) { s.Machine = nil }, Wait, "being deleted"},
		"a new Machine of that name is not touched":         {Removing, func(_ *Operation, s *Situation) { s.Machine.UID = "u2" }, Wait, ""},
		"a set that deleted another Machine frees this one": {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Set.Generation, s.Set.Replicas = 6, 7 }, Persist, "another Machine"},
		"if the autoscaler was faster the node is freed":    {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Set.Generation, s.Set.Replicas = 6, 9 }, Persist, "somebody else changed"},
		"if it raises the set again the node is freed":      {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Set.Generation, s.Set.Replicas = 7, 8 }, Persist, "somebody else changed"},
		"but not before the set's controller has seen that": {Removing, func(o *Operation, s *Situation) {
			marked(o, s)
			s.Set.Generation, s.Set.Replicas, s.Set.Settled = 7, 8, false
		}, Wait, "changes its size"},
		"a template that changed frees the node":             {Removing, func(o *Operation, s *Situation) { marked(o, s); s.Set.Generation = 6 }, Persist, "somebody else changed"},
		"a size that somebody lowered before the mark is so": {Removing, func(_ *Operation, s *Situation) { s.Set.Generation, s.Set.Replicas = 6, 7 }, Persist, "somebody else changed"},
		"the marks go first":                                 {Returning, marked, Unmark, ""},
		"then the node is freed":                             {Returning, func(*Operation, *Situation) {}, Release, ""},
		"marks of others stay":                               {Returning, func(_ *Operation, s *Situation) { s.Machine.Marked = true }, Release, ""},
		"without a Machine the node is freed":                {Returning, func(_ *Operation, s *Situation) { s.Machine = nil }, Release, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := begun(test.phase)
			test.change(&o, &s)
			action := Step(o, s, now, DefaultTiming())
			if action.Kind != test.want || !strings.Contains(action.Why+action.Operation.Reason, test.why) {
				t.Errorf("got %+v", action)
			}
			if action.Kind == Persist {
				if again, err := ParseOperation(action.Operation.String()); err != nil || again.String() != action.Operation.String() || again.ID != o.ID {
					t.Errorf("what is written cannot be read: %+v %v", again, err)
				}
			}
		})
	}
}

// world is one set with its Machines, for histories.
type world struct {
	replicas, observed   int32
	generation, seen     int64
	machines             []*Machine
	operation            *Operation
	released             bool
	pod                  bool
	at                   time.Time
	scaledByUs, lostPods int
}

// controller is one look of the set's controller, which picks marked Machines first, and else any.
func (w *world) controller(random *rand.Rand) {
	var there []*Machine
	for _, m := range w.machines {
		if !m.Deleting {
			there = append(there, m)
		}
	}
	count := len(there)
	random.Shuffle(count, func(i, j int) { there[i], there[j] = there[j], there[i] })
	slices.SortStableFunc(there, func(a, b *Machine) int { return compareBool(b.Marked, a.Marked) })
	for i := 0; i < count-int(w.replicas); i++ {
		there[i].Deleting = true
		if there[i].UID == "u0" && w.pod {
			w.lostPods++
		}
	}
	for i := count; i < int(w.replicas); i++ {
		w.machines = append(w.machines, &Machine{Name: types.NamespacedName{Name: fmt.Sprint(len(w.machines))}, UID: types.UID(fmt.Sprintf("u%d", len(w.machines))), Running: true})
	}
	w.observed, w.seen = int32(count), w.generation
}

func (w *world) look() (Operation, Situation, int64) {
	one := int32(1)
	s := Situation{Cordoned: true, Turn: true, Machine: w.machines[0], Set: &Set{
		Name: "s", Replicas: w.replicas, Generation: w.generation, Settled: w.seen == w.generation && w.observed == w.replicas, Minimum: &one,
	}}
	machine := *w.machines[0]
	s.Machine = &machine
	if w.pod {
		s.Pod = "x/y"
	}
	return *w.operation, s, w.generation
}

func (w *world) write(a Action, read int64) {
	m := w.machines[0]
	switch a.Kind {
	case Persist:
		o, err := ParseOperation(a.Operation.String())
		if err != nil {
			panic(err)
		}
		w.operation = &o
	case Mark:
		m.Operation, m.Marked = w.operation.ID, true
	case Unmark:
		m.Operation, m.Marked = "", false
	case Scale:
		if read == w.generation { // the precondition
			w.replicas, w.generation, w.scaledByUs = w.replicas-1, w.generation+1, w.scaledByUs+1
		}
	case Release:
		w.released = true
	}
}

// In seeded histories the set's controller, an autoscaler and the scheduler act between any two of our
// steps, and a step is now and then lost, before or after its write. Then: one replica at most is
// taken, no other Machine goes than the one that is emptied or those that somebody else's sizes cost,
// and nothing is left half done.
func TestHistoriesOfStep(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 67))
		w := &world{replicas: 8, at: now}
		for range 8 {
			w.controller(random)
		}
		w.operation = &Operation{ID: "a1", Phase: Draining, Since: now}
		alone := random.IntN(2) == 0 // nobody else changes the set
		lowered := 0
		for step := 0; step < 200 && !w.released && !w.machines[0].Deleting; step++ {
			w.at = w.at.Add(time.Duration(random.IntN(20)) * time.Second)
			switch choice := random.IntN(12); {
			case choice < 5:
				o, s, read := w.look()
				action := Step(o, s, w.at, DefaultTiming())
				if random.IntN(6) == 0 {
					break // killed before the write
				}
				if !alone && random.IntN(10) == 0 { // in between
					w.replicas, w.generation = w.replicas+1, w.generation+1
				}
				w.write(action, read) // and perhaps killed afterwards: nothing is remembered
			case choice < 9:
				w.controller(random)
			case choice == 9 && !alone && w.replicas > 2:
				w.replicas, w.generation, lowered = w.replicas-1, w.generation+1, lowered+1
			case choice == 10 && !alone:
				w.replicas, w.generation = w.replicas+1, w.generation+1
			case choice == 11 && random.IntN(20) == 0 && w.operation.Phase == Draining:
				w.pod = true
			}
		}
		w.controller(random)
		deleted := 0
		for _, m := range w.machines {
			if m.Deleting {
				deleted++
			}
		}
		fail := func(text string) { t.Errorf("seed %d: %s: %+v, operation %+v", seed, text, *w, *w.operation) }
		switch {
		case w.scaledByUs > 1:
			fail("more than one replica was taken")
		case deleted > w.scaledByUs+lowered:
			fail("more Machines went than anybody asked for")
		case !w.machines[0].Deleting && deleted > lowered:
			fail("another Machine went for ours")
		case w.lostPods > 0 && lowered == 0:
			fail("a pod was lost")
		case alone && deleted > 0 && !w.machines[0].Deleting:
			fail("another Machine went")
		case alone && w.released && w.scaledByUs > 0:
			fail("it gave up after it had taken a replica")
		case !w.released && !w.machines[0].Deleting:
			fail("it never ended")
		case w.released && w.machines[0].Operation != "" && !w.machines[0].Deleting:
			fail("marks are left")
		}
		outcomes[fmt.Sprintf("given back %v, freed %v", w.machines[0].Deleting, w.released)]++
	}
	t.Log(outcomes)
}
