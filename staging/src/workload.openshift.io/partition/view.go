package partition

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Pod is a view of a pod in either API representation: the parts that decide
// whether it is partitioned, and those that [Mutate] changes in place. L is the
// representation's ResourceList and N its ResourceName, so v1.Pod and the
// internal core.Pod share one engine and neither is converted.
type Pod[L ~map[N]resource.Quantity, N ~string] struct {
	// Annotations is the pod's; Mutate makes the map where there is none.
	Annotations *map[string]string
	// Resources are the pod-level resources, nil where the pod has none.
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
	cpu    = "cpu"
	memory = "memory"
)

// qosClass is a pod's quality of service class.
type qosClass int

const (
	bestEffort qosClass = iota
	burstable
	guaranteed
)

// qos classifies the pod as upstream does (pkg/apis/core/v1/helper/qos/qos.go,
// ComputePodQOS), with the CPU that cpuOf gives for each container in place of
// the spec's. Pod-level resources, where there are any, decide alone; they have no
// CPU here, since such pods are never partitioned.
func (p Pod[L, N]) qos(cpuOf func(i int) amount) qosClass {
	if p.Resources.isSet() {
		return p.Resources.qos(amount{})
	}
	class := bestEffort
	for i := range p.Containers {
		switch c := p.Containers[i].qos(cpuOf(i)); {
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

// amount is CPU time that a container asks for, in millicores. Fractions of a
// millicore are rounded up, so a pod whose requests and limits only differ in such
// a fraction counts as Guaranteed here: after a partitioning they could no longer
// be told apart, and a second run must decide as the first did.
type amount struct {
	request, limit int64
	// requested tells a request of zero from none.
	requested bool
}

// ordinary returns the CPU that the container asks for as an ordinary container:
// what the spec says under cpu, or, if the spec has cores, what a partitioning
// took from there. A cpu request or limit beside cores is LimitRanger's default.
func (c *Container[L, N]) ordinary(annotations map[string]string, preferred string) amount {
	a := amount{limit: milli(*c.Limits, cpu)}
	if a.request, a.requested = coresIn(*c.Requests, preferred); !a.requested {
		a.request, a.requested = coresIn(*c.Limits, preferred)
	}
	if a.requested {
		value, _ := resourcesOf(annotations, c.Name)
		a.limit = cpuLimitOf(value)
		return a
	}
	if _, a.requested = (*c.Requests)[cpu]; a.requested {
		a.request = milli(*c.Requests, cpu)
	} else if _, a.requested = (*c.Limits)[cpu]; a.requested {
		a.request = a.limit // as API defaulting has it
	}
	return a
}

// coresIn returns the preferred type's cores, or, if the list has none of that
// type, the sum of all others.
func coresIn[L ~map[N]resource.Quantity, N ~string](list L, preferred string) (millicores int64, found bool) {
	for name, quantity := range list {
		workloadType, ok := TypeOfCores(string(name))
		switch {
		case !ok:
		case workloadType == preferred:
			return quantity.Value(), true
		default:
			millicores, found = saturatingAdd(millicores, quantity.Value()), true
		}
	}
	return millicores, found
}

// partitioned returns the CPU that stays in the spec of a partitioned container,
// for comparing QoS classes: none.
func partitioned(int) amount { return amount{} }

func milli[L ~map[N]resource.Quantity, N ~string](list L, name N) int64 {
	quantity := list[name]
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

// CarriesCores reports whether a container's requests or limits name the cores of
// any workload type. It does not allocate.
func CarriesCores[L ~map[N]resource.Quantity, N ~string](list L) bool {
	// Nearly all lists have nothing but these two, and looking them up costs a fraction
	// of an iteration.
	left := len(list)
	for _, common := range [...]N{cpu, memory} {
		if left == 0 {
			return false
		}
		if _, has := list[common]; has {
			left--
		}
	}
	if left == 0 {
		return false
	}
	for name := range list {
		if _, ok := TypeOfCores(string(name)); ok {
			return true
		}
	}
	return false
}
