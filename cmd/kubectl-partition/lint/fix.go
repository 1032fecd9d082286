// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"
	"workload.openshift.io/partition"
)

// change is an annotation that corrects a finding.
type change struct {
	object *object
	// path leads to the annotation in the object.
	path []string
	// value is what the new annotation has. Where key is set, the annotation exists, keeps its
	// value, and is renamed to key.
	value, key string
	// list: changes of the same annotation are united, separated by commas.
	list bool
}

// Fixed is a source as [Report.Fix] leaves it.
type Fixed struct {
	Source Source
	// Findings are those that are corrected.
	Findings []Finding
}

// Fix writes the annotations that correct fixable findings. It changes nothing else: text
// around them stays as it is, with comments, order and indentation. It returns the sources that
// differ. A problem is an annotation that cannot be written there without more changes.
func (r *Report) Fix() (fixed []Fixed, problems []Problem) {
	type place struct {
		object *object
		path   string
	}
	changes, findings := map[place]change{}, map[place][]Finding{}
	var places []place
	for _, f := range r.Findings {
		for _, c := range f.fixes {
			at := place{c.object, strings.Join(c.path, "\x00")}
			if before, ok := changes[at]; ok && c.list {
				c.value = strings.Join(unite(before.value, c.value), ",")
			} else if !ok {
				places = append(places, at)
			}
			changes[at] = c
			findings[at] = append(findings[at], f)
		}
	}
	edits := map[*document][]edit{}
	var documents []*document
	done := map[*Source]*Fixed{}
	var sources []*Source
	for _, at := range places {
		c := changes[at]
		d := c.object.document
		e, err := c.edit()
		if err != nil {
			file, line := c.object.at(c.path...)
			problems = append(problems, Problem{File: file, Line: line, Message: fmt.Sprintf("%s: cannot write the annotation %s: %v; write it by hand", c.object.Object, cmp.Or(c.key, c.path[len(c.path)-1]), err)})
			continue
		}
		if edits[d] == nil {
			documents = append(documents, d)
		}
		edits[d] = append(edits[d], e)
		if done[d.source] == nil {
			done[d.source] = &Fixed{Source: Source{Name: d.source.Name}}
			sources = append(sources, d.source)
		}
		done[d.source].Findings = append(done[d.source].Findings, findings[at]...)
	}
	for _, source := range sources {
		data, offset := []byte(nil), 0
		slices.SortFunc(documents, func(a, b *document) int { return cmp.Compare(a.offset, b.offset) })
		for _, d := range documents {
			if d.source == source {
				data = append(append(data, source.Data[offset:d.offset]...), apply(d.text, edits[d])...)
				offset = d.offset + len(d.text)
			}
		}
		done[source].Source.Data = append(data, source.Data[offset:]...)
		fixed = append(fixed, *done[source])
	}
	return fixed, problems
}

// unite returns the types of two allowed annotations, sorted.
func unite(a, b string) []string {
	types := append(partition.ParseTypes(a), partition.ParseTypes(b)...)
	slices.Sort(types)
	return slices.Compact(types)
}

// edit replaces a part of a document's text.
type edit struct {
	begin, end int
	text       string
}

func apply(text []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.begin, b.begin) })
	var result []byte
	offset := 0
	for _, e := range edits {
		result = append(append(result, text[offset:e.begin]...), e.text...)
		offset = e.end
	}
	return append(result, text[offset:]...)
}

// edit returns the edit that makes the change, if it makes that change and no other.
func (c change) edit() (edit, error) {
	d := c.object.document
	if d.source.utf16 {
		return edit{}, fmt.Errorf("the file is in UTF-16, and would become UTF-8")
	}
	if d.root == nil {
		return edit{}, fmt.Errorf("where it belongs is not known")
	}
	path := append(c.object.path[:len(c.object.path):len(c.object.path)], c.path...)
	var e edit
	var err error
	if c.key != "" {
		e, err = d.rename(path, c.key)
	} else {
		e, err = d.insert(path, c.value)
	}
	if err != nil {
		return edit{}, err
	}
	return e, c.verify(path, e)
}

// rename returns the edit that gives an entry another key.
func (d *document) rename(path []string, key string) (edit, error) {
	node, _, depth := lookup(d.root, path...)
	begin := d.position(node)
	text := d.text[begin:]
	for _, quote := range []string{"", `"`, "'"} {
		if old := quote + node.Value + quote; depth == len(path) && bytes.HasPrefix(text, []byte(old)) {
			return edit{begin, begin + len(old), quote + key + quote}, nil
		}
	}
	return edit{}, fmt.Errorf("it is not written where it is used")
}

