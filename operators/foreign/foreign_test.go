// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const key = "example.com/status"

var other = Manager{
	Name:        "Other",
	Deployments: []types.NamespacedName{{Namespace: "other-system", Name: "other"}},
	Writes:      authorizationv1.ResourceAttributes{Verb: "update", Resource: "nodes"},
	Fields: []Fields{{
		Kind:  schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		Owner: "other",
		Paths: []fieldpath.Path{fieldpath.MakePathOrDie("metadata", "annotations", key)},
	}},
	HandOver: "remove it",
}

func deployment(replicas *int32) client.Object {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "other-system", Name: "other"}, Spec: appsv1.DeploymentSpec{Replicas: replicas}}
}

// node has an annotation that an owner wrote.
func node(name, owner, key string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key: ""}, ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:metadata":{"f:annotations":{".":{},"f:%s":{}}}}`, key)),
	}}}}
}

// allows answers a review of rights: nodes may be updated by one ServiceAccount.
func allows(account string) interceptor.Funcs {
	return interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
		review := object.(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == account && *review.Spec.ResourceAttributes == other.Writes
		return nil
	}}
}

func TestAnotherManagerIsFoundWhereItRuns(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []client.Object
		allowed string
		// want is part of the error; empty is that nobody is found.
		want string
	}{
		{"nothing", nil, "system:serviceaccount:other-system:default", ""},
		{"its Deployment", []client.Object{deployment(ptr.To[int32](1))}, "system:serviceaccount:other-system:default", "Other manages the same objects: the Deployment other-system/other; to hand over, remove it"},
		{"its Deployment, with the default", []client.Object{deployment(nil)}, "system:serviceaccount:other-system:default", "the Deployment other-system/other"},
		{"its Deployment, scaled to zero", []client.Object{deployment(ptr.To[int32](0))}, "system:serviceaccount:other-system:default", ""},
		{"a Deployment of that name that may not write Nodes", []client.Object{deployment(nil)}, "system:serviceaccount:other-system:other", ""},
		{"a field that it wrote", []client.Object{node("a", "other", key)}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(test.objects...).WithReturnManagedFields().WithInterceptorFuncs(allows(test.allowed)).Build()
			found, err := Find(t.Context(), c, c, []Manager{{Name: "Nobody"}, other})
			if err != nil {
				t.Fatal(err)
			}
			check(t, found, test.want)
		})
	}
}

func check(t *testing.T, found *Found, want string) {
	t.Helper()
	switch {
	case found == nil && want != "":
		t.Errorf("nobody is found, want %q", want)
	case found != nil && (want == "" || !strings.Contains(found.Error(), want)):
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestAnObjectSaysWhoWroteIt(t *testing.T) {
	for _, test := range []struct {
		name   string
		object client.Object
		want   string
	}{
		{"a field that it wrote", node("a", "other", key), "it wrote .metadata.annotations.example.com/status of the Node a; to hand over, remove it"},
		{"a field that somebody else wrote", node("a", "kubectl", key), ""},
		{"another field that it wrote", node("a", "other", "example.com/else"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			check(t, other.Wrote(test.object, corev1.SchemeGroupVersion.WithKind("Node")), test.want)
		})
	}
}

func TestAnErrorNamesWhoWasLookedFor(t *testing.T) {
	reader := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no connection")
		},
	}).Build()
	if _, err := Find(t.Context(), reader, reader, []Manager{other}); err == nil || !strings.Contains(err.Error(), "looking for Other: no connection") {
		t.Errorf("the error is %v", err)
	}
}
