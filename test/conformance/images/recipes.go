// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// recipe says what is in an image, and how it is started.
type recipe struct {
	layers          []layer
	entrypoint, cmd []string
	// user is the number of a user and, after a colon, of a group; empty means root.
	user string
}

// layer is a layer. Its name tells it from all others.
type layer struct {
	name string
	fill func(context.Context, *builder) (*rootfs.Tree, error)
}

// Layers of Debian packages.
var (
	base    = root("base", nil)
	shell   = root("busybox", nil)
	tools   = root("agnhost", likeAlpine)
	glibc   = root("glibc-dns-testing", nil)
	server  = root("nginx", serving)
	proxied = root(proxyBase, nil)
)

// proxyBase is the base of kube-proxy's image.
const proxyBase = "kube-proxy"

// recipes are what the conformance specs use, by repository, and the two images of a cluster's own. The
// configurations are those of test/images in a release's tree.
var recipes = map[string]recipe{
	"e2e-test-images/agnhost": {layers: []layer{tools, agnhost}, entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}},
	// Its sh is bash, and /bin/sh is busybox: some specs start sh, and look at variables whose names have
	// a hyphen, which only bash passes on. Others start /bin/sh, and know how busybox words an error.
	"e2e-test-images/busybox":           {layers: []layer{shell}, cmd: []string{"sh"}},
	"e2e-test-images/glibc-dns-testing": {layers: []layer{glibc}, cmd: []string{"bash"}},
	"e2e-test-images/kitten":            {layers: []layer{tools, agnhost, page("kitten")}, entrypoint: []string{"/agnhost"}, cmd: []string{"test-webserver"}},
	"e2e-test-images/nautilus":          {layers: []layer{tools, agnhost, page("nautilus")}, entrypoint: []string{"/agnhost"}, cmd: []string{"test-webserver"}},
	"e2e-test-images/nginx":             {layers: []layer{server}, cmd: []string{"nginx", "-g", "daemon off;"}},
	"e2e-test-images/nonewprivs":        {layers: []layer{base, nonewprivs}, cmd: []string{"nnp"}},
	"e2e-test-images/nonroot":           {layers: []layer{base}, cmd: []string{"sh"}, user: "1234"},
	"e2e-test-images/sample-apiserver":  {layers: []layer{base, sampleAPIServer}, entrypoint: []string{"/sample-apiserver"}},
	// Specs give the command: /usr/local/bin/etcd in test/e2e/apimachinery/aggregator.go.
	"etcd":  {layers: []layer{base, etcd}, cmd: []string{"/usr/local/bin/etcd"}},
	"pause": {layers: []layer{pause}, entrypoint: []string{"/pause"}, user: "65535:65535"},
	// The user and the capability are those of upstream's image.
	"coredns/coredns": {layers: []layer{base, coredns}, entrypoint: []string{"/coredns"}, user: "65532:65532"},
	"kube-proxy":      {layers: []layer{proxied, kubeProxy}, entrypoint: []string{"/usr/local/bin/kube-proxy"}},
}

// agnhost is what the image has beyond packages. Upstream's has two things more, which no conformance spec
// uses: in /var/registry the images that the fake registry serves, for specs of [NodeConformance]
// alone in test/e2e/common/node/runtime.go; and /coredns, for others in test/e2e/network/dns.go.
var agnhost = layer{"agnhost's programs", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	tree := rootfs.New()
	if err := program(tree, "agnhost", filepath.Join(b.Bin, "agnhost")); err != nil {
		return nil, err
	}
	// Specs override the entrypoint with it, and look which one was started.
	tree.Symlink("agnhost-2", "agnhost")
	tree.Symlink("usr/local/bin/iperf", "/usr/bin/iperf")
	tree.Dir("uploads", 0o755)
	for _, file := range []string{"localhost.crt", "localhost.key"} {
		if err := b.source(tree, file, "test/images/agnhost/porter/"+file); err != nil {
			return nil, err
		}
	}
	return tree, nil
}}

// page is what test-webserver serves.
func page(picture string) layer {
	return layer{picture + "'s page", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
		tree := rootfs.New()
		for _, file := range []string{picture + ".jpg", "data.json"} {
			if err := b.source(tree, file, "test/images/"+picture+"/html/"+file); err != nil {
				return nil, err
			}
		}
		return tree, nil
	}}
}

// coredns is CoreDNS with the capability that lets it listen on port 53 as any user.
var coredns = layer{"CoreDNS", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	tree := rootfs.New()
	if err := program(tree, "coredns", filepath.Join(b.Tools, "coredns")); err != nil {
		return nil, err
	}
	entry, _ := tree.Get("coredns")
	entry.Capabilities = rootfs.NetBindService
	tree.Set("coredns", entry)
	return tree, nil
}}

// nonewprivs says whose rights it has. It belongs to root, and has the set-user-ID bit.
var nonewprivs = layer{"nnp", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	const at = "usr/local/bin/nnp"
	tree := rootfs.New()
	if err := program(tree, at, filepath.Join(b.Bin, "nonewprivs")); err != nil {
		return nil, err
	}
	entry, _ := tree.Get(at)
	entry.Mode |= fs.ModeSetuid
	tree.Set(at, entry)
	return tree, nil
}}

var sampleAPIServer = layer{"sample-apiserver", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	tree := rootfs.New()
	return tree, program(tree, "sample-apiserver", filepath.Join(b.Bin, "sample-apiserver"))
}}

var etcd = layer{"etcd", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	tree := rootfs.New()
	return tree, program(tree, "usr/local/bin/etcd", filepath.Join(b.Tools, "etcd"))
}}

var kubeProxy = layer{"kube-proxy", func(_ context.Context, b *builder) (*rootfs.Tree, error) {
	tree := rootfs.New()
	return tree, program(tree, "usr/local/bin/kube-proxy", filepath.Join(b.Bin, "kube-proxy"))
}}

// pause is compiled as upstream's: build/pause in a tree.
var pause = layer{"pause", func(ctx context.Context, b *builder) (*rootfs.Tree, error) {
	out := filepath.Join(b.Dir, "pause")
	cmd := exec.CommandContext(ctx, "gcc", "-Os", "-static", "-o", out, filepath.Join(b.Tree, "build", "pause", "linux", "pause.c"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w: %s", err, output)
	}
	defer os.Remove(out)
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	tree := rootfs.New()
	tree.File("pause", 0o755, data)
	return tree, nil
}}
