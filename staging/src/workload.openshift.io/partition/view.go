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
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Pod is a view of a pod in either API representation: the parts that decide whether it is
// partitioned, and those that [Mutate] changes in place. L is the representation's
// ResourceList and N its ResourceName. So one function serves v1.Pod and the internal
// core.Pod, and neither is converted.
type Pod[L ~map[N]resource.Quantity, N ~string] struct {
	// Annotations points to the pod's annotations, which may be nil.
	Annotations *map[string]string
	// Resources are the pod-level resources; nil if the pod has none.
	Resources *Requirements[L, N]
	// Containers are the init containers, sidecars included, and the containers.
	Containers []Container[L, N]
}

// Container is a view of one container of a [Pod].
type Container[L ~map[N]resource.Quantity, N ~string] struct {
	Name string
	Requirements[L, N]
}

// Requirements points to the requests and limits of a container or a pod.
type Requirements[L ~map[N]resource.Quantity, N ~string] struct {
	Requests, Limits *L
}

// V1 returns the view of a v1.Pod.
func V1(pod *v1.Pod) Pod[v1.ResourceList, v1.ResourceName] {
	view := Pod[v1.ResourceList, v1.ResourceName]{
		Annotations: &pod.Annotations,
		Containers:  make([]Container[v1.ResourceList, v1.ResourceName], 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)),
	}
	if pod.Spec.Resources != nil {
		view.Resources = &Requirements[v1.ResourceList, v1.ResourceName]{Requests: &pod.Spec.Resources.Requests, Limits: &pod.Spec.Resources.Limits}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			view.Containers = append(view.Containers, Container[v1.ResourceList, v1.ResourceName]{
				Name:         containers[i].Name,
				Requirements: Requirements[v1.ResourceList, v1.ResourceName]{Requests: &containers[i].Resources.Requests, Limits: &containers[i].Resources.Limits},
			})
		}
	}
	return view
}

const (
	cpu             = "cpu"
	memory          = "memory"
	hugePagesPrefix = "hugepages-"
)

// qosClass is a pod's QoS class.
type qosClass int

const (
	bestEffort qosClass = iota
	burstable
	guaranteed
)

// qos returns the pod's class as upstream computes it (pkg/apis/core/v1/helper/qos/qos.go,
// ComputePodQOS), but with the given CPU of each container in place of the spec's. Nil means
// no CPU, as in a partitioned pod. Pod-level resources decide alone if there are any; they
// count without CPU here, since a pod that has CPU there is never partitioned.
func (p Pod[L, N]) qos(amounts []amount) qosClass {
	if p.Resources.isSet() {
		return p.Resources.qos(amount{})
	}
	class := bestEffort
	for i := range p.Containers {
		var of amount
		if amounts != nil {
			of = amounts[i]
		}
		switch c := p.Containers[i].qos(of); {
		case c == burstable:
			return burstable
		case i == 0:
			class = c
		case c != class:
			return burstable
		}
	}
	return class
}

func (r *Requirements[L, N]) isSet() bool {
	return r != nil && (len(*r.Requests) > 0 || len(*r.Limits) > 0)
}

func (r *Requirements[L, N]) qos(cpu amount) qosClass {
	request, limit := (*r.Requests)[memory], (*r.Limits)[memory]
	ofMemory := classify(request.Cmp(limit) == 0, request.IsZero())
	ofCPU := classify(cpu.request == cpu.limit, cpu.request == 0)
	if ofMemory != ofCPU {
		return burstable
	}
	return ofCPU
}

func classify(equal, zero bool) qosClass {
	switch {
	case !equal:
		return burstable
	case zero:
		return bestEffort
	default:
		return guaranteed
	}
}

// amount is the CPU that a container asks for, in millicores, rounded up. So a pod whose
// requests and limits differ only in a fraction of a millicore counts as Guaranteed here.
// Once it is partitioned that difference is invisible, and a second run must decide as
// the first did.
type amount struct {
	// limit is zero if there is none.
	request, limit int64
	// requested distinguishes a request of zero from none. A zero without a limit counts as
	// none: [Policy.KeepZero] leaves such zeros.
	requested bool
}

