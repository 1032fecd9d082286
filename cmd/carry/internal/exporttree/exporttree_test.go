// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

var onUpstream = flag.Bool("upstream", false, "export a real release, and run upstream's checks in it")

// script stands for upstream's: what it writes depends on this project's packages, and is enough for
// go list.
const script = `set -e
mkdir -p vendor
find staging/src/workload.openshift.io -name '*.go' | sort | xargs cat > vendor/packages.txt
echo '## workspace' > vendor/modules.txt
for package in kubernetes/pkg/kubelet/managed partition; do
  mkdir -p vendor/workload.openshift.io/$package
  cp staging/src/workload.openshift.io/$package/*.go vendor/workload.openshift.io/$package
done
for module in kubernetes partition; do
  echo "# workload.openshift.io/$module v0.0.0-00010101000000-000000000000 => ./staging/src/workload.openshift.io/$module"
  echo '## explicit; go 1.26.0'
  case $module in
    kubernetes) echo workload.openshift.io/kubernetes/pkg/kubelet/managed ;;
    partition) echo workload.openshift.io/partition ;;
  esac
  echo "# workload.openshift.io/$module => ./staging/src/workload.openshift.io/$module"
done >> vendor/modules.txt
`

const versionSource = "package version\n\nconst DefaultKubeBinaryVersion = \"1.37\"\n"

// withTwoHooks makes a checkout whose series has two patches, and that can be exported.
func withTwoHooks(t *testing.T, more map[string]string) treetest.Checkout {
	t.Helper()
	t.Setenv("FORCE_HOST_GO", "y")
	files := map[string]string{updateVendor: script, versionFile: versionSource}
	for path, content := range more {
		files[path] = content
	}
	c := treetest.New(t, files)
	c.Write("LICENSE", "free\n")
	c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc Cores(any) {}\n")
	c.Write("pkg/kubelet/managed/managed_test.go", "package managed\n")
	c.Write("staging/src/workload.openshift.io/partition/partitiontest/cases.go", "package partitiontest\n")
	c.Must(c.Tree.Update(t.Context()))
	c.Hook("a.go", "ac", "ac\nmanaged.A()", "kubelet: call A")
	c.Hook("b.go", "bc", "bc\nmanaged.B()", "kubelet: call B")
	c.Must(c.Tree.Export(t.Context()))
	return c
}

// repo is an export, or a checkout to export onto.
type repo struct {
	treetest.Checkout
	git.Repo
}

func (r repo) run(args ...string) string {
	r.Helper()
	out, err := r.With("GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=d@e", "GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=d@e").Run(r.Context(), args...)
	r.Must(err)
	return out
}

func (r repo) write(path, content string) {
	r.Helper()
	path = filepath.Join(r.Dir, path)
	r.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	r.Must(os.WriteFile(path, []byte(content), 0o644))
}

func (r repo) read(path string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.Dir, path))
	r.Must(err)
	return string(data)
}

func (r repo) subjects() []string {
	return strings.Split(r.run("log", "--reverse", "--format=%s"), "\n")
}

// export exports to a directory of the test.
func export(c treetest.Checkout, to string) repo {
	c.Helper()
	c.Must(Export(c.Context(), c.Tree, Options{To: to}))
	return repo{c, git.Repo{Dir: to}}
}

