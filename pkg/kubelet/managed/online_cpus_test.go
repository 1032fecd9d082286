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
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestOfflineCPUsAreReportedOnce(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0, 1), "other": cpuset.New(2)})
	file := filepath.Join(t.TempDir(), "online")
	before, had := onlineCPUsFile, shim.host.online
	onlineCPUsFile, shim.host.online = file, cpuset.New(0, 1, 2, 3)
	forgetOnline(t)
	recorder := record.NewFakeRecorder(10)
	SendEventsTo(recorder, "node")
	t.Cleanup(func() {
		onlineCPUsFile, shim.host.online = before, had
		shim.observed = observation{}
	})
	for range 2 {
		<-recorder.Events // the feature is on
	}
	shim.observed.state = newMemoryState(shim.host.log)
	shim.observed.state.SetCPUSet("x", "c", cpuset.New(3))
	shim.observed.state.SetCPUSet("y", "c", cpuset.New(3, 4)) // 4 was offline at the start
	for _, step := range []struct {
		online string
		want   []string
	}{
		{"0-3", nil},
		{"0,2-3", []string{`Warning WorkloadPartitioningCPUOffline CPU 1 in the pool of workload type management was taken offline: its pods have "0" left of "0-1"`}},
		{"0,2-3", nil},
		{"0", []string{`CPU 1 in the pool of workload type management`, `CPU 2 in the pool of workload type other was taken offline: its pods have "" left of "2"`, `CPU 3, which is in no pool, was taken offline`,
			`No CPU of "2" is left to pods of workload type other, so the kernel runs them on those of other pods`, `The CPUs that are held exclusively by x, y are all offline, so the kernel runs them on those of other pods, pools included`}},
		{"0-3", []string{`Normal WorkloadPartitioningCPUOnline All CPUs "0-3" of the host are online again`}},
		{"", nil},
	} {
		if err := os.WriteFile(file, []byte(step.online+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if step.online == "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := SetCores(t.Context(), &v1.Node{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range append(step.want, "") {
			expectEvent(t, recorder, want)
		}
	}
}

func TestAddedCPUsNeedARestart(t *testing.T) {
	on(t, management)
	restarted(t, &fakeRuntime{}) // with the CPUs 0-3
	forgetOnline(t)
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
	shim.current.Load().reportOnline()
	expectEvent(t, recorder, "")
}

// forgetOnline makes reportOnline compare with what the kubelet found at its start.
func forgetOnline(t *testing.T) {
	shim.lastOnline.Store(nil)
	t.Cleanup(func() { shim.lastOnline.Store(nil) })
}
