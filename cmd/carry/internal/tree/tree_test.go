// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestOnlyAChangedPatchIsAppliedAgain(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	s, err := c.Tree.Load()
	c.Must(err)
	before := s.Applied
	c.Write("patches/kubelet-call-b.patch", strings.ReplaceAll(c.Read("patches/kubelet-call-b.patch"), "managed.B()", "managed.C()"))
	c.Must(c.Tree.Update(t.Context()))
	if s, err = c.Tree.Load(); err != nil || s.Applied[0] != before[0] || s.Applied[1] == before[1] {
		t.Errorf("applied %v, was %v (%v)", s.Applied, before, err)
	}
	if got := c.Read(treetest.Root + "pkg/b.go"); !strings.Contains(got, "managed.C()") {
		t.Errorf("the tree has %q", got)
	}
}

func TestCarryWaitsForAnotherCarryOnTheSameRelease(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	unlock, err := c.Tree.Lock(t.Context())
	c.Must(err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Tree.Lock(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v while another works and the context has ended", err)
	}
	worked := make(chan error)
	go func() { worked <- c.Tree.Locked(t.Context(), func() error { return nil }) }()
	select {
	case err := <-worked:
		t.Fatalf("it did not wait (%v)", err)
	default:
	}
	unlock()
	c.Must(<-worked)
}

func TestWorkInTheTreeIsNeverThrownAway(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Edit("a.go", "ad", "my work")
	// Nothing is to be done: work is welcome.
	c.Must(c.Tree.Update(t.Context()))
	c.Write("patches/series", "kubelet-call-a.patch\n")
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "uncommitted work", "pkg/a.go", "git stash", "reset --hard")
	treetest.ExpectError(t, c.Tree.Export(t.Context()), "uncommitted work")
	if !strings.Contains(c.Read(treetest.Root+"pkg/a.go"), "my work") {
		t.Fatal("the work is gone")
	}
	c.Git("commit", "-q", "-a", "-m", "my commit")
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "has commits that patches/ lacks", "carry export", "reset --keep")
}

func TestAnInterruptedSwitchIsFinished(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	s, err := c.Tree.Load()
	c.Must(err)
	// As if killed between two files of the switch back to no patches.
	target := s.Workspace
	s.Switching = target
	c.Must(c.Tree.Save(s))
	c.Git("checkout", "-q", target, "--", "pkg/a.go")
	c.Write(treetest.Root+".git/index.lock", "")
	c.Must(c.Tree.Update(t.Context()))
	if dirty, err := c.Tree.Dirty(t.Context()); err != nil || dirty != "" {
		t.Errorf("the tree has %q (%v)", dirty, err)
	}
	if got := c.Read(treetest.Root + "pkg/a.go"); !strings.Contains(got, "managed.A()") {
		t.Error("the series is not applied")
	}

	s, err = c.Tree.Load()
	c.Must(err)
	s.Switching = s.Workspace
	c.Must(c.Tree.Save(s))
	c.Edit("a.go", "af", "my work")
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "pkg/a.go changed after carry was interrupted")
}

func TestALockThatVanishesIsTakenAgain(t *testing.T) {
	c := treetest.New(t)
	other := tree.Of(c.Project, "v1.36.3")
	unlock, err := other.Lock(t.Context())
	c.Must(err)
	second := make(chan error)
	go func() {
		unlock, err := other.Lock(t.Context())
		if err == nil {
			defer unlock()
			_, err = os.Stat(c.Project.Path("_output/v1.36.3/lock"))
		}
		second <- err
	}()
	c.Must(other.Vanish()) // the second may wait by now, or make the directory again
	unlock()
	c.Must(<-second)
	c.Must(other.Vanish())
	if _, err := os.Stat(c.Project.Path("_output/v1.36.3")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	c.Must(c.Tree.Vanish())
	if _, err := os.Stat(c.Tree.Dir); err != nil {
		t.Errorf("a tree has vanished: %v", err)
	}
}
