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

package activation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// start runs a tracker against a fake API with the objects, in the order in which
// kube-apiserver initialises its plugins.
func start(t *testing.T, objects ...runtime.Object) (*Tracker, *fake.Clientset) {
	t.Helper()
	return startWith(t, config.Activation{}, nil, objects...)
}

// startWith has a configuration, and a client of the object that it names.
func startWith(t *testing.T, settings config.Activation, dynamic dynamic.Interface, objects ...runtime.Object) (*Tracker, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	tracker := New(settings)
	go tracker.Run(t.Context())
	tracker.SetClient(client)
	if dynamic != nil {
		tracker.SetDynamicClient(t.Context(), dynamic)
	}
	if err := tracker.SetInformers(factory.Core().V1().Nodes().Informer(), factory.Core().V1().Namespaces().Informer()); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	partitiontest.Eventually(t, "the caches are filled", tracker.Synced)
	return tracker, client
}

func TestATypeBecomesActiveAndStaysSo(t *testing.T) {
	tracker, client := start(t, partitiontest.Namespace("kube-system", "", ""))
	ctx := t.Context()
	if tracker.States()["management"].Active {
		t.Error("active without nodes")
	}
	nodes := client.CoreV1().Nodes()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(nodes.Create(ctx, partitiontest.Node("a"), metav1.CreateOptions{}))
	must(nodes.Create(ctx, partitiontest.Node("b", "management"), metav1.CreateOptions{}))
	partitiontest.Eventually(t, "both nodes are seen", func() bool { tracker.mu.Lock(); defer tracker.mu.Unlock(); return tracker.nodes == 2 })
	if tracker.States()["management"].Active {
		t.Error("active though node a has no pool")
	}
	must(nodes.Update(ctx, partitiontest.Node("a", "management"), metav1.UpdateOptions{}))
	partitiontest.Eventually(t, "the type is active", func() bool { return tracker.States()["management"].Active })
	latched := func() string {
		kubeSystem, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		must(nil, err)
		return kubeSystem.Annotations[partition.EnabledAnnotation]
	}
	partitiontest.Eventually(t, "the type is latched", func() bool { return latched() == "management" })
	partitiontest.Eventually(t, "the latch is read", func() bool {
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		return tracker.latched["management"]
	})
	must(nodes.Create(ctx, partitiontest.Node("c"), metav1.CreateOptions{}))
	partitiontest.Eventually(t, "three nodes are seen", func() bool { tracker.mu.Lock(); defer tracker.mu.Unlock(); return tracker.nodes == 3 })
	if !tracker.States()["management"].Active {
		t.Error("no longer active after a node without pool joined")
	}
	partitiontest.Eventually(t, "node c has an Event", func() bool {
		events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		must(nil, err)
		activated := slices.IndexFunc(events.Items, func(event v1.Event) bool {
			return event.Reason == eventActivated && event.InvolvedObject.Name == "kube-system" && strings.Contains(event.Message, "management")
		})
		if activated < 0 {
			return false
		}
		events.Items = slices.Delete(events.Items, activated, activated+1)
		for _, event := range events.Items {
			if event.Reason != eventNodeMissing || event.InvolvedObject.Name != "c" || !strings.Contains(event.Message, "management.workload.openshift.io/cores") {
				t.Errorf("an unwanted Event: %v", event)
			}
		}
		return len(events.Items) == 1
	})
	must(client.CoreV1().Namespaces().Update(ctx, partitiontest.Namespace("kube-system", "", ""), metav1.UpdateOptions{}))
	partitiontest.Eventually(t, "the type is off after the administrator removed the latch", func() bool { return !tracker.States()["management"].Active })
	must(nil, nodes.Delete(ctx, "c", metav1.DeleteOptions{}))
	partitiontest.Eventually(t, "it is active again once the rule holds", func() bool { return tracker.States()["management"].Active })
	partitiontest.Eventually(t, "and latched", func() bool { return latched() == "management" })
}

func TestNothingIsLatchedBeforeAllNodesAreSeen(t *testing.T) {
	tracker, client := start(t, partitiontest.Node("a", "management"), partitiontest.Node("b"), partitiontest.Node("c"), partitiontest.Namespace("kube-system", partition.EnabledAnnotation, "other"))
	time.Sleep(300 * time.Millisecond)
	latched := func() string {
		kubeSystem, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return kubeSystem.Annotations[partition.EnabledAnnotation]
	}
	if got := latched(); got != "other" || tracker.States()["management"].Active {
		t.Errorf("latched is %q", got)
	}
	if err := client.CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=a"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		_ = client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), partitiontest.Node("a", "management"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	partitiontest.Eventually(t, "the type is added to what was latched", func() bool { return latched() == "management,other" })
}

