package main

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

var onUpstream = flag.Bool("upstream", false, "rebase on real releases, which are downloaded")

// addRelease makes the tree of another release, whose files are given, and pins it.
func (c checkout) addRelease(name string, files map[string]string) *tree {
	c.Helper()
	t := treeOf(c.project, name)
	c.write("build/releases/"+name+"/go.mod", "module m\n\ngo 1.26.0\n\nrequire "+project.UpstreamModule+" "+name+"\n")
	c.write("build/releases/"+name+"/go.sum", project.UpstreamModule+" "+name+" h1:x=\n")
	root := "_output/" + name + "/kubernetes/"
	for path, content := range files {
		c.write(root+path, content)
	}
	c.write(root+"go.work", "go 1.26.0\n\nuse .\n")
	c.write(root+"go.work.sum", "x\n")
	c.write(root+"go.mod", "module "+project.UpstreamModule+"\n")
	g := t.git()
	for _, args := range [][]string{{"init", "-q", "-b", "carry", "."}, {"add", "--all"}} {
		_, err := g.Run(c.Context(), args...)
		c.must(err)
	}
	id, err := g.Run(c.Context(), "write-tree")
	c.must(err)
	released := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	commit, err := g.CommitTree(c.Context(), git.Commit{Tree: id, Message: "upstream\n", By: project.Identity, Authored: released, Committed: released})
	c.must(err)
	_, err = g.Run(c.Context(), "reset", "-q", "--hard", commit)
	c.must(err)
	want, err := pins.Read(c.project, name)
	c.must(err)
	c.must(t.save(state{Pins: pinsKey(want), Released: released, Upstream: commit, Head: commit}))
	return t
}

// rebaseTo goes on after the pins, which only upstream can give.
func (c checkout) rebaseTo(name string, files map[string]string) (*tree, error) {
	c.Helper()
	before, err := mayChange(c.project)
	c.must(err)
	known, err := c.project.Releases()
	c.must(err)
	t := c.addRelease(name, files)
	r := &rebase{From: nearest(name, known), Before: before, NoBuild: true}
	c.must(t.saveRebase(r))
	return t, t.goOn(c.Context(), r)
}

func TestRebase(t *testing.T) {
	swapped := strings.Replace(numbered20("a"), "ab\n", "ab2\n", 1)
	for name, test := range map[string]struct {
		release string
		a, b    string
		// want are patch files that are new or have changed.
		want []string
	}{
		"an older release, where all applies":             {"v1.36.3", numbered20("a"), numbered20("b"), nil},
		"its context differs far away":                    {"v1.36.3", strings.Replace(numbered20("a"), "at\n", "x\n", 1), numbered20("b"), nil},
		"its context differs: a three-way merge":          {"v1.36.3", swapped, numbered20("b"), []string{"patches/v1.36/kubelet-call-a.patch"}},
		"another patch release of a known minor":          {"v1.37.1", numbered20("a"), numbered20("b"), nil},
		"upstream has the change":                         {"v1.36.3", strings.Replace(numbered20("a"), "ac\n", "ac\nmanaged.A()\n", 1), numbered20("b"), []string{"patches/v1.36.3/dropped"}},
		"a newer release has the change":                  {"v1.38.0", strings.Replace(numbered20("a"), "ac\n", "ac\nmanaged.A()\n", 1), numbered20("b"), []string{"patches/v1.38.0/dropped"}},
		"a newer release: the common patch does for both": {"v1.38.0", swapped, numbered20("b"), []string{"patches/kubelet-call-a.patch"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withTwoHooks(t)
			before, err := mayChange(c.project)
			c.must(err)
			_, err = c.rebaseTo(test.release, map[string]string{"pkg/a.go": test.a, "pkg/b.go": test.b})
			c.must(err)
			after, err := mayChange(c.project)
			c.must(err)
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
				tree := treeOf(c.project, release)
				c.must(tree.update(t.Context()))
				content := c.read("_output/" + release + "/kubernetes/pkg/a.go")
				if strings.Count(content, "managed.A()") != 1 {
					t.Errorf("%s has\n%s", release, content)
				}
			}
		})
	}
}

