// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
)

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that the tests before it
// made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Single:    true,
		Object: func(string) client.Object {
			return &nodetopologyv1.NUMAResourcesOperator{
				ObjectMeta: metav1.ObjectMeta{Name: nodetopologyv1.NUMAResourcesOperatorName},
				Spec:       nodetopologyv1.NUMAResourcesOperatorSpec{NodeGroups: []nodetopologyv1.NodeGroup{{NodeSelector: selecting("no-such", "label")}}},
			}
		},
		Acted: func(object client.Object) bool {
			return meta.IsStatusConditionFalse(object.(*nodetopologyv1.NUMAResourcesOperator).Status.Conditions, nodetopologyv1.ConditionPaused)
		},
		Unused: map[string]map[companiontest.Right]string{
			Name: {
				{Verb: "patch", Group: "events.k8s.io", Resource: "events"}:                                          "an Event is written once: there is one object, and one program to wait for",
				{Verb: "create", Resource: "configmaps"}:                                                             applies,
				{Verb: "create", Group: "apps", Resource: "daemonsets"}:                                              applies,
				{Verb: "create", Group: "apps", Resource: "deployments"}:                                             applies,
				{Verb: "update", Group: "nodetopology.openshift.io", Resource: "numaresourcesschedulers/finalizers"}: enforced,
				{Verb: "update", Group: "nodetopology.openshift.io", Resource: "numaresourcesoperators/finalizers"}:  enforced,
			},
		},
	})
}

// applies is why some rights are not seen here.
const applies = "the audit log has a patch, which needs this right, too, where the object is new"

// enforced is why others are not: kube-apiserver asks itself. Without them no object is made.
const enforced = "OwnerReferencesPermissionEnforcement asks for it, and not the companion"