// insert returns the edit that adds an entry, and the mappings that lead to it.
func (d *document) insert(path []string, value string) (edit, error) {
	parent, mapping, depth := lookup(d.root, path...)
	missing := path[depth:]
	newline := "\n"
	if bytes.Contains(d.text, []byte("\r\n")) {
		newline = "\r\n"
	}
	empty := mapping.Kind == yaml.ScalarNode && mapping.Tag == yaml.NodeTagNull && mapping.Value == ""
	switch {
	case mapping.Kind == yaml.MappingNode && mapping.Style&yaml.FlowStyle != 0:
		return d.insertFlow(mapping, missing, value, newline), nil
	case mapping.Kind == yaml.MappingNode && len(mapping.Content) > 0:
		first := mapping.Content[0]
		if parent != mapping && parent.Line < first.Line {
			return d.insertBelow(parent, first.Column-1, missing, value, newline), nil
		}
		// A document, or an element of a list, begins with its first key.
		begin := d.position(first)
		indent := strings.Repeat(" ", first.Column-1)
		return edit{begin, begin, strings.TrimPrefix(block(first.Column-1, missing, value, newline), indent) + indent}, nil
	case empty && parent != mapping:
		return d.insertBelow(parent, parent.Column-1+yaml.DefaultIndent, missing, value, newline), nil
	}
	return edit{}, fmt.Errorf("%s is not a mapping", strings.Join(path[:depth], "."))
}

// insertBelow returns the edit that adds lines below that of a key.
func (d *document) insertBelow(key *yaml.Node, indent int, missing []string, value, newline string) edit {
	begin := d.position(key)
	text := block(indent, missing, value, newline)
	if i := bytes.IndexByte(d.text[begin:], '\n'); i >= 0 {
		begin += i + 1
	} else {
		begin, text = len(d.text), newline+strings.TrimSuffix(text, newline)
	}
	return edit{begin, begin, text}
}

// block returns nested entries in block style, one a line.
func block(indent int, path []string, value, newline string) string {
	var text strings.Builder
	for i, key := range path {
		text.WriteString(strings.Repeat(" ", indent+i*yaml.DefaultIndent) + key + ":")
		if i == len(path)-1 {
			if strings.ContainsAny(value, "{,") {
				value = "'" + value + "'"
			}
			text.WriteString(" " + value)
		}
		text.WriteString(newline)
	}
	return text.String()
}

// insertFlow returns the edit that adds an entry to a mapping in braces.
func (d *document) insertFlow(mapping *yaml.Node, missing []string, value, newline string) edit {
	var text strings.Builder
	for i, key := range missing {
		fmt.Fprintf(&text, "%q: ", key)
		if i < len(missing)-1 {
			text.WriteString("{")
		}
	}
	fmt.Fprintf(&text, "%q%s", value, strings.Repeat("}", len(missing)-1))
	begin := d.position(mapping) + 1
	if len(mapping.Content) > 0 {
		first := mapping.Content[0]
		begin = d.position(first)
		if first.Line > mapping.Line {
			// JSON may be indented by tabs.
			text.WriteString("," + newline + string(d.text[bytes.LastIndexByte(d.text[:begin], '\n')+1:begin]))
		} else {
			text.WriteString(", ")
		}
	}
	return edit{begin, begin, text.String()}
}

// position returns where a node begins in the document's text, in bytes. A node's line and
// column count from one, and the column counts characters.
func (d *document) position(node *yaml.Node) int {
	begin := 0
	for range node.Line - 1 {
		begin += bytes.IndexByte(d.text[begin:], '\n') + 1
	}
	for range node.Column - 1 {
		_, size := utf8.DecodeRune(d.text[begin:])
		begin += size
	}
	return begin
}

// verify returns an error unless the edit makes just this change: an anchor may be used in
// other places as well, or an odd style have been misread.
func (c change) verify(path []string, e edit) error {
	var want, got any
	changed, err := sigsyaml.YAMLToJSON(apply(c.object.document.text, []edit{e}))
	if err == nil {
		err = json.Unmarshal(changed, &got)
	}
	if err != nil || json.Unmarshal(c.object.document.json, &want) != nil {
		return fmt.Errorf("its surroundings are written in an unusual way")
	}
	if want = c.set(want, path); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("something else would change with it")
	}
	return nil
}

// set makes the change in a decoded document.
func (c change) set(in any, path []string) any {
	if list, ok := in.([]any); ok {
		for i := range list {
			if fmt.Sprint(i) == path[0] {
				list[i] = c.set(list[i], path[1:])
			}
		}
		return list
	}
	mapping, ok := in.(map[string]any)
	if !ok {
		mapping = map[string]any{}
	}
	switch {
	case len(path) > 1:
		mapping[path[0]] = c.set(mapping[path[0]], path[1:])
	case c.key != "":
		mapping[c.key] = mapping[path[0]]
		delete(mapping, path[0])
	default:
		mapping[path[0]] = c.value
	}
	return mapping
}
