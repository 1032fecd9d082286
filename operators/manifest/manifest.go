// SPDX-License-Identifier: Apache-2.0

// Package manifest reads manifests that users put into ConfigMaps: documents of YAML. Each problem has the document and the line of what
// a person has to change. It also reads the kinds that more than one companion reads, Tuned and PerformanceProfile, so that what one
// companion takes the other can use.
//
// It knows no companion and no client.
package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Problem is something that a person has to change in a ConfigMap.
type Problem struct {
	// ConfigMap is NAMESPACE/NAME, and Key one of its data. Document counts the documents of YAML there, and Line the lines
	// of the value, both from one. Zero is the ConfigMap, or the document, as a whole.
	ConfigMap, Key string
	Document, Line int
	// Text says what is wrong and what to do.
	Text string
}

func (p Problem) String() string {
	where := "ConfigMap " + p.ConfigMap
	if p.Key != "" {
		where += ", key " + p.Key
	}
	if p.Document > 0 {
		where += ", document " + strconv.Itoa(p.Document)
	}
	if p.Line > 0 {
		where += ", line " + strconv.Itoa(p.Line)
	}
	return where + ": " + p.Text
}

// Manifest is one document of YAML that has an apiVersion, a kind and a name. Split makes it.
type Manifest struct {
	// At is where it begins, without a text.
	At Problem
	// Text is what is there, without blank lines around it.
	Text                   string
	APIVersion, Kind, Name string

	root *yaml.Node
}

// Is reports whether a manifest is of a kind, as APIVERSION KIND.
func (m Manifest) Is(kind string) bool { return m.APIVersion+" "+m.Kind == kind }

// Problem is about a line of the manifest, from one, or about all of it.
func (m Manifest) Problem(line int, format string, args ...any) Problem {
	p := m.At
	if line > 0 {
		p.Line = m.At.Line + line - 1
	}
	p.Text = fmt.Sprintf(format, args...)
	return p
}

// ProblemAt is about a field, such as spec.recommend[0].priority, or about what is there on the way to it.
func (m Manifest) ProblemAt(path, format string, args ...any) Problem {
	return m.Problem(find(m.root, path, nil).Line, format, args...)
}

// String is for messages about two manifests.
func (m Manifest) String() string {
	return fmt.Sprintf("%s %s (ConfigMap %s, document %d)", m.Kind, m.Name, m.At.ConfigMap, m.At.Document)
}

// documentMark begins or ends a document of YAML. Nothing else of one can be at the beginning of a line (YAML 1.2, 9.1.2).
var documentMark = regexp.MustCompile(`^(---|\.\.\.)(?:[ \t]|$)`)

// Split returns the manifests of a value. Documents without any content are left out, and counted all the same; a mark at
// the beginning begins the first. Reading stops at the document that makes the value too large.
func Split(configMap, key, value string) (manifests []Manifest, problems []Problem) {
	at := Problem{ConfigMap: configMap, Key: key, Document: 1, Line: 1}
	var lines []string
	exact, left := true, all
	flush := func() {
		m := Manifest{At: at, Text: strings.Join(lines, "\n")}
		has, more := m.read(&exact, &left)
		if problems = append(problems, more...); has && more == nil {
			manifests = append(manifests, m)
		}
	}
	for i, line := range strings.Split(strings.ReplaceAll(value, "\r\n", "\n"), "\n") {
		mark := documentMark.FindString(line)
		if mark == "" {
			lines = append(lines, line)
			continue
		}
		if flush(); left.isFull() {
			return manifests, problems
		}
		if at.Line > 1 || strings.TrimSpace(strings.Join(lines, "")) != "" {
			at.Document++
		}
		at.Line = i + 1
		// What follows a mark on its line is the document's. Blanks keep the columns as they are.
		lines = []string{strings.Repeat(" ", len(mark)) + line[len(mark):]}
		if strings.HasPrefix(mark, "...") {
			at.Document-- // the next mark begins one
		}
	}
	flush()
	return manifests, problems
}

