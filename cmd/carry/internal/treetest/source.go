// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/zip"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Source is where the go command gets modules from for the time of a test: a proxy on this
// host, with a checksum database. A module that was never published is forbidden there.
type Source struct {
	*testing.T
	lock   sync.Mutex        // of all that follows: the server reads it
	files  map[string][]byte // by the path of a request
	sums   map[string]string // go.sum lines by path@version
	broken bool
}

// NewSource starts a source that has no module.
func NewSource(t *testing.T) *Source {
	t.Helper()
	const name = "sums.example.org"
	s := &Source{T: t, files: map[string][]byte{}, sums: map[string]string{}}
	signer, verifier, err := note.GenerateKey(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	sums := sumdb.NewServer(sumdb.NewTestServer(signer, func(path, version string) ([]byte, error) {
		if lines, ok := s.sums[path+"@"+version]; ok {
			return []byte(lines), nil
		}
		return nil, fs.ErrNotExist
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.lock.Lock()
		defer s.lock.Unlock()
		rest, isSum := strings.CutPrefix(r.URL.Path, "/sumdb/"+name)
		content, published := s.files[r.URL.Path]
		switch {
		case s.broken:
			http.Error(w, "broken", http.StatusInternalServerError)
		case rest == "/supported" && isSum:
		case isSum:
			r.URL.Path = rest
			sums.ServeHTTP(w, r)
		case published:
			w.Write(content)
		default:
			http.Error(w, "forbidden", http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	gopath := t.TempDir()
	t.Cleanup(func() { // Modules in the cache are read-only.
		_ = filepath.WalkDir(gopath, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	})
	for name, value := range map[string]string{"GOPROXY": server.URL, "GOSUMDB": verifier, "GOPATH": gopath, "GOMODCACHE": "", "GOPRIVATE": "", "GONOPROXY": "", "GONOSUMDB": "", "GOFLAGS": "", "GOINSECURE": ""} {
		t.Setenv(name, value)
	}
	return s
}

// Staged are the staging modules of each release of a source; its API requires the first.
var Staged = []string{"k8s.io/code-generator", "k8s.io/api", "k8s.io/mount-utils", "k8s.io/sample-controller"}

// Publish publishes a release: upstream's module with the given files and its staging modules.
func (s *Source) Publish(release string, files map[string]string) {
	s.Helper()
	version := "v0" + strings.TrimPrefix(release, "v1")
	var requires, replaces, uses strings.Builder
	for _, path := range Staged {
		fmt.Fprintf(&requires, "\t%s v0.0.0\n", path)
		fmt.Fprintf(&replaces, "\t%s => ./staging/src/%[1]s\n", path)
		fmt.Fprintf(&uses, "\t./staging/src/%s\n", path)
		mod := "module " + path + "\n\ngo 1.24.0\n"
		if path == "k8s.io/api" {
			mod += "\nrequire " + Staged[0] + " " + version + "\n"
		}
		s.publish(path, version, map[string]string{"go.mod": mod, "doc.go": "package p\n"})
	}
	all := map[string]string{
		"go.mod":              "module " + project.UpstreamModule + "\n\ngo 1.24.0\n\nrequire (\n" + requires.String() + ")\n\nreplace (\n" + replaces.String() + ")\n",
		"go.work":             "go 1.24.0\n\nuse (\n\t.\n" + uses.String() + ")\n",
		"go.work.sum":         "x\n",
		"build/root/Makefile": "all:\n",
		".go-version":         "1.24.0\n",
		"pkg/a.go":            Numbered("a"),
		"pkg/b.go":            Numbered("b"),
	}
	maps.Copy(all, files)
	s.publish(project.UpstreamModule, release, all)
}

func (s *Source) publish(path, version string, files map[string]string) {
	s.Helper()
	m := module.Version{Path: path, Version: version}
	dir := s.TempDir()
	for name, content := range files {
		to := filepath.Join(dir, name)
		s.must(os.MkdirAll(filepath.Dir(to), 0o755))
		s.must(os.WriteFile(to, []byte(content), 0o644))
	}
	var archive bytes.Buffer
	s.must(zip.CreateFromDir(&archive, m, dir))
	saved := filepath.Join(s.TempDir(), "m.zip")
	s.must(os.WriteFile(saved, archive.Bytes(), 0o644))
	sum, err := dirhash.HashZip(saved, dirhash.Hash1)
	s.must(err)
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files["go.mod"])), nil })
	s.must(err)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.sums[m.String()] = fmt.Sprintf("%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", path, version, sum, modSum)
	at := "/" + path + "/@v/"
	s.files[at+version+".zip"] = archive.Bytes()
	s.files[at+version+".mod"] = []byte(files["go.mod"])
	s.files[at+version+".info"] = fmt.Appendf(nil, `{"Version":%q,"Time":"2026-08-26T10:00:00Z"}`, version)
	s.list(path, append(strings.Fields(string(s.files[at+"list"])), version))
}

// List sets the versions that the source lists of a module, whether or not it has them.
func (s *Source) List(path string, versions ...string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.list(path, versions)
}

func (s *Source) list(path string, versions []string) {
	semver.Sort(versions)
	s.files["/"+path+"/@v/list"] = []byte(strings.Join(versions, "\n") + "\n")
}

// Refuse forbids a module at a version. It stays in the list.
func (s *Source) Refuse(path, version string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, kind := range []string{".info", ".mod", ".zip"} {
		delete(s.files, "/"+path+"/@v/"+version+kind)
	}
}

// Forget makes the checksum database forget a module at a version.
func (s *Source) Forget(path, version string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.sums, path+"@"+version)
}

// Break makes every answer from now on an error of the server.
func (s *Source) Break() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.broken = true
}

func (s *Source) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
