// SPDX-License-Identifier: Apache-2.0

package rebase

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

var onUpstream = flag.Bool("upstream", false, "rebase on real releases, which are downloaded")

// rebaseTo goes on after the pins, which only upstream can give.
func rebaseTo(c treetest.Checkout, name string, files map[string]string) (*tree.Tree, error) {
	c.Helper()
	before, err := mayChange(c.Project)
	c.Must(err)
	known, err := c.Project.Releases()
	c.Must(err)
	t := c.AddRelease(name, files)
	r := &rebase{From: nearest(name, known), kind: forGood, Before: before, Options: Options{AtEnd: Nothing}}
	c.Must(save(t, r))
	return t, goOn(c.Context(), t, r)
}

func TestRebase(t *testing.T) {
	swapped := strings.Replace(treetest.Numbered("a"), "ab\n", "ab2\n", 1)
	for name, test := range map[string]struct {
		release string
		a, b    string
		// want are patch files that are new or have changed.
		want []string
	}{
		"an older release, where all applies":             {"v1.36.3", treetest.Numbered("a"), treetest.Numbered("b"), nil},
		"its context differs far away":                    {"v1.36.3", strings.Replace(treetest.Numbered("a"), "at\n", "x\n", 1), treetest.Numbered("b"), nil},
		"its context differs: a three-way merge":          {"v1.36.3", swapped, treetest.Numbered("b"), []string{"patches/v1.36/kubelet-call-a.patch"}},
		"another patch release of a known minor":          {"v1.37.1", treetest.Numbered("a"), treetest.Numbered("b"), nil},
		"upstream has the change":                         {"v1.36.3", strings.Replace(treetest.Numbered("a"), "ac\n", "ac\nmanaged.A()\n", 1), treetest.Numbered("b"), []string{"patches/v1.36.3/dropped"}},
		"a newer release has the change":                  {"v1.38.0", strings.Replace(treetest.Numbered("a"), "ac\n", "ac\nmanaged.A()\n", 1), treetest.Numbered("b"), []string{"patches/v1.38.0/dropped"}},
		"a newer release: the common patch does for both": {"v1.38.0", swapped, treetest.Numbered("b"), []string{"patches/kubelet-call-a.patch"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := treetest.WithTwoHooks(t)
			before, err := mayChange(c.Project)
			c.Must(err)
			_, err = rebaseTo(c, test.release, map[string]string{"pkg/a.go": test.a, "pkg/b.go": test.b})
			c.Must(err)
			after, err := mayChange(c.Project)
			c.Must(err)
			var changed []string
			for path, content := range after {
				if strings.HasPrefix(path, "patches/") && !bytes.Equal(before[path], content) {
					changed = append(changed, path)
				}
			}
			slices.Sort(changed)
			if !slices.Equal(changed, test.want) {
				t.Errorf("the files %v have changed, want %v", changed, test.want)
			}
			// Both releases can be made from what is there now.
			for _, release := range []string{test.release, "v1.37.0"} {
				c.Must(tree.Of(c.Project, release).Update(t.Context()))
				content := c.Read(treetest.Root + "pkg/a.go")
				if strings.Count(content, "managed.A()") != 1 {
					t.Errorf("%s has\n%s", release, content)
				}
			}
		})
	}
}

