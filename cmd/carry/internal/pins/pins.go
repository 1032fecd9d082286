// Package pins reads, downloads and writes the Go modules that a release consists of. It
// knows Go's module commands and go.sum, and nothing of trees or patches.
package pins

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
	"time"

	"golang.org/x/mod/modfile"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Pins are the modules of a release, as build/releases/RELEASE pins them.
type Pins struct {
	// Modules maps module paths to versions; sums has the go.sum line of each.
	Modules map[string]string
	sums    map[string]string
	// GoVersion is the language version of upstream's go.mod.
	GoVersion string
	// Digest changes whenever the pins do.
	Digest string
}

// Read reads the pins of a release, and sees that go.sum has them all.
func Read(c project.Checkout, release string) (Pins, error) {
	dir := c.Path(project.ReleasesDir, release)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return Pins{}, err
	}
	file, err := modfile.Parse(filepath.Join(dir, "go.mod"), mod, nil)
	if err != nil {
		return Pins{}, err
	}
	if file.Go == nil {
		return Pins{}, fmt.Errorf("build/releases/%s/go.mod has no go line; it is upstream's", release)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return Pins{}, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(sum)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			sums[fields[0]+"@"+fields[1]] = fields[2]
		}
	}
	found := Pins{Modules: map[string]string{}, sums: map[string]string{}, GoVersion: file.Go.Version, Digest: disk.Digest(mod, sum)}
	for _, require := range file.Require {
		found.Modules[require.Mod.Path] = require.Mod.Version
		if found.sums[require.Mod.Path] = sums[require.Mod.String()]; found.sums[require.Mod.Path] == "" {
			return Pins{}, fmt.Errorf("build/releases/%s/go.sum does not pin %s; run in that directory: go mod download -json %[2]s", release, require.Mod)
		}
	}
	if found.Modules[project.UpstreamModule] != release {
		return Pins{}, fmt.Errorf("build/releases/%s/go.mod requires %s %s, not %[1]s", release, project.UpstreamModule, found.Modules[project.UpstreamModule])
	}
	return found, nil
}

// Module is what `go mod download -json` prints.
type Module struct {
	Path, Version, Info, Dir, Sum, GoModSum, Error string
}

// Download fetches the pinned modules, and checks them against go.sum itself: go
// would add a missing line to it.
func Download(c project.Checkout, release string, want Pins) (map[string]Module, time.Time, error) {
	args := []string{"mod", "download", "-json"}
	for path, version := range want.Modules {
		args = append(args, path+"@"+version)
	}
	slices.Sort(args[3:])
	cmd := exec.Command("go", args...)
	cmd.Dir = c.Path(project.ReleasesDir, release)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	modules := map[string]Module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m Module
		if err := decoder.Decode(&m); err != nil {
			return nil, time.Time{}, fmt.Errorf("go mod download: %w", err)
		}
		if m.Error != "" {
			return nil, time.Time{}, fmt.Errorf("%s@%s cannot be had: %s", m.Path, m.Version, git.FirstLine(m.Error))
		}
		if m.Sum != want.sums[m.Path] {
			return nil, time.Time{}, fmt.Errorf("%s@%s has the checksum %s, but build/releases/%s/go.sum pins %s", m.Path, m.Version, m.Sum, release, want.sums[m.Path])
		}
		modules[m.Path] = m
	}
	if runErr != nil {
		return nil, time.Time{}, fmt.Errorf("go mod download: %w: %s", runErr, git.FirstLine(stderr.String()))
	}
	// The release's own time dates the commits, so that they are the same everywhere.
	var info struct{ Time time.Time }
	data, err := os.ReadFile(modules[project.UpstreamModule].Info)
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return modules, info.Time.UTC(), err
}

// notPublished matches what go says of a module version that nobody can have, as
// opposed to one that could not be had just now.
var notPublished = regexp.MustCompile(`\b(403 Forbidden|404 Not Found|410 Gone|unknown revision)\b`)

// Write writes build/releases/RELEASE: a go.mod with upstream and each of its staging
// modules at the release, and the go.sum that go's checksum database vouches for.
// Staging modules that were never published at it are left out, and named.
func Write(ctx context.Context, c project.Checkout, release string) error {
	match := project.ReleaseForm.FindStringSubmatch(release)
	if match == nil {
		return fmt.Errorf("%q is not a release of Kubernetes, such as v1.37.1", release)
	}
	upstream, err := fetch(ctx, project.UpstreamModule+"@"+release)
	if err != nil {
		return err
	}
	if upstream[0].Error != "" {
		return fmt.Errorf("%s@%s cannot be had: %s", project.UpstreamModule, release, git.FirstLine(upstream[0].Error))
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
	modules, err := fetch(ctx, staged...)
	if err != nil {
		return err
	}
	var mod, sum strings.Builder
	fmt.Fprintf(&mod, "module %s/build/releases/%s\n\ngo %s\n\nrequire (\n\t%s %[2]s\n", project.RootModule, release, file.Go.Version, project.UpstreamModule)
	modules = append(modules, upstream...)
	slices.SortFunc(modules, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range modules {
		if m.Error != "" {
			if !notPublished.MatchString(m.Error) {
				return fmt.Errorf("%s@%s cannot be had: %s", m.Path, m.Version, git.FirstLine(m.Error))
			}
			fmt.Fprintf(os.Stderr, "%s: %s was not published at %s; the tree leaves it out\n", release, m.Path, m.Version)
			continue
		}
		if m.Path != project.UpstreamModule {
			fmt.Fprintf(&mod, "\t%s %s\n", m.Path, m.Version)
		}
		fmt.Fprintf(&sum, "%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", m.Path, m.Version, m.Sum, m.GoModSum)
	}
	mod.WriteString(")\n")
	dir := c.Path(project.ReleasesDir, release)
	return errors.Join(disk.Write(filepath.Join(dir, "go.mod"), []byte(mod.String())), disk.Write(filepath.Join(dir, "go.sum"), []byte(sum.String())))
}

// fetch downloads modules. One that cannot be had has an Error. go checks each
// against its checksum database, since no go.sum knows it yet.
func fetch(ctx context.Context, modules ...string) ([]Module, error) {
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
	// It fails if one module cannot be had; what it prints says which.
	out, runErr := cmd.Output()
	var found []Module
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m Module
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
