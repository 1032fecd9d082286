/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package exporttree

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// checks are upstream's scripts for what an export adds: format, imports and vendor.
var checks = []string{
	"verify-boilerplate.sh", "verify-file-sizes.sh", "verify-gofmt.sh", "verify-import-aliases.sh", "verify-import-boss.sh", "verify-imports.sh",
	"verify-no-vendor-cycles.sh", "verify-pkg-names.sh", "verify-testing-import.sh", "verify-vendor-licenses.sh", "verify-vendor.sh",
}

// Verify type-checks an export, runs upstream's checks of what it adds and builds the commands
// that have hooks, and prints what it ran and what it did not. Nothing is downloaded: modules
// come from the module cache alone.
func Verify(ctx context.Context, t *tree.Tree, to string, out io.Writer) error {
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
	env, err := environment(ctx, t, dir)
	if err != nil {
		return err
	}
	for _, entry := range slices.Clone(env) {
		if cache, ok := strings.CutPrefix(entry, "GOMODCACHE="); ok {
			// go has checked what is in the cache when it was filled. GOSUMDB=off would forbid
			// the toolchain, too.
			env = append(env, "GOPROXY=file://"+filepath.Join(cache, "cache", "download"), "GONOSUMDB=*")
		}
	}
	steps := []step{{"types", func() error { return types(ctx, t, before) }}}
	command := func(name string, args ...string) {
		steps = append(steps, step{name, func() error {
			if text, err := run(ctx, dir, env, args...); err != nil {
				return fmt.Errorf("%w:\n%s", err, lastLines(text, 20))
			}
			return nil
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
	failed := 0
	for _, s := range steps {
		start := time.Now()
		err := s.run()
		switch seconds := time.Since(start).Seconds(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			fmt.Fprintf(out, "%s: FAILED after %.0f s: %v\n", s.name, seconds, err)
		default:
			fmt.Fprintf(out, "%s: passed in %.0f s\n", s.name, seconds)
		}
	}
	if failed > 0 {
		return fmt.Errorf("verify of %s: %d of %d checks failed", to, failed, len(steps))
	}
	return nil
}

// step is one thing that Verify does.
type step struct {
	name string
	run  func() error
}

// types type-checks what the series and the reverts touch, and the commands that are made of it.
func types(ctx context.Context, t *tree.Tree, e *earlier) error {
	if err := check.KnowsGo(t); err != nil {
		return err
	}
	patterns, err := build.Touched(t)
	if err != nil {
		return err
	}
	reverted, err := e.touched(ctx)
	if err != nil {
		return err
	}
	patterns = append(patterns, reverted...)
	for _, command := range project.HookedCommands {
		patterns = append(patterns, "./cmd/"+command+"/...")
	}
	_, problems, err := check.Packages(ctx, check.Source{Dir: e.Dir, Flags: append(slices.Clone(build.Flags), "-mod=vendor")}, patterns...)
	if err != nil || len(problems) == 0 {
		return err
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return fmt.Errorf("%d errors:\n%s", len(problems), strings.Join(lines, "\n"))
}

// touched are the packages in which an export differs from what it stands on. Our own modules are
// not of the main one, and the script has made vendor.
func (e *earlier) touched(ctx context.Context) ([]string, error) {
	files, err := e.Run(ctx, "diff", "--name-only", "--no-renames", e.onto, e.head, "--", "*.go", ":(exclude)vendor", ":(exclude)staging")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for file := range strings.Lines(files) {
		dir := filepath.Dir(strings.TrimSpace(file))
		// A file that goes may have been the last of its package.
		if left, err := filepath.Glob(filepath.Join(e.Dir, dir, "*.go")); err != nil {
			return nil, err
		} else if len(left) > 0 {
			dirs = append(dirs, "./"+dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}
