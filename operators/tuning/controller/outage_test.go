// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/companiontest"
)

func TestWhatAnOutageKeepsBackArrivesWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{tunedv1.NodePoolLabel: "a"}}}
		home, hosted := companiontest.NewOffline(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-a", Labels: map[string]string{v1beta1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: "a"}},
			Data:       map[string]string{tunedv1.TuningKey: tunedText("queues", "65536")},
		}), companiontest.NewOffline(node)
		hosted.Away.Store(true)
		c := &Companion{Settings{ControlPlaneNamespace: controlPlane, OperandImage: "registry.invalid/partition-tuned"}}
		c.settings.Default()
		if err := c.AddToManager(t.Context(), companion.Clusters{Home: home, Hosted: hosted}, &configv1alpha1.ControllerConfiguration{Parts: []configv1alpha1.Part{configv1alpha1.Controllers}}); err != nil {
			t.Fatal(err)
		}
		home.Run(t.Context())
		synctest.Wait()

		hosted.Tell(t, node)
		time.Sleep(2 * time.Hour)
		hosted.Away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()

		profile := &tunedv1.Profile{}
		if err := hosted.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "node"}, profile); err != nil || profile.Spec.Config.TunedProfile != "queues" {
			t.Errorf("the node has the profile %q, %v", profile.Spec.Config.TunedProfile, err)
		}
		var tuneds tunedv1.TunedList
		if err := hosted.GetAPIReader().List(t.Context(), &tuneds); err != nil || len(tuneds.Items) != 2 {
			t.Errorf("there are %d Tuneds, %v, want the default and that of the pool", len(tuneds.Items), err)
		}
		if err := hosted.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: operandName}, &appsv1.DaemonSet{}); err != nil {
			t.Errorf("the operand: %v", err)
		}
		if err := home.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.GeneratedName("a")}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("what is generated for the pool: %v", err)
		}
	})
}
