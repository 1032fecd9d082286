// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// checks are upstream's scripts for what an export adds: format, imports and vendor.
var checks = []string{
	"verify-boilerplate.sh", "verify-file-sizes.sh", "verify-gofmt.sh", "verify-import-aliases.sh", "verify-import-boss.sh", "verify-imports.sh",
	"verify-no-vendor-cycles.sh", "verify-pkg-names.sh", "verify-testing-import.sh", "verify-vendor-licenses.sh", "verify-vendor.sh",
}

// Verify type-checks an export, runs upstream's checks of what it adds and builds the commands
// that have hooks, and prints what it ran and what it did not. What fails in the checkout below an
// export in the same way is printed, and is not a failure. Nothing is downloaded: modules come from the
// module cache alone.
func Verify(ctx context.Context, t *tree.Tree, to string, out io.Writer) (err error) {
	dir, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	before, err := inspect(ctx, dir)
	if err != nil {
		return err
	}
	if before == nil {
		return fmt.Errorf("%s has nothing to verify", to)
	}
	steps := []step{types(t, before.Repo, before.onto, before.head)}
	command := func(name string, args ...string) {
		steps = append(steps, step{name, func(ctx context.Context, dir string) ([]string, error) {
			env, err := offline(ctx, t, dir)
			if err != nil {
				return nil, err
			}
			text, err := run(ctx, dir, env, args...)
			if err == nil || ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return append(strings.Split(strings.TrimSpace(string(text)), "\n"), err.Error()), nil
		}})
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "hack", "verify-*.sh"))
	if err != nil {
		return err
	}
	_, noTools := os.Stat(filepath.Join(dir, "hack", "tools"))
	var tools, others []string
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		name := filepath.Base(script)
		switch {
		case noTools != nil && bytes.Contains(text, []byte("hack/tools")):
			tools = append(tools, name)
		case slices.Contains(checks, name):
			command("hack/"+name, "bash", "hack/"+name)
		default:
			others = append(others, name)
		}
	}
	what := "WHAT=cmd/" + strings.Join(project.HookedCommands, " cmd/")
	command(`make "`+what+`"`, "make", what)
	fmt.Fprintf(out, "not run, since they need hack/tools, which upstream's module does not have: %s\n", strings.Join(tools, ", "))
	fmt.Fprintf(out, "not run, since they do not look at format, imports and vendor: %s\n", strings.Join(others, ", "))
	below := &below{Repo: before.Repo, commit: before.onto, checkout: before.checkout}
	defer func() { err = errors.Join(err, below.remove(ctx)) }()
	failed := 0
	for _, s := range steps {
		start := time.Now()
		wrong, known, err := below.judge(ctx, s)
		seconds := time.Since(start).Seconds()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			fmt.Fprintf(out, "%s: FAILED after %.0f s: %v\n", s.name, seconds, err)
		case len(wrong) > 0:
			failed++
			fmt.Fprintf(out, "%s: FAILED after %.0f s:\n%s\n", s.name, seconds, lastLines([]byte(strings.Join(wrong, "\n")), 20))
		case len(known) > 0:
			fmt.Fprintf(out, "%s: fails in the same way at %.12s, without the export; seen in %.0f s:\n%s\n", s.name, before.onto, seconds, lastLines([]byte(strings.Join(known, "\n")), 20))
		default:
			fmt.Fprintf(out, "%s: passed in %.0f s\n", s.name, seconds)
		}
	}
	if failed > 0 {
		return fmt.Errorf("verify of %s: %d of %d checks failed", to, failed, len(steps))
	}
	return nil
}

