// SPDX-License-Identifier: Apache-2.0

// Package crio says what becomes of CRI-O's annotations for low latency, which applications bring along that were
// written for OpenShift's node tuning operator. It knows pods, and no cluster.
package crio

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Annotation is one of a pod.
type Annotation struct {
	Key string
	// Text is what becomes of it: a clause whose subject is the annotation.
	Text string
	// Idle: it does nothing.
	Idle bool
}

// domain is that of CRI-O's annotations (CRI-O, pkg/annotations/v2).
const domain = ".crio.io"

// skipGOMAXPROCS keeps CRI-O from setting GOMAXPROCS in containers without a limit.
const skipGOMAXPROCS = "skip-gomaxprocs" + domain

// effects are the annotations that CRI-O's hooks for high performance read, with their effect on the pod's CPUs, and the
// values that have one; nil is any.
var effects = map[string]struct {
	text   string
	values []string
}{
	"cpu-load-balancing": {"takes the container's CPUs out of the kernel's load balancing", []string{"disable", "true"}},
	"cpu-quota":          {"removes the CFS quota of the container", []string{"disable", "true"}},
	"irq-load-balancing": {"keeps interrupts off the container's CPUs", []string{"disable", "true", "housekeeping"}},
	"cpu-c-states":       {"bounds the idle states of the container's CPUs", nil},
	"cpu-freq-governor":  {"sets the frequency governor of the container's CPUs", nil},
	"cpu-shared":         {"adds the shared CPUs of the node to the container", []string{"enable"}},
}

// Annotations returns those of a pod that CRI-O reads for its CPUs, by their keys. Partitioned says whether the pod is,
// or will be, in a partition. Runtime is the node's, as in the status of a Node, such as cri-o://1.37.0; empty is unknown.
func Annotations(pod *v1.Pod, partitioned bool, runtime string) (found []Annotation) {
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		base, container, hasContainer := strings.Cut(key, "/")
		name, ours := strings.CutSuffix(base, domain)
		effect, known := effects[name]
		if key == skipGOMAXPROCS {
			switch {
			case isOther(runtime):
				found = append(found, Annotation{key, "does nothing: the runtime of the node is " + runtime, true})
			case partitioned:
				found = append(found, Annotation{key, "does nothing: CRI-O never sets GOMAXPROCS in partitioned pods", true})
			}
			continue
		}
		if !ours || !known {
			continue
		}
		idle := ""
		switch {
		case isOther(runtime):
			idle = "the runtime of the node is " + runtime
		case hasContainer && !hasContainerOf(pod, container):
			idle = "the pod has no container " + container
		case name == "cpu-shared" && !hasContainer:
			idle = "it must name a container: " + base + "/CONTAINER"
		case effect.values != nil && !slices.Contains(effect.values, pod.Annotations[key]):
			idle = "its value must be " + strings.Join(effect.values, " or ")
		case partitioned:
			idle = "CRI-O reads it for Guaranteed pods alone, and a partitioned pod is none"
		case !isExclusive(pod):
			idle = "CRI-O reads it only for Guaranteed pods whose containers ask for whole CPUs"
		case pod.Spec.RuntimeClassName == nil:
			idle = "it needs a runtimeClassName whose handler allows it, such as that of a PerformanceProfile"
		}
		if idle != "" {
			found = append(found, Annotation{key, "does nothing: " + idle, true})
		} else {
			found = append(found, Annotation{key, effect.text, false})
		}
	}
	return found
}

func isOther(runtime string) bool { return runtime != "" && !strings.HasPrefix(runtime, "cri-o://") }

func hasContainerOf(pod *v1.Pod, name string) bool {
	is := func(container v1.Container) bool { return container.Name == name }
	return slices.ContainsFunc(pod.Spec.InitContainers, is) || slices.ContainsFunc(pod.Spec.Containers, is)
}

// isExclusive reports whether a pod is Guaranteed and some container of it asks for whole CPUs.
func isExclusive(pod *v1.Pod) bool {
	whole := false
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit, limited := container.Resources.Limits[name]
			request, requested := container.Resources.Requests[name]
			if !limited || requested && request.Cmp(limit) != 0 {
				return false
			}
		}
		whole = whole || container.Resources.Limits.Cpu().MilliValue()%1000 == 0
	}
	return whole
}
