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

package managed

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"
	"workload.openshift.io/partition"
)

// release is the minor version of this kubelet. Tests change it.
var release = version.DefaultKubeBinaryVersion

// betaOptions is the feature gate of options that are beta.
const betaOptions = "CPUManagerPolicyBetaOptions"

// strictReservationAvailable returns an error if upstream would refuse the option of the static
// policy that keeps the pools out of the shared CPUs. Up to v1.34 that option is beta, and needs
// a feature gate (pkg/kubelet/cm/cpumanager/policy_options.go, CheckPolicyOptionAvailable).
// Upstream's own error names neither the pools nor the gate.
func strictReservationAvailable(gates map[string]bool) error {
	if !utilversion.MustParse(release).LessThan(utilversion.MustParse("1.35")) {
		return nil
	}
	for _, gate := range []string{betaOptions, "AllBeta"} {
		if on, set := gates[gate]; on {
			return nil
		} else if set {
			return fmt.Errorf("featureGates: %s is false, but the pools of %s must not be shared, for which v%s needs the option %s of the CPU manager, which is beta there; set %s to true",
				gate, partition.PinningFilePath, release, strictReservation, betaOptions)
		}
	}
	return nil
}
