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

package constraint

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// build returns a source that has seen the objects.
func build(t *testing.T, objects ...runtime.Object) *Source {
	t.Helper()
	s := New()
	if s.Validate() == nil {
		t.Error("a source without client is valid")
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	s.SetClient(client)
	s.SetInformers(factory)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if !s.Synced() {
		t.Fatal("the caches are not filled")
	}
	return s
}

func cpuOf(text string) v1.ResourceList { return podtest.List("cpu=" + text) }

func limitRange(item v1.LimitRangeItem) *v1.LimitRange {
	item.Type = v1.LimitTypeContainer
	return &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "n"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}
}

func resourceQuota(name v1.ResourceName, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	hard := v1.ResourceList{name: resource.MustParse("100")}
	return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "n"}, Spec: v1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}, Status: v1.ResourceQuotaStatus{Hard: hard}}
}

// pod returns an internal pod, which partitiontest/podtest cannot build.
func pod(resources core.ResourceRequirements) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{partition.TargetAnnotation("management"): ""}},
		Spec:       core.PodSpec{Containers: []core.Container{{Name: "c", Resources: resources}}},
	}
}

func of(t *testing.T, s *Source, namespace string) Constraints {
	t.Helper()
	a := admission.NewAttributesRecord(nil, nil, core.Kind("Pod").WithVersion("version"), namespace, "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, nil)
	constraints, err := s.Of(a)
	if err != nil {
		t.Fatal(err)
	}
	return constraints
}

// Upstream says what an object requires; whether the plugin heeds that, its own tests say.
func TestConstraints(t *testing.T) {
	for name, test := range map[string]struct {
		object  runtime.Object
		counts  bool
		refusal string
	}{
		"a LimitRange with defaults":        {limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}), false, ""},
		"a LimitRange with a minimum":       {limitRange(v1.LimitRangeItem{Min: cpuOf("50m")}), false, `LimitRange "of-cpu": `},
		"one that refuses it with cpu, too": {limitRange(v1.LimitRangeItem{Min: cpuOf("3")}), false, ""},
		"a quota on requests.cpu":           {resourceQuota(v1.ResourceRequestsCPU), true, ""},
		"a quota on limits.cpu":             {resourceQuota(v1.ResourceLimitsCPU), false, `ResourceQuota "of-cpu": must specify limits.cpu`},
		"a quota of other pods":             {resourceQuota(v1.ResourceLimitsCPU, v1.ResourceQuotaScopeTerminating), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t, test.object)
			constraints := of(t, s, "n")
			ordinary := pod(core.ResourceRequirements{
				Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("400m"), core.ResourceMemory: resource.MustParse("1Mi")},
				Limits:   core.ResourceList{core.ResourceCPU: resource.MustParse("500m")},
			})
			partitioned := ordinary.DeepCopy()
			counts := constraints.CountsCPU(partitioned)
			partition.Mutate(internalpod.View(partitioned), partition.Policy{Gate: partition.AnyType, KeepZero: counts})
			refusal := constraints.Refusal(partitioned, ordinary)
			if counts != test.counts || !strings.HasPrefix(refusal, test.refusal) || (refusal == "") != (test.refusal == "") {
				t.Errorf("counts cpu: %v, refuses it with %q", counts, refusal)
			}
			for _, again := range []bool{false, true} {
				policy, before := partition.Policy{Gate: partition.AnyType}, ordinary.DeepCopy()
				if constraints.Complete(before, again, &policy); policy.KeepZero != (test.counts || again) || !strings.HasPrefix(policy.Constraint(), test.refusal) || (policy.Constraint() == "") != (refusal == "") {
					t.Errorf("again: %v, keeps zeros: %v, constraint: %q", again, policy.KeepZero, policy.Constraint())
				}
				if !apiequality.Semantic.DeepEqual(before, ordinary) {
					t.Errorf("the pod was changed: %v", before)
				}
			}
			elsewhere := of(t, s, "other")
			if refusal := elsewhere.Refusal(partitioned, ordinary); elsewhere.CountsCPU(ordinary) || refusal != "" {
				t.Errorf("in another namespace it constraints something: %q", refusal)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	s := build(t, limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}))
	constraints := of(t, s, "n")
	for what, amounts := range map[string]map[string]bool{"requests": {"100m": true, "0.1": true, "2": false}, "limits": {"2": true, "100m": false}} {
		for amount, want := range amounts {
			if got := constraints.IsDefault(what, core.ResourceCPU, resource.MustParse(amount)); got != want {
				t.Errorf("%s is the default of %s: %v, want %v", amount, what, got, want)
			}
		}
	}
	if elsewhere := of(t, s, "other"); elsewhere.IsDefault("requests", core.ResourceCPU, resource.MustParse("100m")) {
		t.Error("it is the default of another namespace")
	}
	if constraints.IsDefault("requests", core.ResourceMemory, resource.MustParse("100m")) {
		t.Error("it is the default of another resource")
	}
	template := pod(core.ResourceRequirements{})
	if err := constraints.SetDefaults(template); err != nil {
		t.Fatal(err)
	}
	if got := template.Spec.Containers[0].Resources; got.Requests.CPU().String() != "100m" || got.Limits.CPU().String() != "2" {
		t.Errorf("the template's container has %v", got)
	}
}

// A pod of 1.5 MB has 10,000 containers.
func TestTheCostOfDefaultCoresGrowsWithTheContainersAlone(t *testing.T) {
	cores := core.ResourceName(partition.CoresResource("management"))
	constraints := Given([]*v1.LimitRange{limitRange(v1.LimitRangeItem{Default: podtest.List(string(cores) + "=100"), DefaultRequest: podtest.List(string(cores) + "=100")})}, nil)
	bytes := func(containers int) uint64 {
		p := pod(core.ResourceRequirements{})
		p.Annotations[limitRangerAnnotation] = "set"
		p.Spec.Containers = nil
		for i := range containers {
			p.Spec.Containers = append(p.Spec.Containers, core.Container{Name: fmt.Sprint(i), Resources: core.ResourceRequirements{
				Requests: core.ResourceList{cores: resource.MustParse("100")}, Limits: core.ResourceList{cores: resource.MustParse("100")}}})
		}
		stored := p.DeepCopy()
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		constraints.DropDefaultCores(p, stored)
		goruntime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := bytes(50), bytes(500); many > 20*few {
		t.Errorf("50 containers cost %d bytes of memory, 500 cost %d", few, many)
	}
}
