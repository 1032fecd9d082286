// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/translate"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

// Configuration is what a usable pool's own ConfigMaps say about its nodes.
type Configuration struct {
	// Input is the InputHash of the pool's copies. It is empty if the pool has none, and nothing is generated for it.
	Input string
	// machineConfigs are those of spec.config, and kubeletConfig is the text of its KubeletConfig, or empty.
	machineConfigs []machineConfig
	kubeletConfig  string
}

// machineConfig is a MachineConfig (openshift/api, machineconfiguration/v1). Of its spec, config and kernelArguments are rendered.
type machineConfig struct {
	name, text string
	config     types.Config
	arguments  []types.KernelArgument
}

// readMachineConfig reads a MachineConfig's text. Errors name the field.
func readMachineConfig(text string) (machineConfig, error) {
	var m struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       struct {
			Config          map[string]any         `json:"config"`
			KernelArguments []types.KernelArgument `json:"kernelArguments"`
		} `json:"spec"`
	}
	data, err := sigsyaml.YAMLToJSONStrict([]byte(text))
	if err == nil {
		var strict []error
		strict, err = kjson.UnmarshalStrict(data, &m)
		err = errors.Join(append(strict, err)...)
	}
	if err != nil {
		return machineConfig{}, fmt.Errorf("%s; of a MachineConfig, spec.config and spec.kernelArguments are rendered, and nothing else", strings.Join(strings.Fields(err.Error()), " "))
	}
	read := machineConfig{name: m.Metadata.Name, text: text, arguments: m.Spec.KernelArguments, config: emptyConfig()}
	for i, argument := range read.arguments {
		if argument == "" || strings.ContainsFunc(string(argument), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return machineConfig{}, fmt.Errorf("spec.kernelArguments[%d] is %q: it must be arguments of the kernel", i, argument)
		}
	}
	if len(m.Spec.Config) == 0 {
		return read, nil
	}
	if data, err = json.Marshal(m.Spec.Config); err != nil {
		return machineConfig{}, err
	}
	config, report, err := ignition.ParseCompatibleVersion(data)
	if err != nil {
		return machineConfig{}, fmt.Errorf("spec.config: Ignition, up to version %s: %w: %s", types.MaxVersion, err, strings.TrimSpace(report.String()))
	}
	read.config = config
	return read, nil
}

func emptyConfig() types.Config {
	return types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
}

// Rendered is the configuration that the machines of a pool boot with.
type Rendered struct {
	// Hash is that of what it is made from, so that another version of this program changes no pool.
	Hash string
	// Ignition is the configuration.
	Ignition []byte
}

// Render renders a pool's configuration. generated is what the companion tuning says, or nil if there is nothing yet; parts are
// the ConfigMaps that it names, as far as they are there. Waits says why there is nothing to render now: what was rendered last
// stays.
func Render(pool string, c Configuration, generated *v1beta1.Generated, parts map[string]*corev1.ConfigMap) (r Rendered, waits string, err error) {
	configs := slices.Clone(c.machineConfigs)
	kubelet, path := c.kubeletConfig, nodefiles.KubeletDropInDirectory+"/02-kubeletconfig.conf"
	if c.Input != "" {
		if generated == nil {
			return r, "the companion tuning has not looked at this configuration yet", nil
		}
		if generated.Input != c.Input {
			return r, cmp.Or(reasonOf(generated), "the companion tuning has not settled this configuration yet"), nil
		}
		for _, name := range slices.Sorted(maps.Keys(generated.Parts)) {
			part := parts[name]
			if part == nil || part.Annotations[v1beta1.InputAnnotation] != c.Input || v1beta1.PartHash(part) != generated.Parts[name] || part.Labels[v1beta1.PoolLabel] != pool {
				return r, fmt.Sprintf("ConfigMap %s is not what the companion tuning has made for this configuration", name), nil
			}
			text := part.Data[v1beta1.ConfigKey]
			if _, ok := part.Labels[v1beta1.KubeletConfigLabel]; ok {
				kubelet, path = text, nodefiles.KubeletDropInPath
				continue
			}
			m, err := readMachineConfig(text)
			if err != nil {
				return r, "", fmt.Errorf("ConfigMap %s: %w", name, err)
			}
			configs = append(configs, m)
		}
	}
	slices.SortStableFunc(configs, func(a, b machineConfig) int { return cmp.Compare(a.name, b.name) })
	merged, inputs := emptyConfig(), []string{}
	for _, m := range configs {
		merged = ignition.Merge(merged, m.config)
		merged.KernelArguments.ShouldExist = append(slices.Clone(merged.KernelArguments.ShouldExist), m.arguments...)
		inputs = append(inputs, m.name, m.text)
	}
	if kubelet != "" {
		file, err := kubeletFile(path, kubelet)
		if err != nil {
			return r, "", err
		}
		merged = ignition.Merge(merged, translate.Translate(nodefiles.Ignition([]nodefiles.File{file})))
		inputs = append(inputs, path, kubelet)
	}
	// It is not among the inputs: it comes with the next change, or with a new machine, and boots no node by itself.
	merged = ignition.Merge(merged, translate.Translate(nodefiles.Ignition(hostUnit)))
	merged.KernelArguments.ShouldExist = distinct(merged.KernelArguments.ShouldExist)
	if r.Ignition, err = json.Marshal(merged); err != nil {
		return r, "", err
	}
	if _, report, err := ignition.Parse(r.Ignition); err != nil {
		return r, "", fmt.Errorf("the merged configuration: Ignition: %w: %s", err, strings.TrimSpace(report.String()))
	}
	data, err := json.Marshal(inputs)
	if err != nil {
		return r, "", err
	}
	sum := sha256.Sum256(data)
	r.Hash = hex.EncodeToString(sum[:8])
	return r, "", nil
}

