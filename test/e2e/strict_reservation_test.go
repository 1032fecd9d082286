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
