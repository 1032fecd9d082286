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

package config

import (
	"slices"
	"strings"
	"testing"
)

const header = "apiVersion: partitioning.workload.openshift.io/v1alpha1\nkind: PartitioningConfiguration\n"

func TestReadConfig(t *testing.T) {
	for name, test := range map[string]struct {
		text       string
		wantSource Source
		wantTypes  []string
		wantError  string
	}{
		"nothing":                      {text: "", wantSource: SourceNodes},
		"a kind without fields":        {text: header, wantSource: SourceNodes},
		"nodes":                        {text: header + "activation: {source: Nodes}", wantSource: SourceNodes},
		"types":                        {text: header + "activation: {source: Types, types: [management, infra]}", wantSource: SourceTypes, wantTypes: []string{"management", "infra"}},
		"infrastructure":               {text: header + "activation: {source: Infrastructure}", wantSource: SourceInfrastructure, wantTypes: []string{"management"}},
		"infrastructure, other type":   {text: header + "activation: {source: Infrastructure, types: [infra]}", wantSource: SourceInfrastructure, wantTypes: []string{"infra"}},
		"JSON":                         {text: `{"apiVersion": "partitioning.workload.openshift.io/v1alpha1", "kind": "PartitioningConfiguration", "activation": {"source": "Types", "types": ["a"]}}`, wantSource: SourceTypes, wantTypes: []string{"a"}},
		"another version":              {text: strings.Replace(header, "v1alpha1", "v2", 1), wantError: `apiVersion: Unsupported value: "partitioning.workload.openshift.io/v2"`},
		"another kind":                 {text: strings.Replace(header, "Partitioning", "Other", 1), wantError: `kind: Unsupported value: "OtherConfiguration"`},
		"no kind":                      {text: "activation: {source: Nodes}", wantError: `kind: Unsupported value: ""`},
		"an unknown field":             {text: header + "activation: {sources: Nodes}", wantError: `unknown field "activation.sources"`},
		"a field in another case":      {text: header + "Activation: {}", wantError: `unknown field "Activation"`},
		"a field twice":                {text: header + "activation: {}\nactivation: {}", wantError: `"activation" already set`},
		"an unknown source":            {text: header + "activation: {source: Moon}", wantError: `activation.source: Unsupported value: "Moon": supported values: "Nodes", "Types", "Infrastructure"`},
		"types without a list":         {text: header + "activation: {source: Types}", wantError: "activation.types: Required value"},
		"nodes with a list":            {text: header + "activation: {types: [management]}", wantError: "activation.types: Forbidden"},
		"a list that is a string":      {text: header + "activation: {source: Types, types: management}", wantError: "activation.types"},
		"an invalid type":              {text: header + "activation: {source: Types, types: [a, Management]}", wantError: `activation.types[1]: Invalid value: "Management"`},
		"a type twice":                 {text: header + "activation: {source: Types, types: [a, a]}", wantError: `activation.types[1]: Duplicate value: "a"`},
		"no YAML":                      {text: ":\t:", wantError: "configuration: "},
		"two documents":                {text: header + "---\n" + header, wantError: "more than one YAML document"},
		"a header of comments":         {text: "# ours\n---\n" + header + "activation: {source: Types, types: [a]}", wantSource: SourceTypes, wantTypes: []string{"a"}},
		"a very large one":             {text: header + strings.Repeat("# comment\n", 200000), wantError: "is larger than 1048576 bytes"},
		"an activation that is null":   {text: header + "activation: null", wantSource: SourceNodes},
		"an activation that is a list": {text: header + "activation: []", wantError: "activation"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Read(strings.NewReader(test.text))
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line with %s", err, test.wantError)
				}
				return
			}
			if err != nil || config.Activation.Source != test.wantSource || !slices.Equal(config.Activation.Types, test.wantTypes) {
				t.Errorf("got %+v, %v", config.Activation, err)
			}
		})
	}
	if config, err := Read(nil); err != nil || config.Activation.Source != SourceNodes {
		t.Errorf("without a file: %+v, %v", config, err)
	}
}
