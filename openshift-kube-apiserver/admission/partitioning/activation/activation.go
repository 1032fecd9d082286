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

// Package activation knows which workload types are active in a cluster (design, section
// 4.2): what nodes report, what the latch on kube-system remembers, and what the
// configuration or OpenShift's object Infrastructure decides in their place. It reports
// nodes without an active type (section 4.5).
//
// It knows nodes and the namespace kube-system. Pods, other namespaces and requests it must
// not know; it imports nothing of k8s.io/kubernetes, so whatever serves admission can use it.
package activation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
)

// Tracker knows which workload types are active. It counts nodes as events arrive, so a
// pod's admission costs the same in a cluster of one node and of 15,000, and keeps nothing
// for each node. Make one with [New]; call SetClient before the informers, and Run once.
type Tracker struct {
	source config.Source
	client kubernetes.Interface
	events record.EventBroadcaster

	mu    sync.Mutex
	nodes int
	// reporting counts the nodes that report the cores of a type.
	reporting map[string]int
	// latched are the types of the annotation on kube-system.
	latched map[string]bool
	// decided are the types for which the configuration, or the object that it names,
	// decides, and how. Neither nodes nor the latch have a say in them.
	decided map[string]bool
	// awaits names the object that decides, and says what it lacks for that; see verdict.
	awaits string
	// logged is when a line about the names of nodes' resources was logged last.
	logged atomic.Pointer[time.Time]
	// crowded: more types are reported than are counted.
	crowded bool

	// types is what requests read of each type that the cluster knows: that nodes report, that is
	// latched, or that the configuration lists.
	types atomic.Pointer[map[string]typeState]
	// failed is set while the latch cannot be written.
	failed atomic.Bool
	// latchedNow, if not nil, is called with the types that this server has latched.
	latchedNow func(ctx context.Context, workloadTypes []string)
	// notAllowed is what SetPods was given, or nil.
	notAllowed func(ctx context.Context, workloadType string) []string
	// missing is told of each node that joins or changes without the cores of an active
	// type; it must not block. It may be nil.
	missing func(node *v1.Node, workloadType string)
	// changed wakes the writer of the latch.
	changed chan struct{}
	// seen reports whether all nodes and the latch have been seen; nil before SetSynced.
	seen atomic.Pointer[func() bool]
}

// New returns a tracker that has seen nothing yet: only types that the configuration lists
// are active.
func New(settings config.Activation) *Tracker {
	t := &Tracker{source: settings.Source, events: record.NewBroadcaster(),
		reporting: map[string]int{}, latched: map[string]bool{}, decided: map[string]bool{}, changed: make(chan struct{}, 1)}
	for _, workloadType := range settings.Types {
		t.decided[workloadType] = settings.Source == config.SourceTypes
	}
	if settings.Source == config.SourceInfrastructure {
		t.awaits = notRead.awaits
	}
	t.publish()
	return t
}

// SetClient gives the client that writes the latch and Events.
func (t *Tracker) SetClient(client kubernetes.Interface) {
	t.client = client
	t.record()
}

// SetInformers follows the nodes, and the namespace with the latch, and has Synced wait for
// both. It returns an error if an informer has been stopped already.
func (t *Tracker) SetInformers(nodes, namespaces cache.SharedIndexInformer) error {
	nodeHandler, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { t.NodeChanged(nil, asNode(object)) },
		UpdateFunc: func(before, after any) { t.NodeChanged(asNode(before), asNode(after)) },
		DeleteFunc: func(object any) { t.NodeChanged(asNode(object), nil) },
	})
	if err != nil {
		return err
	}
	namespaceHandler, err := namespaces.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			namespace := asNamespace(object)
			return namespace != nil && namespace.Name == metav1.NamespaceSystem
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { t.LatchChanged(asNamespace(object)) },
			UpdateFunc: func(_, after any) { t.LatchChanged(asNamespace(after)) },
			DeleteFunc: func(any) { t.LatchChanged(nil) },
		},
	})
	if err != nil {
		return err
	}
	t.SetSynced(func() bool { return nodeHandler.HasSynced() && namespaceHandler.HasSynced() && namespaces.HasSynced() })
	return nil
}

// SetSynced gives what reports whether all nodes and the latch have been seen, for callers
// that have no informers to give, and call NodeChanged and LatchChanged themselves.
func (t *Tracker) SetSynced(seen func() bool) { t.seen.Store(&seen) }

