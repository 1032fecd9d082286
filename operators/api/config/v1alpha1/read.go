// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
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
	DefaultText(&config.Namespace, namespace)
	SetDefaults(config)
	if errs := Validate(config); len(errs) > 0 {
		return nil, fmt.Errorf("configuration %s: %w", cmp.Or(path, "without a file"), errs.ToAggregate())
	}
	return config, nil
}

// DecodeSettings decodes the companion's settings into its own type. It refuses unknown fields. Errors name the field.
func (c *ControllerConfiguration) DecodeSettings(into any) error {
	if c.Settings.Raw == nil {
		return nil
	}
	strict, err := json.UnmarshalStrict(c.Settings.Raw, into)
	if err = cmp.Or(err, errors.Join(strict...)); err != nil {
		return fmt.Errorf("settings: %s%s", durationField(c.Settings.Raw, err), strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

func decode(data []byte) (*ControllerConfiguration, error) {
	data, err := OnlyDocument(data)
	if err != nil {
		return nil, err
	}
	object, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		// The decoder of YAML puts each mistake on a line of its own.
		return nil, errors.New(durationField(data, err) + strings.Join(strings.Fields(err.Error()), " "))
	}
	return object.(*ControllerConfiguration), nil
}

// durationField names the field that an error about a duration is about: time's errors have only the
// value, and encoding/json adds nothing to what a type of its own says.
func durationField(data []byte, about error) string {
	var content any
	if err := yaml.Unmarshal(data, &content); err != nil {
		return ""
	}
	var find func(path *field.Path, value any) string
	find = func(path *field.Path, value any) string {
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				if found := find(path.Child(key), value[key]); found != "" {
					return found
				}
			}
		case string:
			if _, err := time.ParseDuration(value); err != nil && strings.HasSuffix(about.Error(), err.Error()) {
				return path.String() + ": "
			}
		}
		return ""
	}
	return find(nil, content)
}

// OnlyDocument returns the one YAML document that is not empty, as a header of comments is; nil if there is none. A decoder
// would take the first of several and say nothing.
func OnlyDocument(data []byte) (only []byte, err error) {
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
