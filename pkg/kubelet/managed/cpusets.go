package managed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/utils/cpuset"
)

// cpusets is the host's hierarchy of cgroups with sets of CPUs. On cgroup v2 the kernel
// intersects a cgroup's set with its parent's, and takes the parent's where nothing is left.
// On v1 it refuses a set that is not within the parent's, and one that does not hold the
// children's.
type cpusets struct {
	root string
	v1   bool
}

// hierarchy returns the one that is mounted. A host with v1's controller of cpusets has no
// v2's, whatever else it has.
func hierarchy() cpusets {
	v1 := filepath.Join(cgroupRoot, "cpuset")
	if info, err := os.Stat(v1); err == nil && info.IsDir() {
		return cpusets{root: v1, v1: true}
	}
	return cpusets{root: cgroupRoot}
}

// cpus returns the set of a cgroup as it was written. On cgroup v2 it is empty as long as
// nothing was.
func (c cpusets) cpus(cgroup string) (cpuset.CPUSet, error) {
	return readList(filepath.Join(c.root, cgroup, "cpuset.cpus"))
}

// effective returns the CPUs that a cgroup has.
func (c cpusets) effective(cgroup string) (cpuset.CPUSet, error) {
	if c.v1 {
		return c.cpus(cgroup)
	}
	return readList(filepath.Join(c.root, cgroup, "cpuset.cpus.effective"))
}

// all returns all CPUs that a cgroup may have. On cgroup v2 a set may hold CPUs that are
// offline, and has them again when they come back.
func (c cpusets) all() cpuset.CPUSet {
	if !c.v1 {
		if possible, err := readCPUs(possibleCPUsFile); err == nil {
			return possible
		}
	}
	return onlineCPUs()
}

func (c cpusets) set(cgroup string, cpus cpuset.CPUSet) error {
	file, err := os.OpenFile(filepath.Join(c.root, cgroup, "cpuset.cpus"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(cpus.String())
	return errors.Join(err, file.Close())
}

// children returns the cgroups right below one.
func (c cpusets) children(cgroup string) (children []string) {
	entries, _ := os.ReadDir(filepath.Join(c.root, cgroup)) // a cgroup that has gone has none
	for _, entry := range entries {
		if entry.IsDir() {
			children = append(children, filepath.Join(cgroup, entry.Name()))
		}
	}
	return children
}

// widen adds CPUs to the set of a cgroup. One without a set of its own has its parent's.
func (c cpusets) widen(cgroup string, cpus cpuset.CPUSet) error {
	has, err := c.cpus(cgroup)
	if err != nil || has.IsEmpty() || cpus.IsSubsetOf(has) {
		return err
	}
	return c.set(cgroup, has.Union(cpus))
}

// fit gives a cgroup, on cgroup v1, a set that those below may exceed: they keep what they
// have of it, and get otherwise, a part of it, if that is nothing. The lowest are written
// first, and the cgroup last, so the kernel refuses nothing.
func (c cpusets) fit(cgroup string, cpus, otherwise cpuset.CPUSet) error {
	if err := c.widen(cgroup, cpus); err != nil {
		return err
	}
	for _, child := range c.children(cgroup) {
		has, err := c.cpus(child)
		if err == nil && !has.IsSubsetOf(cpus) {
			kept := has.Intersection(cpus)
			if kept.IsEmpty() {
				kept = otherwise
			}
			below := otherwise.Intersection(kept)
			if below.IsEmpty() {
				below = kept
			}
			err = c.fit(child, kept, below)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return c.set(cgroup, cpus)
}

// restore gives a cgroup of a pod, on cgroup v1, its parent's set. Those right below follow
// that are to: the CPU manager sees to containers.
func (c cpusets) restore(cgroup string, follows func(child string, has, before cpuset.CPUSet) bool) error {
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

// likeItsPod tells that nobody has given a cgroup a set of its own: it had its pod's when it
// was created, as sandboxes have, and was narrowed with it.
func likeItsPod(_ string, has, before cpuset.CPUSet) bool { return has.Equals(before) }

// gone reports whether an error is that of a cgroup that has been removed, which may be at any
// time.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
