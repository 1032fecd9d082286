// SPDX-License-Identifier: Apache-2.0

// Package operation is what controller and agent write to each other about one switch of a node's CPU
// manager policy: a [Request] goes to the agent, a [Result] comes back as the termination message
// of the agent's pod. docs/dev/cpupolicy.md has the contract. The package must not know how either
// side does its part.
package operation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/cpuset"
	kjson "sigs.k8s.io/json"
	"workload.openshift.io/operators/api/untrusted"
)

// MaxSize is the largest size of an encoded request, result or observation, in bytes: the kubelet cuts the
// termination message of a container there (pkg/kubelet/kuberuntime, MaxContainerTerminationMessageLength).
const MaxSize = 4096

// Policy is a policy of the kubelet's CPU manager, as cpuManagerPolicy names it.
type Policy string

// The policies of upstream (pkg/kubelet/cm/cpumanager, PolicyNone and PolicyStatic).
const (
	None   Policy = "none"
	Static Policy = "static"
)

// Policies are all policies.
func Policies() []Policy { return []Policy{None, Static} }

// Driver is how a host configures and runs its kubelet.
type Driver string

const (
	// DriverKubelet is a unit of systemd that is the kubelet, with drop-ins in its --config-dir.
	DriverKubelet Driver = "kubelet"
	// DriverRKE2 is rke2-server or rke2-agent, which run the kubelet with arguments from their
	// configuration.
	DriverRKE2 Driver = "rke2"
	// DriverCommand is a kubelet that the commands of a file on the host start and stop.
	DriverCommand Driver = "command"
)

// Drivers are all drivers.
func Drivers() []Driver { return []Driver{DriverKubelet, DriverRKE2, DriverCommand} }

// Limits are how long a switch may take.
type Limits struct {
	// Total is the time from the stop of the kubelet to a kubelet that is healthy, under either
	// policy. Zero means [MaxTotal], and no more is allowed.
	Total metav1.Duration `json:"total,omitzero"`
	// RollBack is the part of Total that is kept for the way back. Zero means [DefaultRollBack],
	// or half of Total if that is less.
	RollBack metav1.Duration `json:"rollBack,omitzero"`
}

const (
	// MaxTotal is the longest time that a node is without a healthy kubelet. Pods with default
	// tolerations are evicted after about 340 seconds.
	MaxTotal = 150 * time.Second
	// DefaultRollBack suffices to end a kubelet that does not stop, and to start another.
	DefaultRollBack = 70 * time.Second
)

// WithDefaults returns the limits with values for what is zero.
func (l Limits) WithDefaults() Limits {
	l.Total.Duration = cmp.Or(l.Total.Duration, MaxTotal)
	l.RollBack.Duration = cmp.Or(l.RollBack.Duration, min(DefaultRollBack, l.Total.Duration/2))
	return l
}

// Request asks the agent of a node for a policy.
type Request struct {
	// ID names the operation, and is not used again: a DNS label.
	ID     string `json:"id"`
	Policy Policy `json:"policy"`
	Driver Driver `json:"driver"`
	Limits Limits `json:"limits,omitzero"`
}

// Validate returns an error for each field with a value that is not allowed.
func (r Request) Validate() field.ErrorList {
	errs := validateID(r.ID)
	errs = append(errs, validateOneOf(field.NewPath("policy"), r.Policy, Policies())...)
	errs = append(errs, validateOneOf(field.NewPath("driver"), r.Driver, Drivers())...)
	limits := field.NewPath("limits")
	if total := r.Limits.Total.Duration; total < 0 || total > MaxTotal {
		errs = append(errs, field.Invalid(limits.Child("total"), total.String(), fmt.Sprintf("must be between 0s and %s", MaxTotal)))
	}
	if back, total := r.Limits.RollBack.Duration, r.Limits.WithDefaults().Total.Duration; back < 0 || back >= total {
		errs = append(errs, field.Invalid(limits.Child("rollBack"), back.String(), fmt.Sprintf("must be between 0s and total, %s", total)))
	}
	return errs
}

// Encode returns the request as [ParseRequest] reads it.
func (r Request) Encode() ([]byte, error) {
	if err := r.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("request of operation %q: %w", untrusted.Abbreviate(r.ID, maxQuoted), err)
	}
	return json.Marshal(r)
}

