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
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"workload.openshift.io/partition/partitiontest/podtest"
)

func TestTheTableIsComplete(t *testing.T) {
	label := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[Reason]bool{}
	for _, rule := range Rules() {
		if seen[rule.Reason] || !label.MatchString(string(rule.Reason)) {
			t.Errorf("%q is twice in the table, or cannot be a label", rule.Reason)
		}
		seen[rule.Reason] = true
		if rule.Condition == "" || rule.Text == "" || strings.ContainsAny(rule.Condition+rule.StaticPods+rule.SoftNote, "|\n") {
			t.Errorf("%s lacks its condition or text, or has a character that breaks the table: %+v", rule.Reason, rule)
		}
		if want, ok := podtest.Responses[string(rule.Reason)]; !ok || rule.Soft.String() != want.Soft || rule.Hard.String() != want.Hard {
			t.Errorf("%s: the soft effect gets %s, and the hard one %s, want %+v", rule.Reason, rule.Soft, rule.Hard, want)
		}
		if got, ok := RuleOf(rule.Reason); !ok || got != rule {
			t.Errorf("%s: found %+v", rule.Reason, got)
		}
		for _, other := range Rules() {
			if rule.Reason != other.Reason && strings.HasPrefix(rule.Text, other.Text) {
				t.Errorf("ParseMessage cannot distinguish %s from %s", rule.Reason, other.Reason)
			}
		}
	}
	if len(seen) != len(podtest.Responses) {
		t.Errorf("the table has %d reasons, want those of %v", len(seen), podtest.Responses)
	}
	Rules()[0].Text = "changed"
	if Rules()[0].Text == "changed" {
		t.Error("a caller has changed the table")
	}
}

func TestPodsGetWhatTheTableSays(t *testing.T) {
	// A gate may invent a reason, which then refuses the hard effect.
	responses := map[string]podtest.Response{"of_a_gate": {Soft: "warning", Hard: "403"}}
	maps.Copy(responses, podtest.Responses)
	for name, response := range responses {
		reason := Reason(name)
		for effect, refuses := range map[string]bool{soft: response.Refuses(false), hard: response.Refuses(true)} {
			for _, static := range []bool{false, true} {
				p := pod(map[string]string{target: effect}, container("a", "cpu=400m memory=1Mi", ""))
				d := Mutate(V1(p), Policy{Gate: Always(reason), NeverRefuse: static})
				if refused := refuses && !static; (d.Outcome == Refused) != refused || (d.Outcome == Skipped) == refused || d.Reason != reason {
					t.Errorf("%s, %s, static: %v: got %s because of %s", reason, effect, static, d.Outcome, d.Reason)
				}
			}
		}
	}
}

