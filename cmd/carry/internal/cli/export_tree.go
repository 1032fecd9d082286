// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/exporttree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func exportTreeCommand() *cobra.Command {
	var wanted exporttree.Options
	var verify bool
	cmd := &cobra.Command{
		Use:   "export-tree [RELEASE] --to DIR",
		Short: "Make a git repository that builds with the series and without this project",
		Long: `Make a git repository in DIR that you can push as a fork of Kubernetes. It has, in commits
whose subjects follow the convention of forks,

  1. upstream, as the release's Go modules have it, or the checkout that --onto names,
  2. this project's packages, below staging/src/` + project.CoreModule[:strings.LastIndex(project.CoreModule, "/")] + `,
  3. one commit for each patch of the series, and
  4. what hack/update-vendor.sh makes of that: go.mod, go.work and vendor.

Called again, it adds changes as commits on top. A DIR with other work is left alone. The same series gives the same commits everywhere.

--onto takes a checkout of kubernetes or openshift/kubernetes of the same minor version.
Nothing is written there. What a fork carries for the same purpose is reverted first, as
` + project.RevertsFile + ` lists it; it is an error if any of it
remains, or if the export does not pass a type check.

--verify checks what is in DIR instead, with no network: it runs a type check, upstream's
scripts for format, imports and vendor, and make, and says what it did not run. A failure that
the checkout has without the export is printed, and does not count.`,
		Args: cobra.MaximumNArgs(1),
		RunE: withTree(func(ctx context.Context, t *tree.Tree) error {
			if verify {
				return exporttree.Verify(ctx, t, wanted.To, os.Stdout)
			}
			return exporttree.Export(ctx, t, wanted)
		}),
	}
	cmd.Flags().StringVar(&wanted.To, "to", "", "the repository's directory")
	cmd.Flags().StringVar(&wanted.Onto, "onto", "", "a checkout of kubernetes or openshift/kubernetes to put the series on")
	cmd.Flags().BoolVar(&verify, "verify", false, "check what is in DIR, and export nothing")
	cmd.MarkFlagsMutuallyExclusive("onto", "verify")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	return cmd
}
