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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestStartPolicyFitsTheCheckpoint(t *testing.T) {
	online := cpuset.New(0, 1, 2, 3)
	running, exited := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, test := range map[string]struct {
		wasOn     bool
		pools     string // "-" means no file
		shared    string
		exclusive string
		// podLevel are the CPUs that another pod holds as a whole.
		podLevel string
		// containers are the states of the pod's containers; nil means one that runs.
		containers []runtimeapi.ContainerState
		asked      error
		want       string
		// wantDropped means that the pod has lost its CPUs.
		wantDropped bool
		wantError   string
		// wantSkip means that upstream's start, which would fail, does not run.
		wantSkip bool
	}{
		"the file is added":                 {pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
		"the pool grows":                    {wasOn: true, pools: "0-1", shared: "1-2", exclusive: "3", want: "2"},
		"the pool shrinks":                  {wasOn: true, pools: "0", shared: "2", exclusive: "3", want: "1-2"},
		"the pool moves":                    {wasOn: true, pools: "1", shared: "1-2", exclusive: "3", want: "0,2"},
		"the file is removed":               {wasOn: true, pools: "-", shared: "1-2", exclusive: "3", want: "0-2"},
		"nothing changes":                   {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", want: "1-2"},
		"the new pool has an exclusive CPU": {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", want: "1-2", wantError: "container c of pod default/app (UID uid) exclusively holds CPU 3"},
		"the new pool has an exclusive CPU, but its pod has ended":                 {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{exited}, want: "1-2", wantDropped: true},
		"the new pool has an exclusive CPU, but the runtime has forgotten its pod": {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{}, want: "1-2", wantDropped: true},
		"the new pool has an exclusive CPU, and one container of its pod runs":     {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{exited, running}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"the new pool has an exclusive CPU, and its pod starts":                    {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_CREATED}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"the new pool has an exclusive CPU, and the state of its pod is unknown":   {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_UNKNOWN}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"the new pool has an exclusive CPU, and the runtime does not answer":       {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", asked: errors.New("no runtime"), want: "1-2", wantError: "exclusively holds CPU 3"},
		"an exclusive CPU in no pool is left alone":                                {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{}, want: "1-2"},
		"a power cut came before a freed CPU was shared":                           {wasOn: true, pools: "0", shared: "1", exclusive: "3", want: "1-2"},
		"a power cut came before an exclusive CPU was no longer shared":            {wasOn: true, pools: "0", shared: "1-3", exclusive: "3", want: "1-2"},
		"a CPU has come online":         {wasOn: true, pools: "0", shared: "1", exclusive: "2", want: "1,3"},
		"a shared CPU has gone offline": {wasOn: true, pools: "0", shared: "1-2,4", exclusive: "3", want: "1-2"},
		"the new pool has an exclusive CPU, and its pod, which has ended, loses the others too": {wasOn: true, pools: "0-1", shared: "", exclusive: "1-3", containers: []runtimeapi.ContainerState{exited}, want: "2-3", wantDropped: true},
		"an exclusive CPU has gone offline, but its pod has ended":                              {wasOn: true, pools: "0", shared: "1-3", exclusive: "4", containers: []runtimeapi.ContainerState{exited}, want: "1-3", wantDropped: true},
		"an exclusive CPU has gone offline":                                                     {wasOn: true, pools: "0", shared: "1-3", exclusive: "4", want: "1-3", wantSkip: true},
		"a new checkpoint is left to upstream":                                                  {wasOn: true, pools: "0", shared: "", want: ""},
		"without a file or a record the checkpoint is left to upstream":                         {pools: "-", shared: "1", exclusive: "3", want: "1"},
		"nothing is left to share":                                                              {wasOn: true, pools: "0", shared: "", exclusive: "1-3", want: "", wantSkip: true},
		"the pool takes the last shared CPU":                                                    {wasOn: true, pools: "0-1", shared: "1", exclusive: "2-3", want: "", wantSkip: true},
		"the pool gives the last shared CPU back":                                               {wasOn: true, pools: "0", shared: "", exclusive: "2-3", want: "1"},
		"the file is removed when nothing was left to share":                                    {wasOn: true, pools: "-", shared: "", exclusive: "2-3", want: "0-1"},
		"the CPUs of a whole pod are not shared":                                                {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", podLevel: "2", want: "1"},
		"a whole pod holds a CPU of the pool":                                                   {wasOn: true, pools: "0,2", shared: "1", exclusive: "3", podLevel: "2", want: "1", wantError: "pod other exclusively holds CPU 2"},
		"a whole pod held a CPU of the pool, but has ended":                                     {wasOn: true, pools: "0,2", shared: "1", podLevel: "2", containers: []runtimeapi.ContainerState{exited}, want: "1,3", wantDropped: true},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			startedIn(t, t.TempDir())
			shim.host.podLogs = t.TempDir()
			if err := os.Mkdir(filepath.Join(shim.host.podLogs, "default_app_uid"), 0o755); err != nil {
				t.Fatal(err)
			}
			shim.host.log, shim.host.static, shim.host.strict, shim.host.previous.confined = logger, true, test.pools != "-", test.wasOn
			if test.containers == nil {
				test.containers = []runtimeapi.ContainerState{running}
			}
			shim.observed.runtime = &fakeRuntime{states: test.containers, err: test.asked}
			t.Cleanup(func() { shim.observed = observation{} })
			reserved := cpuset.New()
			if test.pools != "-" {
				reserved = parse(t, test.pools)
				on(t, partition.Pools{"management": reserved})
			}
			if test.wasOn {
				newNode(partition.Pools{"management": cpuset.New(0)}, online, cpuset.New(), cpuset.New()).writeRecord(nil)
			}
			s := newMemoryState(logger)
			s.SetDefaultCPUSet(parse(t, test.shared))
			if test.exclusive != "" {
				s.SetCPUSet("uid", "c", parse(t, test.exclusive))
			}
			if test.podLevel != "" {
				setPodAssignment(t, s, "other", parse(t, test.podLevel))
			}
			before := len(assignmentsOf(s))
			skipped := true
			err := StartPolicy(func(klog.Logger, state.State) error {
				skipped = false
				return nil
			}, s, online, online.Difference(reserved))
			if skipped != (test.wantSkip || test.wantError != "") {
				t.Errorf("upstream's start was skipped: %v, want %v", skipped, !skipped)
			}
			if got := s.GetDefaultCPUSet().String(); got != test.want {
				t.Errorf("the shared CPUs are %q, want %q", got, test.want)
			}
			if dropped := len(assignmentsOf(s)) < before; dropped != test.wantDropped {
				t.Errorf("an assignment was dropped: %v, want %v", dropped, test.wantDropped)
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("the error is %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 500 {
				if record, _ := readRecord(); record.confined == (test.pools != "-") {
					return
				}
				time.Sleep(10 * time.Millisecond) // StartPolicy does not wait for its removal
			}
			t.Errorf("there is a record: %v, want %v", test.pools == "-", test.pools != "-")
		}))
	}
}
