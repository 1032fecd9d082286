// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"workload.openshift.io/kubernetes/cmd/images/attest"
	"workload.openshift.io/kubernetes/cmd/images/oci"
)

func TestSignaturesAreWhereRegistriesLookForThem(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Key = key
	o.Images = slices.DeleteFunc(o.Images, func(image Image) bool { return image.Name != "kube-scheduler" })
	o.Packages = nil
	write(t, o)
	// An index and an image of each of two platforms are signed and have a provenance, and the images a bill of materials in
	// two formats.
	if count, err := checkAttached(o.Dir, key.Public()); err != nil || count != 10 {
		t.Errorf("%d attestations: %v", count, err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkAttached(o.Dir, other.Public()); err == nil || !strings.Contains(err.Error(), "it is not signed by this key") {
		t.Errorf("with another key: %v", err)
	}
	// Registries list what is attached by their API, or by a tag where they do not have that yet.
	for what, referrers := range map[string]bool{"the API": true, "a tag": false} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrers)))
			defer server.Close()
			var pushed []string
			host := strings.TrimPrefix(server.URL, "http://")
			if err := oci.Push(t.Context(), filepath.Join(o.Dir, Layout), host, func(reference string, digest v1.Hash) {
				pushed = append(pushed, reference+"@"+digest.String())
			}); err != nil {
				t.Fatal(err)
			}
			if len(pushed) != 1 {
				t.Fatalf("pushed were %q", pushed)
			}
			digest, err := name.NewDigest(pushed[0])
			if err != nil {
				t.Fatal(err)
			}
			expectAttached(t, digest, []string{attest.Signed, attest.Provenance}, key.Public(), other.Public())
			index, err := remote.Index(digest)
			if err != nil {
				t.Fatal(err)
			}
			platforms, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			for _, platform := range platforms.Manifests {
				of := digest.Context().Digest(platform.Digest.String())
				expectAttached(t, of, []string{attest.CycloneDX, attest.Signed, attest.Provenance, attest.SPDX}, key.Public(), other.Public())
			}
		})
	}
}

// expectAttached expects that a registry lists these predicates, in order of their names, of an image, and that one key has
// signed them, and the other has not.
func expectAttached(t *testing.T, digest name.Digest, want []string, key, other crypto.PublicKey) {
	t.Helper()
	index, err := remote.Referrers(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var predicates []string
	for _, descriptor := range manifest.Manifests {
		image, err := remote.Image(digest.Context().Digest(descriptor.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		_, predicate, err := readAttachment(image, key)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := image.RawManifest()
		if err != nil || !strings.Contains(string(raw), `"artifactType":"`+attest.BundleType+`"`) {
			t.Errorf("the manifest is %s (%v)", raw, err)
		}
		predicates = append(predicates, predicate)
	}
	slices.Sort(predicates)
	if !slices.Equal(predicates, want) {
		t.Errorf("the registry lists %q of %s, want %q", predicates, digest, want)
	}
	verifyByCosign(t, digest.String(), want, key, true)
	verifyByCosign(t, digest.String(), want, other, false)
}

// verifyByCosign has cosign's own code verify what is attached to an image, if the program of cmd/images/test/cosign is
// there.
func verifyByCosign(t *testing.T, reference string, predicates []string, key crypto.PublicKey, valid bool) {
	t.Helper()
	program := os.Getenv("TEST_ASSET_COSIGN")
	if program == "" {
		t.Log("TEST_ASSET_COSIGN does not name a program, so cosign did not look; make images-cosign-test does")
		return
	}
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(program, reference, file).CombinedOutput()
	if is := err == nil && string(output) == strings.Join(predicates, "\n")+"\n"; is != valid {
		t.Errorf("by cosign it is valid: %t, want %t: %v: %s", is, valid, err, output)
	}
}

func TestWithoutAKeyNothingIsAttached(t *testing.T) {
	o := full(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkAttached(o.Dir, key.Public()); err == nil || !strings.Contains(err.Error(), "nothing of the type") {
		t.Errorf("got %v", err)
	}
}
