// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
)

// IgnoreKind is the kind of an ignore file.
const IgnoreKind = "LintIgnore"

// Ignore is an ignore file: findings that are accepted, each with a reason.
type Ignore struct {
	metav1.TypeMeta `json:",inline"`
	Ignore          []IgnoreEntry `json:"ignore"`

	file  string
	lines []int
}

// IgnoreEntry accepts the findings for which all of its fields hold. An empty field holds for
// all; a field may have the wildcards of path.Match.
type IgnoreEntry struct {
	// Rule is the ID of a rule; it must be given.
	Rule string `json:"rule"`
	// File is the file's path, or the end of it.
	File      string `json:"file,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Reason says why the finding is accepted; it must be given.
	Reason string `json:"reason"`
}

// ParseIgnore reads an ignore file strictly. Its errors name the file and the entry.
func ParseIgnore(file string, data []byte) (*Ignore, error) {
	ignore := &Ignore{file: file}
	if err := sigsyaml.UnmarshalStrict(data, ignore); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if ignore.APIVersion != output.APIVersion || ignore.Kind != IgnoreKind {
		return nil, fmt.Errorf("%s: apiVersion %q and kind %q must be %s and %s", file, ignore.APIVersion, ignore.Kind, output.APIVersion, IgnoreKind)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, entry := range ignore.Ignore {
		key, _, _ := lookup(root.Content[0], "ignore", fmt.Sprint(i))
		ignore.lines = append(ignore.lines, key.Line)
		invalid := func(field, value, what string) error {
			return fmt.Errorf("%s:%d: ignore[%d].%s: %q: %s", file, key.Line, i, field, value, what)
		}
		if !knownRule(entry.Rule) {
			return nil, invalid("rule", entry.Rule, "there is no such rule; kubectl partition lint --list-rules prints all")
		}
		if strings.TrimSpace(entry.Reason) == "" {
			return nil, invalid("reason", entry.Reason, "say why this is accepted")
		}
		for field, pattern := range map[string]string{"file": entry.File, "kind": entry.Kind, "namespace": entry.Namespace, "name": entry.Name} {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, invalid(field, pattern, err.Error())
			}
		}
	}
	return ignore, nil
}

// apply returns the findings that are not accepted, a finding for each entry that accepts
// none, and the number of those that are accepted.
func (g *Ignore) apply(findings []Finding) (left []Finding, accepted int) {
	used := make([]bool, len(g.Ignore))
	left = []Finding{}
	for _, f := range findings {
		matched := false
		for i, entry := range g.Ignore {
			if entry.matches(f) {
				used[i], matched = true, true
			}
		}
		if matched {
			accepted++
		} else {
			left = append(left, f)
		}
	}
	for i, entry := range g.Ignore {
		if !used[i] {
			left = append(left, Finding{Rule: unusedIgnore, Level: Warning, File: g.file, Line: g.lines[i], Object: Object{Kind: IgnoreKind, Name: entry.Rule},
				Message: fmt.Sprintf("the entry ignore[%d] for %s accepts no finding; remove it", i, entry.Rule)})
		}
	}
	return left, accepted
}

func (e IgnoreEntry) matches(f Finding) bool {
	return e.Rule == f.Rule && matchesFile(e.File, f.File) && matches(e.Kind, f.Object.Kind) && matches(e.Namespace, f.Object.Namespace) && matches(e.Name, f.Object.Name)
}

func matches(pattern, value string) bool {
	ok, _ := path.Match(pattern, value) // ParseIgnore has tried the pattern.
	return ok || pattern == ""
}

// matchesFile compares as many of a path's last elements as the pattern has.
func matchesFile(pattern, file string) bool {
	elements := strings.Split(filepath.ToSlash(file), "/")
	n := min(strings.Count(pattern, "/")+1, len(elements))
	return matches(pattern, strings.Join(elements[len(elements)-n:], "/"))
}