func TestExport(t *testing.T) {
	c := withTwoHooks(t, nil)
	r := export(c, filepath.Join(t.TempDir(), "fork"))
	want := []string{
		"upstream",
		"UPSTREAM: <carry>: add workload.openshift.io/kubernetes and workload.openshift.io/partition",
		"UPSTREAM: <carry>: kubelet: call A",
		"UPSTREAM: <carry>: kubelet: call B",
		"UPSTREAM: <drop>: hack/update-vendor.sh",
	}
	if got := r.subjects(); !slices.Equal(got, want) {
		t.Errorf("the commits are %q, want %q", got, want)
	}
	files := strings.Split(r.run("ls-files"), "\n")
	for _, path := range []string{
		"staging/src/workload.openshift.io/kubernetes/pkg/kubelet/managed/managed.go", "staging/src/workload.openshift.io/kubernetes/LICENSE",
		"staging/src/workload.openshift.io/partition/go.mod", "vendor/modules.txt",
	} {
		if !slices.Contains(files, path) {
			t.Errorf("the export has no %s", path)
		}
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "partitiontest") {
			t.Errorf("the export has %s, which is for tests", path)
		}
	}
	for _, line := range []string{
		"workload.openshift.io/kubernetes => ./staging/src/workload.openshift.io/kubernetes",
		"workload.openshift.io/partition v0.0.0-00010101000000-000000000000",
	} {
		if mod := r.read("go.mod"); !strings.Contains(mod, line) {
			t.Errorf("go.mod is\n%s\nwant %q in it", mod, line)
		}
	}
	if message := r.run("log", "-1", "--format=%B", "HEAD^"); !strings.Contains(message, "Why.\n\nUpstream-Status: Pending [x]\nTests: T\nDrop-When: never\nPatch-File: kubelet-call-b.patch\n") {
		t.Errorf("the message of a patch's commit is\n%s", message)
	}
	if dirty := r.run("status", "--porcelain"); dirty != "" {
		t.Errorf("the work tree differs from the last commit: %s", dirty)
	}
	other := export(c, filepath.Join(t.TempDir(), "fork"))
	if a, b := r.run("rev-parse", "HEAD"), other.run("rev-parse", "HEAD"); a != b {
		t.Errorf("two exports have the commits %s and %s", a, b)
	}
}

// Upstream's checks demand what an export cannot have, and forbid what it must have.
func TestExportFitsUpstreamsChecks(t *testing.T) {
	const here = "- baseImportPath: \"./staging/src/k8s.io/here\"\n  allowedImports:\n  - k8s.io/api\n\n"
	const last = "- baseImportPath: \"./vendor/k8s.io/last\"\n  allowedImports:\n  - k8s.io/last\n"
	c := withTwoHooks(t, map[string]string{
		"go.work":                        "go 1.26.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/sample-controller\n)\n",
		"staging/src/k8s.io/here/doc.go": "package here\n",
		restrictions:                     "# The list.\n" + here + strings.ReplaceAll(here, "here", "sample-controller") + last,
		vendorCycles:                     "check -restrict \"^k8s\\.io/kubernetes/\" -exclude \"^k8s\\.io/(api)(/|$)\" deps.json\n",
	})
	r := export(c, filepath.Join(t.TempDir(), "fork"))
	if got, want := r.read(restrictions), "# The list.\n"+here+last; got != want {
		t.Errorf("%s is\n%s\nwant\n%s", restrictions, got, want)
	}
	if got, want := r.run("log", "--format=%s", "--", restrictions), "UPSTREAM: <drop>: leave out k8s.io/sample-controller\nupstream"; got != want {
		t.Errorf("its commits are %q, want %q", got, want)
	}
	if got, want := r.read(vendorCycles), "check -restrict \"^k8s\\.io/kubernetes/\" -exclude \"^(workload\\.openshift\\.io|k8s\\.io/kubernetes)/|^k8s\\.io/(api)(/|$)\" deps.json\n"; got != want {
		t.Errorf("%s is\n%s\nwant\n%s", vendorCycles, got, want)
	}
}

