// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/numaresources"
)

// TestOnlyNewsIsLookedAt has both answers of each predicate: one that is turned round looks when nothing has changed.
func TestOnlyNewsIsLookedAt(t *testing.T) {
	now := time.Now()
	report := func(heartbeat time.Duration, attributes ...string) *v1alpha2.NodeResourceTopology {
		object := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{numaresources.HeartbeatAnnotation: now.Add(heartbeat).Format(time.RFC3339)}}}
		for n := 0; n < len(attributes); n += 2 {
			object.Attributes = append(object.Attributes, v1alpha2.AttributeInfo{Name: attributes[n], Value: attributes[n+1]})
		}
		return object
	}
	node := func(label string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": label}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	reports := news(reportsDiffer(func() time.Time { return now }))
	for name, test := range map[string]struct {
		predicate     predicate.Predicate
		before, after client.Object
		want          bool
	}{
		"a heartbeat":                          {reports, report(-5*time.Minute, "topologyManagerPolicy", "none"), report(0, "topologyManagerPolicy", "none"), false},
		"another fingerprint":                  {reports, report(0, "topologyManagerPolicy", "none", "nodeTopologyPodsFingerprint", "1"), report(0, "topologyManagerPolicy", "none", "nodeTopologyPodsFingerprint", "2"), false},
		"another policy":                       {reports, report(0, "topologyManagerPolicy", "none"), report(0, "topologyManagerPolicy", "restricted"), true},
		"a policy that is not known any more":  {reports, report(0, "topologyManagerPolicy", "none"), report(0, "policyUnknown", "KubeletUnreachable"), true},
		"a driver of CPUs":                     {reports, report(0), report(0, "cpuDriver", "dra.cpu"), true},
		"the first heartbeat for a long while": {reports, report(-time.Hour), report(0), true},
		"another label":                        {news(labelsDiffer), node("a", "True"), node("b", "True"), true},
		"a kubelet's report of its Node":       {news(labelsDiffer), node("a", "True"), node("a", "False"), false},
		"a worker that is not ready":           {news(workersDiffer), node("a", "True"), node("a", "Unknown"), true},
		"another label of a worker":            {news(workersDiffer), node("a", "True"), node("b", "True"), false},
	} {
		if got := test.predicate.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestWhatGoesWhileNothingRuns: nothing that must be removed is known from memory alone.
func TestWhatGoesWhileNothingRuns(t *testing.T) {
	c := &cluster{Installed: companiontest.Install(t, Name), kind: clusters["a hosted cluster"]}
	first := startWith(t, c.Installed, nil)
	node(t, c.Installed, "a", c.chosen())
	node(t, c.Installed, "second", map[string]string{"disk": "fast"})
	object := write(t, c.Installed, c.bySelector(nil), nodetopologyv1.NodeGroup{NodeSelector: selecting("disk", "fast")})
	c.set(t, c.group, nil)
	report(t, c.Installed, "a", time.Now(), running("none", "pod")...)
	report(t, c.Installed, "second", time.Now(), running("none", "pod")...)
	restart := func(change func()) {
		t.Helper()
		first.Kill()
		c.FreeLease(t)
		change()
		first = startWith(t, c.Installed, nil)
	}
	restart(func() {
		edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) { now.Spec.NodeGroups = now.Spec.NodeGroups[1:] })
	})
	c.mustBeGone(t, append(ofGroup(c.group), &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "a"}})...)
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "second"}, &v1alpha2.NodeResourceTopology{}); err != nil {
		t.Error(err)
	}
	restart(func() { gone(t, c.Installed, object) })
	c.empty(t)
	var left appsv1.DeploymentList
	if err := c.Client.List(t.Context(), &left, client.InNamespace("partition-numaresources-scheduler")); err != nil || len(left.Items) > 0 {
		t.Errorf("%d Deployments are left: %v", len(left.Items), err)
	}
}
