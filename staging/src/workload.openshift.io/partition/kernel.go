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

package partition

import "time"

// SharesOf returns the shares for a CPU request. SharesOf and QuotaOf convert as upstream does
// when it creates a container (pkg/kubelet/cm/helpers_linux.go, MilliCPUToShares and
// MilliCPUToQuota). No library has these functions.
func SharesOf(millicores int64) int64 {
	const perCPU, most = 1024, 1 << 18
	return min(max(millicores*perCPU/1000, MinShares), most)
}

// QuotaOf returns the CPU time for each period, in microseconds; zero means no limit.
func QuotaOf(millicores int64, period time.Duration) int64 {
	if millicores == 0 || period == 0 {
		return 0
	}
	const least = time.Millisecond
	return max(millicores*period.Microseconds()/1000, least.Microseconds())
}

// WeightOf returns the weight on cgroup v2 for shares, as the kubelet converts them for the
// cgroups of pods (pkg/kubelet/cm/cgroup_manager_linux.go, getCPUWeight). Newer runtimes, and
// github.com/opencontainers/cgroups since the version that v1.34 has, convert in another way.
func WeightOf(shares int64) int64 { return 1 + (max(shares, MinShares)-MinShares)*9999/262142 }
