// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
	v2 "workload.openshift.io/operators/api/performance/v2"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/performance"
)

// Kinds of manifests, as APIVERSION KIND.
const (
	tunedKind              = "tuned.openshift.io/v1 Tuned"
	performanceProfileKind = v2.APIVersion + " " + v2.Kind
	kubeletConfigKind      = "machineconfiguration.openshift.io/v1 KubeletConfig"
	machineConfigKind      = "machineconfiguration.openshift.io/v1 MachineConfig"
)

// tuningKinds are those of spec.tuningConfig.
var tuningKinds = []string{tunedKind, performanceProfileKind}

// configKinds are those of spec.config (HyperShift, api/hypershift/v1beta1, NodePoolSpec.Config).
var configKinds = []string{
	kubeletConfigKind, machineConfigKind, "machineconfiguration.openshift.io/v1 ContainerRuntimeConfig",
	"config.openshift.io/v1 ImageDigestMirrorSet", "config.openshift.io/v1 ImageTagMirrorSet", "config.openshift.io/v1 ClusterImagePolicy", "operator.openshift.io/v1alpha1 ImageContentSourcePolicy",
}

func (m manifest) is(kind string) bool { return m.apiVersion+" "+m.kind == kind }

// unknown says that a manifest is of none of these kinds.
func (m manifest) unknown(field string, kinds []string) []Problem {
	if slices.ContainsFunc(kinds, m.is) {
		return nil
	}
	return []Problem{m.problem(0, "spec.%s takes no %s of %s; it takes %s", field, m.kind, m.apiVersion, strings.Join(kinds, ", "))}
}

// tuned is a Tuned as users write it (cluster-node-tuning-operator, pkg/apis/tuned/v1, TunedSpec).
type tuned struct {
	APIVersion text           `yaml:"apiVersion"`
	Kind       text           `yaml:"kind"`
	Metadata   map[string]any `yaml:"metadata"`
	Status     any            `yaml:"status"`
	Spec       struct {
		ManagementState text             `yaml:"managementState"`
		Profile         []tunedProfile   `yaml:"profile"`
		Recommend       []tunedRecommend `yaml:"recommend"`
	} `yaml:"spec"`
}

type tunedProfile struct {
	Name *text `yaml:"name"`
	Data *text `yaml:"data"`
}

type tunedRecommend struct {
	Profile             *text           `yaml:"profile"`
	Priority            *uint64         `yaml:"priority"`
	Match               []tunedMatch    `yaml:"match"`
	MachineConfigLabels map[string]text `yaml:"machineConfigLabels"`
	Operand             struct {
		Debug       bool  `yaml:"debug"`
		Verbosity   int32 `yaml:"verbosity"`
		TunedConfig struct {
			ReapplySysctl *bool `yaml:"reapply_sysctl"`
		} `yaml:"tunedConfig"`
	} `yaml:"operand"`
}

type tunedMatch struct {
	Label *text        `yaml:"label"`
	Value *text        `yaml:"value"`
	Type  *text        `yaml:"type"`
	Match []tunedMatch `yaml:"match"`
}

func badProfileName(name string) bool {
	return len(name) > tunedv1.MaxProfileName || !tunedv1.IsProfileName(name)
}

// readTuned returns what is wrong with a Tuned. The companion tuning reads it again: a test of partition-controller holds
// both together.
func (m manifest) readTuned() (t tuned, problems []Problem) {
	if problems := m.strict(&t); problems != nil {
		return t, problems
	}
	bad := func(format string, args ...any) { problems = append(problems, m.problem(0, format, args...)) }
	if invalid := validation.IsDNS1123Subdomain(m.name); len(invalid) > 0 {
		bad("metadata.name is %q: %s", m.name, strings.Join(invalid, "; "))
	}
	if len(m.name) > tunedv1.MaxName {
		bad("metadata.name has %d characters, and takes %d", len(m.name), tunedv1.MaxName)
	}
	if namespace := t.Metadata["namespace"]; namespace != nil && namespace != tunedv1.Namespace {
		bad("metadata.namespace is %v, and all Tuneds are in %s; leave it out", namespace, tunedv1.Namespace)
	}
	if status, ok := t.Status.(map[string]any); t.Status != nil && (!ok || len(status) > 0) {
		bad("remove status, which is not the user's to write")
	}
	if state := t.Spec.ManagementState; state != "" && state != "Managed" {
		bad("spec.managementState is %s, and must be Managed", state)
	}
	if len(t.Spec.Profile)+len(t.Spec.Recommend) == 0 {
		bad("the Tuned %s has neither spec.profile nor spec.recommend", m.name)
	}
	for i, profile := range t.Spec.Profile {
		switch {
		case profile.Name == nil || *profile.Name == "":
			bad("spec.profile[%d].name is required", i)
		case badProfileName(string(*profile.Name)):
			bad("spec.profile[%d].name is %q, and must have only letters, digits, hyphens, dots and underscores, and begin with no hyphen", i, *profile.Name)
		case profile.Data == nil || strings.TrimSpace(string(*profile.Data)) == "":
			bad("spec.profile[%d].data, of profile %s, is required", i, *profile.Name)
		}
	}
	for i, recommend := range t.Spec.Recommend {
		switch {
		case recommend.Profile == nil || *recommend.Profile == "":
			bad("spec.recommend[%d].profile is required", i)
		case badProfileName(string(*recommend.Profile)):
			bad("spec.recommend[%d].profile is %q, and no profile can have that name", i, *recommend.Profile)
		}
		if recommend.Priority == nil {
			bad("spec.recommend[%d].priority is required", i)
		}
		for _, text := range matchProblems(fmt.Sprintf("spec.recommend[%d]", i), recommend.Match, 1) {
			bad("%s", text)
		}
	}
	if problems == nil {
		object := &tunedv1.Tuned{}
		problems = m.fits(object)
		if mode := object.Annotations[tunedv1.DeferredAnnotation]; mode != "" && !slices.Contains(tunedv1.DeferModes, mode) {
			bad("the annotation %s is %q, and must be one of %s", tunedv1.DeferredAnnotation, mode, strings.Join(tunedv1.DeferModes, ", "))
		}
	}
	return t, problems
}

