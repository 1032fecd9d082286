package managed

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// cgroupRoot is where the host mounts cgroups; tests have another.
var cgroupRoot = "/sys/fs/cgroup"

// KeepWeight takes the weight of the QoS class Burstable, whose cgroup it is given, out
// of an update of cgroups, until the kubelet knows all its pods again. Upstream adds up
// the requests of the pods that it knows when it starts, which are none, and corrects
// that a minute later: until then the whole class would count as much as BestEffort,
// and a busy BestEffort pod would have half of the pool.
//
// After a boot there are no pods whose weight could be kept, and static pods run, and
// should weigh something, long before an API server answers.
func KeepWeight(cgroup string, shares **uint64) {
	if current.Load() == nil {
		return
	}
	observed.Lock()
	ready := observed.ready
	observed.Unlock()
	if ready != nil && ready() {
		return
	}
	weighedBefore.decide.Do(func() { weighedBefore.yes = hasPods(cgroup) })
	if weighedBefore.yes {
		*shares = nil
	}
}

// weighedBefore tells whether the class had pods when this kubelet started.
var weighedBefore struct {
	decide sync.Once
	yes    bool
}

// hasPods reports whether a QoS class has cgroups of pods, in either version of cgroups.
func hasPods(cgroup string) bool {
	for _, path := range []string{filepath.Join(cgroupRoot, "cpu", cgroup), filepath.Join(cgroupRoot, cgroup)} {
		entries, err := os.ReadDir(path)
		if err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
			return true
		}
	}
	return false
}
