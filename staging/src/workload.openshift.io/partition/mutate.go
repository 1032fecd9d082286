package partition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Outcome is what became of a pod.
type Outcome string

const (
	// Ordinary is the outcome of a pod that asks for no partition.
	Ordinary Outcome = ""
	// Partitioned pods carry cores in place of cpu.
	Partitioned Outcome = "partitioned"
	// Skipped pods asked for a partition and run as ordinary pods.
	Skipped Outcome = "skipped"
	// Refused pods must not be created: HTTP status 403, or 422 if
	// [Decision.Errors] is not empty. They are left unchanged.
	Refused Outcome = "refused"
)

// Reason says why a pod is not partitioned, in a form that serves as a metric's label.
type Reason string

// NoReason is the zero value: nothing keeps the pod from being partitioned, or it does not
// ask.
const NoReason Reason = ""

// The reasons of section 5 of the design, and a few more.
const (
	ReasonGuaranteed            Reason = "guaranteed"
	ReasonQoSChange             Reason = "qos_change"
	ReasonPodLevelCPU           Reason = "pod_level_cpu"
	ReasonTypeInactive          Reason = "type_inactive"
	ReasonNamespaceNotAnnotated Reason = "namespace_not_annotated"
	ReasonNamespaceOtherTypes   Reason = "namespace_other_types"
	ReasonInvalidTarget         Reason = "invalid_target"
	ReasonCoresWithoutTarget    Reason = "cores_without_target"
	// ReasonNamespaceConstrainsCPU: a LimitRange or ResourceQuota would have the pod
	// refused without cpu; [Decision.Detail] names it.
	ReasonNamespaceConstrainsCPU Reason = "namespace_constrains_cpu"
	// ReasonCPUOutOfRange: a quantity is negative, beyond [MaxCPUs], or a request above
	// its limit. Upstream refuses the first and the last.
	ReasonCPUOutOfRange Reason = "cpu_out_of_range"
	// ReasonHugePagesNeedCPU: a container has huge pages and cpu, but no memory.
	ReasonHugePagesNeedCPU Reason = "hugepages_need_cpu"
	// ReasonAnnotationsTooLarge: with ours, the pod's annotations are more than upstream
	// accepts.
	ReasonAnnotationsTooLarge Reason = "annotations_too_large"
)

const coresWithoutTargetMessage = "cores of a workload type were turned back into a cpu request, because the pod asks for no workload type"

var reasonTexts = map[Reason]string{
	ReasonGuaranteed:   "the pod has the QoS class Guaranteed, whose CPU is its own; give it requests below its limits to have it partitioned",
	ReasonQoSChange:    "without its CPU request the pod would become BestEffort; give a container a memory request to have it partitioned",
	ReasonPodLevelCPU:  "spec.resources has CPU for the pod as a whole, or gets it from the containers by default; remove spec.resources to have it partitioned",
	ReasonTypeInactive: "no pool of this type is active here",
	// OpenShift's conformance suite looks for these words.
	ReasonNamespaceNotAnnotated:  "the namespace is not annotated with " + AllowedAnnotation,
	ReasonNamespaceOtherTypes:    "the namespace's annotation " + AllowedAnnotation + " does not list it",
	ReasonNamespaceConstrainsCPU: "the namespace demands cpu of its pods: ",
	ReasonCPUOutOfRange:          fmt.Sprintf("the CPU of a container is negative, above its limit, or more than %d CPUs", MaxCPUs),
	ReasonHugePagesNeedCPU:       "Kubernetes refuses a container that has huge pages and neither cpu nor memory; give it a memory request to have it partitioned",
	ReasonAnnotationsTooLarge:    "with those of its containers, its annotations would be larger than Kubernetes accepts; shorten them to have it partitioned",
}

// Decision is what [Mutate] decided, and why.
type Decision struct {
	Outcome Outcome
	// Target is what the pod asked for; zero if it did not ask or asked wrongly.
	Target Target
	// Reason is [NoReason] for pods that were partitioned, or had nothing of ours.
	Reason Reason
	// Detail is what [Policy.Constraint] said, with ReasonNamespaceConstrainsCPU.
	Detail string
	// Errors say what is wrong with the target annotation, with
	// ReasonInvalidTarget.
	Errors field.ErrorList
}

// Message tells the pod's author what was decided and what to do about it. It is
// empty where there is nothing to tell.
func (d Decision) Message() string {
	switch d.Reason {
	case NoReason:
		return ""
	case ReasonCoresWithoutTarget:
		return coresWithoutTargetMessage
	case ReasonInvalidTarget:
		return "workload type ignored: " + d.Errors.ToAggregate().Error()
	}
	verb := "ignored"
	if d.Outcome == Refused {
		verb = "refused"
	}
	return fmt.Sprintf("workload type %q %s: %s%s", d.Target.Type, verb, reasonTexts[d.Reason], d.Detail)
}

// ParseMessage is the inverse of [Decision.Message] for a pod that was skipped, whose
// warning annotation is all that is left of the decision: it returns the workload type
// and the reason, and false for every other text.
func ParseMessage(message string) (d Decision, ok bool) {
	rest, ok := strings.CutPrefix(message, "workload type ")
	if !ok {
		return Decision{}, false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return Decision{}, false
	}
	workloadType, err := strconv.Unquote(quoted)
	if err != nil {
		return Decision{}, false
	}
	text, ok := strings.CutPrefix(rest[len(quoted):], " ignored: ")
	if !ok {
		return Decision{}, false
	}
	for reason, start := range reasonTexts {
		if detail, found := strings.CutPrefix(text, start); found {
			return Decision{Outcome: Skipped, Target: Target{Type: workloadType, Effect: Preferred}, Reason: reason, Detail: detail}, true
		}
	}
	return Decision{}, false
}

