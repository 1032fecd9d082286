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
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// pooledNode is a node whose kubelet has no record yet, with two pools, an empty pool and an
// isolated CPU.
func pooledNode(t *testing.T) *node {
	t.Helper()
	startedIn(t, t.TempDir())
	shim.host.online = cpuset.New(0, 1, 2, 3)
	return newNode(partition.Pools{"management": cpuset.New(0), "infra": cpuset.New(1), "free": cpuset.New()}, shim.host.online, cpuset.New(3), cpuset.New())
}

func writeRecord(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(shim.recordPath, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func expectRecord(t *testing.T, want ...string) {
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

func TestRecordHasTheCpusetsThatWereGiven(t *testing.T) {
	n := pooledNode(t)
	if record, _ := readRecord(); record.confined {
		t.Error("there is a record before the first is written")
	}
	n.writeRecord([]cpuset.CPUSet{cpuset.New(0, 1), cpuset.New(2)})
	// The pools, what they leave with and without isolated CPUs, the previous sets, and the union.
	expectRecord(t, "0", "1", "2-3", "2", "0-1", "0-1")
	removeRecord()
	if record, _ := readRecord(); record.confined {
		t.Error("the record has not been removed")
	}
	removeRecord() // which is not an error
}

func TestRecordsOfOtherVersionsAreRead(t *testing.T) {
	n := pooledNode(t)
	writeRecord(t, `{"reservedCPUs":"0-1"}`) // of the first version
	expectRecord(t, "0-1", "2-3")
	writeRecord(t, `{"reservedCPUs":"0-1","sets":["2-3","0-1"]}`+"\n") // of a later one, without a checksum
	expectRecord(t, "0-1", "2-3", "0-1")
	n.writeRecord(nil)
	expectPreviousVersionReads(t, "0-1", "2-3", "2", "0", "1")
}

// expectPreviousVersionReads checks what the versions that know no checksum read of the record.
func expectPreviousVersionReads(t *testing.T, reserved string, sets ...string) {
	t.Helper()
	var before struct {
		ReservedCPUs string   `json:"reservedCPUs"`
		Sets         []string `json:"sets,omitempty"`
	}
	data, err := os.ReadFile(shim.recordPath)
	if err == nil {
		err = json.Unmarshal(data, &before)
	}
	slices.Sort(before.Sets)
	slices.Sort(sets)
	if err != nil || before.ReservedCPUs != reserved || !slices.Equal(before.Sets, sets) {
		t.Errorf("a previous version reads %+v (%v), want the pools %s and the sets %q", before, err, reserved, sets)
	}
}

// The version changes together with the pools. What the previous one gave to containers is taken
// back, and that version may come back before this is done.
func TestPoolsMayChangeWithTheVersion(t *testing.T) {
	for name, test := range map[string]struct {
		partitioned bool
		has, want   string
	}{
		"a partitioned container on the previous pool":                {partitioned: true, has: "2", want: "0-1"},
		"a container on the previous pool that is ordinary now":       {has: "2", want: "2-3"},
		"an ordinary container on what the previous pool left":        {has: "0-1,3", want: "2-3"},
		"an ordinary container that another tool put on the new pool": {has: "1-2", want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := ordinaryPod()
			if test.partitioned {
				pod = partitionedPod()
			}
			on(t, management)
			runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpusetCpus: test.has, CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}}
			restarted(t, runtime)
			writeRecord(t, `{"reservedCPUs":"2","sets":["0-1,3","2"]}`)
			var err error
			if shim.host.previous, err = readRecord(); err != nil {
				t.Fatal(err)
			}
			shim.current.Load().writeRecord(shim.host.previous.sets)
			reconcile(pod, runtime, cpuset.New())
			if len(runtime.updates) != 1 || runtime.updates[0].CpusetCpus != test.want {
				t.Errorf("the updates are %v, want one to the CPUs %s", runtime.updates, test.want)
			}
			// The new pool, what it leaves, the previous sets, and the union of the new pools.
			expectRecord(t, "0-1", "2-3", "0-1,3", "2", "0-1")
			expectPreviousVersionReads(t, "0-1", "0-1", "2-3", "0-1,3", "2")
		})
	}
}

func TestDamagedRecordCountsAsARecord(t *testing.T) {
	pooledNode(t).writeRecord(nil)
	data, err := os.ReadFile(shim.recordPath)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"an edited record": strings.Replace(string(data), `"0-1"`, `"0-2"`, 1), "nonsense": "x"} {
		writeRecord(t, content)
		if record, err := readRecord(); !record.confined || !record.unreadable || err == nil {
			t.Errorf("reading %s gave %+v, %v", name, record, err)
		}
	}
}

func TestRecordThatCannotBeWrittenIsReported(t *testing.T) {
	n := pooledNode(t)
	recorder := recordEvents(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setRecordPath(file) // which is not a directory
	n.writeRecord(nil)
	expectEvent(t, recorder, "Warning PoolsNotRecorded")
}
