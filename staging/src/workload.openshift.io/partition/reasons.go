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

import "slices"

// Reason says why a pod is not partitioned, in a form that serves as a metric's label.
type Reason string

// NoReason is the zero value: nothing keeps the pod from being partitioned, or the pod does
// not ask.
const NoReason Reason = ""

// rules is the table of all reasons, in the order of the documentation. The file named after
// a reason is the only one that says when it holds, what its pods get, and what their authors
// are told.
var rules = [...]Rule{
	guaranteedRule,
	qosChangeRule,
	podLevelCPURule,
	cpuOutOfRangeRule,
	namespaceConstrainsCPURule,
	hugePagesNeedCPURule,
	annotationsTooLargeRule,
	decidedAgainstRule,
	typeInactiveRule,
	nodeDoesNotCountRule,
	namespaceNotAnnotatedRule,
	namespaceOtherTypesRule,
	invalidTargetRule,
	changedLaterRule,
	coresWithoutTargetRule,
}

// Rule is a row of the table of reasons: everything that the decision, the documentation and
// commands say about one reason.
type Rule struct {
	Reason Reason
	// Condition says when the rule holds: a clause for the documentation's table, in Markdown.
	Condition string
	// Text says to the pod's author what is wrong, and what to do about it. It completes a
	// sentence that names the workload type, and [Decision.Detail] may follow it.
	Text string
	// Whole means that Text is the whole message, since the reason is not about one workload
	// type.
	Whole bool
	// Soft and Hard are what a pod with that effect gets.
	Soft, Hard Response
	// SoftNote qualifies Soft in the documentation's table. It may be empty.
	SoftNote string
	// StaticPods says how the rule differs for static pods. Empty means that it does not.
	// Whatever Soft and Hard are, a static pod is never refused ([Policy.NeverRefuse]).
	StaticPods string
}

// Response is what becomes of a pod for which a [Rule] holds.
type Response int

const (
	// Silence: the pod runs as an ordinary one, without a warning.
	Silence Response = iota - 1
	// Warning: the pod runs as an ordinary one, and its author is warned. It is the zero value.
	Warning
	// Forbidden: the pod is refused with HTTP status 403.
	Forbidden
	// Unprocessable: the pod is refused with HTTP status 422, and the answer names a field.
	Unprocessable
)

// String returns the word or the HTTP status that the documentation's table has.
func (r Response) String() string {
	switch r {
	case Silence:
		return "silence"
	case Forbidden:
		return "403"
	case Unprocessable:
		return "422"
	}
	return "warning"
}

// Refuses reports whether the pod is not created.
func (r Response) Refuses() bool { return r == Forbidden || r == Unprocessable }

// Response returns what a pod with the effect gets. The zero value counts as soft.
func (r Rule) Response(effect Effect) Response {
	if effect == Required {
		return r.Hard
	}
	return r.Soft
}

// Rules returns all rules, in the order of the documentation's table.
func Rules() []Rule { return slices.Clone(rules[:]) }

// RuleOf returns the rule of a reason. It returns false for [NoReason] and for a reason that
// a [Gate] invented, with a rule that has no words and refuses the hard effect.
func RuleOf(reason Reason) (rule Rule, ok bool) {
	for i := range rules {
		if rules[i].Reason == reason {
			return rules[i], true
		}
	}
	return Rule{Reason: reason, Hard: Forbidden}, false
}
