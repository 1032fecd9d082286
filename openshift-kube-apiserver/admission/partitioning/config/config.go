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

// Package config is the plugin's configuration in kube-apiserver's admission configuration
// file (design, section 4.2): its versioned kind, its defaults, and what is wrong with one.
//
// It knows which source of activation was chosen. How a source decides, and what follows
// from that for a pod, it must not know; it imports no client and nothing of
// k8s.io/kubernetes.
package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/partition"
)

// PluginName is the plugin's name in the admission configuration file.
const PluginName = partition.Domain + "/Partitioning"

// The kind of the plugin's configuration in the admission configuration file.
const (
	APIVersion = "partitioning." + partition.Domain + "/v1alpha1"
	Kind       = "PartitioningConfiguration"
)

// Source says who decides whether a workload type is active.
type Source string

const (
	// SourceNodes: the nodes, by the rule of the design's section 4.2. It is the
	// default, and decides for all types that a configuration does not list.
	SourceNodes Source = "Nodes"
	// SourceTypes: the configuration itself; the listed types are active from the start,
	// before there is a node.
	SourceTypes Source = "Types"
	// SourceInfrastructure: OpenShift's object Infrastructure; the listed types are active
	// exactly when its status.cpuPartitioning is AllNodes.
	SourceInfrastructure Source = "Infrastructure"
)

// Configuration is the plugin's configuration, version v1alpha1. With its zero value, which
// is none, the nodes decide.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Activation      Activation `json:"activation"`
}

// Activation says which workload types are active.
type Activation struct {
	// Source defaults to Nodes.
	Source Source `json:"source"`
	// Types are those that the source decides for. Types needs at least one, Nodes has
	// none, and Infrastructure defaults to management, the one that OpenShift knows.
	Types []string `json:"types,omitempty"`
}

// infrastructureDefault is the type that OpenShift's installer knows.
const infrastructureDefault = "management"

// maxBytes bounds the size in bytes of a configuration.
const maxBytes = 1 << 20

// Read decodes a configuration strictly; a nil reader, and one without content, is none. Its
// errors name the field and the value.
func Read(reader io.Reader) (Configuration, error) {
	none := Configuration{Activation: Activation{Source: SourceNodes}}
	if reader == nil {
		return none, nil
	}
	data, err := io.ReadAll(io.LimitReader(reader, maxBytes+1))
	if err != nil {
		return Configuration{}, err
	}
	if len(data) > maxBytes {
		return Configuration{}, fmt.Errorf("configuration is larger than %d bytes", maxBytes)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return none, nil
	}
	if data, err = onlyDocument(data); err != nil {
		return Configuration{}, err
	}
	if data, err = yaml.YAMLToJSONStrict(data); err != nil {
		return Configuration{}, fmt.Errorf("configuration: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	var config Configuration
	strict, err := kjson.UnmarshalStrict(data, &config)
	if err != nil {
		return Configuration{}, fmt.Errorf("configuration: %w", err)
	}
	if len(strict) > 0 {
		return Configuration{}, fmt.Errorf("configuration: %w", strict[0])
	}
	config.setDefaults()
	if errs := config.validate(); len(errs) > 0 {
		return Configuration{}, fmt.Errorf("configuration: %w", errs.ToAggregate())
	}
	return config, nil
}

// onlyDocument returns the one YAML document that is not empty, as a header of comments
// is. The decoder would take the first of several and say nothing.
func onlyDocument(data []byte) (only []byte, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err == nil && content == nil {
			continue
		}
		if only != nil {
			return nil, errors.New("configuration has more than one YAML document")
		}
		only = document
	}
}

func (c *Configuration) setDefaults() {
	if c.Activation.Source == "" {
		c.Activation.Source = SourceNodes
	}
	if c.Activation.Source == SourceInfrastructure && len(c.Activation.Types) == 0 {
		c.Activation.Types = []string{infrastructureDefault}
	}
}

func (c *Configuration) validate() (errs field.ErrorList) {
	if c.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{APIVersion}))
	}
	if c.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{Kind}))
	}
	activation := field.NewPath("activation")
	types := activation.Child("types")
	switch c.Activation.Source {
	case SourceNodes:
		if len(c.Activation.Types) > 0 {
			errs = append(errs, field.Forbidden(types, fmt.Sprintf("the nodes decide which types are active; remove it, or set source to %s", SourceTypes)))
		}
	case SourceTypes:
		if len(c.Activation.Types) == 0 {
			errs = append(errs, field.Required(types, fmt.Sprintf("source %s needs the types that are active", SourceTypes)))
		}
	case SourceInfrastructure:
	default:
		errs = append(errs, field.NotSupported(activation.Child("source"), c.Activation.Source, []Source{SourceNodes, SourceTypes, SourceInfrastructure}))
	}
	seen := map[string]bool{}
	for i, workloadType := range c.Activation.Types {
		if err := partition.ValidateType(workloadType); err != nil {
			errs = append(errs, field.Invalid(types.Index(i), workloadType, err.Error()))
		}
		if seen[workloadType] {
			errs = append(errs, field.Duplicate(types.Index(i), workloadType))
		}
		seen[workloadType] = true
	}
	return errs
}