// ParseRequest decodes a request. It is strict: an unknown field, trailing data, more than
// [MaxSize] bytes and what [Request.Validate] finds are errors.
func ParseRequest(data []byte) (Request, error) {
	var request Request
	if err := parse(data, &request); err != nil {
		return Request{}, fmt.Errorf("request of an operation: %w", err)
	}
	if err := request.Validate().ToAggregate(); err != nil {
		return Request{}, fmt.Errorf("request of operation %q: %w", untrusted.Abbreviate(request.ID, maxQuoted), err)
	}
	return request, nil
}

// Outcome is how an operation ended.
type Outcome string

const (
	// Succeeded means that the policy was requested and is in force.
	Succeeded Outcome = "succeeded"
	// RolledBack means that the switch failed, and that a healthy kubelet runs as before.
	RolledBack Outcome = "rolledBack"
	// Failed means that the switch was refused before anything was changed ([Result.Step] is
	// [StepValidate]), or that the kubelet was not seen healthy after the roll-back either.
	Failed Outcome = "failed"
)

// Outcomes are all outcomes.
func Outcomes() []Outcome { return []Outcome{Succeeded, RolledBack, Failed} }

// StepValidate is the step that changes nothing.
const StepValidate = "validate"

// Result is how an operation ended on its node.
type Result struct {
	// ID is that of the request.
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
	// Step is the step that failed, and the last one of an operation that succeeded.
	Step string `json:"step"`
	// Policy is that of the CPU manager's checkpoint at the end; empty if there is none.
	Policy Policy `json:"policy,omitempty"`
	// Message says what failed, or what to know of a success, to a person.
	Message string `json:"message,omitempty"`
	// KubeletError is the kubelet's own error, as its log has it.
	KubeletError string `json:"kubeletError,omitempty"`
}

// Unchanged reports whether the operation has ended before it changed its node.
func (r Result) Unchanged() bool { return r.Outcome == Failed && r.Step == StepValidate }

// Validate returns an error for each field with a value that is not allowed.
func (r Result) Validate() field.ErrorList {
	errs := validateID(r.ID)
	errs = append(errs, validateOneOf(field.NewPath("outcome"), r.Outcome, Outcomes())...)
	errs = append(errs, validateStep(field.NewPath("step"), r.Step)...)
	if r.Policy != "" {
		errs = append(errs, validateOneOf(field.NewPath("policy"), r.Policy, Policies())...)
	}
	return errs
}

// Encode returns the result as a termination message. Texts are shortened so that it has at most
// [MaxSize] bytes.
func (r Result) Encode() ([]byte, error) {
	if err := r.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("result of operation %q: %w", untrusted.Abbreviate(r.ID, maxQuoted), err)
	}
	// A byte may become six in JSON.
	for most := MaxSize / 2; ; most /= 2 {
		if data, err := json.Marshal(r.Shortened(most)); err != nil || len(data) <= MaxSize {
			return data, err
		}
	}
}

// Shortened returns the result with texts of at most so many bytes.
func (r Result) Shortened(most int) Result {
	r.Message, r.KubeletError = untrusted.Abbreviate(r.Message, most), untrusted.Abbreviate(r.KubeletError, most)
	return r
}

// ParseResult decodes a termination message. It is as strict as [ParseRequest].
func ParseResult(data []byte) (Result, error) {
	var result Result
	if err := parse(data, &result); err != nil {
		return Result{}, fmt.Errorf("result of an operation: %w", err)
	}
	if err := result.Validate().ToAggregate(); err != nil {
		return Result{}, fmt.Errorf("result of operation %q: %w", untrusted.Abbreviate(result.ID, maxQuoted), err)
	}
	return result, nil
}

