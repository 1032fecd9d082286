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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// A static pod becomes what the cases say. The containers of a partitioned one run on the pool,
// and all others off it.
func TestStaticPodsArePartitionedAndNeverRefused(t *testing.T) {
	on(t, management)
	registerMetrics()
	for _, c := range partitiontest.Cases() {
		want, ok := c.OfStaticPod()
		if !ok {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Cleanup(func() { shim.observed = observation{} })
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

// The kubelet reads a manifest again and again.
func TestSkippedStaticPodIsReportedOnce(t *testing.T) {
	on(t, management)
	t.Cleanup(func() { shim.observed = observation{} })
	registerMetrics()
	staticPodsSkipped.Reset()
	recorder := recordEvents(t)
	read := func(annotations map[string]string) {
		PartitionStaticPod(&core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Annotations: annotations}})
	}
	asks := func() map[string]string { return map[string]string{partition.TargetAnnotation("other"): ""} }
	read(asks())
	read(asks())
	expectEvent(t, recorder, `Warning StaticPodNotPartitioned Static pod n/p: workload type "other" ignored`)
	expectEvent(t, recorder, "")
	if count, err := testutil.GetCounterMetricValue(staticPodsSkipped.WithLabelValues("type_inactive")); err != nil || count != 1 {
		t.Errorf("counted %v (%v), want 1", count, err)
	}
	// Once it has been right, a manifest that is wrong again is news.
	read(nil)
	read(asks())
	expectEvent(t, recorder, "Warning StaticPodNotPartitioned")
}
