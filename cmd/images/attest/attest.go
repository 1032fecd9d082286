// SPDX-License-Identifier: Apache-2.0

// Package attest signs statements about artifacts in the form that cosign v3 verifies: an in-toto statement in a DSSE
// envelope, in a bundle of Sigstore. It knows no registry, and asks no public service: there is neither a certificate nor
// an entry of a transparency log, only the signature of a key.
package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// The types of what a bundle consists of (sigstore/protobuf-specs, sigstore_bundle.proto; secure-systems-lab/dsse).
const (
	// BundleType is that of the bundle.
	BundleType  = "application/vnd.dev.sigstore.bundle.v0.3+json"
	payloadType = "application/vnd.in-toto+json"
)

// The predicates of statements.
const (
	// Signed says nothing but that the key signed the artifact: what cosign sign writes.
	Signed = "https://sigstore.dev/cosign/sign/v1"
	// CycloneDX and SPDX are bills of materials.
	CycloneDX = "https://cyclonedx.org/bom"
	SPDX      = "https://spdx.dev/Document"
	// Provenance is SLSA's.
	Provenance = "https://slsa.dev/provenance/v1"
)

// Statement returns a statement of in-toto about an artifact with this sha256, in hexadecimal. Predicate is JSON.
func Statement(name, digest, predicateType string, predicate json.RawMessage) ([]byte, error) {
	return json.Marshal(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []any{map[string]any{"name": name, "digest": map[string]string{"sha256": digest}}},
		"predicateType": predicateType,
		"predicate":     predicate,
	})
}

// Bundle signs a statement. The same key and statement give the same bytes.
func Bundle(statement []byte, key crypto.Signer) ([]byte, error) {
	signature, err := Sign(key, encoded(statement))
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	hint := sha256.Sum256(public)
	return json.Marshal(map[string]any{
		"mediaType":            BundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": base64.StdEncoding.EncodeToString(hint[:])}},
		"dsseEnvelope": map[string]any{
			"payload":     statement,
			"payloadType": payloadType,
			"signatures":  []any{map[string]any{"sig": signature}},
		},
	})
}

// Sign signs a message by an ECDSA key, which signs its SHA-256, or by an Ed25519 one.
func Sign(key crypto.Signer, message []byte) ([]byte, error) {
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(nil, message, crypto.Hash(0))
	}
	digest := sha256.Sum256(message)
	return key.Sign(nil, digest[:], crypto.SHA256)
}

// Valid reports whether a signature is that of a message by a key, as Sign makes it.
func Valid(key crypto.PublicKey, message, signature []byte) bool {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		digest := sha256.Sum256(message)
		return ecdsa.VerifyASN1(key, digest[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	}
	return false
}

// Verify returns the type of the predicate of a bundle that the key has signed, and the sha256 of what it is about.
func Verify(bundle []byte, key crypto.PublicKey) (predicateType string, digests []string, err error) {
	var read struct {
		Envelope struct {
			Payload     []byte `json:"payload"`
			PayloadType string `json:"payloadType"`
			Signatures  []struct {
				Sig []byte `json:"sig"`
			} `json:"signatures"`
		} `json:"dsseEnvelope"`
	}
	if err := json.Unmarshal(bundle, &read); err != nil {
		return "", nil, err
	}
	envelope := read.Envelope
	if len(envelope.Signatures) != 1 || envelope.PayloadType != payloadType || !Valid(key, encoded(envelope.Payload), envelope.Signatures[0].Sig) {
		return "", nil, errors.New("it is not signed by this key")
	}
	var statement struct {
		Subject []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(envelope.Payload, &statement); err != nil {
		return "", nil, err
	}
	for _, subject := range statement.Subject {
		digests = append(digests, subject.Digest["sha256"])
	}
	return statement.PredicateType, digests, nil
}

// encoded is what is signed of a statement (DSSE's PAE).
func encoded(statement []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement)
}
