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
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestMetricsCountPoolsPodsAndCores(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0, 1), "other": cpuset.New()})
	registerMetrics()
	FollowPods(func() []*v1.Pod { return []*v1.Pod{partitionedPod(), partitionedPod(), ordinaryPod()} }, nil, statuses{}, nil, none{}, nil)
	t.Cleanup(func() { shim.observed = observation{} })
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
# HELP kubelet_workload_partitioning_shared_cpus [ALPHA] Number of CPUs that containers in no partition share on this node. 0 means that exclusive containers have them all.
# TYPE kubelet_workload_partitioning_shared_cpus gauge
kubelet_workload_partitioning_shared_cpus 2
`), subsystem+"_shared_cpus", subsystem+"_pods", subsystem+"_pool_cpus", subsystem+"_requested_millicores"); err != nil {
		t.Error(err)
	}
}
