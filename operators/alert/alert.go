// SPDX-License-Identifier: Apache-2.0

// Package alert says what is watched with Prometheus and Grafana: metrics, the alerts on them, and their
// rows of the dashboard. A companion keeps its own in one file, and kubectl partition alerts renders them.
//
// It knows no companion.
package alert

import (
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// Set is what a program brings. The program registers its metrics where it runs.
type Set struct {
	Metrics []prometheus.Collector
	Alerts  []Alert
	Rows    []Row
}

// NewGauge returns a metric for a [Set] that goes up and down, and has these labels.
func NewGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// NewCounter returns one that only goes up.
func NewCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Names are those of the metrics.
func (s Set) Names() (names []string) {
	for _, metric := range s.Metrics {
		descs := make(chan *prometheus.Desc, 1)
		go func() { metric.Describe(descs); close(descs) }()
		for desc := range descs {
			names = append(names, fqName.FindStringSubmatch(desc.String())[1])
		}
	}
	return names
}

// fqName is a metric's name in its description, which has no other way to tell it.
var fqName = regexp.MustCompile(`fqName: "([^"]*)"`)

// Severities of alerts: critical needs attention now, warning within a day, and info is of use
// when someone looks at the node anyway.
const (
	Critical = "critical"
	Warning  = "warning"
	Info     = "info"
)

// Alert is an alert. In its expression each metric has braces, even without matchers: the options of kubectl
// partition alerts add theirs. <threshold> stands for Threshold.
type Alert struct {
	// Name is the short name. The rules put a prefix before it.
	Name     string
	Severity string
	// For is how long the symptom must last. 0 means that the alert fires at once.
	For model.Duration
	// Threshold is above what the alert fires, if it has one ([Alert.HasThreshold]).
	Threshold float64
	// Summary is one line, a template of Prometheus.
	Summary string
	// Expr is in PromQL, and Description says what to do. It is a template, too.
	Expr, Description string
}

// HasThreshold reports whether the alert compares with a threshold that can be changed.
func (a Alert) HasThreshold() bool { return strings.Contains(a.Expr, "<threshold>") }

// Row is a row of the dashboard.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a panel of the dashboard. Its query has braces as those of alerts have.
type Panel struct {
	// Kind is Grafana's type of panel: stat or timeseries.
	Kind               string
	Title, Description string
	// Unit is Grafana's, such as short or percentunit.
	Unit string
	Expr string
	// Legend is a template of Grafana, such as {{node}}.
	Legend string
}
