// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// scheduler places pods by the filter and score plugins of kube-scheduler, with the weights of its
// default profile. Left out are those for what no pod here has: volumes, devices and groups.
type scheduler struct {
	framework framework.Framework
	nodes     *nodeInfos
	random    *rand.Rand
	// next is where the search for nodes begins; it goes round.
	next int
}

// used are plugins of the default profile.
var used = []string{
	names.PrioritySort, names.DefaultBinder,
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
	names.PodTopologySpread, names.InterPodAffinity, names.NodeResourcesBalancedAllocation, names.ImageLocality,
}

// newScheduler returns a scheduler without nodes. It spreads pods, as by default, or packs them
// (NodeResourcesFit's MostAllocated).
func newScheduler(ctx context.Context, packs bool, seed uint64) (*scheduler, error) {
	metrics.InitMetrics()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := &defaults.Profiles[0]
	profile.Plugins.MultiPoint.Enabled = slices.DeleteFunc(profile.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return !slices.Contains(used, p.Name) })
	for _, c := range profile.PluginConfig {
		if args, ok := c.Args.(*config.NodeResourcesFitArgs); ok && packs {
			args.ScoringStrategy.Type = config.MostAllocated
		}
	}
	s := &scheduler{nodes: &nodeInfos{}, random: rand.New(rand.NewPCG(seed, 3))}
	client := fake.NewClientset()
	s.framework, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(s.nodes),
		frameworkruntime.WithParallelism(1))
	return s, err
}

// place returns the node for a pod; empty if none fits.
func (s *scheduler) place(ctx context.Context, pod *corev1.Pod) (string, error) {
	state := framework.NewCycleState()
	wanted, status, _ := s.framework.RunPreFilterPlugins(ctx, state, pod)
	if status.IsRejected() {
		return "", nil
	}
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	all := len(s.nodes.list)
	var feasible []fwk.NodeInfo
	looked := 0
	for ; looked < all && len(feasible) < enough(all); looked++ {
		info := s.nodes.list[(s.next+looked)%all]
		if !wanted.AllNodes() && !wanted.NodeNames.Has(info.Node().Name) {
			continue
		}
		status := s.framework.RunFilterPlugins(ctx, state, pod, info)
		if status.IsSuccess() {
			feasible = append(feasible, info)
		} else if !status.IsRejected() {
			return "", status.AsError()
		}
	}
	if all > 0 {
		s.next = (s.next + looked) % all
	}
	switch len(feasible) {
	case 0:
		return "", nil
	case 1:
		return feasible[0].Node().Name, nil
	}
	if status := s.framework.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return "", status.AsError()
	}
	scores, status := s.framework.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	best := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) })
	scores = slices.DeleteFunc(scores, func(score fwk.NodePluginScores) bool { return score.TotalScore < best.TotalScore })
	return scores[s.random.IntN(len(scores))].Name, nil
}

// enough is how many nodes that fit kube-scheduler looks for, of so many.
func enough(nodes int) int { return max(100, nodes*max(5, 50-nodes/125)/100) }

// nodeInfos are the nodes, as plugins see them.
type nodeInfos struct {
	fwk.SharedLister // plugins that are used do not ask for the rest
	list             []fwk.NodeInfo
}

// NodeInfos implements fwk.SharedLister.
func (n *nodeInfos) NodeInfos() fwk.NodeInfoLister { return n }

// List implements fwk.NodeInfoLister.
func (n *nodeInfos) List() ([]fwk.NodeInfo, error) { return n.list, nil }

// HavePodsWithAffinityList implements fwk.NodeInfoLister.
func (n *nodeInfos) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return nil, nil }

// HavePodsWithRequiredAntiAffinityList implements fwk.NodeInfoLister.
func (n *nodeInfos) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) { return nil, nil }

// HavePodsWithRequiredNonHostScopedAntiAffinityList implements fwk.NodeInfoLister.
func (n *nodeInfos) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return nil, nil
}

// Get implements fwk.NodeInfoLister.
func (n *nodeInfos) Get(name string) (fwk.NodeInfo, error) {
	if info := n.info(name); info != nil {
		return info, nil
	}
	return nil, fmt.Errorf("there is no node %s", name)
}

func (n *nodeInfos) info(name string) *framework.NodeInfo {
	for _, info := range n.list {
		if info.Node().Name == name {
			return info.(*framework.NodeInfo)
		}
	}
	return nil
}

func (n *nodeInfos) add(node *corev1.Node) {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	n.list = append(n.list, info)
}

func (n *nodeInfos) remove(name string) {
	n.list = slices.DeleteFunc(n.list, func(info fwk.NodeInfo) bool { return info.Node().Name == name })
}

// bind adds a pod to its node, and unbind removes it.
func (n *nodeInfos) bind(pod *corev1.Pod) { n.info(pod.Spec.NodeName).AddPod(pod) }

func (n *nodeInfos) unbind(pod *corev1.Pod) {
	if info := n.info(pod.Spec.NodeName); info != nil {
		_ = info.RemovePod(klog.Background(), pod) // it was added
	}
}
