// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"workload.openshift.io/partition"
)

// Up to v1.34 the option that keeps pools from being shared is beta. Where a feature gate forbids
// beta options, one line names the gate.
func TestStrictReservationNeedsAGateUpToV134(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	kubelet := getNode(t, c).Status.NodeInfo.KubeletVersion
	if !version.MustParseSemantic(kubelet).LessThan(version.MustParseSemantic("1.35.0")) {
		t.Skip("from v1.35 on the option is stable, and this is ", kubelet)
	}
	expectRefusal(t, c, partition.PinningFilePath, "CPUManagerPolicyBetaOptions is false", "--feature-gates=CPUManagerPolicyBetaOptions=false")
}
