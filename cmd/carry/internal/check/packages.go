// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Problem is what the type checker, the parser or go list reports about a file. One that
// concerns no file has no File, and one that concerns no line has the Line 0.
type Problem struct {
	File string
	Line int
	Text string
	// Patches are those that touch the file, in a list for a user to read.
	Patches string
}

// String is the problem as compilers write it, with the patches on its first line.
func (p Problem) String() string {
	text := p.Text
	if p.Patches != "" {
		first, rest, more := strings.Cut(text, "\n")
		text = first + " (" + p.Patches + ")"
		if more {
			text += "\n" + rest
		}
	}
	switch {
	case p.File == "":
		return text
	case p.Line == 0:
		return p.File + ": " + text
	default:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, text)
	}
}

// Source is where the packages are, and how they are built.
type Source struct {
	// Dir is that in which patterns are understood.
	Dir string
	// Flags are of go build, such as tags.
	Flags []string
	// GOOS is the system for which they are built. Empty means Linux, with their tests.
	GOOS string
	// AllowMissing leaves out errors that come of modules that cannot be downloaded. Empty are those of them that the workspace
	// has without their packages.
	AllowMissing bool
	Empty        []string
}

// Result is what a type check says.
type Result struct {
	// Packages is how many were checked.
	Packages int
	Problems []Problem
	Missing  []Missing
}

// Missing is a module that cannot be downloaded, so that what uses it was not checked.
type Missing struct {
	Module string
	// Files are those that import a package of it, sorted, and Patched those of them that a patch touches.
	Files, Patched []string
}

// String is a line for a user.
func (m Missing) String() string {
	text := fmt.Sprintf("%s cannot be downloaded, so no file that imports it was type-checked (%d)", m.Module, len(m.Files))
	if len(m.Patched) > 0 {
		text += "; patches touch " + strings.Join(m.Patched, ", ")
	}
	return text
}

const load = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
	packages.NeedModule | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes

// Packages type-checks the packages that match patterns, their tests on Linux, and the declarations
// of all that they import. It returns how many packages that are.
//
// A body of a function cannot break the packages that import it, so in files of other
// packages it is not looked at: that makes seconds of what would be minutes.
func Packages(ctx context.Context, from Source, patterns ...string) (result Result, err error) {
	config := &packages.Config{
		Context:    ctx,
		Mode:       packages.NeedName | packages.NeedFiles,
		Dir:        from.Dir,
		BuildFlags: from.Flags,
		Tests:      from.GOOS == "",
		// Upstream releases for these platforms, and builds without cgo what can be. A tree has a go.work of its own.
		Env: append(os.Environ(), "GOWORK=", "CGO_ENABLED=0", "GOOS="+cmp.Or(from.GOOS, "linux"), "GOARCH=amd64", "GOFLAGS=-mod=readonly", "GOPACKAGESDRIVER=off"),
	}
	matched, err := packages.Load(config, patterns...)
	if err != nil {
		return Result{}, goList(ctx, err)
	}
	if len(matched) == 0 {
		return Result{}, fmt.Errorf("no package matches %s", strings.Join(patterns, " "))
	}
	whole := map[string]bool{}
	for _, p := range matched {
		if strings.HasSuffix(p.ID, ".test") {
			continue // The main function of a test is generated, in go's cache.
		}
		for _, file := range p.GoFiles {
			whole[filepath.Dir(file)] = true
		}
	}
	config.Mode = load
	config.ParseFile = func(fset *token.FileSet, name string, source []byte) (*ast.File, error) {
		file, err := parser.ParseFile(fset, name, source, parser.AllErrors|parser.SkipObjectResolution)
		if file != nil && !whole[filepath.Dir(name)] {
			dropBodies(file)
		}
		return file, err
	}
	roots, err := packages.Load(config, patterns...)
	if err != nil {
		return Result{}, goList(ctx, err)
	}
	found := map[Problem]bool{} // A package and its test variant have the same.
	var missing missingModules
	if from.AllowMissing {
		missing = findMissing(roots, from.Empty)
	}
	packages.Visit(roots, nil, func(p *packages.Package) {
		if missing.of(p.PkgPath) != "" {
			return
		}
		result.Packages++
		for _, e := range p.Errors {
			problem := problemOf(p, e)
			if !whole[filepath.Dir(problem.File)] && unusedImport(e) || missing.explain(p, problem) {
				continue
			}
			found[problem] = true
		}
	})
	result.Problems = slices.SortedFunc(maps.Keys(found), func(a, b Problem) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Text, b.Text)
	})
	result.Missing = missing.list()
	return result, nil
}

// missingModules are those that cannot be downloaded. Zero is none.
type missingModules struct {
	paths []string
	// files maps a file to the modules of which it imports packages.
	files map[string][]string
	// there are the packages that have been loaded: one may be in a module whose path begins with that of a missing one.
	there map[string]bool
}

// refused matches what go list says of a package whose module cannot be downloaded.
var refused = regexp.MustCompile(`^(\S+)@\S+: reading \S+: (403 Forbidden|404 Not Found|410 Gone)`)

