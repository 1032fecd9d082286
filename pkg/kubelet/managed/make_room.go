package managed

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

// makeRoom sees to it that the cgroups above a container that is to run on the given CPUs
// have them, and returns these; or none, which means: not now, look again.
//
// The classes have lost CPUs that were exclusive, and must have them back before the
// containers. On cgroup v1 the kernel would refuse the container's set.
func (n *node) makeRoom(pod *v1.Pod, cpus cpuset.CPUSet) cpuset.CPUSet {
	if cpus.IsEmpty() || !host.podCgroups {
		return cpus
	}
	sets := hierarchy()
	classes.Lock()
	path, found := sets.podCgroup(pod)
	update, inClass := classes.update, slices.Contains(classes.names, filepath.Dir(path))
	classes.Unlock()
	if !found {
		return cpus
	}
	var err error
	if inClass {
		err = sets.makeRoomInClass(filepath.Dir(path), update, cpus)
	}
	if err == nil && sets.v1 {
		err = n.makeRoomInPod(pod, sets, path, cpus)
	}
	if err != nil && !gone(err) {
		host.log.Error(err, "The cgroups above a container cannot be given its CPUs; trying again", "pod", klog.KObj(pod), "cgroup", path, "cpus", cpus.String())
		return cpuset.New()
	}
	return cpus
}

// makeRoomInClass has upstream update the classes if one lacks CPUs. It is an error if it lacks
// them then: they were given away after they had been chosen.
func (c cpusets) makeRoomInClass(class string, update func() error, cpus cpuset.CPUSet) error {
	cpus = cpus.Intersection(onlineCPUs())
	lacks := func() (cpuset.CPUSet, error) {
		has, err := c.cpus(class)
		if err != nil || has.IsEmpty() {
			return cpuset.New(), err
		}
		return cpus.Difference(has), nil
	}
	if missing, err := lacks(); err != nil || missing.IsEmpty() {
		return err
	}
	if err := update(); err != nil {
		return err
	}
	missing, err := lacks()
	if err == nil && !missing.IsEmpty() {
		err = fmt.Errorf("%s lacks CPU %s", class, missing)
	}
	return err
}

func (n *node) makeRoomInPod(pod *v1.Pod, sets cpusets, path string, cpus cpuset.CPUSet) error {
	classes.Lock()
	defer classes.Unlock()
	has, err := sets.cpus(path)
	if err != nil || cpus.IsSubsetOf(has) {
		return err
	}
	if _, confined := n.pool(pod); confined {
		return sets.widen(path, cpus) // RepairPodCgroup narrows it
	}
	return sets.restore(path, likeItsPod)
}
