// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/performance"
)

// WithPerformance adds the Tuned of a PerformanceProfile to those of its pool. It is an error if a profile of the user's wins over it
// and does not include it: the node's CPUs would be divided, and its kernel not be told.
func WithPerformance(tuneds []tunedv1.Tuned, p performance.Rendered) ([]tunedv1.Tuned, error) {
	all := append(slices.Clone(tuneds), tunedv1.Tuned{
		TypeMeta:   metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Tuned"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Tuned},
		Spec: tunedv1.TunedSpec{
			Profile:   []tunedv1.TunedProfile{{Name: p.Tuned, Data: p.TunedText}},
			Recommend: []tunedv1.TunedRecommend{{Profile: p.Tuned, Priority: performance.Priority}},
		},
	})
	for _, tuned := range tuneds {
		if slices.ContainsFunc(tuned.Spec.Profile, func(profile tunedv1.TunedProfile) bool { return profile.Name == p.Tuned }) {
			return nil, fmt.Errorf("the profile %s of Tuned %s has the name of the one that PerformanceProfile %s makes; rename it", p.Tuned, tuned.Name, p.Name)
		}
	}
	chosen := PoolProfile(all)
	if _, _, names := Chain(PoolSpec(chosen, all), packagedProfile); !slices.Contains(names, p.Tuned) {
		return nil, fmt.Errorf("the profile %s wins over PerformanceProfile %s: add include=%s to its section [main], or give its recommendation a priority above %d", chosen, p.Name, p.Tuned, performance.Priority)
	}
	return all, nil
}

// PoolSpec is the spec of a Profile with a profile of a pool's Tuneds.
func PoolSpec(profile string, tuneds []tunedv1.Tuned) tunedv1.ProfileSpec {
	return ProfileOf(Node{}, Choice{TunedRecommend: tunedv1.TunedRecommend{Profile: profile}}, tuneds)
}

// HasPerformance reports whether a Profile has the Tuned of a PerformanceProfile.
func HasPerformance(spec tunedv1.ProfileSpec) bool {
	return slices.ContainsFunc(spec.Profile, func(profile tunedv1.TunedProfile) bool {
		return strings.HasPrefix(profile.Name, performance.TunedPrefix)
	})
}

// Parts returns what is generated for a pool, without its namespace: the ConfigMap of its MachineConfig, if that has anything, and that
// of its KubeletConfig, if there is a PerformanceProfile.
func Parts(pool string, settled Settled, p *performance.Rendered) (parts []*corev1.ConfigMap, err error) {
	part := func(name, text string, labels map[string]string) {
		labels[v1beta1.PoolLabel] = pool
		parts = append(parts, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{v1beta1.InputAnnotation: settled.Input}},
			Data:       map[string]string{v1beta1.ConfigKey: text},
		})
	}
	var files []nodefiles.File
	if p != nil {
		files = p.Files
		file, err := nodefiles.KubeletConfig(p.Name, metav1.LabelSelector{}, *p.Kubelet)
		if err != nil {
			return nil, err
		}
		part(v1beta1.GeneratedKubeletConfigName(p.Name, pool), string(file.Content), map[string]string{v1beta1.KubeletConfigLabel: ""})
	}
	if len(files)+len(settled.Arguments) > 0 {
		labels := map[string]string{v1beta1.GeneratedMachineConfigLabel: "true", v1beta1.PoolLabel: pool}
		file, err := nodefiles.MachineConfig(v1beta1.MachineConfigName(pool), labels, files, settled.Arguments)
		if err != nil {
			return nil, err
		}
		part(v1beta1.MachineConfigMapName(pool), string(file.Content), map[string]string{v1beta1.GeneratedMachineConfigLabel: "true"})
	}
	return parts, nil
}

// ReasonOutdated is that of the condition KernelArgumentsOutdated, if it is True.
const ReasonOutdated = "OperandComputesOthers"

// Conditions are what a NodePool says of a settlement; invalid is why its last configuration cannot be used, or nil.
func (s Settlement) Conditions(input string, invalid error, p *performance.Rendered) (conditions []v1beta1.GeneratedCondition) {
	const longest = 4096 // in bytes: a NodePool has the message in a condition with others
	add := func(kind string, value bool, reason, message string) {
		status := metav1.ConditionFalse
		if value {
			status = metav1.ConditionTrue
		}
		conditions = append(conditions, v1beta1.GeneratedCondition{Type: kind, Status: status, Reason: reason, Message: untrusted.Abbreviate(message, longest)})
	}
	agree, message := s.Agreement, s.Message
	if invalid != nil {
		agree, message = InvalidConfiguration, invalid.Error()
	}
	settled := s.Settled != nil && s.Input == input && invalid == nil
	add(v1beta1.ConditionKernelArgumentsAgree, agree == Agreed || agree == NotComputed, string(agree), message)
	if s.Outdated != nil {
		add(v1beta1.ConditionKernelArgumentsOutdated, true, ReasonOutdated, s.Message)
	} else {
		add(v1beta1.ConditionKernelArgumentsOutdated, false, string(Agreed), "")
	}
	if p == nil {
		return conditions
	}
	degraded := invalid != nil || agree == ArgumentsRefused || agree == NodesDisagree
	if degraded {
		add(v1beta1.PerformanceConditionPrefix+"Available", false, string(agree), message)
		add(v1beta1.PerformanceConditionPrefix+"Degraded", true, string(agree), message)
	} else {
		add(v1beta1.PerformanceConditionPrefix+"Available", settled, string(agree), message)
		add(v1beta1.PerformanceConditionPrefix+"Degraded", false, string(Agreed), "")
	}
	add(v1beta1.PerformanceConditionPrefix+"Progressing", !settled && !degraded, string(agree), message)
	add(v1beta1.PerformanceConditionPrefix+"Upgradeable", true, string(Agreed), "")
	return conditions
}

// Unusable is what stands for a pool, with conditions that say why its configuration cannot be used: all the rest is as it was, since
// nothing is known of what was valid last.
func Unusable(stands v1beta1.Generated, invalid error) v1beta1.Generated {
	conditions := slices.Clone(stands.Conditions)
	for _, c := range (Settlement{}).Conditions("", invalid, &performance.Rendered{}) {
		at := slices.IndexFunc(conditions, func(other v1beta1.GeneratedCondition) bool { return other.Type == c.Type })
		switch {
		case c.Type == v1beta1.ConditionKernelArgumentsOutdated:
		case at >= 0:
			conditions[at] = c
		case c.Type == v1beta1.ConditionKernelArgumentsAgree:
			conditions = append(conditions, c)
		}
	}
	stands.Conditions = conditions
	return stands
}

// PerformanceStatus is the ConfigMap with the status of a pool's PerformanceProfile, without its namespace.
func PerformanceStatus(pool string, conditions []v1beta1.GeneratedCondition, p performance.Rendered) (*corev1.ConfigMap, error) {
	var own []v1beta1.GeneratedCondition
	for _, c := range conditions {
		if kind, ok := strings.CutPrefix(c.Type, v1beta1.PerformanceConditionPrefix); ok {
			c.Type = kind
			own = append(own, c)
		}
	}
	data, err := yaml.Marshal(map[string]any{"conditions": own, "tuned": tunedv1.Namespace + "/" + HostedName(p.Tuned, pool)})
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.PerformanceStatusConfigMapName(pool), Labels: map[string]string{v1beta1.GeneratedStatusLabel: "true", v1beta1.PoolLabel: pool}},
		Data:       map[string]string{v1beta1.StatusKey: string(data)},
	}, err
}
