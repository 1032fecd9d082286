// SPDX-License-Identifier: Apache-2.0

package companiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

// leavesNothing compares a control plane before a companion is installed with the same after it has
// worked, was killed, and was uninstalled.
func (s Subject) leavesNothing(t *testing.T, i *Installed) {
	name := s.Companion.Name()
	i.Uninstall(t)
	clean := func(arguments ...string) string {
		t.Helper()
		arguments = append([]string{"clean", "--controller=" + name, "--kubeconfig=" + i.Kubeconfig}, arguments...)
		if i.Hosted != nil {
			arguments = append(arguments, "--hosted-kubeconfig="+i.Hosted.Kubeconfig)
		}
		said := ""
		testenv.Eventually(t, patience, func() error { // kube-apiserver forgets a policy a moment after it is deleted
			process := testenv.Run(t, program, arguments...)
			err := process.Wait(t, patience)
			if said = process.Output(); err != nil {
				err = fmt.Errorf("clean: %w\n%s", err, process.Log())
			}
			return err
		})
		return said
	}
	clean() // what the tests before have left
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worked-on", Labels: map[string]string{"mine": ""}, Annotations: map[string]string{"mine": ""}}}
	node.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
	nodes := i.nodes().Client
	if err := nodes.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	remove(t, nodes, node)
	lock := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name}}
	if err := client.IgnoreNotFound(i.Client.Delete(t.Context(), lock.DeepCopy())); err != nil { // of other tests
		t.Fatal(err)
	}
	before := i.everything(t)

	// As if it had been killed in the middle of its work. While it is installed, an admission policy
	// may keep others from writing this, and kube-apiserver forgets one a moment after it is deleted.
	testenv.Eventually(t, patience, func() error {
		written := node.DeepCopy()
		maps.Copy(written.Labels, s.Traces.Labels)
		maps.Copy(written.Annotations, s.Traces.Annotations)
		written.Spec.Taints = append(written.Spec.Taints, s.Traces.Spec.Taints...)
		written.Spec.Unschedulable = s.Traces.Spec.Unschedulable
		return nodes.Patch(t.Context(), written, client.MergeFrom(node), client.FieldOwner(companion.FieldOwner(name)))
	})
	nodegroup.PutHolders(lock, nodegroup.Holders{{Owner: name, Operation: "a1", Node: "worked-on"}})
	if err := i.Client.Create(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	i.again(t)
	replica := i.Start(t, nil)
	object := s.Object("left")
	if err := s.objects(i).Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	s.mustAct(t, i, object)
	replica.Kill()

	i.uninstallHome(t)
	if i.Hosted != nil { // the policies go first
		i.Hosted.Kubectl(t, "delete", "validatingadmissionpolicybindings", "--selector=app.kubernetes.io/name="+name)
	}
	unclean := i.everything(t)
	said := clean("--dry-run")
	if after := i.everything(t); !maps.Equal(unclean, after) {
		t.Error("a dry run has changed something")
	}
	for _, keys := range []map[string]string{s.Traces.Labels, s.Traces.Annotations} {
		for key := range keys {
			if !strings.Contains(said, "node/worked-on: would remove") || !strings.Contains(said, key) {
				t.Errorf("a dry run does not say that it would remove %s from the node: %s", key, said)
			}
		}
	}
	if want := "lease/" + nodegroup.ControlPlaneLock.String() + ": would be deleted"; !strings.Contains(said, want) {
		t.Errorf("a dry run does not say %q: %s", want, said)
	}
	clean()
	i.uninstallHosted(t)
	// It went with its kind, unless that is one of Kubernetes' own.
	if err := s.objects(i).Delete(t.Context(), object); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	// kube-apiserver forgets a kind a moment after its CRD.
	testenv.Eventually(t, patience, func() error {
		var errs []error
		after := i.everything(t)
		for key, object := range after {
			if before[key] != object {
				errs = append(errs, fmt.Errorf("%s is left, or has changed:\n%s\nbefore:\n%s", key, object, before[key]))
			}
		}
		for key := range before {
			if _, is := after[key]; !is {
				errs = append(errs, fmt.Errorf("%s is gone", key))
			}
		}
		return errors.Join(errs...)
	})
	if said := clean(); said != "" {
		t.Errorf("cleaning again says %q", said)
	}
}

