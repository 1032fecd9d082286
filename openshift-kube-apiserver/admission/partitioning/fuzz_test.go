package partitioning

import (
	"encoding/json"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// FuzzAdmit drives the plugin with whatever decodes as a pod: it never panics, a second
// run changes nothing, and the QoS class is what it was without us.
func FuzzAdmit(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/management": ""}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "400m", "memory": "1Mi"}}}]}}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/management": "{\"effect\":\"RequiredDuringScheduling\"}"}}, "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}]}}`,
		`{"metadata": {"annotations": {"resources.workload.openshift.io/c": "{\"cpushares\":400,\"cpulimit\":500}"}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"management.workload.openshift.io/cores": "400"}}}]}}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/a": "", "target.workload.openshift.io/b": "", "workload.openshift.io/warning": "x"}}, "spec": {"resources": {"requests": {"cpu": "1"}}, "containers": []}}`,
	} {
		f.Add([]byte(seed))
	}
	p := newPlugin(Config{Activation: Activation{Source: SourceTypes, Types: []string{"management"}}})
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(namespace("open", partition.AllowedAnnotation, "management, absent")); err != nil {
		f.Fatal(err)
	}
	p.namespaces = corev1listers.NewNamespaceLister(namespaces)
	p.client = fake.NewClientset(namespace("open", partition.AllowedAnnotation, "management, absent"))
	seen := func() bool { return true }
	p.activation.seen.Store(&seen)
	f.Fuzz(func(t *testing.T, data []byte) {
		var external v1.Pod
		if json.Unmarshal(data, &external) != nil {
			return
		}
		// As the API server does before admission.
		corev1.SetObjectDefaults_Pod(&external)
		var pod core.Pod
		if corev1.Convert_v1_Pod_To_core_Pod(&external, &pod, nil) != nil {
			return
		}
		ctx := warning.WithWarningRecorder(t.Context(), &recorder{})
		// Cores become cpu, or were it; then the class is another from the start.
		hadCores, class := internalpod.CarriesCores(&pod), qos.ComputePodQOS(&pod)
		if p.Admit(ctx, attributes(&pod, nil, "open", "", admission.Create), nil) != nil {
			return
		}
		if err := p.Validate(ctx, attributes(&pod, nil, "open", "", admission.Create), nil); err != nil {
			t.Fatalf("what Admit leaves is refused: %v: %v", err, pod)
		}
		if after := qos.ComputePodQOS(&pod); after != class && !hadCores {
			t.Fatalf("the QoS class was %s and is %s: %s", class, after, data)
		}
		once := pod.DeepCopy()
		again := attributes(&pod, nil, "open", "", admission.Create)
		again.GetReinvocationContext().SetIsReinvoke()
		if err := p.Admit(ctx, again, nil); err != nil || !reflect.DeepEqual(once, &pod) {
			t.Fatalf("the second run (%v) made of\n%v\nthis:\n%v", err, once, pod)
		}
	})
}
