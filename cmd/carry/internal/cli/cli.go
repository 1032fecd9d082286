// SPDX-License-Identifier: Apache-2.0

// Package cli has the commands of carry: their flags, help and output. It must not know how
// any of them does its work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Explain adds what to do to errors whose text alone does not say it.
func Explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w; a tree needs about 1 GiB, and a build some more in GOCACHE and TMPDIR: make room, and run the command again", err)
	}
	return err
}

// ExitError is an error whose exit code says more than that it is one.
type ExitError struct {
	Code int
	error
}

func (e ExitError) Unwrap() error { return e.error }

// Command is carry with all of its commands.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "carry",
		Short: "Carry a patch series on upstream Kubernetes releases",
		Long: `Carry keeps a series of small patches on upstream Kubernetes.

A release is known by a directory build/releases/RELEASE, whose go.mod and go.sum pin
the module k8s.io/kubernetes and its staging modules. carry turns it into a git
repository, _output/RELEASE/kubernetes, which holds

  1. a commit with upstream's files,
  2. a commit that adds this project's modules to go.work, and
  3. one commit for each patch that patches/series lists.

To change the series, change the tree: edit, commit (or amend, or rebase with git),
and export.

  carry tree                     materialise the newest release
  cd _output/RELEASE/kubernetes  edit, git commit
  carry export                   write the commits back to patches/
  carry lint                     see whether the patches keep to the rules
  carry check                    check in seconds whether they still fit all releases
  carry build                    build the binaries
  carry outdated                 see which releases are not the newest
  carry rebase NEWER             bring the series to another release
  carry verify                   check the series against all releases
  carry preview                  see what breaks in the next release
  carry export-tree --to DIR     make a repository to push as a fork

RELEASE defaults to the newest known release.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(treeCommand(), exportCommand(), lintCommand(), checkCommand(), buildCommand(), verifyCommand(), outdatedCommand(), rebaseCommand(), previewCommand(), statsCommand(), exportTreeCommand(), pluginCommand())
	return root
}

// releaseOf returns the release of a command: one of those of which something is under way if it goes on with that, or else
// the argument. It is empty if there is none.
func releaseOf(what string, goesOn bool, started func() ([]string, error), args []string, example string) (string, error) {
	switch {
	case goesOn:
		releases, err := started()
		if err != nil {
			return "", err
		}
		return underWay(what, releases, args)
	case len(args) == 0:
		return "", nil
	case !project.ReleaseForm.MatchString(args[0]):
		return "", fmt.Errorf("%q is not a release of Kubernetes, such as %s", args[0], example)
	}
	return args[0], nil
}

// underWay returns that release, of those of which something is under way, which the user
// names or need not name.
func underWay(what string, releases, args []string) (string, error) {
	are := "under way are " + strings.Join(releases, ", ")
	switch {
	case len(releases) == 0:
		return "", fmt.Errorf("no %s is under way; start one with: carry %[1]s RELEASE", what)
	case len(args) > 0 && !slices.Contains(releases, args[0]):
		return "", fmt.Errorf("no %s of %q is under way; %s", what, args[0], are)
	case len(args) > 0:
		return args[0], nil
	case len(releases) > 1:
		return "", fmt.Errorf("more than one %s is under way; name the release; %s", what, are)
	}
	return releases[0], nil
}

// projectAndReleases takes releases from the arguments, all known ones by default, the
// oldest first.
func projectAndReleases(args []string) (project.Checkout, []string, error) {
	p, err := project.Find()
	if err != nil {
		return p, nil, err
	}
	known, err := p.Releases()
	if err != nil {
		return p, nil, err
	}
	for _, arg := range args {
		if err := p.Knows(arg); err != nil {
			return p, nil, err
		}
	}
	if len(args) > 0 {
		return p, args, nil
	}
	slices.Reverse(known)
	return p, known, nil
}

// withTree runs a command on the tree of the release that its argument names, whose lock
// it holds for that time.
func withTree(run func(context.Context, *tree.Tree) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, rest, err := treeAndRest(args)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return t.Project.Knows(rest[0])
		}
		return t.Locked(cmd.Context(), func() error { return run(cmd.Context(), t) })
	}
}

// treeAndRest takes a leading release from the arguments, and returns its tree and the others.
func treeAndRest(args []string) (*tree.Tree, []string, error) {
	checkout, err := project.Find()
	if err != nil {
		return nil, nil, err
	}
	release, rest, err := checkout.Release(args)
	if err != nil {
		return nil, nil, err
	}
	return tree.Of(checkout, release), rest, nil
}
