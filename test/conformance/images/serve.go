// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// registry serves images, and takes none. Go-containerregistry's registry would have to be given each
// layer by an upload, which it keeps in memory.
type registry struct {
	// served is what it has, by path.
	served map[string]served
}

// served is a manifest or a blob.
type served struct {
	mediaType, digest string
	open              func() (io.ReadSeekCloser, error)
}

// Handler serves the images as a registry of the OCI distribution specification does. It is for the
// container runtime, as the mirror of Registry. Layers are read from the files of Options.Dir.
func (s *Set) Handler() (http.Handler, error) {
	r := &registry{served: map[string]served{}}
	for reference, image := range s.Images {
		if err := r.add(reference, image); err != nil {
			return nil, fmt.Errorf("image %s: %w", reference, err)
		}
	}
	return r, nil
}

func (r *registry) add(reference string, image v1.Image) error {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return err
	}
	repository := "/v2/" + tag.RepositoryStr()
	manifest, err := partial.Descriptor(image)
	if err != nil {
		return err
	}
	data, err := image.RawManifest()
	if err != nil {
		return err
	}
	for _, name := range []string{tag.TagStr(), manifest.Digest.String()} {
		r.served[repository+"/manifests/"+name] = served{string(manifest.MediaType), manifest.Digest.String(), inMemory(data)}
	}
	config, err := image.ConfigName()
	if err != nil {
		return err
	}
	if data, err = image.RawConfigFile(); err != nil {
		return err
	}
	r.served[repository+"/blobs/"+config.String()] = served{"application/octet-stream", config.String(), inMemory(data)}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		r.served[repository+"/blobs/"+digest.String()] = served{"application/octet-stream", digest.String(), func() (io.ReadSeekCloser, error) {
			stream, err := layer.Compressed()
			if err != nil {
				return nil, err
			}
			file, ok := stream.(io.ReadSeekCloser)
			if !ok {
				return nil, errors.Join(fmt.Errorf("layer %s is not a file", digest), stream.Close())
			}
			return file, nil
		}}
	}
	return nil
}

func inMemory(data []byte) func() (io.ReadSeekCloser, error) {
	return func() (io.ReadSeekCloser, error) {
		return struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(data), io.NopCloser(nil)}, nil
	}
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED", request.Method+": images can only be read")
		return
	}
	if request.URL.Path == "/v2/" || request.URL.Path == "/v2" {
		return
	}
	// containerd says which registry it means.
	if other := request.URL.Query().Get("ns"); other != "" && other != Registry {
		fail(w, http.StatusNotFound, "NAME_UNKNOWN", fmt.Sprintf("registry %q: only images of %s are here", other, Registry))
		return
	}
	found, ok := r.served[path.Clean(request.URL.Path)]
	if !ok {
		fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", request.URL.Path+" is not here; see which images were not built")
		return
	}
	body, err := found.open()
	if err != nil {
		fail(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	defer body.Close()
	w.Header().Set("Content-Type", found.mediaType)
	w.Header().Set("Docker-Content-Digest", found.digest)
	http.ServeContent(w, request, "", time.Time{}, body)
}

// fail answers with an error as the specification has it.
func fail(w http.ResponseWriter, status int, code, message string) {
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client has gone if this fails.
	_ = json.NewEncoder(w).Encode(map[string][]problem{"errors": {{code, message}}})
}
