package managed

import (
	"context"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

// sight is what is known of a container that was here before this kubelet.
type sight int

const (
	// notBefore: this kubelet has created it.
	notBefore sight = iota
	// reported: the runtime reports its resources. Where no set is noted, it has none, and may
	// use every CPU.
	reported
	// unreported: the runtime does not.
	unreported
	// unanswered: the runtime has not answered yet.
	unanswered
)

// mostQuestions bounds how often the runtime is asked about a container if it does not
// answer.
const mostQuestions = 3

// examine asks the runtime once about a container that was here before this kubelet: the
// set that it has is noted, and its weight and quota are repaired.
func (n *node) examine(pod *v1.Pod, container, containerID string) sight {
	observed.Lock()
	runtime, last := observed.runtime, observed.lastUpdates
	before, is := observed.found[containerID]
	observed.Unlock()
	if !is || last == nil {
		return notBefore
	}
	if before.sight != unanswered || runtime == nil {
		return before.sight
	}
	before.questions++
	has, sight, err := n.look(runtime, pod, container, containerID)
	if before.sight = sight; err != nil {
		host.log.Error(err, "A container that was here before this kubelet cannot be examined", "pod", klog.KObj(pod), "container", container, "containerID", containerID, "attempt", before.questions)
		if before.sight = unanswered; before.questions >= mostQuestions {
			before.sight = unreported
		}
	} else if !has.IsEmpty() {
		note(pod, container, has)
	}
	observed.Lock()
	observed.found[containerID] = before
	observed.Unlock()
	return before.sight
}

func (n *node) look(runtime containerRuntime, pod *v1.Pod, container, containerID string) (has cpuset.CPUSet, _ sight, err error) {
	response, err := runtime.ContainerStatus(context.Background(), containerID, false)
	if err != nil {
		return has, unanswered, err
	}
	// No runtime that reports resources reports a weight of zero, which no kernel accepts.
	resources := response.GetStatus().GetResources().GetLinux()
	if resources.GetCpuShares() == 0 {
		return has, unreported, nil
	}
	if has, err = cpuset.Parse(resources.GetCpusetCpus()); err != nil {
		return has, unanswered, err
	}
	sight := reported
	if actual := containerCPUs(pod, containerID); !has.IsEmpty() && !actual.IsEmpty() && !actual.Equals(has) {
		has, sight = cpuset.New(), unreported // whichever it is, the runtime is to know
	}
	has, err = n.repair(runtime, pod, container, containerID, resources, has)
	return has, sight, err
}

// containerCPUs returns the set of CPUs of a container's cgroup; empty if it has none, or
// cannot be found. It is not what the runtime reports if a kubelet was killed while it
// fitted sets, or, on cgroup v1, if a CPU was offline for a time.
func containerCPUs(pod *v1.Pod, containerID string) cpuset.CPUSet {
	sets := hierarchy()
	classes.Lock()
	path, found := sets.podCgroup(pod)
	classes.Unlock()
	if !found || !host.podCgroups {
		return cpuset.New()
	}
	for _, child := range sets.children(path) {
		if name := filepath.Base(child); strings.Contains(name, containerID) && !strings.Contains(name, "conmon") {
			cpus, _ := sets.cpus(child) // it has gone
			return cpus
		}
	}
	return cpuset.New()
}
