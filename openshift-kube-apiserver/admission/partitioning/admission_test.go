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
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

const managementTarget = partition.TargetPrefix + "management"

// start runs the plugin against a fake API with the objects.
func start(t *testing.T, objects ...runtime.Object) (*plugin, *fake.Clientset) {
	t.Helper()
	return startWith(t, config.Configuration{}, nil, objects...)
}

// startWith has a configuration, and a client of the object that it names.
func startWith(t *testing.T, settings config.Configuration, dynamic dynamic.Interface, objects ...runtime.Object) (*plugin, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	p := newPlugin(settings)
	factory := informers.NewSharedInformerFactory(client, 0)
	// kube-apiserver's own initializer, since the order of its calls matters.
	newInitializer(t, client, dynamic, factory).Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	partitiontest.Eventually(t, "the caches are filled", p.activation.Synced)
	return p, client
}

// newPod returns an internal pod. partitiontest/podtest builds versioned ones, and the core, which has it,
// must not know the internal representation.
func newPod(annotations map[string]string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Annotations: annotations},
		Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Resources: core.ResourceRequirements{Requests: core.ResourceList{
			core.ResourceCPU: resource.MustParse("400m"), core.ResourceMemory: resource.MustParse("1Mi")}}}}},
	}
}

type recorder struct{ warnings []string }

func (r *recorder) AddWarning(_, text string) { r.warnings = append(r.warnings, text) }

func attributes(object, old runtime.Object, namespace, subresource string, operation admission.Operation) admission.Attributes {
	return admission.NewAttributesRecord(object, old, core.Kind("Pod").WithVersion("version"), namespace, "", core.Resource("pods").WithVersion("version"), subresource, operation, nil, false, nil)
}

// create runs both phases, as a request without webhooks does.
func create(t *testing.T, p *plugin, pod *core.Pod, namespace string) ([]string, error) {
	t.Helper()
	return createAs(t, p, pod, namespace, nil)
}

func createAs(t *testing.T, p *plugin, pod *core.Pod, namespace string, as user.Info, webhooks ...func(*core.Pod)) ([]string, error) {
	t.Helper()
	var r recorder
	ctx := warning.WithWarningRecorder(t.Context(), &r)
	request := func() admission.Attributes {
		return admission.NewAttributesRecord(pod, nil, core.Kind("Pod").WithVersion("version"), namespace, "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, as)
	}
	a := request()
	if err := p.Admit(ctx, a, nil); err != nil {
		return r.warnings, err
	}
	// The first webhook runs after the first run, and has another one made; the others run
	// after that.
	for i, change := range webhooks {
		change(pod)
		if i > 0 {
			continue
		}
		a.GetReinvocationContext().SetIsReinvoke()
		if err := p.Admit(ctx, a, nil); err != nil {
			return r.warnings, err
		}
	}
	// The server makes new attributes for the second phase.
	err := p.Validate(ctx, request(), nil)
	return r.warnings, err
}

func TestPodsThatDoNotAskPass(t *testing.T) {
	p, _ := start(t)
	for name, annotations := range map[string]map[string]string{
		"no annotation":     nil,
		"other annotations": {"a": "b", "target.example.com/management": "", core.MirrorPodAnnotationKey: "x"},
	} {
		pod := newPod(annotations)
		before := pod.DeepCopy()
		if warnings, err := create(t, p, pod, "none"); err != nil || len(warnings) > 0 || fmt.Sprint(before) != fmt.Sprint(pod) {
			t.Errorf("%s: %v, %v, %v", name, warnings, err, pod)
		}
	}
	pod := newPod(map[string]string{"kubernetes.io/config.source": "file", partition.ResourcesPrefix + "c": `{"cpuset": "0"}`})
	if _, err := create(t, p, pod, "none"); err != nil || len(pod.Annotations) != 1 {
		t.Errorf("a forged annotation stays: %v, %v", err, pod.Annotations)
	}
	pod = newPod(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"})
	a := attributes(pod, nil, "none", "", admission.Create)
	update := attributes(pod, pod.DeepCopy(), "none", "", admission.Update)
	again := attributes(pod, nil, "none", "", admission.Create)
	again.GetReinvocationContext().SetIsReinvoke()
	ctx := t.Context()
	for what, a := range map[string]admission.Attributes{"creation": a, "second run": again, "update": update} {
		if allocs := testing.AllocsPerRun(100, func() { _, _ = p.Admit(ctx, a, nil), p.Validate(ctx, a, nil) }); allocs != 0 {
			t.Errorf("the %s of a pod that does not ask costs %v allocations", what, allocs)
		}
	}
}

func TestANamespaceThatTheCacheHasNotSeenIsRead(t *testing.T) {
	p, client := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("late", "", ""))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	// The cache is stopped in the past by a separate lister.
	stale := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Namespaces()
	if err := stale.Informer().GetIndexer().Add(partitiontest.Namespace("late", "", "")); err != nil {
		t.Fatal(err)
	}
	p.gate.SetNamespaces(stale.Lister())
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), partitiontest.Namespace("late", partition.AllowedAnnotation, "management"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := newPod(map[string]string{managementTarget: ""})
	if warnings, err := create(t, p, pod, "late"); err != nil || len(warnings) > 0 {
		t.Errorf("got %q, %v", warnings, err)
	}
}

func TestWithoutCachesClientsMustTryAgain(t *testing.T) {
	p := newPlugin(config.Configuration{})
	client := fake.NewClientset()
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(client, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.Admit(ctx, attributes(newPod(map[string]string{managementTarget: ""}), nil, "x", "", admission.Create), nil)
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v, want 503", err)
	}
	forged := newPod(map[string]string{managementTarget: ""})
	partition.Mutate(internalpod.View(forged), partition.Policy{Gate: partition.AnyType})
	if err := p.Validate(ctx, attributes(forged, nil, "x", "", admission.Create), nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the second phase gave %v, want 503", err)
	}
	if err := p.Admit(ctx, attributes(newPod(nil), nil, "x", "", admission.Create), nil); err != nil {
		t.Errorf("a pod that does not ask got %v", err)
	}
}
