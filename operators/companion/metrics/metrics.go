// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics that all companions report, and their alerts.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"workload.openshift.io/operators/alert"
)

var (
	// NodeClaims has the time of each node's claim.
	NodeClaims = alert.NewGauge("partition_controller_node_claim_timestamp_seconds",
		"When a companion claimed the node, in seconds since the epoch; 0 if the claim cannot be read.", "node", "owner")
	// ForeignManager says for whom a companion waits.
	ForeignManager = alert.NewGauge("partition_controller_foreign_manager",
		"1 while the controllers of a companion wait because another program manages the same objects.", "companion", "manager")
	// ForeignObjects is how many objects are left alone because another manager wrote to them.
	ForeignObjects = alert.NewGauge("partition_controller_foreign_objects",
		"How many objects a companion leaves alone because another program writes to them.", "companion", "manager")
)

// Set has these metrics, and what watches them.
var Set = alert.Set{
	Metrics: []prometheus.Collector{NodeClaims, ForeignManager, ForeignObjects},
	Alerts: []alert.Alert{
		{
			Name: "NodeClaimed", Severity: alert.Warning, For: model.Duration(5 * time.Minute), Threshold: 3600,
			Expr:        `time() - max by (node, owner) (partition_controller_node_claim_timestamp_seconds{}) > <threshold>`,
			Summary:     `Node {{ $labels.node }} has been claimed by {{ or $labels.owner "an unknown owner" }} for {{ $value | humanizeDuration }}.`,
			Description: `No companion starts an operation on node {{ $labels.node }} while the claim is there, and a claim does not expire. kubectl partition claim list shows it. If its owner does not continue, check what became of the operation on the node, and then release the claim. This needs the metrics of partition-controller.`,
		},
		{
			Name: "CompanionWaits", Severity: alert.Warning, For: model.Duration(15 * time.Minute),
			Expr:        `max by (companion, manager) (partition_controller_foreign_manager{}) == 1`,
			Summary:     `The companion {{ $labels.companion }} does nothing, because {{ $labels.manager }} manages the same objects.`,
			Description: `Its controllers wait until only one of the two is left. The Event on its Lease in the namespace partition-{{ $labels.companion }} says where {{ $labels.manager }} was seen, and how to hand over. This needs the metrics of partition-controller.`,
		},
	},
	Rows: []alert.Row{{Title: "Companions", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Claims of nodes", Description: "How long each node has been claimed, by owner.", Unit: "s", Expr: `time() - max by (node, owner) (partition_controller_node_claim_timestamp_seconds{})`, Legend: "{{node}} {{owner}}"},
		{Kind: "timeseries", Title: "Companions that wait", Description: "1 while another program manages the same objects.", Unit: "short", Expr: `max by (companion, manager) (partition_controller_foreign_manager{})`, Legend: "{{companion}}: {{manager}}"},
		{Kind: "timeseries", Title: "Objects of others", Description: "Objects that a companion leaves alone, since another program writes to them.", Unit: "short", Expr: `max by (companion, manager) (partition_controller_foreign_objects{})`, Legend: "{{companion}}: {{manager}}"},
	}}},
}