// Users and other people's tests look for these.
func TestMessagesKeepTheirWords(t *testing.T) {
	target := Target{Type: "management", Effect: Preferred}
	wrong := field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations"), "x", "is wrong")}
	for reason, want := range map[Reason]string{
		ReasonGuaranteed:             `workload type "management" ignored: the pod has the QoS class Guaranteed, whose CPU is its own; give it requests below its limits to have it partitioned`,
		ReasonQoSChange:              `workload type "management" ignored: without its CPU request the pod would become BestEffort; give a container a memory request to have it partitioned`,
		ReasonPodLevelCPU:            `workload type "management" ignored: spec.resources has CPU for the pod as a whole, or gets it from the containers by default; remove spec.resources to have it partitioned`,
		ReasonCPUOutOfRange:          `workload type "management" ignored: the CPU of a container is negative, above its limit, or more than 1000000 CPUs: detail`,
		ReasonNamespaceConstrainsCPU: `workload type "management" ignored: the namespace constrains the cpu of its pods: detail`,
		ReasonHugePagesNeedCPU:       `workload type "management" ignored: Kubernetes refuses a container that has huge pages and neither cpu nor memory; give it a memory request to have the pod partitioned: detail`,
		ReasonAnnotationsTooLarge:    `workload type "management" ignored: with those of its containers, its annotations would be larger than Kubernetes accepts; shorten them to have it partitioned`,
		ReasonDecidedAgainst:         `workload type "management" ignored: the cluster's Infrastructure object has decided against it (status.cpuPartitioning is not AllNodes)`,
		ReasonTypeInactive:           `workload type "management" ignored: no pool of this type is active here`,
		ReasonNodeDoesNotCount:       `workload type "management" ignored: the pod can run only on nodes that do not count, since their labels say that they have no pool and never will`,
		ReasonNamespaceNotAnnotated:  `workload type "management" ignored: the namespace is not annotated with workload.openshift.io/allowed`,
		ReasonNamespaceOtherTypes:    `workload type "management" ignored: the namespace's annotation workload.openshift.io/allowed does not list it`,
		ReasonInvalidTarget:          `workload type ignored: metadata.annotations: Invalid value: "x": is wrong`,
		ReasonChangedLater:           `the pod's workload partitioning was changed after it had been decided, probably by a mutating webhook or a plugin that runs later; neither may set cpu in containers that have cores, nor annotations of workload.openshift.io: detail`,
		ReasonCoresWithoutTarget:     `cores of a workload type were turned back into a cpu request, because the pod asks for no workload type`,
		NoReason:                     "",
	} {
		d := Decision{Outcome: Skipped, Target: target, Reason: reason}
		switch reason {
		case ReasonInvalidTarget:
			d.Target, d.Errors = Target{}, wrong
		case ReasonNamespaceConstrainsCPU, ReasonCPUOutOfRange, ReasonHugePagesNeedCPU, ReasonChangedLater:
			d.Detail = "detail"
		case ReasonDecidedAgainst:
			// A soft one gives no warning.
			d.Target.Effect = Required
		}
		if got := d.Message(); got != want {
			t.Errorf("%s: the message is\n%q, want\n%q", reason, got, want)
		}
		rule, known := RuleOf(reason)
		wanted := Decision{Outcome: Skipped, Target: target, Reason: reason, Detail: d.Detail}
		if reason == ReasonInvalidTarget {
			wanted.Target, wanted.Detail = Target{}, wrong.ToAggregate().Error()
		}
		if parsed, ok := ParseMessage(want); ok != (known && (!rule.Whole || reason == ReasonInvalidTarget)) || (ok && !reflect.DeepEqual(parsed, wanted)) {
			t.Errorf("%s: parsed as %+v, %v", reason, parsed, ok)
		}
		d.Outcome = Refused
		if got := d.Message(); !rule.Whole && got != strings.Replace(want, "ignored", "refused", 1) {
			t.Errorf("%s: the message of a refused pod is %q", reason, got)
		}
	}
}

// ruleTest says whether a rule holds for a pod.
type ruleTest struct {
	// pod has no target annotation yet.
	pod    *v1.Pod
	holds  bool
	detail string
	policy Policy
}

// expectRule checks for which pods a rule holds. Of these, soft ones run as they were, with a
// warning, and hard ones are refused. All others are partitioned.
func expectRule(t *testing.T, reason Reason, pods map[string]ruleTest) {
	t.Helper()
	for name, test := range pods {
		t.Run(name, func(t *testing.T) {
			for _, effect := range []string{soft, hard} {
				p := test.pod.DeepCopy()
				if p.Annotations == nil {
					p.Annotations = map[string]string{}
				}
				p.Annotations[target] = effect
				asked := p.DeepCopy()
				policy := test.policy
				if policy.Gate == nil {
					policy.Gate = AnyType
				}
				d := Mutate(V1(p), policy)
				want, wantReason := Partitioned, NoReason
				if test.holds {
					want, wantReason = Skipped, reason
					if podtest.Responses[string(reason)].Refuses(effect == hard) {
						want = Refused
					}
				}
				if d.Outcome != want || d.Reason != wantReason || (d.Detail != test.detail && test.policy.Constraint == nil) {
					t.Errorf("%s: decided %q because of %q (%s), want %q because of %q (%s)", effect, d.Outcome, d.Reason, d.Detail, want, wantReason, test.detail)
				}
				if want == Partitioned {
					continue
				}
				if want == Skipped {
					delete(asked.Annotations, target)
					delete(p.Annotations, WarningAnnotation)
				}
				expectEqual(t, p, asked)
			}
		})
	}
}
