// SPDX-License-Identifier: Apache-2.0

// Package metrics has what the companion workloadclasses reports, and what watches it.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"workload.openshift.io/operators/alert"
)

var (
	RulesInvalid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workloadclasses_rules_invalid",
		Help: "1 while the rules file has a mistake, and the rules of before are used.",
	})
	Pods = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workloadclasses_pods_total",
		Help: "Pods that were asked about, by the class that they got, or by why they were left as they are.",
	}, []string{"class", "reason"})
	Nodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "workloadclasses_nodes",
		Help: "Nodes of a class, by how new pods avoid them; Leaving are given back.",
	}, []string{"class", "state"})
	Operations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workloadclasses_operations_total",
		Help: "Operations that give a node back, by how they went: Begun, Scaled (its set has one replica less) or Returned (the node was freed).",
	}, []string{"class", "result"})
)

// Set has these metrics, and what watches them.
var Set = alert.Set{
	Metrics: []prometheus.Collector{RulesInvalid, Pods, Nodes, Operations},
	Rows: []alert.Row{{Title: "Workload classes", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Nodes of classes", Description: "By how new pods avoid them; Leaving are given back.", Unit: "short", Expr: `max by (class, state) (workloadclasses_nodes{})`, Legend: "{{class}} {{state}}"},
		{Kind: "timeseries", Title: "Pods of classes", Description: "By class, or by why a pod was left as it is.", Unit: "short", Expr: `sum by (class, reason) (increase(workloadclasses_pods_total{}[$__rate_interval]))`, Legend: "{{class}} {{reason}}"},
		{Kind: "timeseries", Title: "Nodes given back", Description: "Begun, with one replica less (Scaled), or freed again (Returned).", Unit: "short", Expr: `sum by (class, result) (increase(workloadclasses_operations_total{}[$__rate_interval]))`, Legend: "{{class}} {{result}}"},
	}}},
}
