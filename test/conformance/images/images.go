// SPDX-License-Identifier: Apache-2.0

// Package images makes the images that the conformance specs use, because no registry can be asked
// for them: of a release's own test programs, and of pinned Debian packages. It serves them as a
// registry does. It must know neither a cluster nor which specs run.
package images

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Platform is the only one that images are made for: specs run on this host.
const Platform = "linux/amd64"

// Registry is the one whose images are made.
const Registry = "registry.k8s.io"

// Options say which images to make, and of what.
type Options struct {
	// Bin is a directory with agnhost, nonewprivs, sample-apiserver and kube-proxy, and Tools one
	// with etcd and coredns. A program may be linked with the C library.
	Bin, Tools string
	// Tree is the source tree of the release. It has the source of pause, and files of agnhost,
	// kitten and nautilus.
	Tree string
	// Debs is a directory in which Debian packages are kept.
	Debs string
	// Lock pins these packages; nil means Pinned.
	Lock *debian.Lock
	// References are those of the images, as e2e.test --list-images prints them.
	References []string
	// Dir is the directory of the layers. Build replaces it, and images need it as long as they are
	// used.
	Dir string
	// Date is that of all files and images; zero means 1970.
	Date time.Time
}

// Set has images.
type Set struct {
	// Images are those that were made, by their references.
	Images map[string]v1.Image
	// NotBuilt are references that there is no recipe for.
	NotBuilt []string
}

//go:embed lock.json
var pinned []byte

// Pinned returns the lock file of this package, and the base of kube-proxy's image, which the images
// of this project share.
func Pinned() (*debian.Lock, error) {
	lock := &debian.Lock{}
	if err := json.Unmarshal(pinned, lock); err != nil {
		return nil, fmt.Errorf("test/conformance/images/lock.json: %w", err)
	}
	shared, err := debian.Pinned()
	if err != nil {
		return nil, err
	}
	lock.Bases[proxyBase] = shared.Bases[proxyBase]
	return lock, nil
}

// builder makes images. Images share layers.
type builder struct {
	Options
	store  *debian.Store
	layers map[string]*oci.Layer
}

// Build makes an image for each reference whose repository it has a recipe for. Versions are those of
// the references; what is in an image is always of the release, or of Debian.
func Build(ctx context.Context, options Options) (*Set, error) {
	b := &builder{Options: options, store: &debian.Store{Dir: options.Debs}, layers: map[string]*oci.Layer{}}
	if b.Lock == nil {
		var err error
		if b.Lock, err = Pinned(); err != nil {
			return nil, err
		}
	}
	if b.Date.IsZero() {
		b.Date = time.Unix(0, 0)
	}
	if err := errors.Join(os.RemoveAll(b.Dir), os.MkdirAll(b.Dir, 0o755)); err != nil {
		return nil, err
	}
	set := &Set{Images: map[string]v1.Image{}}
	for _, reference := range options.References {
		tag, err := name.NewTag(reference, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("reference %q: %w; it must have a registry and a tag, as e2e.test --list-images prints it", reference, err)
		}
		r, ok := recipes[tag.RepositoryStr()]
		if !ok || tag.RegistryStr() != Registry {
			set.NotBuilt = append(set.NotBuilt, reference)
			continue
		}
		if set.Images[reference], err = b.image(ctx, tag, r); err != nil {
			return nil, fmt.Errorf("image %s: %w", reference, err)
		}
	}
	return set, nil
}

// searchPath is the PATH of Debian's images and of upstream's.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// image makes an image. Its labels keep the images of two references apart: the container runtime
// would otherwise report a container of one with the name of the other, which specs look at.
func (b *builder) image(ctx context.Context, tag name.Tag, r recipe) (v1.Image, error) {
	image, err := oci.Empty(Platform)
	if err != nil {
		return nil, err
	}
	config := oci.Config{
		Date: b.Date, Entrypoint: r.entrypoint, User: r.user, Path: searchPath,
		Labels: map[string]string{"org.opencontainers.image.title": path.Base(tag.RepositoryStr()), "org.opencontainers.image.version": tag.TagStr()},
	}
	for _, l := range r.layers {
		written, err := b.layer(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.name, err)
		}
		if image, err = oci.Append(image, written, "conformance: "+l.name, config); err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Config.Cmd = r.cmd
	return mutate.ConfigFile(image, file)
}

// layer writes a layer once.
func (b *builder) layer(ctx context.Context, l layer) (*oci.Layer, error) {
	if written := b.layers[l.name]; written != nil {
		return written, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tree, err := l.fill(ctx, b)
	if err != nil {
		return nil, err
	}
	written, err := oci.WriteLayer(b.Dir, tree, b.Date)
	if err != nil {
		return nil, err
	}
	b.layers[l.name] = written
	return written, nil
}

// program adds a program, and says what to do if there is none.
func program(tree *rootfs.Tree, at, file string) error {
	if err := tree.Copy(at, 0o755, file); err != nil {
		return fmt.Errorf("program %s: %w; build it first", path.Base(file), err)
	}
	return nil
}

// source adds a file of the source tree.
func (b *builder) source(tree *rootfs.Tree, at, file string) error {
	if err := tree.Copy(at, 0o644, path.Join(b.Tree, file)); err != nil {
		return fmt.Errorf("file %s: %w; the source tree of the release must have it", at, err)
	}
	return nil
}
