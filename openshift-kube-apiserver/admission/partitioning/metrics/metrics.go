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

// Package metrics has the admission plugin's metrics (design, section 8), whose names and
// labels are stable.
//
// It knows names, labels and help texts, and the state of workload types that it reports.
// When something is counted, it must not know; it imports nothing of k8s.io/kubernetes.
package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/activation"
	"workload.openshift.io/partition"
)

// subsystem is what the names of all metrics begin with.
const subsystem = "apiserver_workload_partitioning"

// otherType stands for every workload type that the cluster does not know, so that
// users cannot make series by inventing types.
const otherType = "other"

var (
	podsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: subsystem + "_pods_total", Help: "Number of created pods that asked for a workload type, by what became of them and why.", StabilityLevel: metrics.ALPHA,
	}, []string{"workload_type", "outcome", "reason"})
	activeDesc = metrics.NewDesc(subsystem+"_active", "Whether pods are partitioned as a workload type that the cluster knows.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	nodesMissingDesc = metrics.NewDesc(subsystem+"_nodes_missing", "Number of nodes that do not report the cores of a workload type that the cluster knows.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	unlatchedDesc = metrics.NewDesc(subsystem+"_unlatched", "Whether a workload type is active and could not be written to the annotation of kube-system that keeps it so.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	notAllowedDesc = metrics.NewDesc(subsystem+"_pods_not_allowed", "Number of pods in the partition of a workload type whose namespaces do not allow the type.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
)

// Types has the workload types of a cluster; activation.Tracker does.
type Types interface {
	// Known reports whether the cluster knows the type, so that it may be a label.
	Known(workloadType string) bool
	// States returns the state of each known type.
	States() map[string]activation.State
}

// Pods has the pods of a cluster; stored.Pods does.
type Pods interface {
	// NotAllowed names the pods in the type's partition whose namespaces do not allow the type, once all have been seen.
	NotAllowed(workloadType string) (names []string, known bool)
}

// collected is what gauges are reported of: that of the process's kube-apiserver, of which
// tests have several.
var collected struct {
	sync.Mutex
	types Types
	pods  Pods
}

var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(podsTotal)
	legacyregistry.CustomMustRegister(&collector{})
})

// Collect reports the gauges of these types and pods from now on, in place of earlier ones.
func Collect(types Types, pods Pods) {
	collected.Lock()
	collected.types, collected.pods = types, pods
	collected.Unlock()
	register()
}

// CountPod counts what was decided of a pod that asked for a workload type.
func CountPod(types Types, decision partition.Decision) {
	if decision.Outcome == partition.Ordinary {
		return
	}
	workloadType := decision.Target.Type
	if !types.Known(workloadType) {
		workloadType = otherType
	}
	podsTotal.WithLabelValues(workloadType, string(decision.Outcome), string(decision.Reason)).Inc()
}

type collector struct{ metrics.BaseStableCollector }

func (*collector) DescribeWithStability(descs chan<- *metrics.Desc) {
	descs <- activeDesc
	descs <- nodesMissingDesc
	descs <- unlatchedDesc
	descs <- notAllowedDesc
}

func (*collector) CollectWithStability(found chan<- metrics.Metric) {
	collected.Lock()
	types, pods := collected.types, collected.pods
	collected.Unlock()
	gauge := func(desc *metrics.Desc, value float64, workloadType string) {
		// An error is a label value that is not UTF-8, which no known type has. NewLazyConstMetric would panic, in a
		// goroutine in which nothing recovers.
		if metric, err := metrics.NewConstMetric(desc, metrics.GaugeValue, value, workloadType); err == nil {
			found <- metric
		}
	}
	for workloadType, state := range types.States() {
		gauge(activeDesc, number(state.Active), workloadType)
		gauge(nodesMissingDesc, float64(state.NodesMissing), workloadType)
		gauge(unlatchedDesc, number(state.Unlatched), workloadType)
		if names, known := pods.NotAllowed(workloadType); known {
			gauge(notAllowedDesc, float64(len(names)), workloadType)
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
