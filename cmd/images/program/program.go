// SPDX-License-Identifier: Apache-2.0

// Package program reads what a Go binary says of itself: its platform, the commit that it was built
// from, and its modules. It must not know what becomes of the binary.
package program

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
)

// Program is a Go binary.
type Program struct {
	// Name is that of its file, without directories, and File is the file.
	Name, File string
	// SHA256 is its hash in hexadecimal.
	SHA256 string
	// Info are its modules and settings.
	Info *buildinfo.BuildInfo
	// Revision is the commit that it was built from, and Date the time of the commit. Both are empty
	// if Go did not put them into it, which it does not in a git worktree.
	Revision string
	Date     time.Time
	// Interpreter is the loader of a dynamically linked program of Linux, and empty for a static one.
	Interpreter string
}

// sums is the file of checksums that carry build writes next to binaries. Its first line is
// "# VERSION, built with go...".
const sums = "SHA256SUMS"

// machines are ELF's names of architectures, by Go's.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}

// KnownPlatform returns an error for a platform that programs cannot be checked for.
func KnownPlatform(platform string) error {
	if architecture, ok := strings.CutPrefix(platform, "linux/"); ok {
		if _, ok := machines[architecture]; ok {
			return nil
		}
	}
	return fmt.Errorf("platform %q: known are linux/%s", platform, strings.Join(slices.Sorted(maps.Keys(machines)), ", linux/"))
}

// flags are those of go build without which a program would not be what its commit gives; an empty value
// means none. -ldflags are not recorded together with -trimpath.
var flags = []struct{ name, want string }{{"-trimpath", "true"}, {"-asmflags", ""}, {"-cover", ""}, {"-gcflags", ""}, {"-race", ""}}

// Find finds a program for a platform in the first directory that has it. If checksums are next to
// it, it must be among them. It must not have been built from changes that are not committed, nor with
// flags that change it. If there is none, the error is fs.ErrNotExist.
func Find(name, platform string, dirs []string) (*Program, error) {
	if strings.HasPrefix(platform, "windows/") {
		name += ".exe"
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p, err := Read(file)
		if err != nil {
			return nil, err
		}
		if got := p.Platform(); got != platform {
			return nil, fmt.Errorf("%s is for %s, want %s", file, got, platform)
		}
		if p.setting("vcs.modified") == "true" {
			return nil, fmt.Errorf("%s was built from %s with uncommitted changes: commit them, and build it again", file, p.Revision)
		}
		for _, flag := range flags {
			if got := p.setting(flag.name); got != flag.want {
				return nil, fmt.Errorf("%s was built with %s=%q, want %q: find what sets it, such as DBG, GOGCFLAGS or GOFLAGS, and build it again", file, flag.name, got, flag.want)
			}
		}
		return p, p.vouched(dir)
	}
	return nil, fmt.Errorf("no %s for %s in %s: %w", name, platform, strings.Join(dirs, ", "), fs.ErrNotExist)
}

// Read reads any Go binary.
func Read(file string) (*Program, error) {
	p := &Program{Name: filepath.Base(file), File: file}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if p.Info, err = buildinfo.Read(f); err != nil {
		return nil, fmt.Errorf("%s is not a Go binary: %w", file, err)
	}
	if p.setting("GOOS") == "linux" {
		if err := p.readELF(f); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	p.Revision = p.setting("vcs.revision")
	if at := p.setting("vcs.time"); at != "" {
		if p.Date, err = time.Parse(time.RFC3339, at); err != nil {
			return nil, fmt.Errorf("%s: vcs.time: %w", file, err)
		}
	}
	if p.SHA256, err = digest.File(file); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// readELF reads what only a binary for Linux has.
func (p *Program) readELF(f io.ReaderAt) error {
	binary, err := elf.NewFile(f)
	if err != nil {
		return err
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(segment.Open())
			if err != nil {
				return err
			}
			p.Interpreter = string(bytes.TrimRight(loader, "\x00"))
		}
	}
	if want, ok := machines[p.setting("GOARCH")]; !ok || binary.Machine != want {
		return fmt.Errorf("ELF machine %s, but GOARCH %q", binary.Machine, p.setting("GOARCH"))
	}
	return nil
}

func (p *Program) setting(key string) string {
	for _, setting := range p.Info.Settings {
		if setting.Key == key {
			return setting.Value
		}
	}
	return ""
}

// Platform is the one that it was built for, such as linux/arm64.
func (p *Program) Platform() string { return p.setting("GOOS") + "/" + p.setting("GOARCH") }

// FIPS is the version of Go's cryptographic module with which it was built to be in FIPS mode by default, such as
// v1.0.0-c2097c7c, or latest for what is in its Go; it is empty if it was not.
func (p *Program) FIPS() string { return p.setting("GOFIPS140") }

// vouched checks the program against the checksums next to it, if there are any.
func (p *Program) vouched(dir string) error {
	file, err := os.Open(filepath.Join(dir, sums))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok && name == p.Name {
			if sum != p.SHA256 {
				return fmt.Errorf("%s has sha256 %s, but %s says %s: build it again", p.File, p.SHA256, file.Name(), sum)
			}
			return nil
		}
	}
	return errors.Join(lines.Err(), fmt.Errorf("%s is not in %s, so its version is unknown: build it again", p.File, file.Name()))
}

// FIPSVersion is the end of the version of programs in FIPS mode.
const FIPSVersion = "-fips"

// Version returns the version that the checksums in the directories name. Directories without
// checksums have none; all others must agree.
func Version(dirs []string) (string, error) {
	version, from := "", ""
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, sums))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		head, _, _ := strings.Cut(string(data), "\n")
		own, _, ok := strings.Cut(strings.TrimPrefix(head, "# "), ",")
		if !ok || !strings.HasPrefix(head, "# ") {
			return "", fmt.Errorf("%s: the first line %q names no version", filepath.Join(dir, sums), head)
		}
		if strings.HasSuffix(own, "-dirty") {
			return "", fmt.Errorf("%s has version %s, which was built with uncommitted changes: commit them, and build it again", dir, own)
		}
		if version != "" && version != own {
			return "", fmt.Errorf("%s has version %s, but %s has %s: build both again", dir, own, from, version)
		}
		version, from = own, dir
	}
	if version == "" {
		return "", fmt.Errorf("no %s in %s, so the version is unknown: carry build writes it", sums, strings.Join(dirs, ", "))
	}
	return version, nil
}
