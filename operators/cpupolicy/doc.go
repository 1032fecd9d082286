// SPDX-License-Identifier: Apache-2.0

// Package cpupolicy has the rules of a switch of one node's CPU manager policy, as functions of
// plain values: what the annotation says and who may write it, what must be true before a switch,
// which pods a restarted kubelet would reject, what a virtual machine with dedicated CPUs must look
// like. It knows no client, no file and no process (docs/dev/operators.md).
//
// A VM in these files is one of KubeVirt's: a VirtualMachine or its VirtualMachineInstance.
package cpupolicy
