// SPDX-License-Identifier: Apache-2.0

// Package daemon runs TuneD on a node. It writes the profiles of the node's Profile for it, reloads it when they change, starts it
// again when it ends, and reports in the Profile's status what it says.
//
// What TuneD changed is undone when the Profile is gone, and when the DaemonSet is. It is not undone when this program is
// replaced by a newer one. TuneD by itself keeps in memory what it must undo; originals.py has it keep that in a file. That file,
// and the profiles that are in force, are in directories of the host that do not outlive a boot, since neither do the kernel's values.
//
// Boot does a part of that before the kubelet starts: it applies what Run has kept on the host, with TuneD in a copy of the image's root
// file system, since no container runs then.
//
// It reads one Profile and the DaemonSet, and writes the status of that Profile. It knows nothing of NodePools and Tuneds.
package daemon
