// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func lintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint [RELEASE]",
		Short: "Check the patches against the rules of the series",
		Long: `Check the messages and hunks of all patches, and that this project's modules raise
no dependency of the release's tree. Each finding has a file and a line.

A message says why, and has three trailers:
  Upstream-Status: Inappropriate|Pending|Submitted|Accepted [reason or link]
  Tests: which tests hold the patch
  Drop-When: when the patch can go
A hunk adds a line or a few that call this project's packages. It creates, removes
and renames no file, and touches no test, generated file, go.mod or go.sum.`,
		Args: cobra.MaximumNArgs(1),
		RunE: withTree(func(ctx context.Context, t *tree.Tree) error {
			findings, err := lint.Findings(ctx, t)
			if err != nil {
				return err
			}
			for _, f := range findings {
				fmt.Println(f)
			}
			if len(findings) > 0 {
				return fmt.Errorf("lint: %d findings", len(findings))
			}
			files, err := series.Files(t.Project)
			if err != nil {
				return err
			}
			fmt.Printf("%d patches keep to the rules, and no dependency of %s is raised\n", len(files), t.Release)
			return nil
		}),
	}
}
