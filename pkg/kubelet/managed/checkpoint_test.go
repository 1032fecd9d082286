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
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// startedIn sets the record's path as Configure does, for the time of a test. The test may change
// host.
func startedIn(t *testing.T, rootDirectory string) {
	t.Helper()
	before := host
	setRecordPath(rootDirectory)
	t.Cleanup(func() { recordPath, host = "", before })
}

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
		t.Run(name, func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			startedIn(t, t.TempDir())
			host.podLogs = t.TempDir()
			if err := os.Mkdir(filepath.Join(host.podLogs, "default_app_uid"), 0o755); err != nil {
				t.Fatal(err)
			}
			host.log, host.static, host.strict, host.previous.confined = logger, true, test.pools != "-", test.wasOn
			if test.containers == nil {
				test.containers = []runtimeapi.ContainerState{running}
			}
			observed.runtime = &fakeRuntime{states: test.containers, err: test.asked}
			t.Cleanup(func() { observed = observation{} })
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
		})
	}
}

func TestRecord(t *testing.T) {
	directory := t.TempDir()
	startedIn(t, directory)
	host.online = cpuset.New(0, 1, 2, 3)
	if record, _ := readRecord(); record.confined {
		t.Error("there is a record before the first is written")
	}
	n := newNode(partition.Pools{"management": cpuset.New(0), "infra": cpuset.New(1), "free": cpuset.New()}, host.online, cpuset.New(3), cpuset.New())
	n.writeRecord([]cpuset.CPUSet{cpuset.New(0, 1), cpuset.New(2)})
	expect := func(want ...string) {
		t.Helper()
		record, err := readRecord()
		if err != nil {
			t.Error(err)
		}
		for _, list := range want {
			if !slices.ContainsFunc(record.sets, func(set cpuset.CPUSet) bool { return set.String() == list }) {
				t.Errorf("the record lacks %s: it has %v", list, record.sets)
			}
		}
		if !record.confined || len(record.sets) != len(want) {
			t.Errorf("the record has %v, want %s", record.sets, want)
		}
	}
	// The pools, what they leave with and without isolated CPUs, the previous sets, and the union.
	expect("0", "1", "2-3", "2", "0-1", "0-1")
	if err := os.WriteFile(recordPath, []byte(`{"reservedCPUs":"0-1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("0-1", "2-3") // of the first version
	if err := os.WriteFile(recordPath, []byte(`{"reservedCPUs":"0-1","sets":["2-3","0-1"]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("0-1", "2-3", "0-1") // of a later version, which wrote no checksum
	n.writeRecord(nil)
	// Those versions know no checksum. This is what they read of the present version's record.
	var before struct {
		ReservedCPUs string   `json:"reservedCPUs"`
		Sets         []string `json:"sets,omitempty"`
	}
	if data, err := os.ReadFile(recordPath); err != nil || json.Unmarshal(data, &before) != nil || before.ReservedCPUs != "0-1" || len(before.Sets) != 4 {
		t.Errorf("a previous version reads %+v (%v)", before, err)
	}
	if data, err := os.ReadFile(recordPath); err != nil || os.WriteFile(recordPath, bytes.Replace(data, []byte(`"0-1"`), []byte(`"0-2"`), 1), 0o600) != nil {
		t.Fatal(err)
	}
	if record, err := readRecord(); !record.unreadable || err == nil {
		t.Errorf("reading an edited record gave %+v, %v", record, err)
	}
	if err := os.WriteFile(recordPath, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if record, err := readRecord(); !record.confined || !record.unreadable || err == nil {
		t.Errorf("reading nonsense gave %+v, %v", record, err)
	}
	removeRecord()
	if record, _ := readRecord(); record.confined {
		t.Error("the record has not been removed")
	}
	removeRecord()

	// The directory is a file: nothing is written, an Event says so, and nothing fails.
	recorder := recordEvents(t)
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setRecordPath(file)
	n.writeRecord(nil)
	expectEvent(t, recorder, "Warning PoolsNotRecorded")
}
