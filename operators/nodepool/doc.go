// SPDX-License-Identifier: Apache-2.0

// Package nodepool decides what becomes of a NodePool's spec.tuningConfig and spec.config: whether what they name can be
// used, and which ConfigMaps the control plane's namespace must have because of them. The rules are functions of plain
// values.
//
// All of a pool is used or nothing: while any part of it is invalid, what stands in the control plane's namespace stays.
package nodepool
