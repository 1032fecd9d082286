// SPDX-License-Identifier: Apache-2.0

// Package tuning has the rules of node tuning, as pure functions: what the Tuneds of a NodePool are, which of them a node gets,
// and what its Profile says.
//
// It knows no client, no file and no process.
package tuning
