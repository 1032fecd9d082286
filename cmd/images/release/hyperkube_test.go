// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
)

// openshift-tests decompresses what it finds, and starts it.
func TestHyperkubeHasTheForksTestsCompressed(t *testing.T) {
	o := options(t)
	o.Binaries = gobinary.Dirs(t, slices.Concat(kubernetes, []string{"watch-termination", "k8s-tests-ext"})...)
	o.Images = slices.DeleteFunc(o.Images, func(image Image) bool { return image.Name != hyperkubeName })
	o.Packages = nil
	write(t, o)
	for platform, dirs := range o.Binaries {
		image := imagesOf(t, o.Dir)[hyperkubeName+":v1.37.0_wp.1234567 "+platform]
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		stream, err := layers[len(layers)-1].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		found := untarred(t, stream)["usr/bin/k8s-tests-ext.gz"]
		compressed, err := gzip.NewReader(strings.NewReader(found))
		if err != nil {
			t.Fatalf("%s: %d bytes: %v", platform, len(found), err)
		}
		got, err := io.ReadAll(compressed)
		want, errRead := os.ReadFile(filepath.Join(dirs[0], "k8s-tests-ext"))
		if err := errors.Join(err, errRead); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the tests are not the binary (%v)", platform, err)
		}
	}
	if _, err := CheckSums(o.Dir, nil); err != nil {
		t.Error(err)
	}
}
