// SPDX-License-Identifier: Apache-2.0

// Package metrics has what the companion tuning reports, and what watches it.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"workload.openshift.io/operators/alert"
)

var (
	// Profiles is how many Profiles there are by what their nodes say.
	Profiles = alert.NewGauge("tuning_profiles",
		"Profiles of the cluster, by what their nodes say: all of them, and those that are applied, deferred until the node's next boot, or degraded.", "state")
	// Invalid is 1 while what users wrote is not what counts.
	Invalid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tuning_configuration_invalid",
		Help: "1 while a Tuned, or the ConfigMap that has it, is not valid, and what was valid last still counts.",
	})
)

// Set has these metrics, and what watches them.
var Set = alert.Set{
	Metrics: []prometheus.Collector{Profiles, Invalid},
	Alerts: []alert.Alert{
		{
			Name: "TuningInvalid", Severity: alert.Warning, For: model.Duration(15 * time.Minute),
			Expr:        `max by (namespace) (tuning_configuration_invalid{}) == 1`,
			Summary:     `A Tuned is not valid, so its nodes keep what was valid last.`,
			Description: `The condition Degraded of the Tuned default, in the namespace openshift-cluster-node-tuning-operator of the cluster whose nodes are tuned, names the object, the field and the line. No node of that NodePool gets another profile until it is corrected. This needs the metrics of partition-controller.`,
		},
		{
			Name: "TuningDegraded", Severity: alert.Warning, For: model.Duration(15 * time.Minute),
			Expr:        `max by (namespace) (tuning_profiles{state="degraded"}) > 0`,
			Summary:     `TuneD reports errors on {{ $value }} nodes.`,
			Description: `kubectl partition tuning status names the nodes, and has TuneD's own words. This needs the metrics of partition-controller.`,
		},
	},
	Rows: []alert.Row{{Title: "Node tuning", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Profiles", Description: "Nodes by what TuneD says of their profile.", Unit: "short", Expr: `max by (state) (tuning_profiles{})`, Legend: "{{state}}"},
	}}},
}