func TestARebaseStopsAtAConflict(t *testing.T) {
	c := withTwoHooks(t)
	before, err := mayChange(c.project)
	c.must(err)
	replaced := strings.Replace(numbered20("a"), "ac\nad\n", "new\n", 1)
	files := map[string]string{"pkg/a.go": replaced, "pkg/b.go": numbered20("b")}
	tree, err := c.rebaseTo("v1.36.3", files)
	for _, want := range []string{"patches/kubelet-call-a.patch does not apply to v1.36.3", "pkg/a.go:", "<<<<<<<", "new", "managed.A()", ">>>>>>>", "carry rebase v1.36.3 --continue", "--upstream-git"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the error is %v, want %s in it", err, want)
		}
	}
	if err := tree.continueRebase(t.Context(), false, ""); err == nil || !strings.Contains(err.Error(), "not resolved") {
		t.Errorf("it went on unresolved: %v", err)
	}
	t.Run("abort leaves everything as it was", func(t *testing.T) {
		c.must(tree.abortRebase(t.Context()))
		after, err := mayChange(c.project)
		c.must(err)
		for path := range after {
			if !bytes.Equal(after[path], before[path]) {
				t.Errorf("%s has changed", path)
			}
		}
		if len(after) != len(before) {
			t.Errorf("there are %d files, and were %d", len(after), len(before))
		}
		for _, path := range []string{"build/releases/v1.36.3", "_output/v1.36.3/kubernetes", "patches/v1.36"} {
			if _, err := os.Stat(c.project.Path(path)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", path)
			}
		}
		if err := tree.abortRebase(t.Context()); err == nil {
			t.Error("there was something to abort again")
		}
	})
	t.Run("continue", func(t *testing.T) {
		tree, err := c.rebaseTo("v1.36.3", files)
		if err == nil {
			t.Fatal("it went through")
		}
		path := "_output/v1.36.3/kubernetes/pkg/a.go"
		c.write(path, strings.Replace(replaced, "new\n", "new\nmanaged.A()\n", 1))
		_, err = tree.git().Run(t.Context(), "add", "pkg/a.go")
		c.must(err)
		c.must(tree.continueRebase(t.Context(), false, ""))
		if override := c.read("patches/v1.36/kubelet-call-a.patch"); !strings.Contains(override, "+managed.A()\n") {
			t.Errorf("the override is\n%s", override)
		}
		if under, err := tree.loadRebase(); under != nil || err != nil {
			t.Errorf("the rebase goes on: %v, %v", under, err)
		}
	})
}

