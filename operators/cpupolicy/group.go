// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
)

// FailedFor reports whether a node's last operation was this group's, with this spec, and failed; or a person's who asked
// for the group's policy, and failed once the kubelet had been stopped: a person is refused where a group waits, or drains.
// It is tried again once the group or the annotation changes.
func FailedFor(group *v1alpha1.CPUManagerPolicy, status nodestatus.Status) bool {
	asked := status.Group == group.Name || status.Group == "" && status.Policy == Policy(group.Spec.Policy) && status.Begun
	same := status.GroupUID == group.UID
	if status.GroupUID == "" { // an older release wrote none
		same = !status.Since.Before(group.CreationTimestamp.Time)
	}
	return status.State == nodestatus.Failed && asked && same && status.Generation == group.Generation
}
