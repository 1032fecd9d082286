// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"fmt"
	"hash/fnv"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// HostedName is the name that the Tuned of a NodePool has in the hosted cluster: two NodePools may have Tuneds of one name
// (MakeTunedUnique in pkg/operator/hypershift.go of the Node Tuning Operator).
func HostedName(tuned, pool string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pool))
	return fmt.Sprintf("%s-%08x", tuned, hash.Sum32())
}

// Hosted is the Tuned of a NodePool as the hosted cluster has it.
func Hosted(tuned *tunedv1.Tuned, pool string) *tunedv1.Tuned {
	hosted := &tunedv1.Tuned{
		TypeMeta: metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Tuned"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   tunedv1.Namespace,
			Name:        HostedName(tuned.Name, pool),
			Labels:      map[string]string{},
			Annotations: map[string]string{tunedv1.DeferredAnnotation: tunedv1.DeferNever},
		},
		Spec: *tuned.Spec.DeepCopy(),
	}
	// A copy keeps annotations that its source has lost, since they may be somebody else's. This one is always written.
	maps.Copy(hosted.Annotations, tuned.Annotations)
	maps.Copy(hosted.Labels, tuned.Labels)
	hosted.Labels[tunedv1.NodePoolNameLabel] = pool
	return hosted
}

// Priorities of the recommendations of Default (assets/tuned/manifests/default-cr-tuned.yaml of the Node Tuning Operator).
const (
	controlPlanePriority = 30
	nodePriority         = 40
)

// Default is the Tuned for the nodes that no other matches. Its profiles are those of TuneD's package.
func Default() *tunedv1.Tuned {
	return &tunedv1.Tuned{
		TypeMeta:   metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Tuned"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: tunedv1.DefaultName},
		Spec: tunedv1.TunedSpec{
			ManagementState: "Managed",
			Recommend: []tunedv1.TunedRecommend{
				{
					Profile: "openshift-control-plane", Priority: controlPlanePriority,
					Match: []tunedv1.TunedMatch{{Label: "node-role.kubernetes.io/control-plane"}, {Label: "node-role.kubernetes.io/master"}, {Label: "node-role.kubernetes.io/infra"}},
				},
				{Profile: "openshift-node", Priority: nodePriority},
			},
		},
	}
}