// findMissing finds the missing modules of packages and all that they import, besides the empty ones.
func findMissing(roots []*packages.Package, empty []string) missingModules {
	m := missingModules{paths: slices.Clone(empty), files: map[string][]string{}, there: map[string]bool{}}
	packages.Visit(roots, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			if found := refused.FindStringSubmatch(e.Msg); found != nil && !slices.Contains(m.paths, found[1]) {
				m.paths = append(m.paths, found[1])
			}
		}
		// go/packages gives a package that is not there the file that imports it, and no module.
		m.there[p.PkgPath] = m.there[p.PkgPath] || p.Module != nil
	})
	packages.Visit(roots, nil, func(p *packages.Package) {
		for _, file := range p.Syntax {
			name := p.Fset.Position(file.Package).Filename
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				if module := m.of(path); module != "" && !slices.Contains(m.files[name], module) {
					m.files[name] = append(m.files[name], module)
				}
			}
		}
	})
	return m
}

// of returns the missing module of a package, or nothing.
func (m missingModules) of(path string) string {
	if m.there[path] {
		return ""
	}
	for _, module := range m.paths {
		if path == module || strings.HasPrefix(path, module+"/") {
			return module
		}
	}
	return ""
}

// noSelector matches what the type checker says of a field or method that a type does not have: the path of its package in
// quotes, or its name, or neither if it is the same package; and the type.
var noSelector = regexp.MustCompile(`\(type \*?(?:(.+)\.)?(\w+) has no field or method`)

// explain reports whether a problem of a package comes of what is missing: its file imports that, or it is about a type that
// embeds it.
func (m missingModules) explain(p *packages.Package, problem Problem) bool {
	if len(m.files) == 0 {
		return false
	}
	if m.files[problem.File] != nil {
		return true
	}
	found := noSelector.FindStringSubmatch(problem.Text)
	if found == nil {
		return false
	}
	for _, of := range append(slices.Collect(maps.Values(p.Imports)), p) {
		if of.Types != nil && (found[1] == "" && of == p || found[1] == of.Name || found[1] == strconv.Quote(of.PkgPath)) {
			if named := of.Types.Scope().Lookup(found[2]); named != nil && embedsInvalid(named.Type(), nil) {
				return true
			}
		}
	}
	return false
}

// embedsInvalid reports whether a type embeds one that the type checker does not know, possibly by way of others, which it has seen.
func embedsInvalid(t types.Type, seen []types.Type) bool {
	if slices.Contains(seen, t) {
		return false
	}
	seen = append(seen, t)
	switch of := t.Underlying().(type) {
	case *types.Basic:
		return of.Kind() == types.Invalid
	case *types.Pointer:
		return embedsInvalid(of.Elem(), seen)
	case *types.Struct:
		for field := range of.Fields() {
			if field.Embedded() && embedsInvalid(field.Type(), seen) {
				return true
			}
		}
	case *types.Interface:
		for embedded := range of.EmbeddedTypes() {
			if embedsInvalid(embedded, seen) {
				return true
			}
		}
	}
	return false
}

// list returns the modules that a file imports, in order.
func (m missingModules) list() (all []Missing) {
	for _, module := range slices.Sorted(slices.Values(m.paths)) {
		one := Missing{Module: module}
		for _, file := range slices.Sorted(maps.Keys(m.files)) {
			if slices.Contains(m.files[file], module) {
				one.Files = append(one.Files, file)
			}
		}
		if len(one.Files) > 0 {
			all = append(all, one)
		}
	}
	return all
}

func goList(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("go list: %w", err)
}

// problemOf splits the position, which is file:line:column, file:line, or - for none.
func problemOf(p *packages.Package, e packages.Error) Problem {
	text := strings.TrimSpace(e.Msg)
	parts := strings.Split(e.Pos, ":")
	if e.Pos == "" || parts[0] == "-" || parts[0] == "" {
		return Problem{Text: p.ID + ": " + text}
	}
	line := 0
	if len(parts) > 1 {
		line, _ = strconv.Atoi(parts[1])
	}
	return Problem{File: parts[0], Line: line, Text: text}
}

// unusedImport recognises an import that only the dropped bodies used.
func unusedImport(e packages.Error) bool {
	return e.Kind == packages.TypeError && strings.Contains(e.Msg, "imported") && strings.HasSuffix(e.Msg, "and not used")
}

// dropBodies leaves a file's declarations. A function without a body is one that is written
// in assembly, so this is Go; but generic functions, init and main must have a body.
func dropBodies(file *ast.File) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil || generic(f) {
			continue
		}
		if f.Recv == nil && (f.Name.Name == "init" || f.Name.Name == "main" && file.Name.Name == "main") {
			f.Body.List = nil
			continue
		}
		f.Body = nil
	}
}

// generic reports whether f has type parameters, or its receiver.
func generic(f *ast.FuncDecl) bool {
	if f.Type.TypeParams != nil {
		return true
	}
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return false
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.ParenExpr:
			receiver = r.X
		case *ast.IndexExpr, *ast.IndexListExpr:
			return true
		default:
			return false
		}
	}
}