// read reads what every manifest has. It reports whether there is any content. A problem of the first document that is no YAML has its
// exact line, for which the document is read many times over; exact is whether that is still to be done. left is what remains of the value's room.
func (m *Manifest) read(exact *bool, left *room) (has bool, problems []Problem) {
	// The text begins with the first line that is not blank.
	for {
		first, rest, more := strings.Cut(m.Text, "\n")
		if !more || strings.TrimSpace(first) != "" {
			break
		}
		m.Text = rest
		m.At.Line++
	}
	m.Text = strings.TrimRight(m.Text, " \t\n")
	m.root = &yaml.Node{}
	if err := yaml.Unmarshal([]byte(m.Text), m.root); err != nil {
		line := 0
		if *exact {
			line, *exact = m.brokenFrom(), false
		}
		return true, []Problem{m.Problem(line, "it is no YAML: %s", textOf(err))}
	}
	if m.root.Kind == 0 {
		return false, nil
	}
	if left.take(m.root); left.isFull() {
		return true, []Problem{m.Problem(0, "with what is before it, it has more than %s", all)}
	}
	m.APIVersion, m.Kind, m.Name = m.scalar("apiVersion"), m.scalar("kind"), m.scalar("metadata", "name")
	switch {
	case m.APIVersion == "" || m.Kind == "":
		return true, []Problem{m.Problem(0, "apiVersion and kind are required; it has %q and %q", m.APIVersion, m.Kind)}
	case m.Name == "":
		return true, []Problem{m.Problem(0, "the %s has no metadata.name", m.Kind)}
	}
	return true, nil
}

// room is what one value may have: nodes of YAML, and bytes of their texts. Each alias counts as what it stands for. Decoding takes many
// times as much memory, and a few thousand aliases of one long text would fill any.
type room struct{ nodes, bytes int }

// all is the room for one value. No ConfigMap holds more bytes, so only aliases can exceed it.
var all = room{20_000, 1 << 20}

func (r room) String() string {
	return fmt.Sprintf("%d keys and values, or %d bytes of them, each alias (*NAME) counted as what it stands for; shorten it", r.nodes, r.bytes)
}

func (r room) isFull() bool { return r.nodes < 0 || r.bytes < 0 }

// take takes the room for a node and all below it, until none is left.
func (r *room) take(node *yaml.Node) {
	r.nodes--
	r.bytes -= len(node.Value)
	if node.Kind == yaml.AliasNode && !r.isFull() {
		r.take(node.Alias)
	}
	for i := 0; i < len(node.Content) && !r.isFull(); i++ {
		r.take(node.Content[i])
	}
}

// JSON returns a value of one document as JSON. One that is larger than what Split reads is an error, and so is what is no YAML.
func JSON(value string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(value), &root); err != nil {
		return nil, err
	}
	left := all
	if left.take(&root); left.isFull() {
		return nil, fmt.Errorf("it has more than %s", all)
	}
	return sigsyaml.YAMLToJSON([]byte(value))
}

// scalar returns the value of a field that is no object and no list; empty if there is none.
func (m Manifest) scalar(path ...string) string {
	node := m.root.Content[0]
	for _, name := range path {
		at := -1
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				at = i + 1
			}
		}
		if at < 0 {
			return ""
		}
		if node = node.Content[at]; node.Kind == yaml.AliasNode {
			node = node.Alias
		}
	}
	if node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null" {
		return ""
	}
	return node.Value
}

// atLine is in the errors of both YAML libraries, which have no other form.
var atLine = regexp.MustCompile(`\bline (\d+): `)

// textOf returns what an error of a YAML library says, without the library's name and the first line.
func textOf(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if match := atLine.FindStringIndex(text); match != nil {
		return text[match[1]:]
	}
	return text
}

// lineIn returns the first line that an error of a YAML library names; zero if it names none.
func lineIn(err error) int {
	match := atLine.FindStringSubmatch(err.Error())
	if match == nil {
		return 0
	}
	line, _ := strconv.Atoi(match[1]) // it has digits alone
	return line
}

// brokenFrom returns the line, from one, from which on the document is no YAML, whatever follows. The library's own lines
// are those at which the enclosing list or object begins, and sometimes none.
func (m Manifest) brokenFrom() int {
	lines := strings.Split(m.Text, "\n")
	if len(lines)*len(m.Text) > 10<<20 {
		return 0 // it takes longer than it is worth
	}
	for n := len(lines) - 1; n > 0; n-- {
		var node yaml.Node
		if yaml.Unmarshal([]byte(strings.Join(lines[:n], "\n")), &node) == nil {
			return n + 1
		}
	}
	return 1
}