// Gate tells whether pods may be partitioned as the workload type, for reasons
// outside the pod: the namespace and the nodes. [NoReason] means yes.
type Gate func(workloadType string) Reason

// AnyType is the [Gate] that lets every workload type pass.
func AnyType(string) Reason { return NoReason }

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
// it found. The buffer saves an allocation.
func (p Pod[L, N]) decide(policy Policy, buffer []amount) (d Decision, cores N, found findings) {
	no := func(reason Reason, refuse bool) (Decision, N, findings) {
		d.Outcome, d.Reason = Skipped, reason
		if refuse && !policy.NeverRefuse {
			d.Outcome = Refused
		}
		return d, cores, found
	}
	if d.Target, d.Errors = ParseTarget(*p.Annotations); len(d.Errors) > 0 {
		return no(ReasonInvalidTarget, true)
	}
	if d.Target.Type == "" {
		return Decision{}, cores, found
	}
	hard := d.Target.Effect == Required
	if reason := policy.Gate(d.Target.Type); reason != NoReason {
		return no(reason, hard || reason == ReasonNamespaceOtherTypes)
	}
	cores, found.amounts = N(CoresResource(d.Target.Type)), buffer
	inRange := true
	for i := range p.Containers {
		of := p.Containers[i].ordinary(*p.Annotations, cores)
		inRange = inRange && of.inRange()
		found.amounts = append(found.amounts, of)
	}
	if !inRange {
		return no(ReasonCPUOutOfRange, hard)
	}
	found.class = p.qos(found.amounts)
	switch {
	case p.Resources.hasCPU() || (p.Resources.isSet() && slices.ContainsFunc(found.amounts, amount.isSet)):
		return no(ReasonPodLevelCPU, hard)
	case found.class == guaranteed:
		return no(ReasonGuaranteed, hard)
	case found.class != p.qos(nil):
		return no(ReasonQoSChange, hard)
	case p.hugePagesNeedCPU(found.amounts):
		return no(ReasonHugePagesNeedCPU, hard)
	case p.annotationsSize(d.Target, found.amounts) > maxAnnotations:
		return no(ReasonAnnotationsTooLarge, hard)
	}
	if policy.Constraint != nil {
		if d.Detail = policy.Constraint(); d.Detail != "" {
			return no(ReasonNamespaceConstrainsCPU, hard)
		}
	}
	d.Outcome = Partitioned
	return d, cores, found
}

// decline makes the pod an ordinary one that says why it is.
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
	p.annotate(WarningAnnotation, d.Message())
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
// there stays if the container is settled, so that another run finds nothing to do. In the
// limits only such a container gets a zero: whoever has put a limit back beside cores
// would do so again.
func (c *Container[L, N]) dropCPU(settled, keepZero bool) {
	zero := func(list L) bool {
		quantity, has := list[cpu]
		return has && quantity.IsZero()
	}
	switch {
	case zero(*c.Requests) && (settled || keepZero):
	case keepZero:
		set(c.Requests, cpu, *resource.NewQuantity(0, resource.DecimalSI))
	default:
		remove(c.Requests, cpu)
	}
	_, limited := (*c.Limits)[cpu]
	switch {
	case zero(*c.Limits) && settled:
	case limited && settled && keepZero:
		set(c.Limits, cpu, *resource.NewQuantity(0, resource.DecimalSI))
	default:
		remove(c.Limits, cpu)
	}
}

// hugePagesNeedCPU reports whether upstream would refuse a container for its huge pages
// once its cpu is gone (pkg/apis/core/validation, validateResourceRequirements: "HugePages
// require cpu or memory").
func (p Pod[L, N]) hugePagesNeedCPU(amounts []amount) bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; amounts[i].requested && (hasHugePages(*c.Requests) || hasHugePages(*c.Limits)) && !hasMemory(*c.Requests) && !hasMemory(*c.Limits) {
			return true
		}
	}
	return false
}

func hasMemory[L ~map[N]resource.Quantity, N ~string](list L) bool {
	_, has := list[memory]
	return has
}

func hasHugePages[L ~map[N]resource.Quantity, N ~string](list L) bool {
	if hasOnly(list, cpu, memory) {
		return false
	}
	for name := range list {
		if strings.HasPrefix(string(name), hugePagesPrefix) {
			return true
		}
	}
	return false
}

// maxAnnotations is the size in bytes, keys included, of all annotations that upstream accepts.
const maxAnnotations = apivalidation.TotalAnnotationSizeLimitB

// annotationsSize is the size that the annotations have after partition.
func (p Pod[L, N]) annotationsSize(target Target, amounts []amount) (size int) {
	for key, value := range *p.Annotations {
		switch {
		case key == WarningAnnotation || strings.HasPrefix(key, ResourcesPrefix):
		case strings.HasPrefix(key, TargetPrefix):
			size += len(key) + len(target.AnnotationValue())
		default:
			size += len(key) + len(value)
		}
	}
	var buffer [64]byte
	for i := range p.Containers {
		size += len(ResourcesPrefix) + len(p.Containers[i].Name) + len(amounts[i].annotation().appendTo(buffer[:0]))
	}
	return size
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

func (r *Requirements[L, N]) hasCPU() bool {
	if r == nil {
		return false
	}
	_, request := (*r.Requests)[cpu]
	_, limit := (*r.Limits)[cpu]
	return request || limit
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
