// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
)

var scale = flag.Bool("scale", false, "run TestAHundredPools")

// TestAHundredPools changes the Tuneds of a hundred NodePools of ten nodes at once, as an edit of a ConfigMap that all of them
// name does.
func TestAHundredPools(t *testing.T) {
	if !*scale {
		t.Skip("it makes a thousand nodes; -args -scale runs it")
	}
	const pools, nodes = 100, 10
	p := newPair(t)
	each := func(do func(pool string)) {
		var wait sync.WaitGroup
		work := make(chan string)
		for range 8 {
			wait.Go(func() {
				for pool := range work {
					do(pool)
				}
			})
		}
		for i := range pools {
			work <- fmt.Sprintf("pool-%d", i)
		}
		close(work)
		wait.Wait()
	}
	configure := func(value string) map[string]string {
		want := map[string]string{"default": ""}
		for i := range pools {
			want[tuning.HostedName("queues", fmt.Sprintf("pool-%d", i))] = value
		}
		each(func(pool string) { p.configure(pool, tunedText("queues", value)) })
		return want
	}
	each(func(pool string) {
		for i := range nodes {
			p.node(fmt.Sprintf("%s-%d", pool, i), pool)
		}
	})
	profiles := func(value string) error {
		var list tunedv1.ProfileList
		if err := p.hosted.Client.List(t.Context(), &list, client.InNamespace(tunedv1.Namespace)); err != nil {
			return err
		}
		got := 0
		for _, profile := range list.Items {
			if len(profile.Spec.Profile) == 1 && strings.HasSuffix(strings.TrimSpace(profile.Spec.Profile[0].Data), "="+value) {
				got++
			}
		}
		if got != pools*nodes {
			return fmt.Errorf("%d of the %d Profiles have %s", got, pools*nodes, value)
		}
		return nil
	}
	requests := func() (found map[string]int) {
		data, err := os.ReadFile(p.hosted.AuditLog())
		p.do(err)
		found = map[string]int{}
		for line := range strings.Lines(string(data)) {
			var event struct {
				Verb      string
				ObjectRef struct{ Resource, Subresource string }
			}
			p.do(json.Unmarshal([]byte(line), &event))
			found[event.Verb+" "+event.ObjectRef.Resource+event.ObjectRef.Subresource]++
		}
		return found
	}
	want := configure("32768")
	p.start()
	p.eventuallyTuneds(time.Minute, want)
	testenv.Eventually(t, 2*time.Minute, func() error { return profiles("32768") })
	time.Sleep(5 * time.Second)
	memory, before := p.process.Memory(t), requests()

	begin := time.Now()
	want = configure("40000")
	written := time.Since(begin)
	testenv.Eventually(t, time.Minute, func() error {
		if got := p.tuneds(); !maps.Equal(got, want) {
			return fmt.Errorf("the Tuneds are not there")
		}
		return nil
	})
	tuneds := time.Since(begin)
	testenv.Eventually(t, 2*time.Minute, func() error { return profiles("40000") })
	t.Logf("%d ConfigMaps were written in %s; the last Tuned was there after %s, and the last of %d Profiles after %s; %d MiB before, %d MiB after",
		pools, written.Round(time.Millisecond), tuneds.Round(time.Millisecond), pools*nodes, time.Since(begin).Round(time.Millisecond), memory>>20, p.process.Memory(t)>>20)
	for name, count := range requests() {
		if count -= before[name]; count > 0 {
			t.Logf("%s: %d", name, count)
		}
	}
	if tuneds > 5*time.Second {
		t.Errorf("the last Tuned was there after %s", tuneds)
	}
	if now := p.process.Memory(t); now > 50<<20 {
		t.Errorf("it takes %d MiB", now>>20)
	}
}
