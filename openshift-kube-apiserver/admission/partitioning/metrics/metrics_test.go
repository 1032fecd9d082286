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

package metrics

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/activation"
	"workload.openshift.io/partition"
)

type types map[string]activation.State

func (t types) Known(workloadType string) bool { _, known := t[workloadType]; return known }

func (t types) States() map[string]activation.State { return t }

// pods has the names by type; of other types it has not seen all pods.
type pods map[string][]string

func (p pods) NotAllowed(workloadType string) ([]string, bool) {
	names, known := p[workloadType]
	return names, known
}

func TestMetrics(t *testing.T) {
	cluster := types{"management": {Active: true, NodesMissing: 2}, "infra": {NodesMissing: 1}, "new": {Active: true, Unlatched: true}}
	Collect(types{"of another server": {}}, pods{})
	Collect(cluster, pods{"management": {"a/b", "c/d"}, "infra": {}})
	legacyregistry.Reset()
	for _, decision := range []partition.Decision{
		{Outcome: partition.Partitioned, Target: partition.Target{Type: "management"}},
		{Outcome: partition.Partitioned, Target: partition.Target{Type: "management"}},
		{Outcome: partition.Skipped, Target: partition.Target{Type: "infra"}, Reason: partition.ReasonTypeInactive},
		{Outcome: partition.Skipped, Target: partition.Target{Type: "invented-1"}, Reason: partition.ReasonTypeInactive},
		{Outcome: partition.Skipped, Target: partition.Target{Type: "invented-2"}, Reason: partition.ReasonTypeInactive},
		{Outcome: partition.Refused, Reason: partition.ReasonInvalidTarget},
		{Outcome: partition.Ordinary, Reason: partition.ReasonCoresWithoutTarget},
	} {
		CountPod(cluster, decision)
	}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP apiserver_workload_partitioning_active [ALPHA] Whether pods are partitioned as a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_active gauge
apiserver_workload_partitioning_active{workload_type="infra"} 0
apiserver_workload_partitioning_active{workload_type="management"} 1
apiserver_workload_partitioning_active{workload_type="new"} 1
# HELP apiserver_workload_partitioning_nodes_missing [ALPHA] Number of nodes that do not report the cores of a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_nodes_missing gauge
apiserver_workload_partitioning_nodes_missing{workload_type="infra"} 1
apiserver_workload_partitioning_nodes_missing{workload_type="management"} 2
apiserver_workload_partitioning_nodes_missing{workload_type="new"} 0
# HELP apiserver_workload_partitioning_pods_not_allowed [ALPHA] Number of pods in the partition of a workload type whose namespaces do not allow the type.
# TYPE apiserver_workload_partitioning_pods_not_allowed gauge
apiserver_workload_partitioning_pods_not_allowed{workload_type="infra"} 0
apiserver_workload_partitioning_pods_not_allowed{workload_type="management"} 2
# HELP apiserver_workload_partitioning_pods_total [ALPHA] Number of created pods that asked for a workload type, by what became of them and why.
# TYPE apiserver_workload_partitioning_pods_total counter
apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"} 2
apiserver_workload_partitioning_pods_total{outcome="refused",reason="invalid_target",workload_type="other"} 1
apiserver_workload_partitioning_pods_total{outcome="skipped",reason="type_inactive",workload_type="infra"} 1
apiserver_workload_partitioning_pods_total{outcome="skipped",reason="type_inactive",workload_type="other"} 2
# HELP apiserver_workload_partitioning_unlatched [ALPHA] Whether a workload type is active and could not be written to the annotation of kube-system that keeps it so.
# TYPE apiserver_workload_partitioning_unlatched gauge
apiserver_workload_partitioning_unlatched{workload_type="infra"} 0
apiserver_workload_partitioning_unlatched{workload_type="management"} 0
apiserver_workload_partitioning_unlatched{workload_type="new"} 1
`), subsystem+"_active", subsystem+"_nodes_missing", subsystem+"_pods_not_allowed", subsystem+"_pods_total", subsystem+"_unlatched"); err != nil {
		t.Error(err)
	}
}

// Upstream's handler collects in a goroutine that does not recover: a panic would end kube-apiserver.
func TestALabelThatIsNoUTF8CostsOneSeries(t *testing.T) {
	Collect(types{"\xff": {Active: true}, "management": {Active: true}}, pods{})
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP apiserver_workload_partitioning_active [ALPHA] Whether pods are partitioned as a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_active gauge
apiserver_workload_partitioning_active{workload_type="management"} 1
`), subsystem+"_active"); err != nil {
		t.Error(err)
	}
}