// again brings the manifests back.
func (i *Installed) again(t testing.TB) {
	t.Helper()
	Install(t, i.Name)
	if i.Hosted != nil {
		i.AddHosted(t)
	}
}

// Uninstall removes a companion's manifests, as make uninstall does.
func (i *Installed) Uninstall(t testing.TB) {
	t.Helper()
	i.uninstallHome(t)
	i.uninstallHosted(t)
}

func (i *Installed) uninstallHome(t testing.TB) {
	t.Helper()
	i.delete(t, Base(i.Name))
}

func (i *Installed) uninstallHosted(t testing.TB) {
	t.Helper()
	if i.Hosted != nil {
		i.Hosted.delete(t, i.hostedBase())
	}
}

// delete deletes manifests.
func (i *Installed) delete(t testing.TB, base string) {
	t.Helper()
	i.Kubectl(t, "delete", "--ignore-not-found", "--wait=false", "-k", base)
	i.endNamespaces(t)
	testenv.Eventually(t, patience, func() error {
		if left := i.Kubectl(t, "get", "--ignore-not-found", "--output=name", "-k", base); left != "" {
			return fmt.Errorf("there still are:\n%s", left)
		}
		return nil
	})
}

// endNamespaces does what kube-controller-manager's namespace controller does for namespaces that are
// being deleted.
func (i *Installed) endNamespaces(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	clientset, err := kubernetes.NewForConfig(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces, err := clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces.Items {
		if namespace.DeletionTimestamp == nil {
			continue
		}
		i.each(t, func(resource metav1.APIResource, client dynamic.NamespaceableResourceInterface) {
			if resource.Namespaced && slices.Contains(resource.Verbs, "deletecollection") {
				if err := client.Namespace(namespace.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil && !apierrors.IsNotFound(err) { // a kind whose CRD has just gone
					t.Fatal(err)
				}
			}
		})
		namespace.Spec.Finalizers = nil
		if _, err := clientset.CoreV1().Namespaces().Finalize(ctx, &namespace, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// each calls a function for every kind of objects that can be listed.
func (i *Installed) each(t testing.TB, do func(metav1.APIResource, dynamic.NamespaceableResourceInterface)) {
	t.Helper()
	discovered, err := discovery.NewDiscoveryClientForConfig(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	dynamicClient, err := dynamic.NewForConfig(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := discovered.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") {
				do(resource, dynamicClient.Resource(version.WithResource(resource.Name)))
			}
		}
	}
}

// everything are the objects of both clusters.
func (i *Installed) everything(t testing.TB) map[string]string {
	t.Helper()
	all := i.objects(t)
	if i.Hosted != nil {
		for key, object := range i.Hosted.objects(t) {
			all["hosted "+key] = object
		}
	}
	return all
}

// objects are all objects but Events, which go by themselves: what people and programs have marked
// them with, and of nodes what keeps pods from them.
func (i *Installed) objects(t testing.TB) map[string]string {
	t.Helper()
	objects := map[string]string{}
	i.each(t, func(resource metav1.APIResource, client dynamic.NamespaceableResourceInterface) {
		if resource.Kind == "Event" {
			return
		}
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return // a kind whose CRD has just gone
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			marks := map[string]any{"labels": object.GetLabels(), "annotations": object.GetAnnotations(), "finalizers": object.GetFinalizers()}
			if resource.Kind == "Node" {
				marks["spec"] = object.Object["spec"]
			}
			text, err := json.Marshal(marks)
			if err != nil {
				t.Fatal(err)
			}
			objects[fmt.Sprintf("%s %s/%s", resource.Kind, object.GetNamespace(), object.GetName())] = string(text)
		}
	})
	return objects
}
