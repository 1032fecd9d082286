package main

import (
	"bytes"
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

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const (
	upstreamModule = "k8s.io/kubernetes"
	rootModule     = "workload.openshift.io/kubernetes"
	coreModule     = "workload.openshift.io/partition"
)

// project is a checkout of this repository.
type project struct{ dir string }

// findProject walks up from the working directory, so that carry works in a tree
// below _output as well.
func findProject() (project, error) {
	dir, err := os.Getwd()
	if err != nil {
		return project{}, err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(data) == rootModule {
			return project{dir}, nil
		}
		if dir == filepath.Dir(dir) {
			return project{}, fmt.Errorf("%s is not inside a checkout of %s", start, rootModule)
		}
	}
}

func (p project) path(elements ...string) string {
	return filepath.Join(append([]string{p.dir}, elements...)...)
}

// releases returns the known releases, the newest first.
func (p project) releases() ([]string, error) {
	entries, err := os.ReadDir(p.path("build", "releases"))
	if err != nil {
		return nil, err
	}
	var releases []string
	for _, entry := range entries {
		if semver.IsValid(entry.Name()) {
			releases = append(releases, entry.Name())
		}
	}
	if len(releases) == 0 {
		return nil, errors.New("build/releases has no release")
	}
	semver.Sort(releases)
	slices.Reverse(releases)
	return releases, nil
}

var looksLikeRelease = regexp.MustCompile(`^v?[0-9]`)

// release takes the release from the arguments, and returns the others.
func (p project) release(args []string) (release string, rest []string, err error) {
	known, err := p.releases()
	if err != nil {
		return "", nil, err
	}
	if len(args) == 0 || !looksLikeRelease.MatchString(args[0]) {
		return known[0], args, nil
	}
	if !slices.Contains(known, args[0]) {
		return "", nil, fmt.Errorf("unknown release %q; known are %s", args[0], strings.Join(known, ", "))
	}
	return args[0], args[1:], nil
}

// pins are the modules of a release, as build/releases/RELEASE pins them.
type pins struct {
	// modules maps module paths to versions; sums has the go.sum line of each.
	modules map[string]string
	sums    map[string]string
	// goVersion is the language version of upstream's go.mod.
	goVersion string
	// digest changes whenever the pins do.
	digest string
}

func (p project) pins(release string) (pins, error) {
	dir := p.path("build", "releases", release)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return pins{}, err
	}
	file, err := modfile.Parse(filepath.Join(dir, "go.mod"), mod, nil)
	if err != nil {
		return pins{}, err
	}
	if file.Go == nil {
		return pins{}, fmt.Errorf("build/releases/%s/go.mod has no go line; it is upstream's", release)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return pins{}, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(sum)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			sums[fields[0]+"@"+fields[1]] = fields[2]
		}
	}
	found := pins{modules: map[string]string{}, sums: map[string]string{}, goVersion: file.Go.Version, digest: disk.Digest(mod, sum)}
	for _, require := range file.Require {
		found.modules[require.Mod.Path] = require.Mod.Version
		if found.sums[require.Mod.Path] = sums[require.Mod.String()]; found.sums[require.Mod.Path] == "" {
			return pins{}, fmt.Errorf("build/releases/%s/go.sum does not pin %s; run in that folder: go mod download -json %[2]s", release, require.Mod)
		}
	}
	if found.modules[upstreamModule] != release {
		return pins{}, fmt.Errorf("build/releases/%s/go.mod requires %s %s, not %[1]s", release, upstreamModule, found.modules[upstreamModule])
	}
	return found, nil
}

// module is what `go mod download -json` prints.
type module struct {
	Path, Version, Info, Dir, Sum, GoModSum, Error string
}

// download fetches the pinned modules, and checks them against go.sum itself: go
// would add a missing line to it.
func (p project) download(release string, want pins) (map[string]module, time.Time, error) {
	args := []string{"mod", "download", "-json"}
	for path, version := range want.modules {
		args = append(args, path+"@"+version)
	}
	slices.Sort(args[3:])
	cmd := exec.Command("go", args...)
	cmd.Dir = p.path("build", "releases", release)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	modules := map[string]module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m module
		if err := decoder.Decode(&m); err != nil {
			return nil, time.Time{}, fmt.Errorf("go mod download: %w", err)
		}
		if m.Error != "" {
			return nil, time.Time{}, fmt.Errorf("%s@%s can not be had: %s", m.Path, m.Version, git.FirstLine(m.Error))
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
	data, err := os.ReadFile(modules[upstreamModule].Info)
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return modules, info.Time.UTC(), err
}

// identity makes and dates every commit, so that the same series gives the same
// commits. Authors are those of this project; its own history names them.
var identity = git.Identity{Name: "workload partitioning", Email: "carry@workload.openshift.io"}

// patchDate is the author date of every patch.
var patchDate = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
