package partitioning

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// A webhook that comes last can make a whole partitioned pod. What the caches deny counts
// only after a live read.
func TestAForgedPartitionedPodIsRefused(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("plain", "", ""))
	eventually(t, "the type is active", func() bool { return p.activation.active("management") })
	for name, requests := range map[string]core.ResourceList{"BestEffort": nil, "Burstable": newPod(nil).Spec.Containers[0].Resources.Requests} {
		forge := func(pod *core.Pod) {
			pod.Annotations = map[string]string{managementTarget: ""}
			partition.Mutate(internalpod.View(pod), partition.Policy{Gate: func(string) partition.Reason { return "" }})
		}
		build := func() *core.Pod {
			pod := newPod(nil)
			pod.Spec.Containers[0].Resources.Requests = requests.DeepCopy()
			return pod
		}
		if _, err := createAs(t, p, build(), "plain", nil, func(*core.Pod) {}, forge); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the namespace is not annotated") {
			t.Errorf("%s: got %v", name, err)
		}
		late := namespace("late-"+strings.ToLower(name), partition.AllowedAnnotation, "management")
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := createAs(t, p, build(), late.Name, nil, func(*core.Pod) {}, forge); err != nil {
			t.Errorf("%s, where it may be: got %v", name, err)
		}
	}
}

// A template that asks in vain is read often, and a warning is no decision: the cache will do.
func TestTemplatesCostNoRequest(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("plain", "", ""))
	eventually(t, "the type is latched", func() bool {
		p.activation.mu.Lock()
		defer p.activation.mu.Unlock()
		return p.activation.latched["management"]
	})
	pod := newPod(map[string]string{managementTarget: ""})
	deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
	client.ClearActions()
	for range 10 {
		var r recorder
		if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "plain", "", admission.Update), nil); err != nil || len(r.warnings) != 1 {
			t.Errorf("got %v, %q", err, r.warnings)
		}
	}
	for _, action := range client.Actions() {
		if action.Matches("get", "namespaces") && action.GetNamespace() == "" {
			t.Errorf("a request %v", action)
		}
	}
	if _, err := create(t, p, pod, "plain"); err != nil || !slices.ContainsFunc(client.Actions(), func(action clienttesting.Action) bool { return action.Matches("get", "namespaces") }) {
		t.Errorf("a pod got %v, and its no no live read", err)
	}
}
