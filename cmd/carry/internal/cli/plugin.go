// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func pluginCommand() *cobra.Command {
	var export bool
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Materialise the scheduler's plugin with its own series",
		Long: `Materialise what this project uses of the module ` + project.PluginModule + ` in ` + project.PluginDir + `, a git
repository, and apply the patches of ` + project.PluginPatches + ` to it, after checking them: messages as for other
patches, Go source that is neither a test nor generated, and their own budget.
` + project.PluginPins + ` pins the module.

To change the series, edit there, commit, and run carry plugin --export.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checkout, err := project.Find()
			if err != nil {
				return err
			}
			plugin := tree.Plugin{Project: checkout}
			if export {
				if err := plugin.Export(cmd.Context()); err != nil {
					return err
				}
			}
			findings, err := lint.PluginFindings(checkout)
			if err != nil {
				return err
			}
			if len(findings) > 0 {
				for _, finding := range findings {
					fmt.Println(finding)
				}
				return fmt.Errorf("%d findings", len(findings))
			}
			return plugin.Update(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&export, "export", false, "write the commits there to the series first")
	return cmd
}
