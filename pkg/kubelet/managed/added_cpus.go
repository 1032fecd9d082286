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
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// added are the CPUs that reportAdded last found.
var added struct {
	sync.Mutex
	cpus cpuset.CPUSet
}

// reportAdded sends an Event about CPUs that came after the kubelet started. Without pools and
// under the policy none, containers have no cpuset and run there at once; with pools their
// cpusets name the CPUs that the kubelet found.
func (n *node) reportAdded() {
	online, err := readCPUs(onlineCPUsFile)
	if err != nil || n.pooled.IsEmpty() || host.online.IsEmpty() {
		return // Configure could read it, so an error will pass
	}
	now := online.Difference(host.online)
	added.Lock()
	news := now.Difference(added.cpus)
	added.cpus = now
	added.Unlock()
	if !news.IsEmpty() {
		nodeEvent(v1.EventTypeWarning, eventCPUOnline, "CPU %s came online after the kubelet had started, so no container may use it yet: restart the kubelet", news)
	}
}
