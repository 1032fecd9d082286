// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// OpenShift's object Infrastructure decides on the type management, from the installer's first
// minute on. The nodes, and a latch of another time, have their say in other types only.
func TestInfrastructureDecidesOnTheType(t *testing.T) {
	in(t)
	with := config
	with.WithoutNode = true
	with.AdmissionConfiguration = partitioningConfig(`"activation": {"source": "Infrastructure"}`)
	c := alone(t, with)
	latch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "management"}}}`, partition.EnabledAnnotation)
	if _, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), metav1.NamespaceSystem, types.MergePatchType, []byte(latch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	reportingNode(t, c, "reporting", "management", "other")
	object := infrastructureOf(t)
	namespaces := map[string]string{"allows it": fixture.Namespace(t, c.Client, "management, other"), "is not annotated": fixture.Namespace(t, c.Client, ""), "allows others": fixture.Namespace(t, c.Client, "other")}
	open := namespaces["allows it"]
	awaitOther(t, c, open)

	const name = `infrastructures.config.openshift.io "cluster" `
	for _, step := range []struct {
		what, lacks string
		make        func()
	}{
		{"the kind is not served", name + "does not exist, because its kind is not served; ", func() {}},
		{"the object is absent", name + "does not exist; ", object.serve},
		{"the object has no status", name + "has no status; ", object.create},
	} {
		t.Run(step.what, func(t *testing.T) {
			step.make()
			expectUndecided(t, c, step.lacks, namespaces)
		})
	}
	t.Run("the log says what was missing", func(t *testing.T) {
		data, err := os.ReadFile(c.APIServer.Log())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"The Infrastructure object has not decided", "does not exist, because its kind is not served", "has no status"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("the log does not have %q", want)
			}
		}
	})
	t.Run("it is filled in with an empty value while requests wait", func(t *testing.T) {
		for _, p := range createWhile(t, c, open, func() { object.set("") }) {
			expectSilent(t, p)
		}
	})
	for _, value := range []string{"", "None"} {
		object.set(value)
		for which, namespace := range namespaces {
			t.Run(fmt.Sprintf("on a cluster with the value %q, nothing is said in a namespace that %s", value, which), func(t *testing.T) {
				expectDecidedAgainst(t, c, namespace)
			})
		}
	}
	// A controller that creates pods before the object has decided tries again, as clients do.
	t.Run("it is made again, and filled in with AllNodes while requests wait", func(t *testing.T) {
		object.delete()
		early := fixture.Pod("early", map[string]string{managementTarget: "", "mine": "kept"}, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
		waitFor(t, 30*time.Second, "pods that ask are not created", func() error { return unavailable(createSoon(t, c, open, early, true), name+"does not exist; ") })
		object.create()
		waitFor(t, 30*time.Second, "pods that ask are not created", func() error { return unavailable(createSoon(t, c, open, early, true), name+"has no status; ") })
		told := applyDeployment(t, open, "early", map[string]string{managementTarget: "", "template": "created"})
		if len(told) > 0 {
			t.Errorf("the author of the Deployment was told %q", told)
		}
		waitFor(t, time.Minute, "an Event says why the Deployment has no pods", func() error {
			events, err := c.Client.CoreV1().Events(open).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ReplicaSet,reason=FailedCreate"})
			if err == nil && (len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, name+"has no status")) {
				err = fmt.Errorf("there are %v", events.Items)
			}
			return err
		})
		for _, p := range createWhile(t, c, open, func() { object.set("AllNodes") }) {
			expectCores(t, p, 100)
		}
		got, told, err := send(t, open, early, "create")
		if err != nil || len(told) > 0 {
			t.Fatalf("the pod that was early: %v, told %q", err, told)
		}
		expectCores(t, got, 100)
		if p := podOf(t, c, open, "early", "created"); p.Annotations[partition.ResourcesAnnotation("c")] == "" {
			t.Errorf("the Deployment's pod has annotations %v", p.Annotations)
		}
	})
	t.Run("on a cluster with AllNodes the namespace has its say", func(t *testing.T) {
		_, told, err := send(t, namespaces["is not annotated"], fixture.Pod("", asks, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create")
		if err != nil || len(told) != 1 || !strings.Contains(told[0], "namespace is not annotated with workload.openshift.io/allowed") {
			t.Errorf("got %v, told %q", err, told)
		}
		if _, _, err := send(t, namespaces["allows others"], fixture.Pod("", asks, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create"); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want 403", err)
		}
	})
	t.Run("kube-apiserver starts again, under load", func(t *testing.T) { startsUnderLoad(t, c, open) })
	t.Run("it changes to None and back", func(t *testing.T) {
		for _, step := range []struct {
			value string
			want  bool
		}{{"None", false}, {"AllNodes", true}} {
			object.set(step.value)
			awaitActive(t, creating(t, c, open), step.want)
		}
	})
}

// installer writes OpenShift's object, as its bootstrap does.
type installer struct {
	t      *testing.T
	client dynamic.Interface
}

func infrastructureOf(t *testing.T) *installer {
	t.Helper()
	client, err := dynamic.NewForConfig(clientConfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	return &installer{t, client}
}

func (i *installer) objects() dynamic.ResourceInterface {
	return i.client.Resource(schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"})
}

// serve has the kind served. Like OpenShift's it has a status subresource, so a creation has
// none.
func (i *installer) serve() {
	i.t.Helper()
	definition := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "infrastructures.config.openshift.io"}, "spec": {
		"group": "config.openshift.io", "scope": "Cluster", "names": {"plural": "infrastructures", "singular": "infrastructure", "kind": "Infrastructure", "listKind": "InfrastructureList"},
		"versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`), definition); err != nil {
		i.t.Fatal(err)
	}
	definitions := i.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(i.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		i.t.Fatal(err)
	}
	waitFor(i.t, 20*time.Second, "the kind is served", func() error {
		_, err := i.objects().List(i.t.Context(), metav1.ListOptions{})
		return err
	})
}

