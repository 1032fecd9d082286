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
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

// This file gives the cgroups above a container its CPUs before the container moves to them.
// While a CPU is exclusive, the classes lack it (classes.go); when it is shared again, they
// must have it back before their containers. On cgroup v1 the kernel would refuse the
// container's cpuset. On v2 it would accept the cpuset, but run the container only on those
// of its CPUs that the class has, or on all CPUs of the class if it has none of them.

// makeRoom gives the cgroups above a container the CPUs on which the container will run, and
// returns them. If it cannot, it returns the empty set: not now, look again.
func (n *node) makeRoom(pod *v1.Pod, cpus cpuset.CPUSet) cpuset.CPUSet {
	if cpus.IsEmpty() || !shim.host.podCgroups {
		return cpus
	}
	sets := hierarchy()
	shim.classes.Lock()
	path, found := sets.podCgroup(pod)
	update, inClass := shim.classes.update, slices.Contains(shim.classes.names, filepath.Dir(path))
	shim.classes.Unlock()
	if !found {
		return cpus
	}
	// Without the lock, which update takes when it calls ConfineClasses.
	var err error
	if inClass {
		err = sets.makeRoomInClass(filepath.Dir(path), update, cpus)
	}
	if err == nil {
		err = n.makeRoomInPod(pod, sets, path, cpus)
	}
	if err != nil && !gone(err) {
		shim.host.log.Error(err, "Cannot give the cgroups above a container its CPUs; trying again", "pod", klog.KObj(pod), "cgroup", path, "cpus", cpus.String())
		return cpuset.New()
	}
	return cpus
}

// makeRoomInClass has upstream update the classes if the class lacks any of the CPUs. It
// returns an error if the class lacks one after that: the CPU became exclusive after it was
// chosen.
func (c cpusets) makeRoomInClass(class string, update func() error, cpus cpuset.CPUSet) error {
	cpus = cpus.Intersection(onlineCPUs())
	lacks := func() (cpuset.CPUSet, error) {
		has, err := c.cpus(class)
		if err != nil || has.IsEmpty() {
			return cpuset.New(), err // without a cpuset it lacks no CPU
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

// makeRoomInPod widens a pod's cgroup if it lacks any of the CPUs: RepairPodCgroup does not look
// at a pod that ends. On cgroup v1, an ordinary pod gets the cpuset of its class. So does what is
// in it without its own cpuset: its sandbox.
func (n *node) makeRoomInPod(pod *v1.Pod, sets cpusets, path string, cpus cpuset.CPUSet) error {
	shim.classes.Lock()
	defer shim.classes.Unlock()
	if _, confined := n.pool(pod); confined || !sets.v1 {
		return sets.widen(path, cpus) // RepairPodCgroup narrows it later
	}
	has, err := sets.cpus(path)
	if err != nil || cpus.IsSubsetOf(has) {
		return err
	}
	return sets.widenToParent(path, sameAsItsPod)
}
