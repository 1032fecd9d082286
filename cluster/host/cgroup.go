// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	v1fs "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fscommon"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// Usage is what the kernel says about a cgroup. Cgroup v2 does not count each CPU on its own:
// there Used has one number, for all of them.
type Usage struct {
	// CPUs is the CPU list of its cpuset.
	CPUs string
	// Tasks are the CPU lists that its tasks may use, each list once. They may be narrower than
	// CPUs.
	Tasks []string
	// Used is the time spent on each CPU.
	Used []time.Duration
	// Weight is cpu.shares on cgroup v1, cpu.weight on v2.
	Weight int64
	// Quota is the CPU time allowed in each period, in CPUs; zero means no limit.
	Quota float64
	// MemoryHigh is memory.high of cgroup v2, in bytes; zero means no limit.
	MemoryHigh int64
}

// PodUsage reads the cgroup of a pod; ContainerUsage that of one of its containers.
func PodUsage(pod *v1.Pod) (Usage, error) { return usage(podCgroup(pod)) }

// ContainerUsage reads the cgroup of a container, by the ID in the pod's status.
func ContainerUsage(pod *v1.Pod, containerID string) (Usage, error) {
	runtime, id, found := strings.Cut(containerID, "://")
	if !found {
		return Usage{}, fmt.Errorf("pod %s/%s: container ID %q names no runtime", pod.Namespace, pod.Name, containerID)
	}
	switch {
	case runtime == "cri-o":
		id = "crio-" + id
	case bySystemd():
		id = "cri-containerd-" + id
	}
	if bySystemd() {
		id += ".scope"
	}
	return usage(filepath.Join(podCgroup(pod), id))
}

