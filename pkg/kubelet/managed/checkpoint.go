package managed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// lastPools is what the kubelet remembers of its pools beside the CPU manager's
// checkpoint, so that a later start can tell what they explain of that.
type lastPools struct {
	// ReservedCPUs were kept out of the shared pool because of the pinning file.
	ReservedCPUs string `json:"reservedCPUs"`
}

const recordName = "workload_partitioning_state"

// recordPath is set by Start, from the kubelet's root directory. Before that it names
// no file, so there is no record, as in upstream's own tests.
var recordPath string

// FitCheckpoint brings a checkpoint of the static CPU manager up to date whose set
// of CPUs differs from the present one only in the pools, of this pinning file or
// of the last one. Upstream would not start until somebody deletes the checkpoint,
// and with it all exclusive assignments. These stay as they are; one that holds a
// CPU of a pool is an error that names the pod, and leaves the checkpoint as it
// is. Whatever the pools do not explain is left to upstream's own validation
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState), which follows.
//
// online are the CPUs of the host; reserved those of reservedSystemCPUs, which
// strict keeps out of the shared pool.
func FitCheckpoint(logger klog.Logger, s state.State, online, reserved cpuset.CPUSet, strict bool) error {
	n := current.Load()
	last, known := readRecord(logger)
	if n == nil && !known {
		return nil
	}
	assigned := cpuset.New()
	for pod, containers := range s.GetCPUAssignments() {
		for container, cpus := range containers {
			if n != nil {
				if held := cpus.Intersection(n.pooled); !held.IsEmpty() {
					return fmt.Errorf("container %s of pod %s exclusively holds CPU %s, which %s gives to a pool; delete the pod while the pools are as before, then change them",
						container, pod, held, partition.PinningFilePath)
				}
			}
			assigned = assigned.Union(cpus)
		}
	}
	expected, explained := online, last
	if strict {
		expected = online.Difference(reserved)
		explained = explained.Union(reserved)
	}
	// An empty default set is a checkpoint that upstream initialises itself.
	if before := s.GetDefaultCPUSet(); !before.IsEmpty() {
		had := before.Union(assigned)
		differ := had.Difference(expected).Union(expected.Difference(had))
		if after := expected.Difference(assigned); !differ.IsEmpty() && differ.IsSubsetOf(explained) && !after.IsEmpty() {
			logger.Info("The pools have changed; bringing the CPU manager's checkpoint up to date", "sharedBefore", before.String(), "sharedNow", after.String())
			s.SetDefaultCPUSet(after)
		}
	}
	if n == nil || n.pooled.IsEmpty() {
		return removeRecord()
	}
	return writeRecord(reserved)
}

// readRecord returns the CPUs that the last kubelet with a pinning file reserved.
// A record that can not be read explains nothing.
func readRecord(logger klog.Logger) (reserved cpuset.CPUSet, known bool) {
	data, err := os.ReadFile(recordPath)
	if errors.Is(err, fs.ErrNotExist) {
		return cpuset.New(), false
	}
	var r lastPools
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil {
		reserved, err = cpuset.Parse(r.ReservedCPUs)
	}
	if err != nil {
		logger.Error(err, "The record of the last pools is not readable; going on without it", "path", recordPath)
		return cpuset.New(), false
	}
	return reserved, true
}

func writeRecord(reserved cpuset.CPUSet) error {
	data, err := json.Marshal(lastPools{reserved.String()})
	if err != nil {
		return err
	}
	temporary := recordPath + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("record of the pools: %w", err)
	}
	return os.Rename(temporary, recordPath)
}

func removeRecord() error {
	if err := os.Remove(recordPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of the pools: %w", err)
	}
	return nil
}

func setRecordPath(rootDirectory string) {
	recordPath = filepath.Join(rootDirectory, recordName)
}
