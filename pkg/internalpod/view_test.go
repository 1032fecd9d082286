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

package internalpod

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core"
	qos "k8s.io/kubernetes/pkg/apis/core/helper/qos"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// randomPod makes ordinary and partitioned pods in the versioned representation.
func randomPod(r *rand.Rand) *v1.Pod {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	list := func(fields ...string) v1.ResourceList { return podtest.List(strings.Join(fields, " ")) }
	pod := podtest.Pod(map[string]string{})
	for i := range 1 + r.IntN(3) {
		c := v1.Container{Name: string(rune('a' + i)), Resources: v1.ResourceRequirements{
			Requests: list(pick("", "cpu=1", "cpu=400m", "cpu=0"), pick("", "memory=1Mi", "memory=2Mi"), pick("", "", "", "cores=300")),
			Limits:   list(pick("", "cpu=1", "cpu=2"), pick("", "memory=1Mi", "memory=2Mi")),
		}}
		if r.IntN(4) == 0 {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	if r.IntN(5) > 0 {
		pod.Annotations[partition.TargetAnnotation("management")] = pick("", "{}", `{"effect":"RequiredDuringScheduling"}`)
	}
	if r.IntN(6) == 0 {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: list(pick("", "cpu=1"), pick("", "memory=1Gi"))}
	}
	return pod
}

func internal(t *testing.T, pod *v1.Pod) *core.Pod {
	t.Helper()
	var converted core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &converted, nil); err != nil {
		t.Fatal(err)
	}
	return &converted
}

func TestBothRepresentationsAreMutatedAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	policy := partition.Policy{Gate: partition.AnyType}
	for range 5000 {
		versioned := randomPod(r)
		own := internal(t, versioned)
		want := partition.Mutate(partition.V1(versioned), policy)
		if got := partition.Mutate(View(own), policy); !reflect.DeepEqual(got, want) {
			t.Fatalf("decided %v of the internal pod, %v of the versioned one", got, want)
		}
		if converted := internal(t, versioned); !reflect.DeepEqual(converted, own) {
			t.Fatalf("the internal pod became\n%v, the versioned one\n%v", own, converted)
		}
	}
}

// The cases that all hosts share, in the internal representation.
func TestCases(t *testing.T) {
	for _, c := range partitiontest.Cases() {
		own := internal(t, c.Pod)
		delete(own.Annotations, partition.WarningAnnotation)
		d := partition.Mutate(View(own), partition.Policy{Gate: partitiontest.Gate(c.Namespace)})
		if d.Outcome != c.Want.Outcome || d.Reason != c.Want.Reason {
			t.Errorf("%s: decided %q because of %q, want %q because of %q", c.Name, d.Outcome, d.Reason, c.Want.Outcome, c.Want.Reason)
		}
		if c.Want.Pod == nil {
			continue
		}
		var got v1.Pod
		if err := corev1.Convert_core_Pod_To_v1_Pod(own, &got, nil); err != nil {
			t.Fatal(err)
		}
		if difference := c.Want.Diff(&got); difference != "" {
			t.Errorf("%s: %s", c.Name, difference)
		}
	}
}

func raiseLimits(containers []v1.Container) {
	for i := range containers {
		limits := containers[i].Resources.Limits
		for name, request := range containers[i].Resources.Requests {
			if limit, ok := limits[name]; ok && limit.Cmp(request) < 0 {
				limits[name] = request
			}
		}
	}
}

func TestPartitioningKeepsUpstreamsQoSClass(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	policy := partition.Policy{Gate: partition.AnyType}
	seen := map[partition.Outcome]int{}
	for range 20000 {
		versioned := randomPod(r)
		// Validation refuses requests above limits, and releases differ in the class of such pods.
		raiseLimits(versioned.Spec.InitContainers)
		raiseLimits(versioned.Spec.Containers)
		carried := false
		for _, c := range append(versioned.Spec.InitContainers, versioned.Spec.Containers...) {
			carried = carried || partition.CarriesCores(c.Resources.Requests)
		}
		pod := internal(t, versioned)
		before := qos.ComputePodQOS(pod)
		d := partition.Mutate(View(pod), policy)
		seen[d.Outcome]++
		// A pod that comes with cores and is made ordinary gets its own class back.
		if carried && d.Outcome != partition.Partitioned {
			continue
		}
		if after := qos.ComputePodQOS(pod); after != before && !carried {
			t.Fatalf("%v: the class went from %s to %s: %v", d, before, after, pod)
		}
		if d.Outcome == partition.Partitioned && qos.ComputePodQOS(pod) == core.PodQOSGuaranteed {
			t.Fatalf("a Guaranteed pod was partitioned: %v", pod)
		}
	}
	for _, outcome := range []partition.Outcome{partition.Ordinary, partition.Partitioned, partition.Skipped, partition.Refused} {
		if seen[outcome] < 100 {
			t.Errorf("only %d pods had the outcome %q", seen[outcome], outcome)
		}
	}
}

func TestCarriesCores(t *testing.T) {
	pod := &core.Pod{}
	pod.Spec.InitContainers = []core.Container{{Resources: core.ResourceRequirements{Limits: core.ResourceList{
		core.ResourceName(partition.CoresResource("management")): resource.MustParse("1"),
	}}}}
	if !CarriesCores(pod) || CarriesCores(&core.Pod{}) {
		t.Error("want cores in the first pod and none in the second")
	}
	if !strings.HasSuffix(partition.CoresResource("a"), "/cores") {
		t.Error(partition.CoresResource("a"))
	}
}
