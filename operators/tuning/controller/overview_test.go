// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	openshiftconfigv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
)

func TestTheClusterOperatorsConditions(t *testing.T) {
	operand := func(generation, observed int64, desired, current, updated, available int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: desired, CurrentNumberScheduled: current, UpdatedNumberScheduled: updated, NumberAvailable: available},
		}
	}
	profile := func(name string, generation int64, conditions ...metav1.Condition) tunedv1.Profile {
		return tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}, Status: tunedv1.ProfileStatus{ObservedGeneration: generation, Conditions: conditions}}
	}
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	fine := profile("a", 2, is(tunedv1.ConditionApplied, metav1.ConditionTrue, ""), is(tunedv1.ConditionDegraded, metav1.ConditionFalse, ""))
	bad := func(name string) tunedv1.Profile {
		return profile(name, 2, is(tunedv1.ConditionApplied, metav1.ConditionTrue, ""), is(tunedv1.ConditionDegraded, metav1.ConditionTrue, ""))
	}
	deferred := profile("d", 2, is(tunedv1.ConditionApplied, metav1.ConditionFalse, tunedv1.ReasonDeferred))
	standing := func(state string, conditions ...metav1.Condition) *tunedv1.Tuned {
		return &tunedv1.Tuned{Spec: tunedv1.TunedSpec{ManagementState: state}, Status: tunedv1.TunedStatus{Conditions: conditions}}
	}
	invalid := is(tunedv1.ConditionDegraded, metav1.ConditionTrue, ReasonInvalid)
	invalid.Message = "line 7"
	three := operand(1, 1, 3, 3, 3, 3)
	for name, test := range map[string]struct {
		profiles []tunedv1.Profile
		standing *tunedv1.Tuned
		operand  *appsv1.DaemonSet
		want     []string // a condition, and a part of its message
	}{
		"all is well":                        {[]tunedv1.Profile{fine, fine}, standing(""), three, []string{"Available=True/AsExpected: 3 of 3 pods of the operand are available. TuneD has applied 2 of 2 Profiles.", "Progressing=False/AsExpected", "Degraded=False/AsExpected", "Upgradeable=True"}},
		"before the operand is made":         {nil, nil, nil, []string{"Available=False/NoOperand", "Progressing=True/NoOperand", "Degraded=False"}},
		"a cluster without nodes":            {nil, standing(""), operand(1, 1, 0, 0, 0, 0), []string{"Available=True", "Progressing=False"}},
		"a pool grows":                       {[]tunedv1.Profile{fine, profile("new", 0)}, standing(""), operand(1, 1, 5, 4, 4, 3), []string{"Available=True", "Progressing=False/AsExpected"}},
		"a node is down for good":            {[]tunedv1.Profile{fine, fine, fine}, standing(""), operand(1, 1, 3, 3, 3, 2), []string{"Available=True", "Progressing=False/AsExpected"}},
		"no pod is available":                {nil, standing(""), operand(1, 1, 3, 3, 3, 0), []string{"Available=False", "Progressing=False/AsExpected"}},
		"the operand is replaced":            {nil, standing(""), operand(2, 2, 3, 3, 1, 2), []string{"Available=True", "Progressing=True/RollingOut: 1 of 3"}},
		"its new template was not seen yet":  {nil, standing(""), operand(2, 1, 3, 3, 3, 3), []string{"Progressing=True/RollingOut"}},
		"Profiles are degraded":              {[]tunedv1.Profile{bad("c"), bad("b"), fine}, standing(""), three, []string{"Degraded=True/ProfileDegraded: 2 of 3 Profiles are degraded: b, c."}},
		"many Profiles are degraded":         {[]tunedv1.Profile{bad("1"), bad("2"), bad("3"), bad("4"), bad("5"), bad("6")}, standing(""), three, []string{"Degraded=True/ProfileDegraded: 6 of 6 Profiles are degraded: 1, 2, 3, 4, 5 and 1 more."}},
		"one that was, of an older profile":  {[]tunedv1.Profile{profile("a", 1, is(tunedv1.ConditionDegraded, metav1.ConditionTrue, ""))}, standing(""), three, []string{"Degraded=False/AsExpected"}},
		"a Tuned that is not valid":          {[]tunedv1.Profile{bad("b")}, standing("", invalid), three, []string{"Degraded=True/InvalidConfiguration: line 7\n1 of 1 Profiles are degraded: b."}},
		"a deferred profile is no progress":  {[]tunedv1.Profile{fine, deferred}, standing(""), three, []string{"Available=True/AsExpected: 3 of 3 pods of the operand are available. TuneD has applied 1 of 2 Profiles. 1 wait", "Progressing=False", "Degraded=False"}},
		"users want no node to be tuned":     {nil, standing(tunedv1.Removed), nil, []string{"Available=True/Removed", "Progressing=False/Removed", "Degraded=False"}},
		"what a node may write is its state": {[]tunedv1.Profile{profile("a", 99, is("x", "y", "z"))}, standing(""), three, []string{"Degraded=False"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, condition := range overviewOf(test.profiles, test.standing, test.operand).conditions() {
				got = append(got, fmt.Sprintf("%s=%s/%s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
			}
			for _, want := range test.want {
				found := false
				for _, each := range got {
					found = found || strings.HasPrefix(each, want)
				}
				if !found {
					t.Errorf("the conditions are %q, want %q", got, want)
				}
			}
		})
	}
}

func TestTheClusterOperatorIsWrittenWhereTheKindIs(t *testing.T) {
	for name, test := range map[string]struct {
		start func(*testing.T) *pair
		made  bool // by somebody else, before
	}{
		"on a hosted cluster":                         {newPair, false},
		"on an ordinary cluster, where one was there": {newOrdinary, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.start(t)
			p.node("a1", "pool-a")
			crd := filepath.Join(testenv.SourceOf(t, "", "github.com/openshift/api"), "config", "v1", "zz_generated.crd-manifests", "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
			p.hosted.Kubectl(t, "apply", "--server-side", "-f", crd)
			t.Cleanup(func() { p.hosted.Kubectl(t, "delete", "-f", crd) })
			p.hosted.Kubectl(t, "wait", "--for=condition=Established", "--timeout=20s", "-f", crd)
			object := &openshiftconfigv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: ClusterOperator}}
			if test.made {
				p.do(p.hosted.Client.Create(t.Context(), object))
			}
			p.start()
			is := func(kind openshiftconfigv1.ClusterStatusConditionType, want string) openshiftconfigv1.ClusterOperatorStatusCondition {
				t.Helper()
				var found openshiftconfigv1.ClusterOperatorStatusCondition
				testenv.Eventually(t, 20*time.Second, func() error {
					if err := p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
						return err
					}
					for _, condition := range object.Status.Conditions {
						if condition.Type == kind && string(condition.Status)+"/"+condition.Reason == want {
							found = condition
							return nil
						}
					}
					return fmt.Errorf("the conditions are %v, want %s=%s", object.Status.Conditions, kind, want)
				})
				return found
			}
			is(openshiftconfigv1.OperatorAvailable, "True/AsExpected")
			is(openshiftconfigv1.OperatorDegraded, "False/AsExpected")
			if owned := object.Labels[companion.OwnerLabel] == Name; owned == test.made {
				t.Errorf("it has the labels %v", object.Labels)
			}
			if len(object.Status.Versions) != 1 || len(object.Status.RelatedObjects) != 4 {
				t.Errorf("the status is %+v", object.Status)
			}

			// What is not valid shows, and heals.
			before := is(openshiftconfigv1.OperatorUpgradeable, "True/AsExpected").LastTransitionTime
			broken := strings.Replace(tunedText("queues", "1"), "name: queues\n    data", "name: ../queues\n    data", 1)
			if p.ordinary() {
				p.tuned(broken)
			} else {
				p.configure("pool-a", broken)
			}
			if got := is(openshiftconfigv1.OperatorDegraded, "True/InvalidConfiguration"); !strings.Contains(got.Message, "spec.profile[0].name") {
				t.Errorf("the message is %q", got.Message)
			}
			if p.ordinary() {
				p.tuned(tunedText("queues", "32768"))
			} else {
				p.configure("pool-a", tunedText("queues", "32768"))
			}
			is(openshiftconfigv1.OperatorDegraded, "False/AsExpected")
			if after := is(openshiftconfigv1.OperatorUpgradeable, "True/AsExpected").LastTransitionTime; !after.Equal(&before) {
				t.Errorf("the transition was at %s, and is at %s", before, after)
			}
			if !p.ordinary() {
				p.condition(tuning.HostedName("queues", "pool-a"), tunedv1.ConditionValid, "True/AsExpected")
				return
			}
			// One that somebody deletes comes back with the next look.
			p.do(p.hosted.Client.Delete(t.Context(), object))
			is(openshiftconfigv1.OperatorAvailable, "True/AsExpected")
		})
	}
}
