// SPDX-License-Identifier: Apache-2.0

// Package result is what results that are printed for programs begin with.
package result

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion is that of all results.
const APIVersion = "cli.workload.openshift.io/v1alpha1"

// TypeMeta returns what a result of the kind begins with.
func TypeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}
}
