// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/verify"
)

func verifyCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "verify [RELEASE...]",
		Short: "Check the series against releases, all known ones by default",
		Long: `For each release: materialise it, apply the series without fuzz, lint, compile every
package that the series touches and this project's own, run upstream's own, unedited
tests of the packages touched, and this project's unit tests against that release.
A matrix is printed at the end.

Upstream's tests that fail without the series, too, are named with the reason in
build/releases/RELEASE/failing, and do not count. A test that fails only with the
series is a failure. One that fails and then passes by itself is named.

A release that has not changed since it passed is skipped.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			checkout, releases, err := projectAndReleases(args)
			if err != nil {
				return err
			}
			names, err := series.Order(checkout)
			if err != nil {
				return err
			}
			var results []verify.Result
			earlier := verify.Trusted
			if force {
				earlier = verify.Ignored
			}
			failed := 0
			for _, release := range releases {
				t := tree.Of(checkout, release)
				unlock, err := t.Lock(cmd.Context())
				if err != nil {
					return err
				}
				v, err := verify.Release(cmd.Context(), t, earlier)
				unlock()
				if err != nil {
					return err
				}
				if v.Failed != "" {
					failed++
					t.Say("FAILED: %s", v.Failed)
				}
				results = append(results, v)
			}
			printResults(names, results)
			if failed > 0 {
				return fmt.Errorf("verify: %d of %d releases failed", failed, len(results))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also verify releases that have not changed since they passed")
	return cmd
}

func printResults(names []string, results []verify.Result) {
	fmt.Print(verify.Matrix(names, results))
	for _, v := range results {
		if len(v.Flaked) > 0 {
			fmt.Printf("%s: passed only when run by themselves: %s\n", v.Release, strings.Join(v.Flaked, ", "))
		}
		if v.Failed != "" {
			fmt.Printf("%s: %s\n", v.Release, v.Failed)
		}
	}
}
