// SPDX-License-Identifier: Apache-2.0

// Package deploy tests the manifests beside it, on a real kube-apiserver.
package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/partition"
)

func TestMain(m *testing.M) { testenv.Main(m, nil, v1alpha1.AddToScheme) }

// rendered returns what kustomize makes of a directory here.
func rendered(t *testing.T, i *companiontest.Installed, name string) []*unstructured.Unstructured {
	t.Helper()
	return renderedFrom(t, i, companiontest.Base(name))
}

func renderedFrom(t *testing.T, i *companiontest.Installed, directory string) (objects []*unstructured.Unstructured) {
	t.Helper()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(i.Kubectl(t, "kustomize", directory))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		object := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(document, &object.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	data, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var into T
	if err := yaml.UnmarshalStrict(data, &into); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return into
}

func TestTheVariantForCertManagerIsAccepted(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	const variant = "cpupolicy-cert-manager"
	var ours bytes.Buffer
	theirs := map[string]map[string]any{}
	for _, object := range rendered(t, i, variant) {
		if object.GroupVersionKind().Group == "cert-manager.io" {
			theirs[object.GetKind()+"/"+object.GetName()] = object.Object
			continue // its CRDs are not here
		}
		if object.GetKind() == "Secret" {
			t.Errorf("there is the Secret %s, which cert-manager makes", object.GetName())
		}
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		ours.WriteString("---\n")
		ours.Write(data)
	}
	checkOutlived(t, theirs)
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, ours.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", path)
	if _, err := configv1alpha1.Read(companiontest.WithImage(t, variant), "partition-cpupolicy"); err != nil {
		t.Error(err)
	}
}

// TestTheCertificateIsForEveryService: each has a port with TLS.
func TestTheCertificateIsForEveryService(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	for _, variant := range []string{"cpupolicy", "cpupolicy-cert-manager"} {
		config, err := configv1alpha1.Read(companiontest.WithImage(t, variant), "partition-cpupolicy")
		if err != nil {
			t.Fatal(err)
		}
		names := config.Certificates.Names
		if config.Certificates.ServiceName != "" {
			names = append(names, config.Certificates.ServiceName+".partition-cpupolicy.svc")
		}
		services := 0
		objects := rendered(t, i, variant)
		for _, object := range objects {
			if dns, is, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames"); is {
				names = append(names, dns...)
			}
		}
		for _, object := range objects {
			if object.GetKind() != "Service" {
				continue
			}
			services++
			if name := fmt.Sprintf("%s.%s.svc", object.GetName(), object.GetNamespace()); !slices.Contains(names, name) {
				t.Errorf("%s: the certificate is for %q, and not for %s", variant, names, name)
			}
		}
		if services != 2 {
			t.Errorf("%s: there are %d Services", variant, services)
		}
	}
}

// checkOutlived checks that what signs the webhooks' certificate stays when that is renewed. Otherwise
// kube-apiserver trusts the new one before the pods have it, and all webhooks fail meanwhile.
func checkOutlived(t *testing.T, objects map[string]map[string]any) {
	t.Helper()
	text := func(of string, path ...string) string {
		value, _, err := unstructured.NestedFieldNoCopy(objects[of], append([]string{"spec"}, path...)...)
		if err != nil || value == nil {
			return ""
		}
		return fmt.Sprint(value)
	}
	issuer := "Issuer/" + text("Certificate/webhook-certificate", "issuerRef", "name")
	ca := ""
	for name := range objects {
		if secret := text(name, "secretName"); secret != "" && secret == text(issuer, "ca", "secretName") {
			ca = name
		}
	}
	if ca == "" || text(ca, "isCA") != "true" || text(ca, "privateKey", "rotationPolicy") != "Never" {
		t.Errorf("the webhooks' certificate is of %s, whose CA is %q with %v, want one that keeps its key", issuer, ca, objects[ca]["spec"])
	}
	if duration, err := time.ParseDuration(text(ca, "duration")); err != nil || duration < 5*365*24*time.Hour {
		t.Errorf("the CA lasts for %s (%v), which is not long", duration, err)
	}
}

