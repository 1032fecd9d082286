// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/alerts"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/alert"
)

type alertsOptions struct {
	alerts.Options
	streams                         genericiooptions.IOStreams
	prometheusRule, dashboard       bool
	namespace                       string
	objectLabels, waits, thresholds map[string]string
}

func newAlerts(streams genericiooptions.IOStreams) *cobra.Command {
	o := &alertsOptions{Options: alerts.Defaults(), streams: streams}
	command := &cobra.Command{
		Use:   "alerts",
		Short: "Render Prometheus rules and a Grafana dashboard for partitioned nodes",
		Long: `Render alerting and recording rules for Prometheus, or a dashboard for Grafana.

The rules are one file that Prometheus reads, or with --prometheusrule an object of the
Prometheus operator. The dashboard shows series that the rules record. Nothing is read from a
cluster.

The alerts, whose names all begin with ` + alerts.Prefix + ` in the rules:

` + alertTable() + `
docs/user/alerts.md says of each what it means and what to do.

Exit codes: 0, or 2 if a flag has an invalid value.`,
		Example: `  # A file for rule_files of Prometheus
  kubectl partition alerts >workload-partitioning.rules.yaml

  # An object for kube-prometheus-stack
  kubectl partition alerts --prometheusrule -n monitoring --object-label release=prometheus | kubectl apply -f -

  # Other limits, and no alert for requests above the pool
  kubectl partition alerts --threshold PoolSaturated=0.8 --for PoolSaturated=1h --without PoolOvercommitted

  # The targets of the Helm chart "prometheus"
  kubectl partition alerts --apiserver 'job="kubernetes-apiservers"' --kubelet 'job="kubernetes-nodes"' --cadvisor 'job="kubernetes-nodes-cadvisor"' --kube-state-metrics ''

  # A dashboard, to import in Grafana
  kubectl partition alerts --dashboard >workload-partitioning.json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(o),
	}
	flags := command.Flags()
	flags.BoolVar(&o.prometheusRule, "prometheusrule", false, "print an object PrometheusRule of the Prometheus operator")
	flags.BoolVar(&o.dashboard, "dashboard", false, "print a dashboard for Grafana, as JSON")
	command.MarkFlagsMutuallyExclusive("prometheusrule", "dashboard")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "the namespace of the PrometheusRule")
	flags.StringToStringVar(&o.objectLabels, "object-label", nil, "a label of the PrometheusRule, by which an operator may select it, as NAME=VALUE; repeatable")
	flags.StringSliceVar(&o.Types, "type", o.Types, "a workload type; repeatable. Only metrics of kube-state-metrics need it")
	flags.StringVar(&o.APIServer, "apiserver", o.APIServer, "label matchers of the targets that are kube-apiservers")
	flags.StringVar(&o.Kubelet, "kubelet", o.Kubelet, "label matchers of the targets that are kubelets")
	flags.StringVar(&o.CAdvisor, "cadvisor", o.CAdvisor, "label matchers of the kubelets' metrics of containers")
	flags.StringVar(&o.KubeStateMetrics, "kube-state-metrics", o.KubeStateMetrics, "label matchers of kube-state-metrics")
	flags.StringVar(&o.NodeLabel, "node-label", o.NodeLabel, "the label that distinguishes nodes, in metrics of kubelets and containers alike")
	flags.StringVar(&o.Selector, "selector", "", `label matchers for every metric, such as cluster="edge-7"`)
	flags.StringToStringVar(&o.Labels, "label", nil, "a label of every alert and recorded series, as NAME=VALUE; repeatable")
	flags.Var(&o.Window, "window", "how far back skipped and refused pods count")
	flags.StringToStringVar(&o.waits, "for", nil, "how long a symptom lasts before its alert fires, as ALERT=DURATION; repeatable")
	flags.StringToStringVar(&o.thresholds, "threshold", nil, "above what an alert fires, as ALERT=NUMBER; repeatable")
	flags.StringSliceVar(&o.Without, "without", nil, "an alert to leave out; repeatable")
	flags.StringVar(&o.RunbookURL, "runbook-url", o.RunbookURL, "where docs/user/alerts.md is published")
	complete := func(flag, suffix string, has func(alert.Alert) bool) {
		var names []string
		for _, a := range alerts.Alerts() {
			if has(a) {
				names = append(names, a.Name+suffix)
			}
		}
		utilruntime.Must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)))
	}
	all := func(alert.Alert) bool { return true }
	complete("without", "", all)
	complete("for", "=", all)
	complete("threshold", "=", alert.Alert.HasThreshold)
	return command
}

func (o *alertsOptions) Complete(*cobra.Command, []string) (err error) {
	if o.For, err = parsed("for", o.waits, model.ParseDuration); err != nil {
		return err
	}
	o.Thresholds, err = parsed("threshold", o.thresholds, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	return err
}

func (o *alertsOptions) Validate() error {
	errs := metav1validation.ValidateLabels(o.objectLabels, field.NewPath("object-label"))
	if problems := validation.IsDNS1123Label(o.namespace); o.namespace != "" && len(problems) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), o.namespace, strings.Join(problems, "; ")))
	}
	return errs.ToAggregate()
}

func (o *alertsOptions) Run(context.Context) error {
	if o.dashboard {
		d, err := alerts.NewDashboard(o.Options)
		if err != nil {
			return err
		}
		return output.JSON.Print(o.streams.Out, d, nil)
	}
	rules, err := alerts.Rules(o.Options)
	if err != nil {
		return err
	}
	if o.prometheusRule {
		return output.YAML.Print(o.streams.Out, rules.Object(o.namespace, o.objectLabels), nil)
	}
	return output.YAML.Print(o.streams.Out, rules, nil)
}

// alertTable lists the catalogue for the help.
func alertTable() string {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  NAME\tSEVERITY\tFOR\tTHRESHOLD")
	for _, a := range alerts.Alerts() {
		wait, threshold := "-", "-"
		if a.For > 0 {
			wait = a.For.String()
		}
		if a.HasThreshold() {
			threshold = strconv.FormatFloat(a.Threshold, 'g', -1, 64)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", a.Name, a.Severity, wait, threshold)
	}
	w.Flush()
	return table.String()
}

// parsed parses the values of a flag that is a map.
func parsed[T any](flag string, texts map[string]string, parse func(string) (T, error)) (map[string]T, error) {
	values := map[string]T{}
	for name, text := range texts {
		value, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s=%q: %w", flag, name, text, err)
		}
		values[name] = value
	}
	return values, nil
}
