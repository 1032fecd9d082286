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

package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Effect says what becomes of a pod that cannot be partitioned.
type Effect string

const (
	// Preferred is the soft effect, and the default: the pod runs as an ordinary one, with a
	// warning.
	Preferred Effect = "PreferredDuringScheduling"
	// Required is the hard effect: the pod is refused.
	Required Effect = "RequiredDuringScheduling"
)

// Target is what a pod asks for. Its zero value asks for nothing.
type Target struct {
	Type   string
	Effect Effect
}

// AnnotationValue returns the normalised value of the target annotation.
func (t Target) AnnotationValue() string {
	switch t.Effect {
	case Preferred:
		return preferredValue
	case Required:
		return requiredValue
	}
	return `{"effect":"` + string(t.Effect) + `"}`
}

// The normalised values of both effects are compared often, so they are constants.
const (
	preferredValue = `{"effect":"` + string(Preferred) + `"}`
	requiredValue  = `{"effect":"` + string(Required) + `"}`
)

var annotationsPath = field.NewPath("metadata", "annotations")

// ParseTarget reads the target annotation of a pod. Without one it returns the zero value
// and does not allocate. It returns errors with the annotation's path if there are several,
// if the workload type is invalid, or if the value is not a JSON object with at most the key
// effect and a known effect (design, section 4.1).
func ParseTarget(annotations map[string]string) (Target, field.ErrorList) {
	var key, value string
	found := 0
	for k, v := range annotations {
		if strings.HasPrefix(k, TargetPrefix) {
			found++
			key, value = k, v
		}
	}
	if found == 0 {
		return Target{}, nil
	}
	if found > 1 {
		var keys []string
		for _, k := range slices.Sorted(maps.Keys(annotations)) {
			if strings.HasPrefix(k, TargetPrefix) {
				keys = append(keys, abbreviate(k))
			}
		}
		const most = 3
		if found > most {
			keys = append(keys[:most], fmt.Sprintf("and %d more", found-most))
		}
		return Target{}, field.ErrorList{field.Invalid(annotationsPath, strings.Join(keys, ", "),
			"a pod may ask for one workload type; keep one annotation with the prefix "+TargetPrefix)}
	}
	workloadType := strings.TrimPrefix(key, TargetPrefix)
	invalid := func(what string, err error) (Target, field.ErrorList) {
		return Target{}, field.ErrorList{field.Invalid(annotationsPath.Key(abbreviate(key)), abbreviate(what), err.Error())}
	}
	if err := ValidateType(workloadType); err != nil {
		return invalid(workloadType, err)
	}
	effect, err := parseEffect(value)
	if err != nil {
		return invalid(value, err)
	}
	return Target{Type: workloadType, Effect: effect}, nil
}

// maxTargetValue is the largest value that is decoded, in bytes. Any user who may create pods writes it, and nothing
// has looked at its size yet.
const maxTargetValue = 1 << 10

const effectForm = `must be a JSON object such as {"effect": "PreferredDuringScheduling"}`

// parseEffect reads the value of a target annotation, as strictly as [Parse] reads a pinning file.
func parseEffect(value string) (Effect, error) {
	switch value {
	// What Mutate writes and what most users write needs no decoder.
	case "", preferredValue, `{"effect": "PreferredDuringScheduling"}`:
		return Preferred, nil
	case requiredValue, `{"effect": "RequiredDuringScheduling"}`:
		return Required, nil
	}
	if len(value) > maxTargetValue {
		return "", fmt.Errorf("is longer than %d bytes; %s", maxTargetValue, effectForm)
	}
	if strings.TrimSpace(value) == "" {
		return Preferred, nil
	}
	var keys map[string]any
	strict, err := kjson.UnmarshalStrict([]byte(value), &keys)
	if err == nil && keys == nil {
		err = errors.New("null is not an object")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s", effectForm, abbreviate(err.Error()))
	}
	effect := Preferred
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key != "effect" {
			return "", fmt.Errorf("unknown key %q; only effect is known", abbreviate(key))
		}
		name, isString := keys[key].(string)
		switch {
		case isString && name == "":
		case isString && (Effect(name) == Preferred || Effect(name) == Required):
			effect = Effect(name)
		default:
			return "", fmt.Errorf("unknown effect; must be %s or %s", Preferred, Required)
		}
	}
	if len(strict) > 0 {
		return "", errors.New("the key effect appears more than once")
	}
	return effect, nil
}
