// SPDX-License-Identifier: Apache-2.0

// Package util stands for upstream's package sigs.k8s.io/scheduler-plugins/test/util when carry materialises the plugin: that
// package imports the whole module, and the plugin's tests use nothing of it but this client.
package util

import (
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// NewFakeClient returns a client of a cluster in memory that has these objects.
func NewFakeClient(objects ...runtime.Object) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := (&runtime.SchemeBuilder{corev1.AddToScheme, v1alpha2.AddToScheme}).AddToScheme(scheme); err != nil {
		return nil, err
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRuntimeObjects(objects...).Build(), nil
}
