// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/partition"
)

// verb is a verb of package fmt. What stands between verbs is how a user finds a message.
var verb = regexp.MustCompile(`%(\[\d+\])?[#+]*[a-z]`)

// shortest is below how many letters a text only says where something is, such as "record %s".
const shortest = 16

// TestMessagesAreDocumented looks for an entry in docs/user/troubleshooting.md for whatever the
// software says to a user: the reasons of pods, Events, and errors of the pinning file and of
// the plugin's configuration. An entry quotes the longest part of a message that never changes.
func TestMessagesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "user", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string]string{}
	for _, rule := range partition.Rules() {
		messages[rule.Text] = "the reason " + string(rule.Reason)
	}
	// The positions of the texts in the arguments of a call.
	errorCalls := map[string]int{"Errorf": 0, "New": 0, "Forbidden": 1, "Required": 1, "Invalid": 2, "AddWarning": 2}
	pluginCalls := maps.Clone(errorCalls)
	pluginCalls["warn"] = 2
	eventCalls := map[string]int{"nodeEvent": 2, "Eventf": 3}
	for _, place := range []struct {
		path  string
		calls map[string]int
	}{
		{"staging/src/" + core + "/pinning.go", errorCalls},
		{"staging/src/" + core + "/vocabulary.go", errorCalls},
		{"staging/src/" + core + "/target.go", errorCalls},
		{"staging/src/" + core + "/reservation.go", errorCalls},
		{"staging/src/" + core + "/checkpoint.go", errorCalls},
		{plugin + "/config/*.go", errorCalls},
		{plugin + "/activation/*.go", eventCalls},
		{plugin + "/gate/gate.go", map[string]int{"NewServiceUnavailable": 0}},
		{plugin + "/*.go", pluginCalls},
		{"pkg/kubelet/managed/*.go", eventCalls},
		{"pkg/kubelet/managed/nothing_shared.go", map[string]int{"Sprintf": 0}},
		{"pkg/kubelet/managed/checkpoint.go", errorCalls},
		{"pkg/kubelet/managed/configure.go", errorCalls},
	} {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(place.path)))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no file is %s: %v", place.path, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, text := range messagesIn(t, path, place.calls) {
				messages[text] = place.path
			}
		}
	}
	for text, from := range messages {
		parts := verb.Split(text, -1)
		fixed := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
		if fixed = strings.Trim(fixed, " :;,.()"); len(fixed) < shortest {
			continue
		}
		if !strings.Contains(string(page), strings.ReplaceAll(fixed, "|", `\|`)) {
			t.Errorf("docs/user/troubleshooting.md has no entry that quotes %q (%s)", fixed, from)
		}
	}
	if len(messages) < 50 {
		t.Errorf("found %d messages; are they somewhere else now?", len(messages))
	}
}

// messagesIn returns the texts that a file gives to these calls, as arguments at these
// positions. Of a text that is put together, each literal counts.
func messagesIn(t *testing.T, path string, calls map[string]int) (messages []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string][]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, is := node.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			constants[spec.Names[0].Name] = append(constants[spec.Names[0].Name], texts(spec.Values[0])...)
		}
		return true
	})
	ast.Inspect(file, func(node ast.Node) bool {
		call, is := node.(*ast.CallExpr)
		if !is {
			return true
		}
		var name string
		switch function := call.Fun.(type) {
		case *ast.Ident:
			name = function.Name
		case *ast.SelectorExpr:
			name = function.Sel.Name
		}
		position, is := calls[name]
		if !is || len(call.Args) <= position {
			return true
		}
		messages = append(messages, texts(call.Args[position])...)
		ast.Inspect(call.Args[position], func(node ast.Node) bool {
			if constant, is := node.(*ast.Ident); is {
				messages = append(messages, constants[constant.Name]...)
			}
			return true
		})
		return true
	})
	return messages
}
