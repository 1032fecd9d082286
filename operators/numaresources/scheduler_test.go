// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

func TestIsWorker(t *testing.T) {
	node := func(ready corev1.ConditionStatus, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: ready}}}}
		if change != nil {
			change(n)
		}
		return n
	}
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{key: value}} }
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"a node that is ready":                  {node(corev1.ConditionTrue, nil), true},
		"one that is not":                       {node(corev1.ConditionFalse, nil), false},
		"one that has not been heard of lately": {node(corev1.ConditionUnknown, nil), false},
		"one that has never been heard of":      {&corev1.Node{}, false},
		"one that is cordoned":                  {node(corev1.ConditionTrue, func(n *corev1.Node) { n.Spec.Unschedulable = true }), false},
		"a control-plane node":                  {node(corev1.ConditionTrue, label("node-role.kubernetes.io/control-plane", "")), false},
		"one whose label has a value":           {node(corev1.ConditionTrue, label("node-role.kubernetes.io/control-plane", "false")), false},
		"one with a worker's label":             {node(corev1.ConditionTrue, label("node-role.kubernetes.io/worker", "")), true},
	} {
		if got := IsWorker(test.node); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSchedulerReplicas(t *testing.T) {
	for workers, want := range map[int]int32{1: 1, 2: 1, 3: 3, 4: 3, 1000: 3} {
		if got, err := SchedulerReplicas(workers); got != want || err != nil {
			t.Errorf("%d workers: %d replicas (%v), want %d", workers, got, err, want)
		}
	}
	if got, err := SchedulerReplicas(0); got != 0 || !errors.Is(err, ErrNoWorkers) {
		t.Errorf("no workers: %d replicas, and the error is %v", got, err)
	}
}

// TestTheConfigurationIsTheSchedulers reads it as the scheduler does: strictly, by upstream's types.
func TestTheConfigurationIsTheSchedulers(t *testing.T) {
	config := SchedulerConfiguration{
		Name: "by-numa", Lease: "topo-aware-scheduler", Namespace: "n",
		Match: MatchArgs{ScoringStrategy: &MatchScoring{Type: "MostAllocated", Resources: []ScoredResource{{"cpu", 2}}}},
	}
	var read schedulerv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict([]byte(config.String()), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Profiles) != 1 || *read.Profiles[0].SchedulerName != "by-numa" {
		t.Fatalf("the profiles are %+v", read.Profiles)
	}
	profile := read.Profiles[0]
	if enabled := profile.Plugins.MultiPoint.Enabled; len(enabled) != 1 || enabled[0].Name != "NodeResourceTopologyMatch" || len(profile.Plugins.MultiPoint.Disabled) > 0 {
		t.Errorf("the plugins are %+v", profile.Plugins)
	}
	const args = `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"NodeResourceTopologyMatchArgs","scoringStrategy":{"resources":[{"name":"cpu","weight":2}],"type":"MostAllocated"}}`
	if got := string(profile.PluginConfig[0].Args.Raw); profile.PluginConfig[0].Name != "NodeResourceTopologyMatch" || got != args {
		t.Errorf("the arguments are %s, want %s", got, args)
	}
	if election := read.LeaderElection; !*election.LeaderElect || election.ResourceName != "topo-aware-scheduler" || election.ResourceNamespace != "n" {
		t.Errorf("the election is %+v", election)
	}
	plain := SchedulerConfiguration{Name: "a"}
	if strings.Contains(plain.String(), "scoringStrategy") {
		t.Errorf("a strategy that nobody chose is there: %s", plain)
	}
	if ConfigHash(config.String()) == ConfigHash(plain.String()) {
		t.Error("two configurations have one hash")
	}
}
