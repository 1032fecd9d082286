// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/numaresources/alignment"
)

// Zone says whether a NUMA node of a node has room for a pod that waits, by the node's last report. Pods that are on their way to the
// node are not looked at.
type Zone struct {
	Node string `json:"node"`
	// Enough: the kubelet would admit the pod.
	Enough bool `json:"enough"`
	// Reason is a code: one of package alignment, or Unknown if the report cannot be relied upon. It is empty if there is room.
	Reason alignment.Reason `json:"reason,omitempty"`
	// Zone lacks least, and Resource and Missing are what and how much of it.
	Zone     string          `json:"zone,omitempty"`
	Resource v1.ResourceName `json:"resource,omitempty"`
	Missing  string          `json:"missing,omitempty"`
	// Why says the same in words.
	Why string `json:"why,omitempty"`
}

// Unknown is the reason of a node whose report cannot be relied upon.
const Unknown alignment.Reason = "Unknown"

// Waits reports whether a pod waits for a node, and may need zones.
func Waits(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && !status.Ended(pod) && (pod.Status.QOSClass == v1.PodQOSGuaranteed || alignment.MayNeed(pod))
}

// Zones says of each node that has reported NUMA nodes whether one has room for a pod. It is nil if the pod needs none anywhere. Nodes
// that lack least come first.
func Zones(pod *v1.Pod, reports []v1alpha2.NodeResourceTopology, now time.Time) (zones []Zone) {
	needs := false
	for i := range reports {
		report := &reports[i]
		node, err := alignment.Read(report)
		switch {
		case numaresources.IsStale(report.Annotations, now):
			zones = append(zones, Zone{Node: report.Name, Reason: Unknown, Why: "the node's report is older than " + numaresources.Stale.String()})
			continue
		case err != nil:
			zones = append(zones, Zone{Node: report.Name, Reason: Unknown, Why: err.Error()})
			continue
		}
		need := node.Needed(pod)
		needs = needs || need.Any()
		zone := Zone{Node: report.Name, Enough: true}
		if lack := node.Check(need, alignment.Others{}); lack != nil {
			zone = Zone{Node: report.Name, Reason: lack.Reason, Zone: lack.Zone, Resource: lack.Resource, Why: lack.String()}
			if lack.Missing > 0 {
				zone.Missing = lack.Amount()
			}
		}
		zones = append(zones, zone)
	}
	if !needs && !alignment.MayNeed(pod) {
		return nil
	}
	rank := func(z Zone) int {
		return slices.Index([]alignment.Reason{"", alignment.NoZone, alignment.Spanning, alignment.TooLarge, Unknown}, z.Reason)
	}
	slices.SortFunc(zones, func(a, b Zone) int {
		if by := rank(a) - rank(b); by != 0 {
			return by
		}
		return strings.Compare(a.Node, b.Node)
	})
	return zones
}

// ReadReports reads what nodes have reported of their NUMA nodes; none if the cluster does not know such reports.
func ReadReports(ctx context.Context, client kubernetes.Interface, unknown *[]status.Unknown) ([]v1alpha2.NodeResourceTopology, error) {
	data, err := client.Discovery().RESTClient().Get().AbsPath("/apis", v1alpha2.SchemeGroupVersion.Group, v1alpha2.SchemeGroupVersion.Version, "noderesourcetopologies").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, status.Note(unknown, "list noderesourcetopologies.topology.node.k8s.io", "whether a NUMA node has room", err)
	}
	var list v1alpha2.NodeResourceTopologyList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}
