// SPDX-License-Identifier: Apache-2.0

// Package soak has what a long test needs besides a cluster: the plan of each round, which follows
// from a seed; the state, which outlives interruptions; and the judgement whether something grows.
// It must not know how a round is carried out.
package soak

import (
	"fmt"
	"math/rand/v2"
)

// Round is what happens in one round. It follows from the seed, its number and the number of CPUs
// alone, so that it can be run again without those before it.
type Round struct {
	Number int
	// Pool is the CPU of the pool.
	Pool int
	// Pods run for the whole round, unless an event ends them.
	Pods []Pod
	// Events come one after another, while the pods run.
	Events []Event
}

// Pod is a pod of a round.
type Pod struct {
	Kind        Kind
	Partitioned bool
	// Millicores is the cpu request of each container; zero means none. Ordinary pods have none:
	// the exclusive container may take all that is allocatable. All pods of a round together fit
	// the cores of the host.
	Millicores int64
}

// Request is what the containers of a pod that run at once ask for together, in millicores.
func (p Pod) Request() int64 {
	if p.Kind == WithInit { // a sidecar and two containers
		return 3 * p.Millicores
	}
	return p.Millicores
}

// Kind is what a pod is like.
type Kind string

// The kinds of pods.
const (
	Burstable   Kind = "burstable"
	Limited     Kind = "limited" // with limits
	BestEffort  Kind = "besteffort"
	WithInit    Kind = "with-init" // with an init container, a sidecar and two containers
	HostNetwork Kind = "host-network"
	Crashing    Kind = "crashing" // its container fails again and again
	Exclusive   Kind = "exclusive"
)

// Action is what is done in an event.
type Action string

// The actions.
const (
	Restart     Action = "restart"      // a component, which ends in order
	Kill        Action = "kill"         // a component
	ChangePools Action = "change pools" // to the CPU of the event, and back
	Resize      Action = "resize"       // memory of the pods that have limits, in place
	Replace     Action = "replace"      // some pods by new ones
)

// Event is something that happens to a node while pods run.
type Event struct {
	Action Action
	// Component is what is restarted or killed, by its name in a cluster.
	Component string
	// CPU is the other pool of ChangePools, and MiB the new request of Resize.
	CPU, MiB int
}

func (e Event) String() string {
	switch e.Action {
	case ChangePools:
		return fmt.Sprintf("%s to %d and back", e.Action, e.CPU)
	case Resize:
		return fmt.Sprintf("%s to %d MiB", e.Action, e.MiB)
	}
	return e.Label()
}

// Label is by which events are counted: the action, and the component if there is one.
func (e Event) Label() string {
	if e.Component == "" {
		return string(e.Action)
	}
	return fmt.Sprintf("%s %s", e.Action, e.Component)
}

// Rounds come in epochs. In the first ones of each, the kubelet and kube-apiserver restart, and
// pools change. In the others both run on, so that growth shows; all other components restart
// there. In each epoch each of those is restarted and killed as often as timesEach says.
const (
	EpochLength = 48
	Disturbed   = 4
	timesEach   = 8
)

var (
	watched = []string{"kubelet", "kube-apiserver"}
	others  = []string{"containerd", "etcd", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
)

// A round has one to mostOfAKind partitioned pods of each of these kinds, and as many ordinary ones.
var kinds = []Kind{Burstable, Limited, BestEffort, WithInit, HostNetwork, Crashing}

const mostOfAKind = 2

// mostMillicores returns the largest request of a container with which the partitioned pods of any
// round fit the cores of so many CPUs together. It is not beyond 400.
func mostMillicores(cpus int) int64 {
	var containers int64
	for _, kind := range kinds {
		if kind != BestEffort {
			containers += mostOfAKind * Pod{Kind: kind, Millicores: 1}.Request()
		}
	}
	return min(400, 1000*int64(cpus)/containers)
}

// Plan returns a round of a host that has the CPUs 0 to cpus-1, two at least.
func Plan(seed uint64, number, cpus int) Round {
	epoch, inEpoch := number/EpochLength, number%EpochLength
	// No round has the number that an epoch's random numbers have.
	ofEpoch := rand.New(rand.NewPCG(seed, ^uint64(epoch)))
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	round := Round{Number: number, Pool: ofEpoch.IntN(cpus)}
	most := mostMillicores(cpus)
	for _, kind := range kinds {
		for _, partitioned := range []bool{true, false} {
			for range 1 + r.IntN(mostOfAKind) {
				pod := Pod{Kind: kind, Partitioned: partitioned}
				if partitioned && kind != BestEffort {
					pod.Millicores = 10 * (1 + r.Int64N(most/10))
				}
				round.Pods = append(round.Pods, pod)
			}
		}
	}
	round.Pods = append(round.Pods, Pod{Kind: Exclusive})
	resize := Event{Action: Resize, MiB: 17 + r.IntN(8)}
	round.Events = []Event{resize, {Action: Replace}}
	if inEpoch < Disturbed {
		for _, component := range watched {
			for _, action := range []Action{Restart, Kill} {
				round.Events = append(round.Events, Event{Action: action, Component: component})
			}
		}
		round.Events = append(round.Events, Event{Action: ChangePools, CPU: (round.Pool + 1 + r.IntN(cpus-1)) % cpus})
	} else {
		steady := EpochLength - Disturbed
		var events []int
		for range timesEach {
			events = append(events, ofEpoch.Perm(2*len(others))...)
		}
		for i, of := range events {
			if i%steady == inEpoch-Disturbed {
				round.Events = append(round.Events, Event{Action: []Action{Restart, Kill}[of%2], Component: others[of/2]})
			}
		}
	}
	r.Shuffle(len(round.Events), func(i, j int) { round.Events[i], round.Events[j] = round.Events[j], round.Events[i] })
	return round
}
