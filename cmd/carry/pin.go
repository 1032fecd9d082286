package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// releaseForm matches the releases that upstream publishes as Go modules.
var releaseForm = regexp.MustCompile(`^v1\.(\d+)\.(\d+)(-(alpha|beta|rc)\.\d+)?$`)

// notPublished matches what go says of a module version that nobody can have, as
// opposed to one that could not be had just now.
var notPublished = regexp.MustCompile(`\b(403 Forbidden|404 Not Found|410 Gone|unknown revision)\b`)

// pin writes build/releases/RELEASE: a go.mod with upstream and each of its staging
// modules at the release, and the go.sum that go's checksum database vouches for.
// Staging modules that were never published at it are left out, and named.
func (p project) pin(ctx context.Context, release string) error {
	match := releaseForm.FindStringSubmatch(release)
	if match == nil {
		return fmt.Errorf("%q is not a release of Kubernetes, such as v1.37.1", release)
	}
	upstream, err := p.fetch(ctx, upstreamModule+"@"+release)
	if err != nil {
		return err
	}
	if upstream[0].Error != "" {
		return fmt.Errorf("%s@%s can not be had: %s", upstreamModule, release, git.FirstLine(upstream[0].Error))
	}
	data, err := os.ReadFile(filepath.Join(upstream[0].Dir, "go.mod"))
	if err != nil {
		return err
	}
	file, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return err
	}
	version := "v0" + strings.TrimPrefix(release, "v1")
	var staged []string
	for _, replace := range file.Replace {
		if strings.HasPrefix(replace.New.Path, "./staging/src/") {
			staged = append(staged, replace.Old.Path+"@"+version)
		}
	}
	modules, err := p.fetch(ctx, staged...)
	if err != nil {
		return err
	}
	var mod, sum strings.Builder
	fmt.Fprintf(&mod, "module %s/build/releases/%s\n\ngo %s\n\nrequire (\n\t%s %[2]s\n", rootModule, release, file.Go.Version, upstreamModule)
	modules = append(modules, upstream...)
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range modules {
		if m.Error != "" {
			if !notPublished.MatchString(m.Error) {
				return fmt.Errorf("%s@%s can not be had: %s", m.Path, m.Version, git.FirstLine(m.Error))
			}
			fmt.Fprintf(os.Stderr, "%s: %s was not published at %s; the tree leaves it out\n", release, m.Path, m.Version)
			continue
		}
		if m.Path != upstreamModule {
			fmt.Fprintf(&mod, "\t%s %s\n", m.Path, m.Version)
		}
		fmt.Fprintf(&sum, "%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", m.Path, m.Version, m.Sum, m.GoModSum)
	}
	mod.WriteString(")\n")
	dir := p.path("build", "releases", release)
	return errors.Join(disk.Write(filepath.Join(dir, "go.mod"), []byte(mod.String())), disk.Write(filepath.Join(dir, "go.sum"), []byte(sum.String())))
}

// fetch downloads modules. One that can not be had has an Error. go checks each
// against its checksum database, since no go.sum knows it yet.
func (p project) fetch(ctx context.Context, modules ...string) ([]module, error) {
	dir, err := os.MkdirTemp("", "carry-pin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "go", append([]string{"mod", "download", "-json"}, modules...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// It fails if one module can not be had; what it prints says which.
	out, runErr := cmd.Output()
	var found []module
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m module
		if err := decoder.Decode(&m); err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		found = append(found, m)
	}
	if len(found) != len(modules) {
		return nil, fmt.Errorf("go mod download: %w: %s", cmp.Or(runErr, errors.New("modules are missing")), git.FirstLine(stderr.String()))
	}
	return found, nil
}

// minor is a release's minor version, v1.37 for v1.37.1.
func minor(release string) string { return semver.MajorMinor(release) }
