// SPDX-License-Identifier: Apache-2.0

// Package kubeletstate reads what a kubelet keeps in its root directory: the CPU manager's
// checkpoint, the record of workload partitioning, and what is allocated to pods. It also reads
// the kubelet's configuration.
package kubeletstate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"
	"workload.openshift.io/partition"
)

// Checkpoint is the CPU manager's checkpoint.
type Checkpoint struct {
	// Policy is that of the CPU manager that wrote it; empty if there is no file yet.
	Policy string
	partition.Checkpoint
	// Damaged says why the kubelet cannot read the file; it then does not start. The rest is
	// empty.
	Damaged string
}

// CheckpointName is the name of the CPU manager's checkpoint in the kubelet's root directory
// (pkg/kubelet/cm/cpumanager/cpu_manager.go, cpuManagerStateFileName).
const CheckpointName = "cpu_manager_state"

// checkpointData is what every format of the checkpoint has. The formats 2 and 3 are this, and a
// checksum; format 4 has this again as a text, which counts
// (pkg/kubelet/cm/cpumanager/state/checkpoint.go, CPUManagerCheckpoint). The package of these
// types needs k8s.io/apiserver and half of the kubelet.
type checkpointData struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	PodEntries    map[string]struct {
		CPUSet string `json:"cpuSet"`
	} `json:"podEntries"`
}

// ParseCheckpoint reads the CPU manager's checkpoint. What keeps the kubelet from reading it is
// no error, but [Checkpoint.Damaged]. Checksums of the formats 2 and 3 are not checked: they
// depend on the names of upstream's types.
func ParseCheckpoint(data []byte) *Checkpoint {
	var c Checkpoint
	if err := c.parse(data); err != nil {
		return &Checkpoint{Damaged: err.Error()}
	}
	return &c
}

func (c *Checkpoint) parse(data []byte) error {
	var file struct {
		checkpointData
		Data         string `json:"data"`
		DataChecksum uint64 `json:"dataChecksum"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	content := file.checkpointData
	if file.Data != "" || file.DataChecksum != 0 {
		if sum := checksum(file.Data); sum != file.DataChecksum {
			return fmt.Errorf("its checksum is %d, want %d", file.DataChecksum, sum)
		}
		content = checkpointData{}
		if err := json.Unmarshal([]byte(file.Data), &content); err != nil {
			return err
		}
	}
	c.Policy = content.PolicyName
	var err error
	if c.Shared, err = partition.ParseCPUs(content.DefaultCPUSet); err != nil {
		return fmt.Errorf("defaultCpuSet %q: %w", content.DefaultCPUSet, err)
	}
	add := func(pod, container, list string) error {
		cpus, err := partition.ParseCPUs(list)
		if err != nil {
			return fmt.Errorf("the CPUs %q of container %q of pod %q: %w", list, container, pod, err)
		}
		c.Assignments = append(c.Assignments, partition.Assignment{Pod: pod, Container: container, CPUs: cpus})
		return nil
	}
	for _, pod := range slices.Sorted(maps.Keys(content.Entries)) {
		for container, list := range content.Entries[pod] {
			if err := add(pod, container, list); err != nil {
				return err
			}
		}
	}
	for pod, entry := range content.PodEntries {
		if err := add(pod, "", entry.CPUSet); err != nil {
			return err
		}
	}
	partition.SortAssignments(c.Assignments)
	return nil
}

// IsNew reports whether the checkpoint has nothing yet: upstream fills it.
func (c *Checkpoint) IsNew() bool { return len(c.Assignments) == 0 && c.Shared.IsEmpty() }

// Exclusive returns the CPUs that a container holds exclusively. whole means that it holds them
// with its pod. Empty sets are not held.
func (c *Checkpoint) Exclusive(pod, container string) (cpus cpuset.CPUSet, whole, holds bool) {
	for _, a := range c.Assignments {
		if a.Pod != pod || a.CPUs.IsEmpty() {
			continue
		}
		switch a.Container {
		case container:
			return a.CPUs, container == "", true
		case "":
			cpus, whole, holds = a.CPUs, true, true
		}
	}
	return cpus, whole, holds
}

// checksum is upstream's checksum of a text (pkg/kubelet/checkpointmanager/checksum, New).
func checksum(text string) uint64 {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%v", dump.ForHash(text))
	return uint64(hash.Sum32())
}

// ParseRecord reads the kubelet's record. It does not check the checksum: for a kubelet, a record
// that is damaged is a record all the same.
func ParseRecord(data []byte) (*partition.Record, error) {
	var record partition.Record
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, err
	}
	for _, list := range append([]string{record.ReservedCPUs}, record.Sets...) {
		if _, err := partition.ParseCPUs(list); err != nil {
			return nil, fmt.Errorf("the CPUs %q: %w", list, err)
		}
	}
	return &record, nil
}

// AllocatedName is the name of upstream's checkpoint of what is allocated to pods
// (pkg/kubelet/allocation, allocatedPodsStateFile).
const AllocatedName = "allocated_pods_state"

// ParseAllocated reads that checkpoint, and returns the CPU requests of each pod's containers, by
// UID, in millicores (pkg/kubelet/allocation/state/checkpoint.go).
func ParseAllocated(data []byte) (map[string]int64, error) {
	var file struct {
		Data string `json:"data"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	var content struct {
		Entries map[string]struct {
			ContainerResources map[string]v1.ResourceRequirements
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(file.Data), &content); err != nil {
		return nil, err
	}
	millicores := map[string]int64{}
	for uid, pod := range content.Entries {
		millicores[uid] = 0
		for _, resources := range pod.ContainerResources {
			millicores[uid] += resources.Requests.Cpu().MilliValue()
		}
	}
	return millicores, nil
}
