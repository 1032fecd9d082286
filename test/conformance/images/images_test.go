// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

var date = time.Date(2026, 8, 26, 10, 44, 20, 0, time.UTC)

// listed is what e2e.test --list-images prints, shortened.
var listed = []string{
	"gcr.io/k8s-authenticated-test/agnhost:2.6",
	"invalid.registry.k8s.io/invalid/alpine:3.1",
	"registry.k8s.io/build-image/distroless-iptables:v0.9.9",
	"registry.k8s.io/e2e-test-images/agnhost:2.55",
	"registry.k8s.io/e2e-test-images/agnhost:2.66.1",
	"registry.k8s.io/e2e-test-images/busybox:1.37.0-2",
	"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.1.1",
	"registry.k8s.io/e2e-test-images/kitten:1.8",
	"registry.k8s.io/e2e-test-images/nautilus:1.8",
	"registry.k8s.io/e2e-test-images/nginx:1.27.0-2",
	"registry.k8s.io/e2e-test-images/nginx:1.28.0-2",
	"registry.k8s.io/e2e-test-images/node-perf/npb-ep:1.6.0",
	"registry.k8s.io/e2e-test-images/nonewprivs:1.4",
	"registry.k8s.io/e2e-test-images/nonroot:1.5",
	"registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2",
	"registry.k8s.io/etcd:3.7.0-0",
	"registry.k8s.io/pause:3.10.2",
	"registry.k8s.io/sig-storage/csi-provisioner:v6.1.1",
	"registry.k8s.io/coredns/coredns:built",
	"registry.k8s.io/kube-proxy:built",
}

// standIns are options with small files in place of programs, sources and packages.
func standIns(t *testing.T) Options {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc compiles pause, and is not here")
	}
	dir := t.TempDir()
	o := Options{
		Bin: filepath.Join(dir, "bin"), Tools: filepath.Join(dir, "tools"), Tree: filepath.Join(dir, "tree"),
		Debs: filepath.Join(dir, "debs"), Dir: filepath.Join(dir, "layers"), References: listed, Date: date,
		Lock: &debian.Lock{Suite: "bookworm", Bases: map[string]*debian.Base{}},
	}
	for _, name := range []string{"agnhost", "nonewprivs", "sample-apiserver", "kube-proxy"} {
		write(t, filepath.Join(o.Bin, name), name)
	}
	for _, name := range []string{"etcd", "coredns"} {
		write(t, filepath.Join(o.Tools, name), name)
	}
	write(t, filepath.Join(o.Tree, "build/pause/linux/pause.c"), "int main(void) { return 0; }\n")
	for _, name := range []string{"agnhost/porter/localhost.crt", "agnhost/porter/localhost.key", "kitten/html/kitten.jpg", "kitten/html/data.json", "nautilus/html/nautilus.jpg", "nautilus/html/data.json"} {
		write(t, filepath.Join(o.Tree, "test/images", name), name)
	}
	shell := rootfs.New()
	shell.File("bin/busybox", 0o755, []byte("#!/bin/sh\nif [ \"$1\" = --list ]; then echo '[[ ls mv sh'; fi\n"))
	shell.File("usr/lib/os-release", 0o644, []byte("NAME=\"Debian GNU/Linux\"\n"))
	move := rootfs.New()
	move.File("bin/mv", 0o755, []byte("mv"))
	busybox, coreutils := pin(t, o.Debs, "busybox-static", shell), pin(t, o.Debs, "coreutils", move)
	for name, packages := range map[string][]debian.Package{"agnhost": {busybox, coreutils}, "base": {busybox}, "busybox": {busybox}, "glibc-dns-testing": {coreutils}, "nginx": {busybox}, proxyBase: {coreutils}} {
		o.Lock.Bases[name] = &debian.Base{Packages: map[string][]debian.Package{Platform: packages}}
	}
	return o
}

func write(t *testing.T, file, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o755); err != nil {
		t.Fatal(err)
	}
}

// pin writes a package where Debian packages are kept, and returns what a lock file says of it.
func pin(t *testing.T, dir, name string, files *rootfs.Tree) debian.Package {
	t.Helper()
	d := &debian.Deb{Name: name, Version: "1.0-1", Architecture: "amd64", Maintainer: "a <a@example.com>", Summary: "a package", Files: files, Date: date}
	var deb bytes.Buffer
	if err := d.Write(&deb); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(deb.Bytes())
	p := debian.Package{Name: name, Version: d.Version, Architecture: d.Architecture, Path: "pool/main/" + name + ".deb", SHA256: hex.EncodeToString(sum[:]), Size: int64(deb.Len())}
	write(t, filepath.Join(dir, p.SHA256+".deb"), deb.String())
	return p
}

// file is a file of an image.
type file struct {
	*tar.Header
	data string
}

