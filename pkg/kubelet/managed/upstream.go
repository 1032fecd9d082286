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
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file hides what differs between the supported releases of upstream.

// policyStart is Policy.Start of the CPU manager (pkg/kubelet/cm/cpumanager/policy.go). Up to
// v1.34 it has no logger.
type policyStart interface {
	func(klog.Logger, state.State) error | func(state.State) error
}

func callStart[F policyStart](start F, s state.State) error {
	if start, ok := any(start).(func(state.State) error); ok {
		return start(s)
	}
	return any(start).(func(klog.Logger, state.State) error)(shim.host.log, s)
}

// reconcileState is the CPU manager's method of that name
// (pkg/kubelet/cm/cpumanager/cpu_manager.go). Up to v1.34 it has no context. C is its
// reconciledContainer.
type reconcileState[C any] interface {
	func(context.Context) (success, failure []C) | func() (success, failure []C)
}

func callReconcile[C any, F reconcileState[C]](reconcile F) (failed []C) {
	if reconcile, ok := any(reconcile).(func() (_, _ []C)); ok {
		_, failed = reconcile()
		return failed
	}
	_, failed = any(reconcile).(func(context.Context) (_, _ []C))(context.Background())
	return failed
}

// unmoved reports whether a container that reconcileState could not move runs, as far as upstream knows: it
// has its ID then. Of a pod whose status it does not know yet it names no container.
func unmoved[C any](container C) bool {
	value := reflect.ValueOf(container)
	if value.Kind() != reflect.Struct {
		return false
	}
	name, id := value.FieldByName("containerName"), value.FieldByName("containerID")
	return id.IsValid() && id.String() != "" || name.IsValid() && name.String() == ""
}

// podLevelResources returns the resources that a pod reports for itself, which upstream has
// from v1.35 on; nil if there are none.
func podLevelResources(status *v1.PodStatus) *v1.ResourceRequirements {
	field := reflect.ValueOf(status).Elem().FieldByName("Resources")
	if !field.IsValid() {
		return nil
	}
	return field.Interface().(*v1.ResourceRequirements)
}

// setPodLevelResources sets what podLevelResources returns, if upstream has it.
func setPodLevelResources(status *v1.PodStatus, resources *v1.ResourceRequirements) {
	if field := reflect.ValueOf(status).Elem().FieldByName("Resources"); field.IsValid() {
		field.Set(reflect.ValueOf(resources))
	}
}

// podAssignments returns the CPUs that pods as a whole hold exclusively, which upstream has
// from v1.36 on (pkg/kubelet/cm/cpumanager/state, PodCPUAssignments).
func podAssignments(s state.State) (all []partition.Assignment) {
	get := reflect.ValueOf(s).MethodByName("GetPodCPUAssignments")
	if !get.IsValid() {
		return nil
	}
	pods := get.Call(nil)[0].MapRange()
	for pods.Next() {
		all = append(all, partition.Assignment{Pod: pods.Key().String(), CPUs: pods.Value().FieldByName("CPUSet").Interface().(cpuset.CPUSet)})
	}
	return all
}

func dropPodAssignment(s state.State, pod string) {
	s.(interface{ DeletePod(podUID string) }).DeletePod(pod)
}

// callSetPodCgroup calls SetPodCgroupConfig (pkg/kubelet/cm/types.go, PodContainerManager).
// Up to v1.34 it has no logger. R is its ResourceConfig.
func callSetPodCgroup[R any](manager any, pod *v1.Pod, config *R) error {
	if manager, ok := manager.(interface {
		SetPodCgroupConfig(pod *v1.Pod, config *R) error
	}); ok {
		return manager.SetPodCgroupConfig(pod, config)
	}
	return manager.(interface {
		SetPodCgroupConfig(logger klog.Logger, pod *v1.Pod, config *R) error
	}).SetPodCgroupConfig(shim.host.log, pod, config)
}

// updateCgroups is UpdateCgroups of the QoS classes
// (pkg/kubelet/cm/qos_container_manager_linux.go). Up to v1.34 it has no logger.
type updateCgroups interface {
	func() error | func(klog.Logger) error
}

func callUpdateCgroups[F updateCgroups](update F) error {
	if update, ok := any(update).(func() error); ok {
		return update()
	}
	return any(update).(func(klog.Logger) error)(shim.host.log)
}

// callResourceConfigForPod calls upstream's ResourceConfigForPod
// (pkg/kubelet/cm/helpers_linux.go). From v1.36 on it has further parameters, about memory;
// they get zero values.
func callResourceConfigForPod[R any](function any, pod *v1.Pod, quotaPeriod time.Duration) *R {
	call := reflect.ValueOf(function)
	arguments := []reflect.Value{reflect.ValueOf(pod), reflect.ValueOf(quotaPeriod > 0), reflect.ValueOf(uint64(quotaPeriod.Microseconds()))}
	for i := len(arguments); i < call.Type().NumIn(); i++ {
		arguments = append(arguments, reflect.Zero(call.Type().In(i)))
	}
	return call.Call(arguments)[0].Interface().(*R)
}

// hugePages is a field of ResourceConfig that every update must have: upstream writes zero
// for limits that are left out (cgroup_manager_linux.go, maybeSetHugetlb).
const hugePages = "HugePageLimit"

var weightAndQuota = []string{"CPUShares", "CPUQuota", "CPUPeriod"}

// onlyCPU returns a ResourceConfig (pkg/kubelet/cm/types.go) with these CPUs and the named
// fields of config. All else is unset, so that nothing else of the cgroup changes.
func onlyCPU[R any](config *R, cpus cpuset.CPUSet, fields ...string) *R {
	only := new(R)
	to, from := reflect.ValueOf(only).Elem(), reflect.ValueOf(config).Elem()
	for _, field := range fields {
		to.FieldByName(field).Set(from.FieldByName(field))
	}
	to.FieldByName("CPUSet").Set(reflect.ValueOf(cpus))
	return only
}

// systemPartitionCPUs returns the CPUs of upstream's own partition for system pods (KEP-5894,
// KubeletConfiguration, systemPartition.cpuset). No release has it yet: the KEP is all there is to
// go by. It is empty if upstream, or the configuration, has none.
func systemPartitionCPUs(config any) string {
	system := reflect.Indirect(reflect.Indirect(reflect.ValueOf(config)).FieldByNameFunc(named("SystemPartition")))
	if system.Kind() != reflect.Struct {
		return ""
	}
	if cpus := reflect.Indirect(system.FieldByNameFunc(named("CPUSet"))); cpus.Kind() == reflect.String {
		return cpus.String()
	}
	return ""
}

// named returns whether a field has a name, whatever the case of its letters.
func named(name string) func(string) bool {
	return func(field string) bool { return strings.EqualFold(field, name) }
}
