// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
	"workload.openshift.io/kubernetes/cmd/images/release"
)

// files are those of a checkout. What is in an archive has its name as its content.
var files = map[string]string{
	".gitignore":      "/_output/\n",
	"CONTRIBUTING.md": "| area | for |\n|---|---|\n| `kubelet` | it |\n| `docs` | pages |\n",
	"Makefile":        "", "cmd/carry/main.go": "", "LICENSE": "", "README.md": "", "docs/user/install.md": "", "go.mod": "", "go.sum": "",
	"build/releases/v1.37.0/go.mod": "", "build/releases/v1.36.4/go.mod": "", "openshift-kube-apiserver/x.go": "", "patches/series": "", "pkg/x.go": "", "staging/x.go": "",
}

// project is a checkout whose images are there.
type project struct {
	Options
	t *testing.T
}

// newProject makes a checkout with one commit.
func newProject(t *testing.T) project {
	t.Helper()
	p := project{Options{Checkout: t.TempDir(), Version: "v0.2.0", URL: "https://example.com/v0.2.0/", Plugin: gobinary.Dirs(t, "kube-scheduler", "kubectl-partition"), Say: t.Logf}, t}
	for platform, name := range map[string]string{"darwin/arm64": pluginName, "windows/amd64": pluginName + ".exe"} {
		dir := t.TempDir()
		gobinary.Write(t, filepath.Join(dir, name), gobinary.Program(t, platform))
		p.Plugin[platform] = []string{dir}
	}
	for name, content := range files {
		p.write(name, content)
	}
	p.run("init", "--quiet", "--initial-branch=main")
	p.commit("Begin")
	return p
}

func (p project) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.Checkout, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

