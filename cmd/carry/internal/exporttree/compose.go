// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/process"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// origin is what an export stands on.
type origin struct {
	// repo has the commit. It is the release's tree, unless there is a checkout.
	repo, commit string
	// named is the commit that the messages name: that of the first export, whatever
	// upstream has released since.
	named string
	// committed dates all commits, so that two exports are the same.
	committed time.Time
	// checkout is set for a repository that others made, which may carry its own changes.
	checkout bool
}

// start says what to stand on.
func start(ctx context.Context, t *tree.Tree, o Options, before *earlier) (origin, error) {
	s, err := t.Load()
	if err != nil {
		return origin{}, err
	}
	from := origin{repo: t.Dir, commit: s.Upstream, named: s.Upstream, committed: s.Released}
	switch {
	case before != nil && before.checkout:
		from = origin{repo: before.Dir, commit: before.onto, checkout: true}
	case o.Onto != "":
		from = origin{repo: o.Onto, checkout: true}
		if from.commit, err = (git.Repo{Dir: o.Onto}).Run(ctx, "rev-parse", "HEAD"); err != nil {
			return from, err
		}
	case before != nil:
		from.named = before.onto
	}
	if !from.checkout {
		return from, nil
	}
	from.named = from.commit
	date, err := (git.Repo{Dir: from.repo}).Run(ctx, "log", "-1", "--format=%cI", from.commit)
	if err != nil {
		return from, err
	}
	from.committed, err = time.Parse(time.RFC3339, date)
	return from, err
}

// composed is an export that was made from the start.
type composed struct {
	git.Repo
	origin
	// release is that of the series, and head the last of the commits.
	release, head string
	commits       []string
	// patches are the commits of the series, by their patches' names.
	patches map[string]carried
}

// carried is a patch as an export has it.
type carried struct {
	patch.Patch
	digest, commit string
}

// compose makes an export in an empty directory.
func compose(ctx context.Context, t *tree.Tree, dir string, from origin) (*composed, error) {
	c := &composed{Repo: git.Repo{Dir: dir}, origin: from, release: t.Release, patches: map[string]carried{}}
	s, err := t.Load()
	if err != nil {
		return nil, err
	}
	t.Say("exporting on %.12s", from.commit)
	if err := c.prepare(ctx, t); err != nil {
		return nil, err
	}
	if from.checkout {
		if err := c.revert(ctx, t, s.Base); err != nil {
			return nil, err
		}
	} else if s.Base != s.Upstream {
		message, err := t.Git().Run(ctx, "log", "-1", "--format=%B", s.Base)
		if err != nil {
			return nil, err
		}
		if _, err := c.Run(ctx, "read-tree", "-u", "--reset", s.Base); err != nil {
			return nil, err
		}
		if err := c.dropRestrictions(); err != nil {
			return nil, err
		}
		if err := c.add(ctx, project.DropPrefix+strings.ToLower(message[:1])+message[1:]); err != nil {
			return nil, err
		}
	}
	if err := c.addModules(ctx, t); err != nil {
		return nil, err
	}
	if err := c.applySeries(ctx, t, s); err != nil {
		return nil, err
	}
	if err := c.generate(ctx, t); err != nil {
		return nil, err
	}
	return c, c.compiles(ctx, t)
}

// compiles returns an error for what an export onto a checkout breaks of it. No one has compiled the two
// together before; a release was checked when its patches were.
func (c *composed) compiles(ctx context.Context, t *tree.Tree) (err error) {
	if !c.checkout {
		return nil
	}
	t.Say("type-checking what differs from %.12s", c.commit)
	below := &below{Repo: c.Repo, commit: c.commit, checkout: true}
	defer func() { err = errors.Join(err, below.remove(ctx)) }()
	wrong, known, err := below.judge(ctx, types(t, c.Repo, c.commit, c.head))
	if errors.Is(err, check.ErrOlderGo) {
		t.Say("%v; compiling finds what that would", err)
		return nil
	}
	if err != nil {
		return err
	}
	if len(known) > 0 {
		t.Say("what does not compile at %.12s either:\n%s", c.commit, strings.Join(known, "\n"))
	}
	if len(wrong) > 0 {
		return untouched("the export does not compile where %s, or a patch, leaves half of something:\n%s\n", project.RevertsFile, strings.Join(wrong, "\n"))
	}
	return nil
}

