// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
)

// TestMain is the command itself in a child of a test.
func TestMain(m *testing.M) {
	if os.Getenv("IMAGES_TEST_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// images runs the command in a child, after a line of bash, and returns what it prints.
func images(t *testing.T, before string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", append([]string{"-c", before + `; exec "$@"`, "bash", self}, args...)...)
	cmd.Env = append(os.Environ(), "IMAGES_TEST_COMMAND=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAMistakeIsOneLineThatNamesIt(t *testing.T) {
	platform := "linux/" + runtime.GOARCH
	bin := platform + "=" + gobinary.Dirs(t, "kube-scheduler")[platform][0]
	dir := filepath.Join(t.TempDir(), "images")
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{"no binaries", `required flag(s) "bin" not set`, []string{"build", dir}},
		{"binaries of no platform", `--bin "bin": not PLATFORM=DIRECTORY`, []string{"build", "--bin=bin", dir}},
		{"binaries of an unknown platform", `--bin "windows/amd64=bin": platform "windows/amd64": known are linux/amd64, linux/arm64, linux/ppc64le, linux/s390x`, []string{"build", "--bin=windows/amd64=bin", dir}},
		{"binaries without a version", "so the version is unknown: carry build writes it", []string{"build", "--bin", platform + "=" + t.TempDir(), dir}},
		{"an unknown image", `--only "etcd": no such image or package; known are kube-apiserver, `, []string{"build", "--bin", bin, "--only=etcd", dir}},
		{"a missing binary", "image hyperkube: no kube-apiserver for " + platform + " in ", []string{"build", "--bin", bin, "--only=hyperkube", dir}},
		{"a commit without a date", "--commit and --date: either both or none", []string{"build", "--bin", bin, "--only=kubectl", "--commit=1234567", dir}},
		{"a date that is none", `--date: parsing time "today"`, []string{"build", "--bin", bin, "--only=kubectl", "--commit=1234567", "--date=today", dir}},
		{"a lock file that is not there", "lock.json: no such file", []string{"build", "--bin", bin, "--only=kubectl", "--lock=lock.json", dir}},
		{"a key that is none", "no PEM block of type PRIVATE KEY", []string{"build", "--bin", bin, "--only=kubectl", "--key=main.go", dir}},
		{"an invalid base is refused before there are binaries", `base "a b" is neither a directory nor a reference`, []string{"build", "--check", "--release=v1.37.0", "--bin", platform + "=bin", "--base=hyperkube=a b", dir}},
		{"a directory that is not a release", "SHA256SUMS: no such file", []string{"verify", t.TempDir()}},
		{"nothing to push", "SHA256SUMS: no such file", []string{"push", t.TempDir(), "registry.example.com"}},
		{"a directory of something else", bin[len(platform)+1:] + " would be replaced as a whole, but it has files that this command did not write", []string{"build", "--bin", bin, "--only=kubectl", bin[len(platform)+1:]}},
		{"a directory of something else, before there are binaries", "would be replaced as a whole", []string{"build", "--check", "--release=v1.37.0", "--bin", platform + "=bin", "debian"}},
		{"no version", `version "" is not a semantic version such as v0.1.0`, []string{"bundle", "--check", ""}},
		{"a version without the plugin", "at least one of the flags in the group [check bin] is required", []string{"bundle", "v0.1.0"}},
		{"parts of tests that are none", `--parts: go.mod: the line "module workload.openshift.io/kubernetes/cmd/images\n" is not PART, RELEASE and CONTENT`, []string{"bundle", "--bin", bin, "--parts=go.mod", "v0.1.0"}},
		{"a version of no checkout", "build/releases: no such file or directory", []string{"bundle", "--check", "--checkout=debian", "v0.1.0"}},
		{"a platform that cannot be pinned", `--platform: platform "linux/riscv64": known are `, []string{"lock", "--platform=linux/riscv64", "debian/lock.json"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := images(t, ":", test.args...)
			if err == nil || !strings.HasPrefix(out, "images: ") || strings.Count(out, "\n") != 1 || !strings.Contains(out, test.want) {
				t.Errorf("it ends with %v and says %q, want one line with %q", err, out, test.want)
			}
			if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
				t.Errorf("%v are left behind (%v)", entries, err)
			}
		})
	}
}

// TestADiskThatFillsLeavesThePreviousRelease bounds the size of files, in KiB, which fails as a full
// disk does.
func TestADiskThatFillsLeavesThePreviousRelease(t *testing.T) {
	platform := "linux/" + runtime.GOARCH
	bin := platform + "=" + gobinary.Dirs(t, "kube-scheduler", "kube-log-runner", "kubectl")[platform][0]
	dir := filepath.Join(t.TempDir(), "images")
	build := []string{"build", "--bin", bin, "--only=kube-scheduler,kubectl", dir}
	if out, err := images(t, ":", build...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, kib := range []int{0, 1, 100, 700} {
		out, err := images(t, fmt.Sprintf("ulimit -f %d", kib), build...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if last := lines[len(lines)-1]; err == nil || !strings.HasPrefix(last, "images: ") || !strings.Contains(last, "file too large") {
			t.Errorf("files of %d KiB: it ends with %v and says %q, want %q", kib, err, out, "file too large")
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
			t.Errorf("files of %d KiB: there are %v, want the previous release alone (%v)", kib, entries, err)
		}
		if out, err := images(t, ":", "verify", dir); err != nil {
			t.Errorf("files of %d KiB: the previous release: %v: %s", kib, err, out)
		}
	}
}

// TestASecondPushSendsNothing runs the command against a registry on a port of this host, as make push does.
func TestASecondPushSendsNothing(t *testing.T) {
	var lock sync.Mutex
	var requests []string
	// sent returns what was sent since it was called last.
	sent := func() []string {
		lock.Lock()
		defer lock.Unlock()
		since := requests
		requests = nil
		return since
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			lock.Lock()
			requests = append(requests, r.Method+" "+r.URL.Path)
			lock.Unlock()
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/partitioning"
	dir := filepath.Join(t.TempDir(), "images")
	build := []string{"build", "--only=kube-scheduler,kubectl-partition"}
	for platform, dirs := range gobinary.Dirs(t, "kube-scheduler", "kube-log-runner", "kubectl-partition") {
		build = append(build, "--bin", platform+"="+dirs[0])
	}
	if out, err := images(t, ":", append(build, dir)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first, err := images(t, ":", "push", dir, to)
	if err != nil {
		t.Fatalf("%v: %s", err, first)
	}
	if all := sent(); !slices.ContainsFunc(all, func(r string) bool { return strings.Contains(r, "/blobs/uploads/") }) {
		t.Errorf("the first push has sent %q, want layers", all)
	}
	references := strings.Fields(first)
	if len(references) != 2 {
		t.Fatalf("it says %q, want two references", first)
	}
	for _, reference := range references {
		digest, err := name.NewDigest(reference)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
	}
	if second, err := images(t, ":", "push", dir, to); err != nil || second != first {
		t.Errorf("a second push ends with %v and says %q, want %q", err, second, first)
	}
	if all := sent(); len(all) > 0 {
		t.Errorf("a second push has sent %q, want nothing", all)
	}
	// An image cannot be found again if the registry has another digest.
	list := filepath.Join(dir, "layout", "index.json")
	content, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	gobinary.Write(t, list, append(content, '\n'))
	if out, err := images(t, ":", "push", dir, to+"/changed"); err == nil || !strings.Contains(out, "layout/index.json has sha256") {
		t.Errorf("a push of what has changed ends with %v and says %q, want the file", err, out)
	}
	if all := sent(); len(all) > 0 {
		t.Errorf("a push of what has changed has sent %q, want nothing", all)
	}
}
