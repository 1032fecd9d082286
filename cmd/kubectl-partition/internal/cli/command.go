// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kubectl-partition: flags, help, and how results are
// printed. The commands' logic is in separate packages, which other programs may
// use.
package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// Command returns the command kubectl-partition. A file of this package, named after it, has
// each of its commands.
func Command(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-partition",
		Short: "Set up, check and explain partitioned nodes",
		Long: `Set up, check and explain workload partitioning.

Exit codes of all commands:
  0  nothing is wrong
  1  the command did its work, and found something
  2  the command could not do its work: its input is wrong, or it may not read what it needs`,
		Version:       version.Get().GitVersion,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl partition"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// Cobra would have -v mean it, which is the verbosity of kubectl.
	command.Flags().Bool("version", false, "print the version")
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	command.AddCommand(newAlerts(streams), newAudit(streams), newClaim(streams), newClasses(streams), newConsole(streams), newCPUPolicy(streams), newExplain(streams), newLint(streams), newPlan(streams), newRender(streams), newStatus(streams), newTuning(streams))
	return command
}