func TestPodsOfControllersAreModest(t *testing.T) {
	directories, err := filepath.Glob(filepath.Join(testenv.Module(), "deploy", "*", "kustomization.yaml"))
	if err != nil || len(directories) == 0 {
		t.Fatalf("%d directories: %v", len(directories), err)
	}
	names := []string{"example"}
	for _, directory := range directories {
		names = append(names, filepath.Base(filepath.Dir(directory)))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			// cert-manager's own kinds are not here.
			i := companiontest.Install(t, strings.TrimSuffix(name, "-cert-manager"))
			namespaces, controllers, want := map[string]corev1.Namespace{}, 0, 1
			var policies []networkingv1.NetworkPolicy
			objects := rendered(t, i, name)
			for _, object := range objects {
				if object.GetKind() == "NetworkPolicy" {
					policies = append(policies, convert[networkingv1.NetworkPolicy](t, object))
				}
			}
			for _, object := range objects {
				switch object.GetKind() {
				case "Namespace":
					namespaces[object.GetName()] = convert[corev1.Namespace](t, object)
				case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
					want = 2
				case "Deployment":
					controllers++
					deployment := convert[appsv1.Deployment](t, object)
					checkController(t, i, namespaces[object.GetNamespace()], deployment)
					checkNetwork(t, policies, deployment)
				}
			}
			for namespace := range namespaces {
				if !slices.ContainsFunc(policies, func(policy networkingv1.NetworkPolicy) bool { return policy.Namespace == namespace }) {
					t.Errorf("the namespace %s has no NetworkPolicy", namespace)
				}
			}
			if controllers != want {
				t.Errorf("there are %d Deployments, want %d: one of controllers, and one of webhooks if there are any", controllers, want)
			}
		})
	}
}

// Where a cluster has HyperShift's NodePool, ours must not take its place, and its end must not be that of theirs.
func TestForeignDefinitionsStay(t *testing.T) {
	c := companiontest.Install(t, "nodepool")
	c.Kubectl(t, "label", "customresourcedefinition", "nodepools.hypershift.openshift.io", "app.kubernetes.io/part-of=hypershift", "--overwrite")
	foreign := func() string {
		t.Helper()
		command := exec.Command(filepath.Join(testenv.Module(), "..", "scripts", "operators-foreign.sh"), companiontest.Base("nodepool"), testenv.Kubectl(t))
		command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
		output, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(output)
	}
	patches := foreign()
	if !strings.Contains(patches, "$patch: delete") || !strings.Contains(patches, "metadata: {name: nodepools.hypershift.openshift.io}") {
		t.Errorf("the patches are\n%s", patches)
	}
	directory := t.TempDir()
	base, err := filepath.Rel(directory, companiontest.Base("nodepool"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte("resources: ["+base+"]\npatches:\n"+patches), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(testenv.Kubectl(t), "kustomize", directory).Output()
	if err != nil || strings.Contains(string(output), "kind: CustomResourceDefinition") || !strings.Contains(string(output), "kind: Deployment") {
		t.Errorf("what is left of the manifests: %v\n%s", err, output)
	}
	companiontest.Install(t, "nodepool")
	if patches := foreign(); patches != "" {
		t.Errorf("of ours, the patches are\n%s", patches)
	}
}

func checkController(t *testing.T, i *companiontest.Installed, namespace corev1.Namespace, deployment appsv1.Deployment) {
	t.Helper()
	if *deployment.Spec.Replicas != 2 {
		t.Errorf("there are %d replicas, want 2", *deployment.Spec.Replicas)
	}
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("the namespace enforces %q, want restricted", got)
	}
	target, errs := partition.ParseTarget(deployment.Spec.Template.Annotations)
	if errs != nil || target.Type != "management" || namespace.Annotations[partition.AllowedAnnotation] != "management" {
		t.Errorf("the pods ask for the type %q, and the namespace allows %q: %v", target.Type, namespace.Annotations[partition.AllowedAnnotation], errs)
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if !strings.HasPrefix(container.Image, "registry.invalid/") {
			t.Errorf("container %s has the image %s by default, which a runtime may look for in any registry", container.Name, container.Image)
		}
		if memory := container.Resources.Requests.Memory().Value(); memory == 0 || memory > 50<<20 {
			t.Errorf("container %s requests %d bytes of memory, want up to 50 MiB", container.Name, memory)
		}
		if memory := container.Resources.Limits.Memory().Value(); memory < 100<<20 || memory > 256<<20 {
			t.Errorf("container %s is limited to %d bytes of memory, want 100 to 256 MiB", container.Name, memory)
		}
		if container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("container %s requests no cpu, so it cannot be partitioned", container.Name)
		}
		if container.ReadinessProbe == nil || container.LivenessProbe == nil {
			t.Errorf("container %s lacks a probe", container.Name)
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, GenerateName: deployment.Name + "-", Labels: deployment.Spec.Template.Labels},
		Spec:       deployment.Spec.Template.Spec,
	}
	if err := i.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("its pod: %v", err)
	}
	// As a proof that somebody looks.
	pod.Name, pod.Spec.HostNetwork = "", true
	if err := i.Client.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a pod in the host's network: %v", err)
	}
}

