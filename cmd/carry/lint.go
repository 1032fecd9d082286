package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// finding is a breach of the rules, at a line of a file of the project.
type finding struct {
	path string
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text) }

// lintTree prints what breaks the rules of section 9 of the design.
func lintTree(ctx context.Context, t *tree.Tree) error {
	findings, err := allFindings(ctx, t)
	if err != nil {
		return err
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("lint: %d findings", len(findings))
	}
	files, err := series.Files(t.Project)
	if err != nil {
		return err
	}
	fmt.Printf("%d patches keep to the rules, and no dependency of %s is raised\n", len(files), t.Release)
	return nil
}

func allFindings(ctx context.Context, t *tree.Tree) ([]finding, error) {
	findings, err := lintFolder(t.Project)
	if err != nil {
		return nil, err
	}
	patches, err := series.All(t.Project)
	if err != nil {
		return nil, err
	}
	for _, p := range patches {
		findings = append(findings, lintPatch(p)...)
	}
	over, err := overBudget(t.Project)
	if err != nil {
		return nil, err
	}
	findings = append(findings, over...)
	if err := t.Update(ctx); err != nil {
		return nil, err
	}
	raised, err := raised(ctx, t)
	return append(findings, raised...), err
}

var numbered = regexp.MustCompile(`^[0-9]+[-_.]`)

// lintFolder checks that the order file and the files agree.
func lintFolder(p project.Checkout) ([]finding, error) {
	var findings []finding
	names, err := series.Order(p)
	if err != nil {
		return nil, err
	}
	files, err := series.Files(p)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		name := filepath.Base(path)
		if !slices.Contains(names, name) {
			findings = append(findings, finding{path, 1, "patches/series does not list it"})
		}
		if numbered.MatchString(name) {
			findings = append(findings, finding{path, 1, "has a number; patches/series gives the order"})
		}
	}
	for i, name := range names {
		if !slices.Contains(files, filepath.Join(project.PatchesDir, name)) {
			findings = append(findings, finding{project.SeriesFile, i + 1, name + " does not exist"})
		}
	}
	return findings, nil
}

var (
	statusForm = regexp.MustCompile(`^(Inappropriate|Pending|Submitted|Accepted) \[.+\]$`)
	// signature matches the first line of a function or a method.
	signature = regexp.MustCompile(`^func\b`)
	// control matches tree.Statements that are logic, except the check of an error that a
	// call of ours returns, which a hook can not do without.
	control   = regexp.MustCompile(`^\s*(for|switch|select|go|defer|func|else|goto)\b|\belse\b|\bfunc\s*\(`)
	condition = regexp.MustCompile(`^\s*if\b`)
	generated = regexp.MustCompile(`(^|/)(zz_generated[^/]*|generated\.[^/]*|[^/]*\.pb\.go|[^/]*_generated\.go|types_swagger_doc_generated\.go)$|^api/openapi-spec/`)
)

