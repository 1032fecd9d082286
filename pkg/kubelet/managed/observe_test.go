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
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestMetrics(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0, 1), "other": cpuset.New()})
	registerMetrics()
	FollowPods(func() []*v1.Pod { return []*v1.Pod{partitionedPod(), partitionedPod(), ordinaryPod()} }, nil, statuses{}, nil, none{}, nil)
	t.Cleanup(func() { observed = observation{} })
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP kubelet_workload_partitioning_pods [ALPHA] Number of active pods in the partition of a workload type on this node.
# TYPE kubelet_workload_partitioning_pods gauge
kubelet_workload_partitioning_pods{workload_type="management"} 2
kubelet_workload_partitioning_pods{workload_type="other"} 0
# HELP kubelet_workload_partitioning_pool_cpus [ALPHA] Number of CPUs in the pool of a workload type on this node.
# TYPE kubelet_workload_partitioning_pool_cpus gauge
kubelet_workload_partitioning_pool_cpus{workload_type="management"} 2
kubelet_workload_partitioning_pool_cpus{workload_type="other"} 0
# HELP kubelet_workload_partitioning_requested_millicores [ALPHA] Sum of the cores that active pods of a workload type request on this node, in millicores.
# TYPE kubelet_workload_partitioning_requested_millicores gauge
kubelet_workload_partitioning_requested_millicores{workload_type="management"} 800
kubelet_workload_partitioning_requested_millicores{workload_type="other"} 0
# HELP kubelet_workload_partitioning_shared_cpus [ALPHA] Number of CPUs that containers of no partition share on this node. 0 means that exclusive containers have them all.
# TYPE kubelet_workload_partitioning_shared_cpus gauge
kubelet_workload_partitioning_shared_cpus 2
`), subsystem+"_shared_cpus", subsystem+"_pods", subsystem+"_pool_cpus", subsystem+"_requested_millicores"); err != nil {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	on(t, management)
	registerMetrics()
	staticPodsSkipped.Reset()
	recorder := record.NewFakeRecorder(10)
	SendEventsTo(recorder, "node")
	t.Cleanup(func() { observed = observation{} })
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-recorder.Events:
			if !strings.Contains(got, want) {
				t.Errorf("the Event is %q, want %q", got, want)
			}
		default:
			t.Errorf("no Event, want %q", want)
		}
	}
	expect(`Normal WorkloadPartitioningEnabled Workload type management has the CPUs "0-1"`)

	skipped := func() { // the kubelet reads the manifest again and again
		PartitionStaticPod(&core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Annotations: map[string]string{partition.TargetAnnotation("other"): ""}}})
	}
	skipped()
	skipped()
	expect(`Warning StaticPodNotPartitioned Static pod n/p: workload type "other" ignored`)
	if len(recorder.Events) > 0 {
		t.Errorf("a second Event: %s", <-recorder.Events)
	}
	if count, err := testutil.GetCounterMetricValue(staticPodsSkipped.WithLabelValues("type_inactive")); err != nil || count != 1 {
		t.Errorf("counted %v (%v), want 1", count, err)
	}
	// Once fixed, a manifest that breaks again is news.
	PartitionStaticPod(&core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}})
	skipped()
	expect("StaticPodNotPartitioned")
}

func TestOfflineCPUs(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0, 1), "other": cpuset.New(2)})
	file := filepath.Join(t.TempDir(), "online")
	before, had := onlineCPUsFile, host.online
	onlineCPUsFile, host.online = file, cpuset.New(0, 1, 2, 3)
	recorder := record.NewFakeRecorder(10)
	SendEventsTo(recorder, "node")
	t.Cleanup(func() {
		onlineCPUsFile, host.online, offline.cpus = before, had, cpuset.New()
		observed = observation{}
	})
	for range 2 {
		<-recorder.Events // the feature is on
	}
	for _, step := range []struct {
		online string
		want   []string
	}{
		{"0-3", nil},
		{"0,2-3", []string{`Warning WorkloadPartitioningCPUOffline CPU 1 of workload type management was taken offline: its pods have "0" left of "0-1"`}},
		{"0,2-3", nil},
		{"0", []string{`CPU 1 of workload type management`, `CPU 2 of workload type other was taken offline: its pods have "" left of "2"`, `CPU 3, of no workload type, was taken offline`}},
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
		for _, want := range step.want {
			select {
			case got := <-recorder.Events:
				if !strings.Contains(got, want) {
					t.Errorf("with CPUs %q the Event is %q, want %q", step.online, got, want)
				}
			default:
				t.Errorf("with CPUs %q there is no Event, want %q", step.online, want)
			}
		}
		if len(recorder.Events) > 0 {
			t.Errorf("with CPUs %q there is another Event: %s", step.online, <-recorder.Events)
		}
	}
}