func (p project) run(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = p.Checkout
	cmd.Env = append(os.Environ(),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-11-23T10:44:20Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-11-23T10:44:20Z")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (p project) commit(subject string) {
	p.t.Helper()
	p.run("add", ".")
	p.run("commit", "--quiet", "--allow-empty", "--message="+subject)
}

// images writes the images of releases as make images does at the present commit.
func (p project) images(releases ...string) {
	p.t.Helper()
	for _, name := range releases {
		images := append(release.Images(name), release.Command(pluginName, "the plugin"))
		if err := release.Write(p.t.Context(), release.Options{
			Dir: p.imagesOf(name), Release: name, Version: name + "+wp.1234567", Commit: p.run("rev-parse", "HEAD"), Date: time.Unix(0, 0), Key: p.Key,
			Images:   slices.DeleteFunc(images, func(i release.Image) bool { return i.Name != pluginName }),
			Binaries: map[string][]string{"linux/amd64": p.Plugin["linux/amd64"], "linux/arm64": p.Plugin["linux/arm64"]}, Repository: "example.com", Lock: &debian.Lock{}, Say: p.t.Logf,
		}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// listing returns the hashes of the files of a directory, by path.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			found[name], err = digest.File(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// unpack returns the names and modes of the files of a tarball.
func unpack(t *testing.T, file string) (names []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, header.FileInfo().Mode().String()+" "+header.Name)
		}
	}
}

func TestABundleHasAllThatAVersionConsistsOf(t *testing.T) {
	p := newProject(t)
	p.run("tag", "v0.1.0")
	p.commit("kubelet: keep it\n\nIt went.\n\nRelease-Note: fixed: A pool survives a restart\n of the kubelet.\nRelease-Note: action: Restart kubelets.")
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Key = key
	p.images("v1.37.0", "v1.36.4")
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	count, err := release.CheckSums(p.Dir(), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	all := listing(t, p.Dir())
	if len(all) != count+2 { // the checksums and their signature
		t.Errorf("there are %d files, and checksums of %d", len(all), count)
	}
	for _, name := range []string{"v1.37.0", "v1.36.4"} {
		if !maps.Equal(listing(t, p.imagesOf(name)), listing(t, filepath.Join(p.Dir(), name))) {
			t.Errorf("the images of %s are not those that make images has written", name)
		}
	}
	changelog, err := os.ReadFile(filepath.Join(p.Dir(), changelogFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# v0.2.0\n\n2026-11-23, commit " + p.run("rev-parse", "HEAD"), "| v1.36.4 | v1.36.4+wp.1234567 |\n\nChanges since v0.1.0:\n\n## kubelet\n\n- keep it (" + p.run("rev-parse", "--short=10", "HEAD") + ")\n"} {
		if !strings.Contains(string(changelog), want) {
			t.Errorf("the changelog is\n%s\nand lacks\n%s", changelog, want)
		}
	}
	notes, err := os.ReadFile(filepath.Join(p.Dir(), notesFile))
	if err != nil {
		t.Fatal(err)
	}
	short := p.run("rev-parse", "--short=10", "HEAD")
	for _, want := range []string{"## What you must do\n\n- Restart kubelets. (" + short + ")\n", "- A pool survives a restart of the kubelet. (" + short + ")\n"} {
		if !strings.Contains(string(notes), want) {
			t.Errorf("the notes are\n%s\nand lack\n%s", notes, want)
		}
	}
	const mode, prefix = "-rw-r--r-- ", "-rw-r--r-- workload-partitioning-v0.2.0/"
	for name, want := range map[string][]string{
		"kubectl-partition-linux-amd64.tar.gz":   {mode + "LICENSE", "-rwxr-xr-x kubectl-partition"},
		"kubectl-partition-linux-arm64.tar.gz":   {mode + "LICENSE", "-rwxr-xr-x kubectl-partition"},
		"kubectl-partition-darwin-arm64.tar.gz":  {mode + "LICENSE", "-rwxr-xr-x kubectl-partition"},
		"kubectl-partition-windows-amd64.tar.gz": {mode + "LICENSE", "-rwxr-xr-x kubectl-partition.exe"},
		"docs.tar.gz":                            {prefix + "CONTRIBUTING.md", prefix + "LICENSE", prefix + "README.md", prefix + conformancePage, prefix + "docs/user/install.md"},
		"series.tar.gz": {prefix + "LICENSE", prefix + "build/releases/v1.36.4/go.mod", prefix + "build/releases/v1.37.0/go.mod", prefix + "go.mod", prefix + "go.sum",
			prefix + "openshift-kube-apiserver/x.go", prefix + "patches/series", prefix + "pkg/x.go", prefix + "staging/x.go"},
	} {
		if got := unpack(t, filepath.Join(p.Dir(), name)); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// The same commit gives the same bytes, and the releases that are named are all that there are.
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	if again := listing(t, p.Dir()); !maps.Equal(again, all) {
		t.Errorf("a second time the files differ")
	}
	p.Releases = []string{"v1.36.4"}
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir(), "v1.37.0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("v1.37.0 is there, and was not wanted (%v)", err)
	}
}

func TestABundleHasTheResultsOfTests(t *testing.T) {
	p := newProject(t)
	p.Releases = []string{"v1.37.0"}
	p.images("v1.37.0")
	results := func() map[string]string {
		t.Helper()
		if err := Write(t.Context(), p.Options); err != nil {
			t.Fatal(err)
		}
		if _, err := release.CheckSums(p.Dir(), nil); err != nil {
			t.Error(err)
		}
		found := map[string]string{}
		files, err := filepath.Glob(filepath.Join(p.Dir(), testsDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[filepath.Base(file)] = string(data)
		}
		return found
	}
	if got := results(); len(got) > 0 {
		t.Errorf("without results the bundle has %v", got)
	}
	if _, err := os.Stat(filepath.Join(p.Dir(), testsDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an empty directory (%v)", err)
	}
	p.write("_output/results", strings.Join([]string{
		"2026-11-20T10:00:00Z\t1111111\ttest-all\tlint\tok\t20\tv1.37.0\tcc",
		"2026-11-21T10:00:00Z\t2222222\ttest\tunit tests\tok\t30\tv1.37.0\taa",
		"2026-11-22T10:00:00Z\t3333333\ttest-all\tunit tests\tok\t40\tv1.37.0\tbb",
		"2026-11-22T11:00:00Z\t3333333\ttest\tlint\tok\t21\tv1.37.0\tcc",
		"2026-11-22T12:00:00Z\t3333333\ttest-all\tthe console\tskipped: there is no browser\t0\tv1.37.0\t-",
		"2026-11-22T13:00:00Z\t4444444+changes\ttest-all\tlint\tFAILED\t3\tv1.37.0\t-",
		// Of these, some tests ran, of another release, before the content was recorded, and with another Go.
		"2026-11-22T14:00:00Z\t3333333\ttest-all\tunit tests\tok\t1\tv1.37.0\tdd",
		"2026-11-22T14:00:00Z\t3333333\ttest-all\tunit tests\tok\t2\tv1.36.4\tbb",
		"2026-11-22T14:00:00Z\t3333333\ttest-all\tunit tests\tok\t3",
		"2026-11-22T14:00:00Z\t3333333\ttest-all\tunit tests\tok\t4\tv1.37.0\t-",
		"cut off",
	}, "\n")+"\n")
	parts := filepath.Join(t.TempDir(), "parts")
	if err := os.WriteFile(parts, []byte("unit tests\tv1.37.0\tbb\nlint\tv1.37.0\tcc\nthe console\tv1.37.0\tee\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.Parts, err = ReadParts(parts); err != nil {
		t.Fatal(err)
	}
	junit := func(title string) string {
		return fmt.Sprintf("<testsuites><testsuite name=%q></testsuite></testsuites>", title)
	}
	partitioned, unpatched := junit("Kubernetes conformance of v1.37.0+wp.1234567, partitioned"), junit("Kubernetes node tests of v1.37.0+wp.1234567, unpatched")
	p.write("_output/v1.37.0/conformance/partitioned/junit.xml", partitioned)
	p.write("_output/v1.37.0/conformance/unpatched/junit.xml", junit("Kubernetes conformance of v1.37.0+wp.1234568, unpatched"))
	p.write("_output/v1.37.0/node-compare/unpatched/junit.xml", unpatched)
	p.write("_output/v1.37.0/node-compare/patched/junit.xml", "cut off")
	p.write("_output/v1.36.4/conformance/partitioned/junit.xml", partitioned)
	p.write("_output/v1.37.0/conformance/partitioned/logs/junit.xml", partitioned)
	want := map[string]string{
		"results.tsv":                         "TIME\tCOMMIT\tPART\tRESULT\tSECONDS\tRELEASE\tCONTENT\n2026-11-22T10:00:00Z\t3333333\tunit tests\tok\t40\tv1.37.0\tbb\n2026-11-22T11:00:00Z\t3333333\tlint\tok\t21\tv1.37.0\tcc\n",
		"v1.37.0-conformance-partitioned.xml": partitioned,
		"v1.37.0-node-compare-unpatched.xml":  unpatched,
	}
	if got := results(); !maps.Equal(got, want) {
		t.Errorf("the bundle has %q, want %q", got, want)
	}
}

func TestAVersionThatCannotFollowIsRefused(t *testing.T) {
	for _, test := range []struct {
		name, want string
		change     func(*project)
	}{
		{"no version", `version "" is not a semantic version such as v0.1.0`, func(p *project) { p.Version = "" }},
		{"a version without its v", `version "0.2.0" is not a semantic version`, func(p *project) { p.Version = "0.2.0" }},
		{"a short version", `version "v0.2" is not a semantic version`, func(p *project) { p.Version = "v0.2" }},
		{"a version of a build", `version "v0.2.0+1" is not a semantic version`, func(p *project) { p.Version = "v0.2.0+1" }},
		{"an existing tag", "version v0.2.0: a tag of this name already exists", func(p *project) { p.run("tag", "v0.2.0") }},
		{"an existing tag of another branch", "version v0.2.0: a tag of this name already exists", func(p *project) {
			p.run("checkout", "--quiet", "-b", "other")
			p.commit("elsewhere")
			p.run("tag", "v0.2.0")
			p.run("checkout", "--quiet", "main")
		}},
		{"an older version", "version v0.2.0 is not newer than v0.10.0, the last one before this commit", func(p *project) {
			p.run("tag", "v0.10.0")
			p.run("tag", "v0.9.0")
		}},
		{"a pre-release of the last version", "version v0.2.0-rc.1 is not newer than v0.2.0", func(p *project) {
			p.run("tag", "v0.2.0")
			p.Version = "v0.2.0-rc.1"
		}},
		{"a change that is not committed", "has uncommitted changes, so version v0.2.0 would not be reproducible", func(p *project) { p.write("README.md", "changed") }},
		{"a new file", "has uncommitted changes", func(p *project) { p.write("new", "") }},
		{"an ignored directory of another checkout", "is not the root of a checkout: it is _output/inner/ in another one", func(p *project) {
			inner := filepath.Join(p.Checkout, "_output", "inner")
			if err := os.CopyFS(filepath.Join(inner, "build"), os.DirFS(filepath.Join(p.Checkout, "build"))); err != nil {
				p.t.Fatal(err)
			}
			p.Checkout = inner
		}},
		{"a user's directory in its place", "has files that this command did not write", func(p *project) { p.write("_output/release/v0.2.0/notes", "") }},
		{"a release that is not known", `release "v1.38.0" is not known; build/releases has v1.37.0, v1.36.4`, func(p *project) { p.Releases = []string{"v1.37.0", "v1.38.0"} }},
		{"no checkout", "no such file or directory", func(p *project) { p.Checkout = filepath.Join(p.Checkout, "none") }},
		{"a shallow clone", "lacks commits, so the list of changes would be incomplete: git fetch --unshallow --tags", func(p *project) {
			p.commit("another")
			clone := p.t.TempDir()
			p.run("clone", "--quiet", "--depth=1", "file://"+p.Checkout, clone)
			p.Checkout = clone
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProject(t)
			test.change(&p)
			if err := Check(t.Context(), p.Options); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, test.want)
			}
		})
	}
}

func TestAVersionIsCheckedAgainstThoseBeforeItsCommit(t *testing.T) {
	p := newProject(t)
	p.run("tag", "v0.1.0")
	p.run("tag", "vm-tests") // no version
	p.run("checkout", "--quiet", "-b", "next")
	p.commit("elsewhere")
	p.run("tag", "v0.3.0")
	p.run("checkout", "--quiet", "main")
	for _, version := range []string{"v0.1.1", "v0.2.0-rc.1", "v1.0.0"} {
		p.Version = version
		s, err := p.examine(t.Context())
		if err != nil || s.previous != "v0.1.0" {
			t.Errorf("%s: the last version is %q (%v), want v0.1.0", version, s.previous, err)
		}
	}
}

func TestASignedCommitHasADate(t *testing.T) {
	p := newProject(t)
	p.run("config", "log.showSignature", "true")
	p.run("config", "gpg.ssh.allowedSignersFile", "none")
	signed := strings.Replace(p.run("cat-file", "commit", "HEAD"), "\n\n", "\ngpgsig -----BEGIN SSH SIGNATURE-----\n x\n -----END SSH SIGNATURE-----\n\n", 1)
	file := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(file, []byte(signed+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("reset", "--quiet", "--hard", p.run("hash-object", "-t", "commit", "-w", file))
	if s, err := p.examine(t.Context()); err != nil || s.date.IsZero() {
		t.Errorf("the date is %s (%v)", s.date, err)
	}
}

func TestABundleThatFailsLeavesThePreviousOne(t *testing.T) {
	p := newProject(t)
	p.images("v1.37.0", "v1.36.4")
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	before := listing(t, p.Dir())
	other := gobinary.Program(t, "bare")
	for _, test := range []struct {
		name, want string
		change     func(*project)
	}{
		{"images of another commit", "kubectl-partition.intoto.json: the image was made at commit ", func(p *project) { p.commit("docs: more") }},
		{"images that are not there", "SHA256SUMS: no such file or directory: make images RELEASE=v1.37.0", func(p *project) { os.RemoveAll(p.imagesOf("v1.37.0")) }},
		{"images that were changed", "images.txt has sha256 ", func(p *project) {
			path := filepath.Join(p.imagesOf("v1.36.4"), "images.txt")
			os.Remove(path)
			gobinary.Write(p.t, path, nil)
		}},
		{"images that are not signed", "is not signed: there is no SHA256SUMS.sig: make images RELEASE=v1.37.0", func(p *project) {
			_, key, err := ed25519.GenerateKey(nil)
			if err != nil {
				p.t.Fatal(err)
			}
			p.Key = key
		}},
		{"no plugin", "no kubectl-partition for linux/amd64 in ", func(p *project) { p.Plugin = map[string][]string{"linux/amd64": {p.t.TempDir()}} }},
		{"another plugin than in the images", "but the image contains ", func(p *project) {
			dir := p.t.TempDir()
			gobinary.Write(p.t, filepath.Join(dir, pluginName), other)
			p.Plugin = map[string][]string{"linux/amd64": {dir}}
		}},
		{"no table of areas", "CHANGELOG.md: CONTRIBUTING.md lacks the table of areas", func(p *project) {
			p.write("CONTRIBUTING.md", "")
			p.commit("docs: less")
			p.images("v1.37.0", "v1.36.4")
		}},
		{"a note of an unknown effect", `trailer "Release-Note: maybe: something": want "Release-Note: EFFECT: a sentence"`, func(p *project) {
			p.commit("docs: say it\n\nRelease-Note: maybe: something")
			p.images("v1.37.0", "v1.36.4")
		}},
		{"no documentation", "docs.tar.gz: git in ", func(p *project) {
			p.run("rm", "-r", "--quiet", "docs")
			p.commit("docs: none")
			p.images("v1.37.0", "v1.36.4")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := project{p.Options, t}
			changed.Checkout = t.TempDir()
			if err := os.CopyFS(changed.Checkout, os.DirFS(p.Checkout)); err != nil {
				t.Fatal(err)
			}
			test.change(&changed)
			if err := Write(t.Context(), changed.Options); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, test.want)
			}
			expectAlone(t, changed.Dir(), before)
		})
	}
	t.Run("an interrupt", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		p.Say = func(format string, _ ...any) {
			if strings.HasSuffix(format, "%s") {
				cancel()
			}
		}
		if err := Write(cancelled, p.Options); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
		expectAlone(t, p.Dir(), before)
	})
}

// expectAlone checks that a bundle is as it was, and that nothing is next to it.
func expectAlone(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	if after := listing(t, dir); !maps.Equal(before, after) {
		t.Error("the previous bundle has changed")
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("%v are left behind (%v)", entries, err)
	}
}
