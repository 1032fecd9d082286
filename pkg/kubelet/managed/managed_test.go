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
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// on switches the feature on as Configure would, for a host of four CPUs.
func on(t *testing.T, pools partition.Pools) {
	t.Helper()
	shim.current.Store(newNode(pools, cpuset.New(0, 1, 2, 3), cpuset.New(), pools.Union()))
	t.Cleanup(func() { shim.current.Store(nil) })
}

var management = partition.Pools{"management": cpuset.New(0, 1)}

var ordinaryPod, partitionedPod = partitiontest.OrdinaryPod, partitiontest.PartitionedPod

func withUID(pod *v1.Pod, uid types.UID) *v1.Pod {
	pod.UID = uid
	return pod
}

// internal returns a pod in the representation in which the kubelet reads static pods.
func internal(t *testing.T, pod *v1.Pod) *core.Pod {
	t.Helper()
	var converted core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &converted, nil); err != nil {
		t.Fatal(err)
	}
	return &converted
}

// creating returns what the runtime would create a container from. cpus are the CPUs that the
// CPU manager chose; empty means that it chose none.
func creating(name, cpus string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus}},
	}
}

// parse reads a CPU list.
func parse(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	cpus, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// recordEvents gives the hooks a recorder of Events, for the time of a test.
func recordEvents(t *testing.T) *record.FakeRecorder {
	t.Helper()
	recorder := record.NewFakeRecorder(20)
	shim.observed.recorder, shim.observed.node = recorder, "node"
	t.Cleanup(func() { shim.observed.recorder, shim.observed.pending = nil, nil })
	return recorder
}

// expectEvent compares the next Event; the empty text means that there must be none.
func expectEvent(t *testing.T, recorder *record.FakeRecorder, want string) {
	t.Helper()
	select {
	case got := <-recorder.Events:
		if want == "" || !strings.Contains(got, want) {
			t.Errorf("the Event is %q, want %q", got, want)
		}
	default:
		if want != "" {
			t.Errorf("no Event, want %q", want)
		}
	}
}

// startedIn sets the record's path as Configure does, for the time of a test. The test may change
// host.
func startedIn(t *testing.T, rootDirectory string) {
	t.Helper()
	before := shim.host
	setRecordPath(rootDirectory)
	t.Cleanup(func() { shim.recordPath, shim.host = "", before })
}