// podCgroup returns the path that the kubelet gives a pod's cgroup, below each controller
// (pkg/kubelet/cm/pod_container_manager_linux.go, and cgroup_manager_linux.go for the
// names under systemd).
func podCgroup(pod *v1.Pod) string {
	class := strings.ToLower(string(pod.Status.QOSClass))
	if pod.Status.QOSClass == v1.PodQOSGuaranteed {
		class = ""
	}
	uid := string(pod.UID)
	if hash, mirrored := pod.Annotations[v1.MirrorPodAnnotationKey]; mirrored {
		uid = hash
	}
	if !bySystemd() {
		return filepath.Join("kubepods", class, "pod"+uid)
	}
	slice := "kubepods"
	if class != "" {
		slice += "-" + class
	}
	return filepath.Join(qosCgroup(class), slice+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
}

// qosCgroup returns the cgroup of a QoS class; that of the empty class is the cgroup of all pods.
func qosCgroup(class string) string {
	switch {
	case !bySystemd():
		return filepath.Join("kubepods", class)
	case class == "":
		return "kubepods.slice"
	}
	return filepath.Join("kubepods.slice", "kubepods-"+class+".slice")
}

// bySystemd reports whether this host's kubelet leaves cgroups to systemd.
func bySystemd() bool {
	found, err := topCgroups("kubepods.slice")
	return err == nil && len(found) > 0
}

// QoSUsage reads the cgroup of a QoS class.
func QoSUsage(class v1.PodQOSClass) (Usage, error) {
	return usage(qosCgroup(strings.ToLower(string(class))))
}

func usage(cgroup string) (Usage, error) {
	if CgroupV1() {
		return usageV1(cgroup)
	}
	return usageV2(cgroup)
}

// reader reads files of cgroups; once one cannot be read it returns zero values.
type reader struct{ err error }

func (r *reader) text(dir, file string) (text string) {
	if r.err == nil {
		text, r.err = fscommon.GetCgroupParamString(dir, file)
	}
	return text
}

// number returns [math.MaxInt64] for "max".
func (r *reader) number(dir, file string) (number int64) {
	if r.err == nil {
		number, r.err = fscommon.GetCgroupParamInt(dir, file)
	}
	return number
}

// The library's statistics have the time used. They lack what is effective, and what is set.

func usageV1(cgroup string) (u Usage, err error) {
	dir := func(controller string) string { return filepath.Join("/sys/fs/cgroup", controller, cgroup) }
	var r reader
	u.CPUs = r.text(dir("cpuset"), "cpuset.effective_cpus")
	tasks := r.text(dir("cpuset"), "tasks")
	u.Weight = r.number(dir("cpu"), "cpu.shares")
	quota, period := r.number(dir("cpu"), "cpu.cfs_quota_us"), r.number(dir("cpu"), "cpu.cfs_period_us")
	if quota > 0 && period > 0 {
		u.Quota = float64(quota) / float64(period)
	}
	if r.err != nil {
		return u, r.err
	}
	stats := cgroups.NewStats()
	if err := (&v1fs.CpuacctGroup{}).GetStats(dir("cpuacct"), stats); err != nil {
		return u, err
	}
	for _, nanoseconds := range stats.CpuStats.CpuUsage.PercpuUsage {
		u.Used = append(u.Used, time.Duration(nanoseconds))
	}
	u.Tasks, err = taskCPUs(tasks)
	return u, err
}

// taskCPUs returns what the tasks, by their numbers, may use. The library lists processes, whose
// threads may have other CPUs.
func taskCPUs(tasks string) (lists []string, err error) {
	for task := range strings.FieldsSeq(tasks) {
		id, err := strconv.Atoi(task)
		if err != nil {
			return nil, err
		}
		if id == 0 {
			continue // in a PID namespace that we do not see; to the kernel, zero would mean this process
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(id, &set); errors.Is(err, unix.ESRCH) {
			continue // it has ended
		} else if err != nil {
			return nil, fmt.Errorf("affinity of task %d: %w", id, err)
		}
		var cpus []int
		for cpu := range len(set) * bits.UintSize {
			if set.IsSet(cpu) {
				cpus = append(cpus, cpu)
			}
		}
		lists = append(lists, cpuset.New(cpus...).String())
	}
	slices.Sort(lists)
	return slices.Compact(lists), nil
}

func usageV2(cgroup string) (u Usage, err error) {
	dir := filepath.Join("/sys/fs/cgroup", cgroup)
	var r reader
	u.CPUs = r.text(dir, "cpuset.cpus.effective")
	if errors.Is(r.err, fs.ErrNotExist) && cgroups.PathExists(dir) {
		return u, fmt.Errorf("%s: the host's cgroups have no cpuset controller there", dir)
	}
	u.Weight = r.number(dir, "cpu.weight")
	if fields := strings.Fields(r.text(dir, "cpu.max")); len(fields) == 2 && fields[0] != "max" {
		quota, _ := strconv.ParseFloat(fields[0], 64)
		period, _ := strconv.ParseFloat(fields[1], 64)
		u.Quota = quota / period
	}
	if high := r.number(dir, "memory.high"); high != math.MaxInt64 {
		u.MemoryHigh = high
	}
	if r.err != nil {
		return u, r.err
	}
	micros, err := fscommon.GetValueByKey(dir, "cpu.stat", "usage_usec")
	if err != nil {
		return u, err
	}
	u.Used = []time.Duration{time.Duration(micros) * time.Microsecond}
	if threads, err := cgroups.ReadFile(dir, "cgroup.threads"); err == nil { // not readable where there are only groups
		u.Tasks, err = taskCPUs(threads)
		return u, err
	}
	return u, nil
}

// Below returns what the kernel says about each cgroup below a pod's, by its name: those of its
// containers and of its sandbox.
func Below(pod *v1.Pod) (map[string]Usage, error) {
	top, root := podCgroup(pod), cpusetRoot()
	found := map[string]Usage{}
	return found, filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(filepath.Join(root, top), path)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && (!entry.IsDir() || name == ".")) {
			return nil // it has ended
		}
		if err != nil {
			return err
		}
		of, err := usage(filepath.Join(top, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found[name] = of
		return err
	})
}

// AllPodsUsage reads the cgroup of all pods, which also counts the CPU time of deleted pods.
func AllPodsUsage() (Usage, error) { return usage(qosCgroup("")) }

// ClassCgroups returns the cgroups in which those of pods are: the one of all pods, and those of the
// classes Burstable and BestEffort. They are paths in each hierarchy.
func ClassCgroups() (paths []string) {
	for _, class := range []string{"", "burstable", "besteffort"} {
		paths = append(paths, qosCgroup(class))
	}
	return paths
}

// PodCgroups returns the cgroups of all pods, as paths in the hierarchy of cpusets.
func PodCgroups() (paths []string, err error) {
	pattern := "pod*"
	if bySystemd() {
		pattern = "kubepods*-pod*.slice"
	}
	for _, class := range ClassCgroups() {
		found, err := filepath.Glob(filepath.Join(cpusetRoot(), class, pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// Sandbox reads each cgroup below a pod's that is no container's, by its path below the pod's: that of the sandbox, and of a
// monitor that the runtime puts there.
func Sandbox(pod *v1.Pod) (map[string]Usage, error) {
	below, err := Below(pod)
	maps.DeleteFunc(below, func(name string, _ Usage) bool {
		return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(status v1.ContainerStatus) bool {
			_, id, _ := strings.Cut(status.ContainerID, "://")
			return id != "" && strings.Contains(name, id)
		})
	})
	return below, err
}

// SetSandboxCPUs writes the cpuset of a pod's sandbox, as a runtime might.
func SetSandboxCPUs(pod *v1.Pod, cpus string) error {
	found, err := Sandbox(pod)
	for name := range found {
		err = errors.Join(err, setCPUs(filepath.Join(podCgroup(pod), name), cpus))
	}
	return err
}

// SetCPUs writes the cpuset of a container or sandbox, by the runtime's ID.
func SetCPUs(id, cpus string) error {
	root := filepath.Join(cpusetRoot(), qosCgroup(""))
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has ended
		}
		if err != nil || !entry.IsDir() || !strings.Contains(entry.Name(), id) {
			return err
		}
		found++
		return cgroups.WriteFile(path, "cpuset.cpus", cpus)
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("no cgroup below %s belongs to %s", root, id)
	}
	return err
}

// SetQoSCPUs writes the cpuset of a QoS class; for the empty class, that of all pods.
func SetQoSCPUs(class v1.PodQOSClass, cpus string) error {
	return setCPUs(qosCgroup(strings.ToLower(string(class))), cpus)
}

func setCPUs(cgroup, cpus string) error {
	return cgroups.WriteFile(filepath.Join(cpusetRoot(), cgroup), "cpuset.cpus", cpus)
}

func cpusetRoot() string {
	if CgroupV1() {
		return "/sys/fs/cgroup/cpuset"
	}
	return "/sys/fs/cgroup"
}

// OnlineCPUs returns the CPUs of this host that are online. It has the three lines of node/topology
// again: with them, this module and all that require it would require that one.
func OnlineCPUs() (cpuset.CPUSet, error) {
	data, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(data)))
}