func TestExportAgainAddsCommits(t *testing.T) {
	update := func(c treetest.Checkout) { c.Must(c.Tree.Update(c.Context())) }
	for name, test := range map[string]struct {
		change func(c treetest.Checkout)
		want   []string
	}{
		"nothing has changed": {func(treetest.Checkout) {}, nil},
		"a package": {func(c treetest.Checkout) {
			c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc A() {}\n")
		}, []string{
			"UPSTREAM: <carry>: bring workload.openshift.io/kubernetes and workload.openshift.io/partition up to date",
			"UPSTREAM: <drop>: hack/update-vendor.sh",
		}},
		"a test of a package": {func(c treetest.Checkout) {
			c.Write("pkg/kubelet/managed/managed_test.go", "package managed\n\nfunc A() {}\n")
		}, nil},
		"a patch": {func(c treetest.Checkout) {
			update(c)
			c.Edit("b.go", "managed.B()", "managed.C()")
			c.Git("commit", "-q", "-a", "--amend", "--no-edit")
			c.Must(c.Tree.Export(c.Context()))
		}, []string{"UPSTREAM: <carry>: kubelet: call B"}},
		"a new patch": {func(c treetest.Checkout) {
			update(c)
			c.Hook("a.go", "am", "am\nmanaged.M()", "kubelet: call M")
			c.Must(c.Tree.Export(c.Context()))
		}, []string{"UPSTREAM: <carry>: kubelet: call M"}},
		"a patch that is gone": {func(c treetest.Checkout) {
			update(c)
			c.Git("reset", "-q", "--hard", "HEAD^")
			c.Must(c.Tree.Export(c.Context()))
		}, []string{"UPSTREAM: revert: <carry>: kubelet: call B"}},
		"all of them": {func(c treetest.Checkout) {
			update(c)
			c.Git("reset", "-q", "--hard", "HEAD^")
			c.Hook("b.go", "bm", "bm\nmanaged.M()", "kubelet: call M")
			c.Must(c.Tree.Export(c.Context()))
			c.Write("pkg/kubelet/managed/more.go", "package managed\n")
		}, []string{
			"UPSTREAM: <carry>: bring workload.openshift.io/kubernetes and workload.openshift.io/partition up to date",
			"UPSTREAM: revert: <carry>: kubelet: call B",
			"UPSTREAM: <carry>: kubelet: call M",
			"UPSTREAM: <drop>: hack/update-vendor.sh",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withTwoHooks(t, nil)
			to := filepath.Join(t.TempDir(), "fork")
			before := export(c, to).run("rev-parse", "HEAD")
			test.change(c)
			r := export(c, to)
			if got := r.run("log", "--reverse", "--format=%s", before+"..HEAD"); got != strings.Join(test.want, "\n") {
				t.Errorf("it has added %q, want %q", got, test.want)
			}
			r.run("merge-base", "--is-ancestor", before, "HEAD")
			fresh := export(c, filepath.Join(t.TempDir(), "fresh"))
			if a, b := r.run("rev-parse", "HEAD^{tree}"), fresh.run("rev-parse", "HEAD^{tree}"); a != b {
				t.Errorf("it differs from a new export:\n%s", r.run("diff", "--stat", a))
			}
			if dirty := r.run("status", "--porcelain"); dirty != "" {
				t.Errorf("the work tree differs from the last commit: %s", dirty)
			}
			head := r.run("rev-parse", "HEAD")
			if again := export(c, to).run("rev-parse", "HEAD"); again != head {
				t.Error("a third export, for which nothing has changed, adds commits")
			}
		})
	}
}

func TestExportAddsANewReleaseOfTheMinorVersion(t *testing.T) {
	c := withTwoHooks(t, nil)
	to := filepath.Join(t.TempDir(), "fork")
	before := export(c, to).run("rev-parse", "HEAD")
	c.Tree = c.AddRelease("v1.37.1", map[string]string{
		"pkg/a.go": strings.Replace(treetest.Numbered("a"), "ar\n", "fixed\n", 1), "pkg/b.go": treetest.Numbered("b"), updateVendor: script, versionFile: versionSource,
	})
	r := export(c, to)
	if got := r.run("log", "--format=%s", before+"..HEAD"); got != "UPSTREAM: Kubernetes v1.37.1" {
		t.Errorf("it has added %q", got)
	}
	if got := r.run("describe", "--tags", "--match=v*"); !strings.HasPrefix(got, "v1.37.1") {
		t.Errorf("a build says that it is %s", got)
	}
	if a := r.read("pkg/a.go"); !strings.Contains(a, "fixed\n") || !strings.Contains(a, "managed.A()\n") {
		t.Errorf("pkg/a.go is\n%s", a)
	}
	c.Tree = tree.Of(c.Project, treetest.Release)
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to}), to, "v1.37.1", "v1.37.0 is not a newer release")
}

