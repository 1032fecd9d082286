// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

var (
	testName     = regexp.MustCompile(`^Test[A-Z]\w*$`)
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// checkTests checks that each test which a message names exists in this project, in the directory that the
// message names before it.
func checkTests(c project.Checkout, patches []patch.Patch) ([]Finding, error) {
	exist, err := tests(c)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, p := range patches {
		for i, line := range strings.Split(strings.TrimSpace(p.Message), "\n") {
			named, is := strings.CutPrefix(line, "Tests: ")
			if !is {
				continue
			}
			dir := ""
			for _, word := range strings.FieldsFunc(named, func(r rune) bool { return r == ' ' || r == ',' }) {
				text, word := "", strings.Trim(word, ".;:()`")
				if test, _, _ := strings.Cut(word, "/"); testName.MatchString(test) {
					word = test // without its subtest
				}
				switch {
				case strings.Contains(word, "/"):
					if dir = word; exist[dir] == nil {
						text = fmt.Sprintf("there are no tests in %s", dir)
					}
				case !testName.MatchString(word):
				case dir == "":
					text = fmt.Sprintf("%s has no directory; write it before the test", word)
				case !exist[dir][word]:
					text = fmt.Sprintf("there is no test %s in %s", word, dir)
				}
				if text != "" {
					findings = append(findings, Finding{p.Path, p.MessageLine + i, text})
				}
			}
		}
	}
	return findings, nil
}

// tests returns the names of this project's tests by their directories.
func tests(c project.Checkout) (map[string]map[string]bool, error) {
	names := map[string]map[string]bool{}
	err := filepath.WalkDir(c.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == project.OutputDir || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(c.Dir, filepath.Dir(path))
		if names[dir] == nil {
			names[dir] = map[string]bool{}
		}
		for _, found := range testFunction.FindAllSubmatch(data, -1) {
			names[dir][string(found[1])] = true
		}
		return err
	})
	return names, err
}
