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
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file is about running containers that are not easily moved. On cgroup v1 the kernel refuses
// a cpuset that lacks CPUs of a cgroup below, and containers that run containers make such cgroups:
// Docker in Docker, kind, systemd. The runtime does not look below its containers, so the kubelet
// fits these cgroups first. (On v2 the kernel intersects.)

const (
	// longestPause is the longest pause between two attempts to move a container that cannot be moved.
	longestPause = 5 * time.Minute
	// firstPause is the pause before the third attempt; each later one is twice as long. The second
	// comes with the next pass.
	firstPause = 20 * time.Second
	// reportedAttempt is the attempt from which on the container is reported, unless the kubelet can
	// write its cgroup by then.
	reportedAttempt = 4
)

// attempts are those to give a container a cpuset.
type attempts struct {
	containerID string
	cpus        cpuset.CPUSet
	made        int
	next        time.Time
}

// attempt counts an attempt to give a container a cpuset. It returns how many have been made with
// this one; 0 means that it is too early for another.
func (o *observation) attempt(pod types.UID, container, containerID string, cpus cpuset.CPUSet) (made int) {
	o.notePod(pod, func(notes *podNotes) {
		now, a := time.Now(), notes.attempts[container]
		if a.containerID != containerID || !a.cpus.Equals(cpus) {
			a = attempts{containerID: containerID, cpus: cpus}
		}
		if now.Before(a.next) {
			return
		}
		a.made++
		if a.made > 1 {
			a.next = now.Add(min(firstPause<<min(a.made-2, 10), longestPause))
		}
		notes.attempts[container], made = a, a.made
	})
	return made
}

// forgetAttempts forgets the attempts for a container that has its cpuset.
func (o *observation) forgetAttempts(pod types.UID, container string) {
	o.Lock()
	defer o.Unlock()
	if notes := o.pods[pod]; notes != nil {
		delete(notes.attempts, container)
	}
}

// prepare is called before upstream gives a running container a cpuset, and returns that cpuset. If
// the container already has it, upstream does nothing. Attempts that fail become rare: in the pauses
// between them prepare returns the empty set.
//
// On cgroup v1, prepare first gives the CPUs to the cgroups below the container, and to its own. It
// also gives back what the container lost together with a cgroup above it, for less time than it
// took the CPU manager to notice.
func prepare(pod *v1.Pod, container, containerID string, cpus cpuset.CPUSet) cpuset.CPUSet {
	if cpus.IsEmpty() {
		return cpus
	}
	made, moves := 0, !cpus.Equals(noted(pod, container))
	if !moves {
		shim.observed.forgetAttempts(pod.UID, container)
	} else if made = shim.observed.attempt(pod.UID, container, containerID, cpus); made == 0 {
		return cpuset.New()
	}
	err := fitContainer(pod, containerID, cpus, moves)
	if gone(err) {
		return cpuset.New()
	}
	if err != nil {
		shim.host.log.Error(err, "Cannot fit the cgroups of a container to its CPUs; trying again", "pod", klog.KObj(pod), "container", container, "containerID", containerID, "cpus", cpus.String(), "attempt", made)
	}
	if made == reportedAttempt {
		reportUnmoved(pod, container, containerID, cpus, err)
	}
	return cpus
}

// fitContainer gives the cgroup of a container on cgroup v1, and those below, the given CPUs, as far
// as the cgroup above has them. Unless the container moves, it does so only if the container was
// narrowed.
func fitContainer(pod *v1.Pod, containerID string, cpus cpuset.CPUSet, moves bool) error {
	sets := hierarchy()
	if !sets.v1 {
		return nil
	}
	shim.classes.Lock()
	defer shim.classes.Unlock()
	if !moves && len(shim.classes.narrowed) == 0 {
		return nil
	}
	path, found := sets.containerCgroup(pod, containerID)
	if _, narrowed := shim.classes.narrowed[path]; !found || !moves && !narrowed {
		return nil
	}
	has, err := sets.cpus(path)
	if err != nil {
		return err
	}
	above, err := sets.cpus(filepath.Dir(path))
	if err != nil {
		return err
	}
	if cpus = cpus.Intersection(above).Intersection(onlineCPUs()); !cpus.IsEmpty() && !cpus.Equals(has) {
		if err := sets.fit(path, cpus, cpus, 0); err != nil {
			return err
		}
	}
	delete(shim.classes.narrowed, path)
	return nil
}

// reportUnmoved sends an Event about a container that could not be moved, unless its cgroup has no
// other CPUs than it should. cause may be nil: upstream has logged why the runtime could not move it.
func reportUnmoved(pod *v1.Pod, container, containerID string, cpus cpuset.CPUSet, cause error) {
	has := containerCPUs(pod, containerID)
	astray := has.Difference(cpus)
	if astray.IsEmpty() {
		return
	}
	why := "the log of the kubelet says why"
	if cause != nil {
		why = cause.Error()
	}
	shim.host.log.Error(cause, "A container cannot be moved", "pod", klog.KObj(pod), "container", container, "containerID", containerID, "has", has.String(), "cpus", cpus.String())
	nodeEvent(v1.EventTypeWarning, partition.EventContainerNotMoved, "Container %s of pod %s/%s cannot be moved to the CPUs %q, and may still run on CPU %s (%s); attempts go on, ever less often; to end it, delete the pod",
		container, pod.Namespace, pod.Name, cpus.String(), astray, why)
}
