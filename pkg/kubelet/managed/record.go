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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// poolRecord is the record, with its checksum.
type poolRecord struct {
	partition.Record
	// Checksum is the checksum of the record without this field and Before. Versions before it
	// ignore it, and write none.
	Checksum checksum.Checksum `json:"checksum,omitempty"`
}

var _ checkpointmanager.Checkpoint = &poolRecord{}

// MarshalCheckpoint implements upstream's Checkpoint.
func (r *poolRecord) MarshalCheckpoint() ([]byte, error) {
	var err error
	if r.Checksum, err = r.sum(); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// UnmarshalCheckpoint implements upstream's Checkpoint.
func (r *poolRecord) UnmarshalCheckpoint(data []byte) error { return json.Unmarshal(data, r) }

// VerifyChecksum implements upstream's Checkpoint.
func (r *poolRecord) VerifyChecksum() error {
	if r.Checksum == 0 {
		return nil // a previous version wrote it
	}
	sum, err := r.sum()
	if err == nil && sum != r.Checksum {
		err = fmt.Errorf("its checksum is %d, want %d", r.Checksum, sum)
	}
	return err
}

// sum returns the checksum of the JSON. A checksum of the Go value would depend on the names of
// the type and its fields, which may change.
func (r *poolRecord) sum() (checksum.Checksum, error) {
	without := *r
	without.Checksum, without.Before = 0, ""
	data, err := json.Marshal(without)
	return checksum.New(string(data)), err
}

func setRecordPath(rootDirectory string) {
	shim.recordPath = filepath.Join(rootDirectory, partition.RecordName)
}

// records returns upstream's manager of checkpoints, whose files survive a power cut whole.
func records() (checkpointmanager.CheckpointManager, error) {
	return checkpointmanager.NewCheckpointManager(filepath.Dir(shim.recordPath))
}

// readRecord reads what a previous kubelet with a pinning file left; the zero value if there
// is no record. If the record cannot be read, it returns an error, and a value that counts as
// a record.
func readRecord() (previousKubelet, error) {
	// Look first: the manager would create the directory.
	if _, err := os.Stat(shim.recordPath); errors.Is(err, fs.ErrNotExist) {
		return previousKubelet{}, nil
	}
	var r poolRecord
	manager, err := records()
	if err == nil {
		err = manager.GetCheckpoint(partition.RecordName, &r)
	}
	var sets []cpuset.CPUSet
	for _, list := range append(r.Sets, r.ReservedCPUs) {
		set, parseErr := cpuset.Parse(list)
		if err = errors.Join(err, parseErr); err == nil && !set.IsEmpty() {
			sets = append(sets, set)
		}
	}
	if err != nil {
		return previousKubelet{confined: true, unreadable: true}, fmt.Errorf("record %s: %w", shim.recordPath, err)
	}
	if len(r.Sets) == 0 && len(sets) > 0 {
		// A previous version wrote it.
		sets = append(sets, shim.host.online.Difference(sets[0]))
	}
	previous := previousKubelet{confined: true, sets: sets}
	previous.pooled, _ = cpuset.Parse(r.ReservedCPUs) // read above
	previous.before, _ = cpuset.Parse(r.Before)
	return previous, nil
}

// writeRecord records the cpusets of these pools, and the given ones of previous pools. If it
// cannot, it logs that and sends an Event; the kubelet starts all the same.
func (n *node) writeRecord(previous []cpuset.CPUSet) {
	sets := n.sets()
	for _, set := range previous {
		if !slices.ContainsFunc(sets, set.Equals) {
			sets = append(sets, set)
		}
	}
	r := &poolRecord{Record: partition.Record{ReservedCPUs: n.Pooled.String(), Before: n.before.String()}}
	for _, set := range sets {
		r.Sets = append(r.Sets, set.String())
	}
	manager, err := records()
	if err == nil {
		err = manager.CreateCheckpoint(partition.RecordName, r)
	}
	if err != nil {
		shim.host.log.Error(err, "Cannot write the record of the pools; a kubelet that starts without the pinning file will not free every container of this one", "path", shim.recordPath)
		nodeEvent(v1.EventTypeWarning, partition.EventRecordNotWritten, "Cannot write the record of the pools %s: %v", shim.recordPath, err)
	}
}

// sets returns the cpusets that this kubelet gives to containers.
func (n *node) sets() []cpuset.CPUSet {
	sets := []cpuset.CPUSet{n.Others}
	if !n.Ordinary.Equals(n.Others) {
		sets = append(sets, n.Ordinary)
	}
	for _, workloadType := range n.pools.Types() {
		if pool := n.pools[workloadType]; !pool.IsEmpty() {
			sets = append(sets, pool)
		}
	}
	return sets
}

// freedPeriod is the time between two looks at whether all cgroups are free.
const freedPeriod = time.Second

// removeRecordOnceFreed waits until the cgroups of pods and classes are free, then removes
// the record. If the kubelet is killed before that, the record stays, and the next kubelet
// frees them.
func removeRecordOnceFreed(period time.Duration) {
	for rounds := 0; rounds < 2; rounds++ { // twice in a row: pods may come a moment after their sources are ready
		if !freed() {
			rounds = -1
		}
		time.Sleep(period)
	}
	removeRecord()
}

func removeRecord() {
	manager, err := records()
	if err == nil {
		err = manager.RemoveCheckpoint(partition.RecordName)
	}
	if err != nil {
		shim.host.log.Error(err, "Cannot remove the record of the previous pools; the next start will look for their containers again", "path", shim.recordPath)
	}
}
