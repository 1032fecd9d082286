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
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The client may send the manifest whole (PUT), or merged into what is stored (patch, apply).
// An earlier or a later run may have left the stored pod.
func TestAManifestSentAgainKeepsTheStoredCPU(t *testing.T) {
	build := func() *v1.Pod {
		p := pod(map[string]string{target: ""}, container("a", "cpu=400m memory=1Mi", "cpu=500m"), container("b", "memory=1Mi", ""))
		p.Spec.InitContainers = []v1.Container{container("init", "cpu=101m", "")}
		return p
	}
	merge := func(base, over v1.ResourceList) v1.ResourceList {
		merged := maps.Clone(base)
		for name, quantity := range over {
			set(&merged, name, quantity)
		}
		return merged
	}
	for _, keepZero := range []bool{false, true} {
		stored := build()
		if d := Mutate(V1(stored), Policy{Gate: AnyType, KeepZero: keepZero}); d.Outcome != Partitioned {
			t.Fatal(d)
		}
		for name, test := range map[string]struct {
			change func(*v1.Pod)
			same   bool
		}{
			"the manifest as it was":                 {func(*v1.Pod) {}, true},
			"other memory":                           {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[memory] = resource.MustParse("2Mi") }, true},
			"another request":                        {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[cpu] = resource.MustParse("401m") }, false},
			"another limit":                          {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits[cpu] = resource.MustParse("400m") }, false},
			"a request where there was none":         {func(p *v1.Pod) { p.Spec.Containers[1].Resources.Requests[cpu] = resource.MustParse("1m") }, false},
			"a request of zero where there was none": {func(p *v1.Pod) { p.Spec.Containers[1].Resources.Requests[cpu] = resource.MustParse("0") }, true},
			"a container that is new": {func(p *v1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, container("x", "cpu=400m", ""))
			}, false},
		} {
			for _, merged := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, merged %v, zero %v", name, merged, keepZero), func(t *testing.T) {
					changed := build()
					test.change(changed)
					if merged {
						for i := range stored.Spec.Containers {
							r, of := &changed.Spec.Containers[i].Resources, stored.Spec.Containers[i].Resources
							r.Requests, r.Limits = merge(of.Requests, r.Requests), merge(of.Limits, r.Limits)
						}
					}
					KeepCPU(V1(changed), V1(stored))
					same := len(changed.Spec.Containers) == len(stored.Spec.Containers)
					for i := 0; same && i < len(stored.Spec.Containers); i++ {
						was, now := stored.Spec.Containers[i].Resources, changed.Spec.Containers[i].Resources
						delete(was.Requests, memory)
						delete(now.Requests, memory)
						same = equality.Semantic.DeepEqual(was, now)
					}
					if same != test.same {
						t.Errorf("the pod keeps the stored cpu: %v, want %v: %v", same, test.same, changed.Spec)
					}
				})
			}
		}
	}
	t.Run("the stored pod is ordinary", func(t *testing.T) {
		ordinary := build()
		ordinary.Annotations = nil
		changed := build()
		before := changed.DeepCopy()
		KeepCPU(V1(changed), V1(ordinary))
		expectEqual(t, changed, before)
	})
}

// BenchmarkUpdate has the cost of an update for each of a pod's containers, which must not grow with their number. A partitioned pod has
// up to some 2,000 containers (annotations_too_large), and every update of it comes here.
func BenchmarkUpdate(b *testing.B) {
	for _, containers := range []int{100, 2000} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			sent := pod(map[string]string{target: ""})
			for i := range containers {
				sent.Spec.Containers = append(sent.Spec.Containers, container(fmt.Sprintf("c-%05d", i), "cpu=400m memory=1Mi", ""))
			}
			stored := sent.DeepCopy()
			if d := Mutate(V1(stored), Policy{Gate: AnyType}); d.Outcome != Partitioned {
				b.Fatal(d)
			}
			var changed *v1.Pod
			for b.Loop() {
				b.StopTimer()
				changed = sent.DeepCopy()
				b.StartTimer()
				KeepCPU(V1(changed), V1(stored))
			}
			if !equality.Semantic.DeepEqual(changed.Spec, stored.Spec) {
				b.Fatal("the pod was not compared with the stored one")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*containers), "ns/container")
		})
	}
}

func TestTargetsAreComparedByWhatTheyAskFor(t *testing.T) {
	for _, test := range []struct {
		key, a, b string
		want      bool
	}{
		{target, "", soft, true},
		{target, "{}", `{"effect":"PreferredDuringScheduling"}`, true},
		{target, hard, `{"effect":"RequiredDuringScheduling"}`, true},
		{target, soft, hard, false},
		{target, soft, "x", false},
		{target, "x", "x", true},
		{ResourcesAnnotation("a"), `{"cpushares":2}`, `{"cpushares": 2}`, false},
	} {
		if got := sameTarget(test.key, test.a, test.b); got != test.want {
			t.Errorf("%s: %s and %s: %v, want %v", test.key, test.a, test.b, got, test.want)
		}
	}
}

func TestNobodyEntersOrLeavesAPartitionLater(t *testing.T) {
	const other = "example.com/mine"
	partitioned := map[string]string{target: soft, ResourcesPrefix + "a": `{"cpushares":400}`, other: "1"}
	for name, test := range map[string]struct {
		sent, stored, want map[string]string
		changed            []string // any of them
	}{
		"an ordinary pod":                        {map[string]string{other: "2"}, map[string]string{other: "1"}, map[string]string{other: "2"}, nil},
		"no annotations at all":                  {nil, nil, nil, nil},
		"the stored ones":                        {maps.Clone(partitioned), partitioned, partitioned, nil},
		"the target, written in another way":     {map[string]string{target: "", ResourcesPrefix + "a": `{"cpushares":400}`, other: "1"}, partitioned, partitioned, nil},
		"a pod that leaves":                      {map[string]string{other: "1"}, partitioned, partitioned, []string{target, ResourcesPrefix + "a"}},
		"a pod that leaves with all it has":      {nil, map[string]string{target: soft}, map[string]string{target: soft}, []string{target}},
		"a pod that enters":                      {maps.Clone(partitioned), map[string]string{other: "1"}, map[string]string{other: "1"}, []string{target, ResourcesPrefix + "a"}},
		"another effect":                         {map[string]string{target: hard}, map[string]string{target: soft}, map[string]string{target: soft}, []string{target}},
		"a warning that is taken away":           {nil, map[string]string{WarningAnnotation: "x"}, map[string]string{WarningAnnotation: "x"}, []string{WarningAnnotation}},
		"annotations with names that look alike": {map[string]string{"target.example.com/a": "", "workload.openshift.io/warnings": ""}, nil, map[string]string{"target.example.com/a": "", "workload.openshift.io/warnings": ""}, nil},
	} {
		named := func(changed string) bool {
			return slices.Contains(test.changed, changed) || (changed == "" && test.changed == nil)
		}
		if changed := ChangedAnnotation(test.sent, test.stored); !named(changed) {
			t.Errorf("%s: %q has changed, want one of %q", name, changed, test.changed)
		}
		if changed := KeepAnnotations(&test.sent, test.stored); !named(changed) || !maps.Equal(test.sent, test.want) {
			t.Errorf("%s: %q has changed, and the pod has %v, want one of %q, and %v", name, changed, test.sent, test.changed, test.want)
		}
	}
}
