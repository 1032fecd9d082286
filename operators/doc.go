// SPDX-License-Identifier: Apache-2.0

// Package operators is the home of the companions of a partitioned cluster: small operators, none
// of which the kubelet or kube-apiserver of this project needs. docs/dev/operators.md says how they
// are built.
package operators
