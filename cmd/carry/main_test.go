// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPackagesImportOnlyThoseThatKnowLess reads the order from the doc comment of main.go.
func TestPackagesImportOnlyThoseThatKnowLess(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, match := range regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllSubmatch(source, -1) {
		order = append(order, string(match[1]))
	}
	dirs, err := filepath.Glob(filepath.Join("internal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "workload.openshift.io/kubernetes/cmd/carry/internal/"
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if name == "treetest" {
			continue // It serves the tests of all.
		}
		at := slices.Index(order, name)
		if at < 0 {
			t.Errorf("the doc comment of main.go does not name package %s", name)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				if known, ours := strings.CutPrefix(imported, prefix); ours && !slices.Contains(order[:at], known) {
					t.Errorf("%s imports %s, which stands after %s in the doc comment of main.go", path, known, name)
				}
			}
		}
	}
}

func TestAReleaseMayHaveTheGoThatItDemands(t *testing.T) {
	for _, test := range []struct{ chosen, forced, want string }{
		{"", "", "auto"},
		{"local", "", "auto"},
		{"local", "y", "local"},
		{"go1.27.1", "", "go1.27.1"},
	} {
		t.Setenv("GOTOOLCHAIN", test.chosen)
		t.Setenv("FORCE_HOST_GO", test.forced)
		if allowNewerGo(); os.Getenv("GOTOOLCHAIN") != test.want {
			t.Errorf("of GOTOOLCHAIN=%q and FORCE_HOST_GO=%q becomes GOTOOLCHAIN=%q, want %q", test.chosen, test.forced, os.Getenv("GOTOOLCHAIN"), test.want)
		}
	}
}
