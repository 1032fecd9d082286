// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

// TestWhatIsLeft is about the end, as docs/user/nodepools.md has it: the controllers are gone, the policies go first, then what
// the companion made, and then its identity.
func TestWhatIsLeft(t *testing.T) {
	c := newClusters(t)
	identity := c.install()
	stop := c.start(identity)
	c.source("numa-pool-a", "pool-a", aKubeletConfig("restricted"))
	c.awaitCopies(soon, "numa-pool-a pool-a "+aKubeletConfig("restricted"))
	c.awaitPolicies()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"mine": ""}}}
	c.do(c.hosted.Client.Create(t.Context(), node))
	c.do(c.home.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "nodes-pool-a", Labels: map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: "pool-a"}}, Data: map[string]string{"node-1": ""}}))
	labelled := func(want string) func() error {
		return func() error {
			c.do(c.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node))
			if got := node.Labels[v1beta1.PoolLabel]; got != want || node.Labels["mine"] != "" {
				return fmt.Errorf("its labels are %v", node.Labels)
			}
			return nil
		}
	}
	testenv.Eventually(t, soon, labelled("pool-a"))
	stop()
	c.kubectl("delete", "-f", filepath.Join(hostedManifests(), "admissionpolicies.yaml"))
	// kube-apiserver forgets a policy a moment after it is deleted.
	testenv.Eventually(t, 20*time.Second, func() error {
		clean := testenv.Run(t, "partition-controller", "clean", "--controller="+Name, "--kubeconfig="+c.home.Kubeconfig, "--hosted-kubeconfig="+c.hosted.Kubeconfig)
		if err := clean.Wait(t, time.Minute); err != nil {
			return fmt.Errorf("%w: %s", err, clean.Log())
		}
		return nil
	})
	if got := c.copies(); len(got) > 0 {
		t.Errorf("copies are left: %q", got)
	}
	if err := labelled("")(); err != nil {
		t.Error(err)
	}
	var sources corev1.ConfigMapList
	if c.do(c.home.Client.List(t.Context(), &sources, client.InNamespace(c.namespace), client.HasLabels{v1beta1.KubeletConfigLabel})); len(sources.Items) != 1 {
		t.Errorf("of the sources, which are not its own, %d are left", len(sources.Items))
	}
	var owned corev1.ConfigMapList
	if c.do(c.hosted.Client.List(t.Context(), &owned, client.MatchingLabels{companion.OwnerLabel: Name})); len(owned.Items) > 0 {
		t.Errorf("it has left %d ConfigMaps", len(owned.Items))
	}
}

// TestNoRightIsMissing looks at what the tests before made it try, in both clusters.
func TestNoRightIsMissing(t *testing.T) {
	c := newClusters(t)
	for user, plane := range map[string]*testenv.ControlPlane{
		"system:serviceaccount:partition-hostedconfig:partition-controller": c.home.ControlPlane,
		"system:serviceaccount:partition-hostedconfig:hostedconfig":         c.hosted,
	} {
		file, err := os.Open(plane.AuditLog())
		c.do(err)
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		seen := 0
		for lines.Scan() {
			var event auditv1.Event
			c.do(json.Unmarshal(lines.Bytes(), &event))
			if event.User.Username != user || event.ObjectRef == nil {
				continue
			}
			seen++
			if event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
				t.Errorf("%s may not %s %s/%s %s", user, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource, strings.TrimPrefix(event.ObjectRef.Namespace+"/"+event.ObjectRef.Name, "/"))
			}
		}
		c.do(lines.Err())
		if seen == 0 {
			t.Errorf("%s has done nothing", user)
		}
	}
}
