/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/operation"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/nodegroup"
)

// TestAnObservedNodeHasItsLabel: whichever write meets a conflict, a node that counts as observed has
// its label, since nobody comes back to it.
func TestAnObservedNodeHasItsLabel(t *testing.T) {
	scheme := testenv.Scheme()
	if err := virtv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, conflict := range map[string]int{"no conflict": 0, "a conflict at the first write": 1, "a conflict at the second write": 2} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if writes++; writes == conflict {
						return apierrors.NewConflict(corev1.Resource("nodes"), object.GetName(), nil)
					}
					return c.Patch(ctx, object, patch, options...)
				},
			}).Build()
			nodes := nodegroup.Client{Reader: c, Writer: c}
			o := observer{nodes: nodes, labels: labels{nodes}, now: time.Now}
			for observed := false; !observed; {
				var live corev1.Node
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &live); err != nil {
					t.Fatal(err)
				}
				if observed = observedOf(&live) != nil; observed {
					if got := live.Labels[cpupolicy.Label]; got != "true" || live.Labels[virtv1.CPUManager] != got {
						t.Errorf("the labels are %v", live.Labels)
					}
				} else if err := o.remember(t.Context(), &live, "boot", operation.Observation{Policy: operation.Static}); err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
		})
	}
}