// checkNetwork checks that the ports that a Deployment's containers name can be reached, and no others.
func checkNetwork(t *testing.T, policies []networkingv1.NetworkPolicy, deployment appsv1.Deployment) {
	t.Helper()
	var served, open []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, port := range container.Ports {
			served = append(served, port.Name)
		}
	}
	selected := false
	for _, policy := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if policy.Namespace != deployment.Namespace || !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		selected = true
		for _, rule := range policy.Spec.Ingress {
			if len(rule.Ports) == 0 {
				t.Errorf("the NetworkPolicy %s opens all ports", policy.Name)
			}
			for _, port := range rule.Ports {
				open = append(open, port.Port.String())
			}
		}
	}
	slices.Sort(served)
	slices.Sort(open)
	if !selected || !slices.Equal(open, served) {
		t.Errorf("the pods of %s serve %q; a NetworkPolicy selects them: %v, and opens %q", deployment.Name, served, selected, open)
	}
}

const status = "harvesterhci.io/cpu-manager-policy-update-status"

func TestWhoMayWriteTheStatusOfASwitch(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	// It is about what the controllers are there for; here the policy is alone.
	i.Kubectl(t, "delete", "validatingwebhookconfiguration", "cpupolicy.workload.openshift.io")
	controller := i.As(t, i.Token(t, "partition-cpupolicy", "partition-controller", nil))
	mayUpdateNodes(t, i, "partition-cpupolicy", "partition-controller")
	for name, test := range map[string]struct {
		before, after string
		// want is part of the error that a person gets; empty is that the person may.
		want string
	}{
		"a request":                                {"", `{"status":"requested","policy":"static"}`, ""},
		"a request with its keys turned round":     {"", `{"policy":"none","status":"requested"}`, ""},
		"a request over several lines":             {"", "{\n  \"status\": \"requested\",\n  \"policy\": \"none\"\n}\n", ""},
		"a request that lets pods end":             {"", `{"status":"requested","policy":"static","allowEvicted":true}`, ""},
		"a request with a message":                 {"", `{"status":"requested","policy":"none","message":"for Monday"}`, "another key"},
		"a request with a time":                    {"", `{"status":"requested","policy":"none","since":"2026-11-23T08:00:00Z"}`, "another key"},
		"a request that would skip the drain":      {"", `{"status":"requested","policy":"none","begun":true}`, "another key"},
		"a request in the name of a group":         {"", `{"status":"requested","policy":"none","group":"workers"}`, "another key"},
		"a request after a failure":                {`{"status":"failed","policy":"none","id":"1","job":"1"}`, `{"status":"requested","policy":"none"}`, ""},
		"a request instead of what cannot be read": {"no", `{"status":"requested","policy":"none"}`, ""},
		"a status removed":                         {`{"status":"complete","policy":"none","id":"1","job":"1"}`, "", ""},
		"a request with an id":                     {"", `{"status":"requested","policy":"static","id":"1"}`, "another key"},
		"a request with a job":                     {"", `{"job" : "1","status":"requested","policy":"static"}`, "another key"},
		"running":                                  {"", `{"status":"running","policy":"static"}`, "only the controller may write"},
		"complete":                                 {`{"status":"running","policy":"static","id":"1","job":"1"}`, `{"status":"complete","policy":"static"}`, "only the controller may write"},
		"failed, with an id":                       {"", `{"status":"failed","policy":"static","id":"1"}`, "only the controller may write"},
		"two statuses":                             {"", `{"status":"requested","policy":"static","status":"complete"}`, "only the controller may write"},
		"two statuses on two lines":                {"", "{\"status\":\"requested\",\"policy\":\"static\",\n\"status\":\"complete\"}", "only the controller may write"},
		"an id behind an escape":                   {"", `{"status":"requested","policy":"static","\u0069d":"1"}`, "object of texts"},
		"a status behind an escape":                {"", `{"status":"requested","policy":"static","\u0073tatus":"complete"}`, "object of texts"},
		"an id within an object":                   {"", `{"status":"requested","policy":"static","a":{"id":"1"}}`, "object of texts"},
		"an unknown policy":                        {"", `{"status":"requested","policy":"dynamic"}`, "none or static"},
		"no policy":                                {"", `{"status":"requested"}`, "none or static"},
		"a list of pods that may end":              {"", `{"status":"requested","policy":"static","allowEvicted":["a"]}`, "object of texts"},
		"no object":                                {"", "static", "object of texts"},
		"nothing":                                  {`{"status":"complete","policy":"none"}`, "{}", "object of texts"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
			if test.before != "" {
				node.Annotations = map[string]string{status: test.before}
			}
			if err := controller.Create(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = i.Client.Delete(context.Background(), node) })
			annotate := func(object client.Object) client.Patch {
				before := object.DeepCopyObject().(client.Object)
				object.SetAnnotations(nil)
				if test.after != "" {
					object.SetAnnotations(map[string]string{status: test.after})
				}
				return client.MergeFrom(before)
			}
			for path, write := range map[string]func(c client.Client) error{
				"an update": func(c client.Client) error {
					changed := node.DeepCopy()
					return c.Patch(t.Context(), changed, annotate(changed), client.DryRunAll)
				},
				"an update of the status": func(c client.Client) error {
					changed := node.DeepCopy()
					return c.Status().Patch(t.Context(), changed, annotate(changed), client.DryRunAll)
				},
				"a create": func(c client.Client) error {
					created := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
					annotate(created)
					return c.Create(t.Context(), created, client.DryRunAll)
				},
			} {
				err := write(i.Client)
				switch {
				case test.want == "" && err != nil:
					t.Errorf("%s is refused: %v", path, err)
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("%s: %v, want %q", path, err, test.want)
				case test.want != "" && !strings.Contains(err.Error(), status+" is "+strings.ReplaceAll(test.after, "\n", " ")):
					t.Errorf("%s: the error does not name annotation and value: %v", path, err)
				}
				if err := write(controller); err != nil {
					t.Errorf("%s by the controller is refused: %v", path, err)
				}
			}
		})
	}
	t.Run("another update, where the status cannot be read", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other-update", Annotations: map[string]string{status: "no"}}}
		if err := controller.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node.Labels = map[string]string{"a": "b"}
		if err := i.Client.Update(t.Context(), node); err != nil {
			t.Error(err)
		}
	})
}

