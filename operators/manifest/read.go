// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Read reads the manifest into a value with JSON tags, as kube-apiserver does. Problems are fields that the value does not have, or that
// are there twice, and values of another type.
func (m Manifest) Read(into any) (problems []Problem) {
	data, err := sigsyaml.YAMLToJSONStrict([]byte(m.Text))
	if err != nil {
		return []Problem{m.Problem(lineIn(err), "%s", strings.ReplaceAll(textOf(err), "\n", "; "))}
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			node := find(m.root, wrong.Field, func(n *yaml.Node) bool { return !fits(n, wrong.Type) })
			return []Problem{m.Problem(node.Line, "%s: Invalid value: %s where %s is expected", wrong.Field, wrong.Value, described(wrong.Type))}
		}
		return []Problem{m.Problem(0, "%v", err)}
	}
	for _, err := range strict {
		var wrong kjson.FieldError
		if !errors.As(err, &wrong) {
			problems = append(problems, m.Problem(0, "%v", err))
			continue
		}
		text := err.Error()
		if m.Is(PerformanceProfileKind) { // it may be one of the Node Tuning Operator's
			text = fmt.Sprintf("this version does nothing with the field %s of a PerformanceProfile; remove it", wrong.FieldPath())
		}
		problems = append(problems, m.ProblemAt(wrong.FieldPath(), "%s", text))
	}
	return problems
}

// Has reports whether a field, such as spec.recommend[0].priority, is there and not null.
func (m Manifest) Has(path string) bool {
	_, has := descend(m.root.Content[0], step.FindAllString(path, -1), func(n *yaml.Node) bool { return n.ShortTag() != "!!null" })
	return has
}

var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// find returns the node of a path, such as spec.recommend[0].priority, or the last on the way there. Where the path has no
// index, it is any element, one that is wanted if there is one.
func find(root *yaml.Node, path string, want func(*yaml.Node) bool) *yaml.Node {
	node := root
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	node, _ = descend(node, step.FindAllString(path, -1), want)
	return node
}

func descend(node *yaml.Node, steps []string, want func(*yaml.Node) bool) (found *yaml.Node, wanted bool) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if len(steps) == 0 {
		return node, want == nil || want(node)
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if name, ok := strings.CutPrefix(steps[0], "["); ok {
			if i, err := strconv.Atoi(strings.TrimSuffix(name, "]")); err == nil && i < len(node.Content) {
				return descend(node.Content[i], steps[1:], want)
			}
			return node, false
		}
		for _, element := range node.Content {
			if found, wanted := descend(element, steps, want); wanted {
				return found, true
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value != steps[0] {
				continue
			}
			below, wanted := descend(node.Content[i+1], steps[1:], want)
			if len(steps) == 1 {
				return node.Content[i], wanted // the key: the value may begin on another line
			}
			return below, wanted
		}
	}
	return node, false
}

// fits reports whether a node can be decoded into a type.
func fits(node *yaml.Node, t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return node.ShortTag() == "!!str"
	case reflect.Bool:
		return node.ShortTag() == "!!bool"
	case reflect.Slice:
		return node.Kind == yaml.SequenceNode
	case reflect.Struct, reflect.Map:
		return node.Kind == yaml.MappingNode
	default:
		return node.ShortTag() == "!!int"
	}
}

// described is a type in the words of those who write manifests.
func described(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a whole number"
	}
}
