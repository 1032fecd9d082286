package managed

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// StartPolicy calls start, that of the CPU manager's policy, on a checkpoint whose shared
// set has been computed again: all CPUs that exist, less the reserved ones, less those that
// are assigned exclusively. So neither changed pools, nor a write that a loss of power cut
// in two, nor CPUs that came or went keep the kubelet from starting. Upstream would not
// start until somebody deletes the checkpoint, and with it all exclusive assignments
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState).
//
// Assignments stay as they are. One that holds a CPU of a pool is an error that names the
// pod and leaves the checkpoint as it is, as long as a container of that pod may run; else
// the pod's are dropped, and it gets other CPUs when it is admitted again. So are those of
// a pod of which nothing runs if they hold a CPU that is reserved, or does not exist:
// its containers would be created there.
//
// online are the CPUs of the host, and allocatable those that the policy may give away.
func StartPolicy[F policyStart](start F, s state.State, online, allocatable cpuset.CPUSet) error {
	n, on := partitions()
	if !on || !host.static {
		return callStart(start, s)
	}
	reserved := online.Difference(allocatable)
	skip, err := deriveSharedSet(n, s, online, reserved)
	if err != nil {
		return err
	}
	observed.Lock()
	observed.state = s
	observed.Unlock()
	if n == nil {
		go removeRecordOnceFreed(freedPeriod)
	} else {
		n.writeRecord(nil) // the CPU manager moves all containers, from whatever set
	}
	if skip {
		return nil
	}
	return callStart(start, s)
}

// deriveSharedSet does what StartPolicy says of the checkpoint. It reports whether
// upstream's start is to be left out, since it takes the checkpoint for a damaged one:
// nothing is left to share (upstream comes to that state, and writes it;
// kubernetes/kubernetes issue 141196), or a container runs that was given a CPU that is
// offline now. The metrics that upstream's start would have set are set then.
func deriveSharedSet(n *node, s state.State, online, reserved cpuset.CPUSet) (skip bool, err error) {
	assignments := assignmentsOf(s)
	if len(assignments) == 0 && s.GetDefaultCPUSet().IsEmpty() {
		return false, nil // a new checkpoint, which upstream fills
	}
	ended := map[string]bool{}
	for _, a := range assignments {
		if a.cpus.IsSubsetOf(online.Difference(reserved)) {
			continue // pools are reserved
		}
		if _, asked := ended[a.pod]; !asked {
			ended[a.pod] = !mayRun(a.pod)
		}
		if n == nil || ended[a.pod] {
			continue
		}
		if held := a.cpus.Intersection(n.pooled); !held.IsEmpty() {
			return false, fmt.Errorf("%s exclusively holds CPU %s, which %s gives to a pool, and may be running; stop its containers with the runtime's own tool (crictl stopp), or start the kubelet with the previous file and delete the pod, then start it with this one",
				a, held, partition.PinningFilePath)
		}
	}
	assigned := cpuset.New()
	for _, a := range assignments {
		if ended[a.pod] {
			host.log.Info("A pod of which no container runs held a CPU exclusively that it cannot have now; it gets others when it is admitted again", "holder", a.String(), "cpus", a.cpus.String())
			a.drop(s)
			continue
		}
		assigned = assigned.Union(a.cpus)
		if absent := a.cpus.Difference(online); !absent.IsEmpty() {
			skip = true
			host.log.Error(nil, "A CPU that is held exclusively is offline", "holder", a.String(), "cpus", absent.String())
			nodeEvent(v1.EventTypeWarning, eventCPUOffline, "CPU %s, which %s holds exclusively, is offline: set it online, or delete the pod", absent, a)
		}
	}
	shared := online.Difference(assigned)
	if host.strict {
		shared = shared.Difference(reserved)
	}
	if before := s.GetDefaultCPUSet(); !before.Equals(shared) {
		host.log.Info("Bringing the CPU manager's checkpoint up to date", "sharedBefore", before.String(), "sharedNow", shared.String())
		s.SetDefaultCPUSet(shared)
	}
	if shared.IsEmpty() && !assigned.IsEmpty() {
		host.log.Info("Containers with exclusive CPUs have all that the pools leave", "exclusive", assigned.String())
		skip = true
	}
	if skip {
		initializeMetrics(shared.Difference(reserved), assigned)
	}
	return skip, nil
}

// assignment is CPUs that a container, or a pod as a whole, holds exclusively.
type assignment struct {
	// pod is a UID, and container the name of one of its containers; empty means the pod.
	pod, container string
	cpus           cpuset.CPUSet
}

// assignmentsOf returns all assignments in a fixed order.
func assignmentsOf(s state.State) (all []assignment) {
	for pod, containers := range s.GetCPUAssignments() {
		for container, cpus := range containers {
			all = append(all, assignment{pod, container, cpus})
		}
	}
	all = append(all, podAssignments(s)...)
	slices.SortFunc(all, func(a, b assignment) int {
		return strings.Compare(a.pod+"/"+a.container, b.pod+"/"+b.container)
	})
	return all
}

func (a assignment) String() string {
	if a.container == "" {
		return "pod " + podName(a.pod)
	}
	return fmt.Sprintf("container %s of pod %s", a.container, podName(a.pod))
}

func (a assignment) drop(s state.State) {
	if a.container == "" {
		dropPodAssignment(s, a.pod)
		return
	}
	s.Delete(a.pod, a.container)
}

// podUIDLabel is the kubelet's label of containers (k8s.io/kubelet/pkg/types).
const podUIDLabel = "io.kubernetes.pod.uid"

// mayRun reports whether the runtime has a container of the pod that runs or may run. One
// that cannot be asked may.
func mayRun(uid string) bool {
	observed.Lock()
	runtime := observed.runtime
	observed.Unlock()
	if runtime == nil {
		return true
	}
	containers, err := runtime.ListContainers(context.Background(), &runtimeapi.ContainerFilter{LabelSelector: map[string]string{podUIDLabel: uid}})
	if err != nil {
		host.log.Error(err, "The runtime does not say which containers of a pod run", "pod", podName(uid))
		return true
	}
	return slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.State != runtimeapi.ContainerState_CONTAINER_EXITED
	})
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

// numaNodes is where the kernel lists the CPUs of each NUMA node.
const numaNodes = "/sys/devices/system/node/node[0-9]*"

// initializeMetrics does what upstream's start would have done
// (pkg/kubelet/cm/cpumanager/policy_static.go, initializeMetrics).
func initializeMetrics(shared, assigned cpuset.CPUSet) {
	metrics.CPUManagerSharedPoolSizeMilliCores.Set(float64(shared.Size() * 1000))
	metrics.CPUManagerExclusiveCPUsAllocationCount.Set(float64(assigned.Size()))
	nodes, _ := filepath.Glob(numaNodes) // the pattern is right
	for _, directory := range nodes {
		if cpus, err := readCPUs(filepath.Join(directory, "cpulist")); err == nil {
			id := strings.TrimPrefix(filepath.Base(directory), "node")
			metrics.CPUManagerAllocationPerNUMA.WithLabelValues(id).Set(float64(assigned.Intersection(cpus).Size()))
		}
	}
}
