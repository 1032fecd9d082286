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
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition/partitiontest/podtest"
)

const (
	target = TargetPrefix + "management"
	cores  = v1.ResourceName("management.workload.openshift.io/cores")
	soft   = `{"effect":"PreferredDuringScheduling"}`
	hard   = `{"effect":"RequiredDuringScheduling"}`
)

// The tables are full of these, so they have short names.
var list, container, pod = podtest.List, podtest.Container, podtest.Pod

// The cases of package partitiontest say what becomes of pods as users write them. This test
// has the pods that earlier runs, callers and webhooks leave.
func TestMutateAllowsForWhatRanBefore(t *testing.T) {
	asks := func(more ...string) map[string]string {
		annotations := map[string]string{target: soft}
		for i := 0; i < len(more); i += 2 {
			annotations[more[i]] = more[i+1]
		}
		return annotations
	}
	withInit := func(p *v1.Pod, init v1.Container) *v1.Pod {
		p.Spec.InitContainers = []v1.Container{init}
		return p
	}
	const forA = ResourcesPrefix + "a"
	tests := []struct {
		name        string
		pod         *v1.Pod
		policy      Policy
		want        *v1.Pod
		outcome     Outcome
		reason      Reason
		wantMessage string
	}{{
		name:    "the key stays where it would be missed",
		pod:     pod(asks(), container("a", "cpu=400m memory=1Mi", "cpu=500m"), container("b", "memory=1Mi", "")),
		policy:  Policy{KeepZero: true},
		want:    pod(asks(forA, `{"cpushares":400,"cpulimit":500}`, ResourcesPrefix+"b", `{"cpushares":2}`), container("a", "cores=400 cpu=0 memory=1Mi", "cores=400"), container("b", "cpu=0 memory=1Mi", "")),
		outcome: Partitioned,
	}, {
		name:    "a limit that was put back next to cores becomes zero, too",
		pod:     pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 cpu=100m memory=1Mi", "cores=400 cpu=200m")),
		policy:  Policy{KeepZero: true},
		want:    pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 cpu=0 memory=1Mi", "cores=400 cpu=0")),
		outcome: Partitioned,
	}, {
		name:    "a BestEffort pod gets no key",
		pod:     pod(asks(), container("a", "", "")),
		policy:  Policy{KeepZero: true},
		want:    pod(asks(forA, `{"cpushares":2}`), container("a", "", "")),
		outcome: Partitioned,
	}, {
		name:    "a zero next to cores stays",
		pod:     pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 cpu=0 memory=1Mi", "cores=400")),
		want:    pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 cpu=0 memory=1Mi", "cores=400")),
		outcome: Partitioned,
	}, {
		name:    "a second run drops the default that LimitRanger put back",
		pod:     pod(asks(forA, `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 cpu=100m memory=1Mi", "cores=400 cpu=200m")),
		want:    pod(asks(forA, `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 memory=1Mi", "cores=400")),
		outcome: Partitioned,
	}, {
		name:    "a default limit next to cores is not the pod's",
		pod:     pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400 cpu=200m")),
		want:    pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400")),
		outcome: Partitioned,
	}, {
		name:    "an init container loses it, too",
		pod:     withInit(pod(asks(forA, `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400")), container("init", "cores=200 cpu=100m", "cores=200 cpu=200m")),
		want:    withInit(pod(asks(forA, `{"cpushares":400}`, ResourcesPrefix+"init", `{"cpushares":200}`), container("a", "cores=400 memory=1Mi", "cores=400")), container("init", "cores=200", "cores=200")),
		outcome: Partitioned,
	}, {
		name:        "cores without a target annotation become cpu again",
		pod:         pod(map[string]string{forA: `{"cpushares":400,"cpulimit":500,"cpuset":"0"}`}, container("a", "cores=400 cpu=100m memory=1Mi", "cores=400")),
		want:        pod(map[string]string{WarningAnnotation: coresWithoutTargetRule.Text}, container("a", "cpu=400m memory=1Mi", "cpu=500m")),
		reason:      ReasonCoresWithoutTarget,
		wantMessage: "turned back",
	}, {
		name:        "a partitioned pod that a webhook made Guaranteed becomes an ordinary one again",
		pod:         pod(asks(forA, `{"cpushares":500,"cpulimit":500}`), container("a", "cores=500 memory=1Mi", "cores=500 memory=1Mi")),
		want:        pod(map[string]string{WarningAnnotation: ""}, container("a", "cpu=500m memory=1Mi", "cpu=500m memory=1Mi")),
		outcome:     Skipped,
		reason:      ReasonGuaranteed,
		wantMessage: "Guaranteed",
	}, {
		name:        "a static pod is never refused",
		pod:         pod(map[string]string{target: hard, TargetPrefix + "other": ""}, container("a", "cpu=100m", "")),
		policy:      Policy{Gate: AnyType, NeverRefuse: true},
		want:        pod(map[string]string{WarningAnnotation: ""}, container("a", "cpu=100m", "")),
		outcome:     Skipped,
		reason:      ReasonInvalidTarget,
		wantMessage: "keep one annotation",
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.policy.Gate == nil {
				test.policy.Gate = AnyType
			}
			d := Mutate(V1(test.pod), test.policy)
			if d.Outcome != test.outcome || d.Reason != test.reason {
				t.Errorf("decided %q because of %q, want %q because of %q", d.Outcome, d.Reason, test.outcome, test.reason)
			}
			if message := d.Message(); !strings.Contains(message, test.wantMessage) || (test.wantMessage == "" && message != "") {
				t.Errorf("message %q, want one with %q", message, test.wantMessage)
			}
			if _, warned := test.want.Annotations[WarningAnnotation]; warned {
				test.want.Annotations[WarningAnnotation] = d.Message()
			}
			expectEqual(t, test.pod, test.want)
			detail := d.Detail
			if len(d.Errors) > 0 {
				detail = d.Errors.ToAggregate().Error()
			}
			if parsed, ok := ParseMessage(d.Message()); ok != (d.Outcome == Skipped || d.Reason == ReasonInvalidTarget) ||
				(ok && (parsed.Reason != d.Reason || parsed.Target.Type != d.Target.Type || parsed.Detail != detail)) {
				t.Errorf("%q was parsed as %v, %v", d.Message(), parsed, ok)
			}
		})
	}
}

// expectEqual compares whole pods, as the API would write them.
func expectEqual(t *testing.T, got, want *v1.Pod) {
	t.Helper()
	var written [2]string
	for i, pod := range []*v1.Pod{got, want} {
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		written[i] = string(data)
	}
	if written[0] != written[1] {
		t.Errorf("the pod is\n  %s, want\n  %s", written[0], written[1])
	}
}

// randomPod makes pods of all shapes that the API passes to Mutate, and some that it should
// not pass.
func randomPod(r *rand.Rand) *v1.Pod {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	p := pod(map[string]string{})
	for i := range 1 + r.IntN(3) {
		c := container(string(rune('a'+i)),
			pick("", "cpu=400m", "cpu=0", "cpu=100500u", "cores=300", "cores=0", "other.workload.openshift.io/cores=7")+pick("", " memory=1Mi", " memory=2Mi")+pick("", "", " cpu=1", " cpu=0"),
			pick("", "cpu=400m", "cpu=1", "cpu=101m", "cores=300", "cores=300 cpu=0", "cpu=2M")+pick("", " memory=1Mi")+pick("", "", "", " hugepages-2Mi=2Mi"))
		if r.IntN(3) == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		if r.IntN(3) == 0 {
			p.Annotations[ResourcesAnnotation(c.Name)] = pick("", "{}", `{"cpushares":5,"cpulimit":400}`, `{"cpulimit":100,"cpuset":"0"}`, `{"cpushares":1}`)
		}
	}
	if r.IntN(4) > 0 {
		p.Annotations[target] = pick("", "{}", soft, hard, "{", `{"effect":1}`)
	}
	if r.IntN(10) == 0 {
		p.Annotations[TargetPrefix+"other"] = ""
	}
	if r.IntN(6) == 0 {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list(pick("cpu=1", "memory=1Mi"))}
	}
	return p
}

func TestMutateTwiceChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := randomPod(r)
		policy := Policy{Gate: AnyType, NeverRefuse: r.IntN(2) == 0, KeepZero: r.IntN(2) == 0}
		before := p.DeepCopy()
		first := Mutate(V1(p), policy)
		once := p.DeepCopy()
		second := Mutate(V1(p), policy)
		if !reflect.DeepEqual(once, p) {
			t.Fatalf("the second run (%v, the first was %v) changed the pod\nfrom %v %v\nto   %v %v\nof   %v %v", second, first,
				once.Annotations, once.Spec.Containers, p.Annotations, p.Spec.Containers, before.Annotations, before.Spec.Containers)
		}
		if first.Outcome == Refused && !reflect.DeepEqual(before, p) {
			t.Fatalf("a refused pod was changed: %v", first)
		}
		if workloadType, ok := PartitionedType(p); (first.Outcome == Partitioned) != (ok && workloadType == first.Target.Type) && first.Outcome != Refused {
			t.Fatalf("%v, but PartitionedType says %q %v of %v", first, workloadType, ok, p)
		}
	}
}

// A run with KeepZero adds nothing but zeros, and a run without it leaves them.
func TestZeroChangesNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		p := randomPod(r)
		if d := Mutate(V1(p), Policy{Gate: AnyType}); d.Outcome != Partitioned {
			continue
		}
		workloadType, _ := PartitionedType(p)
		before, ordinary := p.DeepCopy(), AsOrdinary(p, workloadType)
		Mutate(V1(p), Policy{Gate: AnyType, KeepZero: true})
		if again, ok := PartitionedType(p); !ok || again != workloadType || !Settled(V1(p)) {
			t.Fatalf("with zeros the pod is of type %q, %v", again, ok)
		}
		with := p.DeepCopy()
		if Mutate(V1(p), Policy{Gate: AnyType}); !reflect.DeepEqual(p, with) {
			t.Fatalf("zeros do not stay: %v", p)
		}
		for i, c := range AsOrdinary(p, workloadType).Spec.Containers {
			was := ordinary.Spec.Containers[i].Resources
			if c.Resources.Requests.Cpu().Cmp(*was.Requests.Cpu()) != 0 || c.Resources.Limits.Cpu().Cmp(*was.Limits.Cpu()) != 0 {
				t.Fatalf("container %s asked for %v, and with a zero for %v", c.Name, was, c.Resources)
			}
		}
		for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				if request, has := containers[i].Resources.Requests[cpu]; has && request.IsZero() {
					remove(&containers[i].Resources.Requests, cpu)
				}
			}
		}
		for _, containers := range [][]v1.Container{before.Spec.InitContainers, before.Spec.Containers} {
			for i := range containers {
				remove(&containers[i].Resources.Requests, cpu)
			}
		}
		if !equality.Semantic.DeepEqual(before, p) {
			t.Fatalf("more than zeros was added: %v, and now %v", before, p)
		}
	}
}

// The cores are the CPU in millicores, rounded up, whatever form the quantity has.
func FuzzCores(f *testing.F) {
	for _, text := range []string{"400m", "1", "100500u", "1n", "9E", "9223372036854776", "1000000", "1000000001m", "-1", "1e6", "0.0001", "1Ki"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || len(text) > 64 {
			return
		}
		p := pod(map[string]string{target: ""}, v1.Container{Name: "a", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{cpu: quantity.DeepCopy(), memory: resource.MustParse("1Mi")}}})
		d := Mutate(V1(p), Policy{Gate: AnyType})
		exact, ok := new(big.Rat).SetString(quantity.AsDec().String())
		if !ok {
			t.Fatal(quantity.AsDec())
		}
		exact.Mul(exact, big.NewRat(1000, 1))
		ceil, rest := new(big.Int).DivMod(exact.Num(), exact.Denom(), new(big.Int))
		if rest.Sign() != 0 {
			ceil.Add(ceil, big.NewInt(1))
		}
		got, has := p.Spec.Containers[0].Resources.Requests[cores]
		switch {
		case exact.Sign() < 0 || ceil.Cmp(big.NewInt(maxMillicores)) > 0:
			if d.Reason != ReasonCPUOutOfRange || has {
				t.Errorf("%s gave %v, %s cores", text, d, got.String())
			}
		case d.Outcome != Partitioned || has != (exact.Sign() != 0) || got.AsDec().UnscaledBig().Cmp(ceil) != 0:
			t.Errorf("%s gave %v, %s cores, want %s", text, d, got.String(), ceil)
		}
	})
}

func TestMirrorPodsKeepNoDefaultCPU(t *testing.T) {
	written := pod(map[string]string{target: soft}, container("a", "cpu=400m memory=1Mi", "cpu=500m"), container("b", "memory=1Mi", ""))
	Mutate(V1(written), Policy{Gate: AnyType})
	defaulted := written.DeepCopy()
	for i := range defaulted.Spec.Containers {
		set(&defaulted.Spec.Containers[i].Resources.Requests, cpu, resource.MustParse("100m"))
		set(&defaulted.Spec.Containers[i].Resources.Limits, cpu, resource.MustParse("200m"))
	}
	got := defaulted.DeepCopy()
	DropDefaultCPU(V1(got), false)
	expectEqual(t, got, written)
	DropDefaultCPU(V1(got), true)
	if _, ok := PartitionedType(got); !ok || len(got.Spec.Containers[0].Resources.Requests) != 3 || len(got.Spec.Containers[1].Resources.Requests) != 2 {
		t.Errorf("with zeros it is %v", got.Spec.Containers)
	}
	RestoreCPU(V1(defaulted))
	if got := defaulted.Spec.Containers[0].Resources; got.Requests.Cpu().MilliValue() != 400 || got.Limits.Cpu().MilliValue() != 500 || CarriesCores(got.Requests) || len(defaulted.Annotations) != 3 {
		t.Errorf("with cpu again it is %v, %v", got, defaulted.Annotations)
	}
	ordinary := pod(map[string]string{target: soft}, container("a", "cpu=400m memory=1Mi", ""))
	got = ordinary.DeepCopy()
	DropDefaultCPU(V1(got), false)
	expectEqual(t, got, ordinary)
}

func TestPodsThatDoNotAskCostNothing(t *testing.T) {
	p := pod(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, container("a", "cpu=1 memory=1Mi", ""))
	if allocs := testing.AllocsPerRun(100, func() {
		if _, errs := ParseTarget(p.Annotations); errs != nil {
			t.Fatal(errs)
		}
		CarriesCores(p.Spec.Containers[0].Resources.Requests)
		PartitionedType(p)
	}); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add("management", soft, `{"cpushares":400,"cpulimit":500}`)
	f.Add("a", `{"effect":"RequiredDuringScheduling"}`, `{"cpulimit":"7","cpuset":"0"}`)
	f.Fuzz(func(t *testing.T, workloadType, value, resources string) {
		if limit := cpuLimitOf(resources); limit < 0 {
			t.Errorf("%q has the limit %d", resources, limit)
		} else if limit > 0 && cpuLimitOf(ContainerResources{CPUShares: 2, CPULimit: limit}.String()) != limit {
			t.Errorf("the limit %d of %q does not survive", limit, resources)
		}
		p := pod(map[string]string{TargetPrefix + workloadType: value, ResourcesPrefix + "a": resources}, container("a", "cores=400 memory=1Mi", "cpu=1"))
		policy := Policy{Gate: AnyType, NeverRefuse: true}
		d := Mutate(V1(p), policy)
		once := p.DeepCopy()
		Mutate(V1(p), policy)
		expectEqual(t, p, once)
		if (d.Outcome == Partitioned) != (ValidateType(workloadType) == nil && len(d.Errors) == 0) {
			t.Errorf("%q %q gave %v", workloadType, value, d)
		}
	})
}
