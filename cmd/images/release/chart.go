// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"

	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// The files of a chart that this writes: its version, and a template with the digests of the images.
const (
	chartFile   = "Chart.yaml"
	digestsFile = "templates/_digests.tpl"
)

// chart packs the Helm chart with the version and the digests of the images, as a file and as an image of the layout.
func (w *writer) chart(to layout.Path) error {
	date := cmp.Or(w.Date, time.Unix(0, 0))
	content, err := os.ReadFile(filepath.Join(w.Chart, chartFile))
	if err != nil {
		return err
	}
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return fmt.Errorf("%s: %w", chartFile, err)
	}
	name, ok := metadata["name"].(string)
	if !ok {
		return fmt.Errorf("%s: there is no name", chartFile)
	}
	version := chartVersion(w.Version)
	metadata["version"], metadata["appVersion"] = version, w.Version
	digests, err := json.Marshal(w.digests)
	if err != nil {
		return err
	}
	tree := rootfs.New()
	if err := filepath.WalkDir(w.Chart, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(w.Chart, path)
		if err != nil {
			return err
		}
		return tree.Copy(name+"/"+filepath.ToSlash(below), 0o644, path)
	}); err != nil {
		return err
	}
	if content, err = yaml.Marshal(metadata); err != nil {
		return err
	}
	tree.File(name+"/"+chartFile, 0o644, content)
	tree.File(name+"/"+digestsFile, 0o644, fmt.Appendf(nil, "{{- define \"digests\" }}%s{{ end }}\n", digests))
	var archive bytes.Buffer
	stream := gzip.NewWriter(&archive)
	if err := errors.Join(tree.Write(stream, "", date), stream.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, name+"-"+version+".tgz"), archive.Bytes(), 0o644); err != nil {
		return err
	}
	if content, err = json.Marshal(metadata); err != nil {
		return err
	}
	image, err := oci.Chart(content, archive.Bytes(), map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": version, "org.opencontainers.image.revision": w.Commit,
		"org.opencontainers.image.created": date.UTC().Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	// Helm writes a plus sign as an underscore.
	named := name + ":" + Tag(version)
	fmt.Fprintf(w.list, "%s\tchart\t%.1f MB\t%s\n", named, float64(archive.Len())/1e6, digest)
	return to.AppendImage(image, layout.WithAnnotations(map[string]string{oci.RefName: named}))
}

// chartVersion is a version as Helm takes it, a semantic one without a v.
func chartVersion(version string) string {
	if plain, ok := strings.CutPrefix(version, "v"); ok {
		return plain
	}
	return "0.0.0-" + Tag(version)
}
