// SPDX-License-Identifier: Apache-2.0

// Package numaresources has the rules of the companion numaresources, as functions of plain values: what a
// NodeResourceTopology says of a node, and what exporter and operator tell each other.
//
// It knows no client, and no file.
package numaresources
