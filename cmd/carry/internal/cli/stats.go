// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

func statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [RELEASE...]",
		Short: "Print the size of the series, for all known releases by default",
		Long:  `Print the size of the series. patches/budget sets its limits, which lint enforces.`,
		RunE: func(_ *cobra.Command, args []string) error {
			checkout, releases, err := projectAndReleases(args)
			if err != nil {
				return err
			}
			return series.PrintSizes(checkout, releases)
		},
	}
}
