// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// Fault is one reason why the Tuneds of a ConfigMap are not valid.
type Fault struct {
	// Document is counted from 1, empty ones left out. Line is that of the key's text, from 1.
	Document, Line int
	// Text names the field, where there is one, and what to do.
	Text string
}

// Invalid is the error of a ConfigMap whose Tuneds are not valid. Then none of them counts.
type Invalid struct {
	// Source is namespace and name of the ConfigMap.
	Source string
	// Faults are in the order of their lines. There is at least one.
	Faults []Fault
}

// faultsTold is how many faults an error tells.
const faultsTold = 5

func (e *Invalid) Error() string {
	return fmt.Sprintf("ConfigMap %s, key %s: %s", e.Source, tunedv1.TuningKey, e.Told())
}

// Told tells the faults, without their source.
func (e *Invalid) Told() string {
	var texts []string
	for _, fault := range e.Faults[:min(len(e.Faults), faultsTold)] {
		texts = append(texts, fmt.Sprintf("document %d, line %d: %s", fault.Document, fault.Line, fault.Text))
	}
	if more := len(e.Faults) - faultsTold; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Parse reads the Tuneds of a NodePool: the YAML documents of the key tuning of a ConfigMap. It returns all of them or, if
// anything is not valid, an *Invalid.
func Parse(source, text string) ([]tunedv1.Tuned, error) {
	var (
		tuneds    []tunedv1.Tuned
		documents []document
		faults    []Fault
	)
	for _, document := range split(text) {
		tuned, found := document.tuned()
		faults = append(faults, found...)
		if len(found) == 0 {
			tuneds = append(tuneds, *tuned)
			documents = append(documents, document)
		}
	}
	faults = append(faults, conflicts(tuneds, documents)...)
	if len(faults) > 0 {
		slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
		return nil, &Invalid{source, faults}
	}
	return tuneds, nil
}

// conflicts are names that two documents use for different things.
func conflicts(tuneds []tunedv1.Tuned, documents []document) (faults []Fault) {
	named := map[string][]int{}
	type profile struct{ document, index int }
	profiles := map[string][]profile{}
	for i, tuned := range tuneds {
		named[tuned.Name] = append(named[tuned.Name], i)
		for k, p := range tuned.Spec.Profile {
			profiles[p.Name] = append(profiles[p.Name], profile{i, k})
		}
	}
	for name, all := range named {
		if len(all) < 2 {
			continue
		}
		for _, i := range all {
			faults = append(faults, documents[i].fault(field.Invalid(field.NewPath("metadata", "name"), name, "two Tuneds of the NodePool have this name; rename one of them")))
		}
	}
	for name, all := range profiles {
		data := map[string]bool{}
		for _, p := range all {
			data[tuneds[p.document].Spec.Profile[p.index].Data] = true
		}
		if len(data) < 2 {
			continue
		}
		for _, p := range all {
			path := field.NewPath("spec", "profile").Index(p.index).Child("name")
			faults = append(faults, documents[p.document].fault(field.Invalid(path, name, "two profiles of the NodePool have this name and different data; rename one of them")))
		}
	}
	return faults
}

// document is a YAML document of a text.
type document struct {
	// number counts from 1; line is how many lines are before it.
	number, line int
	text         string
}

var separator = regexp.MustCompile(`(?m)^---([ \t].*)?\r?$`)

func split(text string) (documents []document) {
	line, rest := 0, text
	for {
		end := separator.FindStringIndex(rest)
		piece := rest
		if end != nil {
			piece = rest[:end[0]]
		}
		if !empty(piece) {
			documents = append(documents, document{len(documents) + 1, line, piece})
		}
		if end == nil {
			return documents
		}
		line += strings.Count(rest[:end[1]], "\n")
		rest = rest[end[1]:]
	}
}

// empty reports whether a document has nothing but comments.
func empty(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

var lineOf = regexp.MustCompile(`\bline (\d+): `)

// tuned reads a document.
func (d document) tuned() (*tunedv1.Tuned, []Fault) {
	root := &yamlv3.Node{}
	if err := yamlv3.Unmarshal([]byte(d.text), root); err != nil {
		line, text := d.line+1, strings.TrimPrefix(err.Error(), "yaml: ")
		if match := lineOf.FindStringSubmatchIndex(text); match != nil {
			n, _ := strconv.Atoi(text[match[2]:match[3]])
			line, text = d.line+n, text[match[1]:]
		}
		return nil, []Fault{{d.number, line, text}}
	}
	data, err := yaml.YAMLToJSONStrict([]byte(d.text))
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if match := lineOf.FindStringSubmatchIndex(text); match != nil {
			n, _ := strconv.Atoi(text[match[2]:match[3]])
			return nil, []Fault{{d.number, d.line + n, text[match[1]:]}}
		}
		return nil, []Fault{{d.number, d.line + first(root), text}}
	}
	tuned := &tunedv1.Tuned{}
	strict, err := kjson.UnmarshalStrict(data, tuned)
	if err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			node := find(root, wrong.Field, func(n *yamlv3.Node) bool { return !fits(n, wrong.Type) })
			return nil, []Fault{{d.number, d.line + node.Line, fmt.Sprintf("%s: Invalid value: %s where %s is expected", wrong.Field, wrong.Value, wrong.Type)}}
		}
		return nil, []Fault{{d.number, d.line + first(root), err.Error()}}
	}
	var faults []Fault
	if want := tunedv1.GroupVersion.String(); tuned.APIVersion != want || tuned.Kind != "Tuned" {
		path := field.NewPath("kind")
		return nil, []Fault{{d.number, d.line + find(root, path.String(), nil).Line, fmt.Sprintf("kind: %q of apiVersion %q cannot be used here; the only one that can is Tuned of %s", tuned.Kind, tuned.APIVersion, want)}}
	}
	for _, err := range strict {
		var wrong kjson.FieldError
		line := first(root)
		if errors.As(err, &wrong) {
			line = find(root, wrong.FieldPath(), nil).Line
		}
		faults = append(faults, Fault{d.number, d.line + line, err.Error()})
	}
	for _, err := range validate(tuned) {
		faults = append(faults, Fault{d.number, d.line + find(root, err.Field, nil).Line, err.Error()})
	}
	return tuned, faults
}

