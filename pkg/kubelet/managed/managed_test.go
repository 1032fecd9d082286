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
	"maps"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// on switches the feature on as Configure would, for a host of four CPUs.
func on(t *testing.T, pools partition.Pools) {
	t.Helper()
	current.Store(newNode(pools, cpuset.New(0, 1, 2, 3), cpuset.New(), pools.Union()))
	t.Cleanup(func() { current.Store(nil) })
}

var management = partition.Pools{"management": cpuset.New(0, 1)}

var ordinaryPod, partitionedPod = partitiontest.OrdinaryPod, partitiontest.PartitionedPod

// withUID gives a pod a UID.
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

// creating is what the runtime is asked to create a container from. cpus are those that the
// CPU manager chose; empty means none.
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

func TestConfigureFitsTheConfigurationToThePools(t *testing.T) {
	pools := func(cpus ...int) partition.Pools { return partition.Pools{"management": cpuset.New(cpus...)} }
	static := func(change func(*kubeletconfig.KubeletConfiguration)) kubeletconfig.KubeletConfiguration {
		config := kubeletconfig.KubeletConfiguration{CPUManagerPolicy: "static"}
		if change != nil {
			change(&config)
		}
		return config
	}
	strict := func(value string) kubeletconfig.KubeletConfiguration {
		return static(func(c *kubeletconfig.KubeletConfiguration) {
			c.CPUManagerPolicyOptions = map[string]string{strictReservation: value}
		})
	}
	for name, test := range map[string]struct {
		config       kubeletconfig.KubeletConfiguration
		pools        partition.Pools
		wantReserved string
		wantStrict   string
		wantEvent    string
		wantError    string
	}{
		"pools become reserved CPUs":                       {pools: pools(0, 1), wantReserved: "0-1"},
		"reserved CPUs may contain more than the pools":    {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0-2"}, pools: pools(0, 1), wantReserved: "0-2"},
		"reserved CPUs and pools are united":               {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0,3"}, pools: pools(0, 1), wantReserved: "0-1,3", wantEvent: `ReservedCPUsDiffer reservedSystemCPUs "0,3" does not contain CPU 1`},
		"reserved CPUs must be a list":                     {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "x"}, pools: pools(0), wantError: `reservedSystemCPUs "x"`},
		"the static policy becomes strict":                 {config: static(nil), pools: pools(0), wantReserved: "0", wantStrict: "true"},
		"any value that upstream reads as true stays":      {config: strict("1"), pools: pools(0), wantReserved: "0", wantStrict: "1"},
		"a policy that shares the pools is an error":       {config: strict("false"), pools: pools(0), wantError: strictReservation},
		"a value that is no boolean is an error":           {config: strict("yes"), pools: pools(0), wantError: strictReservation + ` is "yes"`},
		"empty pools need a reservation":                   {config: static(nil), pools: pools(), wantError: "add reservedSystemCPUs, or cpu to kubeReserved or systemReserved"},
		"a reservation of zero CPUs is none":               {config: static(func(c *kubeletconfig.KubeletConfiguration) { c.KubeReserved = map[string]string{"cpu": "0"} }), pools: pools(), wantError: "add reservedSystemCPUs"},
		"with a reservation empty pools change nothing":    {config: static(func(c *kubeletconfig.KubeletConfiguration) { c.SystemReserved = map[string]string{"cpu": "500m"} }), pools: pools()},
		"under the policy none empty pools change nothing": {pools: pools()},
		"without a file the error is left to upstream":     {config: static(nil)},
		"reserved cgroups are dropped, and an Event says so": {config: kubeletconfig.KubeletConfiguration{SystemReservedCgroup: "/system.slice",
			EnforceNodeAllocatable: []string{"pods", "system-reserved-compressible"}}, pools: pools(0), wantReserved: "0",
			wantEvent: "dropped: systemReservedCgroup=/system.slice, enforceNodeAllocatable: system-reserved-compressible"},
		"reserved cgroups beside explicit reserved CPUs are left to upstream": {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0", SystemReservedCgroup: "/system.slice",
			EnforceNodeAllocatable: []string{"pods", "system-reserved"}}, pools: pools(0), wantReserved: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := recordEvents(t)
			explicit := test.config.ReservedSystemCPUs != ""
			err := reservePools(&test.config, test.pools)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("the error is %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil || test.config.ReservedSystemCPUs != test.wantReserved || test.config.CPUManagerPolicyOptions[strictReservation] != test.wantStrict {
				t.Errorf("got %v, reserved %q, options %v", err, test.config.ReservedSystemCPUs, test.config.CPUManagerPolicyOptions)
			}
			expectEvent(t, recorder, test.wantEvent)
			if forbidden := test.config.SystemReservedCgroup != "" || len(test.config.EnforceNodeAllocatable) > 1; forbidden && !explicit {
				t.Errorf("beside the reserved CPUs there still are %q and %q", test.config.SystemReservedCgroup, test.config.EnforceNodeAllocatable)
			}
		})
	}
}

