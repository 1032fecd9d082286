// SPDX-License-Identifier: Apache-2.0

// Package cli has the commands of carry: their flags, help and output. It must not know how
// any of them does its work.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/exporttree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/outdated"
	"workload.openshift.io/kubernetes/cmd/carry/internal/preview"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/rebase"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/verify"
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

func pluginCommand() *cobra.Command {
	var export bool
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Materialise the scheduler's plugin with its own series",
		Long: `Materialise what this project uses of the module ` + project.PluginModule + ` in ` + project.PluginDir + `, a git
repository, and apply the patches of ` + project.PluginPatches + ` to it, after checking them: messages as for other
patches, Go source that is neither a test nor generated, and their own budget.
` + project.PluginPins + ` pins the module.

To change the series, edit there, commit, and run carry plugin --export.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checkout, err := project.Find()
			if err != nil {
				return err
			}
			plugin := tree.Plugin{Project: checkout}
			if export {
				if err := plugin.Export(cmd.Context()); err != nil {
					return err
				}
			}
			findings, err := lint.PluginFindings(checkout)
			if err != nil {
				return err
			}
			if len(findings) > 0 {
				for _, finding := range findings {
					fmt.Println(finding)
				}
				return fmt.Errorf("%d findings", len(findings))
			}
			return plugin.Update(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&export, "export", false, "write the commits there to the series first")
	return cmd
}

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
				var checked int
				var problems []check.Problem
				if err := t.Locked(cmd.Context(), func() (err error) {
					if err := t.Update(cmd.Context()); err != nil {
						return err
					}
					checked, problems, err = check.Release(cmd.Context(), t)
					return err
				}); err != nil {
					return err
				}
				for _, p := range problems {
					fmt.Println(p)
				}
				if len(problems) > 0 {
					failed++
					t.Say("FAILED: %d errors in %d packages", len(problems), checked)
					continue
				}
				fmt.Printf("%s: %d packages have no type error, in %.0f s\n", release, checked, time.Since(start).Seconds())
			}
			if failed > 0 {
				return fmt.Errorf("check: %d of %d releases failed", failed, len(releases))
			}
			return nil
		},
	}
}

func buildCommand() *cobra.Command {
	var unpatched, races, exactGo bool
	var platform string
	cmd := &cobra.Command{
		Use:   "build [RELEASE] [BINARY...]",
		Short: "Build the release's binaries with the series",
		Long: `Build binaries with upstream's own make rules, flags, tags and Go version into
_output/RELEASE/bin, kubelet linked statically. The version is
RELEASE` + project.VersionSuffix + `COMMIT, where COMMIT is the tree's. SHA256SUMS in the same directory
names their checksums and the toolchain. The same commit gives the same bytes in any directory.

Binaries, all by default: ` + build.BinaryList() + `.
Others are built only by name: ` + build.OtherBinaryList() + `.

The Go version is the one that upstream released with. If it cannot be downloaded, or
with FORCE_HOST_GO=y, the installed one is used. With --exact-go the build fails
instead, as the build of a release must.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, wanted, err := treeAndRest(args)
			if err != nil {
				return err
			}
			source := build.Patched
			switch {
			case unpatched:
				source = build.Upstream
			case races:
				source = build.RaceDetecting
			}
			return t.Locked(cmd.Context(), func() error {
				if err := t.Update(cmd.Context()); err != nil {
					return err
				}
				return build.Binaries(cmd.Context(), t, source, platform, exactGo, wanted)
			})
		},
	}
	cmd.Flags().StringVar(&platform, "platform", build.HostPlatform, "build for another platform, such as linux/arm64, into a directory such as _output/RELEASE/bin-linux-arm64")
	cmd.Flags().BoolVar(&exactGo, "exact-go", false, "fail if the Go version that upstream released with cannot be downloaded")
	cmd.Flags().BoolVar(&unpatched, "upstream", false, "build upstream's own source, without the series, into _output/RELEASE/upstream-bin")
	cmd.Flags().BoolVar(&races, "race", false, "build programs that report data races, into _output/RELEASE/race-bin")
	cmd.MarkFlagsMutuallyExclusive("upstream", "race")
	return cmd
}

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

func outdatedCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "outdated",
		Short: "See which known releases are not upstream's newest",
		Long: `Compare the known releases with what the go command lists and can fetch. The table
has a line for each known release, after those of newer minor versions:

  RELEASE  the known release, or - for a newer minor version
  NEWEST   the newest release of its minor version that can be downloaded: upstream's module and
           all staging modules that a binary needs, each with a checksum. Of a newer minor
           version without a release it is the newest pre-release.
  SUPPORT  until and the last month of upstream's support, or ended and that month:
           ` + fmt.Sprint(project.SupportMonths) + ` months after the first release of the minor version (KEP-1498)
  NEXT     the command that takes the newest, or -

The table is followed by a line for each newer release that is listed but cannot be
downloaded, with the modules at fault. What was downloaded stays in go's module cache.

The exit code is 0 if nothing newer can be downloaded, 1 if something can, and 2 for any
other error, such as a network failure. Pre-releases do not count.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return ExitError{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return ExitError{2, fmt.Errorf("--output %q is neither table nor json", output)}
			}
			checkout, err := project.Find()
			if err != nil {
				return ExitError{2, err}
			}
			rows, err := outdated.Ask(cmd.Context(), checkout, time.Now())
			if err != nil {
				return ExitError{2, err}
			}
			if output == "json" {
				data, err := json.MarshalIndent(rows, "", "  ")
				if err != nil {
					return ExitError{2, err}
				}
				fmt.Println(string(data))
			} else {
				fmt.Print(outdated.Table(rows))
			}
			newer := 0
			for _, row := range rows {
				if row.Outdated() {
					newer++
				}
			}
			if newer > 0 {
				return ExitError{1, fmt.Errorf("outdated: %d newer releases can be downloaded", newer)}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ExitError{2, err} })
	cmd.Flags().StringVarP(&output, "output", "o", "table", "the form: table or json")
	return cmd
}

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
downloaded is replaced by its newest earlier version that can, and named.

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
			var release string
			switch {
			case resume || abort || keep:
				previews, err := checkout.Previews()
				if err != nil {
					return err
				}
				if release, err = underWay("preview", previews, args); err != nil {
					return err
				}
			case len(args) == 1:
				if release = args[0]; !project.ReleaseForm.MatchString(release) {
					return fmt.Errorf("%q is not a release of Kubernetes, such as v1.38.0-alpha.1", release)
				}
			default:
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
	problems, checked, err := preview.Fits(ctx, t)
	if err != nil {
		return err
	}
	for _, line := range problems {
		fmt.Println(line)
	}
	if len(problems) > 0 {
		return fmt.Errorf("preview: the series does not fit %s: %d problems; fix them in %s, in the commits of their patches (git commit --fixup, git rebase --autosquash), and go on with: carry preview --continue", t.Release, len(problems), t.Shown())
	}
	if noBuild {
		types := "has no type error"
		if !checked {
			types = "was not type-checked"
		}
		fmt.Printf("%s: the series applies, and %s; the rest is left to: carry preview %[1]s\n", t.Release, types)
		return nil
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
			var release string
			switch {
			case resume || abort:
				releases, err := rebase.Releases(checkout)
				if err != nil {
					return err
				}
				if release, err = underWay("rebase", releases, args); err != nil {
					return err
				}
			case len(args) == 1:
				if release = args[0]; !project.ReleaseForm.MatchString(release) {
					return fmt.Errorf("%q is not a release of Kubernetes, such as v1.37.1", release)
				}
			default:
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
