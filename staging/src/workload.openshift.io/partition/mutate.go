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
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Gate returns what keeps pods from being partitioned as the workload type, apart from the
// pod itself: the namespace or the nodes. [NoReason] means that nothing does.
type Gate func(workloadType string) Reason

// AnyType is the [Gate] that lets every workload type pass.
func AnyType(string) Reason { return NoReason }

// Always returns the [Gate] that has one answer, whatever the type.
func Always(reason Reason) Gate { return func(string) Reason { return reason } }

// Policy is the part of [Mutate] in which its two callers differ.
type Policy struct {
	// Gate must be set.
	Gate Gate
	// NeverRefuse skips pods that would be refused. The kubelet sets it: a static pod has no
	// client to answer, and a control plane must always start.
	NeverRefuse bool
	// KeepZero leaves cpu: "0" in the requests of containers, unless the pod is BestEffort.
	// It is for those who would miss the key: a ResourceQuota on cpu, or a mutating policy
	// that fills in what is absent and has the last word. A zero counts nowhere: for no QoS
	// class, quota or scheduler.
	KeepZero bool
	// Constraint says which object of the pod's namespace would refuse the pod without cpu,
	// and why. It returns the empty string if none would. It is called last, and only if
	// nothing else keeps the pod from being partitioned. Nil means no constraint.
	Constraint func() string
}

// Mutate partitions the pod, or makes sure that the pod is an ordinary one (design,
// sections 3 and 5). It first looks at the pod as the ordinary pod that it is or once
// was, then decides, then writes. That makes it idempotent: on its own output it decides
// as before and changes nothing. It never changes the pod's QoS class.
//
// Mutate keeps the warning annotation of a pod without a target annotation, since an
// earlier run may have written it. A caller that knows better removes it first.
func Mutate[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N], policy Policy) Decision {
	var buffer [usualContainers]amount
	d, cores, found := pod.decide(policy, buffer[:0])
	switch {
	case d.Outcome == Partitioned:
		pod.partition(d.Target, cores, found, policy.KeepZero)
	case d.Outcome == Skipped:
		pod.skip(&d)
	case d.Outcome == Ordinary && pod.restore(""):
		d.Reason = ReasonCoresWithoutTarget
		pod.annotate(WarningAnnotation, d.Message())
	}
	return d
}

// findings are what decide finds out about a pod that asks, seen as the ordinary pod that it
// is or once was.
type findings struct {
	class qosClass
	// amounts has one element for each container.
	amounts []amount
}

// usualContainers is a number of containers that few pods exceed.
const usualContainers = 8

// decide returns what must become of the pod, the cores resource of the type that it asks
// for, and what it has found out. Users see the order of the rules: the first that holds is
// the reason. The buffer saves an allocation.
func (p Pod[L, N]) decide(policy Policy, buffer []amount) (d Decision, cores N, found findings) {
	no := func(reason Reason) (Decision, N, findings) {
		d.Outcome, d.Reason = Skipped, reason
		if rule, _ := RuleOf(reason); rule.Response(d.Target.Effect).Refuses() && !policy.NeverRefuse {
			d.Outcome = Refused
		}
		return d, cores, found
	}
	if d.Target, d.Errors = ParseTarget(*p.Annotations); len(d.Errors) > 0 {
		return no(ReasonInvalidTarget)
	}
	if d.Target.Type == "" {
		return Decision{}, cores, found
	}
	if reason := policy.Gate(d.Target.Type); reason != NoReason {
		return no(reason)
	}
	cores, found.amounts = N(CoresResource(d.Target.Type)), buffer
	for i := range p.Containers {
		found.amounts = append(found.amounts, p.Containers[i].ordinary(*p.Annotations, cores))
	}
	if d.Detail = p.cpuOutOfRange(found); d.Detail != "" {
		return no(ReasonCPUOutOfRange)
	}
	found.class = p.qos(found.amounts)
	switch {
	case p.hasPodLevelCPU(found):
		return no(ReasonPodLevelCPU)
	case found.isGuaranteed():
		return no(ReasonGuaranteed)
	case p.changesQoS(found):
		return no(ReasonQoSChange)
	}
	if d.Detail = p.hugePagesNeedCPU(found); d.Detail != "" {
		return no(ReasonHugePagesNeedCPU)
	}
	if p.annotationsTooLarge(d.Target, found) {
		return no(ReasonAnnotationsTooLarge)
	}
	if d.Detail = policy.constraint(); d.Detail != "" {
		return no(ReasonNamespaceConstrainsCPU)
	}
	d.Outcome = Partitioned
	return d, cores, found
}

// skip makes the pod an ordinary one, with a warning that says why, if its author is to know.
func (p Pod[L, N]) skip(d *Decision) {
	var preferred N
	if d.Target.Type != "" {
		preferred = N(CoresResource(d.Target.Type))
	}
	p.restore(preferred)
	for key := range *p.Annotations {
		if strings.HasPrefix(key, TargetPrefix) {
			delete(*p.Annotations, key)
		}
	}
	if message := d.Message(); message != "" {
		p.annotate(WarningAnnotation, message)
	} else {
		delete(*p.Annotations, WarningAnnotation)
	}
}

