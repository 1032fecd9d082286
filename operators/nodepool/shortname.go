// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxName is the length of a DNS label, which HyperShift takes for names of copies, and of a label's value.
const maxName = validation.DNS1123LabelMaxLength

// ShortenName returns the name of a pool's copy of a ConfigMap: NAME-POOL, or, where that is longer than 63 characters, a
// part of the name, a hash of it, and the pool's name. Different names and pools may have the same result: a-b and c, a and
// b-c.
//
// The results are those of HyperShift's ShortenName (support/util), but where its result is no valid name: a part of
// the name that is empty or ends in a dot.
func ShortenName(name, pool string) string {
	const hashed = 1 + 8 + 1 // of -HASH-
	whole := name + "-" + pool
	if len(whole) <= maxName {
		return whole
	}
	room := maxName - hashed - len(pool)
	if room < 0 {
		return strings.TrimPrefix(cut(name, maxName-hashed+1)+"-"+hash(whole), "-")
	}
	return strings.TrimPrefix(cut(name, room)+"-"+hash(name)+"-"+pool, "-")
}

// cut returns the beginning of a name, without a dot at its end: one label of a DNS name cannot begin with a dash, nor be
// empty.
func cut(name string, length int) string {
	return strings.TrimRight(name[:min(length, len(name))], ".")
}

func hash(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // it returns no error
	return fmt.Sprintf("%08x", h.Sum32())
}
