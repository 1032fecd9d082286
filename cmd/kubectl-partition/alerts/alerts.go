// SPDX-License-Identifier: Apache-2.0

// Package alerts renders what Prometheus and Grafana need to watch partitioned nodes:
// alerting rules for symptoms, recording rules for the service level indicators of
// docs/user/objectives.md, and a dashboard.
//
// It knows names and labels of metrics. It reads no cluster, and nothing of Prometheus: the
// tests in the module below evaluate the rules with Prometheus' own library.
package alerts

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/alert"
	"workload.openshift.io/partition"
)

// Options are what differs between clusters. [Defaults] are right for kube-prometheus and for
// OpenShift's monitoring.
type Options struct {
	// Types are the workload types of which kube-state-metrics reports cores. All other
	// metrics have the type as a label.
	Types []string
	// APIServer, Kubelet, CAdvisor and KubeStateMetrics are label matchers that select the
	// targets, such as job="apiserver". The first two must not be empty.
	APIServer, Kubelet, CAdvisor, KubeStateMetrics string
	// NodeLabel is the label that says on which node a target runs. The kubelet's own metrics
	// and those of cAdvisor must have it in common.
	NodeLabel string
	// Selector are label matchers for every metric, such as cluster="edge-7". Empty selects
	// everything.
	Selector string
	// Labels are added to every alert and recorded series.
	Labels map[string]string
	// Window is how far back skipped and refused pods count.
	Window model.Duration
	// For and Thresholds replace those of alerts, by the alert's short name (see [Alerts]).
	For        map[string]model.Duration
	Thresholds map[string]float64
	// Without are short names of alerts that are left out.
	Without []string
	// RunbookURL is where docs/user/alerts.md can be read. The alert's anchor is added.
	RunbookURL string
}

// Defaults returns the options of a cluster with one workload type, management.
func Defaults() Options {
	return Options{
		Types:            []string{"management"},
		APIServer:        `job="apiserver"`,
		Kubelet:          `job="kubelet"`,
		CAdvisor:         `job="kubelet"`,
		KubeStateMetrics: `job="kube-state-metrics"`,
		NodeLabel:        string(model.InstanceLabel),
		Window:           model.Duration(hour),
		RunbookURL:       "docs/user/alerts.md",
	}
}

// RuleFile is a file of rules as Prometheus reads it (upstream, model/rulefmt).
type RuleFile struct {
	Groups []Group `json:"groups"`
}

// Group is a group of rules, which Prometheus evaluates in their order: alerts find what is
// recorded.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is an alerting or a recording rule.
type Rule struct {
	Record string `json:"record,omitempty"`
	Alert  string `json:"alert,omitempty"`
	Expr   string `json:"expr"`
	// For is a duration as Prometheus spells it. Empty means that the alert fires at once.
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PrometheusRule is the object of the Prometheus operator that holds a [RuleFile].
type PrometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              RuleFile `json:"spec"`
}

// Object wraps rules for the Prometheus operator, which may select objects by their labels.
func (f RuleFile) Object(namespace string, labels map[string]string) PrometheusRule {
	return PrometheusRule{
		TypeMeta:   metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"},
		ObjectMeta: metav1.ObjectMeta{Name: "workload-partitioning", Namespace: namespace, Labels: labels},
		Spec:       f,
	}
}

// Rules renders the recording rules and the alerts. It returns an error that names the option
// and its value if that is invalid.
func Rules(o Options) (RuleFile, error) {
	if err := o.validate(); err != nil {
		return RuleFile{}, err
	}
	group := Group{Name: "workload-partitioning"}
	for _, r := range recordings {
		group.Rules = append(group.Rules, Rule{Record: r.name, Expr: o.query(r.expr), Labels: o.Labels})
	}
	for _, a := range Alerts() {
		if slices.Contains(o.Without, a.Name) {
			continue
		}
		if threshold, is := o.Thresholds[a.Name]; is {
			a.Threshold = threshold
		}
		if wait, is := o.For[a.Name]; is {
			a.For = wait
		}
		labels := map[string]string{"severity": a.Severity}
		maps.Copy(labels, o.Labels)
		rule := Rule{
			Alert:  Prefix + a.Name,
			Expr:   strings.ReplaceAll(o.query(a.Expr), "<threshold>", strconv.FormatFloat(a.Threshold, 'g', -1, 64)),
			Labels: labels,
			Annotations: map[string]string{
				"summary":     o.replacer().Replace(a.Summary),
				"description": o.replacer().Replace(a.Description),
				"runbook_url": o.RunbookURL + "#" + strings.ToLower(Prefix+a.Name),
			},
		}
		if a.For > 0 {
			rule.For = a.For.String()
		}
		group.Rules = append(group.Rules, rule)
	}
	return RuleFile{Groups: []Group{group}}, nil
}

// selector is a metric and its braces, as the expressions of this package have them: even a
// metric without matchers has braces.
var selector = regexp.MustCompile(`([a-zA-Z0-9_:]+)\{([^{}]*)\}`)