func TestExportLeavesOtherWorkAlone(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(c treetest.Checkout, to string)
		want    []string
	}{
		"uncommitted work":   {func(c treetest.Checkout, to string) { export(c, to).write("pkg/a.go", "mine\n") }, []string{"uncommitted work (M pkg/a.go)"}},
		"a file that is new": {func(c treetest.Checkout, to string) { export(c, to).write("new", "mine\n") }, []string{"uncommitted work (?? new)"}},
		"a commit on top": {func(c treetest.Checkout, to string) {
			r := export(c, to)
			r.write("new", "mine\n")
			r.run("add", "new")
			r.run("commit", "-q", "-m", "mine")
		}, []string{"has the commit", "(mine)", "which does not belong to an export"}},
		"a commit in between": {func(c treetest.Checkout, to string) {
			r := export(c, to)
			r.write("new", "mine\n")
			r.run("add", "new")
			r.run("commit", "-q", "-m", "mine")
			last := r.run("log", "-1", "--format=%B", "HEAD^")
			_, err := r.With("GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL="+project.Identity.Email, "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL="+project.Identity.Email).
				Run(c.Context(), "commit", "-q", "--allow-empty", "-m", last)
			c.Must(err)
		}, []string{"has the commit", "(mine)"}},
		"another repository": {func(c treetest.Checkout, to string) {
			c.Must(os.Mkdir(to, 0o755))
			r := repo{c, git.Repo{Dir: to}}
			r.run("init", "-q")
			r.write("mine", "mine\n")
			r.run("add", "mine")
			r.run("commit", "-q", "-m", "mine")
		}, []string{"is another repository"}},
		"a repository without a commit": {func(c treetest.Checkout, to string) {
			c.Must(os.Mkdir(to, 0o755))
			repo{c, git.Repo{Dir: to}}.run("init", "-q")
		}, []string{"is not empty, and is not an export"}},
		"a directory with a file": {func(c treetest.Checkout, to string) {
			c.Must(os.Mkdir(to, 0o755))
			repo{c, git.Repo{Dir: to}}.write("mine", "mine\n")
		}, []string{"is not empty, and is not an export"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withTwoHooks(t, nil)
			to := filepath.Join(t.TempDir(), "fork")
			test.prepare(c, to)
			before := contents(c, filepath.Dir(to))
			c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc A() {}\n")
			treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to}), append(test.want, to, "nothing was changed")...)
			if after := contents(c, filepath.Dir(to)); after != before {
				t.Errorf("the directory has changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// contents has all files of a directory, with those of git but for its index.
func contents(c treetest.Checkout, dir string) string {
	c.Helper()
	var out strings.Builder
	c.Must(filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "index" {
			return err
		}
		data, err := os.ReadFile(path)
		out.WriteString(path + "\n")
		if !strings.Contains(path, "/objects/") {
			out.Write(data)
		}
		return err
	}))
	return out.String()
}

func TestWhatIsNotCommittedIsNotExported(t *testing.T) {
	c := withTwoHooks(t, nil)
	own := repo{c, git.Repo{Dir: c.Project.Dir}}
	own.run("init", "-q")
	c.Write(".gitignore", "/_output/\n")
	own.run("add", "--all")
	own.run("commit", "-q", "-m", "all")
	to := filepath.Join(t.TempDir(), "fork")
	c.Write("pkg/kubelet/experiment/experiment.go", "package experiment\n")
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to}), "has uncommitted changes (?? pkg/kubelet/experiment/experiment.go)", "nothing was changed")
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was exported (%v)", err)
	}
	own.run("add", "--all")
	own.run("commit", "-q", "-m", "an experiment")
	c.Write("cmd/other.txt", "not in an export\n")
	c.Must(Export(t.Context(), c.Tree, Options{To: to}))
}

func TestAnExportThatFailsLeavesNothing(t *testing.T) {
	c := withTwoHooks(t, map[string]string{updateVendor: "echo no such module >&2\nexit 1\n"})
	parent := t.TempDir()
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(parent, "fork")}), updateVendor, "no such module", "nothing was changed")
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(parent, "none", "fork")}), filepath.Join(parent, "none"), "is not a directory")
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("it has left %v, %v", entries, err)
	}
}

// TestExportOnUpstream exports the newest release as it is, and runs all checks.
func TestExportOnUpstream(t *testing.T) {
	if !*onUpstream {
		t.Skip("needs -upstream, the network, 4 GiB of disk and half an hour")
	}
	checkout, err := project.Find()
	if err != nil {
		t.Fatal(err)
	}
	releases, err := checkout.Releases()
	if err != nil {
		t.Fatal(err)
	}
	release := tree.Of(checkout, releases[0])
	to := filepath.Join(t.TempDir(), "fork")
	if err := release.Locked(t.Context(), func() error {
		if err := Export(t.Context(), release, Options{To: to}); err != nil {
			return err
		}
		return Verify(t.Context(), release, to, os.Stderr)
	}); err != nil {
		t.Fatal(err)
	}
}
