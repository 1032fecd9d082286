// SPDX-License-Identifier: Apache-2.0

package pins_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestFetchFindsWhatABinaryMisses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*treetest.Source)
		// missing are those that stop a rebase, and refused all.
		missing, refused []string
	}{
		"everything can be downloaded": {change: func(*treetest.Source) {}},
		"a module is refused that no binary needs": {
			change:  func(s *treetest.Source) { s.Refuse("k8s.io/sample-controller", "v0.36.4") },
			refused: []string{"k8s.io/sample-controller v0.36.4: 403 Forbidden"},
		},
		"a module is refused that binaries need": {
			change:  func(s *treetest.Source) { s.Refuse("k8s.io/api", "v0.36.4") },
			missing: []string{"k8s.io/api v0.36.4: 403 Forbidden"},
			refused: []string{"k8s.io/api v0.36.4: 403 Forbidden"},
		},
		"a module has no checksum": {
			change:  func(s *treetest.Source) { s.Forget("k8s.io/mount-utils", "v0.36.4") },
			missing: []string{"k8s.io/mount-utils v0.36.4: no checksum is available (404 Not Found)"},
			refused: []string{"k8s.io/mount-utils v0.36.4: no checksum is available (404 Not Found)"},
		},
		"upstream's own module has none": {
			change:  func(s *treetest.Source) { s.Forget("k8s.io/kubernetes", "v1.36.4") },
			missing: []string{"k8s.io/kubernetes v1.36.4: no checksum is available (404 Not Found)"},
			refused: []string{"k8s.io/kubernetes v1.36.4: no checksum is available (404 Not Found)"},
		},
		"upstream's own module demands a Go that cannot be downloaded": {
			change: func(s *treetest.Source) {
				s.Publish("v1.36.4", map[string]string{"go.mod": "module k8s.io/kubernetes\n\ngo 1.999.0\n"})
			},
			missing: []string{"k8s.io/kubernetes v1.36.4: requires go >= 1.999.0"},
			refused: []string{"k8s.io/kubernetes v1.36.4: requires go >= 1.999.0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := treetest.NewSource(t)
			s.Publish("v1.36.4", nil)
			test.change(s)
			p, err := pins.Fetch(t.Context(), "v1.36.4")
			if err != nil {
				t.Fatal(err)
			}
			if got := words(p.Missing()); !slices.Equal(got, test.missing) {
				t.Errorf("missing are %q, want %q", got, test.missing)
			}
			if got := words(p.Refused); !slices.Equal(got, test.refused) {
				t.Errorf("refused are %q, want %q", got, test.refused)
			}
		})
	}
	t.Run("a source that does not answer is an error", func(t *testing.T) {
		s := treetest.NewSource(t)
		s.Break()
		_, err := pins.Fetch(t.Context(), "v1.36.4")
		treetest.ExpectError(t, err, "k8s.io/kubernetes@v1.36.4 cannot be downloaded", "500")
		_, err = pins.Listed(t.Context(), treetest.New(t).Project)
		treetest.ExpectError(t, err, "the versions of k8s.io/kubernetes cannot be listed", "500")
	})
	t.Run("a mistyped release is an error", func(t *testing.T) {
		_, err := pins.Fetch(t.Context(), "1.36")
		treetest.ExpectError(t, err, `"1.36" is not a release of Kubernetes`)
	})
}

func words(refused []pins.Refusal) (words []string) {
	for _, r := range refused {
		words = append(words, r.String())
	}
	return words
}