// fits returns why kube-apiserver would not take the manifest as an object: a metadata field that does not exist, say, or a word
// that is true or false in the YAML that Kubernetes reads.
func (m manifest) fits(object any) []Problem {
	data, err := sigsyaml.YAMLToJSONStrict([]byte(m.text))
	if err != nil {
		return []Problem{m.problem(0, "%v", err)}
	}
	strict, err := kjson.UnmarshalStrict(data, object)
	if err = errors.Join(append(strict, err)...); err != nil {
		return []Problem{m.problem(0, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	return nil
}

func matchProblems(path string, matches []tunedMatch, depth int) (problems []string) {
	if len(matches) > 0 && depth > tunedv1.MaxMatchDepth {
		return []string{fmt.Sprintf("%s.match: rules can be nested %d deep", path, tunedv1.MaxMatchDepth)}
	}
	for i, match := range matches {
		path := fmt.Sprintf("%s.match[%d]", path, i)
		if match.Label == nil || *match.Label == "" {
			problems = append(problems, path+".label is required")
		} else if invalid := validation.IsQualifiedName(string(*match.Label)); len(invalid) > 0 {
			problems = append(problems, fmt.Sprintf("%s.label is %q: %s", path, *match.Label, strings.Join(invalid, "; ")))
		}
		if match.Value != nil {
			if invalid := validation.IsValidLabelValue(string(*match.Value)); len(invalid) > 0 {
				problems = append(problems, fmt.Sprintf("%s.value is %q: %s", path, *match.Value, strings.Join(invalid, "; ")))
			}
		}
		if match.Type != nil && !slices.Contains([]text{"", "node", "pod"}, *match.Type) {
			problems = append(problems, fmt.Sprintf("%s.type is %q, and must be node or pod", path, *match.Type))
		}
		problems = append(problems, matchProblems(path, match.Match, depth+1)...)
	}
	return problems
}

// kubeletConfig is a KubeletConfig as users write it (openshift/api, machineconfiguration/v1, KubeletConfigSpec).
type kubeletConfig struct {
	APIVersion text           `yaml:"apiVersion"`
	Kind       text           `yaml:"kind"`
	Metadata   map[string]any `yaml:"metadata"`
	Status     any            `yaml:"status"`
	Spec       struct {
		AutoSizingReserved        *bool          `yaml:"autoSizingReserved"`
		LogLevel                  *int32         `yaml:"logLevel"`
		MachineConfigPoolSelector any            `yaml:"machineConfigPoolSelector"`
		KubeletConfig             map[string]any `yaml:"kubeletConfig"`
		TLSSecurityProfile        any            `yaml:"tlsSecurityProfile"`
	} `yaml:"spec"`
}

// readKubeletConfig returns what is wrong with a KubeletConfig.
func (m manifest) readKubeletConfig() []Problem {
	var k kubeletConfig
	return m.strict(&k)
}

// readPerformanceProfile renders a PerformanceProfile, or returns what is wrong with it.
func (m manifest) readPerformanceProfile() (rendered performance.Rendered, problems []Problem) {
	var p v2.PerformanceProfile
	if problems := m.strict(&p); problems != nil {
		return rendered, problems
	}
	if problems := m.fits(&v2.PerformanceProfile{}); problems != nil {
		return rendered, problems
	}
	rendered, errs := performance.Render(p)
	for _, err := range errs {
		problems = append(problems, m.problem(0, "%v", err))
	}
	return rendered, problems
}

var _ yaml.Unmarshaler = (*text)(nil)
