// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

func newClaim(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "claim",
		Short: "Show which nodes companions act on, or release one by force",
		Long: `Show which nodes are claimed, or remove a claim by force. A companion claims a node before
it acts on it, so that no other does so at the same time. A claim does not expire.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newClaimList(streams), newClaimRelease(streams))
	return command
}

type claimListOptions struct {
	flagsAlone
	*companion
	format output.Format
}

func newClaimList(streams genericiooptions.IOStreams) *cobra.Command {
	c := &claimListOptions{companion: newCompanion(streams)}
	command := &cobra.Command{
		Use:   "list",
		Short: "List the nodes that are claimed",
		Long: `List the nodes that are claimed. You need the right to list nodes.

Exit codes:
  0  all claims can be read
  1  a claim cannot be read: no companion acts on its node until it is released
  2  nodes cannot be listed`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(c),
	}
	c.format.Flag(command)
	c.flags(command)
	return command
}

func (c *claimListOptions) Run(ctx context.Context) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n policyclient.Node) bool { return n.Claim == nil && n.UnreadableClaim == "" })
	found := slices.ContainsFunc(nodes, func(n policyclient.Node) bool { return n.Claim == nil })
	return verdict(found, c.format, c.streams.Out, list[policyclient.Node]{output.TypeMeta("Claims"), nodes}, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		output.Row(table, "NODE", "OWNER", "OPERATION", "SINCE")
		for _, n := range nodes {
			if n.Claim == nil {
				output.Row(table, n.Name, n.UnreadableClaim)
				continue
			}
			output.Row(table, n.Name, n.Claim.Owner, n.Claim.Operation, sinceOf(n.Claim.Since))
		}
		return table.Flush()
	})
}

func newClaimRelease(streams genericiooptions.IOStreams) *cobra.Command {
	c := &claimReleaseOptions{force{companion: newCompanion(streams)}}
	command := &cobra.Command{
		Use:   "release NODE",
		Short: "Remove the claim on a node, by force",
		Long: `Remove the claim on a node. Use this if the claim's companion is gone for good. The command shows
the claim, and asks you first. If its operation still runs, another one may then act on the node
at the same time. A cordon stays.

You need the rights to get and patch the node.

Exit codes: 0, or 2 if nothing was changed.`,
		Example: `  kubectl partition claim release worker-1`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: steps(c),
	}
	c.flags(command)
	return command
}

// claimReleaseOptions are about the node whose claim goes.
type claimReleaseOptions struct{ force }

func (c *claimReleaseOptions) Run(ctx context.Context) error {
	name := c.args[0]
	client, err := c.connect()
	if err != nil {
		return err
	}
	object, err := client.Node(ctx, name)
	if err != nil {
		return err
	}
	claim, has := object.Annotations[nodegroup.ClaimAnnotation]
	if !has {
		return fmt.Errorf("node %s is not claimed", name)
	}
	fmt.Fprintf(c.streams.Out, "node %s is claimed: %s\n", output.Printable(name), output.Printable(claim))
	if !c.yes {
		if err := c.confirm(ctx, fmt.Sprintf("If that operation still runs, another one may then act on the node at the same time. Release %s?", output.Printable(name))); err != nil {
			return err
		}
	}
	if err := client.Release(ctx, object); err != nil {
		return err
	}
	fmt.Fprintf(c.streams.Out, "node %s: released\n", output.Printable(name))
	if object.Spec.Unschedulable {
		fmt.Fprintf(c.streams.Out, "node %s is cordoned; if that is no longer needed, run: kubectl uncordon %[1]s\n", output.Printable(name))
	}
	return nil
}
