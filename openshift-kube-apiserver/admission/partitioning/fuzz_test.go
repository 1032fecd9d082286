/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// FuzzAdmit drives the plugin with whatever decodes as a pod: it never panics, a second
// run changes nothing, and the QoS class is what it was without us. Where the type was decided
// against, the pod is an ordinary one in silence.
func FuzzAdmit(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/management": ""}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "400m", "memory": "1Mi"}}}]}}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/management": "{\"effect\":\"RequiredDuringScheduling\"}"}}, "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}]}}`,
		`{"metadata": {"annotations": {"resources.workload.openshift.io/c": "{\"cpushares\":400,\"cpulimit\":500}"}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"management.workload.openshift.io/cores": "400"}}}]}}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/management": ""}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9E", "memory": "1Mi"}}}, {"name": "d", "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}}]}}`,
		`{"metadata": {"annotations": {"target.workload.openshift.io/a": "", "target.workload.openshift.io/b": "", "workload.openshift.io/warning": "x"}}, "spec": {"resources": {"requests": {"cpu": "1"}}, "containers": []}}`,
	} {
		f.Add([]byte(seed))
	}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(partitiontest.Namespace("open", partition.AllowedAnnotation, "management, absent")); err != nil {
		f.Fatal(err)
	}
	decidedBy := func(source config.Source) *plugin {
		p := newPlugin(config.Configuration{Activation: config.Activation{Source: source, Types: []string{"management"}}})
		p.gate.SetNamespaces(corev1listers.NewNamespaceLister(namespaces))
		p.nodesByName = corev1listers.NewNodeLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
		p.gate.SetClient(fake.NewClientset(partitiontest.Namespace("open", partition.AllowedAnnotation, "management, absent")))
		p.activation.SetSynced(func() bool { return true })
		constrainNothing(f.Context(), p)
		return p
	}
	p, against := decidedBy(config.SourceTypes), decidedBy(config.SourceInfrastructure)
	against.SetDynamicClient(serving(infrastructure(map[string]any{"cpuPartitioning": "None"})))
	partitiontest.Eventually(f, "the type is decided against", func() bool {
		reason, _ := against.activation.Reason("management")
		return reason == partition.ReasonDecidedAgainst
	})
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
		before := pod.DeepCopy()
		hadCores, class := internalpod.CarriesCores(&pod), qos.ComputePodQOS(&pod)
		expectSilence(t, against, pod.DeepCopy())
		if p.Admit(ctx, attributes(&pod, nil, "open", "", admission.Create), nil) != nil {
			return
		}
		if err := p.Validate(ctx, attributes(&pod, nil, "open", "", admission.Create), nil); err != nil {
			t.Fatalf("what Admit leaves is refused: %v: %v", err, pod)
		}
		if after := qos.ComputePodQOS(&pod); after != class && !hadCores {
			t.Fatalf("the QoS class was %s and is %s: %s", class, after, data)
		}
		// What upstream accepts with cpu it accepts without.
		if partitioned := internalpod.CarriesCores(&pod); partitioned && !hadCores {
			for i, of := range internalpod.View(&pod).Containers {
				now, was := validation.ValidateContainerResourceRequirements(requirements(of), nil, nil, validation.PodValidationOptions{}), validation.ValidateContainerResourceRequirements(requirements(internalpod.View(before).Containers[i]), nil, nil, validation.PodValidationOptions{})
				if len(now) > len(was) {
					t.Fatalf("upstream says of container %s %v, and said %v: %s", of.Name, now, was, data)
				}
			}
		}
		// A second run adds zeros, at most, and a third one nothing.
		again := attributes(&pod, nil, "open", "", admission.Create)
		again.GetReinvocationContext().SetIsReinvoke()
		if err := p.Admit(ctx, again, nil); err != nil {
			t.Fatalf("the second run: %v: %s", err, data)
		}
		if err := p.Validate(ctx, attributes(&pod, nil, "open", "", admission.Create), nil); err != nil {
			t.Fatalf("what the second run leaves is refused: %v: %v", err, pod)
		}
		twice := pod.DeepCopy()
		if err := p.Admit(ctx, again, nil); err != nil || !reflect.DeepEqual(twice, &pod) {
			t.Fatalf("the third run (%v) made of\n%v\nthis:\n%v", err, twice, pod)
		}
	})
}

// expectSilence checks that nothing of ours is left of a pod that asks for the type that was
// decided against, and that there is no warning.
func expectSilence(t *testing.T, against *plugin, pod *core.Pod) {
	t.Helper()
	target, _ := partition.ParseTarget(pod.Annotations)
	var r recorder
	ctx := warning.WithWarningRecorder(t.Context(), &r)
	err := against.Admit(ctx, attributes(pod, nil, "open", "", admission.Create), nil)
	if target.Type != "management" {
		return
	}
	if (err != nil) != (target.Effect == partition.Required) {
		t.Fatalf("a pod with the effect %s got %v", target.Effect, err)
	}
	if err != nil {
		return
	}
	if err := against.Validate(ctx, attributes(pod, nil, "open", "", admission.Create), nil); err != nil || len(r.warnings) > 0 || concerns(pod) {
		t.Fatalf("got %v, told %q, and the pod is %v", err, r.warnings, pod)
	}
}

func requirements(of partition.Container[core.ResourceList, core.ResourceName]) *core.ResourceRequirements {
	return &core.ResourceRequirements{Requests: *of.Requests, Limits: *of.Limits}
}