func TestRebaseRefusesMistakes(t *testing.T) {
	c := withTwoHooks(t)
	if err := c.tree.startRebase(t.Context(), true, ""); err == nil || !strings.Contains(err.Error(), "known already") {
		t.Error("a known release:", err)
	}
	other := treeOf(c.project, "v1.36.3")
	for what, err := range map[string]error{"continue": other.continueRebase(t.Context(), false, ""), "abort": other.abortRebase(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "no rebase to v1.36.3") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := pins.Write(t.Context(), c.project, "1.36"); err == nil || !strings.Contains(err.Error(), `"1.36" is not a release`) {
		t.Error("no release:", err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"v1.37.0", "v1.36.3", "v1.35.4", "v1.34.4", "v1.33.13"}
	for release, want := range map[string]string{"v1.36.1": "v1.36.3", "v1.34.0": "v1.34.4", "v1.38.0": "v1.37.0", "v1.32.1": "v1.33.13", "v1.37.0-rc.1": "v1.37.0"} {
		if got := nearest(release, known); got != want {
			t.Errorf("next to %s is %s, want %s", release, got, want)
		}
	}
}

func TestAHunkMustFitOnceAndIntoItsDeclaration(t *testing.T) {
	c := newCheckout(t)
	c.must(c.tree.update(t.Context()))
	c.git("rm", "-q", "pkg/b.go")
	c.write("_output/"+release+"/kubernetes/pkg/a.go", "func one() {\n\tx\n\ty\n}\n\nfunc two() {\n\tz\n}\n")
	c.git("commit", "-q", "-a", "-m", "x")
	head := c.git("rev-parse", "HEAD")
	for name, test := range map[string]struct{ hunk, want string }{
		"fits":                {"@@ -2,1 +2,2 @@ func one(more int) {\n+\tmanaged.A()\n \tx\n", ""},
		"another declaration": {"@@ -7,1 +7,2 @@ func one() {\n+\tmanaged.A()\n \tz\n", `stands in "one", but fits into pkg/a.go of v1.37.0, line 7, in "two"`},
		"two places":          {"@@ -4,1 +4,2 @@ func one() {\n+\tmanaged.A()\n }\n", "fits into 2 places of pkg/a.go"},
	} {
		p, err := patch.Parse("patches/p.patch", []byte("Subject: [PATCH] s\n\nw\n---\ndiff --git a/pkg/a.go b/pkg/a.go\n--- a/pkg/a.go\n+++ b/pkg/a.go\n"+test.hunk))
		c.must(err)
		if err := c.tree.place(t.Context(), p, head); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestBudget(t *testing.T) {
	c := withTwoHooks(t)
	c.write("patches/budget", "# The most.\npatches 2\nlines-added 1\nfiles 3\n")
	findings, err := overBudget(c.project)
	c.must(err)
	if len(findings) != 2 || findings[0].String() != "patches/budget:3: lines-added is 2 in v1.37.0, and may be 1" || findings[1].line != 4 {
		t.Errorf("findings are %v", findings)
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
	c := checkout{t, project.Checkout{Dir: t.TempDir()}, nil}
	for _, path := range []string{"go.mod", "go.sum", "patches", filepath.Join(project.ReleasesDir), filepath.Join("staging", "src", project.CoreModule)} {
		if info, err := os.Stat(here.Path(path)); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			c.must(os.CopyFS(c.project.Path(path), os.DirFS(here.Path(path))))
		} else {
			c.write(path, string(must(os.ReadFile(here.Path(path)))))
		}
	}
	all := func() map[string]string {
		files := map[string]string{}
		may, err := mayChange(c.project)
		c.must(err)
		for path, content := range may {
			files[path] = string(content)
		}
		releases, err := filepath.Glob(c.project.Path(project.ReleasesDir, "*", "*"))
		c.must(err)
		for _, path := range releases {
			files[strings.TrimPrefix(path, c.project.Dir+"/")] = string(must(os.ReadFile(path)))
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
	before := all()
	c.must(os.RemoveAll(c.project.Path(project.ReleasesDir, "v1.36.3")))
	c.must(treeOf(c.project, "v1.36.3").startRebase(t.Context(), true, ""))
	expectSame(before)

	for _, release := range []string{"v1.36.1", "v1.34.0", "v1.34.2"} {
		c.must(treeOf(c.project, release).startRebase(t.Context(), true, ""))
		pins := filepath.Join(project.ReleasesDir, release)
		expectSame(before, filepath.Join(pins, "go.mod"), filepath.Join(pins, "go.sum"))
		c.must(os.RemoveAll(c.project.Path(pins)))
		c.must(os.RemoveAll(filepath.Dir(treeOf(c.project, release).dir)))
	}

	// Without its override, a release in which the hooked line itself differs is a conflict.
	const name = "kubelet-fit-the-cpu-manager-s-checkpoint-to-changed-pools.patch"
	for _, path := range []string{"build/releases/v1.34.4", "build/releases/v1.33.13", "patches/v1.34", "patches/v1.33"} {
		c.must(os.RemoveAll(c.project.Path(path)))
	}
	without := all()
	tree := treeOf(c.project, "v1.34.4")
	c.must(os.RemoveAll(filepath.Dir(tree.dir)))
	err = tree.startRebase(t.Context(), true, "")
	for _, want := range []string{"patches/" + name, "pkg/kubelet/cm/cpumanager/cpu_manager.go:", "err = m.policy.Start(m.state)", "managed.StartPolicy("} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the rebase ended with %v, want %s", err, want)
		}
	}
	c.must(tree.abortRebase(t.Context()))
	expectSame(without)
	if err := tree.startRebase(t.Context(), true, ""); err == nil {
		t.Fatal("there was no conflict the second time")
	}
	file := filepath.Join(tree.dir, "pkg/kubelet/cm/cpumanager/cpu_manager.go")
	var resolved []string
	side := ""
	for line := range strings.SplitSeq(string(must(os.ReadFile(file))), "\n") {
		if mark, _, _ := strings.Cut(line, " "); slices.Contains([]string{"<<<<<<<", "=======", ">>>>>>>"}, mark) {
			side = mark
		} else if side != "<<<<<<<" {
			resolved = append(resolved, line)
		}
	}
	c.must(os.WriteFile(file, []byte(strings.Join(resolved, "\n")), 0o644))
	_, err = tree.git().Run(t.Context(), "add", "--all")
	c.must(err)
	c.must(tree.continueRebase(t.Context(), false, ""))
	if got, want := c.read("patches/v1.34/"+name), before["patches/v1.34/"+name]; got != want {
		t.Errorf("the override is\n%s\nand was\n%s", got, want)
	}
	// The next one takes the override of its neighbour.
	c.must(treeOf(c.project, "v1.33.13").startRebase(t.Context(), true, ""))
	expectSame(before)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
