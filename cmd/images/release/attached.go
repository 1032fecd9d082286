// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"workload.openshift.io/kubernetes/cmd/images/attest"
	"workload.openshift.io/kubernetes/cmd/images/oci"
)

// The predicates of what is attached to an image: to the index of all platforms, and to the image of each.
var (
	attachedToIndexes = []string{attest.Signed, attest.Provenance}
	attachedToImages  = []string{attest.Signed, attest.Provenance, attest.CycloneDX, attest.SPDX}
)

// checkAttached checks that each image of a directory has what its key attaches to it, and that all of it is signed by
// the key and about that image. It returns how much there is.
func checkAttached(dir string, key crypto.PublicKey) (count int, err error) {
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, Layout))
	if err != nil {
		return 0, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return 0, err
	}
	found := map[v1.Hash][]string{}
	for _, descriptor := range manifest.Manifests {
		named, ok := descriptor.Annotations[oci.AttachedTo]
		if !ok {
			continue
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return 0, err
		}
		subject, predicate, err := readAttachment(image, key)
		if err != nil {
			return 0, fmt.Errorf("what is attached to %s as %s: %w", named, descriptor.Digest, err)
		}
		found[subject] = append(found[subject], predicate)
		count++
	}
	for _, descriptor := range manifest.Manifests {
		if !descriptor.MediaType.IsIndex() {
			continue
		}
		want := map[v1.Hash][]string{descriptor.Digest: attachedToIndexes}
		below, err := index.ImageIndex(descriptor.Digest)
		if err != nil {
			return 0, err
		}
		platforms, err := below.IndexManifest()
		if err != nil {
			return 0, err
		}
		for _, platform := range platforms.Manifests {
			want[platform.Digest] = attachedToImages
		}
		for digest, predicates := range want {
			for _, predicate := range predicates {
				if !slices.Contains(found[digest], predicate) {
					return 0, fmt.Errorf("image %s: nothing of the type %s is attached to %s", descriptor.Annotations[oci.RefName], predicate, digest)
				}
			}
		}
	}
	return count, nil
}

// readAttachment returns what an attachment is about, and the type of what it says.
func readAttachment(image v1.Image, key crypto.PublicKey) (subject v1.Hash, predicate string, err error) {
	manifest, err := image.Manifest()
	if err != nil {
		return subject, "", err
	}
	if manifest.Subject == nil || len(manifest.Layers) != 1 {
		return subject, "", fmt.Errorf("it has %d layers and the subject %v, want one of each", len(manifest.Layers), manifest.Subject)
	}
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		return subject, "", err
	}
	stream, err := layer.Compressed()
	if err != nil {
		return subject, "", err
	}
	defer stream.Close()
	bundle, err := io.ReadAll(stream)
	if err != nil {
		return subject, "", err
	}
	predicate, digests, err := attest.Verify(bundle, key)
	if err != nil {
		return subject, "", err
	}
	if !slices.Contains(digests, manifest.Subject.Digest.Hex) {
		return subject, "", fmt.Errorf("it is about %q, and attached to %s", digests, manifest.Subject.Digest)
	}
	return manifest.Subject.Digest, predicate, nil
}
