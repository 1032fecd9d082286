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
)

// poolRecord is what the kubelet remembers, beside the CPU manager's checkpoint, of the sets
// that it gave to containers. A later kubelet tells by it which sets are this project's,
// to be taken back, and which somebody else has given, to be left alone.
type poolRecord struct {
	// ReservedCPUs are the CPUs of all pools. Earlier versions wrote nothing else.
	ReservedCPUs string `json:"reservedCPUs"`
	// Sets are those of the pools, and of what was left for others, of this pinning file
	// and of earlier ones whose containers may not all have been moved.
	Sets []string `json:"sets,omitempty"`
	// Checksum is that of the record without it. Earlier versions wrote none, and read over it.
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
		return nil // an earlier version's
	}
	sum, err := r.sum()
	if err == nil && sum != r.Checksum {
		err = fmt.Errorf("its checksum is %d, want %d", r.Checksum, sum)
	}
	return err
}

// sum is that of the JSON, and not of the type, whose names may change.
func (r *poolRecord) sum() (checksum.Checksum, error) {
	without := *r
	without.Checksum = 0
	data, err := json.Marshal(without)
	return checksum.New(string(data)), err
}

const recordName = "workload_partitioning_state"

// recordPath is set by Configure, from the kubelet's root directory. Before that it names
// no file, so there is no record, as in upstream's own tests.
var recordPath string

func setRecordPath(rootDirectory string) { recordPath = filepath.Join(rootDirectory, recordName) }

// records is upstream's manager of checkpoints. A loss of power leaves its files whole.
func records() (checkpointmanager.CheckpointManager, error) {
	return checkpointmanager.NewCheckpointManager(filepath.Dir(recordPath))
}

// readRecord reads what an earlier kubelet with a pinning file has left. It is an error if that
// cannot be read.
func readRecord() (earlierKubelet, error) {
	// The manager would make the directory.
	if _, err := os.Stat(recordPath); errors.Is(err, fs.ErrNotExist) {
		return earlierKubelet{}, nil
	}
	var r poolRecord
	manager, err := records()
	if err == nil {
		err = manager.GetCheckpoint(recordName, &r)
	}
	var sets []cpuset.CPUSet
	for _, list := range append(r.Sets, r.ReservedCPUs) {
		set, parseErr := cpuset.Parse(list)
		if err = errors.Join(err, parseErr); err == nil && !set.IsEmpty() {
			sets = append(sets, set)
		}
	}
	if err != nil {
		return earlierKubelet{confined: true, unreadable: true}, fmt.Errorf("record %s: %w", recordPath, err)
	}
	if len(r.Sets) == 0 && len(sets) > 0 {
		// An earlier version's.
		sets = append(sets, host.online.Difference(sets[0]))
	}
	return earlierKubelet{confined: true, sets: sets}, nil
}

// writeRecord remembers the sets of these pools, and the earlier ones. A kubelet that can
// not write it starts all the same.
func (n *node) writeRecord(earlier []cpuset.CPUSet) {
	sets := n.sets()
	for _, set := range earlier {
		if !slices.ContainsFunc(sets, set.Equals) {
			sets = append(sets, set)
		}
	}
	r := &poolRecord{ReservedCPUs: n.pooled.String()}
	for _, set := range sets {
		r.Sets = append(r.Sets, set.String())
	}
	manager, err := records()
	if err == nil {
		err = manager.CreateCheckpoint(recordName, r)
	}
	if err != nil {
		host.log.Error(err, "The record of the pools cannot be written; a kubelet without the pinning file will not free all containers of this one", "path", recordPath)
		nodeEvent(v1.EventTypeWarning, eventRecordNotWritten, "The record %s of the pools cannot be written: %v", recordPath, err)
	}
}

// sets are those that the kubelet gives to containers.
func (n *node) sets() []cpuset.CPUSet {
	sets := []cpuset.CPUSet{n.others}
	if !n.ordinary.Equals(n.others) {
		sets = append(sets, n.ordinary)
	}
	for _, workloadType := range n.pools.Types() {
		if pool := n.pools[workloadType]; !pool.IsEmpty() {
			sets = append(sets, pool)
		}
	}
	return sets
}

// freedPeriod is that between two looks whether all cgroups are free.
const freedPeriod = time.Second

// removeRecordOnceFreed waits until the cgroups of pods and classes are free: a kubelet that
// is killed before that leaves the record, and the next one frees them.
func removeRecordOnceFreed(period time.Duration) {
	for rounds := 0; rounds < 2; rounds++ { // the pods may come a moment after their sources are ready
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
		err = manager.RemoveCheckpoint(recordName)
	}
	if err != nil {
		host.log.Error(err, "The record of the last pools cannot be removed; the next start will look for their containers again", "path", recordPath)
	}
}
