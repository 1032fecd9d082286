// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"reflect"
	"testing"
)

func TestARoundFollowsFromItsSeedAndNumber(t *testing.T) {
	for number := range 3 * EpochLength {
		if one, other := Plan(7, number, 4), Plan(7, number, 4); !reflect.DeepEqual(one, other) {
			t.Errorf("round %d is planned as\n%v and as\n%v", number, one, other)
		}
	}
	if one, other := Plan(7, 3, 4), Plan(8, 3, 4); reflect.DeepEqual(one, other) {
		t.Errorf("two seeds give the same round:\n%v", one)
	}
	if one, other := Plan(7, 3, 4), Plan(7, 4, 4); reflect.DeepEqual(one.Pods, other.Pods) {
		t.Errorf("two rounds have the same pods:\n%v", one.Pods)
	}
}

func TestAnEpochDisturbsEveryComponent(t *testing.T) {
	for seed := range uint64(20) {
		seen := map[string]bool{}
		for number := range EpochLength {
			for _, event := range Plan(seed, EpochLength+number, 2).Events {
				if event.Component != "" {
					seen[event.String()] = true
				}
			}
		}
		for _, component := range append(watched, others...) {
			for _, action := range []Action{Restart, Kill} {
				if want := fmt.Sprintf("%s %s", action, component); !seen[want] {
					t.Errorf("with the seed %d, an epoch has no %q", seed, want)
				}
			}
		}
	}
}

func TestTheKubeletRunsOnOnceItIsWatched(t *testing.T) {
	for number := range 4 * EpochLength {
		round := Plan(1, number, 2)
		for _, event := range round.Events {
			disturbs := event.Action == ChangePools || event.Component == "kubelet" || event.Component == "kube-apiserver"
			if disturbs && number%EpochLength >= Disturbed {
				t.Errorf("round %d has the event %q", number, event)
			}
		}
		if first := Plan(1, number/EpochLength*EpochLength, 2); first.Pool != round.Pool {
			t.Errorf("round %d has the pool %d, and the first of its epoch %d", number, round.Pool, first.Pool)
		}
	}
}

func TestPoolsChangeToAnotherCPUOfTheHost(t *testing.T) {
	for _, cpus := range []int{2, 3, 8} {
		for number := range 20 * EpochLength {
			round := Plan(5, number, cpus)
			if round.Pool < 0 || round.Pool >= cpus {
				t.Errorf("of %d CPUs, round %d has the pool %d", cpus, number, round.Pool)
			}
			for _, event := range round.Events {
				if event.Action == ChangePools && (event.CPU < 0 || event.CPU >= cpus || event.CPU == round.Pool) {
					t.Errorf("of %d CPUs, round %d with the pool %d changes it to %d", cpus, number, round.Pool, event.CPU)
				}
			}
		}
	}
}

func TestEveryRoundHasPodsOfEveryKind(t *testing.T) {
	for number := range 2 * EpochLength {
		seen := map[Pod]bool{}
		for _, pod := range Plan(9, number, 2).Pods {
			if (pod.Millicores > 0) != (pod.Partitioned && pod.Kind != BestEffort) {
				t.Errorf("round %d has the pod %+v", number, pod)
			}
			pod.Millicores = 0
			seen[pod] = true
		}
		if kinds := 6; len(seen) != 2*kinds+1 {
			t.Errorf("round %d has %d kinds of pods: %v", number, len(seen), seen)
		}
	}
}

func TestThePodsOfARoundFitTheHost(t *testing.T) {
	for _, cpus := range []int{2, 3, 8} {
		for number := range 100 * EpochLength {
			var sum int64
			for _, pod := range Plan(5, number, cpus).Pods {
				sum += pod.Request()
			}
			if most := 1000 * int64(cpus); sum > most {
				t.Errorf("of %d CPUs, round %d has pods that ask for %d millicores, and the host has %d", cpus, number, sum, most)
			}
		}
	}
}