// kubelet returns a client that is the kubelet of a node. Node authorization, which would give it its
// rights, is not switched on here.
func kubelet(t *testing.T, i *companiontest.Installed, node string) client.Client {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-kubelets-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}},
	}
	if err := i.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Client.Delete(context.Background(), binding) })
	config := rest.CopyConfig(i.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	// A moment may pass until kube-apiserver knows of the binding.
	testenv.Eventually(t, 10*time.Second, func() error {
		return c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.DryRunAll)
	})
	return c
}

// impersonating returns a client that writes in the controller's name without a token of its ServiceAccount, as
// partition-webhooks could.
func impersonating(t *testing.T, i *companiontest.Installed) client.Client {
	t.Helper()
	config := rest.CopyConfig(i.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:partition-cpupolicy:partition-controller"}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhoMayWriteWhatWasObserved(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	controller := i.As(t, i.Token(t, "partition-cpupolicy", "partition-controller", nil))
	mayUpdateNodes(t, i, "partition-cpupolicy", "partition-controller")
	const observed = "cpupolicy.workload.openshift.io/observed"
	ofKubelet := kubelet(t, i, "observed")
	write := func(c client.Client, annotations map[string]string) func() error {
		return func() error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", Annotations: annotations}}
			return c.Create(t.Context(), node, client.DryRunAll)
		}
	}
	lie := map[string]string{observed: `{"policy":"none"}`}
	// A moment may pass until kube-apiserver knows of the policy.
	testenv.Eventually(t, 10*time.Second, func() error {
		if err := write(i.Client, lie)(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a node with the annotation, by an administrator: %w", errors.Join(err))
		}
		return nil
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "observed", Annotations: map[string]string{observed: `{"policy":"static"}`}}}
	if err := controller.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Client.Delete(context.Background(), node) })
	patch := func(c client.Client, text string) func() error {
		return func() error {
			return c.Patch(t.Context(), node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		}
	}
	patchStatus := func(c client.Client, text string) func() error {
		return func() error {
			return c.Status().Patch(t.Context(), node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		}
	}
	const (
		forged  = `{"metadata":{"annotations":{"` + observed + `":"{\"policy\":\"none\"}"}}}`
		removed = `{"metadata":{"annotations":{"` + observed + `":null}}}`
		ready   = `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	)
	for name, test := range map[string]struct {
		write   func() error
		refused bool
	}{
		"by the controller":                           {patch(controller, forged), false},
		"by the controller, with the status":          {patchStatus(controller, forged), false},
		"in the controller's name, without its token": {patch(impersonating(t, i), forged), true},
		"by an administrator":                         {patch(i.Client, forged), true},
		"by an administrator, with the status":        {patchStatus(i.Client, forged), true},
		"by the node's kubelet":                       {patch(ofKubelet, forged), true},
		"by the node's kubelet, with the status":      {patchStatus(ofKubelet, forged), true},
		"by a kubelet that registers its node":        {write(ofKubelet, lie), true},
		"by nobody, while a kubelet registers itself": {write(ofKubelet, nil), false},
		"by nobody, while a kubelet reports":          {patchStatus(ofKubelet, ready), false},
		"by nobody, while somebody labels the node":   {patch(i.Client, `{"metadata":{"labels":{"a":"b"}}}`), false},
		"removed by an administrator":                 {patch(i.Client, removed), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.write()
			switch {
			case !test.refused && err != nil:
				t.Error(err)
			case test.refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the controller may write the annotation "+observed)):
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestWhoMayClaimANodeForTheController(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	controller := i.As(t, i.Token(t, "partition-cpupolicy", "partition-controller", nil))
	mayUpdateNodes(t, i, "partition-cpupolicy", "partition-controller")
	ofKubelet := kubelet(t, i, "claimed")
	const claim, mark = "nodegroup.workload.openshift.io/claim", "cpupolicy.workload.openshift.io/cordoned"
	const ours, theirs, gone = `{"owner":"cpupolicy","operation":"a1","since":"2026-11-23T10:00:00Z"}`, `{"owner":"tuning","operation":"a1","since":"2026-11-23T10:00:00Z"}`, ""
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "claimed"}}
	if err := i.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Client.Delete(context.Background(), node) })
	patch := func(key, value string) client.Patch {
		if value == gone {
			return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, key))
		}
		return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
	}
	// A moment may pass until kube-apiserver knows of the policy.
	testenv.Eventually(t, 10*time.Second, func() error {
		if err := i.Client.Patch(t.Context(), node.DeepCopy(), patch(claim, ours), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a claim by an administrator: %w", errors.Join(err))
		}
		return nil
	})
	marked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "claimed-already", Annotations: map[string]string{claim: ours, mark: "a1"}}}
	if err := controller.Create(t.Context(), marked); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Client.Delete(context.Background(), marked) })
	for _, test := range []struct {
		name       string
		by         client.Client
		on         *corev1.Node
		key, value string
		refused    bool
	}{
		{"the controller claims", controller, node, claim, ours, false},
		{"the controller marks its cordon", controller, node, mark, "a1", false},
		{"somebody claims in the controller's name, without its token", impersonating(t, i), node, claim, ours, true},
		{"an administrator claims for the controller", i.Client, node, claim, ours, true},
		{"an administrator claims for the controller, with spaces", i.Client, node, claim, `{ "operation": "a1", "owner" : "cpupolicy" }`, true},
		{"an administrator claims for the controller, behind an escape", i.Client, node, claim, `{"owner":"cpu\u0070olicy","operation":"a1"}`, true},
		{"an administrator claims for another companion", i.Client, node, claim, theirs, false},
		{"an administrator marks a cordon", i.Client, node, mark, "a1", true},
		{"a kubelet claims for the controller", ofKubelet, node, claim, ours, true},
		{"a kubelet claims for another companion", ofKubelet, node, claim, theirs, false},
		{"an administrator changes the controller's claim", i.Client, marked, claim, `{"owner":"cpupolicy","operation":"b2"}`, true},
		{"an administrator removes the controller's claim", i.Client, marked, claim, gone, false},
		{"an administrator removes the mark", i.Client, marked, mark, gone, false},
		{"an administrator annotates a node that is claimed", i.Client, marked, "example.com/a", "b", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			write := func(options ...client.PatchOption) error {
				return test.by.Patch(t.Context(), test.on.DeepCopy(), patch(test.key, test.value), options...)
			}
			status := func() error {
				return test.by.Status().Patch(t.Context(), test.on.DeepCopy(), patch(test.key, test.value), client.DryRunAll)
			}
			for _, err := range []error{write(client.DryRunAll), status()} {
				if test.refused != apierrors.IsForbidden(err) || !test.refused && err != nil || test.refused && !strings.Contains(err.Error(), "controller") {
					t.Errorf("refused is to be %v, and the error is %v", test.refused, err)
				}
			}
		})
	}
	for _, by := range []client.Client{i.Client, ofKubelet} {
		registers := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "claimed-new", Annotations: map[string]string{claim: ours}}}
		if err := by.Create(t.Context(), registers, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("a node that comes with a claim: %v", err)
		}
	}
}

func TestAnAgentWritesForItsOwnNode(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	const namespace, account = "partition-cpupolicy-agent", "partition-agent"
	// Its role gives it nothing, so that only the policy is seen.
	mayUpdateNodes(t, i, namespace, account)
	for _, name := range []string{"mine", "other"} {
		if err := i.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	// There is no kube-controller-manager that would make it.
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	if err := i.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	pod := func(name, node string) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
		}
		if err := i.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	label := func(c client.Client, node string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
	}
	bound := i.As(t, i.Token(t, namespace, account, pod("bound", "mine")))
	for name, test := range map[string]struct {
		write func() error
		want  string
	}{
		"its own node": {func() error { return label(bound, "mine") }, ""},
		"another node": {func() error { return label(bound, "other") }, "runs on node mine and may not write nodes other"},
		"another node's deletion": {func() error {
			return bound.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, client.DryRunAll)
		}, "may not write nodes other"},
		"a new node": {func() error {
			return bound.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, client.DryRunAll)
		}, "may not write nodes new"},
		"a token without a pod":    {func() error { return label(i.As(t, i.Token(t, namespace, account, nil)), "mine") }, "bound to no node"},
		"a pod that is on no node": {func() error { return label(i.As(t, i.Token(t, namespace, account, pod("pending", ""))), "mine") }, "bound to no node"},
		"another account's token":  {func() error { return label(i.As(t, i.Token(t, namespace, other.Name, nil)), "mine") }, "bound to no node"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.write()
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// mayUpdateNodes gives a namespace's ServiceAccounts every right on nodes.
func mayUpdateNodes(t *testing.T, i *companiontest.Installed, namespace, account string) {
	t.Helper()
	name := fmt.Sprintf("test-%s-%s", namespace, account)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + namespace}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := i.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = i.Client.Delete(context.Background(), object) })
	}
}

// Its actions are done in the name of who asks. With the same rights it can do nothing else as somebody else.
func TestWhatTheCompanionMayDoAsSomebodyElse(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	// Nobody is here who would answer.
	i.Kubectl(t, "delete", "validatingwebhookconfiguration", "cpupolicy.workload.openshift.io")
	everything := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-everybody"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{Kind: "User", Name: "anna"}, {Kind: "User", Name: "system:node:n1"}, {Kind: "ServiceAccount", Namespace: "default", Name: "tool"},
		},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}
	for _, object := range []client.Object{everything, node} {
		if err := i.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = i.Client.Delete(context.Background(), object) })
	}
	token := i.Token(t, "partition-cpupolicy", "partition-webhooks", nil)
	anna := rest.ImpersonationConfig{UserName: "anna", UID: "1", Groups: []string{"tenants"}, Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=1"}}}
	update := func(c client.Client) error { return c.Update(t.Context(), node.DeepCopy(), client.DryRunAll) }
	for name, test := range map[string]struct {
		as   rest.ImpersonationConfig
		do   func(client.Client) error
		want string
	}{
		"a node is updated, as a person":               {anna, update, ""},
		"a node is updated, as a ServiceAccount":       {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:tool"}, update, ""},
		"a node is updated, as a node":                 {rest.ImpersonationConfig{UserName: "system:node:n1"}, update, "cannot impersonate"},
		"a node is updated, as an administrator":       {rest.ImpersonationConfig{UserName: "anna", Groups: []string{"system:masters"}}, update, "impersonating the system:masters group is not allowed"},
		"a node is updated, with what no right is for": {rest.ImpersonationConfig{UserName: "anna", Extra: map[string][]string{"example.com/scopes": {"all"}}}, update, "userextras"},
		"the status of a node is updated, as a person": {anna, func(c client.Client) error { return c.Status().Update(t.Context(), node.DeepCopy(), client.DryRunAll) }, "impersonate-on:user-info:update"},
		"a node is deleted, as a person":               {anna, func(c client.Client) error { return c.Delete(t.Context(), node.DeepCopy(), client.DryRunAll) }, "impersonate-on:user-info:delete"},
		"Secrets are read, as a person":                {anna, func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }, "impersonate-on:user-info:list"},
		"Secrets are read, as a ServiceAccount":        {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:tool"}, func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }, "impersonate-on:serviceaccount:list"},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.AnonymousClientConfig(i.Config)
			config.BearerToken, config.Impersonate = token, test.as
			c, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: i.Client.RESTMapper()})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" { // its rights may be new to kube-apiserver
				testenv.Eventually(t, 10*time.Second, func() error { return test.do(c) })
				return
			}
			if err := test.do(c); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestOnlyWhatIsAskedOfAWebhookReachesIt uses that nobody answers here: what reaches a webhook fails.
func TestOnlyWhatIsAskedOfAWebhookReachesIt(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	testenv.KubeVirt(t, i.ControlPlane)
	ofKubelet := kubelet(t, i, "webhooks")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "webhooks", Annotations: map[string]string{status: "no"}}}
	controller := i.As(t, i.Token(t, "partition-cpupolicy", "partition-controller", nil))
	mayUpdateNodes(t, i, "partition-cpupolicy", "partition-controller")
	// Its rights may be new to kube-apiserver.
	testenv.Eventually(t, 10*time.Second, func() error { return controller.Create(t.Context(), node.DeepCopy()) })
	if err := controller.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	newVM := func(dedicated string) *unstructured.Unstructured {
		vm := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: a, namespace: default}, spec: {template: {spec: {domain: {devices: {}, %s}}}}}`, dedicated)
		if err := yaml.Unmarshal([]byte(text), &vm.Object); err != nil {
			t.Fatal(err)
		}
		return vm
	}
	const shared, dedicated = "cpu: {cores: 2}", "cpu: {cores: 2, dedicatedCpuPlacement: true}"
	create := func(text string) func() error {
		return func() error {
			created := newVM(text)
			created.SetName("new")
			return i.Client.Create(t.Context(), created, client.DryRunAll)
		}
	}
	// One has CPUs of its own from before the companion was installed.
	i.Kubectl(t, "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "cpupolicy.workload.openshift.io")
	old := newVM(dedicated)
	old.SetName("old")
	old.SetFinalizers([]string{"example.com/finalizer"})
	testenv.Eventually(t, 10*time.Second, func() error { return i.Client.Create(t.Context(), old) })
	t.Cleanup(func() {
		const none = `{"metadata":{"finalizers":null}}`
		if err := i.Client.Patch(context.Background(), old.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(none))); err != nil {
			t.Error(err)
		}
	})
	companiontest.Install(t, "cpupolicy")
	if err := i.Client.Create(t.Context(), newVM(shared)); err != nil {
		t.Fatal(err)
	}
	patch := func(object client.Object, text string) func() error {
		return func() error {
			return i.Client.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		}
	}
	patchStatus := func(object client.Object, text string) func() error {
		return func() error {
			return i.Client.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
		}
	}
	const toDedicated = `{"spec":{"template":{"spec":{"domain":{"cpu":{"dedicatedCpuPlacement":true}}}}}}`
	const toShared = `{"spec":{"template":{"spec":{"domain":{"cpu":{"dedicatedCpuPlacement":null}}}}}}`
	const annotated = `{"metadata":{"annotations":{"` + status + `":"{\"status\":\"requested\",\"policy\":\"none\"}"}}}`
	for name, test := range map[string]struct {
		write   func() error
		reaches string
	}{
		"a node's labels":                              {patch(node.DeepCopy(), `{"metadata":{"labels":{"a":"b"}}}`), ""},
		"a node's finalizers":                          {patch(node.DeepCopy(), `{"metadata":{"finalizers":["example.com/a"]}}`), ""},
		"a node's other annotations":                   {patch(node.DeepCopy(), `{"metadata":{"annotations":{"a":"b"}}}`), ""},
		"a node's status, by its kubelet":              {func() error { return ofKubelet.Status().Update(t.Context(), node.DeepCopy(), client.DryRunAll) }, ""},
		"a node's policy, with its status":             {patchStatus(node.DeepCopy(), annotated), "node.cpupolicy.workload.openshift.io"},
		"a node's policy":                              {patch(node.DeepCopy(), annotated), "node.cpupolicy.workload.openshift.io"},
		"a node's policy, removed":                     {patch(node.DeepCopy(), `{"metadata":{"annotations":null}}`), "node.cpupolicy.workload.openshift.io"},
		"a new machine without CPUs of its own":        {create(shared), ""},
		"a new machine that says nothing":              {create(""), ""},
		"a new machine with CPUs of its own":           {create(dedicated), "virtualmachine.cpupolicy.workload.openshift.io"},
		"another field of a machine":                   {patch(newVM(shared), `{"spec":{"template":{"spec":{"domain":{"cpu":{"cores":3}}}}}}`), ""},
		"the status of a machine with CPUs of its own": {patchStatus(old.DeepCopy(), `{"status":{"ready":true}}`), ""},
		"another field of a machine that has them":     {patch(old.DeepCopy(), `{"spec":{"running":true}}`), ""},
		"the finalizers of a machine that has them":    {patch(old.DeepCopy(), `{"metadata":{"finalizers":null}}`), ""},
		"the deletion of a machine that has them":      {func() error { return i.Client.Delete(t.Context(), old.DeepCopy(), client.DryRunAll) }, ""},
		"a machine that loses its CPUs":                {patch(old.DeepCopy(), toShared), "virtualmachine.cpupolicy.workload.openshift.io"},
		"a machine that gets CPUs of its own":          {patch(newVM(shared), toDedicated), "virtualmachine.cpupolicy.workload.openshift.io"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.write()
			switch {
			case test.reaches == "" && err != nil:
				t.Error(err)
			case test.reaches != "" && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("failed calling webhook %q", test.reaches))):
				t.Errorf("the error is %v, want that of webhook %s", err, test.reaches)
			}
		})
	}
}

func TestWhichLeaseOfKubeSystemTheControllerCreates(t *testing.T) {
	i := companiontest.Install(t, "cpupolicy")
	controller := i.As(t, i.Token(t, "partition-cpupolicy", "partition-controller", nil))
	create := func(namespace, name string) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return controller.Create(t.Context(), lease, client.DryRunAll)
	}
	// A moment may pass until kube-apiserver knows of the policy and of the roles.
	testenv.Eventually(t, 10*time.Second, func() error {
		if err := create(nodegroup.ControlPlaneLock.Namespace, "kube-scheduler"); err == nil || !strings.Contains(err.Error(), "creates no other Lease than "+nodegroup.ControlPlaneLock.Name) {
			return fmt.Errorf("another component's Lease is not refused by the policy: %w", errors.Join(err))
		}
		return nil
	})
	for _, key := range []client.ObjectKey{nodegroup.ControlPlaneLock, {Namespace: "partition-cpupolicy", Name: "group"}} {
		if err := create(key.Namespace, key.Name); client.IgnoreAlreadyExists(err) != nil {
			t.Error(err)
		}
	}
}
