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

// cluster has one active type.
type cluster struct {
	active, awaits string
	synced         bool
}

func (c cluster) Active(workloadType string) bool { return workloadType == c.active }

func (c cluster) Awaits(workloadType string) string {
	if workloadType == c.active {
		return c.awaits
	}
	return ""
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
		"a type that is not active is all": {cached: one(allows("infra")), live: one(nil), want: partition.ReasonTypeInactive, ofCache: partition.ReasonTypeInactive},
	} {
		t.Run(name, func(t *testing.T) {
			workloadType := "management"
			if test.want == partition.ReasonTypeInactive {
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

func TestNobodyGuesses(t *testing.T) {
	namespaces := []*v1.Namespace{namespace("n", allows("management, infra"))}
	for name, test := range map[string]struct {
		types  cluster
		synced bool
		want   string
	}{
		"nodes are not seen":           {cluster{active: "management"}, true, "the test has not seen the cluster's namespaces and nodes yet; try again"},
		"a cache of the caller is not": {cluster{active: "management", synced: true}, false, "the test has not seen the cluster's namespaces and nodes yet; try again"},
		"an object is not": {cluster{active: "management", awaits: `sky "blue"`, synced: true}, true,
			`the test has not seen the sky "blue" yet, which decides on the workload type "management"; try again`},
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
			if reason, err := g.Ask(ctx, "n", "infra"); test.types.awaits != "" && (err != nil || reason != partition.ReasonTypeInactive) {
				t.Errorf("a type on which it does not decide got %q, %v", reason, err)
			}
		})
	}
}
