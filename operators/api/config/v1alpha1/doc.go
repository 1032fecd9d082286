// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the configuration files of the operators' programs: their kinds, their
// defaults, and what is wrong with one. A file is read strictly, and an error names the file, the
// field and the value.
//
// It knows what can be chosen, and not what follows from a choice: it imports no client and nothing
// else of this module.
//
// +kubebuilder:object:generate=true
// +groupName=config.workload.openshift.io
package v1alpha1
