// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/images/attest"
	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
)

// hashFiles returns the SHA-256 of each file of a directory but the checksums, by path.
func hashFiles(dir string) (map[string]string, error) {
	found := map[string]string{}
	// WalkDir would not follow a link.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == sumsFile || name == signatureFile {
			return err
		}
		found[filepath.ToSlash(name)], err = digest.File(path)
		return err
	})
	return found, err
}

// WriteSums writes the checksums of a directory, as sha256sum --check reads them, and signs them.
// The signature is that of cosign sign-blob: base64 of an ECDSA signature of their SHA-256, or of an
// Ed25519 signature of the file. The same key gives the same signature.
func WriteSums(dir string, key crypto.Signer) error {
	files, err := hashFiles(dir)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%s  %s\n", files[name], name)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), sums.Bytes(), 0o644); err != nil || key == nil {
		return err
	}
	signature, err := attest.Sign(key, sums.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", signatureFile, err)
	}
	return os.WriteFile(filepath.Join(dir, signatureFile), []byte(base64.StdEncoding.EncodeToString(signature)), 0o644)
}

// ReadKey reads a private key, ECDSA or Ed25519, from a PEM file that openssl genpkey writes. It
// must not be encrypted.
func ReadKey(file string) (crypto.Signer, error) {
	block, err := readPEM(file, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("%s: a key of type %T; only ECDSA and Ed25519 are supported", file, key)
}

// ReadPublicKey reads a public key from a PEM file.
func ReadPublicKey(file string) (crypto.PublicKey, error) {
	block, err := readPEM(file, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	switch key.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return key, nil
	}
	return nil, fmt.Errorf("%s: a key of type %T; only ECDSA and Ed25519 are supported", file, key)
}

func readPEM(file, kind string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s: no PEM block of type %s", file, kind)
	}
	return block.Bytes, nil
}

// CheckSums checks that the checksums of a directory are those of its files, that none is missing or
// has been added, and the signature if there is a key. It returns how many files there are.
func CheckSums(dir string, key crypto.PublicKey) (int, error) {
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return 0, err
	}
	if key != nil {
		if err := checkSignature(dir, sums, key); err != nil {
			return 0, err
		}
	}
	files, err := hashFiles(dir)
	if err != nil {
		return 0, err
	}
	count := len(files)
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		switch got, ok := files[name]; {
		case !ok:
			return 0, fmt.Errorf("%s: %s is missing", dir, name)
		case got != sum:
			return 0, fmt.Errorf("%s: %s has sha256 %s, but %s says %s", dir, name, got, sumsFile, sum)
		}
		delete(files, name)
	}
	for name := range files {
		return 0, fmt.Errorf("%s: %s is not in %s", dir, name, sumsFile)
	}
	return count, nil
}

func checkSignature(dir string, sums []byte, key crypto.PublicKey) error {
	file := filepath.Join(dir, signatureFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not signed: there is no %s", dir, signatureFile)
	}
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !attest.Valid(key, sums, signature) {
		return fmt.Errorf("%s is not a signature of %s by this key", file, sumsFile)
	}
	return nil
}
