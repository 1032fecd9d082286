package managed

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// cgroupRoot is where the host mounts cgroups; tests have another.
var cgroupRoot = "/sys/fs/cgroup"

// KeepBurstableWeight takes the weight of the QoS class Burstable, whose cgroup it is given, out
// of an update of cgroups that would lower it, until the kubelet knows all its pods again.
// Upstream adds up the requests of the pods that it knows when it starts, which are none,
// and corrects that a minute later, or, without an API server, when that comes back: until
// then the whole class would count as much as BestEffort, and a busy BestEffort pod would
// have half of the pool. The weight may grow meanwhile, since static pods come and change
// without an API server.
//
// After a boot there are no pods whose weight could be kept.
func KeepBurstableWeight(cgroup string, shares **uint64) {
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
	if weighedBefore.yes && *shares != nil && !exceeds(**shares, cgroup) {
		*shares = nil
	}
}

// weighedBefore tells whether the class had pods when this kubelet started.
var weighedBefore struct {
	decide sync.Once
	yes    bool
}

// exceeds reports whether shares are more than the weight of a cgroup, in either version
// of cgroups. A weight that cannot be read is kept.
func exceeds(shares uint64, cgroup string) bool {
	if now, err := readNumber(filepath.Join(cgroupRoot, "cpu", cgroup, "cpu.shares")); err == nil {
		return shares > now
	}
	now, err := readNumber(filepath.Join(cgroupRoot, cgroup, "cpu.weight"))
	// As the kubelet converts its own cgroups' (pkg/kubelet/cm/cgroup_manager_linux.go, getCPUWeight).
	return err == nil && 1+(max(shares, 2)-2)*9999/262142 > now
}

func readNumber(file string) (uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
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
