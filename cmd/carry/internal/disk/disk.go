// SPDX-License-Identifier: Apache-2.0

// Package disk writes files atomically, and names contents. It knows
// nothing of what is in them.
package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Digest names a list of contents: it differs if any of them does.
func Digest(parts ...[]byte) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d:", len(part))
		hash.Write(part)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Write writes a file and the directories above it. A file that has the content
// keeps its time, so that nothing is built again for it.
func Write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	err := os.WriteFile(temporary, data, 0o644)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // it may be what fills the disk
	}
	return err
}
