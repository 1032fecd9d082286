// SPDX-License-Identifier: Apache-2.0

// Package build compiles a tree, with upstream's own make rules or as go does, and names
// what comes out. It must not know what the series is for, nor whether it is right.
package build

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// HostPlatform is the platform of this host.
const HostPlatform = runtime.GOOS + "/" + runtime.GOARCH

var platformForm = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+$`)

// BinaryList is the list of binaries for a user to read.
func BinaryList() string { return strings.Join(project.Binaries, ", ") }

// OtherBinaryList is that of the binaries that are built only on request.
func OtherBinaryList() string { return strings.Join(project.OtherBinaries, ", ") }

// Binaries builds what is wanted, all by default, of a source: Patched, RaceDetecting, FIPS or Upstream. It runs
// upstream's make rules. KUBE_GIT_VERSION_FILE is their own way to give the version. The platform
// is one such as linux/arm64; binaries of another than this host's have their own directory. With
// exactGo it is an error if the Go that upstream released with cannot be downloaded.
func Binaries(ctx context.Context, t *tree.Tree, source func(context.Context, *tree.Tree) (Source, error), platform string, exactGo bool, wanted []string) error {
	if !platformForm.MatchString(platform) {
		return fmt.Errorf("unknown platform %q; write one such as linux/arm64", platform)
	}
	if len(wanted) == 0 {
		wanted = project.Binaries
	}
	for _, name := range wanted {
		if !slices.Contains(project.Binaries, name) && !slices.Contains(project.OtherBinaries, name) {
			return fmt.Errorf("unknown binary %q; known are %s, and %s", name, BinaryList(), OtherBinaryList())
		}
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	from, err := source(ctx, t)
	if err != nil {
		return err
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(t.Release, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	bin := filepath.Join(filepath.Dir(t.Dir), from.bin)
	var cross []string
	if platform != HostPlatform {
		bin += "-" + strings.ReplaceAll(platform, "/", "-")
		cross = []string{"KUBE_BUILD_PLATFORMS=" + platform}
	}
	versionFile := bin + ".version"
	content := fmt.Sprintf("KUBE_GIT_COMMIT='%s'\nKUBE_GIT_TREE_STATE='%s'\nKUBE_GIT_VERSION='%s'\nKUBE_GIT_MAJOR='%s'\nKUBE_GIT_MINOR='%s'\n", from.commit, from.state, from.version, major, minor)
	if err := disk.Write(versionFile, []byte(content)); err != nil {
		return err
	}
	toolchain, err := toolchain(ctx, t, exactGo)
	if err != nil {
		return err
	}
	caches, err := Caches(ctx)
	if err != nil {
		return err
	}
	what := make([]string, len(wanted))
	for i, name := range wanted {
		what[i] = project.SourceDir(name)
	}
	t.Say("building %s as %s for %s", strings.Join(wanted, ", "), from.version, platform)
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "WHAT="+strings.Join(what, " "))
	cmd.Dir = from.Dir
	cmd.Env = slices.Concat(withoutMake(os.Environ()), toolchain, caches, cross, from.env)
	cmd.Env = append(cmd.Env,
		"KUBE_GIT_VERSION_FILE="+versionFile,
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(s.Released.Unix(), 10),
		// Of a test binary, go test would vet all that it imports.
		"GOFLAGS="+strings.TrimSpace(strings.Join(append([]string{os.Getenv("GOFLAGS"), "-v", "-vet=off"}, from.flags...), " ")),
	)
	if err := follow(t, cmd, "compiled"); err != nil {
		return fmt.Errorf("build of %s: %w", from.version, err)
	}
	for _, name := range wanted {
		built := filepath.Join(from.Dir, "_output", "local", "bin", filepath.FromSlash(platform), name)
		if err := publish(built, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	if err := writeSums(ctx, t, bin, from.version, toolchain, wanted); err != nil {
		return err
	}
	t.Say("built %s in %s", strings.Join(wanted, ", "), bin)
	return nil
}

// writeSums writes SHA256SUMS next to the binaries, as sha256sum --check reads it, with
// the version and the toolchain that made them. The same commit gives the same bytes
// in any directory.
func writeSums(ctx context.Context, t *tree.Tree, bin, version string, toolchain, wanted []string) error {
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir, cmd.Env = t.Dir, append(os.Environ(), toolchain...)
	goVersion, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go version: %w", err)
	}
	head := fmt.Sprintf("# %s, built with %s\n", version, strings.TrimPrefix(strings.TrimSpace(string(goVersion)), "go version "))
	var sums strings.Builder
	sums.WriteString(head)
	// A binary that an earlier version left is not vouched for.
	before, _ := os.ReadFile(filepath.Join(bin, "SHA256SUMS"))
	same := strings.HasPrefix(string(before), head)
	for _, name := range slices.Concat(project.Binaries, project.OtherBinaries) {
		if !slices.Contains(wanted, name) && !(same && strings.Contains(string(before), "  "+name+"\n")) {
			continue
		}
		file, err := os.Open(filepath.Join(bin, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, file)
		file.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), name)
	}
	return disk.Write(filepath.Join(bin, "SHA256SUMS"), []byte(sums.String()))
}

// Caches names go's caches, because upstream's scripts would use one in each tree,
// and compile everything again.
func Caches(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	build, modules, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return []string{"GOCACHE=" + build, "GOMODCACHE=" + modules}, nil
}

// withoutMake drops what a make above us would pass to the tree's make: its flags and
// its variables, such as OUT, are not meant for that.
func withoutMake(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKEFILES"}, name)
	})
}

// publish copies a binary, unless it is there already. A link would not do: the next
// make in the tree writes into the same file.
func publish(from, to string) error {
	built, err := os.Stat(from)
	if err != nil {
		return err
	}
	if there, err := os.Stat(to); err == nil && there.Size() == built.Size() && there.ModTime().Equal(built.ModTime()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := to + ".new"
	// A temporary name, since a running binary cannot be written to.
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return err
	}
	out, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close(), os.Remove(temporary))
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := os.Chtimes(temporary, built.ModTime(), built.ModTime()); err != nil {
		return err
	}
	return os.Rename(temporary, to)
}