// prepare checks out what the export stands on. The objects of the tree come along: git
// needs the files that patches were made from to merge. A checkout that borrows objects of another repository, by git clone
// --shared or --reference, gives them to the export.
func (c *composed) prepare(ctx context.Context, t *tree.Tree) error {
	steps := [][]string{
		{"init", "-q", "-b", branch, "."},
		{"fetch", "-q", "--no-tags", t.Dir, "HEAD", "+refs/tags/" + t.Release + ":refs/tags/" + t.Release},
	}
	if c.checkout {
		steps = [][]string{
			{"clone", "-q", "--no-checkout", "--no-hardlinks", "--dissociate", c.repo, "."},
			{"remote", "remove", "origin"},
			{"fetch", "-q", "--no-tags", t.Dir, "HEAD"},
		}
	}
	for _, args := range append(steps, []string{"checkout", "-q", "-B", branch, c.commit}) {
		if _, err := c.Run(ctx, args...); err != nil {
			return err
		}
	}
	c.head = c.commit
	return nil
}

// add commits the work tree, if it differs from the last commit. What upstream ignores is
// added, too: its vendor directory has such files.
func (c *composed) add(ctx context.Context, message string) error {
	if _, err := c.Run(ctx, "add", "--all", "--force", "--", ".", ":(exclude,top)"+project.OutputDir); err != nil {
		return err
	}
	return c.commitIndex(ctx, message)
}

func (c *composed) commitIndex(ctx context.Context, message string) error {
	id, err := c.Run(ctx, "write-tree")
	if err != nil {
		return err
	}
	if now, err := c.Run(ctx, "rev-parse", c.head+"^{tree}"); err != nil || now == id {
		return err
	}
	c.head, err = c.CommitTree(ctx, git.Commit{Tree: id, Parent: c.head, Message: c.signed(message), By: project.Identity, Authored: project.PatchDate, Committed: c.committed})
	if err != nil {
		return err
	}
	c.commits = append(c.commits, c.head)
	_, err = c.Run(ctx, "update-ref", "HEAD", c.head)
	return err
}

// The trailers by which a later export knows the commits of this one.
const (
	releaseTrailer = "Carry-Release"
	ontoTrailer    = "Carry-Onto"
	patchTrailer   = "Patch-File"
	digestTrailer  = "Patch-Digest"
)

// signed is a message with the trailers that all commits have.
func (c *composed) signed(message string) string {
	message = strings.TrimSpace(message)
	separator := "\n\n"
	if last := message[strings.LastIndex(message, "\n")+1:]; strings.HasPrefix(last, digestTrailer+": ") {
		separator = "\n"
	}
	return fmt.Sprintf("%s%s%s: %s\n%s: %s\n", message, separator, releaseTrailer, c.release, ontoTrailer, c.named)
}

// restrictions is upstream's list of what staging modules may import. hack/verify-imports.sh demands
// that each of them is there.
const restrictions = "staging/publishing/import-restrictions.yaml"

// ofModule matches the entry of a module in restrictions.
var ofModule = regexp.MustCompile(`(?m)^- baseImportPath: "(\./staging/src/[^"]+)"\n(?:(?: .*)?\n)*`)

// dropRestrictions takes modules that are not there out of restrictions.
func (c *composed) dropRestrictions() error {
	return c.rewrite(restrictions, func(list []byte) []byte {
		return ofModule.ReplaceAllFunc(list, func(entry []byte) []byte {
			if _, err := os.Stat(filepath.Join(c.Dir, string(ofModule.FindSubmatch(entry)[1]))); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return entry
		})
	})
}

// vendorCycles is upstream's check that nothing in vendor imports what it is vendored into. This
// project's modules do: they are in vendor, since updateVendor knows no other place for them, and
// are of this very repository.
const vendorCycles = "hack/verify-no-vendor-cycles.sh"

// excuseModules has vendorCycles exclude this project's modules, and the packages of
// k8s.io/kubernetes, which it sees only because these import them.
func (c *composed) excuseModules() error {
	const excludes = `-exclude "`
	return c.rewrite(vendorCycles, func(script []byte) []byte {
		return bytes.ReplaceAll(script, []byte(excludes), []byte(excludes+`^(workload\.openshift\.io|k8s\.io/kubernetes)/|`))
	})
}

