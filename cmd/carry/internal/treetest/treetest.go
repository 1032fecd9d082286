// SPDX-License-Identifier: Apache-2.0

// Package treetest makes checkouts for tests: each has a tree of small upstream files,
// made as carry would but for the download. It must know no command of carry.
package treetest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Release is the one that a new checkout knows, and Root its tree's directory.
const (
	Release = "v1.37.0"
	Root    = "_output/" + Release + "/kubernetes/"
)

// Checkout is a project with the tree of Release.
type Checkout struct {
	*testing.T
	Project project.Checkout
	Tree    *tree.Tree
}

// New makes a checkout whose series is empty. Its tree may have more upstream files.
func New(t *testing.T, more ...map[string]string) Checkout {
	t.Helper()
	p := project.Checkout{Dir: t.TempDir()}
	c := Checkout{T: t, Project: p}
	c.Write("go.mod", "module "+project.RootModule+"\n")
	core := project.ModuleDirs[project.CoreModule]
	c.Write(core+"/doc.go", "package partition\n")
	c.Write(core+"/go.mod", "module "+project.CoreModule+"\n\ngo 1.26.0\n")
	c.Write("patches/series", "# The order.\n")
	files := map[string]string{"pkg/a.go": Numbered("a"), "pkg/b.go": Numbered("b")}
	for _, these := range more {
		maps.Copy(files, these)
	}
	c.Tree = c.AddRelease(Release, files)
	return c
}

// WithTwoHooks makes a checkout that has exported two patches.
func WithTwoHooks(t *testing.T) Checkout {
	t.Helper()
	c := New(t)
	c.Must(c.Tree.Update(t.Context()))
	c.Hook("a.go", "ac", "ac\nmanaged.A()", "kubelet: call A")
	c.Hook("b.go", "bc", "bc\nmanaged.B()", "kubelet: call B")
	c.Must(c.Tree.Export(t.Context()))
	return c
}

// AddRelease makes the tree of a release with the given files, and pins it.
func (c Checkout) AddRelease(name string, files map[string]string) *tree.Tree {
	c.Helper()
	t := tree.Of(c.Project, name)
	c.Write("build/releases/"+name+"/go.mod", "module m\n\ngo 1.26.0\n\nrequire "+project.UpstreamModule+" "+name+"\n")
	c.Write("build/releases/"+name+"/go.sum", project.UpstreamModule+" "+name+" h1:x=\n")
	root := "_output/" + name + "/kubernetes/"
	for path, content := range files {
		c.Write(root+path, content)
	}
	if files["go.work"] == "" {
		c.Write(root+"go.work", "go 1.26.0\n\nuse .\n")
	}
	c.Write(root+"go.work.sum", "x\n")
	c.Write(root+"go.mod", "module "+project.UpstreamModule+"\n\ngo 1.26.0\n")
	g := t.Git()
	for _, args := range [][]string{{"init", "-q", "-b", "carry", "."}, {"add", "--all"}} {
		_, err := g.Run(c.Context(), args...)
		c.Must(err)
	}
	id, err := g.Run(c.Context(), "write-tree")
	c.Must(err)
	released := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	commit, err := g.CommitTree(c.Context(), git.Commit{Tree: id, Message: "upstream\n", By: project.Identity, Authored: released, Committed: released})
	c.Must(err)
	for _, args := range [][]string{{"reset", "-q", "--hard", commit}, {"tag", name}} {
		_, err = g.Run(c.Context(), args...)
		c.Must(err)
	}
	want, err := pins.Read(c.Project, name)
	c.Must(err)
	c.Must(t.Save(tree.State{Pins: tree.PinsKey(want), Released: released, Upstream: commit, Head: commit}))
	return t
}

// Numbered is a file of twenty lines: the name and a letter each.
func Numbered(name string) string {
	var text strings.Builder
	for i := range 20 {
		text.WriteString(name + string(rune('a'+i)) + "\n")
	}
	return text.String()
}

// Must fails the test if there is an error.
func (c Checkout) Must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// Write writes a file of the checkout.
func (c Checkout) Write(path, content string) {
	c.Helper()
	path = c.Project.Path(path)
	c.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	c.Must(os.WriteFile(path, []byte(content), 0o644))
}

// Read reads a file of the checkout.
func (c Checkout) Read(path string) string {
	c.Helper()
	data, err := os.ReadFile(c.Project.Path(path))
	c.Must(err)
	return string(data)
}

// Git runs git in the tree, as a developer would.
func (c Checkout) Git(args ...string) string {
	c.Helper()
	out, err := c.Tree.Git().With("GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=d@e", "GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=d@e").Run(context.Background(), args...)
	c.Must(err)
	return out
}

// Edit replaces a line of an upstream file in the tree.
func (c Checkout) Edit(file, line, by string) {
	c.Helper()
	path := Root + "pkg/" + file
	c.Write(path, strings.Replace(c.Read(path), line+"\n", by+"\n", 1))
}

// Hook commits a change as a developer would.
func (c Checkout) Hook(file, line, by, subject string) {
	c.Helper()
	c.Edit(file, line, by)
	c.Git("commit", "-q", "-a", "-m", subject+"\n\nWhy.\n\nUpstream-Status: Pending [x]\nTests: T\nDrop-When: never\n")
}

// MustParse parses a patch.
func MustParse(t *testing.T, path, text string) patch.Patch {
	t.Helper()
	p, err := patch.Parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ExpectError fails the test unless there is an error with each of the parts.
func ExpectError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want %q in it", err, part)
		}
	}
}