// recordEvents gives the hooks a recorder of Events, for the time of a test.
func recordEvents(t *testing.T) *record.FakeRecorder {
	t.Helper()
	recorder := record.NewFakeRecorder(20)
	observed.recorder, observed.node = recorder, "node"
	t.Cleanup(func() { observed.recorder, observed.pending = nil, nil })
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

func TestWithoutAFileNothingHappens(t *testing.T) {
	pod := partitionedPod()
	before := pod.DeepCopy()
	config := creating("c", "")
	PlaceContainer(pod, config)
	for _, c := range partitiontest.Cases() {
		static := internal(t, c.Pod)
		PartitionStaticPod(static)
		if want := internal(t, c.Pod); !equality.Semantic.DeepEqual(static, want) {
			t.Errorf("%s: PartitionStaticPod made of the pod %v", c.Name, static)
		}
	}
	chosen := cpuset.New(2)
	status := statusWithCPU()
	switch {
	case config.Linux.Resources.CpusetCpus != "":
		t.Error("PlaceContainer set", config.Linux.Resources.CpusetCpus)
	case !RunningContainerCPUs(pod, "c", "id", chosen).Equals(chosen):
		t.Error("RunningContainerCPUs chose", RunningContainerCPUs(pod, "c", "id", chosen))
	case WithOriginalCPU(pod) != pod || ContainerWithOriginalCPU(pod, &pod.Spec.Containers[0]) != &pod.Spec.Containers[0]:
		t.Error("the pod was copied")
	case len(afterDrop(pod, status).ContainerStatuses[0].Resources.Requests) != 2:
		t.Error("DropReportedCPU left", status)
	case before.String() != pod.String():
		t.Error("the pod is", pod)
	}
	node := partitiontest.Node("a")
	if err := SetCores(t.Context(), node); err != nil || len(node.Status.Capacity) != 1 {
		t.Errorf("SetCores left %v, %v", node.Status, err)
	}
}

// A static pod becomes what the cases say, and its containers run where that says: those of a
// partitioned pod on the pool, all others off it.
func TestPartitionStaticPod(t *testing.T) {
	on(t, management)
	registerMetrics()
	for _, c := range partitiontest.Cases() {
		want, ok := c.OfStaticPod()
		if !ok {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Cleanup(func() { observed = observation{} })
			recorder := recordEvents(t)
			staticPodsSkipped.Reset()
			metav1.SetMetaDataAnnotation(&c.Pod.ObjectMeta, partition.WarningAnnotation, "old")
			static := internal(t, c.Pod)
			PartitionStaticPod(static)
			var got v1.Pod
			if err := corev1.Convert_core_Pod_To_v1_Pod(static, &got, nil); err != nil {
				t.Fatal(err)
			}
			if difference := want.Diff(&got); difference != "" {
				t.Error(difference)
			}
			expectEvent(t, recorder, want.Text())
			if want.Reason != partition.NoReason {
				if count, err := testutil.GetCounterMetricValue(staticPodsSkipped.WithLabelValues(string(want.Reason))); err != nil || count != 1 {
					t.Errorf("counted %v (%v), want 1", count, err)
				}
			}
			cpus := "2-3"
			if want.Outcome == partition.Partitioned {
				cpus = "0-1"
			}
			for _, container := range append(got.Spec.InitContainers, got.Spec.Containers...) {
				config := creating(container.Name, "")
				if PlaceContainer(&got, config); config.Linux.Resources.CpusetCpus != cpus {
					t.Errorf("container %s starts on %q, want %s", container.Name, config.Linux.Resources.CpusetCpus, cpus)
				}
				if kept := RunningContainerCPUs(&got, container.Name, "id", cpuset.New(2, 3)); kept.String() != cpus {
					t.Errorf("container %s is kept on %q, want %s", container.Name, kept, cpus)
				}
			}
		})
	}
}