// Observation is what is in force on a node, as the agent's command observe prints it, and as its
// pod's termination message says it.
type Observation struct {
	// Policy is that of the CPU manager's checkpoint; empty if there is none yet.
	Policy Policy `json:"policy,omitempty"`
	// Configured is what the kubelet's /configz says; empty if it cannot be reached.
	Configured Policy `json:"configured,omitempty"`
	// Refused has, for each policy, why a switch to it would be refused on the node. A policy
	// that is not in it can be requested.
	Refused map[Policy]Refusals `json:"refused,omitempty"`
	// Operation is the last operation of the node, and Step what it does. Result is nil while it
	// is under way.
	Operation string  `json:"operation,omitempty"`
	Step      string  `json:"step,omitempty"`
	Result    *Result `json:"result,omitempty"`
	// Kubelet is how the kubelet would start again, whatever its policy; nil if that cannot be read.
	Kubelet *Kubelet `json:"kubelet,omitempty"`
}

// Validate returns an error for each field with a value that is not allowed.
func (o Observation) Validate() (errs field.ErrorList) {
	validatePolicy := func(path *field.Path, policy Policy) {
		if policy != "" {
			errs = append(errs, validateOneOf(path, policy, Policies())...)
		}
	}
	validatePolicy(field.NewPath("policy"), o.Policy)
	validatePolicy(field.NewPath("configured"), o.Configured)
	for _, policy := range slices.Sorted(maps.Keys(o.Refused)) {
		errs = append(errs, validateOneOf(field.NewPath("refused"), policy, Policies())...)
	}
	if o.Operation != "" {
		errs = append(errs, validateDNSLabel(field.NewPath("operation"), o.Operation)...)
	}
	if o.Step != "" {
		errs = append(errs, validateStep(field.NewPath("step"), o.Step)...)
	}
	if o.Result != nil {
		for _, err := range o.Result.Validate() {
			err.Field = field.NewPath("result", err.Field).String()
			errs = append(errs, err)
		}
	}
	if o.Kubelet != nil {
		errs = append(errs, o.Kubelet.validate(field.NewPath("kubelet"))...)
	}
	return errs
}

func (k *Kubelet) validate(path *field.Path) (errs field.ErrorList) {
	if k.Reserved.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("reserved"), k.Reserved.String(), "must not be negative"))
	}
	errs = append(errs, validateCPUs(path.Child("reservedCPUs"), k.ReservedCPUs)...)
	var known [maxCPUs]bool
	for i, place := range k.Places {
		path := path.Child("places").Index(i)
		if place.NUMANode < 0 || place.NUMANode >= nodesOfMask {
			errs = append(errs, field.Invalid(path.Child("numaNode"), place.NUMANode, fmt.Sprintf("must be from 0 to %d", nodesOfMask-1)))
		}
		for j, list := range place.Cores {
			path := path.Child("cores").Index(j)
			if wrong := validateCPUs(path, list); len(wrong) > 0 {
				return append(errs, wrong...)
			}
			cpus, _ := cpuset.Parse(list) // which is one
			for _, cpu := range cpus.List() {
				if known[cpu] {
					return append(errs, field.Invalid(path, untrusted.Abbreviate(list, maxQuoted), fmt.Sprintf("CPU %d is in another core, too", cpu)))
				}
				known[cpu] = true
			}
		}
	}
	return errs
}

// nodesOfMask is how many NUMA nodes a mask of 64 bits has. Upstream's topology manager has one of them
// (pkg/kubelet/cm/topologymanager/bitmask).
const nodesOfMask = 64

// maxCPUs is how many CPUs Linux can have (NR_CPUS).
const maxCPUs = 8192

// validateCPUs returns an error for what is no CPU list, or too long a one: a node must not keep its
// reader busy. Each number is larger than the one before it.
func validateCPUs(path *field.Path, list string) field.ErrorList {
	if list == "" {
		return nil
	}
	last := -1
	for part := range strings.SplitSeq(list, ",") {
		first, end, isRange := strings.Cut(part, "-")
		if !isRange {
			end = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(end, 10, 16)
		if err != nil || errTo != nil || int(from) <= last || to < from || to >= maxCPUs {
			return field.ErrorList{field.Invalid(path, untrusted.Abbreviate(list, maxQuoted), fmt.Sprintf("must be a CPU list in ascending order, of numbers below %d", maxCPUs))}
		}
		last = int(to)
	}
	return nil
}

// Encode returns the observation as a termination message. It leaves out where the CPUs are, and
// then shortens the texts of Refused and Result, until it has at most [MaxSize] bytes. It returns an
// error if that does not suffice.
func (o Observation) Encode() ([]byte, error) {
	if err := o.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("observation: %w", err)
	}
	data, err := json.Marshal(o)
	if err != nil || len(data) <= MaxSize {
		return data, err
	}
	if o.Kubelet != nil {
		kubelet := *o.Kubelet
		kubelet.Places = nil
		o.Kubelet = &kubelet
	}
	for most := MaxSize; most > 0; most /= 2 {
		if data, err = json.Marshal(o.shortened(most)); err != nil || len(data) <= MaxSize {
			return data, err
		}
	}
	return nil, fmt.Errorf("observation: it has %d bytes without what can be left out, and at most %d are allowed", len(data), MaxSize)
}