// lintTree checks one patch.
func lintPatch(p patch.Patch) []finding {
	var findings []finding
	report := func(line int, format string, args ...any) {
		findings = append(findings, finding{p.Path, line, fmt.Sprintf(format, args...)})
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
	for _, file := range p.Files {
		findings = append(findings, lintFile(p, file)...)
	}
	return findings
}

func lintFile(p patch.Patch, file patch.FileDiff) []finding {
	var findings []finding
	report := func(line int, format string, args ...any) {
		findings = append(findings, finding{p.Path, line, file.Path + ": " + fmt.Sprintf(format, args...)})
	}
	switch base := filepath.Base(file.Path); {
	case strings.HasSuffix(base, "_test.go"):
		report(file.Line, "is an upstream test, which is never edited")
	case generated.MatchString(file.Path):
		report(file.Line, "is generated; the tool that generates it belongs into carry")
	case base == "go.mod" || base == "go.sum" || base == "go.work" || base == "go.work.sum" || base == "modules.txt":
		report(file.Line, "is Go's bookkeeping, which carry does")
	case !strings.HasSuffix(base, ".go"):
		report(file.Line, "is not Go source")
	}
	for _, header := range file.Extra {
		report(header.Number, "%q: a patch changes the content of files and nothing else", header.Text)
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
				report(line.Number, "%q is logic, which belongs into this project's packages", strings.TrimSpace(line.Text))
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

// raised compares the module versions of the tree's workspace with and without
// this project's modules: they must differ by those alone.
func raised(ctx context.Context, t *tree.Tree) ([]finding, error) {
	s, err := t.Load()
	if err != nil {
		return nil, err
	}
	theirs, err := moduleVersions(ctx, t, s.Workspace, false)
	if err != nil {
		return nil, err
	}
	both, err := moduleVersions(ctx, t, s.Workspace, true)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for path, version := range both {
		if before, known := theirs[path]; path != project.RootModule && path != project.CoreModule && (!known || before != version) {
			if !known {
				before = "no version"
			}
			findings = append(findings, finding{"go.mod", 1, fmt.Sprintf("raises %s in the tree of %s from %s to %s", path, t.Release, before, version)})
		}
	}
	slices.SortFunc(findings, func(a, b finding) int { return strings.Compare(a.text, b.text) })
	return findings, nil
}

// moduleVersions returns the versions in the workspace of a commit, with this project's
// moduleVersions or without. It works on a copy of go.work one folder below, since go would
// add lines to the tree's go.work.sum.
func moduleVersions(ctx context.Context, t *tree.Tree, commit string, withOurs bool) (map[string]string, error) {
	work, err := t.Git().Run(ctx, "show", commit+":go.work")
	if err != nil {
		return nil, err
	}
	sums, err := t.Git().Run(ctx, "show", commit+":go.work.sum")
	if err != nil {
		return nil, err
	}
	for _, path := range [][2]string{{"\t./", "\t../"}, {"\t.\n", "\t..\n"}, {"\t../modules", "\t../../modules"}} {
		work = strings.ReplaceAll(work, path[0], path[1])
	}
	if !withOurs {
		work = ourUse.ReplaceAllString(work, "")
	}
	copied := filepath.Join(t.Dir, "_output", "carry.work")
	defer os.Remove(copied)
	defer os.Remove(copied + ".sum")
	if err := disk.Write(copied, []byte(work+"\n")); err != nil {
		return nil, err
	}
	if err := disk.Write(copied+".sum", []byte(sums+"\n")); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{with .Version}}{{.}}{{else}}main{{end}}", "all")
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "GOWORK="+copied, "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all in %s: %w: %s", t.Shown(), err, git.FirstLine(stderr.String()))
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions, nil
}

// ourUse matches the lines of go.work that use this project's modules, in the copy.
var ourUse = regexp.MustCompile(`(?m)^\t\.\./\.\./modules/.*\n`)

// overBudget compares the series with the budget, a file of names and the most that each
// may be, for any release. There is a finding for what is more, and for a line that is
// not understood. The series grows by a decision: one that changes the file.
func overBudget(p project.Checkout) ([]finding, error) {
	data, err := os.ReadFile(p.Path(project.BudgetFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	releases, err := p.Releases()
	if err != nil {
		return nil, err
	}
	overrides, err := series.Overrides(p)
	if err != nil {
		return nil, err
	}
	most := map[string]int{project.BudgetOverrideFiles: len(overrides)}
	at := map[string]string{}
	for _, release := range releases {
		s, err := series.SizeOf(p, release)
		if err != nil {
			return nil, err
		}
		for name, value := range s.Budget() {
			if value > most[name] || at[name] == "" {
				most[name], at[name] = value, " in "+release
			}
		}
	}
	var findings []finding
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		is, known := most[fields[0]]
		limit, err := 0, errors.New("no number")
		if len(fields) == 2 {
			limit, err = strconv.Atoi(fields[1])
		}
		switch {
		case !known || err != nil:
			findings = append(findings, finding{project.BudgetFile, number, fmt.Sprintf("%q is not a name and the most that it may be", strings.TrimSpace(line))})
		case is > limit:
			findings = append(findings, finding{project.BudgetFile, number, fmt.Sprintf("%s is %d%s, and may be %d", fields[0], is, at[fields[0]], limit)})
		}
	}
	return findings, nil
}
