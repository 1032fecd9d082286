// SPDX-License-Identifier: Apache-2.0

// Package debian assembles a root file system from pinned Debian packages, and writes packages. It
// uses the host's apt and dpkg-deb, but neither its lists of packages nor its architecture, and it
// runs no maintainer script. It must not know what the root file system or the package is for.
package debian

import (
	"bytes"
	"context"
	_ "embed"
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
)

// Lock pins the packages of each base. A person writes what to install, and Refresh the
// rest.
type Lock struct {
	// Suite is the code name of the Debian release, such as bookworm.
	Suite string `json:"suite"`
	// Bases are the root file systems, by name.
	Bases map[string]*Base `json:"bases"`
}

// Base is a root file system.
type Base struct {
	// Install are the packages that it is for. Those that they depend on come with them. NAME/SUITE, such as
	// linux-perf/bookworm, takes what that suite has: the archive of security updates keeps no older version of it.
	Install []string `json:"install"`
	// Leave are packages that others depend on for their maintainer scripts alone.
	Leave []string `json:"leave,omitempty"`
	// Without are files and directories of these packages that a base does not need: programs, for example, whose libraries
	// would come with them.
	Without []string `json:"without,omitempty"`
	// Links are symbolic links that maintainer scripts would make, with their targets.
	Links map[string]string `json:"links,omitempty"`
	// Packages are all of them, in order of their names, by platform, such as linux/arm64.
	Packages map[string][]Package `json:"packages"`
}

// Package is a package of one version and architecture.
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	// Path is where an archive has it, SHA256 its hash in hexadecimal, and Size its bytes.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Source is the source package, and its version if that is another, such as "bash (5.2.15-2)" of
	// bash 5.2.15-2+b13. Empty means that both are the package's. Assemble reads it from the package.
	Source string `json:"-"`
}

//go:embed lock.json
var pinned []byte

// Pinned is the lock file that this module carries.
func Pinned() (*Lock, error) { return parse("debian/lock.json", pinned) }

// Read reads a lock file.
func Read(file string) (*Lock, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(file, data)
}

func parse(file string, data []byte) (*Lock, error) {
	lock := &Lock{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(lock); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for name, base := range lock.Bases {
		for platform, packages := range base.Packages {
			for _, p := range packages {
				if len(p.SHA256) != 64 || p.Version == "" || p.Path == "" {
					return nil, fmt.Errorf("%s: base %s, %s: package %q is not pinned: version %q, path %q, sha256 %q", file, name, platform, p.Name, p.Version, p.Path, p.SHA256)
				}
			}
		}
	}
	return lock, nil
}

// Write writes a lock file. It is the only file of this module that is replaced like this: cluster has
// a package for that, of which the module must not know.
func (l *Lock) Write(file string) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, file)
}

// Architecture is Debian's name of a platform such as linux/arm64.
func Architecture(platform string) string {
	if platform == "linux/ppc64le" {
		return "ppc64el"
	}
	return strings.TrimPrefix(platform, "linux/")
}

// Refresh pins, for each base and platform, the versions that the host's Debian archives have now.
// The host's own lists of packages stay as they are.
func (l *Lock) Refresh(ctx context.Context, platforms []string) error {
	repositories, err := repositories(ctx)
	if err != nil {
		return err
	}
	l.Suite = repositories[0].release
	for _, platform := range platforms {
		apt, err := newApt(ctx, repositories, Architecture(platform))
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		for name, base := range l.Bases {
			packages, err := apt.resolve(ctx, base)
			if err != nil {
				return errors.Join(fmt.Errorf("base %s, %s: %w", name, platform, err), apt.remove())
			}
			if base.Packages == nil {
				base.Packages = map[string][]Package{}
			}
			base.Packages[platform] = packages
		}
		if err := apt.remove(); err != nil {
			return err
		}
	}
	return nil
}

// repository is an archive that the host's apt uses, and a release in it.
type repository struct{ uri, release, component string }

