// SPDX-License-Identifier: Apache-2.0

// Package plugin is the scheduler's plugin NodeResourceTopologyMatch: upstream's, whose arguments and scores it has, with a filter and
// reservations of ours. It connects package ledger with the scheduler.
//
// Upstream's filter knows the policy single-numa-node alone, and lets a pod pass where a node has not reported. Its account of what
// was bound since is either none, or compared with fingerprints in a loop, for pods of one zone. Scores from such an account and
// decisions from another would be about different nodes, so upstream's Score reads the ledger, and its Filter is not used.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	nrtclient "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/generated/clientset/versioned"
	nrtinformers "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/generated/informers/externalversions"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
	nrtcache "sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology/cache"

	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/numaresources/alignment"
	"workload.openshift.io/scheduler/internal/framework"
	"workload.openshift.io/scheduler/ledger"
)

// Name is the plugin's, and its arguments are upstream's NodeResourceTopologyMatchArgs, of which only scoringStrategy counts.
const Name = noderesourcetopology.Name

// Plugin is the plugin of one profile. All profiles have one ledger.
type Plugin struct {
	framework.Plugin
	scores framework.ScorePlugin
	// compared are the reports that isNews was last asked about.
	compared atomic.Pointer[compared]
	*shared
}

// shared is what the plugins of all profiles have in common.
type shared struct {
	ledger  *ledger.Ledger
	waiting *waiting
	synced  []cache.InformerSynced
}

var (
	_ framework.PreFilterPlugin   = (*Plugin)(nil)
	_ framework.FilterPlugin      = (*Plugin)(nil)
	_ framework.PreScorePlugin    = (*Plugin)(nil)
	_ framework.ScorePlugin       = (*Plugin)(nil)
	_ framework.ReservePlugin     = (*Plugin)(nil)
	_ framework.EnqueueExtensions = (*Plugin)(nil)
)