// shortened returns the observation with texts of at most so many bytes.
func (o Observation) shortened(most int) Observation {
	o.Refused = maps.Clone(o.Refused)
	for policy, refusals := range o.Refused {
		o.Refused[policy] = refusals.shortened(most)
	}
	if o.Result != nil {
		result := o.Result.Shortened(most)
		o.Result = &result
	}
	return o
}

// ParseObservation decodes a termination message. It is as strict as [ParseRequest].
func ParseObservation(data []byte) (Observation, error) {
	var observation Observation
	if err := parse(data, &observation); err != nil {
		return Observation{}, fmt.Errorf("observation: %w", err)
	}
	if err := observation.Validate().ToAggregate(); err != nil {
		return Observation{}, fmt.Errorf("observation: %w", err)
	}
	return observation, nil
}

// Kubelet is what decides, beside the policy, which pods a kubelet admits when it starts: its
// configuration and flags, and the host's CPUs (upstream's KubeletConfiguration, whose names these
// are).
type Kubelet struct {
	CPUManagerPolicyOptions map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	// Reserved is the cpu of kubeReserved and systemReserved together.
	Reserved resource.Quantity `json:"reserved,omitzero"`
	// ReservedCPUs are those of reservedSystemCPUs and of all pools of the pinning file, as a CPU list.
	ReservedCPUs                 string            `json:"reservedCPUs,omitempty"`
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy,omitempty"`
	TopologyManagerScope         string            `json:"topologyManagerScope,omitempty"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	MemoryManagerPolicy          string            `json:"memoryManagerPolicy,omitempty"`
	// Places are where the online CPUs are. It is empty where that does not fit into [MaxSize].
	Places []Place `json:"places,omitempty"`
}

// Place is a socket's part of a NUMA node.
type Place struct {
	Socket   int `json:"socket"`
	NUMANode int `json:"numaNode"`
	// Cores has the CPUs of each core, as CPU lists such as 0,28.
	Cores []string `json:"cores"`
}

func validateID(id string) field.ErrorList { return validateDNSLabel(field.NewPath("id"), id) }

func validateDNSLabel(path *field.Path, value string) (errs field.ErrorList) {
	for _, problem := range validation.IsDNS1123Label(value) {
		errs = append(errs, field.Invalid(path, untrusted.Abbreviate(value, maxQuoted), problem))
	}
	return errs
}

func validateStep(path *field.Path, step string) (errs field.ErrorList) {
	for _, problem := range validation.IsDNS1123Label(strings.ToLower(step)) {
		errs = append(errs, field.Invalid(path, untrusted.Abbreviate(step, maxQuoted), problem))
	}
	return errs
}

func validateOneOf[T ~string](path *field.Path, value T, allowed []T) field.ErrorList {
	for _, one := range allowed {
		if value == one {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, T(untrusted.Abbreviate(string(value), maxQuoted)), allowed)}
}

func parse(data []byte, into any) error { return Decode(data, MaxSize, into) }

// Decode decodes JSON of at most that many bytes. It is strict: an unknown field, one that occurs twice, trailing data
// and a number that takes long to read are errors.
func Decode(data []byte, most int, into any) error {
	if len(data) > most {
		return fmt.Errorf("it has %d bytes, and at most %d are allowed", len(data), most)
	}
	if err := untrusted.CheckNumbers(data); err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(unknown, err)...)
}

// maxQuoted is how much of a value an error quotes, in bytes.
const maxQuoted = 80
