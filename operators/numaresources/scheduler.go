// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"errors"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// controlPlaneLabel is on a cluster's control-plane nodes, whatever its value is.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// IsWorker reports whether a Node counts as a worker: it is ready and schedulable, and no control-plane node.
func IsWorker(node *corev1.Node) bool {
	if _, controlPlane := node.Labels[controlPlaneLabel]; controlPlane || node.Spec.Unschedulable {
		return false
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ErrNoWorkers is why a scheduler has no number of replicas.
var ErrNoWorkers = errors.New("no Node is ready, schedulable and without the label " + controlPlaneLabel + ", so nothing says how many schedulers there are to be; set spec.replicas")

// SchedulerReplicas returns how many pods of the scheduler there are on a cluster with so many workers.
func SchedulerReplicas(workers int) (int32, error) {
	switch {
	case workers < 1:
		return 0, ErrNoWorkers
	case workers <= 2:
		return 1, nil
	}
	return 3, nil
}

// The scheduler's plugin, and how it is told apart from others.
const (
	SchedulerPlugin = "NodeResourceTopologyMatch"
	// SchedulerConfigKey is the key of the scheduler's configuration in its ConfigMap, and the name of the file.
	SchedulerConfigKey = "config.yaml"
)

// SchedulerConfiguration is what a scheduler is told, in plain values.
type SchedulerConfiguration struct {
	// Name is what pods ask for.
	Name string
	// Lease is the name of that by which replicas agree who works, and Namespace where it is.
	Lease, Namespace string
	Match            MatchArgs
}

// MatchArgs are the arguments of [SchedulerPlugin], as its type NodeResourceTopologyMatchArgs has them
// (sigs.k8s.io/scheduler-plugins/apis/config/v1), without those of its cache: the scheduler has an account of its own.
type MatchArgs struct {
	metav1.TypeMeta `json:",inline"`
	// ScoringStrategy says which of the nodes that fit is best. Nil leaves it to the plugin.
	ScoringStrategy *MatchScoring `json:"scoringStrategy,omitempty"`
}

// MatchScoring is a strategy, and what counts for it.
type MatchScoring struct {
	Type      string           `json:"type,omitempty"`
	Resources []ScoredResource `json:"resources,omitempty"`
}

// ScoredResource is a resource, and how much it counts beside others.
type ScoredResource struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
}

// String returns the configuration as the file has it: a KubeSchedulerConfiguration of one profile, with the plugin at
// every point that it has. What is not set has the scheduler's default.
func (c SchedulerConfiguration) String() string {
	const version = "kubescheduler.config.k8s.io/v1"
	c.Match.TypeMeta = metav1.TypeMeta{APIVersion: version, Kind: SchedulerPlugin + "Args"}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion":     version,
		"kind":           "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{"leaderElect": true, "resourceName": c.Lease, "resourceNamespace": c.Namespace},
		"profiles": []any{map[string]any{
			"schedulerName": c.Name,
			"plugins":       map[string]any{"multiPoint": map[string]any{"enabled": []any{map[string]any{"name": SchedulerPlugin}}}},
			"pluginConfig":  []any{map[string]any{"name": SchedulerPlugin, "args": c.Match}},
		}},
	})
	if err != nil {
		panic(err) // it has plain values alone
	}
	return string(text)
}

// ConfigHash tells one configuration from another, so that what reads it only at its start is started again.
func ConfigHash(config string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(config))
	return fmt.Sprintf("%08x", hash.Sum32())
}
