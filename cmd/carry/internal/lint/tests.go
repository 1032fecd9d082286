package lint

import (
	"bytes"
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
	testName     = regexp.MustCompile(`\bTest[A-Z]\w*`)
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// ofTests checks that each test which a message names exists in this project.
func ofTests(c project.Checkout, patches []patch.Patch) ([]Finding, error) {
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
			for _, name := range testName.FindAllString(named, -1) {
				if !exist[name] {
					findings = append(findings, Finding{p.Path, p.MessageLine + i, fmt.Sprintf("there is no test %s", name)})
				}
			}
		}
	}
	return findings, nil
}

// tests returns the names of this project's tests.
func tests(c project.Checkout) (map[string]bool, error) {
	names := map[string]bool{}
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
		for _, found := range testFunction.FindAllSubmatch(data, -1) {
			names[string(bytes.Clone(found[1]))] = true
		}
		return err
	})
	return names, err
}
