// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/alerts"
)

// documented is a metric in the tables of docs/user/metrics.md. For those of the kubelet and of
// kube-apiserver, scripts/lint compares the tables with the code.
var documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

// placeholder is what an option should have replaced.
var placeholder = regexp.MustCompile("<[a-z]+>")

// upstream are the metrics that others have.
var upstream = []string{
	"up", // Prometheus itself
	// k8s.io/apiserver, pkg/admission/metrics
	"apiserver_admission_controller_admission_duration_seconds_bucket",
	"apiserver_admission_controller_admission_duration_seconds_count",
	// cAdvisor, metrics/prometheus.go
	"container_cpu_usage_seconds_total",
	"container_cpu_cfs_periods_total",
	"container_cpu_cfs_throttled_periods_total",
	"container_pressure_cpu_waiting_seconds_total",
	// kube-state-metrics, docs/metrics/workload/pod-metrics.md
	"kube_pod_container_resource_requests",
	// kube-state-metrics, docs/metrics/policy/resourcequota-metrics.md
	"kube_resourcequota",
}

// fleet are options that differ from the defaults as far as they can.
func fleet() alerts.Options {
	o := alerts.Defaults()
	o.Types = []string{"management", "real-time"}
	o.APIServer, o.Kubelet, o.CAdvisor, o.KubeStateMetrics = `job=~"kube-?apiservers?"`, `job=~"kubelets?",metrics_path="/metrics"`, "", `job="a{2}"`
	o.NodeLabel, o.Selector, o.Labels = "node", `cluster="edge-7"`, map[string]string{"cluster": "edge-7", "team": `a "b"`}
	o.Window = model.Duration(90 * time.Minute)
	o.For = map[string]model.Duration{"PodsSkipped": model.Duration(time.Minute)}
	o.Thresholds = map[string]float64{"PoolSaturated": 1e-7}
	o.Without = []string{"PoolOvercommitted"}
	return o
}

// TestQueries reads each query of the rules and of the dashboard as Prometheus does: it has a
// meaning, uses only metrics that exist, and selects what the options say.
func TestQueries(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "user", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Clone(upstream)
	for _, found := range documented.FindAllStringSubmatch(string(page), -1) {
		known = append(known, found[1])
	}
	for _, set := range alerts.Companions() {
		known = append(known, set.Names()...)
	}
	for name, o := range map[string]alerts.Options{"by default": alerts.Defaults(), "with all options": fleet()} {
		t.Run(name, func(t *testing.T) {
			file, err := alerts.Rules(o)
			if err != nil {
				t.Fatal(err)
			}
			data, err := yaml.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, errs := rulefmt.Parse(data, false, model.UTF8Validation, promQL, promslog.NewNopLogger()); len(errs) > 0 {
				t.Fatalf("Prometheus does not read the rules: %v\n%s", errs, data)
			}
			recorded := []string{}
			for _, group := range file.Groups {
				for _, rule := range group.Rules {
					name := rule.Alert + rule.Record
					checkQuery(t, name, rule.Expr, append(slices.Clone(known), recorded...), recorded, o)
					if rule.Record != "" {
						recorded = append(recorded, rule.Record)
					}
				}
			}
			dashboard, err := alerts.NewDashboard(o)
			if err != nil {
				t.Fatal(err)
			}
			panels := 0
			for _, panel := range dashboard.Panels {
				for _, target := range panel.Targets {
					panels++
					expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h").Replace(target.Expr)
					checkQuery(t, panel.Title, expr, append(slices.Clone(known), recorded...), recorded, o)
				}
			}
			if panels == 0 {
				t.Error("the dashboard has no query")
			}
		})
	}
}

// checkQuery parses a query, and compares its selectors with the metrics that exist and with
// the options.
func checkQuery(t *testing.T, name, query string, known, recorded []string, o alerts.Options) {
	t.Helper()
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, query)
		return
	}
	if left := placeholder.FindString(query); left != "" {
		t.Errorf("%s has the placeholder %s left: %s", name, left, query)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		if !slices.Contains(known, selector.Name) {
			t.Errorf("%s uses %s, which does not exist", name, selector.Name)
		}
		want := o.Selector
		if slices.Contains(recorded, selector.Name) && o.Labels != nil {
			want = `cluster="edge-7",team="a \"b\""`
		}
		if want == "" {
			return nil
		}
		expected, err := promQL.ParseMetricSelector("{" + want + "}")
		if err != nil {
			t.Fatal(err)
		}
		for _, matcher := range expected {
			if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool { return m.String() == matcher.String() }) {
				t.Errorf("%s does not select %s of %s: %s", name, matcher, selector.Name, query)
			}
		}
		return nil
	})
}
