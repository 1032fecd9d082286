// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/internal/companiontest"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that the tests before it
// made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Object: func(name string) client.Object {
			return &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1beta1.NodePoolSpec{ClusterName: "no-such-cluster"}}
		},
		Acted: func(object client.Object) bool { return len(object.(*v1beta1.NodePool).Status.Conditions) > 0 },
		Bound: func(right companiontest.Right) bool { return right.Resource == "secrets" },
		Unused: map[string]map[companiontest.Right]string{
			Name: {
				{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: "an Event is patched once it has come again after six minutes",
			},
		},
	})
}
