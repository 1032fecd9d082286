// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/partition"
)

// The policy of docs/user/namespaces.md: only users with the verb add types to a namespace.
// All others who may write namespaces can do the rest.
func TestOnlyThoseWithTheVerbAddTypesToANamespace(t *testing.T) {
	in(t)
	c := apiServer(t)
	policy := installNamespacePolicy(t, c)
	mayWriteNamespaces(t, c)
	tenant := namespacesAs(t, "tenant", "project-owners")
	platform := namespacesAs(t, "operator", "project-owners", "platform-team")

	grant := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: policy}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: policy},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "platform-team"}}}
	bind(t, c, grant)
	waitFor(t, 20*time.Second, "the policy is in force", func() error {
		if _, err := tenant.Create(t.Context(), allowing("e2e-probe", "management"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !refusedByPolicy(err, "management") {
			return fmt.Errorf("got %v", err)
		}
		_, err := platform.Create(t.Context(), allowing("e2e-probe", "management"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})

	for name, test := range map[string]struct {
		before, after, refused string
	}{
		"none":                         {"", "", ""},
		"the first type":               {"", "management", "management"},
		"a second type":                {"management", "management,infra", "infra"},
		"another type":                 {"management", "infra", "infra"},
		"two of three types":           {"infra", " infra , management,edge", "management, edge"},
		"the same type":                {"management", "management", ""},
		"the same types, with blanks":  {"management,infra", " infra , management ", ""},
		"one type less":                {"management,infra", "infra", ""},
		"no type any more":             {"management", "", ""},
		"commas, which are not types":  {"", " , ", ""},
		"a type that is another's end": {"management", "ment", "ment"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, err := platform.Create(t.Context(), allowing("", test.before), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Client.CoreV1().Namespaces().Delete(cleanup(t), namespace.Name, metav1.DeleteOptions{}) })
			expect := func(how string, err error) {
				t.Helper()
				if test.refused == "" && err != nil || test.refused != "" && !refusedByPolicy(err, test.refused) {
					t.Errorf("%s: got %v, want refused %q", how, err, test.refused)
				}
			}
			if test.before == "" {
				_, err := tenant.Create(t.Context(), allowing("", test.after), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				expect("create", err)
			}
			value := fmt.Sprintf("%q", test.after)
			if test.after == "" {
				value = "null"
			}
			patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, partition.AllowedAnnotation, value)
			for _, subresource := range []string{"", "status", "finalize"} {
				// Finalize takes no patch.
				how := "patch " + subresource
				if subresource == "finalize" {
					changed := namespace.DeepCopy()
					changed.Annotations = allowing("", test.after).Annotations
					_, err = tenant.Finalize(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				} else {
					_, err = tenant.Patch(t.Context(), namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, strings.Fields(subresource)...)
				}
				expect(how, err)
			}
			if _, err := tenant.Patch(t.Context(), namespace.Name, types.MergePatchType, []byte(`{"metadata": {"labels": {"example.com/theirs": "yes"}}}`), metav1.PatchOptions{}); err != nil {
				t.Errorf("what is not the annotation: %v", err)
			}
			_, err = tenant.Patch(t.Context(), namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			expect("patch, and not as a dry run", err)
			if _, err := platform.Patch(t.Context(), namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Errorf("who has the verb: %v", err)
			}
		})
	}

	t.Run("a verb for one namespace", func(t *testing.T) {
		one := namespacesAs(t, "one", "project-owners")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "e2e-partition-one"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"e2e-one"}, Verbs: []string{"partition"}}}}
		if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Client.RbacV1().ClusterRoles().Delete(cleanup(t), role.Name, metav1.DeleteOptions{}) })
		bind(t, c, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "one"}}})
		waitFor(t, 10*time.Second, "the role is seen", func() error {
			_, err := one.Create(t.Context(), allowing("e2e-one", "management"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		if _, err := one.Create(t.Context(), allowing("e2e-two", "management"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !refusedByPolicy(err, "management") {
			t.Errorf("another namespace: got %v", err)
		}
	})

	t.Run("its expressions fit the kind", func(t *testing.T) {
		waitFor(t, time.Minute, "kube-controller-manager has checked the types", func() error {
			found, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), policy, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if found.Status.TypeChecking == nil || found.Status.ObservedGeneration != found.Generation {
				return fmt.Errorf("its status is %v", found.Status)
			}
			if len(found.Status.TypeChecking.ExpressionWarnings) > 0 {
				t.Errorf("warnings: %v", found.Status.TypeChecking.ExpressionWarnings)
			}
			return nil
		})
	})
}

// allowing is a namespace that allows types; without a name it gets one.
func allowing(name, allowed string) *v1.Namespace {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "" {
		namespace.GenerateName = "e2e-"
	}
	if allowed != "" {
		namespace.Annotations = map[string]string{partition.AllowedAnnotation: allowed}
	}
	return namespace
}

// refusedByPolicy reports whether the policy has refused to add the types.
func refusedByPolicy(err error, added string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), partition.AllowedAnnotation+": adding "+added+" needs the verb partition on the namespace")
}

// installNamespacePolicy creates what the documentation's file has, until the test ends, and
// returns the one name of its objects.
func installNamespacePolicy(t *testing.T, c *host.Cluster) (name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(docs, "examples", "namespace-policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policies, bindings := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	roles := c.Client.RbacV1().ClusterRoles()
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var remove func() error
		switch object := object.(type) {
		case *admissionregistration.ValidatingAdmissionPolicy:
			name = object.Name
			_, err = policies.Create(t.Context(), object, metav1.CreateOptions{})
			remove = func() error { return policies.Delete(cleanup(t), object.Name, metav1.DeleteOptions{}) }
		case *admissionregistration.ValidatingAdmissionPolicyBinding:
			_, err = bindings.Create(t.Context(), object, metav1.CreateOptions{})
			remove = func() error { return bindings.Delete(cleanup(t), object.Name, metav1.DeleteOptions{}) }
		case *rbacv1.ClusterRole:
			_, err = roles.Create(t.Context(), object, metav1.CreateOptions{})
			remove = func() error { return roles.Delete(cleanup(t), object.Name, metav1.DeleteOptions{}) }
		default:
			t.Fatalf("the file has a %s", object.GetObjectKind().GroupVersionKind())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(); err != nil {
				t.Error(err)
			}
		})
	}
	return name
}

// mayWriteNamespaces lets the group project-owners write namespaces and what is below them.
func mayWriteNamespaces(t *testing.T, c *host.Cluster) {
	t.Helper()
	const name = "e2e-project-owners"
	if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""},
		Resources: []string{"namespaces", "namespaces/status", "namespaces/finalize"}, Verbs: []string{"create", "get", "update", "patch"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Client.RbacV1().ClusterRoles().Delete(cleanup(t), name, metav1.DeleteOptions{}) })
	bind(t, c, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "project-owners"}}})
}

// bind creates a binding until the test ends.
func bind(t *testing.T, c *host.Cluster, binding *rbacv1.ClusterRoleBinding) {
	t.Helper()
	if _, err := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Client.RbacV1().ClusterRoleBindings().Delete(cleanup(t), binding.Name, metav1.DeleteOptions{})
	})
}

// namespacesAs is how a user in groups sees namespaces.
func namespacesAs(t *testing.T, user string, groups ...string) corev1client.NamespaceInterface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", host.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate.UserName, config.Impersonate.Groups = user, groups
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().Namespaces()
}
