// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

type groupPlanOptions struct {
	arguments
	*companion
	format output.Format
	file   string
}

func newGroupPlan(streams genericiooptions.IOStreams) *cobra.Command {
	p := &groupPlanOptions{companion: newCompanion(streams)}
	command := &cobra.Command{
		Use:   "plan (NAME | -f FILE)",
		Short: "Show what a CPUManagerPolicy would do to each of its nodes, without writing anything",
		Long: `Show what a CPUManagerPolicy would do to each of its nodes: which it would switch, which already
have the policy, and why the others cannot be switched. With a drain, it names the pods that would
be evicted. The object is one of the cluster, or a file that is not applied yet; - reads standard
input.

The command asks the cluster as the companion does, node by node, in dry runs, with the current
pods. It cannot foresee what an agent will find on the node before the switch.

You need the rights to list and patch nodes, and to get and list cpumanagerpolicies; with
-f, to create and update these; with a drain, to list pods in all namespaces.

Exit codes:
  0  each node would be switched, waits, or has the policy
  1  at least one node cannot be switched
  2  the cluster cannot be asked`,
		Example: `  # What would it do?
  kubectl partition cpu-policy plan -f pinned.yaml

  # And what is left to do?
  kubectl partition cpu-policy plan pinned`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: steps(p),
	}
	command.Flags().StringVarP(&p.file, "filename", "f", "", "file with a CPUManagerPolicy; - is standard input")
	p.format.Flag(command)
	p.flags(command)
	return command
}

// shownGroupPlan is what -o json prints.
type shownGroupPlan struct {
	metav1.TypeMeta         `json:",inline"`
	*policyclient.GroupPlan `json:",inline"`
}

func (p *groupPlanOptions) Validate() error {
	if (len(p.args) == 1) == (p.file != "") {
		return errors.New("name a CPUManagerPolicy of the cluster, or a file with -f")
	}
	return nil
}

func (p *groupPlanOptions) Run(ctx context.Context) error {
	client, err := p.connect()
	if err != nil {
		return err
	}
	group, err := p.group(ctx, client)
	if err != nil {
		return err
	}
	p.warnings.take() // about the object
	plan, err := client.Plan(ctx, group, p.warnings.take)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(plan.Nodes, func(n policyclient.PlannedNode) bool {
		return n.Outcome == policyclient.WouldRefuse || n.Outcome == policyclient.InTwoGroups || n.Outcome == policyclient.NotAgain
	})
	return verdict(found, p.format, p.streams.Out, shownGroupPlan{output.TypeMeta("CPUPolicyPlan"), plan}, func(w io.Writer, _ bool) error {
		return printGroupPlan(w, plan)
	})
}

func (p *groupPlanOptions) group(ctx context.Context, client policyclient.Client) (*v1alpha1.CPUManagerPolicy, error) {
	if len(p.args) == 1 {
		return client.NodeGroup(ctx, p.args[0])
	}
	manifest, err := readFile(p.file, p.streams.In)
	if err != nil {
		return nil, err
	}
	group, err := client.Applied(ctx, manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.file, err)
	}
	return group, nil
}

func printGroupPlan(out io.Writer, plan *policyclient.GroupPlan) error {
	how := ""
	switch {
	case plan.Drain:
		how = ", each cordoned and drained"
	case plan.Cordon:
		how = ", each cordoned"
	}
	fmt.Fprintln(out, output.Printable(fmt.Sprintf("CPUManagerPolicy %s: policy %s, at most %s unavailable%s", plan.Name, plan.Policy, plan.MaxUnavailable, how)))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	output.Row(w, "NODE", "POLICY", "OUTCOME")
	count := map[policyclient.Outcome]int{}
	for _, n := range plan.Nodes {
		count[n.Outcome]++
		output.Row(w, n.Name, cmp.Or(n.Policy, "unknown"), string(n.Outcome))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range plan.Nodes {
		for _, each := range []struct {
			kind  string
			texts []string
		}{{string(n.Outcome), n.Reasons}, {"would evict", n.Evicted}, {"warning", n.Warnings}} {
			for _, text := range each.texts {
				fmt.Fprintln(out, output.Printable(fmt.Sprintf("node %s: %s: %s", n.Name, each.kind, text)))
			}
		}
	}
	for _, name := range plan.Missing {
		fmt.Fprintln(out, output.Printable(fmt.Sprintf("node %s: there is no such node yet", name)))
	}
	fmt.Fprintf(out, "nodes: %d", len(plan.Nodes))
	for _, outcome := range []policyclient.Outcome{policyclient.WouldSwitch, policyclient.HasPolicy, policyclient.Waiting, policyclient.WouldRefuse, policyclient.NotAgain, policyclient.InTwoGroups} {
		if n := count[outcome]; n > 0 {
			fmt.Fprintf(out, ", %s: %d", outcome, n)
		}
	}
	fmt.Fprintln(out, "; nothing was written")
	return nil
}
