// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// testsDir has what is known of the tests of this version.
	testsDir = "tests"
	// resultsFile is a table of the parts of make test-all, separated by tabs.
	resultsFile = "results.tsv"
)

// withJUnit are the targets that keep a JUnit file for each of their clusters.
var withJUnit = []string{"conformance", "node-compare"}

// tests writes the results of tests that this checkout has. scripts/release.sh has seen to it that each
// part has passed for this content. It may have passed in another checkout, so nothing must be there.
func (o Options) tests(dir string, found junitFiles) error {
	to := filepath.Join(dir, testsDir)
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	written := 0
	data, err := os.ReadFile(filepath.Join(o.Checkout, "_output", "results"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if passed := o.passedParts(string(data)); len(passed) > 0 {
		written++
		text := "TIME\tCOMMIT\tPART\tRESULT\tSECONDS\tRELEASE\tCONTENT\n" + strings.Join(passed, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(to, resultsFile), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for release, targets := range found {
		for target, files := range targets {
			for side, file := range files {
				written++
				// A later run writes into the file, so a link will not do.
				if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("%s-%s-%s.xml", release, target, side)), file.data, 0o644); err != nil {
					return err
				}
			}
		}
	}
	if written == 0 {
		o.Say("%s: no test has run in this checkout, so the bundle has no results of tests", o.Version)
		return os.Remove(to)
	}
	return nil
}

// junit is a JUnit file (reporters.GenerateJUnitReport of onsi/ginkgo).
type junit struct {
	data   []byte
	Suites []struct {
		Name  string `xml:"name,attr"`
		Cases []struct {
			Name   string `xml:"name,attr"`
			Status string `xml:"status,attr"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// junitFiles are by release, target and cluster.
type junitFiles map[string]map[string]map[string]junit

// junit returns the JUnit files of this checkout. versions are those of the binaries, by release: a file of others says nothing
// of this version.
func (o Options) junit(releases []string, versions map[string]string) (junitFiles, error) {
	found := junitFiles{}
	for _, release := range releases {
		found[release] = map[string]map[string]junit{}
		for _, target := range withJUnit {
			paths, err := filepath.Glob(filepath.Join(o.Checkout, "_output", release, target, "*", "junit.xml"))
			if err != nil {
				return nil, err
			}
			found[release][target] = map[string]junit{}
			for _, path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					return nil, err
				}
				file := junit{data: data}
				if err := xml.Unmarshal(data, &file); err != nil || !file.isOf(versions[release]) {
					o.Say("%s: %s is for other programs than %s, and left out", o.Version, path, versions[release])
					continue
				}
				found[release][target][filepath.Base(filepath.Dir(path))] = file
			}
		}
	}
	return found, nil
}

// isOf reports whether the title names a version.
func (f junit) isOf(version string) bool {
	words := func(r rune) bool { return r == ' ' || r == ',' }
	return len(f.Suites) > 0 && slices.Contains(strings.FieldsFunc(f.Suites[0].Name, words), version)
}

// passedParts returns, for each part of Parts, the last line of scripts/test.sh that says that it has
// passed for this content, in the order of time. Lines of other contents, such as those of a part of which
// only some tests ran, say nothing of this version.
func (o Options) passedParts(results string) []string {
	var passed []string
	seen := map[string]bool{}
	lines := strings.Split(strings.TrimSpace(results), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Split(lines[i], "\t") // time, commit, target, part, result, seconds, release, content
		if len(fields) != 8 || fields[4] != "ok" || seen[fields[3]] {
			continue
		}
		part := Part{Name: fields[3], Release: fields[6], Content: fields[7]}
		if !slices.Contains(o.Parts, part) {
			continue
		}
		seen[part.Name] = true
		passed = append(passed, strings.Join(append(fields[:2], fields[3:]...), "\t"))
	}
	slices.Reverse(passed)
	return passed
}

// Part is a part of make test-all that a version must have passed.
type Part struct {
	// Name is that of the part, Release the one that it runs, and Content the hash of what it depends on.
	Name, Release, Content string
}

// ReadParts reads a table of parts, as CONTENTS=1 has scripts/test.sh print it.
func ReadParts(file string) ([]Part, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: the line %q is not PART, RELEASE and CONTENT", file, line)
		}
		parts = append(parts, Part{Name: fields[0], Release: fields[1], Content: fields[2]})
	}
	return parts, nil
}
