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
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func TestTemplatesOfSkippedPodsGiveAWarning(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"), partitiontest.Namespace("plain", "", ""))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	pod := newPod(map[string]string{managementTarget: ""})
	template := core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	for kind, object := range map[string]runtime.Object{
		"Deployment": &apps.Deployment{Spec: apps.DeploymentSpec{Template: template}}, "DaemonSet": &apps.DaemonSet{Spec: apps.DaemonSetSpec{Template: template}},
		"StatefulSet": &apps.StatefulSet{Spec: apps.StatefulSetSpec{Template: template}}, "ReplicaSet": &apps.ReplicaSet{Spec: apps.ReplicaSetSpec{Template: template}},
		"Job": &batch.Job{Spec: batch.JobSpec{Template: template}}, "CronJob": &batch.CronJob{Spec: batch.CronJobSpec{JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{Template: template}}}},
		"ReplicationController": &core.ReplicationController{Spec: core.ReplicationControllerSpec{Template: &template}},
	} {
		for namespace, want := range map[string]string{"open": "", "plain": `pods of this template: workload type "management" ignored: the namespace is not annotated with workload.openshift.io/allowed`} {
			var r recorder
			before := object.DeepCopyObject()
			if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(object, nil, namespace, "", admission.Create), nil); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if got := strings.Join(r.warnings, "\n"); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s in namespace %s: warnings %q, want %q", kind, namespace, got, want)
			}
			if fmt.Sprint(before) != fmt.Sprint(object) {
				t.Errorf("%s was changed", kind)
			}
		}
	}
	var r recorder
	empty := &core.ReplicationController{}
	if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(empty, nil, "open", "", admission.Create), nil); err != nil || len(r.warnings) > 0 {
		t.Errorf("got %v, %q", err, r.warnings)
	}
}

// Pods of these become Guaranteed by defaulting, which a template has not seen.
func TestTemplatesThatDefaultingMakesGuaranteedGiveAWarning(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	one, memory := resource.MustParse("1"), resource.MustParse("1Gi")
	for name, test := range map[string]struct {
		resources core.ResourceRequirements
		warned    bool
	}{
		"limits only": {core.ResourceRequirements{Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, true},
		"a memory limit and a cpu request equal to its limit": {core.ResourceRequirements{Requests: core.ResourceList{core.ResourceCPU: one}, Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, true},
		"a memory request": {core.ResourceRequirements{Requests: core.ResourceList{core.ResourceMemory: resource.MustParse("1Mi")}, Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, false},
	} {
		pod := newPod(map[string]string{managementTarget: ""})
		pod.Spec.Containers[0].Resources = test.resources
		deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
		var r recorder
		before := deployment.DeepCopy()
		if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "open", "", admission.Create), nil); err != nil {
			t.Error(err)
		}
		if got := strings.Join(r.warnings, ""); strings.Contains(got, "Guaranteed") != test.warned || (got != "") != test.warned {
			t.Errorf("%s: told %q", name, got)
		}
		if fmt.Sprint(before) != fmt.Sprint(deployment) {
			t.Errorf("%s: the template was changed", name)
		}
	}
}

// A template that asks in vain is read often, and a warning is not a decision: the cache will do.
func TestTemplatesCostNoRequest(t *testing.T) {
	p, client := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("plain", "", ""))
	partitiontest.Eventually(t, "the type is latched", func() bool { return p.activation.States()["management"].Latched })
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
