/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"workload.openshift.io/partition"
)

// cluster has one type that is active, or would be if that were decided, and one that was
// decided against.
type cluster struct {
	active, against, awaits string
	synced                  bool
}

func (c cluster) Reason(workloadType string) (partition.Reason, string) {
	switch {
	case workloadType == c.active && c.awaits == "":
		return partition.NoReason, ""
	case workloadType == c.active:
		return partition.ReasonTypeInactive, c.awaits
	case workloadType == c.against:
		return partition.ReasonDecidedAgainst, ""
	}
	return partition.ReasonTypeInactive, ""
}

func (c cluster) Synced() bool { return c.synced }

func namespace(name string, annotations map[string]string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func allows(types string) map[string]string {
	return map[string]string{partition.AllowedAnnotation: types}
}

// build returns a gate whose cache has other namespaces than its server.
func build(t *testing.T, types Types, synced bool, cached, live []*v1.Namespace) (*Gate, *fake.Clientset) {
	t.Helper()
	g := New("the test", types, func() bool { return synced })
	if g.Validate() == nil {
		t.Error("a gate without client is valid")
	}
	client, indexer := fake.NewClientset(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, namespace := range live {
		if err := client.Tracker().Add(namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range cached {
		if err := indexer.Add(namespace); err != nil {
			t.Fatal(err)
		}
	}
	g.SetClient(client)
	g.SetNamespaces(corev1listers.NewNamespaceLister(indexer))
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g, client
}

func TestAsk(t *testing.T) {
	one := func(annotations map[string]string) []*v1.Namespace {
		return []*v1.Namespace{namespace("n", annotations)}
	}
	for name, test := range map[string]struct {
		cached, live []*v1.Namespace
		want         partition.Reason
		// ofCache is what the cache alone says, where that is something else.
		ofCache partition.Reason
		unknown bool
		reads   int
		status  func(error) bool
	}{
		"a yes of the cache suffices":      {cached: one(allows("management")), live: one(nil)},
		"a no is read again":               {cached: one(nil), live: one(nil), want: partition.ReasonNamespaceNotAnnotated, ofCache: partition.ReasonNamespaceNotAnnotated, reads: 1},
		"a cache that is behind":           {cached: one(nil), live: one(allows("management")), ofCache: partition.ReasonNamespaceNotAnnotated, reads: 1},
		"a cache with other types only":    {cached: one(allows("other")), live: one(allows("other")), want: partition.ReasonNamespaceOtherTypes, ofCache: partition.ReasonNamespaceOtherTypes, reads: 1},
		"a namespace that is new":          {live: one(allows("management")), unknown: true, reads: 1},
		"a namespace that is nowhere":      {unknown: true, reads: 1, status: apierrors.IsNotFound},
		"a type that is not active is all": {cached: one(allows("infra")), live: one(nil), want: partition.ReasonTypeInactive, ofCache: partition.ReasonTypeInactive, reads: 1},
		"a latch of another type": {cached: one(allows("infra")), live: []*v1.Namespace{namespace("kube-system", map[string]string{partition.EnabledAnnotation: "other"})},
			want: partition.ReasonTypeInactive, ofCache: partition.ReasonTypeInactive, reads: 1},
		"a latch that the cache does not have": {cached: one(allows("infra")), live: []*v1.Namespace{namespace("kube-system", map[string]string{partition.EnabledAnnotation: "infra,other"})},
			ofCache: partition.ReasonTypeInactive, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			workloadType := "management"
			if test.ofCache == partition.ReasonTypeInactive {
				workloadType = "infra"
			}
			g, client := build(t, cluster{active: "management", synced: true}, true, test.cached, test.live)
			if reason, known := g.AskCache("n", workloadType); reason != test.ofCache || known == test.unknown || len(client.Actions()) > 0 {
				t.Errorf("the cache says %q, known: %v, with requests %v", reason, known, client.Actions())
			}
			reason, err := g.Ask(t.Context(), "n", workloadType)
			if reason != test.want || (err != nil) != (test.status != nil) || (err != nil && !test.status(err)) || len(client.Actions()) != test.reads {
				t.Errorf("got %q, %v, with requests %v", reason, err, client.Actions())
			}
		})
	}
	g, client := build(t, cluster{active: "management", synced: true}, true, nil, nil)
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := g.Ask(t.Context(), "n", "management"); err == nil {
		t.Error("a failed read is no answer")
	}
}

// What was decided against has to do with no namespace, and with no cache.
func TestADecisionAgainstATypeComesFirst(t *testing.T) {
	for name, test := range map[string]struct {
		types  cluster
		synced bool
		cached []*v1.Namespace
	}{
		"in a namespace that allows it":     {cluster{against: "management", synced: true}, true, []*v1.Namespace{namespace("n", allows("management"))}},
		"in one that allows others":         {cluster{against: "management", synced: true}, true, []*v1.Namespace{namespace("n", allows("other"))}},
		"in one that is not annotated":      {cluster{against: "management", synced: true}, true, []*v1.Namespace{namespace("n", nil)}},
		"in one that is nowhere":            {cluster{against: "management", synced: true}, true, nil},
		"before nodes are seen":             {cluster{against: "management"}, true, nil},
		"before the caller's caches are":    {cluster{against: "management", synced: true}, false, nil},
		"while another type is not decided": {cluster{against: "management", active: "infra", awaits: "the sky"}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, client := build(t, test.types, test.synced, test.cached, nil)
			if reason, known := g.AskCache("n", "management"); reason != partition.ReasonDecidedAgainst || !known {
				t.Errorf("the cache says %q, known: %v", reason, known)
			}
			if reason, err := g.Ask(t.Context(), "n", "management"); err != nil || reason != partition.ReasonDecidedAgainst || len(client.Actions()) > 0 {
				t.Errorf("got %q, %v, with requests %v", reason, err, client.Actions())
			}
		})
	}
}

// late answers once it has been asked often enough.
type late struct {
	cluster
	asked atomic.Int32
}

func (l *late) Reason(workloadType string) (partition.Reason, string) {
	if l.asked.Add(1) > 3 {
		return partition.NoReason, ""
	}
	return l.cluster.Reason(workloadType)
}

func TestARequestWaitsForADecision(t *testing.T) {
	types := &late{cluster: cluster{active: "management", awaits: "the sky", synced: true}}
	g, _ := build(t, types, true, []*v1.Namespace{namespace("n", allows("management"))}, nil)
	if reason, err := g.Ask(t.Context(), "n", "management"); err != nil || reason != partition.NoReason {
		t.Errorf("got %q, %v", reason, err)
	}
}

func TestNobodyGuesses(t *testing.T) {
	namespaces := []*v1.Namespace{namespace("n", allows("management, infra"))}
	for name, test := range map[string]struct {
		types  cluster
		synced bool
		want   string
	}{
		"nodes are not seen":           {cluster{active: "management"}, true, "the test has not seen the cluster's namespaces and nodes yet; try again"},
		"a cache of the caller is not": {cluster{active: "management", synced: true}, false, "the test has not seen the cluster's namespaces and nodes yet; try again"},
		"an object has not decided": {cluster{active: "management", awaits: `sky "blue" has no status`, synced: true}, true,
			`the test cannot decide on the workload type "management" yet: sky "blue" has no status; try again`},
		"an object has not decided, and nodes are not seen": {cluster{active: "management", awaits: `sky "blue" has no status`}, true,
			`the test cannot decide on the workload type "management" yet: sky "blue" has no status; try again`},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := build(t, test.types, test.synced, namespaces, namespaces)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := g.Ask(ctx, "n", "management"); !apierrors.IsServiceUnavailable(err) || err.Error() != test.want {
				t.Errorf("got %v, want 503 with %s", err, test.want)
			}
			if _, known := g.AskCache("n", "management"); known {
				t.Error("the cache knows")
			}
			if reason, err := g.Ask(ctx, "n", "infra"); test.types.awaits != "" && test.types.synced && (err != nil || reason != partition.ReasonTypeInactive) {
				t.Errorf("a type on which it does not decide got %q, %v", reason, err)
			}
		})
	}
}
