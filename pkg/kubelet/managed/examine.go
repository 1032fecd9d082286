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
	"context"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

// This file asks the runtime about previous containers: those that existed before this
// kubelet started. Each is asked about once, so that only what is wrong is updated (design,
// section 6, cost).

// outcome is what examine found out about a container.
type outcome int

const (
	// notPrevious: this kubelet created the container.
	notPrevious outcome = iota
	// reported: the runtime reports the container's resources. If no cpuset is noted, the
	// container has none, and may use every CPU.
	reported
	// unreported: the runtime does not report the container's resources, or its cgroup
	// contradicts them.
	unreported
	// unanswered: the runtime has not answered yet.
	unanswered
)

// mostQuestions is how often examine asks about a container if the runtime does not answer.
const mostQuestions = 3

// examine asks the runtime once about a previous container. It notes the cpuset that the
// container has, and repairs its weight and CPU quota. If the runtime fails, later calls ask
// again, up to mostQuestions times in all.
func (n *node) examine(pod *v1.Pod, container, containerID string) outcome {
	shim.observed.Lock()
	runtime, last, unlisted := shim.observed.runtime, shim.observed.lastUpdates, shim.observed.unlisted
	previous, known := shim.observed.found[containerID]
	shim.observed.Unlock()
	switch {
	case last == nil || !known && !unlisted:
		return notPrevious
	case !known && !shim.observed.listContainers(runtime):
		return unanswered
	case !known:
		return n.examine(pod, container, containerID) // they are listed now
	}
	if previous.outcome != unanswered || runtime == nil {
		return previous.outcome
	}
	previous.questions++
	has, outcome, err := n.look(runtime, pod, container, containerID)
	if previous.outcome = outcome; err != nil {
		shim.host.log.Error(err, "Cannot examine a container that existed before this kubelet started", "pod", klog.KObj(pod), "container", container, "containerID", containerID, "attempt", previous.questions)
		if previous.outcome = unanswered; previous.questions >= mostQuestions {
			previous.outcome = unreported
		}
	} else if !has.IsEmpty() {
		note(pod, container, has)
	}
	shim.observed.Lock()
	shim.observed.found[containerID] = previous
	shim.observed.Unlock()
	return previous.outcome
}

// look asks once. It returns the container's cpuset, after the repair if one was needed. The
// cpuset is empty if the container has none, or if the runtime and the cgroup disagree.
//
// On cgroup v2 only an NRI plugin or a DRA driver gives a container's cgroup a cpuset that
// this project never gives. containerd does not report such a set, so the cgroup's counts. On v1
// the kernel narrows the cgroup while a CPU is offline, and prepare writes it before the runtime
// does.
func (n *node) look(runtime containerRuntime, pod *v1.Pod, container, containerID string) (has cpuset.CPUSet, _ outcome, err error) {
	response, err := runtime.ContainerStatus(context.Background(), containerID, false)
	if err != nil {
		return has, unanswered, err
	}
	// A runtime that reports resources never reports a weight of zero: no kernel accepts it.
	resources := response.GetStatus().GetResources().GetLinux()
	if resources.GetCpuShares() == 0 {
		return has, unreported, nil
	}
	if has, err = cpuset.Parse(resources.GetCpusetCpus()); err != nil {
		return has, unanswered, err
	}
	outcome := reported
	switch actual := containerCPUs(pod, containerID); {
	case actual.IsEmpty() || actual.Equals(has):
	case !hierarchy().v1 && !n.hasGiven(actual):
		has = actual
	case !has.IsEmpty() || !hierarchy().v1 || n.hasGiven(actual) && !hierarchy().all().IsSubsetOf(actual):
		has, outcome = cpuset.New(), unreported // so that an update makes them agree again
	}
	has, err = n.repair(runtime, pod, container, containerID, resources, has)
	return has, outcome, err
}

// containerCPUs returns the cpuset of a container's cgroup; empty if it has none, or cannot
// be found. The runtime reports another one if a kubelet was killed while it fitted cpusets,
// or, on cgroup v1, if a CPU was offline for a time.
func containerCPUs(pod *v1.Pod, containerID string) cpuset.CPUSet {
	sets := hierarchy()
	shim.classes.Lock()
	defer shim.classes.Unlock()
	path, found := sets.containerCgroup(pod, containerID)
	if !found {
		return cpuset.New()
	}
	cpus, _ := sets.cpus(path) // empty if it has gone
	return cpus
}

// containerCgroup returns the path of a container's cgroup, and false if it cannot be found. The
// caller holds the lock of classes.
func (c cpusets) containerCgroup(pod *v1.Pod, containerID string) (path string, found bool) {
	above, found := c.podCgroup(pod)
	if !found || !shim.host.podCgroups || containerID == "" {
		return "", false
	}
	for _, child := range c.children(above) {
		if name := filepath.Base(child); strings.Contains(name, containerID) && !strings.Contains(name, "conmon") {
			return child, true
		}
	}
	return "", false
}
