package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
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

// A manifest that is sent again changes nothing, whether its pod has no cpu or a zero.
func TestSameManifestAgainChangesNothing(t *testing.T) {
	in(t)
	c := apiServer(t)
	reportingNode(t, c, "reporting", "management")
	awaitActive(t, creating(t, c, fixture.Namespace(t, c.Client, "management")), true)
	for name, quota := range map[string]*v1.ResourceQuotaSpec{"no cpu": nil, "zero": {Hard: fixture.Resources("requests.cpu=10")}} {
		t.Run(name, func(t *testing.T) {
			namespace := fixture.Namespace(t, c.Client, "management")
			demand(t, c, namespace, nil, quota)
			sendAgain(t, c, namespace, quota != nil)
		})
	}
}

func sendAgain(t *testing.T, c *host.Cluster, namespace string, zero bool) {
	get := func(t *testing.T, name string) *v1.Pod {
		t.Helper()
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, has := p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; has != zero {
			t.Errorf("the pod has %v, want a zero: %v", p.Spec.Containers[0].Resources, zero)
		}
		return p
	}
	build := func(name string) *v1.Pod {
		return fixture.Pod(name, asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	}
	t.Run("kubectl apply of an unchanged manifest", func(t *testing.T) {
		text := fixture.Manifest(build("applied"))
		mustKubectl(t, namespace, text, "apply", "-f", "-")
		before := get(t, "applied")
		for range 3 {
			output := mustKubectl(t, namespace, text, "apply", "-f", "-")
			// Its own diff is against what it has applied, where cpu is and the server has none.
			if strings.Contains(output, "rror") {
				t.Errorf("kubectl says %s", output)
			}
		}
		after := get(t, "applied")
		if !maps.Equal(before.Annotations, after.Annotations) || before.Generation != after.Generation {
			t.Errorf("the pod had %v and has %v", before.Annotations, after.Annotations)
		}
		if after.ResourceVersion != before.ResourceVersion {
			t.Errorf("each apply writes: version %s became %s", before.ResourceVersion, after.ResourceVersion)
		}
	})
	t.Run("server-side apply of an unchanged manifest", func(t *testing.T) {
		text := fixture.Manifest(build("server-side"))
		mustKubectl(t, namespace, text, "apply", "--server-side", "-f", "-")
		before := get(t, "server-side")
		mustKubectl(t, namespace, text, "apply", "--server-side", "-f", "-")
		if after := get(t, "server-side"); !maps.Equal(before.Annotations, after.Annotations) {
			t.Errorf("the pod had %v and has %v", before.Annotations, after.Annotations)
		}
	})
	// As operators do that compare what they want with what there is.
	t.Run("PUT of an unchanged manifest", func(t *testing.T) {
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
			t.Errorf("another request got %v", err)
		}
	})
	t.Run("a resize of memory", func(t *testing.T) {
		if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "put", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "24Mi", "cpu": "400m"}, "limits": {"memory": "64Mi"}}}]}}`), metav1.PatchOptions{}, "resize"); err != nil {
			t.Fatal(err)
		}
		p := get(t, "put")
		if memory, request := p.Spec.Containers[0].Resources.Requests.Memory().String(), p.Spec.Containers[0].Resources.Requests[cores]; memory != "24Mi" || request.Value() != 400 || !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			t.Errorf("the container has %v", p.Spec.Containers[0].Resources)
		}
	})
}

// What users do to a pod after its creation, mostly with kubectl.
func TestNobodyEntersOrLeavesAPartitionLater(t *testing.T) {
	in(t, core)
	c := apiServer(t)
	reportingNode(t, c, "reporting", "management")
	namespace := fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, namespace), true)
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
	t.Run("an annotation of the user's own", func(t *testing.T) {
		output := mustKubectl(t, namespace, "", "annotate", "pod/p", "example.com/mine=x")
		if p := get(t, "p"); p.Annotations["example.com/mine"] != "x" || strings.Contains(output, "Warning") {
			t.Errorf("annotations %v, kubectl said %s", p.Annotations, output)
		}
	})
	t.Run("annotations of ours", func(t *testing.T) {
		for _, change := range []string{managementTarget + "-", partition.TargetPrefix + "other=", partition.ResourcesAnnotation("c") + `={"cpushares":9000}`, partition.ResourcesAnnotation("d") + "={}", partition.WarningAnnotation + "=x"} {
			output := mustKubectl(t, namespace, "", "annotate", "--overwrite", "pod/p", change)
			if !strings.Contains(output, "Warning: the workload partitioning annotations of a pod do not change after its creation") {
				t.Errorf("%s: kubectl said %s", change, output)
			}
		}
		p := get(t, "p")
		delete(p.Annotations, "example.com/mine")
		if !maps.Equal(p.Annotations, original.Annotations) {
			t.Errorf("the pod had annotations %v, and has %v", original.Annotations, p.Annotations)
		}
	})
	t.Run("status, binding and ephemeral containers carry no annotation into it", func(t *testing.T) {
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
			t.Errorf("the pod has annotations %v", p.Annotations)
		}
	})
	t.Run("kubectl debug", func(t *testing.T) {
		mustKubectl(t, namespace, "", "debug", "p", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		if p := get(t, "p"); len(p.Spec.EphemeralContainers) != 1 {
			t.Errorf("the pod has ephemeral containers %v", p.Spec.EphemeralContainers)
		}
	})
	t.Run("kubectl debug with a copy", func(t *testing.T) {
		// Annotations stay behind, resources do not: it becomes an ordinary pod.
		output := mustKubectl(t, namespace, "", "debug", "p", "--copy-to=copy", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		p := get(t, "copy")
		if request := p.Spec.Containers[0].Resources.Requests; request.Cpu().MilliValue() != 400 || !strings.Contains(output, "cores of a workload type were turned back into a cpu request") {
			t.Errorf("the copy requests %v, kubectl said %s", request, output)
		}
		if _, is := partition.PartitionedType(p); is || p.Annotations[managementTarget] != "" || partition.CarriesCores(p.Spec.Containers[0].Resources.Requests) || partition.CarriesCores(p.Spec.Containers[0].Resources.Limits) {
			t.Errorf("the copy has annotations %v and %v", p.Annotations, p.Spec.Containers[0].Resources)
		}
	})
	t.Run("kubectl debug with a copy that keeps annotations", func(t *testing.T) {
		mustKubectl(t, namespace, "", "debug", "p", "--copy-to=kept", "--keep-annotations", "--image="+image.Busybox, "--attach=false", "--container=debugger", "--profile=general", "--", "true")
		p := get(t, "kept")
		request := p.Spec.Containers[0].Resources.Requests[cores]
		if _, is := partition.PartitionedType(p); !is || request.Value() != 400 || p.Annotations[partition.ResourcesAnnotation("c")] != `{"cpushares":400,"cpulimit":500}` || p.Annotations[partition.ResourcesAnnotation("debugger")] != `{"cpushares":2}` {
			t.Errorf("the copy has annotations %v and %v", p.Annotations, p.Spec.Containers[0].Resources)
		}
	})
	t.Run("kubectl set resources", func(t *testing.T) {
		output, err := kubectl(t, namespace, "", "set", "resources", "pod/p", "--requests=cpu=100m", "--subresource=resize")
		if err == nil || !strings.Contains(output, "management.workload.openshift.io/cores") {
			// Older kubectl has no such flag; the API server's answer is what counts.
			_, err = c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}`), metav1.PatchOptions{}, "resize")
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.containers[0].resources.requests[cpu]") || !strings.Contains(err.Error(), "it is counted as management.workload.openshift.io/cores") {
				t.Errorf("got %v, kubectl said %s", err, output)
			}
		}
		if output, err := kubectl(t, namespace, "", "set", "resources", "pod/p", "--requests=cpu=100m"); err == nil {
			t.Errorf("a pod's resources were changed: %s", output)
		}
	})
	t.Run("a resize of the pod as a whole", func(t *testing.T) {
		_, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"resources": {"requests": {"cpu": "8"}}}}`), metav1.PatchOptions{}, "resize")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.resources.requests[cpu]") {
			t.Errorf("got %v", err)
		}
	})
	// The cpu that it had is no change.
	t.Run("a resize of memory", func(t *testing.T) {
		if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "24Mi", "cpu": "400m"}, "limits": {"memory": "64Mi"}}}]}}`), metav1.PatchOptions{}, "resize"); err != nil {
			t.Fatal(err)
		}
		p := get(t, "p")
		if memory, request := p.Spec.Containers[0].Resources.Requests.Memory().String(), p.Spec.Containers[0].Resources.Requests[cores]; memory != "24Mi" || request.Value() != 400 {
			t.Errorf("the container has %v", p.Spec.Containers[0].Resources)
		}
	})
	t.Run("a pod that is created again from what the server has", func(t *testing.T) {
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

// withoutIdentity removes what a new object must not have.
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
