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
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// expectMirror checks that a mirror is counted once: by its cores, or, where the namespace
// refuses that, by its cpu.
func expectMirror(t *testing.T, p *plugin, byCores bool) {
	t.Helper()
	mirror := newPod(map[string]string{core.MirrorPodAnnotationKey: "hash", managementTarget: ""})
	mirror.Spec.Containers[0].Resources.Limits = core.ResourceList{core.ResourceCPU: resource.MustParse("500m")}
	partition.Mutate(internalpod.View(mirror), partition.Policy{Gate: partition.AnyType})
	annotations := fmt.Sprint(mirror.Annotations)
	mirror.Spec.NodeName = "a"
	// What LimitRanger may put in.
	mirror.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("100m")
	mirror.Spec.Containers[0].Resources.Limits[core.ResourceCPU] = resource.MustParse("2")
	kubelet := &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}
	for _, again := range []bool{false, true} {
		var webhooks []func(*core.Pod)
		if again {
			webhooks = append(webhooks, func(*core.Pod) {})
		}
		pod := mirror.DeepCopy()
		if told, err := createAs(t, p, pod, "open", kubelet, webhooks...); err != nil || len(told) > 0 {
			t.Errorf("a mirror got %v, %q", err, told)
		}
		resources := pod.Spec.Containers[0].Resources
		cpu, limit := resources.Requests[core.ResourceCPU], resources.Limits[core.ResourceCPU]
		if byCores != internalpod.CarriesCores(pod) || (byCores && (!cpu.IsZero() || !limit.IsZero())) || (!byCores && (cpu.MilliValue() != 400 || limit.MilliValue() != 500)) || fmt.Sprint(pod.Annotations) != annotations {
			t.Errorf("the mirror has %v and %v, want its cores: %v", resources, pod.Annotations, byCores)
		}
	}
}

// Only the node itself can have a pod exempt, in either phase.
func TestMirrorPodsOfOthersArePodsLikeAnyOther(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("plain", "", ""))
	for name, as := range map[string]user.Info{
		"no user":                     nil,
		"a user":                      &user.DefaultInfo{Name: "mallory"},
		"a user called a node":        &user.DefaultInfo{Name: "system:node:a"},
		"another node":                &user.DefaultInfo{Name: "system:node:b", Groups: []string{user.NodesGroup}},
		"a user in the group of them": &user.DefaultInfo{Name: "a", Groups: []string{user.NodesGroup}},
	} {
		t.Run(name, func(t *testing.T) {
			build := func() *core.Pod {
				pod := newPod(map[string]string{core.MirrorPodAnnotationKey: "hash", managementTarget: ""})
				partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
				pod.Spec.NodeName = "a"
				return pod
			}
			pod := build()
			if _, err := createAs(t, p, pod, "plain", as); err != nil || internalpod.CarriesCores(pod) {
				t.Errorf("got %v, %v", err, pod.Spec.Containers)
			}
			request := admission.NewAttributesRecord(build(), nil, core.Kind("Pod").WithVersion("version"), "plain", "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, as)
			if err := p.Validate(t.Context(), request, nil); !apierrors.IsForbidden(err) {
				t.Errorf("the second phase gave %v", err)
			}
		})
	}
}
