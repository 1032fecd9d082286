// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/internal/companiontest"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that
// the tests before it made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Object: func(name string) client.Object {
			return &v1alpha1.CPUManagerPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.CPUManagerPolicySpec{
					Nodes:  v1alpha1.NodeSelection{Names: []string{"no-such-node"}},
					Policy: v1alpha1.PolicyStatic,
				},
			}
		},
		Acted: func(object client.Object) bool {
			return meta.IsStatusConditionFalse(object.(*v1alpha1.CPUManagerPolicy).Status.Conditions, v1alpha1.ConditionPaused)
		},
		Traces: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{
					nodestatus.StatusAnnotation:             `{"status":"running","policy":"static","id":"1","job":"1"}`,
					"nodegroup.workload.openshift.io/claim": `{"owner":"cpupolicy","operation":"1"}`,
				},
				Labels: map[string]string{"cpumanager": "false"},
			},
			Spec: corev1.NodeSpec{Unschedulable: true},
		},
		Unused: map[string]map[companiontest.Right]string{
			Name: {
				{Verb: "list", Group: "kubevirt.io", Resource: "virtualmachineinstances"}: situation,
				{Verb: "list", Group: "kubevirt.io", Resource: "virtualmachines"}:         situation,
			},
			Name + "-webhooks": {
				{Verb: "impersonate-on:user-info:update", Resource: "nodes"}:                                                                       impersonates,
				{Verb: "impersonate-on:serviceaccount:update", Resource: "nodes"}:                                                                  impersonates,
				{Verb: "impersonate:serviceaccount", Group: "authentication.k8s.io", Resource: "serviceaccounts"}:                                  impersonates,
				{Verb: "impersonate:user-info", Group: "authentication.k8s.io", Resource: "users"}:                                                 impersonates,
				{Verb: "impersonate:user-info", Group: "authentication.k8s.io", Resource: "groups"}:                                                impersonates,
				{Verb: "impersonate:user-info", Group: "authentication.k8s.io", Resource: "uids"}:                                                  impersonates,
				{Verb: "impersonate:user-info", Group: "authentication.k8s.io", Resource: "userextras/authentication.kubernetes.io/credential-id"}: impersonates,
			},
		},
	})
}

// Why some rights are not seen here.
const (
	situation    = "the controllers look as the webhooks do, which the tests call beside KubeVirt"
	impersonates = "the audit log has what somebody else has done, and not by which right; deploy has a test of them"
)
