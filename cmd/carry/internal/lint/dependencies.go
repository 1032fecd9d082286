// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// checkDependencies compares the module versions of the tree's workspace with and without
// this project's modules: they must differ by those alone.
func checkDependencies(ctx context.Context, t *tree.Tree) ([]Finding, error) {
	s, err := t.Load()
	if err != nil {
		return nil, err
	}
	work, err := t.Git().Run(ctx, "show", s.Workspace+":go.work")
	if err != nil {
		return nil, err
	}
	for _, path := range [][2]string{{"\t./", "\t../"}, {"\t.\n", "\t..\n"}, {"\t../modules", "\t../../modules"}} {
		work = strings.ReplaceAll(work, path[0], path[1])
	}
	theirs, err := moduleVersions(ctx, t, s.Workspace, ourUse.ReplaceAllString(work, ""))
	if err != nil {
		return nil, err
	}
	both, err := moduleVersions(ctx, t, s.Workspace, work)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for path, version := range both {
		if before, known := theirs[path]; path != project.RootModule && path != project.CoreModule && (!known || before != version) {
			if !known {
				before = "no version"
			}
			findings = append(findings, Finding{"go.mod", 1, fmt.Sprintf("raises %s in the tree of %s from %s to %s", path, t.Release, before, version)})
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.text, b.text) })
	return findings, nil
}

// moduleVersions returns the versions in a workspace, whose go.work is given as it would be
// one directory below the tree: go would add lines to the tree's own go.work.sum.
func moduleVersions(ctx context.Context, t *tree.Tree, commit, work string) (map[string]string, error) {
	sums, err := t.Git().Run(ctx, "show", commit+":go.work.sum")
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(t.Dir, "_output", "carry.work")
	defer os.Remove(copied)
	defer os.Remove(copied + ".sum")
	if err := disk.Write(copied, []byte(work+"\n")); err != nil {
		return nil, err
	}
	if err := disk.Write(copied+".sum", []byte(sums+"\n")); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{with .Version}}{{.}}{{else}}main{{end}}", "all")
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "GOWORK="+copied, "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all in %s: %w: %s", t.Shown(), err, git.FirstLine(stderr.String()))
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions, nil
}

// ourUse matches the lines of go.work that use this project's modules, in the copy.
var ourUse = regexp.MustCompile(`(?m)^\t\.\./\.\./modules/.*\n`)