func (d document) fault(err *field.Error) Fault {
	root := &yamlv3.Node{}
	_ = yamlv3.Unmarshal([]byte(d.text), root) // it was read before
	return Fault{d.number, d.line + find(root, err.Field, nil).Line, err.Error()}
}

// first is the line of a document's first node.
func first(root *yamlv3.Node) int {
	if len(root.Content) > 0 {
		return root.Content[0].Line
	}
	return 1
}

var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// find returns the node of a path, such as spec.recommend[0].priority, or the last on the way there. Where the path has no
// index, it is any element, one that is wanted if there is one.
func find(root *yamlv3.Node, path string, want func(*yamlv3.Node) bool) *yamlv3.Node {
	node := root
	if node.Kind == yamlv3.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	node, _ = descend(node, step.FindAllString(path, -1), want)
	return node
}

func descend(node *yamlv3.Node, steps []string, want func(*yamlv3.Node) bool) (found *yamlv3.Node, wanted bool) {
	if node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	if len(steps) == 0 {
		return node, want == nil || want(node)
	}
	switch node.Kind {
	case yamlv3.SequenceNode:
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
	case yamlv3.MappingNode:
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
func fits(node *yamlv3.Node, t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return node.ShortTag() == "!!str"
	case reflect.Bool:
		return node.ShortTag() == "!!bool"
	case reflect.Slice:
		return node.Kind == yamlv3.SequenceNode
	case reflect.Struct, reflect.Map:
		return node.Kind == yamlv3.MappingNode
	default:
		return node.ShortTag() == "!!int"
	}
}

// validate checks what the schema of a Tuned does not.
func validate(tuned *tunedv1.Tuned) (errs field.ErrorList) {
	name := field.NewPath("metadata", "name")
	if tuned.Name == "" {
		errs = append(errs, field.Required(name, "the name of the Tuned"))
	}
	for _, text := range validation.IsDNS1123Subdomain(tuned.Name) {
		if tuned.Name != "" {
			errs = append(errs, field.Invalid(name, tuned.Name, text))
		}
	}
	if len(tuned.Name) > tunedv1.MaxName {
		errs = append(errs, field.TooLong(name, tuned.Name, tunedv1.MaxName))
	}
	if tuned.Namespace != "" && tuned.Namespace != tunedv1.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), tuned.Namespace, "leave it out: all Tuneds are in "+tunedv1.Namespace))
	}
	if value := tuned.Annotations[tunedv1.DeferredAnnotation]; value != "" && !slices.Contains(tunedv1.DeferModes, value) {
		// To apply it at once may be what the annotation asks not to do.
		errs = append(errs, field.NotSupported(field.NewPath("metadata", "annotations").Key(tunedv1.DeferredAnnotation), value, tunedv1.DeferModes))
	}
	if len(tuned.Status.Conditions) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("status"), "the operator writes it"))
	}
	spec := field.NewPath("spec")
	if state := tuned.Spec.ManagementState; state != "" && state != "Managed" {
		errs = append(errs, field.NotSupported(spec.Child("managementState"), state, []string{"Managed"}))
	}
	for i, profile := range tuned.Spec.Profile {
		path := spec.Child("profile").Index(i)
		errs = append(errs, validateProfileName(path.Child("name"), profile.Name)...)
		if strings.TrimSpace(profile.Data) == "" {
			errs = append(errs, field.Required(path.Child("data"), "the content of the profile's tuned.conf"))
		}
	}
	for i, entry := range tuned.Spec.Recommend {
		path := spec.Child("recommend").Index(i)
		errs = append(errs, validateProfileName(path.Child("profile"), entry.Profile)...)
		if entry.Priority < 0 {
			errs = append(errs, field.Invalid(path.Child("priority"), entry.Priority, "must be 0, which is the highest, or more"))
		}
		errs = append(errs, validateMatches(path.Child("match"), entry.Match, 1)...)
	}
	return errs
}

