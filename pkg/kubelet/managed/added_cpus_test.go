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
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestAddedCPUsNeedARestart(t *testing.T) {
	on(t, management)
	restarted(t, &fakeRuntime{}) // with the CPUs 0-3
	t.Cleanup(func() { added.cpus = cpuset.New() })
	recorder := recordEvents(t)
	for _, step := range []struct{ online, want string }{
		{"0-3", ""},
		{"0-4", "Warning WorkloadPartitioningCPUOnline CPU 4 came online after the kubelet had started, so no container may use it yet: restart the kubelet"},
		{"0-4", ""},
		{"0-6", "CPU 5-6 came online"},
		{"0-3", ""},
		{"0-4", "CPU 4 came online"},
	} {
		onlineFile(t, step.online)
		if err := SetCores(t.Context(), &v1.Node{}); err != nil {
			t.Fatal(err)
		}
		expectEvent(t, recorder, step.want)
	}
	// Where nothing is confined, containers use whatever comes.
	on(t, partition.Pools{"management": cpuset.New()})
	onlineFile(t, "0-7")
	current.Load().reportAdded()
	expectEvent(t, recorder, "")
}
