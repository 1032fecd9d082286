// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func treeCommand() *cobra.Command {
	var resume, abort bool
	cmd := &cobra.Command{
		Use:   "tree [RELEASE]",
		Short: "Materialise a release and apply the series to it",
		Long: `Materialise _output/RELEASE/kubernetes and apply the series to it, without fuzz.

Called again, it applies only the patches that changed.
carry never discards work in the tree that is not in patches/. It stops instead, and
says how to keep or drop that work.

If a patch does not apply, the tree is left with git's three-way conflict. Resolve
it, git add, and go on with --continue; or drop the attempt with --abort.`,
		Args: cobra.MaximumNArgs(1),
		RunE: withTree(func(ctx context.Context, t *tree.Tree) error {
			switch {
			case resume:
				return t.Resume(ctx)
			case abort:
				return t.Abort(ctx)
			}
			return t.Update(ctx)
		}),
	}
	cmd.Flags().BoolVar(&resume, "continue", false, "commit the resolved conflict and apply the rest of the series")
	cmd.Flags().BoolVar(&abort, "abort", false, "drop the conflict and what was done to resolve it")
	cmd.MarkFlagsMutuallyExclusive("continue", "abort")
	return cmd
}
