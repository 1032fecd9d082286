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

// Gate tells whether pods may be partitioned as the workload type, for reasons
// outside the pod: the namespace and the nodes. [NoReason] means yes.
type Gate func(workloadType string) Reason

// AnyType is the [Gate] that lets every workload type pass.
func AnyType(string) Reason { return NoReason }

// Always returns the [Gate] that has one answer, whatever the type.
func Always(reason Reason) Gate { return func(string) Reason { return reason } }

// Policy is the part of [Mutate] in which its two callers differ.
type Policy struct {
	// Gate must be set.
	Gate Gate
	// NeverRefuse turns each refusal into a skip: the kubelet has nobody to refuse a
	// static pod to, and a control plane is never kept from starting.
	NeverRefuse bool
	// KeepZero leaves cpu: "0" in the requests of each container that is more than
	// BestEffort, for those who would miss the key: a ResourceQuota on cpu, or a
	// mutating policy that fills in what is absent and has the last word. Zero counts
	// nowhere: for no QoS class, quota or scheduler.
	KeepZero bool
	// Constraint says which object of the pod's namespace would have it refused once it
	// has no cpu, and why; empty if none would. It is asked last, of a pod that nothing
	// else keeps from being partitioned. Nil is never asked.
	Constraint func() string
}

// Mutate partitions the pod, or sees to it that the pod is an ordinary one
// (design, sections 3 and 5). It works in three steps: it looks at the pod as the
// ordinary pod that it is or once was, decides, and writes. That makes it
// idempotent: on its own output it decides the same and changes nothing. It never
// changes the pod's QoS class.
//
// A warning annotation of a pod without target annotation is kept, since it may be
// Mutate's own of an earlier run; a caller that knows better removes it first.
func Mutate[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N], policy Policy) Decision {
	var buffer [usualContainers]amount
	d, cores, found := pod.decide(policy, buffer[:0])
	switch {
	case d.Outcome == Partitioned:
		pod.partition(d.Target, cores, found, policy.KeepZero)
	case d.Outcome == Skipped:
		pod.decline(&d)
	case d.Outcome == Ordinary && pod.restore(""):
		d.Reason = ReasonCoresWithoutTarget
		pod.annotate(WarningAnnotation, d.Message())
	}
	return d
}

// findings are what is known of a pod with a target as the ordinary pod that it is or was.
type findings struct {
	class qosClass
	// amounts are those of its containers.
	amounts []amount
}

// usualContainers is how many containers a pod has at most, but for rare ones.
const usualContainers = 8

// decide says what is to become of the pod, which resource its target asks for, and what
// it found. The rules are asked in an order that users see: the first that holds is the
// reason. The buffer saves an allocation.
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
	if found.hasCPUOutOfRange() {
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
	case p.hugePagesNeedCPU(found):
		return no(ReasonHugePagesNeedCPU)
	case p.annotationsTooLarge(d.Target, found):
		return no(ReasonAnnotationsTooLarge)
	}
	if d.Detail = policy.constraint(); d.Detail != "" {
		return no(ReasonNamespaceConstrainsCPU)
	}
	d.Outcome = Partitioned
	return d, cores, found
}

// decline makes the pod an ordinary one that says why it is, unless there is nothing to say.
func (p Pod[L, N]) decline(d *Decision) {
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

// restore makes the pod an ordinary one but for its target annotation: cores
// become cpu again, and resources annotations go. It reports whether there were
// cores.
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

// RestoreCPU makes cores cpu again, as [AsOrdinary] does, and leaves all annotations.
func RestoreCPU[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N]) {
	target, _ := ParseTarget(*pod.Annotations)
	for i := range pod.Containers {
		pod.Containers[i].restore(*pod.Annotations, N(CoresResource(target.Type)))
	}
}

// DropDefaultCPU takes out of a partitioned pod the cpu that LimitRanger's defaults have
// put into it: beside cores, and into containers whose annotation says that they never
// asked for any. Everything else stays as it is. With keepZero the key stays, as
// [Policy.KeepZero] has it.
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

// partition writes what a partitioned pod has of which that was found.
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

// dropCPU takes cpu out of a container's lists, or leaves it at zero there. A zero that is
// there stays if the container is partitioned already, so that another run finds nothing to
// do. In the limits only such a container gets a zero: whoever has put a limit back beside
// cores would do so again.
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

// annotate leaves the pod as it is where another annotation would have it refused.
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

// removeCores removes the cores of all workload types, except the one named.
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

// remove leaves no empty list behind: the API does not tell one from none.
func remove[L ~map[N]resource.Quantity, N ~string](list *L, name N) {
	delete(*list, name)
	if len(*list) == 0 {
		*list = nil
	}
}
