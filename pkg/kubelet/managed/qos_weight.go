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
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"workload.openshift.io/partition"
)

// cgroupRoot is where the host mounts cgroups. Tests change it.
var cgroupRoot = "/sys/fs/cgroup"

// KeepBurstableWeight keeps upstream from lowering the weight of the QoS class Burstable
// until the kubelet knows all its pods again. cgroup is the class's. shares points to
// the weight that an update would write; KeepBurstableWeight sets it to nil to keep the
// present weight.
//
// At its start upstream adds up the requests of the pods that it knows, which are none. It
// corrects that a minute later, or, without an API server, only when that is back. Until then
// the whole class would count as much as BestEffort, and one busy BestEffort pod would have
// half of the pool. The weight may grow meanwhile, since static pods come and change without
// an API server.
//
// After a boot there are no pods whose weight could be kept.
func KeepBurstableWeight(cgroup string, shares **uint64) {
	if shim.current.Load() == nil {
		return
	}
	shim.observed.Lock()
	ready := shim.observed.ready
	shim.observed.Unlock()
	if ready != nil && ready() {
		return
	}
	shim.weighedBefore.decide.Do(func() { shim.weighedBefore.yes = hasPods(cgroup) })
	if shim.weighedBefore.yes && *shares != nil && !exceeds(**shares, cgroup) {
		*shares = nil
	}
}

// weighedBefore remembers whether a class had pods when this kubelet started.
type weighedBefore struct {
	decide sync.Once
	yes    bool
}

// exceeds reports whether shares are more than the weight that a cgroup has, on cgroup v1 and
// v2. If that weight cannot be read, they are not.
func exceeds(shares uint64, cgroup string) bool {
	if now, err := readNumber(filepath.Join(cgroupRoot, "cpu", cgroup), "cpu.shares"); err == nil {
		return shares > now
	}
	now, err := readNumber(filepath.Join(cgroupRoot, cgroup), "cpu.weight")
	return err == nil && partition.WeightOf(int64(shares)) > int64(now)
}

func readNumber(directory, file string) (uint64, error) {
	data, err := readCgroupFile(directory, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(data), 10, 64)
}

// hasPods reports whether a QoS class has cgroups of pods, on cgroup v1 and v2.
func hasPods(cgroup string) bool {
	for _, path := range []string{filepath.Join(cgroupRoot, "cpu", cgroup), filepath.Join(cgroupRoot, cgroup)} {
		entries, err := os.ReadDir(path)
		if err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
			return true
		}
	}
	return false
}