func TestTheLatchIsWrittenAgainAfterAFailure(t *testing.T) {
	tracker := New(config.Activation{})
	synced := false
	seen := func() bool { was := synced; synced = true; return was }
	tracker.SetSynced(seen)
	tracker.NodeChanged(nil, partitiontest.Node("a", "management"))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	calls := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		tracker.run(ctx, func(_ context.Context, types []string) ([]string, error) {
			if calls > 0 && !tracker.States()["management"].Unlatched {
				t.Error("the gauge does not tell of the failure")
			}
			calls++
			if !slices.Equal(types, []string{"management"}) {
				t.Errorf("latches %v", types)
			}
			if calls == 1 {
				return nil, errors.New("kube-system does not exist")
			}
			cancel()
			return types, nil
		})
	}()
	<-done
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
	if tracker.States()["management"].Unlatched {
		t.Error("the gauge still tells of the failure")
	}
	errorLines := 0
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError && strings.Contains(entry.Message, "could not be latched") && entry.Err != nil {
			errorLines++
		}
	}
	if errorLines != 1 {
		t.Errorf("the log has %d errors about the failure, want one", errorLines)
	}
}

// Nodes that have no kubelet of ours keep no type from becoming active.
func TestNodesThatDoNotCountKeepNoTypeInactive(t *testing.T) {
	labelled := func(name string, labels map[string]string, types ...string) *v1.Node {
		n := partitiontest.Node(name, types...)
		n.Labels = labels
		return n
	}
	for name, test := range map[string]struct {
		labels map[string]string
		counts bool
	}{
		"no label":          {nil, true},
		"Linux":             {map[string]string{v1.LabelOSStable: "linux"}, true},
		"Windows":           {map[string]string{v1.LabelOSStable: "windows"}, false},
		"virtual":           {map[string]string{v1.LabelOSStable: "linux", "type": "virtual-kubelet"}, false},
		"to be ignored":     {map[string]string{"workload.openshift.io/partitioning": "ignore"}, false},
		"another such word": {map[string]string{"workload.openshift.io/partitioning": "yes", "type": "worker"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := New(config.Activation{})
			seen := func() bool { return true }
			tracker.SetSynced(seen)
			var missing []string
			tracker.missing = func(node *v1.Node, workloadType string) { missing = append(missing, node.Name) }
			tracker.NodeChanged(nil, partitiontest.Node("a", "management"))
			tracker.NodeChanged(nil, labelled("b", test.labels))
			if tracker.States()["management"].Active == test.counts {
				t.Errorf("active: %v", tracker.States()["management"].Active)
			}
			if !test.counts && len(missing) > 0 {
				t.Errorf("Events for %v", missing)
			}
			// A label that comes or goes counts like a change of capacity.
			tracker.NodeChanged(labelled("b", test.labels), labelled("b", map[string]string{v1.LabelOSStable: "windows"}))
			if !tracker.States()["management"].Active {
				t.Error("not active once the label says that the node does not count")
			}
			tracker.NodeChanged(labelled("b", map[string]string{v1.LabelOSStable: "windows"}), partitiontest.Node("b"))
			if tracker.States()["management"].Active {
				t.Error("active once the node counts again")
			}
			tracker.NodeChanged(partitiontest.Node("b"), nil)
			tracker.NodeChanged(partitiontest.Node("a", "management"), nil)
			tracker.NodeChanged(nil, labelled("c", map[string]string{v1.LabelOSStable: "windows"}, "management"))
			if tracker.States()["management"].Active || tracker.nodes != 0 {
				t.Errorf("active without a node that counts; %d are counted", tracker.nodes)
			}
		})
	}
}