// distinct joins an argument that occurs again to the one before it: Ignition takes no entry twice, and the kernel takes hugepages=4
// for each size that it follows.
func distinct(arguments []types.KernelArgument) (entries []types.KernelArgument) {
	for _, argument := range arguments {
		for slices.Contains(entries, argument) {
			last := len(entries) - 1
			argument, entries = entries[last]+" "+argument, entries[:last]
		}
		entries = append(entries, argument)
	}
	return entries
}

//go:embed partition-tuned.service
var tunedService []byte

// hostUnit are the files of the unit by which TuneD applies a node's profile before the kubelet starts pods. A node without a profile
// has nothing for it to do. The second file takes the place of the link of an enabled unit.
var hostUnit = []nodefiles.File{
	{Path: "/etc/systemd/system/partition-tuned.service", Mode: 0o644, Content: tunedService},
	{Path: "/etc/systemd/system/multi-user.target.d/01-partition-tuned.conf", Mode: 0o644, Content: []byte("[Unit]\nWants=partition-tuned.service\n")},
}

// reasonOf is what the companion tuning says of nodes that hold a configuration back.
func reasonOf(generated *v1beta1.Generated) string {
	for _, condition := range generated.Conditions {
		if condition.Type == v1beta1.ConditionKernelArgumentsAgree && condition.Status != metav1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// kubeletFile is the kubelet's drop-in with what a KubeletConfig has.
func kubeletFile(path, text string) (nodefiles.File, error) {
	var k struct {
		Spec struct {
			KubeletConfig map[string]any `json:"kubeletConfig"`
		} `json:"spec"`
	}
	if err := sigsyaml.Unmarshal([]byte(text), &k); err != nil {
		return nodefiles.File{}, fmt.Errorf("KubeletConfig: %w", err)
	}
	fields := map[string]any{}
	maps.Copy(fields, k.Spec.KubeletConfig)
	fields["apiVersion"], fields["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	data, err := sigsyaml.Marshal(fields)
	return nodefiles.File{Path: path, Mode: 0o644, Content: data}, err
}

// Secret is the one with a rendered configuration.
func (r Rendered) Secret(pool *v1beta1.NodePool) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName),
			Name:        v1beta1.ConfigSecretName(pool.Name, r.Hash),
			Labels:      map[string]string{v1beta1.PoolLabel: pool.Name},
			Annotations: map[string]string{v1beta1.PoolLabel: pool.Namespace + "/" + pool.Name, digestAnnotation: digestOf(r.Ignition)},
		},
		Data: map[string][]byte{v1beta1.ConfigSecretKey: r.Ignition},
	}
}

// digestAnnotation of a rendered Secret tells what this companion wrote from what somebody made of it.
const digestAnnotation = "nodepool.workload.openshift.io/digest"

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Intact reports whether a Secret of a rendered configuration is as a version of this companion wrote it for that pool. It stays as it
// is then, also if this version would render the same input in another way.
func Intact(secret *corev1.Secret, pool *v1beta1.NodePool) bool {
	value := secret.Data[v1beta1.ConfigSecretKey]
	return len(secret.Data) == 1 && secret.Annotations[digestAnnotation] == digestOf(value) && secret.Annotations[v1beta1.PoolLabel] == pool.Namespace+"/"+pool.Name && bytes.HasPrefix(value, []byte("{"))
}

// Booted returns what the nodes of a pool have booted, by node, as the provider's records say. A node without a hash is
// in it, too.
func Booted(records []corev1.ConfigMap) map[string]string {
	booted := map[string]string{}
	for _, record := range records {
		var hashes map[string]string
		// Without the annotation, or with something else in it, nothing is known of these nodes.
		_ = json.Unmarshal([]byte(record.Annotations[v1beta1.BootedAnnotation]), &hashes)
		for node := range record.Data {
			booted[node] = hashes[node]
		}
	}
	return booted
}

// Current returns the configuration that all nodes of a pool have: the target if all have booted it, and else what it was before.
func Current(target, before string, booted map[string]string) string {
	if len(booted) == 0 && before != "" {
		return before
	}
	for _, hash := range booted {
		if hash != target {
			return before
		}
	}
	return target
}
