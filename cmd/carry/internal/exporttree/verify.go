package exporttree

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// checks are upstream's scripts that look at what an export adds, the quick ones first.
var checks = []string{
	"verify-boilerplate.sh", "verify-pkg-names.sh", "verify-file-sizes.sh", "verify-gofmt.sh", "verify-testing-import.sh",
	"verify-import-aliases.sh", "verify-imports.sh", "verify-import-boss.sh", "verify-no-vendor-cycles.sh", "verify-vendor.sh",
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
			// go has checked what is in the cache when it was filled.
			env = append(env, "GOPROXY=file://"+filepath.Join(cache, "cache", "download"), "GOSUMDB=off")
		}
	}
	failed := 0
	report := func(name string, run func() error) error {
		start := time.Now()
		err := run()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			fmt.Fprintf(out, "%s: FAILED after %.0f s: %v\n", name, time.Since(start).Seconds(), err)
			return nil
		}
		fmt.Fprintf(out, "%s: passed in %.0f s\n", name, time.Since(start).Seconds())
		return nil
	}
	if err := report("types", func() error { return types(ctx, t, dir) }); err != nil {
		return err
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "hack", "verify-*.sh"))
	if err != nil {
		return err
	}
	_, noTools := os.Stat(filepath.Join(dir, "hack", "tools"))
	var tools, others []string
	command := func(args ...string) func() error {
		return func() error {
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir, cmd.Env = dir, env
			if text, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w:\n%s", err, lastLines(text, 20))
			}
			return nil
		}
	}
	var runs []string
	for _, script := range scripts {
		name := filepath.Base(script)
		text, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		switch {
		case noTools != nil && (strings.Contains(string(text), "hack/tools") || strings.Contains(string(text), "hack_tools")):
			tools = append(tools, name)
		case slices.Contains(checks, name):
			runs = append(runs, name)
		default:
			others = append(others, name)
		}
	}
	slices.SortFunc(runs, func(a, b string) int { return slices.Index(checks, a) - slices.Index(checks, b) })
	for _, name := range runs {
		if err := report("hack/"+name, command("bash", "hack/"+name)); err != nil {
			return err
		}
	}
	what := "WHAT="
	for i, name := range project.HookedCommands {
		if i > 0 {
			what += " "
		}
		what += "cmd/" + name
	}
	if err := report(`make "`+what+`"`, command("make", what)); err != nil {
		return err
	}
	fmt.Fprintf(out, "not run, since they need hack/tools, which upstream's module does not have: %s\n", strings.Join(tools, ", "))
	fmt.Fprintf(out, "not run, since they look at what an export leaves alone: %s\n", strings.Join(others, ", "))
	if failed > 0 {
		return fmt.Errorf("verify of %s: %d checks failed", to, failed)
	}
	return nil
}

// types type-checks what the series touches, and the commands that are made of it.
func types(ctx context.Context, t *tree.Tree, dir string) error {
	patterns, err := build.Touched(t)
	if err != nil {
		return err
	}
	for _, command := range project.HookedCommands {
		patterns = append(patterns, "./cmd/"+command+"/...")
	}
	_, problems, err := check.Packages(ctx, check.Source{Dir: dir, Flags: append(slices.Clone(build.Flags), "-mod=vendor")}, patterns...)
	if err != nil || len(problems) == 0 {
		return err
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return fmt.Errorf("%d errors:\n%s", len(problems), strings.Join(lines, "\n"))
}
