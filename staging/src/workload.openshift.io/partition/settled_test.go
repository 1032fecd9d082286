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

package partition

import (
	"math/rand/v2"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Settled is true for every pod that Mutate leaves. If something changes the pod later, Settled
// is true exactly if Mutate would change nothing.
func TestSettledIsWhatMutateLeaves(t *testing.T) {
	allow := Policy{Gate: AnyType}
	random := rand.New(rand.NewPCG(1, 2))
	outcomes := map[bool]int{}
	for range 20000 {
		pod := randomPod(random)
		decision := Mutate(V1(pod), allow)
		if decision.Outcome != Refused && !Settled(V1(pod)) {
			t.Fatalf("after Mutate (%v) the pod is not settled: %v", decision, pod)
		}
		change(random, pod)
		again := pod.DeepCopy()
		want := Mutate(V1(again), allow).Outcome != Refused && equality.Semantic.DeepEqual(again, pod)
		if got := Settled(V1(pod)); got != want {
			t.Fatalf("settled: %v, want %v: %v\nMutate makes of it %v", got, want, pod, again)
		}
		outcomes[want]++
	}
	if outcomes[true] < 1000 || outcomes[false] < 1000 {
		t.Errorf("the changes were one-sided: %v", outcomes)
	}
	pod := randomPod(random)
	before := pod.DeepCopy()
	Settled(V1(pod))
	if !reflect.DeepEqual(before, pod) {
		t.Error("Settled has changed the pod")
	}
}

// A webhook's author must find in the message what it has changed.
func TestUnsettledNamesWhatWasChanged(t *testing.T) {
	resources, cores := ResourcesAnnotation("a"), CoresResource("management")
	for want, change := range map[string]func(*v1.Pod){
		"": func(*v1.Pod) {},
		`container "a" has requests.cpu 100m, requests.management.workload.openshift.io/cores 400, limits.management.workload.openshift.io/cores 400, and must have management.workload.openshift.io/cores 400 in requests and limits, and no cpu`: func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[cpu] = resource.MustParse("100m")
		},
		`container "b" has requests.management.workload.openshift.io/cores 5, and must have management.workload.openshift.io/cores 5 in requests and limits, and no cpu`: func(p *v1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, container("b", cores+"=5", ""))
			p.Annotations[ResourcesAnnotation("b")] = `{"cpushares":5}`
		},
		`the annotation "resources.workload.openshift.io/a" is "{\"cpushares\":7}", and must be "{\"cpushares\":400}"`:       func(p *v1.Pod) { p.Annotations[resources] = `{"cpushares":7}` },
		`the annotation "resources.workload.openshift.io/a" is "", and must be "{\"cpushares\":400}"`:                        func(p *v1.Pod) { delete(p.Annotations, resources) },
		`the annotation "resources.workload.openshift.io/z" is "x", and names no container`:                                  func(p *v1.Pod) { p.Annotations[ResourcesAnnotation("z")] = "x" },
		`the annotation "workload.openshift.io/warning" is "x", and the pod can be partitioned`:                              func(p *v1.Pod) { p.Annotations[WarningAnnotation] = "x" },
		`the annotation "resources.workload.openshift.io/a" is "{\"cpushares\":400}", and the pod asks for no workload type`: func(p *v1.Pod) { delete(p.Annotations, target) },
		`container "a" has requests.management.workload.openshift.io/cores 400, limits.management.workload.openshift.io/cores 400, and the pod asks for no workload type`: func(p *v1.Pod) {
			p.Annotations = nil
		},
		`workload type "management" refused: the CPU of a container is negative, above its limit, or more than 1000000 CPUs: container "b" has requests.cpu -1`: func(p *v1.Pod) {
			p.Annotations[target] = hard
			p.Spec.Containers = append(p.Spec.Containers, container("b", "cpu=-1", ""))
		},
	} {
		p := pod(map[string]string{target: soft}, container("a", "cpu=400m memory=1Mi", ""))
		Mutate(V1(p), Policy{Gate: AnyType})
		change(p)
		if got := Unsettled(V1(p)); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	}
}

// change does to a pod what a webhook might, or nothing.
func change(random *rand.Rand, pod *v1.Pod) {
	if len(pod.Spec.Containers) == 0 {
		return
	}
	c := &pod.Spec.Containers[random.IntN(len(pod.Spec.Containers))]
	put := func(list *v1.ResourceList, name, value string) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[v1.ResourceName(name)] = resource.MustParse(value)
	}
	annotate := func(key, value string) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[key] = value
	}
	lists := []*v1.ResourceList{&c.Resources.Requests, &c.Resources.Limits}
	list := lists[random.IntN(len(lists))]
	switch random.IntN(16) {
	case 0:
		put(list, cpu, "100m")
	case 1:
		put(list, memory, "5Mi")
	case 2:
		put(list, CoresResource("management"), "123")
	case 3:
		put(list, CoresResource("other"), "400")
	case 4:
		put(list, CoresResource("management"), "399500m")
	case 5:
		delete(*list, v1.ResourceName(CoresResource("management")))
	case 6:
		annotate(WarningAnnotation, "x")
	case 7:
		annotate(TargetAnnotation("management"), "")
	case 8:
		annotate(TargetAnnotation("other"), "")
	case 9:
		annotate(ResourcesAnnotation(c.Name), `{"cpushares":7}`)
	case 10:
		annotate(ResourcesAnnotation("nobody"), `{"cpushares":7}`)
	case 11:
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "injected"})
	case 13:
		put(list, cpu, "0")
	case 12:
		annotate("example.com/mine", "x")
	}
}
