// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
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

// manifest is one document of YAML.
type manifest struct {
	// at is where it is, without a text.
	at Problem
	// text is what is there, without blank lines around it.
	text                   string
	apiVersion, kind, name string
}

func (m manifest) problem(line int, format string, args ...any) Problem {
	p := m.at
	if line > 0 {
		p.Line = m.at.Line + line - 1
	}
	p.Text = fmt.Sprintf(format, args...)
	return p
}

// String is for messages about two manifests.
func (m manifest) String() string {
	return fmt.Sprintf("%s %s (ConfigMap %s, document %d)", m.kind, m.name, m.at.ConfigMap, m.at.Document)
}

// documentMark begins or ends a document of YAML. Nothing else of one can be at the beginning of a line (YAML 1.2, 9.1.2).
var documentMark = regexp.MustCompile(`^(---|\.\.\.)(?:[ \t]|$)`)

// split returns the documents of a value. Documents without any content are left out, and counted all the same; a mark at
// the beginning begins the first.
func split(configMap, key, value string) (manifests []manifest, problems []Problem) {
	at := Problem{ConfigMap: configMap, Key: key, Document: 1, Line: 1}
	var lines []string
	flush := func() {
		m := manifest{at: at, text: strings.Join(lines, "\n")}
		has, more := m.read()
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
		flush()
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

// read reads what every manifest has. It reports whether there is any content.
func (m *manifest) read() (has bool, problems []Problem) {
	var node yaml.Node
	err := yaml.Unmarshal([]byte(m.text), &node)
	if err == nil && node.Kind == 0 {
		return false, nil
	}
	var header struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
	}
	if err == nil {
		err = node.Decode(&header)
	}
	if err != nil {
		return true, m.explain(err)
	}
	m.apiVersion, m.kind, m.name = header.APIVersion, header.Kind, header.Metadata.Name
	// The text begins with the first line that is not blank.
	for {
		first, rest, more := strings.Cut(m.text, "\n")
		if !more || strings.TrimSpace(first) != "" {
			break
		}
		m.text = rest
		m.at.Line++
	}
	m.text = strings.TrimRight(m.text, " \t\n")
	switch {
	case m.apiVersion == "" || m.kind == "":
		return true, []Problem{m.problem(0, "apiVersion and kind are required; it has %q and %q", m.apiVersion, m.kind)}
	case m.name == "":
		return true, []Problem{m.problem(0, "the %s has no metadata.name", m.kind)}
	}
	return true, nil
}

// strict reads the manifest into a struct, which must have all fields that are there.
func (m manifest) strict(into any) []Problem {
	decoder := yaml.NewDecoder(strings.NewReader(m.text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return m.explain(err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(m.text), &node); err != nil {
		return m.explain(err)
	}
	return m.empties(&node)
}

// empties names the entries of lists that have nothing: the library leaves them out.
func (m manifest) empties(node *yaml.Node) (problems []Problem) {
	for _, each := range node.Content {
		if node.Kind == yaml.SequenceNode && each.ShortTag() == "!!null" {
			problems = append(problems, m.problem(each.Line, "this entry of a list is empty; remove it"))
		}
		problems = append(problems, m.empties(each)...)
	}
	return problems
}

// The texts of go.yaml.in/yaml/v3, which has no other form of its errors (decode.go, terror; yaml.go, fail).
var (
	atLine       = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type `)
	definedTwice = regexp.MustCompile(`^mapping key (.*) already defined at line (\d+)$`)
	wrongType    = regexp.MustCompile("^cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.+)$")
)

// explain says where a document cannot be read, and why.
func (m manifest) explain(err error) (problems []Problem) {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if match := atLine.FindStringSubmatch(err.Error()); match != nil {
			text = match[2]
		}
		return []Problem{m.problem(m.brokenFrom(), "it is no YAML: %s", text)}
	}
	for _, text := range types.Errors {
		match := atLine.FindStringSubmatch(text)
		if match == nil {
			problems = append(problems, m.problem(0, "%s", text))
			continue
		}
		line, _ := strconv.Atoi(match[1]) // it has digits alone
		text = match[2]
		if match := unknownField.FindStringSubmatch(text); match != nil {
			text = fmt.Sprintf("there is no field %q here", match[1])
			if m.is(performanceProfileKind) { // it may be one of the Node Tuning Operator's
				text = fmt.Sprintf("this version does nothing with the field %q of a PerformanceProfile; remove it", match[1])
			}
		} else if match := definedTwice.FindStringSubmatch(text); match != nil {
			first, _ := strconv.Atoi(match[2])
			text = fmt.Sprintf("the field %s is there already, in line %d", match[1], m.at.Line+first-1)
		} else if match := wrongType.FindStringSubmatch(text); match != nil {
			found := described("", match[1])
			if match[2] != "" {
				found = strconv.Quote(match[2])
			}
			text = fmt.Sprintf("%s is not %s", found, described(match[3], ""))
		}
		problems = append(problems, m.problem(line, "%s", text))
	}
	return problems
}

// described is a type of Go, or a tag of YAML, in the words of those who write manifests.
func described(goType, tag string) string {
	switch {
	case strings.HasPrefix(goType, "[]") || tag == "seq":
		return "a list"
	case strings.HasPrefix(goType, "uint"):
		return "a whole number from 0"
	case strings.HasPrefix(goType, "int") || tag == "int":
		return "a whole number"
	case goType == "bool" || tag == "bool":
		return "true or false"
	case goType == "string" || strings.HasSuffix(goType, ".text") || tag == "str":
		return "a text"
	case tag == "null":
		return "nothing"
	case tag == "float":
		return "a number"
	}
	return "an object"
}

// brokenFrom returns the line, from one, from which on the document is no YAML, whatever follows. The library's own lines
// are those at which the enclosing list or object begins, and sometimes none.
func (m manifest) brokenFrom() int {
	lines := strings.Split(m.text, "\n")
	if len(lines)*len(m.text) > 10<<20 {
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

// text is a string of YAML. The library also takes true and 1 for one, which kube-apiserver refuses.
type text string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *text) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		problem := fmt.Sprintf("line %d: an object or a list is not a text", node.Line)
		if node.Kind == yaml.ScalarNode {
			problem = fmt.Sprintf("line %d: %s is not a text; write \"%[2]s\"", node.Line, node.Value)
		}
		return &yaml.TypeError{Errors: []string{problem}}
	}
	*t = text(node.Value)
	return nil
}
