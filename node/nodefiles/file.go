// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// File is a file that was rendered.
type File struct {
	// Path is absolute for a file of a node, which belongs to root there.
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// YAML renders an object as YAML and decodes it again.
func YAML[T any](path string, mode fs.FileMode, header string, object T) (File, error) {
	file, err := WriteYAML(path, mode, header, object)
	if err != nil {
		return File{}, err
	}
	var again T
	if err := file.DecodeYAML(&again); err != nil {
		return File{}, err
	}
	return file, file.MustEqual(object, again)
}

// WriteYAML renders an object as YAML without the fields that are zero. Types that others
// wrote do not leave these out, and a duration of "0s" in a fragment of the kubelet's
// configuration would override what is set elsewhere.
func WriteYAML[T any](path string, mode fs.FileMode, header string, object T) (File, error) {
	var zero T
	var fields [2]any
	for i, value := range []T{object, zero} {
		data, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(data, &fields[i])
		}
		if err != nil {
			return File{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	data, err := yaml.Marshal(withoutZero(fields[0], fields[1]))
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return File{Path: path, Mode: mode, Content: append([]byte(header), data...)}, nil
}

// DecodeYAML decodes the file strictly.
func (f File) DecodeYAML(into any) error {
	if err := yaml.UnmarshalStrict(f.Content, into); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}

// MustEqual returns an error if the decoded file is not what was meant.
func (f File) MustEqual(meant, decoded any) error {
	if !equality.Semantic.DeepEqual(meant, decoded) {
		return fmt.Errorf("%s: it would be read as %+v, and is meant to be %+v", f.Path, decoded, meant)
	}
	return nil
}

// withoutZero removes from decoded JSON what is empty, or as in the decoded zero value of the
// same type. It returns nil if nothing is left. In lists, the zero value is unknown.
func withoutZero(value, zero any) any {
	if reflect.DeepEqual(value, zero) {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		zeros, _ := zero.(map[string]any)
		for key, entry := range value {
			if value[key] = withoutZero(entry, zeros[key]); value[key] == nil {
				delete(value, key)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		for i, element := range value {
			if fields, ok := element.(map[string]any); ok {
				value[i] = withoutZero(fields, nil)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}
