// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/workloadclasses"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that
// the tests before it made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	const clusterAPI = "no test here has Cluster API's machines"
	const inProcess = "the tests of this run the reconciler in their own process"
	const metrics = "the webhooks' metrics are asked about as the controllers' are, and the tests read those"
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Object: func(name string) client.Object {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ci-workload": "tests"}}}
		},
		Acted: func(object client.Object) bool {
			return object.GetAnnotations()[workloadclasses.ScaleDownDisabledAnnotation] == "true"
		},
		Traces: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				workloadclasses.StateAnnotation:             `{"state":"NoSchedule","since":"2026-11-28T12:00:00Z"}`,
				workloadclasses.OperationAnnotation:         `{"id":"a","phase":"Draining","since":"2026-11-28T12:00:00Z"}`,
				workloadclasses.PrecludeAnnotation:          "tests",
				workloadclasses.ScaleDownDisabledAnnotation: "true",
				// Else the companion itself frees a node of no class.
				nodegroup.PausedAnnotation:              "",
				"nodegroup.workload.openshift.io/claim": `{"owner":"workloadclasses","operation":"a"}`,
			}},
			Spec: corev1.NodeSpec{
				Unschedulable: true,
				Taints:        []corev1.Taint{{Key: workloadclasses.AvoidTaint, Effect: corev1.TaintEffectPreferNoSchedule}, {Key: workloadclasses.EvictTaint, Effect: corev1.TaintEffectNoExecute}},
			},
		},
		Unused: map[string]map[companiontest.Right]string{
			Name: {
				{Verb: "create", Resource: "pods/eviction"}:                                       inProcess,
				{Verb: "list", Group: "cluster.x-k8s.io", Resource: "machinedeployments"}:         clusterAPI,
				{Verb: "list", Group: "cluster.x-k8s.io", Resource: "machinesets"}:                clusterAPI,
				{Verb: "list", Group: "cluster.x-k8s.io", Resource: "machines"}:                   clusterAPI,
				{Verb: "patch", Group: "cluster.x-k8s.io", Resource: "machines"}:                  clusterAPI,
				{Verb: "update", Group: "cluster.x-k8s.io", Resource: "machinedeployments/scale"}: clusterAPI,
				{Verb: "patch", Group: "events.k8s.io", Resource: "events"}:                       "an Event is patched once it has come again after six minutes",
			},
			Name + "-webhooks": {
				{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}:        metrics,
				{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}: metrics,
			},
		},
	})
}
