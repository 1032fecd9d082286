// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Source is what is linted: a file, or an object of a cluster.
type Source struct {
	// Name is the file's, or Stdin. It is empty for an object of a cluster.
	Name string
	// Data is any number of documents, in YAML or JSON.
	Data []byte

	// utf16: the file has Data in UTF-16.
	utf16 bool
}

// newSource returns a source whose text may be UTF-16 with a byte order mark, as Windows PowerShell writes it and kubectl
// reads it (k8s.io/cli-runtime, pkg/resource, FileVisitor).
func newSource(name string, data []byte) (Source, error) {
	if !bytes.HasPrefix(data, []byte("\xff\xfe")) && !bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return Source{Name: name, Data: data}, nil
	}
	text, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), data)
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w", name, err)
	}
	return Source{Name: name, Data: text, utf16: true}, nil
}

// Stdin is the name of standard input.
const Stdin = "-"

// Read reads files, the YAML, JSON, Butane, Ignition and pinning files below directories, and standard input. It does not
// look into hidden directories, and reads a file once, however often it is named.
func Read(paths []string, stdin io.Reader) ([]Source, error) {
	var sources []Source
	seen := map[string]bool{}
	add := func(name string, data []byte, err error) error {
		if err != nil {
			return err
		}
		source, err := newSource(name, data)
		sources = append(sources, source)
		return err
	}
	addFile := func(name string) error {
		if seen[filepath.Clean(name)] {
			return nil
		}
		seen[filepath.Clean(name)] = true
		data, err := os.ReadFile(name)
		return add(name, data, err)
	}
	for _, path := range paths {
		if path == Stdin {
			data, err := io.ReadAll(stdin)
			if err := add(Stdin, data, err); err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			continue
		}
		root := path
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			root += string(filepath.Separator) // follow a link
		}
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name == root && !entry.IsDir():
				return addFile(name)
			case entry.IsDir():
				if name != root && strings.HasPrefix(entry.Name(), ".") {
					return filepath.SkipDir
				}
				return nil
			}
			if !slices.Contains([]string{".yaml", ".yml", ".json", ".bu", ".ign"}, filepath.Ext(name)) && entry.Name() != pinningFileName {
				return nil
			}
			// Follow a link to a file, and leave out sockets and the like.
			if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
				return err
			}
			return addFile(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// document is one document of a source.
type document struct {
	source *Source
	// offset and line are where it begins, in bytes and in lines, from zero.
	offset, line int
	text         []byte
	// json is what a client would send to kube-apiserver; nil before parse, unless the text is
	// JSON already.
	json []byte
	// root knows where everything is; nil if that is not known.
	root *yaml.Node
}

// split cuts a source into its documents. A line that begins with "---" ends a document
// wherever it stands (YAML 1.2, section 9.1.2), so a broken document does not spoil the next.
func split(source *Source) []*document {
	var documents []*document
	// kubectl leaves out a byte order mark, which Windows PowerShell writes in UTF-8, too.
	begin := len(source.Data) - len(bytes.TrimPrefix(source.Data, []byte("\ufeff")))
	beginLine, offset, line := 0, begin, 0
	end := func() {
		if text := source.Data[begin:offset]; !isEmpty(text) {
			documents = append(documents, splitJSON(&document{source: source, offset: begin, line: beginLine, text: text})...)
		}
		begin, beginLine = offset, line
	}
	for offset < len(source.Data) {
		next := len(source.Data)
		if i := bytes.IndexByte(source.Data[offset:], '\n'); i >= 0 {
			next = offset + i + 1
		}
		content := source.Data[offset:next]
		if isMarker(content, "---") {
			end()
		}
		offset, line = next, line+1
		if isMarker(content, "...") {
			end()
		}
	}
	end()
	return documents
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

// isEmpty reports whether a document has nothing but comments, markers and directives.
func isEmpty(text []byte) bool {
	for line := range bytes.Lines(text) {
		switch content := bytes.TrimSpace(line); {
		case len(content) == 0, content[0] == '#', content[0] == '%', isMarker(content, "..."), string(content) == "---":
		case isMarker(content, "---") && bytes.HasPrefix(bytes.TrimSpace(content[3:]), []byte("#")):
		default:
			return false
		}
	}
	return true
}

// splitJSON cuts a document that is a stream of JSON objects, which need nothing between them.
func splitJSON(whole *document) []*document {
	rest := whole.text
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return []*document{whole}
	}
	var documents []*document
	for decoder, begin := json.NewDecoder(bytes.NewReader(rest)), 0; ; {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return documents
		}
		begin += len(rest[begin:]) - len(bytes.TrimLeft(rest[begin:], " \t\r\n"))
		end := int(decoder.InputOffset())
		if err != nil {
			// It may be YAML that begins with a brace, or broken.
			value, end = nil, len(rest)
		}
		documents = append(documents, &document{
			source: whole.source,
			offset: whole.offset + begin,
			line:   whole.line + bytes.Count(rest[:begin], []byte("\n")),
			text:   rest[begin:end],
			json:   value,
		})
		if err != nil {
			return documents
		}
		begin = end
	}
}

// Problem is a document or an object that could not be read.
type Problem struct {
	// File and Line are where; empty and zero for what is not in a file.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
}

// Error returns the problem in one line.
func (p Problem) Error() string {
	if p.File == "" {
		return p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// templateAction is what a template has, and YAML hardly: a line or a value that Helm, or another program,
// is to replace. In quotes it is a string.
var templateAction = regexp.MustCompile(`\{\{.*?\}\}`)

// notRendered is the problem of a file that has such actions and is not YAML.
const notRendered = "it is a template, and no YAML until it is rendered; lint what it renders, such as: helm template CHART | kubectl partition lint -"

// templateLine returns the line of the first action of a template; zero if there is none.
func templateLine(data []byte) int {
	at := templateAction.FindIndex(data)
	if at == nil {
		return 0
	}
	return 1 + bytes.Count(data[:at[0]], []byte("\n"))
}

var yamlError = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

// parse reads the document as kubectl does.
func (d *document) parse() error {
	if d.json != nil {
		return nil
	}
	var err error
	if d.json, err = sigsyaml.YAMLToJSON(d.text); err == nil {
		return nil
	}
	problem := Problem{File: d.source.Name, Line: d.line + 1, Message: err.Error()}
	if match := yamlError.FindStringSubmatch(problem.Message); match != nil {
		problem.Message = problem.Message[len(match[0]):]
		if n, err := strconv.Atoi(match[1]); err == nil {
			problem.Line = d.line + n
		}
	}
	return problem
}

// locate finds out where everything is. Some JSON is not YAML; then it is not known.
func (d *document) locate() {
	var root yaml.Node
	if d.root == nil && d.source.Name != "" && yaml.Unmarshal(d.text, &root) == nil && len(root.Content) == 1 {
		d.root = root.Content[0]
	}
}

// lookup returns the key and the value of a mapping that a path leads to. An element of the
// path that is a number leads into a list. It returns the deepest that there is, and how many
// elements of the path led there.
func lookup(node *yaml.Node, path ...string) (key, value *yaml.Node, depth int) {
	key, value = node, resolve(node)
	for ; depth < len(path); depth++ {
		k, v := child(value, path[depth])
		if v == nil {
			break
		}
		key, value = k, resolve(v)
	}
	return key, value, depth
}

func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// child returns a mapping's entry, the last of that name as in JSON, or an element of a list.
func child(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node == nil {
		return nil, nil
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	case yaml.MappingNode:
		for i := len(node.Content) - 2; i >= 0; i -= 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}
	}
	return nil, nil
}
