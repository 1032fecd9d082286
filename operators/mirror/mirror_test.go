// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// of gives an object the label of a pool.
func of(pool string, object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetLabels(with(object.GetLabels(), map[string]string{"pool": pool}))
	return object
}

// The target may refuse one copy, and let go of every other.
func TestACopyStaysUntilItsSuccessorIsThere(t *testing.T) {
	refuses := true
	target := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(of("a", configMap("a-old")), of("b", configMap("b-old"))).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if refuses && object.GetName() == "a-new" {
				return errors.New("refused")
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	m := Mirror{Reader: target, Writer: target, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "target", Label: "mirror", Value: "test"}
	look := func() ([]string, error) {
		_, err := m.Look(t.Context(), Want{
			Copies:  []*unstructured.Unstructured{of("a", configMap("a-new bare")), of("b", configMap("b-new bare"))},
			Certain: func(*unstructured.Unstructured) bool { return true },
		}, time.Now())
		var list corev1.ConfigMapList
		if err := target.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, object := range list.Items {
			names = append(names, object.Name)
		}
		slices.Sort(names)
		return names, err
	}
	if got, err := look(); err == nil || !slices.Equal(got, []string{"a-old", "b-new"}) {
		t.Errorf("without the successor of a-old there are %q, %v", got, err)
	}
	refuses = false
	if got, err := look(); err != nil || !slices.Equal(got, []string{"a-new", "b-new"}) {
		t.Errorf("with all successors there are %q, %v", got, err)
	}
}
