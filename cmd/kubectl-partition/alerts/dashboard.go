// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"slices"

	"workload.openshift.io/operators/alert"
)

// Dashboard is a dashboard in Grafana's classic JSON model, which all of its releases import.
type Dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []Panel    `json:"panels"`
}

// Panel is a row's title, or a panel below it.
type Panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Targets     []Target     `json:"targets,omitempty"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant,omitempty"`
}

type (
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string      `json:"name"`
		Label      string      `json:"label"`
		Type       string      `json:"type"`
		Query      string      `json:"query"`
		Datasource *datasource `json:"datasource,omitempty"`
		Refresh    int         `json:"refresh,omitempty"` // 2 is whenever the time range changes
		Multi      bool        `json:"multi,omitempty"`
		IncludeAll bool        `json:"includeAll,omitempty"`
		AllValue   string      `json:"allValue,omitempty"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldConfig struct {
		Defaults fieldDefaults `json:"defaults"`
	}
	fieldDefaults struct {
		Unit string   `json:"unit,omitempty"`
		Min  *float64 `json:"min,omitempty"`
	}
)

// prometheus is the data source that is chosen at the top of the dashboard.
var prometheus = &datasource{Type: "prometheus", UID: "$datasource"}

// The width of a dashboard, and the size of a panel, in Grafana's units.
const (
	dashboardWidth = 24
	panelWidth     = 8
	panelHeight    = 7
)

// rows are the rows of the dashboard and their panels. $type and $node are its variables.
var rows = []alert.Row{
	{Title: "Types and pods", Panels: []alert.Panel{
		{Kind: "stat", Title: "Active types", Description: "1 while pods are partitioned as the type, by what every kube-apiserver says.", Unit: "short", Expr: `min by (workload_type) (apiserver_workload_partitioning_active{workload_type=~"$type"})`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "Nodes without the type", Description: "Nodes that count and do not offer it.", Unit: "short", Expr: `max by (workload_type) (apiserver_workload_partitioning_nodes_missing{workload_type=~"$type"})`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "kube-apiservers with the plugin", Description: "Any without it lets pods forge what the plugin writes.", Unit: "percentunit", Expr: `workload_partitioning:apiservers_with_plugin:ratio{}`, Legend: "with the plugin"},
		{Kind: "timeseries", Title: "Pods that asked", Description: "By what became of them.", Unit: "short", Expr: `sum by (outcome) (increase(apiserver_workload_partitioning_pods_total{workload_type=~"$type"}[$__rate_interval]))`, Legend: "{{outcome}}"},
		{Kind: "timeseries", Title: "Pods skipped or refused", Description: "By reason. The reason decided_against is that of an installer.", Unit: "short", Expr: `sum by (outcome, reason) (increase(apiserver_workload_partitioning_pods_total{outcome!="partitioned",workload_type=~"$type"}[$__rate_interval]))`, Legend: "{{outcome}}: {{reason}}"},
		{Kind: "timeseries", Title: "Static pods that run as ordinary pods", Description: "Since the start of the kubelet.", Unit: "short", Expr: `sum by (<node>, reason) (kubelet_workload_partitioning_static_pods_skipped_total{<node>=~"$node"})`, Legend: "{{<node>}}: {{reason}}"},
	}},
	{Title: "Pools", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Use", Description: "CPU time of partitioned pods, as a share of their pool. With the audit, whatever ran on its CPUs.", Unit: "percentunit", Expr: `workload_partitioning:pool_used:ratio{workload_type=~"$type",<node>=~"$node"}`, Legend: "{{<node>}} {{workload_type}}"},
		{Kind: "timeseries", Title: "Requests", Description: "What partitioned pods request, as a share of their pool.", Unit: "percentunit", Expr: `workload_partitioning:pool_requested:ratio{workload_type=~"$type",<node>=~"$node"}`, Legend: "{{<node>}} {{workload_type}}"},
		{Kind: "timeseries", Title: "Waiting", Description: "How long the container that waits most had no CPU (PSI). Needs cgroup v2 and kube-state-metrics.", Unit: "percentunit", Expr: `workload_partitioning:pool_waiting:ratio{workload_type=~"$type",<node>=~"$node"}`, Legend: "{{<node>}} {{workload_type}}"},
		{Kind: "timeseries", Title: "Most throttled containers", Description: "The share of periods in which a container had used up its CPU limit. Needs kube-state-metrics.", Unit: "percentunit", Expr: `topk(10, workload_partitioning:container_throttled:ratio{workload_type=~"$type",<node>=~"$node"})`, Legend: "{{namespace}}/{{pod}} {{container}}"},
		{Kind: "timeseries", Title: "CPUs", Description: "The size of each pool.", Unit: "short", Expr: `max by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{workload_type=~"$type",<node>=~"$node"})`, Legend: "{{<node>}} {{workload_type}}"},
		{Kind: "timeseries", Title: "Pods", Description: "Active pods in each partition.", Unit: "short", Expr: `max by (<node>, workload_type) (kubelet_workload_partitioning_pods{workload_type=~"$type",<node>=~"$node"})`, Legend: "{{<node>}} {{workload_type}}"},
	}},
	{Title: "Isolation", Panels: []alert.Panel{
		{Kind: "timeseries", Title: "Off their CPUs", Description: "Containers, sandboxes and pods that may run where they must not; type - is for ordinary pods. Needs kubectl partition audit --serve.", Unit: "short", Expr: `sum by (<node>, workload_type) (workload_partitioning_audit_containers_off_set{<node>=~"$node"})`, Legend: "{{<node>}} {{workload_type}}"},
		{Kind: "timeseries", Title: "Findings of the audit", Description: "By code; kubectl partition audit explains each.", Unit: "short", Expr: `sum by (<node>, code) (workload_partitioning_audit_findings{<node>=~"$node"}) > 0`, Legend: "{{<node>}}: {{code}}"},
		{Kind: "timeseries", Title: "Shared CPUs", Description: "CPUs that containers in no partition share. At 0, exclusive containers have them all.", Unit: "short", Expr: `min by (<node>) (kubelet_workload_partitioning_shared_cpus{<node>=~"$node"})`, Legend: "{{<node>}}"},
	}},
	{Title: "Objectives", Panels: []alert.Panel{
		{Kind: "stat", Title: "Pods that asked and were partitioned", Description: "Within the dashboard's time. Without those that an installer decided against, or that are for nodes that do not count.", Unit: "percentunit", Expr: `sum by (workload_type) (sum_over_time(workload_partitioning:pods_partitioned:increase{workload_type=~"$type"}[$__range])) / sum by (workload_type) (sum_over_time(workload_partitioning:pods_asked:increase{workload_type=~"$type"}[$__range]))`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "Nodes that offer the type", Description: "The mean of the dashboard's time.", Unit: "percentunit", Expr: `avg_over_time(workload_partitioning:nodes_offering:ratio{workload_type=~"$type"}[$__range])`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "Containers on their CPUs", Description: "The mean of the dashboard's time; type - is for ordinary pods.", Unit: "percentunit", Expr: `avg_over_time(workload_partitioning:containers_on_set:ratio{}[$__range])`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "Pools with room", Description: "The share of pools, on average, that were used to at most 90 %.", Unit: "percentunit", Expr: `avg_over_time(workload_partitioning:pools_with_room:ratio{workload_type=~"$type"}[$__range])`, Legend: "{{workload_type}}"},
		{Kind: "stat", Title: "Nodes with something to share", Description: "The mean of the dashboard's time.", Unit: "percentunit", Expr: `avg_over_time(workload_partitioning:nodes_sharing:ratio{}[$__range])`, Legend: "nodes"},
		{Kind: "stat", Title: "Admission within 5 ms", Description: "Of the plugin, for all pods and templates.", Unit: "percentunit", Expr: `avg_over_time(workload_partitioning:admission_within_5ms:ratio{}[$__range])`, Legend: "requests"},
	}},
}

// NewDashboard renders the dashboard. Of the options, it takes those that select series. It
// shows recorded series, so it needs the rules. It returns the error of [Rules].
func NewDashboard(o Options) (Dashboard, error) {
	if err := o.validate(); err != nil {
		return Dashboard{}, err
	}
	replace := o.replacer().Replace
	values := func(name, label string) variable {
		return variable{
			Name: name, Label: label, Type: "query", Query: o.query("label_values(kubelet_workload_partitioning_pool_cpus{}, ") + replace(label) + ")",
			Datasource: prometheus, Refresh: 2, Multi: true, IncludeAll: true, AllValue: ".*",
		}
	}
	d := Dashboard{
		UID: "workload-partitioning", Title: "Workload partitioning", Tags: []string{"kubernetes", "workload-partitioning"},
		SchemaVersion: 39, Editable: true, Refresh: "1m", Time: timeRange{"now-6h", "now"},
		Templating: templating{List: []variable{{Name: "datasource", Label: "data source", Type: "datasource", Query: "prometheus"}, values("type", "workload_type"), values("node", o.NodeLabel)}},
	}
	y := 0
	add := func(p Panel) {
		p.ID = len(d.Panels) + 1
		d.Panels = append(d.Panels, p)
	}
	all := slices.Clone(rows)
	for _, set := range Companions() {
		all = append(all, set.Rows...)
	}
	for _, row := range all {
		add(Panel{Type: "row", Title: row.Title, GridPos: gridPos{H: 1, W: dashboardWidth, Y: y}})
		y++
		for i, p := range row.Panels {
			column := i % (dashboardWidth / panelWidth)
			if i > 0 && column == 0 {
				y += panelHeight
			}
			add(Panel{
				Type: p.Kind, Title: p.Title, Description: p.Description,
				GridPos:     gridPos{H: panelHeight, W: panelWidth, X: column * panelWidth, Y: y},
				Datasource:  prometheus,
				FieldConfig: &fieldConfig{fieldDefaults{Unit: p.Unit, Min: new(float64)}},
				Targets:     []Target{{RefID: "A", Expr: o.query(p.Expr), LegendFormat: replace(p.Legend), Instant: p.Kind == "stat"}},
			})
		}
		y += panelHeight
	}
	return d, nil
}
