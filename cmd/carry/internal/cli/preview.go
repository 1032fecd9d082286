// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/preview"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/verify"
)

func previewCommand() *cobra.Command {
	var resume, abort, keep, noBuild bool
	var upstreamGit string
	cmd := &cobra.Command{
		Use:   "preview [RELEASE]",
		Short: "See what breaks in a release that is not supported yet",
		Long: `Try the series on a pre-release, by default the newest that can be downloaded: pin it, apply
the patches as carry rebase does, lint, type-check, compile the packages that the series
touches, and run their upstream tests and ours. Called again, it continues where it stopped.

The release does not become a known one: its pins are in _output/RELEASE/pins, the overrides
that it needs in _output/RELEASE/patches, and nothing that can be committed changes. Other
commands accept it by name: carry tree, export, check, build, verify. A module that cannot be
downloaded is replaced by its newest earlier version that can, and named. If there is none, the
patches are applied and linted, and all files that do not import the module are type-checked.
The release cannot be compiled then, so the command fails without --no-build.

A conflict is left in the tree, and shown: resolve it, git add, --continue. If something
does not compile, fix it in the tree, in the commit of its patch, --continue. With --keep the overrides go to
patches/MINOR, where further previews and carry rebase find them. --abort removes the preview.

With --continue, --abort and --keep, RELEASE is the one that is previewed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			checkout, err := project.Find()
			if err != nil {
				return err
			}
			release, err := releaseOf("preview", resume || abort || keep, checkout.Previews, args, "v1.38.0-alpha.1")
			if err != nil {
				return err
			}
			if release == "" {
				if release, err = preview.Newest(cmd.Context(), checkout); err != nil {
					return err
				}
				if release == "" {
					fmt.Println("no pre-release newer than the known releases can be downloaded: there is nothing to preview")
					return nil
				}
			}
			t := tree.Of(checkout, release)
			return t.Locked(cmd.Context(), func() error {
				switch {
				case abort:
					return preview.Abort(t)
				case keep:
					return preview.Keep(cmd.Context(), t)
				case resume:
					err = preview.Continue(cmd.Context(), t, upstreamGit)
				default:
					err = preview.Start(cmd.Context(), t, upstreamGit)
				}
				if err != nil {
					return err
				}
				if err := withItsGo(cmd.Context(), t, noBuild); err != nil {
					return err
				}
				return tryPreview(cmd.Context(), t, noBuild)
			})
		},
	}
	cmd.Flags().BoolVar(&resume, "continue", false, "go on once the conflict is resolved, or what did not compile is fixed")
	cmd.Flags().BoolVar(&abort, "abort", false, "remove the preview, and work in its tree")
	cmd.Flags().BoolVar(&keep, "keep", false, "move the preview's overrides to those of its minor version")
	cmd.Flags().BoolVar(&noBuild, "no-build", false, "stop after the type check, which takes seconds")
	cmd.Flags().StringVar(&upstreamGit, "upstream-git", "", "a clone of upstream, to name its commits in a conflict")
	cmd.MarkFlagsMutuallyExclusive("continue", "abort", "keep")
	return cmd
}

// withItsGo compiles carry with the Go of a release that this carry is too old for, to check its types, and replaces this
// process by that. It returns where it need not, or where that Go cannot be downloaded.
func withItsGo(ctx context.Context, t *tree.Tree, noBuild bool) error {
	if err := check.KnowsGo(t); !errors.Is(err, check.ErrOlderGo) {
		return err
	}
	env, err := build.Env(ctx, t)
	if err != nil || slices.Contains(env, "GOTOOLCHAIN=local") {
		return err
	}
	t.Say("compiling carry with the release's Go")
	program := preview.Program(t)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	cmd.Dir, cmd.Env = t.Project.Path("cmd", "carry"), append(env, "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	args := []string{"carry", "preview", t.Release}
	if noBuild {
		args = append(args, "--no-build")
	}
	return syscall.Exec(program, args, os.Environ())
}

// tryPreview says what of the series, which is applied, is not right for the release.
func tryPreview(ctx context.Context, t *tree.Tree, noBuild bool) error {
	differences, err := preview.Differences(t)
	if err != nil {
		return err
	}
	for _, line := range differences {
		fmt.Println(line)
	}
	t.Say("linting and type-checking")
	fit, err := preview.Fits(ctx, t)
	if err != nil {
		return err
	}
	for _, module := range fit.Missing {
		fmt.Println(module)
	}
	for _, line := range fit.Problems {
		fmt.Println(line)
	}
	if len(fit.Problems) > 0 {
		return fmt.Errorf("preview: the series does not fit %s: %d problems; fix them in %s, in the commits of their patches (git commit --fixup, git rebase --autosquash), and go on with: carry preview --continue", t.Release, len(fit.Problems), t.Shown())
	}
	if noBuild {
		types, rest := "has no type error", "the rest is left to: carry preview "+t.Release
		if !fit.Checked {
			types = "was not type-checked"
		}
		if len(fit.Missing) > 0 {
			types, rest = "has no type error in the other files", "it cannot be compiled without these modules"
		}
		fmt.Printf("%s: the series applies, and %s; %s\n", t.Release, types, rest)
		return nil
	}
	if len(fit.Missing) > 0 {
		return fmt.Errorf("preview: %s was not compiled, since modules are missing; the series applies, and has no type error in the other files", t.Release)
	}
	names, err := series.Order(t.Project)
	if err != nil {
		return err
	}
	v, err := verify.Release(ctx, t, verify.Trusted)
	if err != nil {
		return err
	}
	printResults(names, []verify.Result{v})
	if v.Failed != "" {
		return fmt.Errorf("preview: the series is not right for %s", t.Release)
	}
	return nil
}
