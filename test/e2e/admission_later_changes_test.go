// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The manifest that made a pod changes nothing when it is sent again. The pod may have no cpu,
// or, where a quota counts cpu, a request of zero.
func TestSameManifestAgainChangesNothing(t *testing.T) {
	in(t)
	c, _ := activeType(t)
	for name, quota := range map[string]*v1.ResourceQuotaSpec{"a pod without cpu": nil, "a pod with a cpu of zero": {Hard: fixture.Resources("requests.cpu=10")}} {
		t.Run(name, func(t *testing.T) {
			namespace := fixture.Namespace(t, c.Client, "management")
			constrain(t, c, namespace, nil, quota)
			sendAgain(t, c, namespace, quota != nil)
		})
	}
}

// sendAgain sends manifests again in a namespace whose partitioned pods have a cpu of zero, or
// none.
func sendAgain(t *testing.T, c *host.Cluster, namespace string, zero bool) {
	get := func(t *testing.T, name string) *v1.Pod {
		t.Helper()
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, has := p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; has != zero {
			t.Errorf("the pod has %v, want a cpu of zero: %v", p.Spec.Containers[0].Resources, zero)
		}
		return p
	}
	build := func(name string) *v1.Pod {
		return fixture.Pod(name, asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	}
	t.Run("kubectl apply", func(t *testing.T) {
		text := fixture.Manifest(build("applied"))
		mustKubectl(t, namespace, text, "apply", "-f", "-")
		before := get(t, "applied")
		for range 3 {
			output := mustKubectl(t, namespace, text, "apply", "-f", "-")
			// It compares with the manifest it applied last, which has a cpu that the stored
			// pod lacks.
			if strings.Contains(output, "rror") {
				t.Errorf("kubectl printed %s", output)
			}
		}
		after := get(t, "applied")
		if !maps.Equal(before.Annotations, after.Annotations) || before.Generation != after.Generation {
			t.Errorf("the pod had the annotations %v, and has %v", before.Annotations, after.Annotations)
		}
		if after.ResourceVersion != before.ResourceVersion {
			t.Errorf("apply has written the pod: its version was %s and is %s", before.ResourceVersion, after.ResourceVersion)
		}
	})
	t.Run("server-side apply", func(t *testing.T) {
		text := fixture.Manifest(build("server-side"))
		mustKubectl(t, namespace, text, "apply", "--server-side", "-f", "-")
		before := get(t, "server-side")
		mustKubectl(t, namespace, text, "apply", "--server-side", "-f", "-")
		if after := get(t, "server-side"); !maps.Equal(before.Annotations, after.Annotations) {
			t.Errorf("the pod had the annotations %v, and has %v", before.Annotations, after.Annotations)
		}
	})
	// Terraform's kubernetes_manifest does so with what others have created, or with what it imports.
	t.Run("server-side apply by another manager", func(t *testing.T) {
		text := fixture.Manifest(build("taken-over"))
		mustKubectl(t, namespace, text, "create", "-f", "-")
		before := get(t, "taken-over")
		for range 2 {
			mustKubectl(t, namespace, text, "apply", "--server-side", "--field-manager=Terraform", "--force-conflicts", "-f", "-")
			after := get(t, "taken-over")
			if !maps.Equal(before.Annotations, after.Annotations) || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
				t.Errorf("the pod had %v %v, and has %v %v", before.Annotations, before.Spec.Containers, after.Annotations, after.Spec.Containers)
			}
		}
	})
	// So do operators that write whatever differs from what they want.
	t.Run("PUT", func(t *testing.T) {
		if _, err := creating(t, c, namespace)(build("put"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		before := get(t, "put")
		again := build("put")
		again.ResourceVersion, again.Spec.NodeName = before.ResourceVersion, before.Spec.NodeName
		again.Spec.Volumes, again.Spec.ServiceAccountName, again.Spec.Tolerations = before.Spec.Volumes, before.Spec.ServiceAccountName, before.Spec.Tolerations
		again.Spec.Priority, again.Spec.PreemptionPolicy = before.Spec.Priority, before.Spec.PreemptionPolicy
		again.Spec.Containers[0].VolumeMounts = before.Spec.Containers[0].VolumeMounts
		if _, err := c.Client.CoreV1().Pods(namespace).Update(t.Context(), again, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if after := get(t, "put"); !maps.Equal(before.Annotations, after.Annotations) || fmt.Sprint(before.Spec.Containers) != fmt.Sprint(after.Spec.Containers) {
			t.Errorf("the pod had %v %v, and has %v %v", before.Annotations, before.Spec.Containers, after.Annotations, after.Spec.Containers)
		}
		again.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("401m")
		again.ResourceVersion = ""
		if _, err := c.Client.CoreV1().Pods(namespace).Update(t.Context(), again, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a PUT with another cpu request got %v, want 422", err)
		}
	})
	t.Run("a resize of memory with the original cpu", func(t *testing.T) {
		if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "put", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "24Mi", "cpu": "400m"}, "limits": {"memory": "64Mi"}}}]}}`), metav1.PatchOptions{}, "resize"); err != nil {
			t.Fatal(err)
		}
		p := get(t, "put")
		if memory, request := p.Spec.Containers[0].Resources.Requests.Memory().String(), p.Spec.Containers[0].Resources.Requests[cores]; memory != "24Mi" || request.Value() != 400 || !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			t.Errorf("the container has %v", p.Spec.Containers[0].Resources)
		}
	})
}

// Whatever users do to a pod after its creation, it neither enters nor leaves a partition.
func TestNobodyEntersOrLeavesAPartitionLater(t *testing.T) {
	in(t, core)
	c, namespace := activeType(t)
	get := func(t *testing.T, name string) *v1.Pod {
		t.Helper()
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	build := func(name string) *v1.Pod {
		return fixture.Pod(name, asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	}
	mustKubectl(t, namespace, fixture.Manifest(build("p")), "create", "-f", "-")
	original := get(t, "p")
	t.Run("annotations of the user's own may change", func(t *testing.T) {
		output := mustKubectl(t, namespace, "", "annotate", "pod/p", "example.com/mine=x")
		if p := get(t, "p"); p.Annotations["example.com/mine"] != "x" || strings.Contains(output, "Warning") {
			t.Errorf("the pod has the annotations %v, kubectl printed %s", p.Annotations, output)
		}
	})
	t.Run("annotations of ours do not change", func(t *testing.T) {
		for _, change := range []string{managementTarget + "-", partition.TargetPrefix + "other=", partition.ResourcesAnnotation("c") + `={"cpushares":9000}`, partition.ResourcesAnnotation("d") + "={}", partition.WarningAnnotation + "=x"} {
			output := mustKubectl(t, namespace, "", "annotate", "--overwrite", "pod/p", change)
			if !strings.Contains(output, "Warning: the workload partitioning annotations of a pod do not change after its creation") {
				t.Errorf("for %s kubectl printed %s, want a warning", change, output)
			}
		}
		p := get(t, "p")
		delete(p.Annotations, "example.com/mine")
		if !maps.Equal(p.Annotations, original.Annotations) {
			t.Errorf("the pod had the annotations %v, and has %v", original.Annotations, p.Annotations)
		}
	})
	t.Run("annotations do not come with a status, a binding or an ephemeral container", func(t *testing.T) {
		ordinary, err := creating(t, c, namespace)(fixture.Pod("ordinary", nil, fixture.Container("c", "true", "", "")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pods := c.Client.CoreV1().Pods(namespace)
		forged := map[string]string{managementTarget: "", partition.ResourcesAnnotation("c"): `{"cpushares":2}`}
		ordinary.Annotations = forged
		if _, err := pods.UpdateStatus(t.Context(), ordinary, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		ordinary = get(t, "ordinary")
		ordinary.Annotations = forged
		ordinary.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: image.Busybox}}}
		if _, err := pods.UpdateEphemeralContainers(t.Context(), "ordinary", ordinary, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if err := pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "ordinary", Annotations: forged}, Target: v1.ObjectReference{Kind: "Node", Name: "reporting"}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if p := get(t, "ordinary"); len(p.Annotations) > 0 || p.Spec.NodeName != "reporting" || len(p.Spec.EphemeralContainers) != 1 {
			t.Errorf("the pod has the annotations %v, node %q and %d ephemeral containers, want none, reporting and 1", p.Annotations, p.Spec.NodeName, len(p.Spec.EphemeralContainers))
		}
	})
	t.Run("kubectl debug adds a container", func(t *testing.T) {
		mustKubectl(t, namespace, "", "debug", "p", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		if p := get(t, "p"); len(p.Spec.EphemeralContainers) != 1 {
			t.Errorf("the pod has the ephemeral containers %v, want one", p.Spec.EphemeralContainers)
		}
	})
	t.Run("kubectl debug makes an ordinary copy", func(t *testing.T) {
		// It copies the resources without the annotations.
		output := mustKubectl(t, namespace, "", "debug", "p", "--copy-to=copy", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		p := get(t, "copy")
		if request := p.Spec.Containers[0].Resources.Requests; request.Cpu().MilliValue() != 400 || !strings.Contains(output, "cores of a workload type were turned back into a cpu request") {
			t.Errorf("the copy requests %v, kubectl printed %s", request, output)
		}
		if _, is := partition.PartitionedType(p); is || p.Annotations[managementTarget] != "" || partition.CarriesCores(p.Spec.Containers[0].Resources.Requests) || partition.CarriesCores(p.Spec.Containers[0].Resources.Limits) {
			t.Errorf("the copy has the annotations %v and %v", p.Annotations, p.Spec.Containers[0].Resources)
		}
	})
	t.Run("kubectl debug makes a partitioned copy if it keeps annotations", func(t *testing.T) {
		mustKubectl(t, namespace, "", "debug", "p", "--copy-to=kept", "--keep-annotations", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		p := get(t, "kept")
		request := p.Spec.Containers[0].Resources.Requests[cores]
		if _, is := partition.PartitionedType(p); !is || request.Value() != 400 || p.Annotations[partition.ResourcesAnnotation("c")] != `{"cpushares":400,"cpulimit":500}` || p.Annotations[partition.ResourcesAnnotation("debugger")] != `{"cpushares":2}` {
			t.Errorf("the copy has the annotations %v and %v", p.Annotations, p.Spec.Containers[0].Resources)
		}
	})
	t.Run("cpu cannot be resized", func(t *testing.T) {
		output, err := kubectl(t, namespace, "", "set", "resources", "pod/p", "--requests=cpu=100m", "--subresource=resize")
		if err == nil || !strings.Contains(output, "management.workload.openshift.io/cores") {
			// An older kubectl has no such flag. What counts is what kube-apiserver answers.
			_, err = c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}`), metav1.PatchOptions{}, "resize")
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.containers[0].resources.requests[cpu]") || !strings.Contains(err.Error(), "it is counted as management.workload.openshift.io/cores") {
				t.Errorf("the resize got %v, and kubectl printed %s", err, output)
			}
		}
		if output, err := kubectl(t, namespace, "", "set", "resources", "pod/p", "--requests=cpu=100m"); err == nil {
			t.Errorf("resources were changed without a resize: %s", output)
		}
	})
	t.Run("cpu of the pod as a whole cannot be resized", func(t *testing.T) {
		_, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"resources": {"requests": {"cpu": "8"}}}}`), metav1.PatchOptions{}, "resize")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.resources.requests[cpu]") {
			t.Errorf("the resize got %v, want 422 with the field", err)
		}
	})
	t.Run("memory can be resized, with the original cpu", func(t *testing.T) {
		if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "24Mi", "cpu": "400m"}, "limits": {"memory": "64Mi"}}}]}}`), metav1.PatchOptions{}, "resize"); err != nil {
			t.Fatal(err)
		}
		p := get(t, "p")
		if memory, request := p.Spec.Containers[0].Resources.Requests.Memory().String(), p.Spec.Containers[0].Resources.Requests[cores]; memory != "24Mi" || request.Value() != 400 {
			t.Errorf("the container has %v", p.Spec.Containers[0].Resources)
		}
	})
	t.Run("a pod that is created again from what was stored is the same", func(t *testing.T) {
		text := mustKubectl(t, namespace, "", "get", "pod/p", "-o", "yaml")
		before := get(t, "p")
		mustKubectl(t, namespace, "", "delete", "pod/p", "--force", "--grace-period=0")
		mustKubectl(t, namespace, withoutIdentity(t, text), "create", "-f", "-")
		after := get(t, "p")
		if !maps.Equal(before.Annotations, after.Annotations) || fmt.Sprint(before.Spec.Containers[0].Resources) != fmt.Sprint(after.Spec.Containers[0].Resources) {
			t.Errorf("the pod had %v %v, and has %v %v", before.Annotations, before.Spec.Containers[0].Resources, after.Annotations, after.Spec.Containers[0].Resources)
		}
	})
}

// withoutIdentity removes from a stored pod what a new one must not have.
func withoutIdentity(t *testing.T, text string) string {
	t.Helper()
	var p v1.Pod
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	p.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Annotations: p.Annotations}
	p.Spec.EphemeralContainers = nil
	p.Status = v1.PodStatus{}
	return fixture.Manifest(&p)
}
