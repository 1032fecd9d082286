// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// addCompletion adds to cobra's scripts for shells, which complete kubectl-partition, the command that
// completes kubectl partition.
func addCompletion(command *cobra.Command, streams genericiooptions.IOStreams) {
	command.InitDefaultCompletionCmd()
	for _, c := range command.Commands() {
		if c.Name() == "completion" {
			c.AddCommand(newCompletionKubectl(streams))
		}
	}
}

func newCompletionKubectl(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Print the command by which kubectl completes kubectl partition",
		Long: `Print the command by which kubectl completes kubectl partition, if your shell completes kubectl. kubectl
looks for it in PATH, under the name kubectl_complete-partition.`,
		Example: `  kubectl partition completion kubectl >~/.local/bin/kubectl_complete-partition
  chmod +x ~/.local/bin/kubectl_complete-partition`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			// k8s.io/kubectl, pkg/cmd/plugin/plugin_completion.go
			_, err := fmt.Fprintf(streams.Out, "#!/bin/sh\nexec kubectl-partition %s \"$@\"\n", cobra.ShellCompRequestCmd)
			return err
		},
	}
}
