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
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// The cases that all hosts share, as requests: a refusal is a status, and a warning is told.
func TestCases(t *testing.T) {
	objects := []runtime.Object{partitiontest.Node("a", partitiontest.Type), partitiontest.Namespace("kube-system", "", "")}
	for _, n := range partitiontest.Namespaces() {
		objects = append(objects, n)
	}
	p, _ := start(t, objects...)
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()[partitiontest.Type].Active })
	for _, c := range partitiontest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			told, err := []string(nil), error(nil)
			got := throughTheAPI(t, c.Pod, func(pod *core.Pod) { told, err = create(t, p, pod, c.Namespace) })
			if c.Want.Outcome == partition.Refused {
				if !c.Want.RefusedWith(err) {
					t.Errorf("got %v, want a refusal with %q", err, c.Want.Text())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if difference := c.Want.Diff(got); difference != "" {
				t.Error(difference)
			}
			if warned := strings.Join(told, "\n"); !strings.Contains(warned, c.Want.Text()) || (warned == "") != (c.Want.Reason == partition.NoReason) {
				t.Errorf("told %q, want %q", warned, c.Want.Text())
			}
		})
	}
}

// throughTheAPI has a pod changed in the representation in which kube-apiserver holds it, with
// the defaults that it has by then.
func throughTheAPI(t *testing.T, pod *v1.Pod, change func(*core.Pod)) *v1.Pod {
	t.Helper()
	var internal core.Pod
	pod = pod.DeepCopy()
	corev1.SetObjectDefaults_Pod(pod)
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod, &internal, nil); err != nil {
		t.Fatal(err)
	}
	for _, of := range internalpod.View(&internal).Containers {
		if errs := validation.ValidateContainerResourceRequirements(requirements(of), nil, nil, validation.PodValidationOptions{}); len(errs) > 0 {
			t.Errorf("upstream refuses container %s of the case itself: %v", of.Name, errs)
		}
	}
	change(&internal)
	var got v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(&internal, &got, nil); err != nil {
		t.Fatal(err)
	}
	return &got
}