// repositories returns those of Debian, in the order of the host's sources.
func repositories(ctx context.Context) ([]repository, error) {
	out, err := run(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages")
	if err != nil {
		return nil, err
	}
	var found []repository
	for line := range strings.Lines(out) {
		if fields := strings.Split(strings.TrimSpace(line), "|"); len(fields) == 4 && fields[0] == "Debian" {
			found = append(found, repository{uri: fields[1], release: fields[2], component: fields[3]})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("apt-get indextargets names no archive of Debian: run apt-get update, on Debian")
	}
	return found, nil
}

// apt is an apt of another architecture, with its own state, in which nothing is installed.
type apt struct {
	dir  string
	args []string
}

// keyring is what Debian's package debian-archive-keyring has.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

func newApt(ctx context.Context, from []repository, architecture string) (*apt, error) {
	dir, err := os.MkdirTemp("", "apt-")
	if err != nil {
		return nil, err
	}
	a := &apt{dir: dir}
	var sources strings.Builder
	for _, r := range from {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s %s\n", keyring, r.uri, r.release, r.component)
	}
	for name, content := range map[string]string{"sources.list": sources.String(), "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, errors.Join(err, a.remove())
		}
	}
	for _, name := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, errors.Join(err, a.remove())
		}
	}
	// apt fetches as the user _apt.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, errors.Join(err, a.remove())
	}
	for _, option := range []string{
		"APT::Architecture=" + architecture, "APT::Architectures=" + architecture,
		"Dir::State=" + dir + "/state", "Dir::State::status=" + dir + "/status", "Dir::Cache=" + dir + "/cache",
		"Dir::Etc::SourceList=" + dir + "/sources.list", "Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null", "Dir::Etc::PreferencesParts=/dev/null",
		"APT::Install-Recommends=false", "Acquire::Languages=none",
		// Without it, an archive that does not answer is only a warning, and older versions would be pinned.
		"APT::Update::Error-Mode=any",
	} {
		a.args = append(a.args, "-o", option)
	}
	if _, err := run(ctx, "apt-get", append(slices.Clone(a.args), "--quiet", "update")...); err != nil {
		return nil, errors.Join(err, a.remove())
	}
	return a, nil
}

func (a *apt) remove() error { return os.RemoveAll(a.dir) }

// resolve returns the packages of a base in order of their names.
func (a *apt) resolve(ctx context.Context, base *Base) ([]Package, error) {
	out, err := run(ctx, "apt-get", slices.Concat(a.args, []string{"--simulate", "install"}, base.Install)...)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for line := range strings.Lines(out) {
		// Inst iptables (1.8.9-2 Debian:12.11/oldstable [arm64])
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "Inst" || slices.Contains(base.Leave, fields[1]) {
			continue
		}
		wanted = append(wanted, fields[1]+"="+strings.TrimPrefix(fields[2], "("))
	}
	slices.SortFunc(wanted, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	if out, err = run(ctx, "apt-cache", slices.Concat(a.args, []string{"show"}, wanted)...); err != nil {
		return nil, err
	}
	var packages []Package
	for stanza := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(stanza) {
			if name, value, ok := strings.Cut(line, ": "); ok {
				fields[name] = strings.TrimSpace(value)
			}
		}
		size, err := strconv.ParseInt(fields["Size"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("apt-cache show: package %q has size %q: %w", fields["Package"], fields["Size"], err)
		}
		packages = append(packages, Package{
			Name: fields["Package"], Version: fields["Version"], Architecture: fields["Architecture"],
			Path: fields["Filename"], SHA256: fields["SHA256"], Size: size,
		})
	}
	// A package that two archives have is shown twice.
	packages = slices.Compact(packages)
	if len(packages) != len(wanted) {
		return nil, fmt.Errorf("apt-cache show lists %d packages, want %d: %s", len(packages), len(wanted), strings.Join(wanted, " "))
	}
	return packages, nil
}

// run runs one of Debian's tools, and returns what it prints. The error has what it complains of.
func run(ctx context.Context, name string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: not found; it is part of Debian, and on other systems a base must be given with --base", name)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, complaint(errs.String()))
	}
	return string(out), nil
}

// complaint returns the first line that is an error of apt, after its warnings, or just the first.
func complaint(text string) string {
	text = strings.TrimSpace(text)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "E: ") {
			return strings.TrimSpace(line)
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}