func (i *installer) create() {
	i.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"},
		"status": map[string]any{"cpuPartitioning": "AllNodes"}}}
	created, err := i.objects().Create(i.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	if status, has := created.Object["status"]; has {
		i.t.Fatalf("the object was created with the status %v", status)
	}
}

func (i *installer) set(value string) {
	i.t.Helper()
	patch := fmt.Sprintf(`{"status": {"cpuPartitioning": %q}}`, value)
	if _, err := i.objects().Patch(i.t.Context(), "cluster", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installer) delete() {
	i.t.Helper()
	if err := i.objects().Delete(i.t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
		i.t.Fatal(err)
	}
}

// awaitOther waits until pods are partitioned as a type on which the nodes decide.
func awaitOther(t *testing.T, c *host.Cluster, namespace string) {
	t.Helper()
	waitFor(t, 5*time.Second, "the nodes decide on another type", func() error {
		p, err := creating(t, c, namespace)(fixture.Pod("other", fixture.Asks("other"), fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if _, is := partition.PartitionedType(p); !is {
			return fmt.Errorf("the pod has annotations %v", p.Annotations)
		}
		return nil
	})
}

// createSoon creates a pod whose request may take two seconds, or only tries to.
func createSoon(t *testing.T, c *host.Cluster, namespace string, p *v1.Pod, dry bool) error {
	t.Helper()
	request := c.Client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Timeout(2 * time.Second).Body(p.DeepCopy())
	if dry {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return request.Do(t.Context()).Error()
}

// unavailable returns an error unless the given one is 503 with a text.
func unavailable(err error, text string) error {
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cannot decide on the workload type") || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got %v, want 503 with %s", err, text)
	}
	return nil
}

// expectUndecided checks that pods that ask are answered with 503 that says what the object
// lacks, and that nothing else notices.
func expectUndecided(t *testing.T, c *host.Cluster, lacks string, namespaces map[string]string) {
	t.Helper()
	before := podSeries(t, c)
	for which, namespace := range namespaces {
		for _, effect := range []string{"", hard} {
			p := fixture.Pod("asks", map[string]string{managementTarget: effect}, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
			waitFor(t, 30*time.Second, "in a namespace that "+which+" a pod is not created", func() error { return unavailable(createSoon(t, c, namespace, p, false), lacks) })
		}
		if told := applyDeployment(t, namespace, "asks", asks, metav1.DryRunAll); len(told) > 0 {
			t.Errorf("in a namespace that %s the author of a Deployment was told %q", which, told)
		}
		if _, told, err := send(t, namespace, fixture.Pod("", nil, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create"); err != nil || len(told) > 0 {
			t.Errorf("in a namespace that %s a pod that does not ask got %v, told %q", which, err, told)
		}
	}
	if after := podSeries(t, c); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were counted, though nothing was decided: %v, and before %v", after, before)
	}
	awaitOther(t, c, namespaces["allows it"])
}

// createWhile creates pods that ask, does something while their requests wait, and returns
// what was created.
func createWhile(t *testing.T, c *host.Cluster, namespace string, do func()) (created []*v1.Pod) {
	t.Helper()
	type answer struct {
		pod *v1.Pod
		err error
	}
	const requests = 5
	answers := make(chan answer, requests)
	for range requests {
		go func() {
			p := fixture.Pod("", map[string]string{managementTarget: "", "mine": "kept"}, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
			p.GenerateName = "waits-"
			got, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
			answers <- answer{got, err}
		}()
	}
	time.Sleep(time.Second)
	if len(answers) > 0 {
		t.Errorf("%d requests did not wait", len(answers))
	}
	do()
	for range requests {
		got := <-answers
		if got.err != nil {
			t.Errorf("a request that waited got %v", got.err)
			continue
		}
		created = append(created, got.pod)
	}
	return created
}

// expectDecidedAgainst checks that pods which ask are ordinary ones, that there is no warning, and
// that hard ones are refused.
func expectDecidedAgainst(t *testing.T, c *host.Cluster, namespace string) {
	t.Helper()
	const series = `apiserver_workload_partitioning_pods_total{outcome="skipped",reason="decided_against",workload_type="management"}`
	asking := func(effect string) *v1.Pod {
		return fixture.Pod("", map[string]string{managementTarget: effect, "mine": "kept"}, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
	}
	before := podSeries(t, c)[series]
	for _, how := range []string{"create", "generateName", "apply"} {
		p, told, err := send(t, namespace, asking(""), how)
		if err != nil || len(told) > 0 {
			t.Errorf("%s: %v, told %q", how, err, told)
			continue
		}
		expectSilent(t, p)
		if how == "generateName" {
			continue // The audit log does not have its name.
		}
		for key, value := range auditedAnnotations(t, c, namespace, p.Name) {
			if strings.Contains(key, partition.Domain) {
				t.Errorf("%s: the audit log has %s: %s", how, key, value)
			}
		}
	}
	if counted := podSeries(t, c)[series] - before; counted != 3 {
		t.Errorf("%v pods were counted, want 3", counted)
	}
	if _, _, err := send(t, namespace, asking(hard), "create"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status.cpuPartitioning is not AllNodes") {
		t.Errorf("a hard effect got %v, want 403", err)
	}
	for _, changed := range []string{"created", "updated"} {
		if told := applyDeployment(t, namespace, "silent", map[string]string{managementTarget: "", "template": changed}); len(told) > 0 {
			t.Errorf("the author of a Deployment that was %s was told %q", changed, told)
		}
	}
	p := podOf(t, c, namespace, "silent", "updated")
	if request := p.Spec.Containers[0].Resources.Requests.Cpu(); request.MilliValue() != 100 {
		t.Errorf("the Deployment's pod requests %s", request)
	}
	expectOutside(t, p)
	if told, warned := p.Annotations[partition.WarningAnnotation]; warned {
		t.Errorf("the Deployment's pod has the warning %q", told)
	}
	// With its pods, or they would be counted later.
	foreground := metav1.DeletePropagationForeground
	if err := c.Client.AppsV1().Deployments(namespace).Delete(t.Context(), "silent", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, time.Minute, "the Deployment is gone", func() error {
		_, err := c.Client.AppsV1().Deployments(namespace).Get(t.Context(), "silent", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("got %v", err)
	})
}

// expectSilent checks that nothing of ours is on a pod, the reason least of all.
func expectSilent(t *testing.T, p *v1.Pod) {
	t.Helper()
	if len(p.Annotations) != 1 || p.Annotations["mine"] != "kept" {
		t.Errorf("the pod has annotations %v", p.Annotations)
	}
	if request := p.Spec.Containers[0].Resources.Requests.Cpu(); request.MilliValue() != 100 || partition.CarriesCores(p.Spec.Containers[0].Resources.Requests) {
		t.Errorf("the pod has %v", p.Spec.Containers[0].Resources)
	}
}

// applyDeployment applies a Deployment of one pod with annotations, and returns what its
// author is told.
func applyDeployment(t *testing.T, namespace, name string, annotations map[string]string, dryRun ...string) []string {
	t.Helper()
	client, recorded := recording(t)
	labels := map[string]string{"app": name}
	data, err := json.Marshal(&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: fixture.Pod("", nil, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")).Spec},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "e2e", DryRun: dryRun}); err != nil {
		t.Fatal(err)
	}
	return recorded.texts
}

// auditedAnnotations returns what the audit log has of a pod's creation, besides the request.
func auditedAnnotations(t *testing.T, c *host.Cluster, namespace, name string) (annotations map[string]string) {
	t.Helper()
	waitFor(t, 10*time.Second, "the audit log has the pod "+name, func() error {
		data, err := os.ReadFile(c.AuditLog())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			var event struct {
				ObjectRef   struct{ Name, Namespace string }
				Annotations map[string]string
			}
			if json.Unmarshal([]byte(line), &event) == nil && event.ObjectRef.Name == name && event.ObjectRef.Namespace == namespace {
				annotations = event.Annotations
				return nil
			}
		}
		return fmt.Errorf("it does not")
	})
	return annotations
}

// expectCores checks that the pod's only container asks for so many millicores of the partition,
// and for no cpu.
func expectCores(t *testing.T, p *v1.Pod, want int64) {
	t.Helper()
	asked := p.Spec.Containers[0].Resources.Requests
	has := asked[cores]
	if _, cpu := asked[v1.ResourceCPU]; cpu || has.Value() != want {
		t.Errorf("pod %s asks for %v, want %d cores and no cpu", p.Name, asked, want)
	}
}
