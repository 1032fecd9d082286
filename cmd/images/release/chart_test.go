// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/oci"
)

func TestTheChartNamesItsVersionAndTheImages(t *testing.T) {
	o := options(t)
	o.Chart = t.TempDir()
	for name, content := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: companions\nversion: 0.0.0\n", "templates/a.yaml": "a: {{ .Values.a }}\n", "templates/_digests.tpl": "none",
	} {
		path := filepath.Join(o.Chart, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, o)
	files := unpacked(t, filepath.Join(o.Dir, "companions-1.37.0+wp.1234567.tgz"))
	for name, want := range map[string]string{
		"companions/Chart.yaml": "version: 1.37.0+wp.1234567", "companions/templates/a.yaml": "a: {{ .Values.a }}", "companions/templates/_digests.tpl": `"kube-scheduler":"` + digestIn(t, o.Dir, "kube-scheduler") + `"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %q, want %q in it", name, files[name], want)
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(o.Dir, Layout))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	last := manifest.Manifests[len(manifest.Manifests)-1]
	if got := last.Annotations[oci.RefName]; got != "companions:1.37.0_wp.1234567" {
		t.Errorf("the chart is %q in the layout", got)
	}
	image, err := index.Image(last.Digest)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(raw, &metadata); err != nil || metadata != struct{ Name, Version, AppVersion string }{"companions", "1.37.0+wp.1234567", "v1.37.0+wp.1234567"} {
		t.Errorf("the chart's config is %s (%v)", raw, err)
	}
	if _, err := CheckSums(o.Dir, nil); err != nil {
		t.Error(err)
	}
}

func TestAChartOfADevelopersImagesHasAVersionThatHelmTakes(t *testing.T) {
	for version, want := range map[string]string{"v1.37.2+wp.81c54e2": "1.37.2+wp.81c54e2", "dev-0123456789ab": "0.0.0-dev-0123456789ab"} {
		if got := chartVersion(version); got != want {
			t.Errorf("of %s: %s, want %s", version, got, want)
		}
	}
}

// digestIn is the digest of an image in the list for readers.
func digestIn(t *testing.T, dir, image string) string {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(dir, listFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[0], image+":") && fields[1] == "all" {
			return fields[len(fields)-1]
		}
	}
	t.Fatalf("no image %s in\n%s", image, list)
	return ""
}

func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stream, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return untarred(t, stream)
}

// untarred returns the files of a tar archive by their names.
func untarred(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		content, errRead := io.ReadAll(archive)
		if err := errors.Join(err, errRead); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}
