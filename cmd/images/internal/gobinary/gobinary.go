// SPDX-License-Identifier: Apache-2.0

// Package gobinary builds small Go programs for tests, as carry builds big ones: from a commit, with
// checksums next to them.
package gobinary

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Version is what the programs say, and what is in the checksums.
const Version = "v1.37.0+wp.1234567"

// Platforms are those of the programs.
var Platforms = []string{"linux/amd64", "linux/arm64"}

const source = `package main

func main() { println("Kubernetes ` + Version + `") }
`

// built has the program of each platform, and those of linux/amd64 that Program names. It is built once,
// since a program is the same whatever its name is.
var built = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "gobinary-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fips := "off"
	run := func(goos, arch, name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		// The same commit in each run gives the same program.
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS="+goos, "CGO_ENABLED=0", "GOWORK=off", "GOFIPS140="+fips,
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-08-26T10:44:20Z",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-08-26T10:44:20Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	for name, content := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26.0\n", "main.go": source, ".gitignore": "/bin/\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "--message=program"}} {
		if err := run("", "", "git", args...); err != nil {
			return nil, err
		}
	}
	programs := map[string][]byte{}
	for _, name := range append(Platforms, "darwin/arm64", "windows/amd64", "bare", "untrimmed", "debug", "fips", "dirty") {
		goos, arch, ok := strings.Cut(name, "/")
		if !ok {
			goos, arch = "linux", "amd64"
		}
		flags := []string{"-trimpath", "-buildvcs=true"}
		fips = "off"
		switch name {
		case "bare":
			flags = []string{"-trimpath", "-buildvcs=false"}
		case "untrimmed":
			flags = append(flags, "-trimpath=false")
		case "debug":
			flags = append(flags, "-gcflags=-N -l")
		case "fips":
			fips = "latest"
		case "dirty":
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source+"// changed\n"), 0o600); err != nil {
				return nil, err
			}
		}
		if err := run(goos, arch, "go", slices.Concat([]string{"build"}, flags, []string{"-ldflags=-s -w", "-o", "bin/program", "."})...); err != nil {
			return nil, err
		}
		if programs[name], err = os.ReadFile(filepath.Join(dir, "bin", "program")); err != nil {
			return nil, err
		}
	}
	return programs, nil
})

// Program returns the program of a platform, or one of linux/amd64: for "bare", one that does not name its
// commit; for "untrimmed", one that has paths of this host; for "debug", one that is not optimized; for "fips", one that
// is in FIPS mode; or, for "dirty", one that was built from changes that are not committed.
func Program(t *testing.T, platform string) []byte {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return programs[platform]
}

// Dirs returns a directory of programs for each platform, with checksums.
func Dirs(t *testing.T, names ...string) map[string][]string {
	t.Helper()
	dirs := map[string][]string{}
	for _, platform := range Platforms {
		dir := t.TempDir()
		sums := bytes.NewBufferString("# " + Version + ", built with go1.26.6 linux/amd64\n")
		for _, name := range names {
			Write(t, filepath.Join(dir, name), Program(t, platform))
			fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(Program(t, platform)), name)
		}
		Write(t, filepath.Join(dir, "SHA256SUMS"), sums.Bytes())
		dirs[platform] = []string{dir}
	}
	return dirs
}

// Write writes a file.
func Write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