func validateProfileName(path *field.Path, name string) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "the name of a TuneD profile")}
	case len(name) > tunedv1.MaxProfileName:
		return field.ErrorList{field.TooLong(path, name, tunedv1.MaxProfileName)}
	case !tunedv1.IsProfileName(name):
		return field.ErrorList{field.Invalid(path, name, "must have only letters, digits, hyphens, dots and underscores, and begin with no hyphen")}
	}
	return nil
}

func validateMatches(path *field.Path, matches []tunedv1.TunedMatch, depth int) (errs field.ErrorList) {
	if len(matches) > 0 && depth > tunedv1.MaxMatchDepth {
		return field.ErrorList{field.Invalid(path, depth, fmt.Sprintf("rules can be nested %d deep", tunedv1.MaxMatchDepth))}
	}
	for i, match := range matches {
		path := path.Index(i)
		if match.Label == "" {
			errs = append(errs, field.Required(path.Child("label"), "the name of a label"))
		} else {
			for _, text := range validation.IsQualifiedName(match.Label) {
				errs = append(errs, field.Invalid(path.Child("label"), match.Label, text))
			}
		}
		if match.Value != nil {
			for _, text := range validation.IsValidLabelValue(*match.Value) {
				errs = append(errs, field.Invalid(path.Child("value"), *match.Value, text))
			}
		}
		if match.Type != "" && match.Type != tunedv1.MatchNode && match.Type != tunedv1.MatchPod {
			errs = append(errs, field.NotSupported(path.Child("type"), match.Type, []tunedv1.MatchType{tunedv1.MatchNode, tunedv1.MatchPod}))
		}
		errs = append(errs, validateMatches(path.Child("match"), match.Match, depth+1)...)
	}
	return errs
}