func TestARebaseStopsAtAConflict(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	before, err := mayChange(c.Project)
	c.Must(err)
	replaced := strings.Replace(treetest.Numbered("a"), "ac\nad\n", "new\n", 1)
	files := map[string]string{"pkg/a.go": replaced, "pkg/b.go": treetest.Numbered("b")}
	other, err := rebaseTo(c, "v1.36.3", files)
	for _, want := range []string{"patches/kubelet-call-a.patch does not apply to v1.36.3", "pkg/a.go:", "<<<<<<<", "new", "managed.A()", ">>>>>>>", "carry rebase v1.36.3 --continue", "--upstream-git"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the error is %v, want %s in it", err, want)
		}
	}
	if err := Continue(t.Context(), other, Options{}); err == nil || !strings.Contains(err.Error(), "not resolved") {
		t.Errorf("it went on unresolved: %v", err)
	}
	t.Run("abort leaves everything as it was, and a copy of what people have done", func(t *testing.T) {
		const work = "patches/new-hook.patch"
		c.Write(work, "my work")
		c.Must(Abort(t.Context(), other))
		copies, err := filepath.Glob(c.Project.Path("_output/v1.36.3.aborted/*/" + work))
		c.Must(err)
		if len(copies) != 1 {
			t.Fatalf("the copies are %q, want one", copies)
		}
		if kept, err := os.ReadFile(copies[0]); err != nil || string(kept) != "my work" {
			t.Errorf("the copy is %q (%v)", kept, err)
		}
		after, err := mayChange(c.Project)
		c.Must(err)
		for path := range after {
			if !bytes.Equal(after[path], before[path]) {
				t.Errorf("%s has changed", path)
			}
		}
		if len(after) != len(before) {
			t.Errorf("there are %d files, and were %d", len(after), len(before))
		}
		for _, path := range []string{"build/releases/v1.36.3", "_output/v1.36.3/kubernetes", "patches/v1.36"} {
			if _, err := os.Stat(c.Project.Path(path)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", path)
			}
		}
		if err := Abort(t.Context(), other); err == nil {
			t.Error("there was something to abort again")
		}
	})
	t.Run("continue", func(t *testing.T) {
		other, err := rebaseTo(c, "v1.36.3", files)
		if err == nil {
			t.Fatal("it went through")
		}
		path := "_output/v1.36.3/kubernetes/pkg/a.go"
		c.Write(path, strings.Replace(replaced, "new\n", "new\nmanaged.A()\n", 1))
		_, err = other.Git().Run(t.Context(), "add", "pkg/a.go")
		c.Must(err)
		// A patch that has come between must not cost what was resolved.
		const between = "patches/v1.36/kubelet-call-a.patch"
		c.Write(between, c.Read("patches/kubelet-call-a.patch"))
		treetest.ExpectError(t, Continue(t.Context(), other, Options{}), "patches/kubelet-call-a.patch, but "+between+" has taken its place")
		c.Must(os.RemoveAll(filepath.Dir(c.Project.Path(between))))
		c.Must(Continue(t.Context(), other, Options{}))
		if override := c.Read("patches/v1.36/kubelet-call-a.patch"); !strings.Contains(override, "+managed.A()\n") {
			t.Errorf("the override is\n%s", override)
		}
		if under, err := load(other); under != nil || err != nil {
			t.Errorf("the rebase goes on: %v, %v", under, err)
		}
	})
}