func TestSetCores(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0), "other": cpuset.New()})
	node := partitiontest.Node("a", "stale")
	node.Status.Capacity["example.com/gpu"] = resource.MustParse("1")
	node.Status.Allocatable = maps.Clone(node.Status.Capacity)
	if err := SetCores(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		cores, other := got["management.workload.openshift.io/cores"], got["other.workload.openshift.io/cores"]
		if cores.Value() != 4000 || other.Value() != 4000 || len(got) != 4 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

func TestPlaceContainer(t *testing.T) {
	on(t, management)
	for name, test := range map[string]struct {
		pod          *v1.Pod
		chosen, want string
	}{
		"a partitioned container starts on its pool":                                 {partitionedPod(), "", "0-1"},
		"a partitioned container starts on its pool, whatever the CPU manager chose": {partitionedPod(), "2-3", "0-1"},
		"a shared container starts on the CPUs in no pool":                           {ordinaryPod(), "", "2-3"},
		"an exclusive container starts on what the CPU manager gave it":              {ordinaryPod(), "3", "3"},
	} {
		config := creating("c", test.chosen)
		PlaceContainer(test.pod, config)
		if got := config.Linux.Resources.CpusetCpus; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	// A container without Linux resources is left alone.
	PlaceContainer(ordinaryPod(), &runtimeapi.ContainerConfig{})
}

func TestRunningContainerCPUs(t *testing.T) {
	on(t, management)
	chosen := cpuset.New(2, 3)
	if got := RunningContainerCPUs(partitionedPod(), "c", "id", chosen).String(); got != "0-1" {
		t.Errorf("a partitioned pod is kept on %s", got)
	}
	if got := RunningContainerCPUs(ordinaryPod(), "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("an ordinary pod is kept on %s", got)
	}
	forged := ordinaryPod()
	forged.Annotations = partitionedPod().Annotations
	if got := RunningContainerCPUs(forged, "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("a pod with forged annotations is kept on %s", got)
	}
	on(t, partition.Pools{"management": cpuset.New(), "other": cpuset.New(0)})
	if got := RunningContainerCPUs(partitionedPod(), "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("a pod of a type without CPUs is kept on %s", got)
	}
}

func TestWithOriginalCPU(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	seen := WithOriginalCPU(pod).Spec.Containers[0].Resources
	if seen.Requests.Cpu().MilliValue() != 400 || seen.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("upstream sees %v", seen)
	}
	if c := ContainerWithOriginalCPU(pod, &pod.Spec.Containers[0]); c.Resources.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("upstream sees %v", c.Resources)
	}
	if _, has := pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; has {
		t.Error("the pod itself has cpu now")
	}
}

func afterDrop(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus {
	DropReportedCPU(pod, status)
	return status
}

func TestDropReportedCPU(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	reported := afterDrop(pod, statusWithCPU())
	for _, statuses := range [][]v1.ContainerStatus{reported.InitContainerStatuses, reported.ContainerStatuses, reported.EphemeralContainerStatuses} {
		resources := statuses[0].Resources
		if _, has := resources.Requests[v1.ResourceCPU]; has || resources.Limits.Cpu().Sign() != 0 || resources.Requests.Memory().IsZero() {
			t.Errorf("the resources in the status are %v", resources)
		}
	}
	if podLevel := podLevelResources(reported); podLevel != nil && podLevel.Requests.Cpu().Sign() != 0 {
		t.Errorf("the pod reports %v for itself", podLevel)
	}
	DropReportedCPU(pod, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}})
	if got := afterDrop(ordinaryPod(), statusWithCPU()).ContainerStatuses[0].Resources; got.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("an ordinary pod reports %v", got)
	}
}

// statusWithCPU returns the status of a pod with a container of each kind, and with
// everything that the runtime reports.
func statusWithCPU() *v1.PodStatus {
	statuses := func() []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "c", Resources: &ordinaryPod().Spec.Containers[0].Resources}}
	}
	status := &v1.PodStatus{InitContainerStatuses: statuses(), ContainerStatuses: statuses(), EphemeralContainerStatuses: statuses()}
	if field := reflect.ValueOf(status).Elem().FieldByName("Resources"); field.IsValid() {
		field.Set(reflect.ValueOf(statuses()[0].Resources))
	}
	return status
}

func TestDownwardAPITellsWhatAContainerCouldUse(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	// Upstream's default for a missing limit is the node's CPUs.
	defaulted := pod.DeepCopy()
	defaulted.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi")}
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Requests.Cpu().MilliValue() != 400 || seen.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("a container with a limit sees %v", seen)
	}
	pod.Annotations[partition.ResourcesAnnotation("c")] = `{"cpushares":400}`
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Limits.Cpu().Value() != 2 || seen.Limits.Memory().IsZero() {
		t.Errorf("a container without a limit sees %v, want the two CPUs of its pool", seen)
	}
	if seen := ForDownwardAPI(pod, defaulted).Spec.Containers[0].Resources; seen.Limits.Cpu().Value() != 2 || seen.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("a container of the pod sees %v, want the two CPUs of its pool", seen)
	}
	// For volumes upstream sets no defaults. A sidecar is an init container.
	sidecar := pod.DeepCopy()
	sidecar.Spec.InitContainers, sidecar.Spec.Containers = sidecar.Spec.Containers, nil
	if seen := ForDownwardAPI(sidecar, sidecar).Spec.InitContainers[0].Resources; seen.Limits.Cpu().Value() != 2 || seen.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("a sidecar has %v", seen)
	}
	if ordinary := ordinaryPod(); ForDownwardAPI(ordinary, ordinary) != ordinary || ContainerForDownwardAPI(ordinary, &ordinary.Spec.Containers[0]) != &ordinary.Spec.Containers[0] {
		t.Error("an ordinary pod was copied")
	}
	if limits := defaulted.Spec.Containers[0].Resources.Limits; limits.Cpu().Value() != 4 {
		t.Error("upstream's copy has changed:", limits)
	}
	on(t, partition.Pools{"management": cpuset.New()})
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Limits.Cpu().Value() != 4 {
		t.Errorf("a container that is not confined sees %v, want the node's CPUs", seen)
	}
}
