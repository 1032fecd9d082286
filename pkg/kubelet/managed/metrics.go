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
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/partition"
)

// subsystem is the prefix of all metrics. Configure registers them only if there is a pinning
// file: without one a kubelet has upstream's metrics and no others.
const subsystem = "kubelet_workload_partitioning"

var (
	poolCPUs = metrics.NewDesc(subsystem+"_pool_cpus", "Number of CPUs in the pool of a workload type on this node.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	podCount = metrics.NewDesc(subsystem+"_pods", "Number of active pods in the partition of a workload type on this node.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	requestedMillicores = metrics.NewDesc(subsystem+"_requested_millicores", "Sum of the cores that active pods of a workload type request on this node, in millicores.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	sharedCPUs = metrics.NewDesc(subsystem+"_shared_cpus", "Number of CPUs that containers in no partition share on this node. 0 means that exclusive containers have them all.",
		nil, nil, metrics.ALPHA, "")
	staticPodsSkipped = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: subsystem + "_static_pods_skipped_total", Help: "Number of static pods that asked for a partition, or for cores without one, and run as ordinary pods, by reason.", StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.CustomMustRegister(&collector{})
	legacyregistry.MustRegister(staticPodsSkipped)
})

// collector computes its metrics when they are read, so nothing has to be kept in
// step.
type collector struct{ metrics.BaseStableCollector }

func (*collector) DescribeWithStability(descs chan<- *metrics.Desc) {
	descs <- poolCPUs
	descs <- podCount
	descs <- requestedMillicores
	descs <- sharedCPUs
}

func (*collector) CollectWithStability(found chan<- metrics.Metric) {
	n := shim.current.Load()
	if n == nil {
		return
	}
	shim.observed.Lock()
	activePods := shim.observed.activePods
	shim.observed.Unlock()
	found <- metrics.NewLazyConstMetric(sharedCPUs, metrics.GaugeValue, float64(n.shared().Size()))
	pods, requested := map[string]int{}, map[string]int64{}
	if activePods != nil {
		for _, pod := range activePods() {
			workloadType, ok := partition.PartitionedType(pod)
			if !ok {
				continue
			}
			pods[workloadType]++
			cores := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceName(partition.CoresResource(workloadType))]
			requested[workloadType] += cores.Value()
		}
	}
	for workloadType, cpus := range n.pools {
		found <- metrics.NewLazyConstMetric(poolCPUs, metrics.GaugeValue, float64(cpus.Size()), workloadType)
		found <- metrics.NewLazyConstMetric(podCount, metrics.GaugeValue, float64(pods[workloadType]), workloadType)
		found <- metrics.NewLazyConstMetric(requestedMillicores, metrics.GaugeValue, float64(requested[workloadType]), workloadType)
	}
}
