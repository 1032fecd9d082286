// SPDX-License-Identifier: Apache-2.0

// Package verify says whether the series is right for a release: it brings together lint,
// compiling, upstream's tests and this project's, and remembers what has passed. It must
// not know how any of them does its work.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Result is what came out for a release.
type Result struct {
	Release string
	// When it was, and how long it took.
	When    time.Time
	Seconds int
	// Patches says what each patch of the series is for the release.
	Patches                  map[string]series.Kind
	Compiled, Upstream, Ours int
	NotCounted, Flaked       []string
	// Failed is what went wrong; such a result is never kept.
	Failed string `json:",omitempty"`
	kept   bool
}

// Earlier says what a result that was kept is worth.
type Earlier int

const (
	// Trusted: a release for which nothing has changed since it passed is skipped.
	Trusted Earlier = iota
	// Ignored: every release is verified.
	Ignored
)

// flags are those of go test, which keeps its own results.
func (e Earlier) flags() []string {
	if e == Ignored {
		return []string{"-count=1"}
	}
	return nil
}

// Release does for one release all that says whether the series is right there. What is
// wrong with the series is in the result; an error is one of the surroundings.
func Release(ctx context.Context, t *tree.Tree, earlier Earlier) (Result, error) {
	before, err := key(t)
	if err != nil {
		return Result{}, err
	}
	path, err := resultPath(before)
	if err != nil {
		return Result{}, err
	}
	if v, ok := readResult(path); ok && earlier == Trusted {
		v.kept = true
		t.Say("nothing has changed since it was verified on %s, in %d s; skipped", v.When.Format("2006-01-02 15:04"), v.Seconds)
		return v, nil
	}
	start := time.Now()
	v := Result{Release: t.Release, When: start.UTC(), Patches: map[string]series.Kind{}}
	err = steps(ctx, t, &v, earlier.flags()...)
	v.Seconds = int(time.Since(start).Round(time.Second).Seconds())
	if err != nil {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		v.Failed = err.Error()
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
		return v, nil
	}
	if now, err := key(t); err != nil || now != before {
		t.Say("files changed in the meantime; the result is discarded")
		return v, err
	}
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return v, err
	}
	return v, disk.Write(path, data)
}

// steps does all that Release does. The flags are of go test.
func steps(ctx context.Context, t *tree.Tree, v *Result, flags ...string) error {
	if err := t.Update(ctx); err != nil {
		return err
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	if err := t.Unchanged(ctx, s); err != nil {
		return err
	}
	names, err := series.Order(t.Project)
	if err != nil {
		return err
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	for _, name := range names {
		v.Patches[name] = series.Unneeded
	}
	for _, p := range patches {
		v.Patches[p.Name] = series.KindOf(p)
	}
	findings, err := lint.Findings(ctx, t)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return fmt.Errorf("lint: %d findings, the first is %s", len(findings), findings[0])
	}
	touched, ours, err := build.Compile(ctx, t)
	if err != nil {
		return fmt.Errorf("the series does not compile: %w", err)
	}
	v.Compiled = len(touched) + len(ours)
	if v.Upstream, err = upstreamTests(ctx, t, touched, v, flags...); err != nil {
		return err
	}
	t.Say("running our unit tests of %d packages", len(ours))
	report, err := goTest(ctx, t, t.Dir, ours, flags...)
	if err != nil {
		return err
	}
	if err := report.writeJUnit(junitPath(t, "ours")); err != nil {
		return err
	}
	if failed := report.failed(); len(failed) > 0 {
		report.print(failed)
		return fmt.Errorf("our own tests fail: %s", strings.Join(failed, ", "))
	}
	v.Ours = report.passed
	return nil
}

// key changes whenever anything does on which the result depends: what upstream
// is, the patches, this project's sources, carry's own, and the Go that compiles them.
func key(t *tree.Tree) (string, error) {
	pins, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return "", err
	}
	host, err := exec.Command("go", "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	parts := [][]byte{[]byte(tree.PinsKey(pins)), host, []byte(os.Getenv("FORCE_HOST_GO")), []byte(strconv.Itoa(os.Getuid()))}
	for _, dir := range append(slices.Clone(project.LinkedDirs), project.PatchesDir, project.ToolDir, project.ModuleDirs[project.CoreModule], filepath.Join(project.ReleasesDir, t.Release), project.PreviewPatches(t.Release)) {
		err := filepath.WalkDir(t.Project.Path(dir), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			relative, _ := filepath.Rel(t.Project.Dir, path)
			parts = append(parts, []byte(relative), data)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return disk.Digest(parts...), nil
}

// resultPath is in the user's cache, next to go's: a result is known by its content, so
// it holds in every checkout.
func resultPath(key string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "carry", "verified", key+".json"), nil
}

func readResult(path string) (Result, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Result{}, false
	}
	var v Result
	return v, json.Unmarshal(data, &v) == nil && v.Release != ""
}
