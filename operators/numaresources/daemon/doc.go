// SPDX-License-Identifier: Apache-2.0

// Package daemon is the node side of the companion numaresources: it reads what the kubelet gives to pods, how the kubelet
// runs, and sysfs, and writes the NodeResourceTopology of its own node.
//
// It knows no other node, and not what becomes of what it writes.
package daemon
