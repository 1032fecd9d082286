//go:build go1.25

/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package managed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// v1.34 builds with a Go that lacks synctest, so this file has nothing but what needs it.

func TestContainersAreMovedUntilAllAreWhereTheyBelong(t *testing.T) {
	for name, test := range map[string]struct {
		pools   partition.Pools
		wasOn   bool
		answers []bool
		want    int
		// wantRecord means that containers may be confined in the end.
		wantRecord bool
	}{
		"without a file there are no passes":                   {},
		"a type without CPUs still has weights to repair":      {pools: partition.Pools{"management": cpuset.New()}, answers: []bool{true, true}, want: 2, wantRecord: true},
		"passes end when all containers are where they belong": {pools: management, answers: []bool{false, false, true}, want: 3, wantRecord: true},
		"passes end when there have been enough":               {pools: management, want: mostPasses + 100, wantRecord: true},
		"the file has gone, and all containers are freed":      {wasOn: true, answers: []bool{false, true}, want: 2},
		"the file has gone, and some containers never run":     {wasOn: true, want: mostPasses + 100},
		"the type has lost its CPUs":                           {pools: partition.Pools{"management": cpuset.New()}, wasOn: true, answers: []bool{true, true}, want: 2, wantRecord: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				startedIn(t, t.TempDir())
				shim.host.log, _ = ktesting.NewTestContext(t)
				shim.host.previous.confined = test.wasOn
				if test.pools != nil {
					on(t, test.pools)
				}
				if test.wasOn {
					newNode(partition.Pools{"management": cpuset.New(0)}, cpuset.New(0, 1), cpuset.New(), cpuset.New()).writeRecord(nil)
				}
				passes := 0
				reconcile := func(context.Context) (moved, failed []string) {
					passes++
					if passes <= len(test.answers) && test.answers[passes-1] {
						return []string{"c"}, nil
					}
					return nil, []string{"c"}
				}
				// The first passes are too early to count. Without an API server they may be many.
				early := 1
				if test.answers == nil {
					early = 100
				}
				MoveContainers[string](10*time.Second, func() bool { return passes >= early }, reconcile)
				time.Sleep(time.Hour)
				synctest.Wait()
				if passes != test.want {
					t.Errorf("there were %d passes, want %d", passes, test.want)
				}
				if record, _ := readRecord(); record.confined != test.wantRecord {
					t.Errorf("there is a record: %v, want %v", record.confined, test.wantRecord)
				}
			})
		})
	}
}

// reconciled is upstream's reconciledContainer.
type reconciled struct{ podName, containerName, containerID string }

// A runtime that is down for long does not leave containers where they do not belong.
func TestContainersThatRunAreMovedHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		startedIn(t, t.TempDir())
		shim.host.log, _ = ktesting.NewTestContext(t)
		on(t, management)
		passes, away := 0, 10*mostPasses
		reconcile := func(context.Context) (moved, failed []reconciled) {
			switch passes++; {
			case passes <= away/2:
				return nil, []reconciled{{"a", "c", ""}, {"b", "", ""}} // b has no status yet
			case passes <= away:
				return nil, []reconciled{{"a", "c", ""}, {"b", "c", "containerd://1"}}
			}
			return []reconciled{{"b", "c", "containerd://1"}}, []reconciled{{"a", "c", ""}}
		}
		MoveContainers[reconciled](10*time.Second, func() bool { return true }, reconcile)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if want := away + mostPasses; passes != want {
			t.Errorf("there were %d passes, want %d", passes, want)
		}
	})
}

func TestAttemptsToMoveAContainerBecomeRareAndAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cgroupFiles(t, true, map[string]string{"": "0-3", "burstable": "0-3", "besteffort": "0-3", "burstable/poda": "0-3", "burstable/poda/id": "0-3", "burstable/poda/id/docker": "unreadable"})
		on(t, management)
		restarted(t, &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpuShares: 2}})
		onlineFile(t, "0-3")
		useClasses(t)
		shim.host.podCgroups = true
		recorder := recordEvents(t)
		pod := withUID(ordinaryPod(), "a")
		attempts := func(duration time.Duration) (made int) {
			for range duration / (10 * time.Second) {
				if !RunningContainerCPUs(pod, "c", "id", cpuset.New()).IsEmpty() {
					made++ // and the runtime refuses
				}
				time.Sleep(10 * time.Second)
			}
			return made
		}
		// After 0, 10, 30, 70, 150 and 310 seconds, and then every five minutes.
		if made := attempts(time.Hour); made != 16 {
			t.Errorf("there were %d attempts in an hour, want 16", made)
		}
		expectEvent(t, recorder, `Warning ContainerNotMoved Container c of pod `+pod.Namespace+"/"+pod.Name+` cannot be moved to the CPUs "2-3", and may still run on CPU 0-1 (`)
		expectEvent(t, recorder, "")
		if err := hierarchy().set("kubepods/burstable/poda/id/docker", cpuset.New(0, 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		attempts(longestPause)
		expectSets(t, map[string]string{"burstable/poda/id": "2-3", "burstable/poda/id/docker": "2-3"})
		// Another move is another matter.
		note(pod, "c", cpuset.New(2, 3))
		attempts(time.Minute)
		note(pod, "c", cpuset.New(3))
		if made := attempts(20 * time.Second); made != 2 {
			t.Errorf("there were %d attempts in 20 seconds, want 2", made)
		}
		expectEvent(t, recorder, "")
	})
}
