// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/rebase"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func rebaseCommand() *cobra.Command {
	var resume, abort, noBuild bool
	var wanted rebase.Options
	cmd := &cobra.Command{
		Use:   "rebase [RELEASE]",
		Short: "Bring the series to a release that is not known yet",
		Long: `Bring the series to a new release: pin its modules in build/releases/RELEASE, take the
patches of the known release next to it, and apply them. If a module that a binary needs
cannot be downloaded, nothing changes, and the newest release that can be downloaded is
named. For a patch that does not apply, in this order:

  upstream has the change: the patch is dropped for this release,
  another release's file of the same name applies: it becomes an override,
  git's three-way merge goes through: the result becomes an override,
  else the conflict is left in the tree, and shown: resolve it, git add, --continue.

A release newer than all others becomes the one that the common series is exported
against; older ones keep their previous patches where the new ones do not apply,
and this project's modules are raised to it.

At the end the packages that the series touches are compiled. --abort leaves everything
as it was.

With --continue and --abort, RELEASE is the one to which a rebase is under way.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			checkout, err := project.Find()
			if err != nil {
				return err
			}
			started := func() ([]string, error) { return rebase.Releases(checkout) }
			release, err := releaseOf("rebase", resume || abort, started, args, "v1.37.1")
			if err != nil {
				return err
			}
			if release == "" {
				return errors.New("name the release to rebase to; carry outdated lists the newest")
			}
			t := tree.Of(checkout, release)
			if noBuild {
				wanted.AtEnd = rebase.Nothing
			}
			return t.Locked(cmd.Context(), func() error {
				switch {
				case resume:
					return rebase.Continue(cmd.Context(), t, wanted)
				case abort:
					return rebase.Abort(cmd.Context(), t)
				}
				return rebase.Start(cmd.Context(), t, wanted)
			})
		},
	}
	cmd.Flags().BoolVar(&resume, "continue", false, "go on once the conflict is resolved, or what did not compile is fixed")
	cmd.Flags().BoolVar(&abort, "abort", false, "drop the rebase, and leave everything as it was")
	cmd.Flags().BoolVar(&noBuild, "no-build", false, "do not compile")
	cmd.Flags().StringVar(&wanted.UpstreamGit, "upstream-git", "", "a clone of upstream, to name its commits in a conflict")
	cmd.MarkFlagsMutuallyExclusive("continue", "abort")
	return cmd
}
