// SPDX-License-Identifier: Apache-2.0

package alerts

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
var rows = []struct {
	title  string
	panels []panel
}{
	{"Types and pods", []panel{
		{"stat", "Active types", "1 while pods are partitioned as the type, by what every kube-apiserver says.", "short", `min by (workload_type) (apiserver_workload_partitioning_active{workload_type=~"$type"})`, "{{workload_type}}"},
		{"stat", "Nodes without the type", "Nodes that count and do not offer it.", "short", `max by (workload_type) (apiserver_workload_partitioning_nodes_missing{workload_type=~"$type"})`, "{{workload_type}}"},
		{"stat", "kube-apiservers with the plugin", "Any without it lets pods forge what the plugin writes.", "percentunit", `workload_partitioning:apiservers_with_plugin:ratio{}`, "with the plugin"},
		{"timeseries", "Pods that asked", "By what became of them.", "short", `sum by (outcome) (increase(apiserver_workload_partitioning_pods_total{workload_type=~"$type"}[$__rate_interval]))`, "{{outcome}}"},
		{"timeseries", "Pods skipped or refused", "By reason. The reason decided_against is that of an installer.", "short", `sum by (outcome, reason) (increase(apiserver_workload_partitioning_pods_total{outcome!="partitioned",workload_type=~"$type"}[$__rate_interval]))`, "{{outcome}}: {{reason}}"},
		{"timeseries", "Static pods that run as ordinary pods", "Since the start of the kubelet.", "short", `sum by (<node>, reason) (kubelet_workload_partitioning_static_pods_skipped_total{<node>=~"$node"})`, "{{<node>}}: {{reason}}"},
	}},
	{"Pools", []panel{
		{"timeseries", "Use", "CPU time of partitioned pods, as a share of their pool. With the audit, whatever ran on its CPUs.", "percentunit", `workload_partitioning:pool_used:ratio{workload_type=~"$type",<node>=~"$node"}`, "{{<node>}} {{workload_type}}"},
		{"timeseries", "Requests", "What partitioned pods request, as a share of their pool.", "percentunit", `workload_partitioning:pool_requested:ratio{workload_type=~"$type",<node>=~"$node"}`, "{{<node>}} {{workload_type}}"},
		{"timeseries", "Waiting", "How long the container that waits most had no CPU (PSI). Needs cgroup v2 and kube-state-metrics.", "percentunit", `workload_partitioning:pool_waiting:ratio{workload_type=~"$type",<node>=~"$node"}`, "{{<node>}} {{workload_type}}"},
		{"timeseries", "Most throttled containers", "The share of periods in which a container had used up its CPU limit. Needs kube-state-metrics.", "percentunit", `topk(10, workload_partitioning:container_throttled:ratio{workload_type=~"$type",<node>=~"$node"})`, "{{namespace}}/{{pod}} {{container}}"},
		{"timeseries", "CPUs", "The size of each pool.", "short", `max by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{workload_type=~"$type",<node>=~"$node"})`, "{{<node>}} {{workload_type}}"},
		{"timeseries", "Pods", "Active pods in each partition.", "short", `max by (<node>, workload_type) (kubelet_workload_partitioning_pods{workload_type=~"$type",<node>=~"$node"})`, "{{<node>}} {{workload_type}}"},
	}},
	{"Isolation", []panel{
		{"timeseries", "Off their CPUs", "Containers, sandboxes and pods that may run where they must not; type - is for ordinary pods. Needs kubectl partition audit --serve.", "short", `sum by (<node>, workload_type) (workload_partitioning_audit_containers_off_set{<node>=~"$node"})`, "{{<node>}} {{workload_type}}"},
		{"timeseries", "Findings of the audit", "By code; kubectl partition audit explains each.", "short", `sum by (<node>, code) (workload_partitioning_audit_findings{<node>=~"$node"}) > 0`, "{{<node>}}: {{code}}"},
		{"timeseries", "Shared CPUs", "CPUs that containers in no partition share. At 0, exclusive containers have them all.", "short", `min by (<node>) (kubelet_workload_partitioning_shared_cpus{<node>=~"$node"})`, "{{<node>}}"},
	}},
	{"Objectives", []panel{
		{"stat", "Pods that asked and were partitioned", "Within the dashboard's time. Without those that an installer decided against.", "percentunit", `sum by (workload_type) (sum_over_time(workload_partitioning:pods_partitioned:increase{workload_type=~"$type"}[$__range])) / sum by (workload_type) (sum_over_time(workload_partitioning:pods_asked:increase{workload_type=~"$type"}[$__range]))`, "{{workload_type}}"},
		{"stat", "Nodes that offer the type", "The mean of the dashboard's time.", "percentunit", `avg_over_time(workload_partitioning:nodes_offering:ratio{workload_type=~"$type"}[$__range])`, "{{workload_type}}"},
		{"stat", "Containers on their CPUs", "The mean of the dashboard's time; type - is for ordinary pods.", "percentunit", `avg_over_time(workload_partitioning:containers_on_set:ratio{}[$__range])`, "{{workload_type}}"},
		{"stat", "Pools with room", "The share of pools, on average, that were used to at most 90 %.", "percentunit", `avg_over_time(workload_partitioning:pools_with_room:ratio{workload_type=~"$type"}[$__range])`, "{{workload_type}}"},
		{"stat", "Nodes with something to share", "The mean of the dashboard's time.", "percentunit", `avg_over_time(workload_partitioning:nodes_sharing:ratio{}[$__range])`, "nodes"},
		{"stat", "Admission within 5 ms", "Of the plugin, for all pods and templates.", "percentunit", `avg_over_time(workload_partitioning:admission_within_5ms:ratio{}[$__range])`, "requests"},
	}},
}

type panel struct{ kind, title, description, unit, expr, legend string }

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
	for _, row := range rows {
		add(Panel{Type: "row", Title: row.title, GridPos: gridPos{H: 1, W: dashboardWidth, Y: y}})
		y++
		for i, p := range row.panels {
			column := i % (dashboardWidth / panelWidth)
			if i > 0 && column == 0 {
				y += panelHeight
			}
			add(Panel{
				Type: p.kind, Title: p.title, Description: p.description,
				GridPos:     gridPos{H: panelHeight, W: panelWidth, X: column * panelWidth, Y: y},
				Datasource:  prometheus,
				FieldConfig: &fieldConfig{fieldDefaults{Unit: p.unit, Min: new(float64)}},
				Targets:     []Target{{RefID: "A", Expr: o.query(p.expr), LegendFormat: replace(p.legend), Instant: p.kind == "stat"}},
			})
		}
		y += panelHeight
	}
	return d, nil
}