func TestRebaseRefusesMistakes(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	if err := Start(t.Context(), c.Tree, Options{AtEnd: Nothing}); err == nil || !strings.Contains(err.Error(), "already known") {
		t.Error("a known release:", err)
	}
	other := tree.Of(c.Project, "v1.36.3")
	for what, err := range map[string]error{"continue": Continue(t.Context(), other, Options{}), "abort": Abort(t.Context(), other)} {
		if err == nil || !strings.Contains(err.Error(), "no rebase to v1.36.3") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestARebaseStopsWhenAModuleThatABinaryNeedsCannotBeHad(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*treetest.Source)
		want   []string
	}{
		"a newer release can be downloaded": {
			func(s *treetest.Source) {
				s.Publish("v1.36.4", nil)
				s.Publish("v1.36.7", nil)
				s.Publish("v1.36.8", nil)
				s.Refuse("k8s.io/sample-controller", "v0.36.7")
				s.Refuse("k8s.io/api", "v0.36.8")
			},
			[]string{"k8s.io/mount-utils v0.36.6: no checksum is available", "newest release of v1.36 that can be downloaded is v1.36.7"},
		},
		"only an older release can be downloaded": {
			func(s *treetest.Source) { s.Publish("v1.36.4", nil) },
			[]string{"k8s.io/mount-utils v0.36.6: no checksum is available", "newest release of v1.36 that can be downloaded is v1.36.4"},
		},
		"no other release can be downloaded": {
			func(*treetest.Source) {},
			[]string{"k8s.io/mount-utils v0.36.6: no checksum is available", "No release of v1.36 can be downloaded"},
		},
		"upstream's module cannot be downloaded either": {
			func(s *treetest.Source) { s.Refuse("k8s.io/kubernetes", "v1.36.6") },
			[]string{"k8s.io/kubernetes v1.36.6: 403 Forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := treetest.WithTwoHooks(t), treetest.NewSource(t)
			s.Publish("v1.36.6", nil)
			s.Forget("k8s.io/mount-utils", "v0.36.6")
			test.change(s)
			before := everything(c)
			other := tree.Of(c.Project, "v1.36.6")
			err := other.Locked(t.Context(), func() error { return Start(t.Context(), other, Options{AtEnd: Nothing}) })
			treetest.ExpectError(t, err, append(test.want, "v1.36.6 cannot be downloaded; nothing was changed")...)
			if after := everything(c); !slices.Equal(after, before) {
				t.Errorf("there are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// everything lists the files and directories of a checkout, but for what git keeps.
func everything(c treetest.Checkout) (paths []string) {
	c.Must(filepath.WalkDir(c.Project.Dir, func(path string, entry fs.DirEntry, err error) error {
		if entry.Name() == ".git" {
			return fs.SkipDir
		}
		paths = append(paths, path)
		return err
	}))
	return paths
}

func TestARebaseLeavesOutWhatNoBinaryNeeds(t *testing.T) {
	c, s := treetest.WithTwoHooks(t), treetest.NewSource(t)
	s.Publish("v1.36.6", nil)
	s.Refuse("k8s.io/sample-controller", "v0.36.6")
	other := tree.Of(c.Project, "v1.36.6")
	c.Must(Start(t.Context(), other, Options{AtEnd: Nothing}))
	work := c.Read("_output/v1.36.6/kubernetes/go.work")
	if strings.Contains(work, "sample-controller") || !strings.Contains(work, "mount-utils") {
		t.Errorf("go.work is\n%s", work)
	}
	if !strings.Contains(c.Read("_output/v1.36.6/kubernetes/pkg/a.go"), "managed.A()") {
		t.Error("the series is not applied")
	}
}

func TestRebasesUnderWayAreFound(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	for _, want := range [][]string{nil, {"v1.36.3"}, {"v1.36.3", "v1.36.4"}} {
		if len(want) > 0 {
			c.Must(save(tree.Of(c.Project, want[len(want)-1]), &rebase{}))
		}
		if got, err := Releases(c.Project); err != nil || !slices.Equal(got, want) {
			t.Errorf("under way are %v, want %v: %v", got, want, err)
		}
	}
}

// What type-checks the core knows its Go.
func TestModulesThatReadGoAreRaisedWithTheCore(t *testing.T) {
	c := treetest.New(t)
	module := func(dir, version string) { c.Write(filepath.Join(dir, "go.mod"), "module m\n\ngo "+version+"\n") }
	module(project.ModuleDirs[project.CoreModule], "1.27.0")
	module(project.ToolDir, "1.26.0")
	module(filepath.Join("build", "lint"), "1.27.1")
	c.Must(raiseGo(c.Project))
	for dir, want := range map[string]string{project.ToolDir: "go 1.27.0\n", filepath.Join("build", "lint"): "go 1.27.1\n"} {
		if got := c.Read(filepath.Join(dir, "go.mod")); !strings.Contains(got, want) {
			t.Errorf("%s/go.mod is\n%s\nwant %s", dir, got, want)
		}
	}
	c.Write(filepath.Join(project.ToolDir, "go.mod"), "module m\n")
	treetest.ExpectError(t, raiseGo(c.Project), project.ToolDir+"/go.mod does not name its Go version")
}

func TestNearest(t *testing.T) {
	known := []string{"v1.37.0", "v1.36.3", "v1.35.4", "v1.34.4", "v1.33.13"}
	for release, want := range map[string]string{"v1.36.1": "v1.36.3", "v1.34.0": "v1.34.4", "v1.38.0": "v1.37.0", "v1.32.1": "v1.33.13", "v1.37.0-rc.1": "v1.37.0"} {
		if got := nearest(release, known); got != want {
			t.Errorf("next to %s is %s, want %s", release, got, want)
		}
	}
}

// TestRebaseOnUpstream deletes the support for releases and brings it back, and adds
// others, with no edit by hand but where upstream and the series are really at odds.
func TestRebaseOnUpstream(t *testing.T) {
	if !*onUpstream {
		t.Skip("make rebase-test runs it: it downloads releases")
	}
	here, err := project.Find()
	if err != nil {
		t.Fatal(err)
	}
	c := treetest.Checkout{T: t, Project: project.Checkout{Dir: t.TempDir()}}
	for _, path := range []string{"go.mod", "go.sum", "pkg", "openshift-kube-apiserver", "patches", filepath.Join(project.ReleasesDir), filepath.Join("staging", "src", project.CoreModule)} {
		if info, err := os.Stat(here.Path(path)); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			c.Must(os.CopyFS(c.Project.Path(path), os.DirFS(here.Path(path))))
		} else {
			c.Write(path, string(must(os.ReadFile(here.Path(path)))))
		}
	}
	all := func() map[string]string {
		files := map[string]string{}
		may, err := mayChange(c.Project)
		c.Must(err)
		for path, content := range may {
			files[path] = string(content)
		}
		releases, err := filepath.Glob(c.Project.Path(project.ReleasesDir, "*", "*"))
		c.Must(err)
		for _, path := range releases {
			files[strings.TrimPrefix(path, c.Project.Dir+"/")] = string(must(os.ReadFile(path)))
		}
		return files
	}
	expectSame := func(want map[string]string, but ...string) {
		t.Helper()
		got := all()
		for path := range got {
			if want[path] != got[path] && !slices.Contains(but, path) {
				t.Errorf("%s is\n%s\nand was\n%s", path, got[path], want[path])
			}
		}
		for path := range want {
			if _, ok := got[path]; !ok {
				t.Errorf("%s is gone", path)
			}
		}
	}
	releases := must(c.Project.Releases())
	supported := func(minor string) string {
		at := slices.IndexFunc(releases, func(release string) bool { return strings.HasPrefix(release, minor+".") })
		if at < 0 {
			t.Fatalf("no release of %s is supported, but %v", minor, releases)
		}
		return releases[at]
	}
	v133, v134, v136 := supported("v1.33"), supported("v1.34"), supported("v1.36")
	before := all()
	c.Must(os.RemoveAll(c.Project.Path(project.ReleasesDir, v136)))
	c.Must(Start(t.Context(), tree.Of(c.Project, v136), Options{AtEnd: Nothing}))
	expectSame(before)
	expectUnneeded(c, tree.Of(c.Project, v136))

	for _, release := range []string{"v1.36.1", "v1.34.0", "v1.34.2"} {
		c.Must(Start(t.Context(), tree.Of(c.Project, release), Options{AtEnd: Nothing}))
		pins := filepath.Join(project.ReleasesDir, release)
		expectSame(before, filepath.Join(pins, "go.mod"), filepath.Join(pins, "go.sum"))
		c.Must(os.RemoveAll(c.Project.Path(pins)))
		c.Must(os.RemoveAll(filepath.Dir(tree.Of(c.Project, release).Dir)))
	}

	// Without its override, a release in which the hooked line itself differs is a conflict.
	const name = "kubelet-fit-the-cpu-manager-s-checkpoint-to-changed-pools.patch"
	for _, path := range []string{"build/releases/" + v134, "build/releases/" + v133, "patches/v1.34", "patches/v1.33"} {
		c.Must(os.RemoveAll(c.Project.Path(path)))
	}
	without := all()
	other := tree.Of(c.Project, v134)
	c.Must(os.RemoveAll(filepath.Dir(other.Dir)))
	err = Start(t.Context(), other, Options{AtEnd: Nothing})
	for _, want := range []string{"patches/" + name, "pkg/kubelet/cm/cpumanager/cpu_manager.go:", "err = m.policy.Start(m.state)", "managed.StartPolicy("} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the rebase ended with %v, want %s", err, want)
		}
	}
	c.Must(Abort(t.Context(), other))
	expectSame(without)
	if err := Start(t.Context(), other, Options{AtEnd: Nothing}); err == nil {
		t.Fatal("there was no conflict the second time")
	}
	file := filepath.Join(other.Dir, "pkg/kubelet/cm/cpumanager/cpu_manager.go")
	var resolved []string
	side := ""
	for line := range strings.SplitSeq(string(must(os.ReadFile(file))), "\n") {
		if mark, _, _ := strings.Cut(line, " "); slices.Contains([]string{"<<<<<<<", "=======", ">>>>>>>"}, mark) {
			side = mark
		} else if side != "<<<<<<<" {
			resolved = append(resolved, line)
		}
	}
	c.Must(os.WriteFile(file, []byte(strings.Join(resolved, "\n")), 0o644))
	_, err = other.Git().Run(t.Context(), "add", "--all")
	c.Must(err)
	c.Must(Continue(t.Context(), other, Options{}))
	if got, want := c.Read("patches/v1.34/"+name), before["patches/v1.34/"+name]; got != want {
		t.Errorf("the override is\n%s\nand was\n%s", got, want)
	}
	// The next one takes the override of its neighbour.
	c.Must(Start(t.Context(), tree.Of(c.Project, v133), Options{AtEnd: Nothing}))
	expectSame(before)
}

// expectUnneeded fails the test if a binary has a package of a module that a release can do
// without.
func expectUnneeded(c treetest.Checkout, t *tree.Tree) {
	c.Helper()
	args := []string{"list", "-deps", "-f={{with .Module}}{{.Path}}{{end}}"}
	for _, binary := range project.Binaries {
		args = append(args, "./"+project.SourceDir(binary))
	}
	cmd := exec.CommandContext(c.Context(), "go", args...)
	cmd.Dir, cmd.Env = t.Dir, must(build.Env(c.Context(), t))
	var said strings.Builder
	cmd.Stderr = &said
	output, err := cmd.Output()
	if err != nil {
		c.Fatalf("go list: %v: %s", err, said.String())
	}
	modules := strings.Fields(string(output))
	if !slices.Contains(modules, "k8s.io/api") {
		c.Errorf("the binaries have packages of %v alone", modules)
	}
	for _, unneeded := range project.UnneededModules {
		if slices.Contains(modules, unneeded) {
			c.Errorf("a binary has a package of %s", unneeded)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
