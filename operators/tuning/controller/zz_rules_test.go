// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/companiontest"
)

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that the tests before it
// made it use, and go test goes by the names of the files.
func TestTheRulesOfAllCompanions(t *testing.T) {
	nodes := 0
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		InHosted:  true,
		Object: func(name string) client.Object {
			nodes++ // the Profile of a node that is gone may be there for a moment
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, nodes)}}
		},
		Elsewhere: func(ctx context.Context, i *companiontest.Installed, node client.Object) error {
			return i.Hosted.Client.Get(ctx, client.ObjectKey{Namespace: tunedv1.Namespace, Name: node.GetName()}, &tunedv1.Profile{})
		},
		Unused: map[string]map[companiontest.Right]string{
			Name: {{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: "an Event is patched once it has come again after six minutes"},
			Name + "-hosted": {
				{Verb: "create", Group: "apps", Resource: "daemonsets"}: "the audit log has a patch, which needs this right, too, where the object is new",
				{Verb: "delete", Group: "apps", Resource: "daemonsets"}: "it removes what another version ran under another name",
			},
		},
	})
}
