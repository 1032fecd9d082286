// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/internal/companiontest"
)

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that the tests before it
// made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	sources := 0
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Object: func(name string) client.Object {
			sources++ // a copy stays for a while, and would be taken for that of the next source of its name
			name = fmt.Sprintf("%s-%d", name, sources)
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-hosted", Name: name, Labels: map[string]string{v1beta1.KubeletConfigLabel: "", v1beta1.PoolLabel: name}},
				Data:       map[string]string{v1beta1.ConfigKey: aKubeletConfig("restricted")},
			}
		},
		Elsewhere: func(ctx context.Context, i *companiontest.Installed, source client.Object) error {
			return i.Hosted.Client.Get(ctx, client.ObjectKey{Namespace: v1beta1.HostedKubeletConfigNamespace, Name: source.GetName()}, &corev1.ConfigMap{})
		},
		Unused: map[string]map[companiontest.Right]string{
			Name:             {{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: "an Event is written once for each source"},
			Name + "-hosted": {{Verb: "create", Resource: "namespaces"}: "a test before has made it, and nothing ends a namespace here"},
		},
		Traces: corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}}},
	})
}
