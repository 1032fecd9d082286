package managed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// StartPolicy calls start, that of the CPU manager's policy, on a checkpoint that has been brought
// up to date if it differs from what the policy expects only in the pools, of this
// pinning file or of the last one. Upstream would not start until somebody deletes
// the checkpoint, and with it all exclusive assignments
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState). These stay as they
// are; one that holds a CPU of a pool is an error that names the pod, and leaves the
// checkpoint as it is. Whatever the pools do not explain is left to upstream.
//
// online are the CPUs of the host, and allocatable those that the policy may give away.
func StartPolicy[F policyStart](start F, s state.State, online, allocatable cpuset.CPUSet) error {
	if n := current.Load(); host.static && (n != nil || host.wasOn) {
		exhausted, err := fitCheckpoint(n, s, online, online.Difference(allocatable))
		if err != nil || exhausted {
			return err
		}
	}
	return callStart(start, s)
}

// fitCheckpoint does what StartPolicy says. It reports whether the checkpoint is
// right although nothing is left to share: pools and exclusive containers have all
// CPUs. Upstream can come to that state, and write it, but takes it for a damaged one
// when it starts (kubernetes/kubernetes issue 141196).
func fitCheckpoint(n *node, s state.State, online, reserved cpuset.CPUSet) (exhausted bool, err error) {
	last, _ := readRecord()
	assigned := cpuset.New()
	for pod, containers := range s.GetCPUAssignments() {
		for container, cpus := range containers {
			if n != nil {
				if held := cpus.Intersection(n.pooled); !held.IsEmpty() {
					return false, fmt.Errorf("container %s of pod %s exclusively holds CPU %s, which %s gives to a pool; delete the pod while the pools are as before, then change them",
						container, podName(pod), held, partition.PinningFilePath)
				}
			}
			assigned = assigned.Union(cpus)
		}
	}
	expected, explained := online, last
	if host.strict {
		expected = online.Difference(reserved)
		explained = explained.Union(reserved)
	}
	had := s.GetDefaultCPUSet().Union(assigned)
	differ := had.Difference(expected).Union(expected.Difference(had))
	// Without any CPU it is a new checkpoint, which upstream fills.
	if !had.IsEmpty() && differ.IsSubsetOf(explained) {
		shared := expected.Difference(assigned)
		if !differ.IsEmpty() {
			host.log.Info("The pools have changed; bringing the CPU manager's checkpoint up to date", "sharedBefore", s.GetDefaultCPUSet().String(), "sharedNow", shared.String())
			s.SetDefaultCPUSet(shared)
		}
		if exhausted = shared.IsEmpty() && s.GetDefaultCPUSet().IsEmpty(); exhausted {
			host.log.Info("Containers with exclusive CPUs have all that the pools leave; others share them", "exclusive", assigned.String())
		}
	}
	if n == nil || n.pooled.IsEmpty() {
		return exhausted, removeRecord()
	}
	return exhausted, writeRecord(reserved)
}

// podName returns namespace, name and UID of a pod of which the checkpoint has only
// the UID. No API server needs to answer for that: the folder of the pod's logs has all
// three in its name (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory).
func podName(uid string) string {
	if folders, err := filepath.Glob(filepath.Join(host.podLogs, "*_*_"+uid)); err == nil && len(folders) == 1 {
		parts := strings.Split(filepath.Base(folders[0]), "_")
		return fmt.Sprintf("%s/%s (UID %s)", parts[0], parts[1], uid)
	}
	return uid
}

// readRecord returns the CPUs that the last kubelet with a pinning file reserved.
// A record that can not be read explains nothing.
func readRecord() (reserved cpuset.CPUSet, known bool) {
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
		host.log.Error(err, "The record of the last pools is not readable; going on without it", "path", recordPath)
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
