// SPDX-License-Identifier: Apache-2.0

// Package test has the tests of package alerts that need Prometheus' own library. There is
// nothing else in the module.
package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/alerts"
)

// unitTests is a file of Prometheus' unit-test format, of which these tests need the
// expressions: the alerts that fire are the series ALERTS.
type unitTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []unitTest     `json:"tests"`
}

type unitTest struct {
	Name        string `json:"name"`
	InputSeries []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	PromQLExprTests []struct {
		Expr       string         `json:"expr"`
		EvalTime   model.Duration `json:"eval_time"`
		ExpSamples []struct {
			Labels string  `json:"labels"`
			Value  float64 `json:"value"`
		} `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

var promQL = parser.NewParser(parser.Options{})

// firing is how the unit tests ask whether an alert fires.
var firing = regexp.MustCompile(`^ALERTS{alertname="` + alerts.Prefix + `([A-Za-z]+)",alertstate="firing"}$`)

// TestRules evaluates the default rules against the series of testdata/rules.test.yaml, as
// promtool test rules does. Each alert must fire in one of the tests, and must not in another.
func TestRules(t *testing.T) {
	path := filepath.Join("testdata", "rules.test.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file unitTests
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, expected := range test.PromQLExprTests {
			if found := firing.FindStringSubmatch(expected.Expr); found != nil && len(expected.ExpSamples) > 0 {
				fires[found[1]] = true
			} else if found != nil {
				silent[found[1]] = true
			}
		}
		t.Run(test.Name, func(t *testing.T) { test.run(t, file) })
	}
	for _, alert := range alerts.Alerts() {
		if !fires[alert.Name] || !silent[alert.Name] {
			t.Errorf("alert %s: fires in a test: %t, and does not fire in another: %t", alert.Name, fires[alert.Name], silent[alert.Name])
		}
	}
}

// run does what upstream's cmd/promtool/unittest.go does for the expressions of a test.
func (u unitTest) run(t *testing.T, file unitTests) {
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", file.EvaluationInterval)
	for _, series := range u.InputSeries {
		fmt.Fprintf(&load, "  %s %s\n", series.Series, series.Values)
	}
	suite, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: promQL})
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:    rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		AppendableV2: suite.Storage(),
		Context:      t.Context(),
		NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
		Logger:       promslog.NewNopLogger(),
		Parser:       promQL,
	})
	paths := make([]string, len(file.RuleFiles))
	for i, path := range file.RuleFiles {
		paths[i] = filepath.Join("testdata", path)
	}
	groups, errs := manager.LoadGroups(time.Duration(file.EvaluationInterval), labels.EmptyLabels(), "", nil, false, paths...)
	if errs != nil {
		t.Fatal(errs)
	}
	for _, group := range groups {
		for _, rule := range group.Rules() {
			if alerting, is := rule.(*rules.AlertingRule); is {
				alerting.SetRestored(true) // otherwise there is no series ALERTS
			}
		}
	}
	var last model.Duration
	for _, expected := range u.PromQLExprTests {
		last = max(last, expected.EvalTime)
	}
	for at := time.Unix(0, 0).UTC(); !at.After(time.Unix(0, 0).Add(time.Duration(last))); at = at.Add(time.Duration(file.EvaluationInterval)) {
		suite.WithSamplesTill(at, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Eval(suite.Context(), at)
				for _, rule := range group.Rules() {
					check(t, rule, at)
				}
			}
		})
	}
	for _, expected := range u.PromQLExprTests {
		query, err := suite.QueryEngine().NewInstantQuery(suite.Context(), suite.Queryable(), nil, expected.Expr, time.Unix(0, 0).Add(time.Duration(expected.EvalTime)))
		if err != nil {
			t.Fatal(err)
		}
		vector, err := query.Exec(suite.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", expected.Expr, err)
		}
		got, want := []string{}, []string{}
		for _, sample := range vector {
			got = append(got, fmt.Sprintf("%s %.6g", sample.Metric, sample.F))
		}
		for _, sample := range expected.ExpSamples {
			metric, err := promQL.ParseMetric(sample.Labels)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%s %.6g", metric, sample.Value))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %s, %s is\n  %s\nwant\n  %s", expected.EvalTime, expected.Expr, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

// check reports a rule that cannot be evaluated, and an alert whose texts cannot.
func check(t *testing.T, rule rules.Rule, at time.Time) {
	if err := rule.LastError(); err != nil {
		t.Fatalf("%s at %s: %v", rule.Name(), at, err)
	}
	alerting, is := rule.(*rules.AlertingRule)
	if !is {
		return
	}
	for _, alert := range alerting.ActiveAlerts() {
		alert.Annotations.Range(func(l labels.Label) {
			if strings.Contains(l.Value, "error expanding") || strings.Contains(l.Value, "<no value>") || strings.Contains(l.Value, "  ") || strings.Contains(l.Value, " .") {
				t.Errorf("the %s of %s is %q", l.Name, rule.Name(), l.Value)
			}
		})
	}
}
