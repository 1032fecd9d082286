// SPDX-License-Identifier: Apache-2.0

// Package pins reads, downloads and writes the Go modules that a release consists of
// (published.go), and knows which releases there are (listed.go). It knows Go's module
// commands and go.sum, and nothing of trees or patches.
package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Pins are the modules of a release, as build/releases/RELEASE pins them, or for a preview
// _output/RELEASE/pins.
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
	found, err := ReadDir(c, c.PinsDir(release))
	if err != nil {
		return Pins{}, err
	}
	if found.Modules[project.UpstreamModule] != release {
		return Pins{}, fmt.Errorf("%s/go.mod requires %s %s, not %s", c.PinsDir(release), project.UpstreamModule, found.Modules[project.UpstreamModule], release)
	}
	return found, nil
}

// ReadDir reads what a directory pins, relative to the checkout.
func ReadDir(c project.Checkout, shown string) (Pins, error) {
	dir := c.Path(shown)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return Pins{}, err
	}
	file, err := modfile.Parse(filepath.Join(dir, "go.mod"), mod, nil)
	if err != nil {
		return Pins{}, err
	}
	if file.Go == nil {
		return Pins{}, fmt.Errorf("%s/go.mod has no go line; it is upstream's", shown)
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
			return Pins{}, fmt.Errorf("%s/go.sum does not pin %s; run in that directory: go mod download -json %[2]s", shown, require.Mod)
		}
	}
	return found, nil
}

// Module is what `go mod download -json` prints.
type Module struct {
	Path, Version, Info, Dir, Sum, GoModSum, Error string
}

// Download fetches the modules of a release, and returns the release's own time, too: it dates the commits, so that they are
// the same everywhere.
func Download(c project.Checkout, release string, want Pins) (map[string]Module, time.Time, error) {
	modules, err := DownloadDir(c, c.PinsDir(release), want)
	if err != nil {
		return nil, time.Time{}, err
	}
	released, err := modules[project.UpstreamModule].Released()
	return modules, released, err
}

// Released is when the module was released.
func (m Module) Released() (time.Time, error) {
	var info struct{ Time time.Time }
	data, err := os.ReadFile(m.Info)
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return info.Time.UTC(), err
}

// DownloadDir fetches what a directory pins, and checks it against go.sum itself: go
// would add a missing line to it.
func DownloadDir(c project.Checkout, shown string, want Pins) (map[string]Module, error) {
	args := []string{"mod", "download", "-json"}
	for path, version := range want.Modules {
		args = append(args, path+"@"+version)
	}
	slices.Sort(args[3:])
	cmd := exec.Command("go", args...)
	cmd.Dir = c.Path(shown)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	modules := map[string]Module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m Module
		if err := decoder.Decode(&m); err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		if m.Error != "" {
			return nil, fmt.Errorf("%s@%s cannot be downloaded: %s", m.Path, m.Version, git.FirstLine(m.Error))
		}
		if m.Sum != want.sums[m.Path] {
			return nil, fmt.Errorf("%s@%s has the checksum %s, but %s/go.sum pins %s", m.Path, m.Version, m.Sum, shown, want.sums[m.Path])
		}
		modules[m.Path] = m
	}
	if runErr != nil {
		return nil, fmt.Errorf("go mod download: %w: %s", runErr, git.FirstLine(stderr.String()))
	}
	return modules, nil
}