// query completes an expression: the selector goes to every metric, and what stands between
// angle brackets is replaced. Recorded series have the labels of the options, and not those
// of the metrics.
func (o Options) query(expr string) string {
	cores := make([]string, len(o.Types))
	for i, workloadType := range o.Types {
		cores[i] = fmt.Sprintf("label_replace(kube_pod_container_resource_requests{resource=%q,<kube-state-metrics>}, \"workload_type\", %q, \"\", \"\")",
			sanitise(partition.CoresResource(workloadType)), workloadType)
	}
	expr = strings.ReplaceAll(expr, "<cores>", strings.Join(cores, "\n  or "))
	expr = selector.ReplaceAllStringFunc(expr, func(metric string) string {
		found := selector.FindStringSubmatch(metric)
		var matchers []string
		for own := range strings.SplitSeq(found[2], ",") {
			matchers = append(matchers, o.replacer().Replace(own))
		}
		if !strings.Contains(found[1], ":") {
			matchers = append(matchers, o.Selector)
		} else {
			for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
				matchers = append(matchers, name+"="+strconv.Quote(o.Labels[name]))
			}
		}
		matchers = slices.DeleteFunc(matchers, func(s string) bool { return s == "" })
		if len(matchers) == 0 {
			return found[1]
		}
		return found[1] + "{" + strings.Join(matchers, ",") + "}"
	})
	return o.replacer().Replace(expr)
}

func (o Options) replacer() *strings.Replacer {
	return strings.NewReplacer("<apiserver>", o.APIServer, "<kubelet>", o.Kubelet, "<cadvisor>", o.CAdvisor, "<kube-state-metrics>", o.KubeStateMetrics,
		"<node>", o.NodeLabel, "<window>", o.Window.String())
}

// sanitise spells a resource's name as kube-state-metrics does in a label (upstream,
// internal/store/utils.go, sanitizeLabelName).
func sanitise(resource string) string {
	return regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(resource, "_")
}

var (
	matcher   = `\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=|!=|=~|!~)\s*("(?:[^"\\\n]|\\.)*")\s*`
	oneOf     = regexp.MustCompile(matcher)
	matchers  = regexp.MustCompile("^(" + matcher + "(," + matcher + ")*)?$")
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// refused says why Prometheus would refuse a file of rules with these matchers; empty if it would not.
func refused(list string) string {
	for _, m := range oneOf.FindAllStringSubmatch(list, -1) {
		name, operator, quoted := m[1], m[2], m[3]
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return fmt.Sprintf(`has the value %s with an escape that Prometheus does not know; a backslash is written \\`, quoted)
		}
		if _, err := regexp.Compile(value); err != nil && strings.HasSuffix(operator, "~") {
			return fmt.Sprintf("has the value %s: %v", quoted, err)
		}
		if name == model.MetricNameLabel {
			return "has the label " + name + ", which each metric sets itself"
		}
	}
	return ""
}

// ownLabels are those by which rules tell series apart, join them, or name what they are about.
var ownLabels = []string{model.AlertNameLabel, "severity", "workload_type", "namespace", "pod", "container", "reason", "code", "instance", "node", "owner", "companion", "manager", "class", "state", "result"}

func (o Options) validate() error {
	var errs []error
	invalid := func(option string, value any, what string) {
		errs = append(errs, fmt.Errorf("%s: %q %s", option, fmt.Sprint(value), what))
	}
	if len(o.Types) == 0 {
		errs = append(errs, errors.New("type: name at least one workload type"))
	}
	for _, workloadType := range o.Types {
		if err := partition.ValidateType(workloadType); err != nil {
			errs = append(errs, fmt.Errorf("type: %w", err))
		}
	}
	for _, s := range []struct{ option, value string }{
		{"selector", o.Selector}, {"apiserver", o.APIServer}, {"kubelet", o.Kubelet}, {"cadvisor", o.CAdvisor}, {"kube-state-metrics", o.KubeStateMetrics},
	} {
		targets := s.option == "apiserver" || s.option == "kubelet" // these are counted
		if !matchers.MatchString(s.value) || targets && s.value == "" {
			invalid(s.option, s.value, `is not a list of label matchers, such as job="kubelet"`)
		} else if what := refused(s.value); what != "" {
			invalid(s.option, s.value, what)
		}
	}
	if !labelName.MatchString(o.NodeLabel) {
		invalid("node-label", o.NodeLabel, "is not the name of a label")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		switch {
		case !labelName.MatchString(name):
			invalid("label", name, "is not the name of a label")
		case name == o.NodeLabel || slices.Contains(ownLabels, name):
			invalid("label", name, "is set by the rules themselves; choose another name")
		}
	}
	if o.Window <= 0 {
		invalid("window", o.Window, "is not a duration above 0")
	}
	known := map[string]alert.Alert{}
	for _, a := range Alerts() {
		known[a.Name] = a
	}
	unknown := func(option, name string) {
		invalid(option, name, "is not an alert; the alerts are "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(o.For)) {
		if _, is := known[name]; !is {
			unknown("for", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Thresholds)) {
		a, is := known[name]
		switch value := o.Thresholds[name]; {
		case !is:
			unknown("threshold", name)
		case !a.HasThreshold():
			invalid("threshold", name, "is an alert without a threshold")
		case math.IsNaN(value) || math.IsInf(value, 0) || value < 0:
			invalid("threshold", fmt.Sprintf("%s=%v", name, value), "is not a number from 0 on")
		}
	}
	for _, name := range o.Without {
		if _, is := known[name]; !is {
			unknown("without", name)
		}
	}
	return errors.Join(errs...)
}