// rewrite changes a file of upstream's, which a release need not have, and leaves its mode.
func (c *composed) rewrite(path string, change func([]byte) []byte) error {
	name := filepath.Join(c.Dir, path)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.WriteFile(name, change(data), 0o644)
}

// staged is the directory of one of this project's modules in an export.
func staged(module string) string { return filepath.Join(project.StagingDir, module) }

// addModules copies what a shipped binary needs of this project's modules: not their tests.
// Their go.mod files require nothing, as in a tree: the release decides on all versions.
func (c *composed) addModules(ctx context.Context, t *tree.Tree) error {
	upstream, err := c.goMod()
	if err != nil {
		return err
	}
	license, err := os.ReadFile(t.Project.Path("LICENSE"))
	if err != nil {
		return err
	}
	for module, from := range project.ModuleDirs {
		dirs := []string{"."}
		if module == project.RootModule {
			dirs = project.LinkedDirs
		}
		to := filepath.Join(c.Dir, staged(module))
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := copySources(t.Project.Path(from), dir, to); err != nil {
				return err
			}
		}
		mod := fmt.Appendf(nil, "module %s\n\ngo %s\n", module, upstream.Go.Version)
		if err := errors.Join(disk.Write(filepath.Join(to, "go.mod"), mod), disk.Write(filepath.Join(to, "LICENSE"), license)); err != nil {
			return err
		}
	}
	if err := c.excuseModules(); err != nil {
		return err
	}
	return c.add(ctx, project.CarryPrefix+"add "+project.RootModule+" and "+project.CoreModule+`

These packages are what the hooks of the following commits call. They come from the
project that keeps the series, which has their tests. `+vendorCycles+`
lets them import k8s.io/kubernetes.`)
}

// copySources copies the Go files below a directory that may be absent, relative to from.
func copySources(from, dir, to string) error {
	return filepath.WalkDir(filepath.Join(from, dir), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir():
			if slices.Contains(project.TestDirs, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.Write(filepath.Join(to, relative), data)
	})
}

