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
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/utils/cpuset"
)

// cpusets is the host's hierarchy of cgroups that have cpusets. It reads and writes their files as
// the kubelet's container manager does, by github.com/opencontainers/cgroups, in each release's own version.
//
// The kernel's rules differ between the versions:
//
//   - On cgroup v2 a cgroup runs on the CPUs that its cpuset and its parent's have in common,
//     or on its parent's CPUs if they have none in common.
//   - On cgroup v1 the kernel refuses a cpuset that is not within the parent's, and one that
//     does not hold the children's. So widen from the top down, and narrow from the bottom up.
type cpusets struct {
	root string
	v1   bool
}

// hierarchy returns the hierarchy that the host has mounted. v1's cpuset controller decides:
// a host that has it lacks v2's, even if it mounts both versions.
func hierarchy() cpusets {
	v1 := filepath.Join(cgroupRoot, "cpuset")
	if info, err := os.Stat(v1); err == nil && info.IsDir() {
		return cpusets{root: v1, v1: true}
	}
	return cpusets{root: cgroupRoot}
}

// cpus returns the cpuset of a cgroup as it was written. On cgroup v2 it is empty until
// one is written.
func (c cpusets) cpus(cgroup string) (cpuset.CPUSet, error) {
	return readCPUSet(filepath.Join(c.root, cgroup), "cpuset.cpus")
}

// effective returns the CPUs on which a cgroup can run.
func (c cpusets) effective(cgroup string) (cpuset.CPUSet, error) {
	if c.v1 {
		return c.cpus(cgroup)
	}
	return readCPUSet(filepath.Join(c.root, cgroup), "cpuset.cpus.effective")
}

// all returns every CPU that a cpuset may hold. On cgroup v2 these include offline CPUs: the
// cgroup gets them back when they come online.
func (c cpusets) all() cpuset.CPUSet {
	if !c.v1 {
		if possible, err := readCPUs(possibleCPUsFile); err == nil {
			return possible
		}
	}
	return onlineCPUs()
}

// set writes the cpuset of a cgroup.
func (c cpusets) set(cgroup string, cpus cpuset.CPUSet) error {
	return writeCgroupFile(filepath.Join(c.root, cgroup), "cpuset.cpus", cpus.String())
}

// readCPUSet reads a file of a cgroup.
func readCPUSet(directory, file string) (cpuset.CPUSet, error) {
	data, err := readCgroupFile(directory, file)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return parseList(filepath.Join(directory, file), data)
}

// children returns the cgroups directly below a cgroup; none if it has gone.
func (c cpusets) children(cgroup string) (children []string) {
	entries, _ := os.ReadDir(filepath.Join(c.root, cgroup))
	for _, entry := range entries {
		if entry.IsDir() {
			children = append(children, filepath.Join(cgroup, entry.Name()))
		}
	}
	return children
}

// widen adds CPUs to the cpuset of a cgroup. A cgroup without a cpuset has its parent's, and
// stays without one.
func (c cpusets) widen(cgroup string, cpus cpuset.CPUSet) error {
	has, err := c.cpus(cgroup)
	if err != nil || has.IsEmpty() || cpus.IsSubsetOf(has) {
		return err
	}
	return c.set(cgroup, has.Union(cpus))
}

// fit gives a cgroup on cgroup v1 the CPUs cpus, even if cgroups below have others. Each of
// those keeps what it has of cpus, or, if that is nothing, gets otherwise, which is a part of
// cpus. above is how many levels containers are below the cgroup: 2 for a class, 1 for a pod, and
// 0 for a container and what it has made below itself; see wants.
//
// It widens the cgroup first, so that the children may have any of cpus; then it fits the
// children, down to the lowest; and it narrows the cgroup last. In that order the kernel
// refuses none of the writes. The caller holds the lock of classes.
func (c cpusets) fit(cgroup string, cpus, otherwise cpuset.CPUSet, above int) error {
	before, err := c.cpus(cgroup)
	if err != nil {
		return err
	}
	if err := c.widen(cgroup, cpus); err != nil {
		return err
	}
	for _, child := range c.children(cgroup) {
		has, err := c.cpus(child)
		if err == nil && !has.IsEmpty() { // one without a cpuset has no task
			wants := has
			if above == 0 {
				wants = c.wants(child, has, before, cpus)
			}
			kept := wants.Intersection(cpus)
			if kept.IsEmpty() {
				kept = otherwise
			}
			below := otherwise.Intersection(kept)
			if below.IsEmpty() {
				below = kept
			}
			if !kept.Equals(has) {
				if err = c.fit(child, kept, below, max(above-1, 0)); err == nil && above <= 1 {
					noteNarrowed(child, wants, kept)
				}
			}
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return c.set(cgroup, cpus)
}

// wants returns the CPUs that a cgroup below a container should have, as far as the container has
// them. It has the cpuset has, and the cgroup above it had the cpuset before, and gets cpus.
//
//   - If fit has narrowed it, and its cpuset was not written since, it wants what it had.
//   - If it has all that the cgroup above had, then it inherited that, as the cgroups do that
//     runtimes create in containers, and wants all that the cgroup above gets.
//   - Otherwise, its creator wants just that.
func (c cpusets) wants(cgroup string, has, before, cpus cpuset.CPUSet) cpuset.CPUSet {
	if was, ok := shim.classes.narrowed[cgroup]; ok && was.to.Equals(has) {
		return was.from
	}
	if has.Equals(before) {
		return cpus
	}
	return has
}

// narrowing is what fit did to the cpuset of a cgroup.
type narrowing struct{ from, to cpuset.CPUSet }

// noteNarrowed notes that a container, or a cgroup below one, was narrowed, or forgets it if it was
// not, or no longer.
func noteNarrowed(cgroup string, from, to cpuset.CPUSet) {
	if from.Equals(to) {
		delete(shim.classes.narrowed, cgroup)
		return
	}
	if shim.classes.narrowed == nil {
		shim.classes.narrowed = map[string]narrowing{}
	}
	shim.classes.narrowed[cgroup] = narrowing{from, to}
}

// forgetNarrowed forgets the narrowed cgroups that have gone.
func (c cpusets) forgetNarrowed() {
	maps.DeleteFunc(shim.classes.narrowed, func(cgroup string, _ narrowing) bool {
		_, err := os.Stat(filepath.Join(c.root, cgroup))
		return err != nil
	})
}

// widenToParent gives a pod's cgroup on cgroup v1 its parent's cpuset, and the same to the
// children for which follows returns true; containers are left to the CPU manager. follows
// gets the child's path, its cpuset, and the cpuset that the pod's cgroup had before.
func (c cpusets) widenToParent(cgroup string, follows func(child string, has, before cpuset.CPUSet) bool) error {
	all, err := c.cpus(filepath.Dir(cgroup))
	if err != nil {
		return err
	}
	before, err := c.cpus(cgroup)
	if err != nil {
		return err
	}
	if err := c.widen(cgroup, all); err != nil {
		return err
	}
	for _, child := range c.children(cgroup) {
		has, err := c.cpus(child)
		if err == nil && follows(child, has, before) {
			err = c.widen(child, all)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// sameAsItsPod reports whether a child has the cpuset that its pod had. Then it inherited that
// when it was created, as sandboxes do, and was narrowed with the pod: it was never given one of
// its own.
func sameAsItsPod(_ string, has, before cpuset.CPUSet) bool { return has.Equals(before) }

// gone reports whether an error means that the cgroup has been removed, which may happen at
// any time.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
