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