// Factory returns the function that makes the plugin of each profile, around a ledger.
func Factory(l *ledger.Ledger) frameworkruntime.PluginFactory {
	var all *shared
	return func(ctx context.Context, args runtime.Object, handle framework.Handle) (framework.Plugin, error) {
		noderesourcetopology.NewCache = func(framework.Handle) nrtcache.Interface { return scored{l} }
		upstream, err := noderesourcetopology.New(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		scores, ok := upstream.(framework.ScorePlugin)
		if !ok {
			return nil, fmt.Errorf("upstream's plugin %s does not score", Name)
		}
		if all == nil {
			of := &shared{ledger: l, waiting: &waiting{pods: map[types.UID]*corev1.Pod{}}}
			if err := of.follow(ctx, handle); err != nil {
				return nil, err
			}
			all = of
		}
		return &Plugin{Plugin: upstream, scores: scores, shared: all}, nil
	}
}

// follow keeps the ledger up to date until the context ends. It does not wait for the cluster.
func (s *shared) follow(ctx context.Context, handle framework.Handle) error {
	l := s.ledger
	config := rest.CopyConfig(handle.KubeConfig())
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := nrtclient.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := nrtinformers.NewSharedInformerFactory(client, 0)
	reports, err := factory.Topology().V1alpha2().NodeResourceTopologies().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { l.SetReport(o.(*v1alpha2.NodeResourceTopology)); s.waiting.tell() },
		UpdateFunc: func(_, o any) { l.SetReport(o.(*v1alpha2.NodeResourceTopology)); s.waiting.tell() },
		DeleteFunc: func(o any) {
			if report, ok := last(o).(*v1alpha2.NodeResourceTopology); ok {
				l.RemoveReport(report.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	set := func(o any) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName != "" {
			l.SetPod(pod, pod.Spec.NodeName)
			s.waiting.tell()
		}
	}
	pods, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set,
		UpdateFunc: func(old, o any) {
			before, after := old.(*corev1.Pod), o.(*corev1.Pod)
			if before.UID != after.UID && before.Spec.NodeName != "" {
				l.RemovePod(before.UID, before.Spec.NodeName, true)
			}
			set(o)
		},
		DeleteFunc: func(o any) {
			if pod, ok := last(o).(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				s.gone(ctx, handle.ClientSet(), pod)
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go s.waiting.run(ctx, handle.Activate)
	s.synced = []cache.InformerSynced{reports.HasSynced, pods.HasSynced}
	return nil
}

// last is what was last known of a deleted object.
func last(o any) any {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}

// looking is the pod of a scheduling cycle, as the cycle's state has it under the plugin's name.
type looking struct{ *ledger.Ask }

// Clone implements framework.StateData.
func (l looking) Clone() framework.StateData { return l }

// ask returns the pod of a scheduling cycle, and false if PreFilter has skipped it.
func ask(state framework.CycleState) (*ledger.Ask, bool) {
	data, err := state.Read(Name)
	if err != nil {
		return nil, false
	}
	return data.(looking).Ask, true
}

// preFilter skips pods of which nothing is aligned anywhere.
func (p *Plugin) preFilter(state framework.CycleState, pod *corev1.Pod) *framework.Status {
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed && !alignment.MayNeed(pod) {
		return framework.NewStatus(framework.Skip)
	}
	for _, synced := range p.synced {
		if !synced() {
			p.waiting.add(pod)
			return framework.NewStatus(framework.UnschedulableAndUnresolvable, "the scheduler has not read the nodes' reports yet")
		}
	}
	if node := pod.Status.NominatedNodeName; node != "" && p.ledger.AwaitsRelease(node) {
		p.waiting.add(pod)
		// Else it would look for other pods to evict, while the ones that it has evicted make room.
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf("waiting for the report of node %s, which pods have left for this one", node))
	}
	state.Write(Name, looking{p.ledger.Ask(pod)})
	return nil
}

// PreFilterExtensions implements framework.PreFilterPlugin. Filter reads which pods there are from each node.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter lets a pod pass to a node whose kubelet will admit it.
func (p *Plugin) Filter(_ context.Context, state framework.CycleState, pod *corev1.Pod, node framework.NodeInfo) *framework.Status {
	ask, ok := ask(state)
	if !ok {
		return framework.AsStatus(errNoPreFilter)
	}
	refusal := p.ledger.Check(ask, node.Node().Name, ledger.Pods{Generation: framework.Generation(node), All: framework.Pods(node)})
	switch {
	case refusal == nil:
		return nil
	case refusal.Lack == nil:
		p.waiting.add(pod)
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, refusal.Message)
	case refusal.Lack.Reason == alignment.TooLarge:
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, refusal.Message)
	}
	p.waiting.add(pod)
	return framework.NewStatus(framework.Unschedulable, refusal.Message)
}

var errNoPreFilter = errors.New("Filter was called without PreFilter")

// PreScore skips the pods that PreFilter has skipped: all nodes are alike for them.
func (*Plugin) PreScore(_ context.Context, state framework.CycleState, _ *corev1.Pod, _ []framework.NodeInfo) *framework.Status {
	if _, ok := ask(state); !ok {
		return framework.NewStatus(framework.Skip)
	}
	return nil
}

// Score implements framework.ScorePlugin by upstream's.
func (p *Plugin) Score(ctx context.Context, state framework.CycleState, pod *corev1.Pod, node framework.NodeInfo) (int64, *framework.Status) {
	ask, ok := ask(state)
	if !ok {
		return 0, nil // PreScore has skipped it
	}
	// Upstream formats each report for its log, whether that is written or not, so scores are remembered.
	name := node.Node().Name
	if score, ok := p.ledger.Score(ask, name, framework.Generation(node), p); ok {
		return score, nil
	}
	report := p.ledger.Report(name)
	score, status := p.scores.Score(ctx, state, pod, node)
	if status.IsSuccess() {
		p.ledger.SetScore(ask, name, p, report, score)
	}
	return score, status
}

// ScoreExtensions implements framework.ScorePlugin by upstream's.
func (p *Plugin) ScoreExtensions() framework.ScoreExtensions { return p.scores.ScoreExtensions() }

// Reserve puts a pod into the account of its node before the next pod is looked at.
func (p *Plugin) Reserve(_ context.Context, _ framework.CycleState, pod *corev1.Pod, node string) *framework.Status {
	p.ledger.SetPod(pod, node)
	return nil
}

// Unreserve takes it out again.
func (p *Plugin) Unreserve(_ context.Context, _ framework.CycleState, pod *corev1.Pod, node string) {
	p.ledger.RemovePod(pod.UID, node, false)
}

// EventsToRegister says what may let a pod pass that Filter did not.
func (p *Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		{Event: framework.ClusterEvent{Resource: framework.Node, ActionType: framework.Add}},
		{Event: framework.ClusterEvent{Resource: "noderesourcetopologies.v1alpha2.topology.node.k8s.io", ActionType: framework.Add | framework.Update}, QueueingHintFn: p.isNews},
	}, nil
}

// isNews reports whether a node's report may let a pod pass. A heartbeat does so only if it ends the wait for pods.
func (p *Plugin) isNews(_ klog.Logger, _ *corev1.Pod, old, new any) (framework.QueueingHint, error) {
	before, okBefore := old.(runtime.Object)
	after, okAfter := new.(runtime.Object)
	if !okBefore || !okAfter {
		return framework.Queue, nil
	}
	c := p.compared.Load()
	if c == nil || c.before != before || c.after != after {
		was, is, err := both(before, after)
		if err != nil {
			return framework.Queue, err
		}
		c = &compared{before, after, was, is, equality.Semantic.DeepEqual(was.Zones, is.Zones) && equality.Semantic.DeepEqual(was.Attributes, is.Attributes)}
		p.compared.Store(c)
	}
	if c.same && !isLate(c.was, c.is) && !p.ledger.Waits(c.is.Name) {
		return framework.QueueSkip, nil
	}
	return framework.Queue, nil
}

// compared are two reports of a node as the scheduler has read them, and whether they say the same but for the heartbeat. The scheduler
// asks about the same two for each pod that waits.
type compared struct {
	before, after runtime.Object
	was, is       *v1alpha2.NodeResourceTopology
	same          bool
}

func both(old, new runtime.Object) (*v1alpha2.NodeResourceTopology, *v1alpha2.NodeResourceTopology, error) {
	var reports [2]*v1alpha2.NodeResourceTopology
	for i, object := range []runtime.Object{old, new} {
		reports[i] = &v1alpha2.NodeResourceTopology{}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, reports[i])
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return reports[0], reports[1], nil
}

// isLate reports whether a report had become stale before the next one.
func isLate(was, is *v1alpha2.NodeResourceTopology) bool {
	return numaresources.IsStale(was.Annotations, time.Now()) && !numaresources.IsStale(is.Annotations, time.Now())
}

// scored is the cache that upstream's Score reads.
type scored struct{ ledger *ledger.Ledger }

// GetCachedNRTCopy implements upstream's interface.
func (s scored) GetCachedNRTCopy(_ context.Context, node string, _ *corev1.Pod) (*v1alpha2.NodeResourceTopology, nrtcache.CachedNRTInfo) {
	return s.ledger.Report(node), nrtcache.CachedNRTInfo{Fresh: true}
}

// The rest of upstream's interface is about its own filter and reservations.

func (scored) NodeMaybeOverReserved(string, *corev1.Pod)  {}
func (scored) NodeHasForeignPods(string, *corev1.Pod)     {}
func (scored) ReserveNodeResources(string, *corev1.Pod)   {}
func (scored) UnreserveNodeResources(string, *corev1.Pod) {}
func (scored) PostBind(string, *corev1.Pod)               {}