// merged returns what the layers of an image have, as a container sees it.
func merged(t *testing.T, image v1.Image) map[string]file {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]file{}
	for _, layer := range layers {
		stream, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for archive := tar.NewReader(stream); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.TrimSuffix(header.Name, "/")] = file{header, string(data)}
		}
	}
	return files
}

func build(t *testing.T) *Set {
	t.Helper()
	set, err := Build(t.Context(), standIns(t))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestWhatHasARecipeIsBuiltAndTheRestIsNamed(t *testing.T) {
	set := build(t)
	notBuilt := []string{
		"gcr.io/k8s-authenticated-test/agnhost:2.6",
		"invalid.registry.k8s.io/invalid/alpine:3.1",
		"registry.k8s.io/build-image/distroless-iptables:v0.9.9",
		"registry.k8s.io/e2e-test-images/node-perf/npb-ep:1.6.0",
		"registry.k8s.io/sig-storage/csi-provisioner:v6.1.1",
	}
	if !slices.Equal(set.NotBuilt, notBuilt) {
		t.Errorf("not built are %q, want %q", set.NotBuilt, notBuilt)
	}
	ids := map[v1.Hash]string{}
	for _, reference := range listed {
		image, ok := set.Images[reference]
		if ok == slices.Contains(notBuilt, reference) {
			t.Errorf("%s is there: %t, want %t", reference, ok, !ok)
		}
		if !ok {
			continue
		}
		if err := validate.Image(image); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
		id, err := image.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		if other, there := ids[id]; there {
			t.Errorf("%s and %s have the same ID, so the runtime takes one for the other", reference, other)
		}
		ids[id] = reference
	}
}

func TestImagesStartWhatUpstreamsDo(t *testing.T) {
	set := build(t)
	for repository, want := range map[string]struct{ entrypoint, cmd, user string }{
		"registry.k8s.io/coredns/coredns:built":                   {"/coredns", "", "65532:65532"},
		"registry.k8s.io/e2e-test-images/agnhost:2.55":            {"/agnhost", "pause", ""},
		"registry.k8s.io/e2e-test-images/agnhost:2.66.1":          {"/agnhost", "pause", ""},
		"registry.k8s.io/e2e-test-images/busybox:1.37.0-2":        {"", "sh", ""},
		"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.1.1": {"", "bash", ""},
		"registry.k8s.io/e2e-test-images/kitten:1.8":              {"/agnhost", "test-webserver", ""},
		"registry.k8s.io/e2e-test-images/nautilus:1.8":            {"/agnhost", "test-webserver", ""},
		"registry.k8s.io/e2e-test-images/nginx:1.27.0-2":          {"", "nginx -g daemon off;", ""},
		"registry.k8s.io/e2e-test-images/nginx:1.28.0-2":          {"", "nginx -g daemon off;", ""},
		"registry.k8s.io/e2e-test-images/nonewprivs:1.4":          {"", "nnp", ""},
		"registry.k8s.io/e2e-test-images/nonroot:1.5":             {"", "sh", "1234"},
		"registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2": {"/sample-apiserver", "", ""},
		"registry.k8s.io/etcd:3.7.0-0":                            {"", "/usr/local/bin/etcd", ""},
		"registry.k8s.io/kube-proxy:built":                        {"/usr/local/bin/kube-proxy", "", ""},
		"registry.k8s.io/pause:3.10.2":                            {"/pause", "", "65535:65535"},
	} {
		image := set.Images[repository]
		if image == nil {
			t.Errorf("%s was not built", repository)
			continue
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := file.Config
		if got := strings.Join(c.Entrypoint, " "); got != want.entrypoint {
			t.Errorf("%s has entrypoint %q, want %q", repository, got, want.entrypoint)
		}
		if got := strings.Join(c.Cmd, " "); got != want.cmd {
			t.Errorf("%s has command %q, want %q", repository, got, want.cmd)
		}
		if c.User != want.user {
			t.Errorf("%s has user %q, want %q", repository, c.User, want.user)
		}
		if !slices.Equal(c.Env, []string{"PATH=" + searchPath}) {
			t.Errorf("%s has environment %q, want PATH alone", repository, c.Env)
		}
		if file.Platform().String() != Platform || !file.Created.Equal(date) {
			t.Errorf("%s is for %s and of %s, want %s and %s", repository, file.Platform(), file.Created, Platform, date)
		}
	}
}

func TestImagesHaveTheFilesThatSpecsLookFor(t *testing.T) {
	set := build(t)
	const images = "registry.k8s.io/e2e-test-images/"
	for _, test := range []struct {
		reference, name string
		mode            int64
		link            string
	}{
		{images + "agnhost:2.66.1", "agnhost", 0o755, ""},
		{images + "agnhost:2.66.1", "agnhost-2", 0o777, "agnhost"},
		{images + "agnhost:2.55", "localhost.crt", 0o644, ""},
		{images + "agnhost:2.55", "localhost.key", 0o644, ""},
		{images + "agnhost:2.55", "uploads", 0o755, ""},
		{images + "agnhost:2.55", "tmp", 0o1777, ""},
		{images + "agnhost:2.55", "usr/bin/mv", 0o755, ""},
		{images + "agnhost:2.55", "usr/bin/[[", 0o777, "busybox"},
		{images + "busybox:1.37.0-2", "usr/bin/mv", 0o777, "busybox"},
		{images + "busybox:1.37.0-2", "usr/bin/sh", 0o777, "busybox"},
		{images + "busybox:1.37.0-2", "bin", 0o777, "usr/bin"},
		{images + "busybox:1.37.0-2", "var/tmp", 0o1777, ""},
		{images + "glibc-dns-testing:2.1.1", "usr/bin/mv", 0o755, ""},
		{images + "kitten:1.8", "kitten.jpg", 0o644, ""},
		{images + "kitten:1.8", "data.json", 0o644, ""},
		{images + "nautilus:1.8", "nautilus.jpg", 0o644, ""},
		{images + "nautilus:1.8", "agnhost", 0o755, ""},
		{images + "nginx:1.27.0-2", "usr/share/nginx/html/index.html", 0o644, ""},
		{images + "nginx:1.27.0-2", "var/log/nginx/access.log", 0o777, "/dev/stdout"},
		{images + "nonewprivs:1.4", "usr/local/bin/nnp", 0o4755, ""},
		{images + "sample-apiserver:1.29.2", "sample-apiserver", 0o755, ""},
		{"registry.k8s.io/etcd:3.7.0-0", "usr/local/bin/etcd", 0o755, ""},
		{"registry.k8s.io/kube-proxy:built", "usr/local/bin/kube-proxy", 0o755, ""},
		{"registry.k8s.io/pause:3.10.2", "pause", 0o755, ""},
	} {
		file, ok := merged(t, set.Images[test.reference])[test.name]
		if !ok {
			t.Errorf("%s: %s is missing", test.reference, test.name)
			continue
		}
		if file.Mode != test.mode || file.Linkname != test.link || file.Uid != 0 {
			t.Errorf("%s: %s has mode %o, is a link to %q and belongs to %d, want mode %o, a link to %q and 0", test.reference, test.name, file.Mode, file.Linkname, file.Uid, test.mode, test.link)
		}
	}
	for _, test := range []struct{ reference, name, want string }{
		{images + "agnhost:2.66.1", "etc/passwd", "user-defined-in-image:x:1000:1000:"},
		{images + "agnhost:2.66.1", "etc/group", "group-defined-in-image:x:50000:user-defined-in-image\n"},
		{images + "agnhost:2.66.1", "etc/nsswitch.conf", "hosts: files dns\n"},
		{images + "busybox:1.37.0-2", "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"},
		{images + "kitten:1.8", "usr/lib/os-release", "Debian GNU/Linux"},
		{images + "kitten:1.8", "usr/lib/os-release", "Alpine Linux"},
		{images + "nginx:1.28.0-2", "etc/passwd", "nginx:x:101:101:"},
		{images + "nginx:1.28.0-2", "etc/nginx/nginx.conf", "listen 80;"},
	} {
		if got := merged(t, set.Images[test.reference])[test.name].data; !strings.Contains(got, test.want) {
			t.Errorf("%s: %s is %q, want something with %q", test.reference, test.name, got, test.want)
		}
	}
	if got := merged(t, set.Images["registry.k8s.io/coredns/coredns:built"])["coredns"].PAXRecords["SCHILY.xattr.security.capability"]; got != rootfs.NetBindService {
		t.Errorf("the capability of CoreDNS is %q, want %q", got, rootfs.NetBindService)
	}
}

func TestImagesOfTwoVersionsShareTheirLayers(t *testing.T) {
	set := build(t)
	var digests [2][]string
	for i, tag := range []string{"2.55", "2.66.1"} {
		manifest, err := set.Images["registry.k8s.io/e2e-test-images/agnhost:"+tag].Manifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, layer := range manifest.Layers {
			digests[i] = append(digests[i], layer.Digest.String())
		}
	}
	if !slices.Equal(digests[0], digests[1]) {
		t.Errorf("two versions of agnhost have layers %q and %q, want the same", digests[0], digests[1])
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for _, test := range []struct {
		name, want string
		spoil      func(*Options)
	}{
		{"a program", "image registry.k8s.io/e2e-test-images/agnhost:2.55: layer agnhost's programs: program agnhost: stat ", func(o *Options) { o.Bin = "/nowhere" }},
		{"a tool", "image registry.k8s.io/etcd:3.7.0-0: layer etcd: program etcd: stat /nowhere/etcd: no such file or directory; build it first", func(o *Options) { o.Tools = "/nowhere" }},
		{"the source tree", "file localhost.crt: stat /nowhere/test/images/agnhost/porter/localhost.crt: no such file or directory; the source tree of the release must have it", func(o *Options) { o.Tree = "/nowhere" }},
		{"a base", "layer root of nginx: base nginx: not in the lock file", func(o *Options) { delete(o.Lock.Bases, "nginx") }},
		{"a tag", `reference "registry.k8s.io/pause": `, func(o *Options) { o.References = []string{"registry.k8s.io/pause"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := standIns(t)
			test.spoil(&o)
			if _, err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestServedImagesCanBePulled(t *testing.T) {
	set := build(t)
	handler, err := set.Handler()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for reference, image := range set.Images {
		pulled, err := remote.Image(parse(t, host+strings.TrimPrefix(reference, Registry)))
		if err != nil {
			t.Errorf("%s: %v", reference, err)
			continue
		}
		if err := validate.Image(pulled); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
		got, err := pulled.Digest()
		if err != nil {
			t.Fatal(err)
		}
		want, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s was pulled with digest %s, want %s", reference, got, want)
		}
		tag := parse(t, reference)
		if _, err := remote.Image(parse(t, host+"/"+tag.Context().RepositoryStr()+"@"+want.String())); err != nil {
			t.Errorf("%s by digest: %v", reference, err)
		}
	}
}

func parse(t *testing.T, reference string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestTheRegistryAnswersAsItsSpecificationHasIt(t *testing.T) {
	set := build(t)
	handler, err := set.Handler()
	if err != nil {
		t.Fatal(err)
	}
	const pause = "/v2/pause/manifests/3.10.2"
	manifest, err := set.Images["registry.k8s.io/pause:3.10.2"].Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layer := manifest.Layers[0]
	for _, test := range []struct {
		name, method, path string
		header             http.Header
		status             int
		want               string
		length             int64
	}{
		{"the version", "GET", "/v2/", nil, 200, "", 0},
		{"a manifest, as containerd asks for it", "GET", pause + "?ns=registry.k8s.io", nil, 200, "application/vnd.oci.image.manifest.v1+json", -1},
		{"the head of a manifest", "HEAD", pause + "?ns=registry.k8s.io", nil, 200, "", 0},
		{"a layer", "GET", "/v2/pause/blobs/" + layer.Digest.String(), nil, 200, "", layer.Size},
		{"the end of a layer", "GET", "/v2/pause/blobs/" + layer.Digest.String(), http.Header{"Range": {"bytes=-7"}}, 206, "", 7},
		{"another registry", "GET", pause + "?ns=docker.io", nil, 404, "NAME_UNKNOWN", -1},
		{"another tag", "GET", "/v2/pause/manifests/3.9", nil, 404, "MANIFEST_UNKNOWN", -1},
		{"an upload", "POST", "/v2/pause/blobs/uploads/", nil, 405, "UNSUPPORTED", -1},
		{"a deletion", "DELETE", pause, nil, 405, "UNSUPPORTED", -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := httptest.NewRequest(test.method, test.path, nil)
			maps.Copy(request.Header, test.header)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			answer := recorder.Result()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != test.status || !bytes.Contains(body, []byte(test.want)) || test.length >= 0 && int64(len(body)) != test.length {
				t.Errorf("%s %s has status %d and %d bytes %.200q, want status %d, %d bytes and %q", test.method, test.path, answer.StatusCode, len(body), body, test.status, test.length, test.want)
			}
			if test.method == "HEAD" && answer.Header.Get("Docker-Content-Digest") == "" {
				t.Error("the answer has no Docker-Content-Digest")
			}
		})
	}
}

func TestTheLockFilePinsAllThatRecipesNeed(t *testing.T) {
	lock, err := Pinned()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agnhost", "base", "busybox", "glibc-dns-testing", "nginx", proxyBase} {
		base, ok := lock.Bases[name]
		if !ok {
			t.Errorf("base %s is not in the lock file", name)
			continue
		}
		has := map[string]bool{}
		for _, p := range base.Packages[Platform] {
			has[p.Name] = true
			if len(p.SHA256) != 64 || p.Version == "" || p.Path == "" {
				t.Errorf("base %s: package %q is not pinned: version %q, path %q, sha256 %q", name, p.Name, p.Version, p.Path, p.SHA256)
			}
		}
		for _, wanted := range base.Install {
			if !has[wanted] {
				t.Errorf("base %s: %s is to be installed, and not pinned", name, wanted)
			}
		}
		for _, left := range base.Leave {
			if has[left] {
				t.Errorf("base %s: %s is to be left out, and pinned", name, left)
			}
		}
	}
}