// A Node's status is its kubelet's to write, and the API server takes names of capacity in any bytes.
func TestWhatNodesCallTheirResourcesIsBounded(t *testing.T) {
	node := func(name string, types ...string) *v1.Node { return partitiontest.Node(name, types...) }
	many := func(from, n int) (types []string) {
		for i := range n {
			types = append(types, fmt.Sprintf("type-%05d", from+i))
		}
		return types
	}
	for name, test := range map[string]struct {
		nodes []*v1.Node
		want  []string // that are active
		known int
	}{
		"a name that is not UTF-8 is not a type":      {[]*v1.Node{node("a", "management", "\xff"), node("b", "management", "\xff")}, []string{"management"}, 1},
		"a name with a comma is not a type":           {[]*v1.Node{node("a", "management", "a,b")}, []string{"management"}, 1},
		"nor one that no pod can ask for":             {[]*v1.Node{node("a", "Management", "a.b", "-", "requests", "hugepages-x", strings.Repeat("a", 64))}, nil, 0},
		"of 10,000 types of one node, some count":     {[]*v1.Node{node("a", many(0, 10_000)...)}, many(0, 32), 32},
		"what only one of several nodes says is none": {[]*v1.Node{node("a", append(many(0, 10_000), "management")...), node("b", "management")}, []string{"management"}, 1},
		"two nodes that lie make some known, and what all report comes first": {
			[]*v1.Node{node("a", append(many(0, 31), "management")...), node("b", append(many(0, 31), "management")...), node("c", "management")}, []string{"management"}, 32},
		"many nodes that lie make no more": {
			[]*v1.Node{node("a", many(0, 32)...), node("b", many(0, 32)...), node("c", many(100, 32)...), node("d", many(100, 32)...)}, nil, 32},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := New(config.Activation{})
			tracker.SetSynced(func() bool { return true })
			for _, node := range test.nodes {
				tracker.NodeChanged(nil, node)
			}
			var active []string
			for workloadType, state := range tracker.States() {
				if state.Active {
					active = append(active, workloadType)
				}
			}
			slices.Sort(active)
			if !slices.Equal(active, test.want) || len(tracker.States()) != test.known {
				t.Errorf("%d types are known, want %d; active are %q, want %q", len(tracker.States()), test.known, active, test.want)
			}
			if missing := tracker.unlatched(); !slices.Equal(missing, test.want) {
				t.Errorf("%q are to be latched, want %q", missing, test.want)
			}
			for _, node := range test.nodes {
				tracker.NodeChanged(node, nil)
			}
			if len(tracker.reporting) > 0 || tracker.nodes != 0 {
				t.Errorf("once the nodes are gone, %d remain, and %v", tracker.nodes, tracker.reporting)
			}
		})
	}
}

// A kubelet may report other names each time, and as many nodes as there are may lie.
func TestNodesDoNotFillTheLog(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	defer klog.CaptureState().Restore()
	klog.SetLogger(logger)
	tracker := New(config.Activation{})
	tracker.SetSynced(func() bool { return true })
	for i := range 100 {
		name := fmt.Sprint("n", i)
		honest, liar := partitiontest.Node(name, "management"), partitiontest.Node(name, "management", fmt.Sprintf("\xff%d", i))
		tracker.NodeChanged(nil, honest)
		tracker.NodeChanged(honest, liar)
		tracker.NodeChanged(liar, honest)
	}
	log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if lines := strings.Count(log, "Ignoring resources of a node"); lines != 1 {
		t.Errorf("the log has %d lines, want one:\n%s", lines, log)
	}
}

// The latch was perhaps written by an earlier version, or by hand.
func TestTheLatchIsBounded(t *testing.T) {
	tracker := New(config.Activation{})
	tracker.SetSynced(func() bool { return true })
	latch := "management, \xff, Upper"
	for i := range 40 {
		latch += fmt.Sprintf(",type-%02d", i)
	}
	tracker.LatchChanged(partitiontest.Namespace("kube-system", partition.EnabledAnnotation, latch))
	tracker.NodeChanged(nil, partitiontest.Node("a", "another"))
	states := tracker.States()
	if len(states) != 32 || !states["management"].Active || !states["type-30"].Active || states["another"].Active {
		t.Errorf("%d types are known: %v", len(states), states)
	}
	if missing := tracker.unlatched(); len(missing) > 0 {
		t.Errorf("%q are to be latched, though the latch is full", missing)
	}
}

// Pods that were stored before the plugin was there were never judged.
func TestAnEventNamesPodsThatTheirNamespacesDoNotAllow(t *testing.T) {
	for want, pods := range map[string][]string{
		"The partition management has pods whose namespaces do not allow it: 1, the first of them a/b. ":           {"a/b"},
		"The partition management has pods whose namespaces do not allow it: 4, the first of them a/b, a/c, a/d. ": {"a/b", "a/c", "a/d", "a/e"},
		"": nil,
	} {
		client := fake.NewClientset(partitiontest.Namespace("kube-system", "", ""))
		tracker := New(config.Activation{})
		tracker.SetClient(client)
		tracker.SetPods(func(context.Context, string) []string { return pods })
		tracker.latchedNow(t.Context(), []string{"management"})
		var got string
		partitiontest.Eventually(t, "the Events are sent", func() bool {
			events, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, event := range events.Items {
				if event.Reason == eventNotAllowed && event.Type == v1.EventTypeWarning && event.InvolvedObject.Name == "kube-system" {
					got = event.Message
				}
			}
			return len(events.Items) > 0 && (got != "") == (want != "")
		})
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		tracker.events.Shutdown()
	}
}
