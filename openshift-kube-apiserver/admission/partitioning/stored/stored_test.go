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

package stored

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
	"workload.openshift.io/partition/partitiontest/podtest"
)

func TestPodsWithoutARightToTheirPartitionAreNamed(t *testing.T) {
	target := partition.TargetAnnotation("management")
	planted := func(change func(*v1.Pod)) *v1.Pod {
		// As any user can write it who creates pods through a kube-apiserver without the plugin.
		pod := podtest.Pod(map[string]string{target: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesAnnotation("c"): `{"cpushares":16000}`},
			podtest.Container("c", "management.workload.openshift.io/cores=16000 memory=16Mi", "management.workload.openshift.io/cores=16000"))
		if change != nil {
			change(pod)
		}
		return pod
	}
	inPlain := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		namespace string
		change    func(*v1.Pod)
		want      bool
	}{
		"in a namespace without the annotation": {"plain", inPlain, true},
		"in one that allows other types":        {"others", inPlain, true},
		"in one that allows the type":           {"allowed", inPlain, false},
		"without cores, as BestEffort": {"plain", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
			p.Annotations[partition.ResourcesAnnotation("c")] = `{"cpushares":2}`
		}, true},
		"as OpenShift's kubelet makes them, without a resources annotation": {"plain", func(p *v1.Pod) { delete(p.Annotations, partition.ResourcesAnnotation("c")) }, true},
		"a pod that no kubelet takes for partitioned":                       {"plain", func(p *v1.Pod) { delete(p.Annotations, target) }, false},
		"a pod that has ended":                                              {"plain", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, false},
		"a static pod's mirror":                                             {"plain", func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey] = "hash" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := planted(test.change)
			pod.Name, pod.Namespace = "planted", test.namespace
			client := fake.NewClientset(pod, partitiontest.Namespace("plain", "", ""), partitiontest.Namespace("others", partition.AllowedAnnotation, "infra"),
				partitiontest.Namespace("allowed", partition.AllowedAnnotation, "management"))
			factory := informers.NewSharedInformerFactory(client, 0)
			pods, err := New(factory.Core().V1().Pods(), factory.Core().V1().Namespaces())
			if err != nil {
				t.Fatal(err)
			}
			if names, known := pods.NotAllowed("management"); known {
				t.Errorf("%v are known before all pods have been seen", names)
			}
			ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if names := pods.AwaitNotAllowed(ended, "management"); names != nil {
				t.Errorf("%v are awaited", names)
			}
			factory.Start(t.Context().Done())
			var want []string
			if test.want {
				want = []string{test.namespace + "/planted"}
			}
			if got := pods.AwaitNotAllowed(t.Context(), "management"); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := pods.AwaitNotAllowed(t.Context(), "infra"); len(got) > 0 {
				t.Errorf("%v are of another type", got)
			}
			// The namespace's annotation decides at each look.
			if _, err := client.CoreV1().Namespaces().Update(t.Context(), partitiontest.Namespace(test.namespace, partition.AllowedAnnotation, "infra,management"), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			partitiontest.Eventually(t, "the namespace allows the type", func() bool { return len(pods.AwaitNotAllowed(t.Context(), "management")) == 0 })
		})
	}
}
