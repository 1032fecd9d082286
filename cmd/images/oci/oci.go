// SPDX-License-Identifier: Apache-2.0

// Package oci makes layers and images in the formats of the Open Container Initiative, without a
// container engine, and pushes them. It knows formats and registries, and must not know what is
// in an image.
package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Layer is a compressed layer in a file.
type Layer struct {
	file           string
	digest, diffID v1.Hash
	size           int64
	mediaType      types.MediaType
}

// Digest is that of the compressed layer.
func (l *Layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the digest of the uncompressed layer.
func (l *Layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size is that of the compressed layer, in bytes.
func (l *Layer) Size() (int64, error) { return l.size, nil }

// MediaType is OCI's, or Docker's on top of an image that has Docker's.
func (l *Layer) MediaType() (types.MediaType, error) { return l.mediaType, nil }

// Compressed opens the file.
func (l *Layer) Compressed() (io.ReadCloser, error) { return os.Open(l.file) }

// WriteLayer writes a tree as a layer to a file of a directory, which must stay as long as the layer
// is used.
func WriteLayer(dir string, tree *rootfs.Tree, date time.Time) (*Layer, error) {
	file, err := os.CreateTemp(dir, "layer-")
	if err != nil {
		return nil, err
	}
	digest, diffID := sha256.New(), sha256.New()
	stream := gzip.NewWriter(io.MultiWriter(file, digest))
	err = tree.Write(io.MultiWriter(stream, diffID), "", date)
	// On a full disk all of them fail alike.
	if err := cmp.Or(err, stream.Close(), file.Close()); err != nil {
		return nil, err
	}
	info, err := os.Stat(file.Name())
	if err != nil {
		return nil, err
	}
	return &Layer{file: file.Name(), digest: sum(digest), diffID: sum(diffID), size: info.Size(), mediaType: types.OCILayer}, nil
}

func sum(of hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(of.Sum(nil))}
}

// Empty is an image without a layer.
func Empty(platform string) (v1.Image, error) {
	parsed, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: parsed.OS, Architecture: parsed.Architecture, Variant: parsed.Variant,
		RootFS: v1.RootFS{Type: "layers"},
	})
}

// Config is what an image says of itself and of how it is started.
type Config struct {
	Date       time.Time
	Entrypoint []string
	// User is the number of a user and, after a colon, of a group; empty leaves the base's.
	User string
	// Path is the PATH of the environment.
	Path string
	// Labels are added to the base's.
	Labels map[string]string
}

// Append returns an image with one more layer, and this configuration. What else the base
// configures stays.
func Append(base v1.Image, layer *Layer, createdBy string, config Config) (v1.Image, error) {
	mediaType, err := base.MediaType()
	if err != nil {
		return nil, err
	}
	added := *layer
	if mediaType == types.DockerManifestSchema2 {
		added.mediaType = types.DockerLayer
	}
	date := v1.Time{Time: config.Date.UTC()} // in the history, it is written with its time zone
	whole, err := partial.CompressedToLayer(&added)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(base, mutate.Addendum{Layer: whole, History: v1.History{Created: date, CreatedBy: createdBy}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = date
	file.Config.Entrypoint, file.Config.Cmd = config.Entrypoint, nil
	if config.User != "" {
		file.Config.User = config.User
	}
	file.Config.Env = slices.DeleteFunc(file.Config.Env, func(variable string) bool { return strings.HasPrefix(variable, "PATH=") })
	file.Config.Env = append(file.Config.Env, "PATH="+config.Path)
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	maps.Copy(file.Config.Labels, config.Labels)
	return mutate.ConfigFile(image, file)
}

// Index returns an index of the images of one name.
func Index(images map[string]v1.Image, annotations map[string]string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range slices.Sorted(maps.Keys(images)) {
		parsed, err := v1.ParsePlatform(platform)
		if err != nil {
			return nil, err
		}
		descriptor, err := partial.Descriptor(images[platform])
		if err != nil {
			return nil, err
		}
		descriptor.Platform = parsed
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[platform], Descriptor: *descriptor})
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("an index with annotations is not an index")
	}
	return annotated, nil
}