func TestWrittenPinsAreRead(t *testing.T) {
	c, s := treetest.New(t), treetest.NewSource(t)
	s.Publish("v1.36.4", nil)
	s.Refuse("k8s.io/sample-controller", "v0.36.4")
	p, err := pins.Fetch(t.Context(), "v1.36.4")
	c.Must(err)
	c.Must(p.Write(t.Context(), c.Project, "build/releases/v1.36.4"))
	read, err := pins.Read(c.Project, "v1.36.4")
	c.Must(err)
	if len(read.Modules) != 4 || read.Modules["k8s.io/mount-utils"] != "v0.36.4" || read.GoVersion != "1.24.0" {
		t.Errorf("the pins are %v", read)
	}
	if _, released, err := pins.Download(c.Project, "v1.36.4", read); err != nil || released.Year() != 2026 {
		t.Errorf("downloaded, released %s: %v", released, err)
	}
}

// What a proxy sends is not taken for what upstream published.
func TestPinsAreNotWrittenWithoutAChecksumDatabase(t *testing.T) {
	for _, variable := range []string{"GOSUMDB=off", "GONOSUMDB=example.com,k8s.io", "GONOSUMDB=k8s.io/mount-utils"} {
		t.Run(variable, func(t *testing.T) {
			c, s := treetest.New(t), treetest.NewSource(t)
			s.Publish("v1.36.4", nil)
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
			p, err := pins.Fetch(t.Context(), "v1.36.4")
			c.Must(err)
			treetest.ExpectError(t, p.Write(t.Context(), c.Project, "build/releases/v1.36.4"), "v1.36.4 is not used", value)
			if _, err := os.Stat(c.Project.Path("build/releases/v1.36.4")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written (%v)", err)
			}
		})
	}
}

// A release is there once go.mod is, so a disk that fills must not leave that alone.
func TestHalfOfThePinsAreNoPreview(t *testing.T) {
	c, s := treetest.New(t), treetest.NewSource(t)
	s.Publish("v1.38.0-rc.0", nil)
	p, err := pins.Fetch(t.Context(), "v1.38.0-rc.0")
	c.Must(err)
	dir := project.PreviewPins("v1.38.0-rc.0")
	c.Must(os.MkdirAll(c.Project.Path(dir, "go.sum", "an obstacle"), 0o755))
	if err := p.Write(t.Context(), c.Project, dir); err == nil {
		t.Error("go.sum was written")
	}
	if previews, err := c.Project.Previews(); err != nil || len(previews) > 0 {
		t.Errorf("the previews are %q (%v), want none", previews, err)
	}
}

func TestNoListAtAllIsAnError(t *testing.T) {
	c := treetest.New(t)
	treetest.NewSource(t)
	_, err := pins.Listed(t.Context(), c.Project)
	treetest.ExpectError(t, err, "modules can be listed, so GOPROXY is wrong or refuses everything", "403 Forbidden")
}

func TestListedJoinsTheListsOfAllModules(t *testing.T) {
	c, s := treetest.New(t), treetest.NewSource(t)
	c.Write("build/releases/v1.37.0/go.mod", "module m\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.37.0\n\tk8s.io/api v0.37.0\n\tk8s.io/sample-controller v0.37.0\n)\n")
	c.Write("build/releases/v1.37.0/go.sum", "k8s.io/kubernetes v1.37.0 h1:x=\nk8s.io/api v0.37.0 h1:x=\nk8s.io/sample-controller v0.37.0 h1:x=\n")
	// The third module has no list at all.
	s.List("k8s.io/kubernetes", "v1.36.3", "v1.37.0")
	s.List("k8s.io/api", "v0.36.10", "v0.36.9", "v0.37.0", "v0.38.0-alpha.1", "v0.37.1-0.20260826104420-1c927af9b168")
	listed, err := pins.Listed(t.Context(), c.Project)
	c.Must(err)
	want := []string{"v1.38.0-alpha.1", "v1.37.0", "v1.36.10", "v1.36.9", "v1.36.3"}
	if !slices.Equal(listed, want) {
		t.Errorf("listed are %v, want %v", listed, want)
	}
	if got := pins.After("v1.36.3", pins.Finished("v1.36", listed)); !slices.Equal(got, []string{"v1.36.10", "v1.36.9"}) {
		t.Errorf("after v1.36.3 come %v", got)
	}
}
