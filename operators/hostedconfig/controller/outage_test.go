// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/companiontest"
)

func TestWhatAnOutageKeepsBackArrivesWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configMaps := []*corev1.ConfigMap{
			{ObjectMeta: metav1.ObjectMeta{Name: "numa-a", Labels: map[string]string{v1beta1.KubeletConfigLabel: "", v1beta1.PoolLabel: "a"}}, Data: map[string]string{v1beta1.ConfigKey: aKubeletConfig("restricted")}},
			{ObjectMeta: metav1.ObjectMeta{Name: "nodes-a", Labels: map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: "a"}}, Data: map[string]string{"node": ""}},
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		home, hosted := companiontest.NewOffline(), companiontest.NewOffline(node)
		c := &Companion{Settings{ControlPlaneNamespace: namespace}}
		c.settings.Default()
		if err := c.AddToManager(t.Context(), companion.Clusters{Home: home, Hosted: hosted}, &configv1alpha1.ControllerConfiguration{Parts: []configv1alpha1.Part{configv1alpha1.Controllers}}); err != nil {
			t.Fatal(err)
		}
		home.Run(t.Context())
		synctest.Wait()

		hosted.Away.Store(true)
		for _, object := range configMaps {
			object.Namespace = namespace
			if err := home.GetClient().Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			seen := configMapMetadata()
			seen.ObjectMeta = object.ObjectMeta
			home.Tell(t, seen)
		}
		time.Sleep(2 * time.Hour)
		hosted.Away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()

		reader := hosted.GetAPIReader()
		if err := reader.Get(t.Context(), client.ObjectKey{Namespace: v1beta1.HostedKubeletConfigNamespace, Name: "numa-a"}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("the KubeletConfig: %v", err)
		}
		if err := reader.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Labels[v1beta1.PoolLabel] != "a" {
			t.Errorf("the node has the labels %v, %v", node.Labels, err)
		}
	})
}
