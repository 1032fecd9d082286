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
		Use:   "plugin [RELEASE]",
		Short: "Materialise the scheduler's plugin with its own series",
		Long: `Materialise what this project uses of the module ` + project.PluginModule + ` in ` + project.PluginDir + `, a git
repository, and apply the patches of ` + project.PluginPatches + ` to it, after checking them: messages as for other
patches, Go source that is neither a test nor generated, and their own budget.
` + project.PluginPins + ` pins the module.

With RELEASE, do so in ` + project.OutputDir + `/RELEASE. There, the directories of the release's minor version in both places come
first: they may have another version of the module, overrides, and the names of patches that are not needed.

To change the common series, edit its repository, commit, and run carry plugin --export.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			checkout, err := project.Find()
			if err != nil {
				return err
			}
			plugin := tree.Plugin{Project: checkout}
			if len(args) > 0 {
				plugin.Release = args[0]
				if err := checkout.Knows(plugin.Release); err != nil {
					return err
				}
			}
			if export {
				if err := plugin.Export(cmd.Context()); err != nil {
					return err
				}
			}
			findings, err := lint.PluginFindings(checkout, plugin.Release)
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
