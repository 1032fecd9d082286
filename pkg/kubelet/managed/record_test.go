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

	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// pooledNode is a node whose kubelet has no record yet, with two pools, an empty pool and an
// isolated CPU.
func pooledNode(t *testing.T) *node {
	t.Helper()
	startedIn(t, t.TempDir())
	host.online = cpuset.New(0, 1, 2, 3)
	return newNode(partition.Pools{"management": cpuset.New(0), "infra": cpuset.New(1), "free": cpuset.New()}, host.online, cpuset.New(3), cpuset.New())
}

func writeRecord(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(recordPath, []byte(content), 0o600); err != nil {
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
	removeRecord() // which is no error
}

func TestRecordsOfOtherVersionsAreRead(t *testing.T) {
	n := pooledNode(t)
	writeRecord(t, `{"reservedCPUs":"0-1"}`) // of the first version
	expectRecord(t, "0-1", "2-3")
	writeRecord(t, `{"reservedCPUs":"0-1","sets":["2-3","0-1"]}`+"\n") // of a later one, without a checksum
	expectRecord(t, "0-1", "2-3", "0-1")
	n.writeRecord(nil)
	// Those versions know no checksum. This is what they read of the present version's record.
	var before struct {
		ReservedCPUs string   `json:"reservedCPUs"`
		Sets         []string `json:"sets,omitempty"`
	}
	if data, err := os.ReadFile(recordPath); err != nil || json.Unmarshal(data, &before) != nil || before.ReservedCPUs != "0-1" || len(before.Sets) != 4 {
		t.Errorf("a previous version reads %+v (%v)", before, err)
	}
}

func TestDamagedRecordCountsAsARecord(t *testing.T) {
	pooledNode(t).writeRecord(nil)
	data, err := os.ReadFile(recordPath)
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
	setRecordPath(file) // which is no directory
	n.writeRecord(nil)
	expectEvent(t, recorder, "Warning PoolsNotRecorded")
}
