// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

var (
	statusForm = regexp.MustCompile(`^(Inappropriate|Pending|Submitted|Accepted) \[.+\]$`)
	// signature matches the first line of a function or a method.
	signature = regexp.MustCompile(`^func\b`)
	// control matches tree.Statements that are logic, except the check of an error that a
	// call of ours returns, which a hook cannot do without.
	control   = regexp.MustCompile(`^\s*(for|switch|select|go|defer|func|else|goto)\b|\belse\b|\bfunc\s*\(`)
	condition = regexp.MustCompile(`^\s*if\b`)
	generated = regexp.MustCompile(`(^|/)(zz_generated[^/]*|generated\.[^/]*|[^/]*\.pb\.go|[^/]*_generated\.go|types_swagger_doc_generated\.go)$|^api/openapi-spec/`)
)

// checkPatch checks one patch.
func checkPatch(p patch.Patch) []Finding {
	findings := checkMessage(p)
	for _, file := range p.Files {
		findings = append(findings, checkFile(p, file)...)
	}
	return findings
}

// checkMessage checks what a patch says of itself.
func checkMessage(p patch.Patch) []Finding {
	var findings []Finding
	report := func(line int, format string, args ...any) {
		findings = append(findings, Finding{p.Path, line, fmt.Sprintf(format, args...)})
	}
	lines := strings.Split(strings.TrimSpace(p.Message), "\n")
	if len(lines[0]) > project.MaxSubject {
		report(p.MessageLine, "the subject has %d characters; at most %d", len(lines[0]), project.MaxSubject)
	}
	trailers := map[string]string{}
	why := false
	for i, line := range lines[1:] {
		key, value, ok := strings.Cut(line, ": ")
		if ok && slices.Contains([]string{"Upstream-Status", "Tests", "Drop-When"}, key) {
			trailers[key] = strings.TrimSpace(value)
			if key == "Upstream-Status" && !statusForm.MatchString(trailers[key]) {
				report(p.MessageLine+i+1, "Upstream-Status is %q; must be Inappropriate, Pending, Submitted or Accepted, and a [reason or link]", trailers[key])
			}
		} else if strings.TrimSpace(line) != "" && len(trailers) == 0 {
			why = true
		}
	}
	if !why {
		report(p.MessageLine, "the message does not say why")
	}
	for _, key := range []string{"Upstream-Status", "Tests", "Drop-When"} {
		if trailers[key] == "" {
			report(p.MessageLine, "the message has no %s", key)
		}
	}
	return findings
}

// checkKind checks which file a patch changes, and that it changes the content alone.
func checkKind(p patch.Patch, file patch.FileDiff) []Finding {
	var findings []Finding
	report := func(line int, format string, args ...any) {
		findings = append(findings, Finding{p.Path, line, file.Path + ": " + fmt.Sprintf(format, args...)})
	}
	switch base := filepath.Base(file.Path); {
	case strings.HasSuffix(base, "_test.go"):
		report(file.Line, "is an upstream test, which is never edited")
	case generated.MatchString(file.Path):
		report(file.Line, "is generated; the tool that generates it belongs in carry")
	case base == "go.mod" || base == "go.sum" || base == "go.work" || base == "go.work.sum" || base == "modules.txt":
		report(file.Line, "is maintained by carry")
	case !strings.HasSuffix(base, ".go"):
		report(file.Line, "is not Go source")
	}
	for _, header := range file.Extra {
		report(header.Number, "%q: a patch may only change the content of files", header.Text)
	}
	return findings
}

func checkFile(p patch.Patch, file patch.FileDiff) []Finding {
	findings := checkKind(p, file)
	report := func(line int, format string, args ...any) {
		findings = append(findings, Finding{p.Path, line, file.Path + ": " + fmt.Sprintf(format, args...)})
	}
	if added := file.Added(); len(added) > project.MaxAddedPerFile {
		report(added[project.MaxAddedPerFile].Number, "%d lines are added; at most %d", len(added), project.MaxAddedPerFile)
	}
	// Each hunk calls a package of this project, or imports it.
	var hunk patch.Line
	ours, changes := true, 0
	endHunk := func() {
		if changes > 0 && !ours {
			report(hunk.Number, "the hunk does not call a package of this project")
		}
		ours, changes = false, 0
	}
	for _, line := range file.Lines {
		switch line.Op {
		case '@':
			endHunk()
			hunk = line
		case '+':
			changes++
			ours = ours || project.HookImport.MatchString(line.Text) ||
				slices.ContainsFunc(project.HookWords, func(word string) bool { return strings.Contains(line.Text, word) })
			if control.MatchString(line.Text) || (condition.MatchString(line.Text) && !project.HookErrorCheck.MatchString(line.Text)) {
				report(line.Number, "%q is logic, which belongs in this project's packages", strings.TrimSpace(line.Text))
			}
		case '-':
			changes++
			if signature.MatchString(line.Text) {
				report(line.Number, "%q: the signature of an upstream function changes", strings.TrimSpace(line.Text))
			}
		}
	}
	endHunk()
	return findings
}
