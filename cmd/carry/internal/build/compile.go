// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/process"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Compile builds the packages that the series touches, and this project's, and returns
// both.
func Compile(ctx context.Context, t *tree.Tree) (touched, ours []string, err error) {
	if touched, err = Touched(t); err != nil {
		return nil, nil, err
	}
	if ours, err = t.Project.Packages(); err != nil {
		return nil, nil, err
	}
	env, err := Env(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	t.Say("compiling %d packages that the series touches, and %d of ours", len(touched), len(ours))
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-v"}, Flags, touched, ours)...)
	cmd.Dir, cmd.Env = t.Dir, env
	return touched, ours, follow(t, cmd, "compiled")
}

// Touched returns the packages that the series changes, as directories of the tree.
func Touched(t *tree.Tree) ([]string, error) {
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, p := range patches {
		for _, file := range p.Files {
			dirs = append(dirs, "./"+filepath.Dir(file.Path))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// Flags are those of upstream's own build, so that what that compiled is not
// compiled again.
var Flags = []string{"-trimpath", "-tags=selinux,notest,grpcnotrace,"}

// Env is the environment in which go works on the tree, in the tree's own workspace.
func Env(ctx context.Context, t *tree.Tree) ([]string, error) {
	toolchain, err := toolchain(ctx, t, false)
	if err != nil {
		return nil, err
	}
	return append(append(withoutMake(os.Environ()), toolchain...), "GOWORK=", "CGO_ENABLED=0"), nil
}

// toolchain returns the environment that makes the tree build with the Go version
// that upstream names in .go-version, or, where that cannot be downloaded, with the
// installed one, unless it has to be exact.
func toolchain(ctx context.Context, t *tree.Tree, exact bool) ([]string, error) {
	if os.Getenv("FORCE_HOST_GO") != "" {
		return []string{"GOTOOLCHAIN=local"}, nil
	}
	data, err := os.ReadFile(filepath.Join(t.Dir, ".go-version"))
	if err != nil {
		return nil, err
	}
	env := []string{"GOTOOLCHAIN=go" + strings.TrimSpace(string(data))}
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		if exact {
			return nil, fmt.Errorf("upstream's Go %s cannot be downloaded (%s); FORCE_HOST_GO=y builds with the installed one", strings.TrimSpace(string(data)), git.FirstLine(string(out)))
		}
		t.Say("upstream's Go %s cannot be downloaded (%s); using the installed one", strings.TrimSpace(string(data)), git.FirstLine(string(out)))
		return []string{"GOTOOLCHAIN=local", "FORCE_HOST_GO=y"}, nil
	}
	return env, nil
}

// follow runs a command of which each line is a package done, and shows how far it
// is. Other lines are shown if it fails, unless a disk is full: the error says that.
func follow(t *tree.Tree, cmd *exec.Cmd, done string) error {
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	process.Group(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	finished := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		writer.Close()
		finished <- err
	}()
	var other bytes.Buffer
	count, start := 0, time.Now()
	every := 10 * time.Second
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	if terminal {
		every = 200 * time.Millisecond
	}
	shown := start
	scanner := bufio.NewScanner(reader)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if !isPackage(line) {
			other.WriteString(line + "\n")
			continue
		}
		count++
		if time.Since(shown) < every {
			continue
		}
		shown = time.Now()
		progress := fmt.Sprintf("%s: %4d packages %s in %s, now %s", t.Release, count, done, time.Since(start).Round(time.Second), line)
		if terminal {
			fmt.Fprintf(os.Stderr, "\r\x1b[K%.*s", 100, progress)
		} else {
			fmt.Fprintln(os.Stderr, progress)
		}
	}
	if terminal && count > 0 {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	if err := <-finished; err != nil {
		if full := noSpace(other.String()); full != nil {
			return full
		}
		os.Stderr.Write(other.Bytes())
		return err
	}
	t.Say("%d packages %s in %s", count, done, time.Since(start).Round(time.Second))
	return nil
}

// noSpace returns the first error of a disk that is full among the lines of go, or nil. There is one for each package
// that go was at, and what else failed then says nothing.
func noSpace(lines string) error {
	for line := range strings.Lines(lines) {
		if what, _, found := strings.Cut(line, ": "+syscall.ENOSPC.Error()); found {
			return fmt.Errorf("%s: %w", what, syscall.ENOSPC)
		}
	}
	return nil
}

// isPackage knows the import paths that `go build -v` prints from other output.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:+") && (strings.Contains(line, "/") || strings.ToLower(line) == line)
}
