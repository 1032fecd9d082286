// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [RELEASE...]",
		Short: "Type-check the series in releases, all known ones by default",
		Long: `Type-check each release's tree from source: the packages that the series touches and
this project's own, with their tests, kubelet and kube-apiserver. Nothing is compiled,
and only the declarations of all other packages are read, so it takes seconds. A missing
tree is made; an existing one is checked as it is, with its uncommitted work.

It finds what compiling would find: a name that is gone, a signature that changed. It
does not find what only a test can. An error has a file and a line, and the patch that
touches the file.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			checkout, releases, err := projectAndReleases(args)
			if err != nil {
				return err
			}
			failed := 0
			for _, release := range releases {
				t := tree.Of(checkout, release)
				start := time.Now()
				var found check.Result
				if err := t.Locked(cmd.Context(), func() (err error) {
					if err := t.Update(cmd.Context()); err != nil {
						return err
					}
					found, err = check.Release(cmd.Context(), t)
					return err
				}); err != nil {
					return err
				}
				for _, p := range found.Problems {
					fmt.Println(p)
				}
				for _, module := range found.Missing {
					fmt.Println(module)
				}
				if len(found.Problems) > 0 {
					failed++
					t.Say("FAILED: %d errors in %d packages", len(found.Problems), found.Packages)
					continue
				}
				others := ""
				if len(found.Missing) > 0 {
					others = " in their other files"
				}
				fmt.Printf("%s: %d packages have no type error%s, in %.0f s\n", release, found.Packages, others, time.Since(start).Seconds())
			}
			if failed > 0 {
				return fmt.Errorf("check: %d of %d releases failed", failed, len(releases))
			}
			return nil
		},
	}
}
