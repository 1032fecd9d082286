package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func binaryList() string { return strings.Join(project.Binaries, ", ") }

// source is what build builds: the tree, or upstream's own.
type source struct {
	dir, commit, state, version string
	// bin is the folder of the binaries, beside the tree.
	bin string
}

// patchedSource is the tree. Its version is the release and the commit that the series
// gives, which is the same for everybody.
func patchedSource(ctx context.Context, t *tree.Tree) (source, error) {
	commit, err := t.Git().Run(ctx, "rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	dirty, err := t.Dirty(ctx)
	if err != nil {
		return source{}, err
	}
	s := source{dir: t.Dir, commit: commit, state: "clean", version: t.Release + project.VersionSuffix + commit[:7], bin: "bin"}
	if dirty != "" {
		s.version, s.state = s.version+"-dirty", "dirty"
	}
	return s, nil
}

// upstreamSource is a second work tree with upstream's files and nothing else, to compare
// with.
func upstreamSource(ctx context.Context, t *tree.Tree, s tree.State) (source, error) {
	from := source{dir: filepath.Join(filepath.Dir(t.Dir), "upstream"), commit: s.Base, state: "clean", version: t.Release, bin: "upstream-bin"}
	there := git.Repo{Dir: from.dir}
	if head, err := there.Run(ctx, "rev-parse", "HEAD"); err == nil && head == s.Base {
		// A checkout that was interrupted has the right HEAD, too.
		if dirty, err := there.Run(ctx, append([]string{"status", "--porcelain"}, tree.AllButSums...)...); err == nil && dirty == "" {
			return from, nil
		}
	}
	if err := os.RemoveAll(from.dir); err != nil {
		return source{}, err
	}
	// It may be locked by an interrupted git: that is an error where there is none.
	_, _ = t.Git().Run(ctx, "worktree", "unlock", from.dir)
	if _, err := t.Git().Run(ctx, "worktree", "prune"); err != nil {
		return source{}, err
	}
	_, err := t.Git().Run(ctx, "worktree", "add", "--detach", from.dir, s.Base)
	return from, err
}

// buildBinaries runs upstream's make rules. KUBE_GIT_VERSION_FILE is their own way to
// give the version.
func buildBinaries(ctx context.Context, t *tree.Tree, wanted []string, unpatched bool) error {
	if len(wanted) == 0 {
		wanted = project.Binaries
	}
	for _, name := range wanted {
		if !slices.Contains(project.Binaries, name) {
			return fmt.Errorf("unknown binary %q; known are %s", name, binaryList())
		}
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	var from source
	if unpatched {
		from, err = upstreamSource(ctx, t, s)
	} else {
		from, err = patchedSource(ctx, t)
	}
	if err != nil {
		return err
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(t.Release, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	bin := filepath.Join(filepath.Dir(t.Dir), from.bin)
	versionFile := bin + ".version"
	content := fmt.Sprintf("KUBE_GIT_COMMIT='%s'\nKUBE_GIT_TREE_STATE='%s'\nKUBE_GIT_VERSION='%s'\nKUBE_GIT_MAJOR='%s'\nKUBE_GIT_MINOR='%s'\n", from.commit, from.state, from.version, major, minor)
	if err := disk.Write(versionFile, []byte(content)); err != nil {
		return err
	}
	toolchain, err := toolchain(ctx, t)
	if err != nil {
		return err
	}
	caches, err := goCaches(ctx)
	if err != nil {
		return err
	}
	what := make([]string, len(wanted))
	for i, name := range wanted {
		what[i] = "cmd/" + name
	}
	t.Say("building %s as %s", strings.Join(wanted, ", "), from.version)
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "WHAT="+strings.Join(what, " "))
	cmd.Dir = from.dir
	cmd.Env = append(withoutMake(append(os.Environ(), toolchain...)), caches...)
	cmd.Env = append(cmd.Env,
		"KUBE_GIT_VERSION_FILE="+versionFile,
		"KUBE_STATIC_OVERRIDES="+project.StaticBinary,
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(s.Released.Unix(), 10),
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -v"),
	)
	if err := follow(t, cmd, "compiled"); err != nil {
		return fmt.Errorf("build of %s: %w", from.version, err)
	}
	for _, name := range wanted {
		built := filepath.Join(from.dir, "_output", "local", "bin", runtime.GOOS, runtime.GOARCH, name)
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

// writeSums writes SHA256SUMS beside the binaries, as sha256sum --check reads it, with
// the version and the toolchain that made them. The same commit gives the same bytes
// in any folder.
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
	for _, name := range project.Binaries {
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

// goCaches names go's caches, because upstream's scripts would use one in each tree,
// and compile everything again.
func goCaches(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	build, modules, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return []string{"GOCACHE=" + build, "GOMODCACHE=" + modules}, nil
}

// withoutMake drops what a make above us would tell the tree's make: its flags and
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
	// A name of its own, since a binary that runs can not be written to.
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

// toolchain returns the environment that makes the tree build with the Go version
// that upstream names in .go-version, or, where that can not be had, with the
// installed one.
func toolchain(ctx context.Context, t *tree.Tree) ([]string, error) {
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
		t.Say("Go %s, which upstream released with, can not be had (%s); using the installed one", strings.TrimSpace(string(data)), git.FirstLine(string(out)))
		return []string{"GOTOOLCHAIN=local", "FORCE_HOST_GO=y"}, nil
	}
	return env, nil
}

// follow runs a command of which each line is a package done, and shows how far it
// is. Lines that are not packages are shown as they are, and all of them if it
// fails.
func follow(t *tree.Tree, cmd *exec.Cmd, done string) error {
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	// make starts go, and go compilers: an interrupt ends them all.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
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
	terminal := isTerminal(os.Stderr)
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
		os.Stderr.Write(other.Bytes())
		return err
	}
	t.Say("%d packages %s in %s", count, done, time.Since(start).Round(time.Second))
	return nil
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// isPackage tells the import paths that `go build -v` prints from other output.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:+") && (strings.Contains(line, "/") || strings.ToLower(line) == line)
}

// touchedPackages returns the packages that the series changes, as folders of the tree.
func touchedPackages(t *tree.Tree) ([]string, error) {
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, p := range patches {
		for _, file := range p.Files {
			folders = append(folders, "./"+filepath.Dir(file.Path))
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders), nil
}
