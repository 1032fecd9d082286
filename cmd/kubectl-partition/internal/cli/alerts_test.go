// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestAlerts(t *testing.T) {
	for _, test := range []struct{ name, golden, args string }{
		{"the rules of kube-prometheus are the default", "rules.yaml", "alerts"},
		{"a PrometheusRule has the operator's labels, and one alert less", "prometheusrule.yaml", "alerts --prometheusrule -n monitoring --object-label release=prometheus --without PoolOvercommitted"},
		{"everything can be changed", "changed.yaml", `alerts --type management,real-time --apiserver job="kubernetes-apiservers" --kubelet job="kubernetes-nodes" --cadvisor job="kubernetes-nodes-cadvisor" --kube-state-metrics= ` +
			`--node-label node --selector cluster="edge-7" --label cluster=edge-7 --window 2h --for PoolSaturated=1h,PodsSkipped=5m --threshold PoolSaturated=0.8 --without PoolPressure --runbook-url https://wiki.example.com/partitioning`},
		{"a dashboard", "dashboard.json", "alerts --dashboard"},
	} {
		t.Run(test.name, func(t *testing.T) {
			printed, code, said := run(test.args)
			if code != 0 {
				t.Fatalf("it ended with %d: %s", code, said)
			}
			expectGolden(t, "alerts/"+test.golden, printed)
		})
	}
}

func TestAlertsRefuse(t *testing.T) {
	for _, test := range []struct{ name, args, want string }{
		{"an alert that does not exist", "--for Typo=1h", `for: "Typo" is not an alert; the alerts are APIServerWithoutPlugin, `},
		{"an alert that does not exist and would be left out", "--without Typo", `without: "Typo" is not an alert`},
		{"a threshold of an alert that has none", "--threshold NotLatched=1", `threshold: "NotLatched" is an alert without a threshold`},
		{"a threshold that is not a number", "--threshold PoolSaturated=much", `threshold: PoolSaturated="much": strconv.ParseFloat: parsing "much": invalid syntax`},
		{"a threshold that nothing can exceed", "--threshold PoolSaturated=NaN", `threshold: "PoolSaturated=NaN" is not a number from 0 on`},
		{"a duration that is none", "--for PoolSaturated=soon", `for: PoolSaturated="soon": not a valid duration string`},
		{"no window", "--window 0s", `window: "0s" is not a duration above 0`},
		{"matchers that would end the selector", `--selector a="b"}or(vector(1)){`, `selector: "a=\"b\"}or(vector(1)){" is not a list of label matchers`},
		{"a matcher without quotes", "--kubelet job=kubelet", `kubelet: "job=kubelet" is not a list of label matchers`},
		{"an escape that Prometheus does not know", `--selector cluster=~"edge-\d+"`, `selector: "cluster=~\"edge-\\d+\"" has the value "edge-\d+" with an escape that Prometheus does not know; a backslash is written \\`},
		{"a regular expression that is none", `--selector a="b",cluster!~"("`, `has the value "(": error parsing regexp`},
		{"the name of each metric", `--selector __name__="a"`, `has the label __name__, which each metric sets itself`},
		{"a label that no object has", "--prometheusrule --object-label =a", "object-label: "},
		{"a namespace that is none", "--prometheusrule --namespace A_b", `namespace: Invalid value: "A_b"`},
		{"kubelets that would be everything", "--kubelet=", `kubelet: "" is not a list of label matchers`},
		{"a type that is none", "--type Management", `type: workload type "Management": `},
		{"no type", "--type=", "type: name at least one workload type"},
		{"a label that is none", "--label edge-cluster=7", `label: "edge-cluster" is not the name of a label`},
		{"a label by which rules join series", "--label namespace=monitoring", `label: "namespace" is set by the rules themselves`},
		{"a label that the rules need", "--label severity=page", `label: "severity" is set by the rules themselves`},
		{"a node label that is none", "--node-label a-b", `node-label: "a-b" is not the name of a label`},
		{"two forms at once", "--dashboard --prometheusrule", "[dashboard prometheusrule] were all set"},
	} {
		t.Run(test.name, func(t *testing.T) {
			printed, code, said := run("alerts " + test.args)
			if code != 2 || printed != "" || !strings.Contains(said, test.want) {
				t.Errorf("it ended with %d, printed %q and said %q; want 2, nothing and %q", code, printed, said, test.want)
			}
		})
	}
}

// run runs a command line whose arguments have no blanks.
func run(args string) (printed string, code int, said string) {
	var out, errOut bytes.Buffer
	command := Command(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
	command.SetArgs(strings.Fields(args))
	code = ExitCode(command.Execute(), &errOut)
	return out.String(), code, errOut.String()
}
