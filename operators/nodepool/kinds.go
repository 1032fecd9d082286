// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/manifest"
)

// Kinds of manifests, as APIVERSION KIND.
const (
	kubeletConfigKind = "machineconfiguration.openshift.io/v1 KubeletConfig"
	machineConfigKind = "machineconfiguration.openshift.io/v1 MachineConfig"
)

// tuningKinds are those of spec.tuningConfig.
var tuningKinds = []string{manifest.TunedKind, manifest.PerformanceProfileKind}

// configKinds are those of spec.config (HyperShift, api/hypershift/v1beta1, NodePoolSpec.Config).
var configKinds = []string{
	kubeletConfigKind, machineConfigKind, "machineconfiguration.openshift.io/v1 ContainerRuntimeConfig",
	"config.openshift.io/v1 ImageDigestMirrorSet", "config.openshift.io/v1 ImageTagMirrorSet", "config.openshift.io/v1 ClusterImagePolicy", "operator.openshift.io/v1alpha1 ImageContentSourcePolicy",
}

// unknown says that a manifest is of none of these kinds.
func unknown(m manifest.Manifest, field string, kinds []string) []manifest.Problem {
	if slices.ContainsFunc(kinds, m.Is) {
		return nil
	}
	return []manifest.Problem{m.Problem(0, "spec.%s takes no %s of %s; it takes %s", field, m.Kind, m.APIVersion, strings.Join(kinds, ", "))}
}

// readTuned reads a Tuned that a user wrote. What is missing there has a value that is hardly meant; what HyperShift has copied may lack it.
func readTuned(m manifest.Manifest) (*tunedv1.Tuned, []manifest.Problem) {
	tuned, problems := m.Tuned()
	if problems != nil {
		return tuned, problems
	}
	for i := range tuned.Spec.Recommend {
		path := field.NewPath("spec", "recommend").Index(i)
		if priority := path.Child("priority").String(); !m.Has(priority) {
			problems = append(problems, m.ProblemAt(path.String(), "%s is required", priority))
		}
	}
	if len(tuned.Spec.Profile)+len(tuned.Spec.Recommend) == 0 {
		problems = append(problems, m.ProblemAt("spec", "the Tuned %s has neither spec.profile nor spec.recommend", m.Name))
	}
	return tuned, problems
}

// kubeletConfig is a KubeletConfig as users write it (openshift/api, machineconfiguration/v1, KubeletConfigSpec).
type kubeletConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Status     any            `json:"status"`
	Spec       struct {
		AutoSizingReserved        *bool          `json:"autoSizingReserved"`
		LogLevel                  *int32         `json:"logLevel"`
		MachineConfigPoolSelector any            `json:"machineConfigPoolSelector"`
		KubeletConfig             map[string]any `json:"kubeletConfig"`
		TLSSecurityProfile        any            `json:"tlsSecurityProfile"`
	} `json:"spec"`
}
