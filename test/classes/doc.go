// SPDX-License-Identifier: Apache-2.0

// Package classes measures on a virtual clock how many node-hours workload classes need for a trace of
// pods, beside others that give nodes back. The rules are the companion's own, and pods are placed by the
// plugins of kube-scheduler. Machines and the cluster autoscaler are models.
package classes