// restore makes the pod an ordinary one, except for its target annotation: cores become
// cpu again, and resources annotations go. It reports whether there were cores.
func (p Pod[L, N]) restore(preferred N) (hadCores bool) {
	for i := range p.Containers {
		if p.Containers[i].restore(*p.Annotations, preferred) {
			hadCores = true
		}
	}
	for key := range *p.Annotations {
		if strings.HasPrefix(key, ResourcesPrefix) {
			delete(*p.Annotations, key)
		}
	}
	return hadCores
}

func (c *Container[L, N]) carriesCores() bool {
	return CarriesCores(*c.Requests) || CarriesCores(*c.Limits)
}

func (c *Container[L, N]) restore(annotations map[string]string, preferred N) (hadCores bool) {
	if !c.carriesCores() {
		return false
	}
	was := c.ordinary(annotations, preferred)
	removeCores(c.Requests, "")
	removeCores(c.Limits, "")
	remove(c.Requests, cpu)
	remove(c.Limits, cpu)
	if was.requested {
		set(c.Requests, cpu, *resource.NewMilliQuantity(was.request, resource.DecimalSI))
	}
	if was.limit != 0 {
		set(c.Limits, cpu, *resource.NewMilliQuantity(was.limit, resource.DecimalSI))
	}
	return true
}

// RestoreCPU turns cores back into cpu, as [AsOrdinary] does, and keeps all annotations.
func RestoreCPU[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N]) {
	target, _ := ParseTarget(*pod.Annotations)
	for i := range pod.Containers {
		pod.Containers[i].restore(*pod.Annotations, N(CoresResource(target.Type)))
	}
}

// DropDefaultCPU removes the cpu that LimitRanger's defaults have added to a partitioned
// pod: next to cores, and in containers whose annotation says that they never asked for any.
// Everything else stays as it is. With keepZero the key stays, as [Policy.KeepZero] has it.
func DropDefaultCPU[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N], keepZero bool) {
	target, errs := ParseTarget(*pod.Annotations)
	if len(errs) > 0 || target.Type == "" {
		return
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if _, annotated := resourcesOf(*pod.Annotations, c.Name); annotated || c.carriesCores() {
			c.dropCPU(c.carriesCores(), keepZero)
		}
	}
}

// partition makes the pod a partitioned one.
func (p Pod[L, N]) partition(target Target, cores N, found findings, keepZero bool) {
	annotations := *p.Annotations
	for key, value := range annotations {
		switch {
		case key == WarningAnnotation || strings.HasPrefix(key, ResourcesPrefix):
			delete(annotations, key)
		case strings.HasPrefix(key, TargetPrefix) && value != target.AnnotationValue():
			annotations[key] = target.AnnotationValue()
		}
	}
	for i := range p.Containers {
		c, was := &p.Containers[i], found.amounts[i]
		annotations[ResourcesAnnotation(c.Name)] = was.annotation().String()
		if found.class == bestEffort && !c.carriesCores() {
			continue
		}
		c.dropCPU(c.carriesCores() || !was.requested, keepZero)
		removeCores(c.Requests, cores)
		removeCores(c.Limits, cores)
		if was.requested {
			quantity := *resource.NewQuantity(was.request, resource.DecimalSI)
			set(c.Requests, cores, quantity)
			set(c.Limits, cores, quantity)
		}
	}
}

// dropCPU removes cpu from a container's lists, or sets it to zero there. If the container is
// partitioned already, a zero stays, so that another run finds nothing to do. Only then can
// limits get a zero: what has put a limit back next to cores would do so again.
func (c *Container[L, N]) dropCPU(already, keepZero bool) {
	zero := func(list L) bool {
		quantity, has := list[cpu]
		return has && quantity.IsZero()
	}
	switch {
	case zero(*c.Requests) && (already || keepZero):
	case keepZero:
		set(c.Requests, cpu, *resource.NewQuantity(0, resource.DecimalSI))
	default:
		remove(c.Requests, cpu)
	}
	_, limited := (*c.Limits)[cpu]
	switch {
	case zero(*c.Limits) && already:
	case limited && already && keepZero:
		set(c.Limits, cpu, *resource.NewQuantity(0, resource.DecimalSI))
	default:
		remove(c.Limits, cpu)
	}
}

// annotate sets an annotation, unless upstream would then refuse the pod for the size of its
// annotations.
func (p Pod[L, N]) annotate(key, value string) {
	size := len(key) + len(value)
	for k, v := range *p.Annotations {
		if k != key {
			size += len(k) + len(v)
		}
	}
	if size > maxAnnotations {
		return
	}
	if *p.Annotations == nil {
		*p.Annotations = map[string]string{}
	}
	(*p.Annotations)[key] = value
}

// removeCores removes the cores of all workload types but one.
func removeCores[L ~map[N]resource.Quantity, N ~string](list *L, except N) {
	if !CarriesCores(*list) {
		return
	}
	for name := range *list {
		if _, ok := TypeOfCores(string(name)); ok && name != except {
			remove(list, name)
		}
	}
}

// remove leaves nil rather than an empty list: the API does not distinguish them.
func remove[L ~map[N]resource.Quantity, N ~string](list *L, name N) {
	delete(*list, name)
	if len(*list) == 0 {
		*list = nil
	}
}
