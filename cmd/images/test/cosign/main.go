// SPDX-License-Identifier: Apache-2.0

// Command cosign verifies the attestations of an image by cosign's own code, with a public key and without any public
// service, and prints the types of their predicates.
package main

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

func main() {
	predicates, err := verify(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, predicate := range predicates {
		fmt.Println(predicate)
	}
}

func verify(ctx context.Context, image, file string) (predicates []string, err error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(data)
	if err != nil {
		return nil, err
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	// cosign demands one for bundles, also with a key, and fetches that of the public services by default.
	nobody, err := root.NewTrustedRootFromJSON([]byte(`{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`))
	if err != nil {
		return nil, err
	}
	attestations, _, err := cosign.VerifyImageAttestations(ctx, reference, &cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true, IgnoreSCT: true, NewBundleFormat: true, TrustedMaterial: nobody})
	if err != nil {
		return nil, err
	}
	for _, attestation := range attestations {
		payload, err := attestation.Payload()
		if err != nil {
			return nil, err
		}
		var envelope struct {
			Payload string `json:"payload"`
		}
		if err := json.Unmarshal(payload, &envelope); err != nil {
			return nil, err
		}
		statement, err := base64.StdEncoding.DecodeString(envelope.Payload)
		if err != nil {
			return nil, err
		}
		var read struct {
			PredicateType string `json:"predicateType"`
		}
		if err := json.Unmarshal(statement, &read); err != nil {
			return nil, err
		}
		predicates = append(predicates, read.PredicateType)
	}
	slices.Sort(predicates)
	return predicates, nil
}
