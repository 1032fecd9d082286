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
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// So the kubelet knows them, whatever partitioned them.
func TestPartitionedPodsAreKnownByWhatTheyHave(t *testing.T) {
	const cores, others = "management.workload.openshift.io/cores=400", "infra.workload.openshift.io/cores=400"
	annotated := map[string]string{target: soft, ResourcesPrefix + "c": `{"cpushares":400}`, ResourcesPrefix + "d": `{"cpushares":2}`}
	theirs := map[string]string{target: soft, ResourcesPrefix + "c": `{"cpushares":409}`}
	for name, test := range map[string]struct {
		annotations map[string]string
		c, d        string // the requests of two containers
		want        string
	}{
		"cores, and all annotated":                       {annotated, cores, "", "management"},
		"BestEffort, and all annotated":                  {annotated, "", "", "management"},
		"OpenShift's kubelet annotates those with cores": {theirs, cores, "memory=1Mi", "management"},
		"a zero is left where the key would be missed":   {theirs, cores + " cpu=0", "", "management"},
		"no cores, and not all annotated":                {theirs, "memory=1Mi", "", ""},
		"a container has cpu":                            {annotated, cores, "cpu=1m", ""},
		"a container has cores of another type":          {theirs, cores, others, ""},
		"all cores are of another type":                  {annotated, others, "", ""},
		"it does not ask":                                {map[string]string{ResourcesPrefix + "c": "", ResourcesPrefix + "d": ""}, cores, "", ""},
		"it asks twice":                                  {map[string]string{target: soft, TargetPrefix + "infra": soft}, cores, "", ""},
	} {
		got, ok := PartitionedType(pod(test.annotations, container("c", test.c, ""), container("d", test.d, "")))
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, ok, test.want)
		}
	}
	// Weights come from the cores, never from the annotation.
	p := pod(theirs, container("c", cores, cores))
	if cpu := AsOrdinary(p, "management").Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); cpu != 400 {
		t.Errorf("the container is taken for one of %dm, want 400m", cpu)
	}
}

func TestAsOrdinaryIsThePodBeforeMutate(t *testing.T) {
	p := pod(map[string]string{target: soft}, container("a", "cpu=400m memory=1Mi", "cpu=500m"), container("b", "", ""))
	original := p.DeepCopy()
	if d := Mutate(V1(p), Policy{Gate: AnyType}); d.Outcome != Partitioned {
		t.Fatal(d)
	}
	mutated := p.DeepCopy()
	ordinary := AsOrdinary(p, "management")
	ordinary.Annotations = original.Annotations
	expectEqual(t, ordinary, original)
	if !reflect.DeepEqual(p, mutated) {
		t.Error("AsOrdinary changed the pod itself")
	}
	// The pod as a whole has a zero by default, once a container has one.
	p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=0 memory=1Gi")}
	if ordinary := AsOrdinary(p, "management"); len(ordinary.Spec.Resources.Requests) != 1 || len(p.Spec.Resources.Requests) != 2 {
		t.Errorf("the pod as a whole asks for %v, and the copy for %v", p.Spec.Resources.Requests, ordinary.Spec.Resources.Requests)
	}
	if c := ContainerAsOrdinary(p, "management", &p.Spec.Containers[0]); c.Resources.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("container asks for %s", c.Resources.Requests.Cpu())
	}
}

func TestAResizedContainerKeepsItsCPU(t *testing.T) {
	p := pod(map[string]string{target: soft}, container("a", "cpu=400m memory=1Mi", "cpu=500m"))
	Mutate(V1(p), Policy{Gate: AnyType})
	for name, resized := range map[string]v1.Container{
		"without cores": container("a", "memory=2Mi", ""),
		"with cpu zero": container("a", "cpu=0 memory=2Mi", "cpu=0 memory=3Mi"),
		"with cores":    container("a", "cores=400 memory=2Mi", "cores=400"),
	} {
		before := resized.DeepCopy()
		got := ContainerAsOrdinary(p, "management", &resized).Resources
		if got.Requests.Cpu().MilliValue() != 400 || got.Limits.Cpu().MilliValue() != 500 || got.Requests.Memory().String() != "2Mi" || CarriesCores(got.Requests) {
			t.Errorf("%s: %v", name, got)
		}
		if !reflect.DeepEqual(before, &resized) {
			t.Errorf("%s: the container itself was changed", name)
		}
	}
	ephemeral := container("debugger", "", "")
	if ContainerAsOrdinary(p, "management", &ephemeral) != &ephemeral {
		t.Error("an ephemeral container was changed")
	}
}
