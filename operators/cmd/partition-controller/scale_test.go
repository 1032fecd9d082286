// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/testenv"
)

var scale = flag.Int("pools", 0, "how many NodePools TestPoolsOfTenNodes has")

// What the companions cost for NodePools of ten nodes that name one ConfigMap: at rest, and for an edit of that.
func TestPoolsOfTenNodes(t *testing.T) {
	if *scale == 0 {
		t.Skip("it makes a thousand nodes, and takes minutes; make bench-tuning runs it")
	}
	pools := *scale
	const (
		nodes = 10
		rest  = time.Minute
		// What is promised.
		soon, memory = 5 * time.Second, 50 << 20
		steady       = 20 * rest / 1000
	)
	const enough = 10 * time.Minute // for what is not measured
	s := newSite(t)
	s.source("all", aBoot("10000", "audit=0"))
	for i := range pools {
		s.names(fmt.Sprintf("pool-%d", i), "all")
	}
	testenv.Eventually(t, enough, func() error {
		var list v1beta1.NodePoolList
		s.do(s.home.Client.List(t.Context(), &list))
		for i := range list.Items {
			if list.Items[i].Annotations[v1beta1.TargetConfigAnnotation] == "" {
				return fmt.Errorf("NodePool %s has no configuration to boot with", list.Items[i].Name)
			}
		}
		return nil
	})
	for i := range pools {
		for j := range nodes {
			s.do(s.provider.Join(t.Context(), fmt.Sprintf("node-%d-%d", i, j), fmt.Sprintf("pool-%d", i)))
		}
	}
	// has returns an error unless as many texts as wanted have a value, and there are no others.
	has := func(value string, want int, texts []string) error {
		got := 0
		for _, text := range texts {
			if strings.Contains(text, "kernel.msgmnb="+value+"\n") {
				got++
			}
		}
		if got != want || len(texts) != want {
			return fmt.Errorf("%d of %d have %s, want %d", got, len(texts), value, want)
		}
		return nil
	}
	tuneds := func(value string) error {
		var list tunedv1.TunedList
		s.do(s.hosted.Client.List(t.Context(), &list, client.InNamespace(tunedv1.Namespace), client.HasLabels{tunedv1.NodePoolNameLabel}))
		var texts []string
		for _, tuned := range list.Items {
			texts = append(texts, tuned.Spec.Profile[0].Data)
		}
		return has(value, pools, texts)
	}
	profiles := func(value string) error {
		var list tunedv1.ProfileList
		s.do(s.hosted.Client.List(t.Context(), &list, client.InNamespace(tunedv1.Namespace)))
		var texts []string
		for _, profile := range list.Items {
			for _, each := range profile.Spec.Profile {
				texts = append(texts, each.Data)
			}
		}
		return has(value, pools*nodes, texts)
	}
	// quiet waits until nobody has written anything for ten seconds.
	quiet := func() {
		t.Helper()
		last, since := s.requests(), time.Now()
		testenv.Eventually(t, enough, func() error {
			operands := s.operands()
			now := s.requests()
			if operands || len(writesOf(less(now, last))) > 0 {
				last, since = now, time.Now()
			}
			if time.Since(since) < 10*time.Second {
				return fmt.Errorf("something was written %s ago", time.Since(since))
			}
			return nil
		})
	}
	testenv.Eventually(t, enough, func() error { return profiles("10000") })
	quiet()

	before, cpu := s.requests(), s.cpu()
	time.Sleep(rest)
	atRest, took := less(s.requests(), before), s.cpu()
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		took[name] -= cpu[name]
		t.Logf("at rest: %-12s %.1f m of a CPU, %d MiB", name, 1000*took[name].Seconds()/rest.Seconds(), s.processes[name].Memory(t)>>20)
		if took[name] > steady {
			t.Errorf("%s takes %s of CPU time in %s, want at most %s", name, took[name], rest, steady)
		}
	}
	t.Logf("at rest, in %s: %v", rest, atRest)
	if writes := writesOf(atRest); len(writes) > 0 {
		t.Errorf("at rest there are the writes %v", writes)
	}

	before, cpu = s.requests(), s.cpu()
	began := time.Now()
	s.source("all", aBoot("20000", "audit=0"))
	testenv.Eventually(t, enough, func() error { return tuneds("20000") })
	last := time.Since(began)
	testenv.Eventually(t, enough, func() error { return profiles("20000") })
	t.Logf("an edit of the ConfigMap: the last of %d Tuneds has it after %s, and the last of %d Profiles after %s", pools, last.Round(10*time.Millisecond), pools*nodes, time.Since(began).Round(10*time.Millisecond))
	quiet()
	changed, took := less(s.requests(), before), s.cpu()
	for _, each := range slices.Sorted(maps.Keys(changed)) {
		t.Logf("until all nodes have reported it: %s: %d", each, changed[each])
	}
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		used := s.processes[name].Memory(t)
		t.Logf("until all nodes have reported it: %-12s %s of CPU time, %d MiB", name, (took[name] - cpu[name]).Round(10*time.Millisecond), used>>20)
		if used > memory {
			t.Errorf("%s takes %d MiB, want at most %d", name, used>>20, memory>>20)
		}
	}
	if last > soon {
		t.Errorf("the last Tuned has the edit after %s, want %s", last, soon)
	}
	s.do(s.hosted.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(tunedv1.Namespace), client.GracePeriodSeconds(0)))
}

// cpu is the CPU time that each companion has taken.
func (s *site) cpu() map[string]time.Duration {
	s.Helper()
	took := map[string]time.Duration{}
	for name, process := range s.processes {
		took[name] = process.CPU(s.T)
	}
	return took
}

// requests counts those that the companions have made, as COMPANION, cluster: VERB RESOURCE, but for their Leases.
func (s *site) requests() map[string]int {
	s.Helper()
	count := map[string]int{}
	for in, of := range map[string]*testenv.ControlPlane{"home": s.home, "hosted": s.hosted} {
		for user, requests := range of.Requests(s.T) {
			account, companions := strings.CutPrefix(user, "system:serviceaccount:partition-")
			if !companions {
				continue
			}
			name, _, _ := strings.Cut(account, ":")
			for request, times := range requests {
				count[fmt.Sprintf("%s, %s: %s", name, in, request)] += times
			}
		}
	}
	return count
}

// less is what came since.
func less(now, before map[string]int) map[string]int {
	came := map[string]int{}
	for each, count := range now {
		if count > before[each] {
			came[each] = count - before[each]
		}
	}
	return came
}

// writesOf are the requests that change something.
func writesOf(requests map[string]int) map[string]int {
	writes := maps.Clone(requests)
	maps.DeleteFunc(writes, func(each string, _ int) bool {
		_, request, _ := strings.Cut(each, ": ")
		return !testenv.Writes(request)
	})
	return writes
}
