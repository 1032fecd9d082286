// SPDX-License-Identifier: Apache-2.0

// Package metrics has what the companion workloadclasses reports, and what watches it.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"workload.openshift.io/operators/alert"
)

var (
	RulesInvalid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workloadclasses_rules_invalid",
		Help: "1 while the rules file has a mistake and the previous rules stay in use.",
	})
	Pods = alert.NewCounter("workloadclasses_pods_total",
		"Pods that were asked about, by the class that they got, or by why they were left as they are.", "class", "reason")
	Nodes = alert.NewGauge("workloadclasses_nodes",
		"Nodes of a class, by how new pods avoid them; Leaving are given back.", "class", "state")
	Operations = alert.NewCounter("workloadclasses_operations_total",
		"Operations that give a node back, by how they went: Begun, Scaled (its set has one replica less) or Returned (the node was freed).", "class", "result")
	// Kept has a series for each class and workloadclasses.ObstacleCode.
	Kept = alert.NewGauge("workloadclasses_nodes_kept",
		"Empty and cordoned nodes of a class that are not given back, by why.", "class", "reason")
	Leaving = alert.NewGauge("workloadclasses_operation_timestamp_seconds",
		"When the operation began that gives a node back, in seconds since the epoch, with the phase in which it is.", "class", "node", "phase")
	Missed = alert.NewGauge("workloadclasses_pods_missed",
		"Pods that would have the class by the rules and have none, since nobody answered the webhook when they were created.", "class")
)

// Set has these metrics, and what watches them.
var Set = alert.Set{
	Metrics: []prometheus.Collector{RulesInvalid, Pods, Nodes, Operations, Kept, Leaving, Missed},
	Alerts: []alert.Alert{
		{
			Name: "ClassCannotShrink", Severity: alert.Warning, For: model.Duration(30 * time.Minute),
			// The other reasons pass by themselves: pods came, or the class is as small as it may be.
			Expr:        `max by (class, reason) (workloadclasses_nodes_kept{reason=~"NoMachine|MarkedByOthers|NoSet|NoAutoscaler|MinimumUnreadable|ScaleUp|MachineNotRunning|Rollout|SetPaused|SetDeleting|OtherAPI"}) > 0`,
			Summary:     `{{ $value }} empty nodes of workload class {{ $labels.class }} are not given back: {{ $labels.reason }}.`,
			Description: `Events NotGivenBack of the nodes name the object that keeps them. kubectl partition classes lists the nodes. This needs the metrics of partition-controller.`,
		},
		{
			Name: "NodeStuckLeaving", Severity: alert.Warning, For: model.Duration(5 * time.Minute), Threshold: 1800,
			Expr:        `time() - max by (class, node, phase) (workloadclasses_operation_timestamp_seconds{}) > <threshold>`,
			Summary:     `Node {{ $labels.node }} of workload class {{ $labels.class }} has been leaving for {{ $value | humanizeDuration }}, and is in phase {{ $labels.phase }}.`,
			Description: `In the phase Removing its Machine was marked and its set has one replica less: see what keeps the Machine, such as a finalizer or a broken provider. In the others look at the log of partition-controller. This needs the metrics of partition-controller.`,
		},
		{
			Name: "PodsMissedClass", Severity: alert.Warning, For: model.Duration(15 * time.Minute), Threshold: 0,
			Expr:        `max by (class) (workloadclasses_pods_missed{}) > <threshold>`,
			Summary:     `{{ $value }} pods should have workload class {{ $labels.class }} and have none.`,
			Description: `Nobody answered the webhook when they were created, so that they run on other nodes and without the overhead of the class. kubectl partition classes verify says whether the webhook can be answered now. Only new pods get their class. This needs the metrics of partition-controller.`,
		},
	},
	Rows: []alert.Row{{Title: "Workload classes", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Nodes of classes", Description: "By how new pods avoid them; Leaving are given back.", Unit: "short", Expr: `max by (class, state) (workloadclasses_nodes{})`, Legend: "{{class}} {{state}}"},
		{Kind: "timeseries", Title: "Pods of classes", Description: "By class, or by why a pod was left as it is.", Unit: "short", Expr: `sum by (class, reason) (increase(workloadclasses_pods_total{}[$__rate_interval]))`, Legend: "{{class}} {{reason}}"},
		{Kind: "timeseries", Title: "Nodes given back", Description: "Begun, with one replica less (Scaled), or freed again (Returned).", Unit: "short", Expr: `sum by (class, result) (increase(workloadclasses_operations_total{}[$__rate_interval]))`, Legend: "{{class}} {{result}}"},
		{Kind: "timeseries", Title: "Empty nodes that are kept", Description: "By why they are not given back.", Unit: "short", Expr: `max by (class, reason) (workloadclasses_nodes_kept{}) > 0`, Legend: "{{class}}: {{reason}}"},
		{Kind: "timeseries", Title: "Nodes that leave", Description: "For how long, and in which phase they are.", Unit: "s", Expr: `time() - max by (class, node, phase) (workloadclasses_operation_timestamp_seconds{})`, Legend: "{{node}} {{phase}}"},
		{Kind: "timeseries", Title: "Pods without their class", Description: "Nobody answered the webhook when they were created.", Unit: "short", Expr: `max by (class) (workloadclasses_pods_missed{})`, Legend: "{{class}}"},
	}}},
}