func (c *composed) goMod() (*modfile.File, error) {
	path := filepath.Join(c.Dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(path, data, nil)
	if err == nil && file.Go == nil {
		err = fmt.Errorf("%s has no go line", path)
	}
	return file, err
}

// applySeries applies the series as git am does, three-way where a patch does not apply.
func (c *composed) applySeries(ctx context.Context, t *tree.Tree, s tree.State) error {
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	am := c.With("GIT_COMMITTER_NAME="+project.Identity.Name, "GIT_COMMITTER_EMAIL="+project.Identity.Email, "GIT_COMMITTER_DATE="+c.committed.Format(time.RFC3339),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=merge.conflictStyle", "GIT_CONFIG_VALUE_0=diff3") // addBoth reads that.
	for i, p := range patches {
		// The tree's commit has all context and the names of the files that it is made from,
		// which a patch file may not.
		diff, err := t.Git().Run(ctx, "diff-tree", "-p", "--no-commit-id", "--full-index", "--no-renames", "--diff-algorithm=histogram", s.Applied[i].Commit)
		if err != nil {
			return err
		}
		digest := disk.Digest(p.Data)
		message := c.signed(fmt.Sprintf("%s%s\n%s: %s\n%s: %s", project.CarryPrefix, strings.TrimSpace(p.Message), patchTrailer, p.Name, digestTrailer, digest))
		subject, body, _ := strings.Cut(message, "\n")
		mail := fmt.Sprintf("From %s Mon Sep 17 00:00:00 2001\nFrom: %s\nDate: %s\nSubject: %s\n\n%s\n---\n%s\n",
			s.Applied[i].Commit, project.Identity, project.PatchDate.Format("Mon, 2 Jan 2006 15:04:05 -0700"), subject, strings.TrimSpace(body), diff)
		if _, err := am.Input(ctx, mail, "am", "-q", "--3way", "--keep-cr", "--whitespace=nowarn"); err != nil {
			var failed *git.Error
			if !errors.As(err, &failed) {
				return err
			}
			if err := c.addBoth(ctx, t, p, failed); err != nil {
				return err
			}
			if _, err := am.Run(ctx, "am", "--continue"); err != nil {
				return err
			}
		}
		before := c.head
		if c.head, err = c.Run(ctx, "rev-parse", "HEAD"); err != nil {
			return err
		}
		if c.head == before {
			return untouched("%s changes nothing on %.12s, which has it already", p.Path, c.commit)
		}
		c.commits = append(c.commits, c.head)
		c.patches[p.Name] = carried{p, digest, c.head}
	}
	return nil
}

// addBoth resolves a patch's conflicts in which both sides only add lines in the same place,
// such as a fork's hook next to one of the series: both stay, the fork's first. Any other
// conflict is an error.
func (c *composed) addBoth(ctx context.Context, t *tree.Tree, p patch.Patch, cause error) error {
	unmerged, err := c.Run(ctx, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return err
	}
	if unmerged == "" {
		return untouched("%s does not apply to %.12s: %w", p.Path, c.commit, cause)
	}
	for file := range strings.Lines(unmerged) {
		file = strings.TrimSpace(file)
		name := filepath.Join(c.Dir, file)
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bothAdd.Match(data) {
			t.Say("%s: %s has lines of both sides in one place now", p.Path, file)
		}
		data = bothAdd.ReplaceAll(data, []byte("$1$2"))
		if conflict.Match(data) {
			return untouched("%s does not merge with %.12s in %s", p.Path, c.commit, file)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
		if _, err := c.Run(ctx, "add", "--", file); err != nil {
			return err
		}
	}
	return nil
}

// conflict matches where git marks one, and bothAdd one of which the common ancestor has
// nothing.
var (
	conflict = regexp.MustCompile(`(?m)^<{7} `)
	bothAdd  = regexp.MustCompile(`(?m)^<{7} .*\n((?:.*\n)*?)\|{7} .*\n={7}\n((?:.*\n)*?)>{7} .*\n`)
)

// unversioned is the version that go itself gives a module which a directory replaces.
// Upstream's own v0.0.0 would not do: hack/update-vendor.sh drops what has that and is
// not in staging/src/k8s.io.
const unversioned = "v0.0.0-00010101000000-000000000000"

// updateVendor is upstream's script that writes go.mod, go.sum, go.work and vendor.
const updateVendor = "hack/update-vendor.sh"

// generate requires this project's modules in go.mod, and lets upstream's own script make of
// that what its checks expect. It comes last: the script drops what no hook imports. It lists
// the modules of staging/src/k8s.io in go.work, and no others; so ours are vendored like any
// dependency, from the directories that replace them. What it downloads is then in the module
// cache for the checks.
func (c *composed) generate(ctx context.Context, t *tree.Tree) error {
	mod, err := c.goMod()
	if err != nil {
		return err
	}
	for _, module := range []string{project.RootModule, project.CoreModule} {
		if err := errors.Join(mod.AddRequire(module, unversioned), mod.AddReplace(module, "", "./"+filepath.ToSlash(staged(module)), "")); err != nil {
			return err
		}
	}
	mod.SortBlocks()
	mod.Cleanup()
	data, err := mod.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "go.mod"), data, 0o644); err != nil {
		return err
	}
	t.Say("running %s", updateVendor)
	scratch, err := os.MkdirTemp("", "carry-vendor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	env, err := environment(ctx, t, c.Dir)
	if err != nil {
		return err
	}
	if out, err := run(ctx, c.Dir, append(env, "TMP_DIR="+scratch), "bash", updateVendor); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// It writes what it does to a log, and only how far it is to its output.
		if log, err := os.ReadFile(filepath.Join(scratch, "update-vendor.log")); err == nil {
			out = append(out, log...)
		}
		t.Say("the last lines of %s:\n%s", updateVendor, lastLines(out, 10))
		return untouched("%s: %w: %s", updateVendor, err, lastLines(out, 1))
	}
	return c.add(ctx, project.DropPrefix+updateVendor+`

This is what the script makes of the two modules in go.mod. Run it again after a rebase.`)
}

// environment is that of upstream's scripts in a directory: its Go, and the user's caches,
// of which the scripts would have their own otherwise.
func environment(ctx context.Context, t *tree.Tree, dir string) ([]string, error) {
	there := *t
	there.Dir = dir
	env, err := build.Env(ctx, &there)
	if err != nil {
		return nil, err
	}
	caches, err := build.Caches(ctx)
	return append(env, caches...), err
}

// run returns all that a command of upstream's prints.
func run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	process.Group(cmd)
	return cmd.CombinedOutput()
}

func lastLines(text []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