// Base returns the image of a platform that a reference names: a directory with an OCI layout, or
// an image in a registry.
func Base(ctx context.Context, reference, platform string) (v1.Image, error) {
	parsed, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(reference); err == nil && info.IsDir() {
		index, err := layout.ImageIndexFromPath(reference)
		if err != nil {
			return nil, fmt.Errorf("base %s is not an OCI layout: %w", reference, err)
		}
		found, err := ofPlatform(index, *parsed)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%d images for %s, want exactly one", len(found), platform)
		}
		if err != nil {
			return nil, fmt.Errorf("base %s: %w", reference, err)
		}
		return found[0], nil
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("base %q is neither a directory nor a reference: %w", reference, err)
	}
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(*parsed), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, fmt.Errorf("base %s, %s is not available: %w", reference, platform, oneLine(err))
	}
	// A single image is returned whatever its platform is.
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("base %s, %s is not available: %w", reference, platform, oneLine(err))
	}
	if !file.Platform().Satisfies(*parsed) {
		return nil, fmt.Errorf("base %s is for %s, want %s", reference, file.Platform(), platform)
	}
	return image, nil
}

// Resolve returns the reference of an image in a registry by its digest, so that a later pull gets the same one
// one. A directory stays as it is.
func Resolve(ctx context.Context, reference string) (string, error) {
	if info, err := os.Stat(reference); err == nil && info.IsDir() {
		return reference, nil
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", fmt.Errorf("base %q is neither a directory nor a reference: %w", reference, err)
	}
	if _, is := ref.(name.Digest); is {
		return reference, nil
	}
	found, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", fmt.Errorf("base %s is not available: %w", reference, oneLine(err))
	}
	return ref.Context().Digest(found.Digest.String()).String(), nil
}

// ofPlatform returns the images of a platform in an index, and in the indexes in it.
func ofPlatform(index v1.ImageIndex, platform v1.Platform) ([]v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Image
	for _, descriptor := range manifest.Manifests {
		switch {
		case descriptor.MediaType.IsIndex():
			below, err := index.ImageIndex(descriptor.Digest)
			if err != nil {
				return nil, err
			}
			images, err := ofPlatform(below, platform)
			if err != nil {
				return nil, err
			}
			found = append(found, images...)
		case descriptor.MediaType.IsImage():
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				return nil, err
			}
			file, err := image.ConfigFile()
			if err != nil {
				return nil, err
			}
			// Artifacts such as a chart have none.
			if its := file.Platform(); its != nil && its.Satisfies(platform) {
				found = append(found, image)
			}
		}
	}
	return found, nil
}

// RefName is the annotation that names an image of a layout.
const RefName = "org.opencontainers.image.ref.name"

// AttachedTo is the annotation of what is about an image of a layout: the image's RefName.
const AttachedTo = "workload.openshift.io/attached-to"

// Push pushes all images of a layout to a registry, each under the name and the tag of its
// annotation, and calls done after each one. Tags are set only when all images are there: of a release
// that a registry takes only half of, nothing can be pulled.
func Push(ctx context.Context, dir, registry string, done func(reference string, digest v1.Hash)) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	type image struct {
		content remote.Taggable
		tag     name.Tag
		digest  v1.Hash
		// attached images have no tag of their own.
		attached bool
	}
	var images []image
	for _, descriptor := range manifest.Manifests {
		to, attached := descriptor.Annotations[AttachedTo]
		tag, err := name.NewTag(strings.TrimSuffix(registry, "/") + "/" + cmp.Or(to, descriptor.Annotations[RefName]))
		if err != nil {
			return fmt.Errorf("push of %q to %q: %w", descriptor.Annotations[RefName], registry, err)
		}
		var content interface {
			remote.Taggable
			Digest() (v1.Hash, error)
		}
		if descriptor.MediaType.IsIndex() {
			content, err = index.ImageIndex(descriptor.Digest)
		} else {
			content, err = index.Image(descriptor.Digest)
		}
		if err != nil {
			return fmt.Errorf("%s: image %s: %w", dir, descriptor.Annotations[RefName], err)
		}
		if digest, err := content.Digest(); err != nil || digest != descriptor.Digest {
			return fmt.Errorf("%s: image %s has digest %s, but its index says %s (%v)", dir, descriptor.Annotations[RefName], digest, descriptor.Digest, err)
		}
		images = append(images, image{content, tag, descriptor.Digest, attached})
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, image := range images {
		if err := remote.Push(image.tag.Context().Digest(image.digest.String()), image.content, options...); err != nil {
			return fmt.Errorf("push of %s: %w", image.tag, oneLine(err))
		}
	}
	for _, image := range images {
		if image.attached {
			continue
		}
		if err := remote.Push(image.tag, image.content, options...); err != nil {
			return fmt.Errorf("push of %s: %w", image.tag, oneLine(err))
		}
		done(image.tag.String(), image.digest)
	}
	return nil
}

// oneLine returns an error without line breaks: some registries answer with a page.
func oneLine(err error) error {
	return fmt.Errorf("%.500s", strings.Join(strings.Fields(err.Error()), " "))
}
