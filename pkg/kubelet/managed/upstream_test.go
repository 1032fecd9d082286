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
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
)

// newMemoryState calls upstream's NewMemoryState. Up to v1.34 it has no logger.
func newMemoryState(logger klog.Logger) state.State {
	create := reflect.ValueOf(state.NewMemoryState)
	var arguments []reflect.Value
	if create.Type().NumIn() > 0 {
		arguments = append(arguments, reflect.ValueOf(logger))
	}
	return create.Call(arguments)[0].Interface().(state.State)
}

func TestFunctionsOfEveryReleaseAreCalled(t *testing.T) {
	startedIn(t, t.TempDir())
	want := errors.New("from the policy")
	if err := StartPolicy(func(state.State) error { return want }, nil, cpuset.New(), cpuset.New()); err != want {
		t.Error("without a logger:", err)
	}
	if err := StartPolicy(func(klog.Logger, state.State) error { return want }, nil, cpuset.New(), cpuset.New()); err != want {
		t.Error("with a logger:", err)
	}
	if failed := callReconcile[int](func() (_, _ []int) { return nil, []int{1} }); len(failed) != 1 {
		t.Error("without a context:", failed)
	}
	if failed := callReconcile[int](func(context.Context) (_, _ []int) { return nil, []int{1} }); len(failed) != 1 {
		t.Error("with a context:", failed)
	}
}

// setPodAssignment gives CPUs to a whole pod. It skips the test on releases that have no such
// thing.
//
// It sets all assignments, since SetPodCPUSet panics in v1.36 while the gate
// PodLevelResourceManagers is off.
func setPodAssignment(t *testing.T, s state.State, pod string, cpus cpuset.CPUSet) {
	t.Helper()
	set := reflect.ValueOf(s).MethodByName("SetPodCPUAssignments")
	if !set.IsValid() {
		t.Skip("this release has no assignments of pods")
	}
	assignments := reflect.MakeMap(set.Type().In(0))
	entry := reflect.New(assignments.Type().Elem()).Elem()
	entry.FieldByName("CPUSet").Set(reflect.ValueOf(cpus))
	assignments.SetMapIndex(reflect.ValueOf(pod), entry)
	set.Call([]reflect.Value{assignments})
}

func TestTheCPUsOfUpstreamsSystemPartitionAreRead(t *testing.T) {
	type partitionByPointer struct {
		SystemPartition *struct{ CPUSet *string }
	}
	type partitionByValue struct{ SystemPartition struct{ Cpuset string } }
	cpus := "0-3"
	for name, test := range map[string]struct {
		config any
		want   string
	}{
		"without the field there are none":     {config: &kubeletconfig.KubeletConfiguration{}},
		"without a partition there are none":   {config: &partitionByPointer{}},
		"a partition of memory alone has none": {config: &partitionByPointer{SystemPartition: &struct{ CPUSet *string }{}}},
		"a pointer is followed":                {config: &partitionByPointer{SystemPartition: &struct{ CPUSet *string }{&cpus}}, want: cpus},
		"a value is read":                      {config: &partitionByValue{SystemPartition: struct{ Cpuset string }{cpus}}, want: cpus},
	} {
		t.Run(name, func(t *testing.T) {
			if got := systemPartitionCPUs(test.config); got != test.want {
				t.Errorf("the CPUs are %q, want %q", got, test.want)
			}
		})
	}
}

// Once upstream has a partition of its own, this fails unless systemPartitionCPUs reads it.
func TestUpstreamsSystemPartitionHasTheExpectedFields(t *testing.T) {
	var config kubeletconfig.KubeletConfiguration
	of := reflect.ValueOf(&config).Elem()
	for i := range of.NumField() {
		field := of.Type().Field(i)
		if !strings.Contains(strings.ToLower(field.Name), "partition") {
			continue
		}
		value := of.Field(i)
		if value.Kind() == reflect.Pointer {
			value.Set(reflect.New(field.Type.Elem()))
			value = value.Elem()
		}
		if value.Kind() != reflect.Struct {
			t.Fatalf("upstream's %s is a %s, want a structure", field.Name, value.Kind())
		}
		cpus := value.FieldByNameFunc(named("CPUSet"))
		if cpus.IsValid() && cpus.Kind() == reflect.Pointer {
			cpus.Set(reflect.New(cpus.Type().Elem()))
			cpus = cpus.Elem()
		}
		if cpus.Kind() != reflect.String {
			t.Fatalf("upstream's %s has no list of CPUs called cpuset: %+v", field.Name, value)
		}
		cpus.SetString("0")
		if got := systemPartitionCPUs(&config); got != "0" {
			t.Errorf("upstream's %s has the CPU 0, and systemPartitionCPUs returns %q", field.Name, got)
		}
	}
}