// offline is the environment of upstream's scripts, with modules from the module cache alone.
func offline(ctx context.Context, t *tree.Tree, dir string) ([]string, error) {
	env, err := environment(ctx, t, dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range slices.Clone(env) {
		if cache, ok := strings.CutPrefix(entry, "GOMODCACHE="); ok {
			// go has checked what is in the cache when it was filled. GOSUMDB=off would forbid
			// the toolchain, too.
			env = append(env, "GOPROXY=file://"+filepath.Join(cache, "cache", "download"), "GONOSUMDB=*")
		}
	}
	return env, nil
}

// step is one thing that is checked.
type step struct {
	name string
	// run returns what is wrong in a directory, a line each. An error means that it could not look.
	run func(ctx context.Context, dir string) ([]string, error)
}

// below is what an export in a repository stands on.
type below struct {
	git.Repo
	commit   string
	checkout bool
	// dir is a work tree of the commit, once one was needed.
	dir string
}

// judge runs a step in an export. Of what is wrong there, known is what is wrong in the checkout below
// it, too: a fork need not pass upstream's checks. Of a release everything must pass.
func (b *below) judge(ctx context.Context, s step) (wrong, known []string, err error) {
	found, err := s.run(ctx, b.Dir)
	if err != nil || len(found) == 0 || !b.checkout {
		return found, nil, err
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp(filepath.Dir(b.Dir), filepath.Base(b.Dir)+".below-"); err != nil {
			return nil, nil, err
		}
		if _, err := b.Run(ctx, "worktree", "add", "--quiet", "--detach", b.dir, b.commit); err != nil {
			return nil, nil, err
		}
	}
	there, err := s.run(ctx, b.dir)
	if err != nil {
		return nil, nil, err
	}
	same := map[string]int{}
	for _, line := range there {
		same[anywhere(line, b.dir)]++
	}
	for _, line := range found {
		if key := anywhere(line, b.Dir); same[key] > 0 {
			same[key]--
			known = append(known, line)
		} else {
			wrong = append(wrong, line)
		}
	}
	return wrong, known, nil
}

// remove removes the work tree.
func (b *below) remove(ctx context.Context) error {
	if b.dir == "" {
		return nil
	}
	err := os.RemoveAll(b.dir)
	_, pruned := b.Run(context.WithoutCancel(ctx), "worktree", "prune")
	return errors.Join(err, pruned)
}

var digits = regexp.MustCompile(`\d+`)

// anywhere is a line of a check's, without the directory that it looked at and without numbers: the
// export's own changes move positions, and some checks print the time.
func anywhere(line, dir string) string {
	return digits.ReplaceAllString(strings.ReplaceAll(line, dir+"/", ""), "")
}

// types type-checks what an export of a repository changes between two commits, and the commands that are
// made of it.
func types(t *tree.Tree, export git.Repo, onto, head string) step {
	return step{"types", func(ctx context.Context, dir string) ([]string, error) {
		if err := check.KnowsGo(t); err != nil {
			return nil, err
		}
		patterns, err := build.Touched(t)
		if err != nil {
			return nil, err
		}
		changed, err := touched(ctx, export, onto, head)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, changed...)
		for _, command := range project.HookedCommands {
			patterns = append(patterns, "./cmd/"+command+"/...")
		}
		found, err := check.Packages(ctx, check.Source{Dir: dir, Flags: append(slices.Clone(build.Flags), "-mod=vendor")}, patterns...)
		var lines []string
		for _, p := range found.Problems {
			lines = append(lines, strings.ReplaceAll(p.String(), dir+"/", ""))
		}
		return lines, err
	}}
}

// touched are the packages in which an export differs from what it stands on. Our own modules are
// not of the main one, and the script has made vendor.
func touched(ctx context.Context, export git.Repo, onto, head string) ([]string, error) {
	files, err := export.Run(ctx, "diff", "--name-only", "--no-renames", onto, head, "--", "*.go", ":(exclude)vendor", ":(exclude)staging")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for file := range strings.Lines(files) {
		dir := filepath.Dir(strings.TrimSpace(file))
		// A file that goes may have been the last of its package.
		if left, err := filepath.Glob(filepath.Join(export.Dir, dir, "*.go")); err != nil {
			return nil, err
		} else if len(left) > 0 {
			dirs = append(dirs, "./"+dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}
