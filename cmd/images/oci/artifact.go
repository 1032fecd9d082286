// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of a chart in a registry (https://helm.sh/docs/topics/registries).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// Chart returns a Helm chart as registries have it. Metadata is its Chart.yaml, as JSON, and archive the chart.
func Chart(metadata, archive []byte, annotations map[string]string) (v1.Image, error) {
	return artifact("", blob{chartConfig, metadata}, []blob{{chartContent, archive}}, nil, annotations)
}

// blob is content of an artifact.
type blob struct {
	mediaType types.MediaType
	content   []byte
}

// files is an image whose config and layers are files, as artifacts other than images are.
type files struct {
	manifest []byte
	config   []byte
	layers   map[v1.Hash]partial.CompressedLayer
}

// artifact returns an image of a config and layers that are none of an image. Subject is what it is about.
func artifact(artifactType string, config blob, layers []blob, subject *v1.Descriptor, annotations map[string]string) (v1.Image, error) {
	f := &files{config: config.content, layers: map[v1.Hash]partial.CompressedLayer{}}
	descriptor := func(b blob) (v1.Descriptor, error) {
		hash, size, err := v1.SHA256(bytes.NewReader(b.content))
		f.layers[hash] = static.NewLayer(b.content, b.mediaType)
		return v1.Descriptor{MediaType: b.mediaType, Digest: hash, Size: size}, err
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Subject: subject, Annotations: annotations}
	var err error
	if manifest.Config, err = descriptor(config); err != nil {
		return nil, err
	}
	for _, layer := range layers {
		described, err := descriptor(layer)
		if err != nil {
			return nil, err
		}
		manifest.Layers = append(manifest.Layers, described)
	}
	// v1.Manifest has no artifactType.
	if f.manifest, err = json.Marshal(struct {
		v1.Manifest
		ArtifactType string `json:"artifactType,omitempty"`
	}{manifest, artifactType}); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(f)
}

func (f *files) RawManifest() ([]byte, error)        { return f.manifest, nil }
func (f *files) RawConfigFile() ([]byte, error)      { return f.config, nil }
func (f *files) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (f *files) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	layer, ok := f.layers[digest]
	if !ok {
		return nil, fmt.Errorf("the artifact has no blob %s", digest)
	}
	return layer, nil
}

// Attachment returns a bundle of Sigstore as registries have it: an artifact about an image, which lists it among its
// referrers (OCI distribution-spec v1.1; the annotations are cosign's).
func Attachment(subject v1.Descriptor, bundleType, predicateType string, bundle []byte) (v1.Image, error) {
	return artifact(bundleType, blob{"application/vnd.oci.empty.v1+json", []byte("{}")}, []blob{{types.MediaType(bundleType), bundle}}, &subject, map[string]string{
		"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": predicateType,
	})
}
