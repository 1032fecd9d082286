// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/rebase"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func exportCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "export [RELEASE]",
		Short: "Write the tree's commits back to patches/",
		Long: `Write the tree's commits back to patches/ and patches/series, one file for each.

A commit keeps the file that it came from; a new one gets a file named after its
subject. Commits of the newest release are the common series. Commits of another
release that changed there are its overrides, in patches/RELEASE.

With --check nothing is written: a file that would change is an error, which names it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: withTree(func(ctx context.Context, t *tree.Tree) error {
			if err := rebase.UnderWay(t); err != nil {
				return err
			}
			if check {
				return t.CheckExport(ctx)
			}
			return t.Export(ctx)
		}),
	}
	cmd.Flags().BoolVar(&check, "check", false, "compare with patches/, and write nothing")
	return cmd
}