// annotation returns the resources annotation of a container that asks for the amount.
func (a amount) annotation() ContainerResources {
	return ContainerResources{CPUShares: max(a.request, MinShares), CPULimit: a.limit}
}

// isSet reports whether the amount has any CPU.
func (a amount) isSet() bool { return a.request > 0 || a.limit > 0 }

// ordinary returns the CPU that the container asks for as an ordinary container: the cpu of
// the spec, or, if the spec has cores, the cpu that these replaced. A cpu request or limit
// next to cores does not count: it is LimitRanger's default.
func (c *Container[L, N]) ordinary(annotations map[string]string, preferred N) amount {
	a := amount{limit: milli(*c.Limits, cpu)}
	if a.request, a.requested = coresIn(*c.Requests, preferred); !a.requested {
		a.request, a.requested = coresIn(*c.Limits, preferred)
	}
	if a.requested {
		value, _ := resourcesOf(annotations, c.Name)
		if a.limit = cpuLimitOf(value); a.limit < a.request {
			a.limit = 0 // upstream accepts no such limit, so no pod had it
		}
		return a
	}
	if _, has := (*c.Requests)[cpu]; has {
		a.request = milli(*c.Requests, cpu)
	} else {
		a.request = a.limit // as the API defaults it
	}
	a.requested = a.request != 0 || a.limit != 0
	return a
}

// describe names the container, and the CPU and cores that it has.
func (c *Container[L, N]) describe() string {
	has := append(cpuIn("requests", *c.Requests), cpuIn("limits", *c.Limits)...)
	if len(has) == 0 {
		has = []string{"no cpu and no cores"}
	}
	return fmt.Sprintf("container %q has %s", c.Name, strings.Join(has, ", "))
}

// cpuIn names the CPU and cores of a list, in alphabetical order.
func cpuIn[L ~map[N]resource.Quantity, N ~string](called string, list L) (has []string) {
	for name, quantity := range list {
		if _, ofCores := TypeOfCores(string(name)); ofCores || name == cpu {
			has = append(has, fmt.Sprintf("%s.%s %s", called, name, quantity.String()))
		}
	}
	slices.Sort(has)
	return has
}

// coresIn returns the list's preferred cores or, if it has none of those, the sum over all
// types.
func coresIn[L ~map[N]resource.Quantity, N ~string](list L, preferred N) (millicores int64, found bool) {
	if quantity, has := list[preferred]; has {
		return quantity.Value(), true
	}
	if !CarriesCores(list) {
		return 0, false
	}
	for name, quantity := range list {
		if _, ok := TypeOfCores(string(name)); ok {
			millicores, found = saturatingAdd(millicores, quantity.Value()), true
		}
	}
	return millicores, found
}

// milli returns a quantity of CPU in millicores, rounded up. If the quantity is out of range,
// it returns any value that is.
func milli[L ~map[N]resource.Quantity, N ~string](list L, name N) int64 {
	quantity := list[name]
	switch {
	case quantity.Sign() < 0:
		return -1
	case quantity.CmpInt64(MaxCPUs) > 0:
		return maxMillicores + 1
	}
	return quantity.MilliValue()
}

func saturatingAdd(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// set writes a quantity into a list that may not exist yet.
func set[L ~map[N]resource.Quantity, N ~string](list *L, name N, quantity resource.Quantity) {
	if *list == nil {
		*list = L{}
	}
	(*list)[name] = quantity
}

// CarriesCores reports whether a list has cores of any workload type. It does not allocate.
func CarriesCores[L ~map[N]resource.Quantity, N ~string](list L) bool {
	if hasOnly(list, cpu, memory) {
		return false
	}
	for name := range list {
		if _, ok := TypeOfCores(string(name)); ok {
			return true
		}
	}
	return false
}

// hasOnly reports whether a list has no names but these two. That is so for nearly all lists,
// and looking two names up costs a fraction of an iteration.
func hasOnly[L ~map[N]resource.Quantity, N ~string](list L, a, b N) bool {
	others := len(list)
	if others == 0 {
		return true
	}
	if _, has := list[a]; has {
		others--
	}
	if _, has := list[b]; has {
		others--
	}
	return others == 0
}