// Synced reports whether all nodes and the latch have been seen. Before that a rule that
// seems to hold may not, and what is latched cannot be taken back.
func (t *Tracker) Synced() bool {
	seen := t.seen.Load()
	return seen != nil && (*seen)()
}

// Reason says what keeps pods from being partitioned as the type, whatever their namespace:
// [partition.ReasonDecidedAgainst], [partition.ReasonTypeInactive], or nothing. If nothing has
// been decided, awaits names the object that must decide and says what it lacks. It takes no
// lock.
func (t *Tracker) Reason(workloadType string) (reason partition.Reason, awaits string) {
	state := (*t.types.Load())[workloadType]
	switch {
	case state.active:
		return partition.NoReason, ""
	case state.configured && state.awaits == "":
		return partition.ReasonDecidedAgainst, ""
	}
	return partition.ReasonTypeInactive, state.awaits
}

// Known reports whether the cluster knows the type, so that it may be the label of a metric.
func (t *Tracker) Known(workloadType string) bool {
	_, known := (*t.types.Load())[workloadType]
	return known
}

// State is what is known of a workload type.
type State struct {
	// Active: pods are partitioned as the type.
	Active bool
	// NodesMissing is the number of nodes that count and do not report the type.
	NodesMissing int
	// Latched: the annotation on kube-system has the type.
	Latched bool
	// Unlatched: the annotation should have the type, and cannot be written.
	Unlatched bool
}

// States returns the state of each type that the cluster knows.
func (t *Tracker) States() map[string]State {
	t.mu.Lock()
	defer t.mu.Unlock()
	states := map[string]State{}
	for workloadType, state := range *t.types.Load() {
		latched := t.latched[workloadType]
		states[workloadType] = State{
			Active:       state.active,
			NodesMissing: t.nodes - t.reporting[workloadType],
			Latched:      latched,
			Unlatched:    state.active && !state.configured && !latched && t.failed.Load(),
		}
	}
	return states
}

// typeState is what requests read of a type.
type typeState struct {
	active bool
	// configured: the nodes have no say in it.
	configured bool
	// awaits is the tracker's, for a type that is configured.
	awaits string
}

// decide sets what the object says of the types that the nodes do not decide.
func (t *Tracker) decide(now verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for workloadType := range t.decided {
		t.decided[workloadType] = now.active
	}
	t.awaits = now.awaits
	t.publish()
}

// final returns the last known state of a deleted object.
func final(object any) any {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return object
}

func asNode(object any) *v1.Node {
	node, _ := final(object).(*v1.Node)
	return node
}

func asNamespace(object any) *v1.Namespace {
	namespace, _ := final(object).(*v1.Namespace)
	return namespace
}

// reported returns those types of nodes that the cluster knows: all nodes report them, or at least two do. What a single
// one of several says makes no type known. Of more than most types it returns those that most nodes report, so that active
// types come first. The caller holds the lock.
func (t *Tracker) reported(most int) []string {
	var types []string
	for workloadType, reporting := range t.reporting {
		if (reporting == t.nodes || reporting > 1) && !t.latched[workloadType] {
			types = append(types, workloadType)
		}
	}
	if crowded := len(types) > most; crowded {
		slices.SortFunc(types, func(a, b string) int {
			return cmp.Or(cmp.Compare(t.reporting[b], t.reporting[a]), cmp.Compare(a, b))
		})
		if !t.crowded && t.mayLog() {
			klog.Background().Info("Nodes report more workload types than are counted; the others are unknown, and their pods stay ordinary", "most", maxTypes, "first", types[most])
		}
		t.crowded, types = true, types[:most]
	} else {
		t.crowded = false
	}
	return types
}

// publish recomputes what requests read. The caller holds the lock.
func (t *Tracker) publish() {
	types := make(map[string]typeState, len(t.latched)+len(t.decided))
	for workloadType := range t.latched {
		types[workloadType] = typeState{active: true}
	}
	for _, workloadType := range t.reported(maxTypes - len(types)) {
		// There is a node if one reports.
		types[workloadType] = typeState{active: t.reporting[workloadType] == t.nodes}
	}
	for workloadType, active := range t.decided {
		types[workloadType] = typeState{active: active, configured: true, awaits: t.awaits}
	}
	t.types.Store(&types)
	select {
	case t.changed <- struct{}{}:
	default:
	}
}
