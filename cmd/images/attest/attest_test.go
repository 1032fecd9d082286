// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"slices"
	"testing"
)

func TestABundleVerifiesByItsKeyAlone(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	statement, err := Statement("a", "0123", Signed, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ECDSA": ec, "Ed25519": ed} {
		t.Run(name, func(t *testing.T) {
			bundle, err := Bundle(statement, key)
			if err != nil {
				t.Fatal(err)
			}
			if predicate, digests, err := Verify(bundle, key.Public()); err != nil || predicate != Signed || !slices.Equal(digests, []string{"0123"}) {
				t.Errorf("it is %q about %q: %v", predicate, digests, err)
			}
			other := ec.Public()
			if name == "ECDSA" {
				other = ed.Public()
			}
			if _, _, err := Verify(bundle, other); err == nil {
				t.Error("it verifies by another key")
			}
			if again, err := Bundle(statement, key); err != nil || !bytes.Equal(again, bundle) {
				t.Errorf("signed again, it differs (%v)", err)
			}
		})
	}
}
