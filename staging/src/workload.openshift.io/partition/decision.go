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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Outcome is what became of a pod.
type Outcome string

const (
	// Ordinary pods ask for no partition.
	Ordinary Outcome = ""
	// Partitioned pods carry cores in place of cpu.
	Partitioned Outcome = "partitioned"
	// Skipped pods asked for a partition and run as ordinary pods.
	Skipped Outcome = "skipped"
	// Refused pods must not be created: HTTP status 403, or 422 if
	// [Decision.Errors] is not empty. They are left unchanged.
	Refused Outcome = "refused"
)

// Decision is what [Mutate] decided, and why.
type Decision struct {
	Outcome Outcome
	// Target is what the pod asks for. It is zero if the pod does not ask, or its target
	// annotation is invalid.
	Target Target
	// Reason is [NoReason] if the pod was partitioned, or had nothing of ours.
	Reason Reason
	// Detail names the container and its CPU ([ReasonCPUOutOfRange], [ReasonHugePagesNeedCPU]),
	// is what [Policy.Constraint] returned ([ReasonNamespaceConstrainsCPU]), or what [Unsettled]
	// did ([ReasonChangedLater]). It is empty with every other reason.
	Detail string
	// Errors say what is wrong with the target annotation, if that is the reason
	// ([ReasonInvalidTarget]).
	Errors field.ErrorList
}

// Message says to the pod's author what was decided and what to do about it. It is
// empty if there is nothing to say.
func (d Decision) Message() string {
	rule, _ := RuleOf(d.Reason)
	if d.Reason == NoReason || (d.Outcome == Skipped && rule.Response(d.Target.Effect) == Silence) {
		return ""
	}
	detail := d.Detail
	if len(d.Errors) > 0 {
		detail = d.Errors.ToAggregate().Error()
	}
	if rule.Whole {
		return rule.Text + detail
	}
	verb := "ignored"
	if d.Outcome == Refused {
		verb = "refused"
	}
	return fmt.Sprintf("workload type %q %s: %s%s", d.Target.Type, verb, rule.Text, detail)
}

// ParseMessage is the inverse of [Decision.Message] for a pod that was skipped: all that is
// left of such a decision is the pod's warning annotation. Of an invalid target, what
// [Decision.Errors] said is the detail. It returns false for every other text.
func ParseMessage(message string) (d Decision, ok bool) {
	// Only a static pod is skipped for it (Policy.NeverRefuse). No type is quoted in its message.
	if detail, invalid := strings.CutPrefix(message, invalidTargetRule.Text); invalid {
		return Decision{Outcome: Skipped, Reason: ReasonInvalidTarget, Detail: detail}, true
	}
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
	for i := range rules {
		if detail, found := strings.CutPrefix(text, rules[i].Text); found && !rules[i].Whole {
			return Decision{Outcome: Skipped, Target: Target{Type: workloadType, Effect: Preferred}, Reason: rules[i].Reason, Detail: detail}, true
		}
	}
	return Decision{}, false
}
