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

package v1alpha1

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// GroupVersion is that of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "config.workload.openshift.io", Version: "v1alpha1"}

// decoder refuses unknown and duplicate fields.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(GroupVersion, &ControllerConfiguration{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// Read returns the configuration in a file, with its defaults. An empty path is a file that chooses
// nothing. The namespace is the pod's, or empty outside of one. Errors name the file, the field and
// the value.
func Read(path, namespace string) (*ControllerConfiguration, error) {
	config := &ControllerConfiguration{}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		if config, err = decode(data); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", path, err)
		}
	}
	text(&config.Namespace, namespace)
	SetDefaults(config)
	if errs := Validate(config); len(errs) > 0 {
		return nil, fmt.Errorf("configuration %s: %w", cmp.Or(path, "without a file"), errs.ToAggregate())
	}
	return config, nil
}

func decode(data []byte) (*ControllerConfiguration, error) {
	data, err := onlyDocument(data)
	if err != nil {
		return nil, err
	}
	object, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	return object.(*ControllerConfiguration), nil
}

// onlyDocument returns the one YAML document that is not empty, as a header of comments is. The
// decoder would take the first of several and say nothing.
func onlyDocument(data []byte) (only []byte, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err == nil && content == nil {
			continue
		}
		if only != nil {
			return nil, errors.New("there is more than one YAML document")
		}
		only = document
	}
}
