// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/xml"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// module has a package for each way in which go test ends.
const module = `
-- go.mod --
module example.org/m

go 1.24.0
-- fine/a_test.go --
package fine

import "testing"

func TestPasses(t *testing.T) { t.Run("sub", func(*testing.T) {}) }
func TestSkips(t *testing.T) { t.Skip() }
-- fails/a_test.go --
package fails

import "testing"

func TestPasses(t *testing.T) {}
func TestFails(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Fatal("why\x1b[0m") }) }
-- panics/a_test.go --
package panics

import "testing"

func TestA(t *testing.T) {}
func TestPanics(t *testing.T) { panic("gone") }
func TestNeverRuns(t *testing.T) {}
-- exits/a_test.go --
package exits

import (
	"os"
	"testing"
)

func TestMain(*testing.M) { os.Exit(3) }
func TestNeverRuns(t *testing.T) {}
-- leaves/a_test.go --
package leaves

import (
	"os"
	"testing"
)

func TestLeaves(t *testing.T) { os.Exit(3) }
-- broken/a_test.go --
package broken

func x() { undefined() }
-- none/a.go --
package none
`

func TestReportSaysWhichTestsFail(t *testing.T) {
	dir := t.TempDir()
	for _, file := range txtar.Parse([]byte(module)).Files {
		path := filepath.Join(dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-vet=off", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	report, err := readTests(t.Context(), cmd, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	// A package by itself is named where tests of it may not have run.
	want := []string{"example.org/m/broken ", "example.org/m/exits ", "example.org/m/fails TestFails",
		"example.org/m/leaves ", "example.org/m/panics ", "example.org/m/panics TestPanics"}
	if got := report.failed(); !slices.Equal(got, want) {
		t.Errorf("failed\n%q\nwant\n%q", got, want)
	}
	if report.passed != 3 {
		t.Errorf("%d tests passed, want 3: %v", report.passed, maps.Collect(maps.All(report.tests)))
	}
	for test, part := range map[string]string{"example.org/m/fails TestFails": "why", "example.org/m/panics TestPanics": "gone", "example.org/m/panics ": "gone"} {
		if out := report.output[test]; !strings.Contains(out, part) {
			t.Errorf("%s has printed %q, want %q in it", test, out, part)
		}
	}
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := report.writeJUnit(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type testcase struct {
		Name    string    `xml:"name,attr"`
		Skipped *struct{} `xml:"skipped"`
		Failure *string   `xml:"failure"`
		Error   *struct{} `xml:"error"`
	}
	var suites struct {
		Suites []struct {
			Name      string     `xml:"name,attr"`
			Testcases []testcase `xml:"testcase"`
			Output    string     `xml:"system-out"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	ended := map[string][]string{}
	for _, suite := range suites.Suites {
		for _, test := range suite.Testcases {
			became := "passed"
			switch {
			case test.Skipped != nil:
				became = "skipped"
			case test.Failure != nil && strings.Contains(*test.Failure, "\x1b"):
				t.Errorf("the failure of %s is %q", test.Name, *test.Failure)
			case test.Failure != nil:
				became = "failed"
			case test.Error != nil:
				became = "error"
			}
			ended[suite.Name] = append(ended[suite.Name], test.Name+" "+became)
		}
	}
	wantEnded := map[string][]string{
		"example.org/m/broken": {"Failure error"}, "example.org/m/exits": {"Failure error"},
		"example.org/m/fails":  {"TestPasses passed", "TestFails/sub failed", "TestFails failed"},
		"example.org/m/fine":   {"TestPasses/sub passed", "TestPasses passed", "TestSkips skipped"},
		"example.org/m/leaves": {"TestLeaves error", "Failure error"},
		"example.org/m/panics": {"TestA passed", "TestPanics failed", "Failure error"},
	}
	if !maps.EqualFunc(ended, wantEnded, slices.Equal) {
		t.Errorf("JUnit's XML has\n%q\nwant\n%q", ended, wantEnded)
	}
}

func TestATestCommandThatCannotRunIsAnError(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-count=many")
	if _, err := readTests(t.Context(), cmd, t.Logf); err == nil || !strings.Contains(err.Error(), "-count") {
		t.Errorf("the error is %v", err)
	}
}

func TestMatrix(t *testing.T) {
	got := Matrix([]string{"a.patch", "b.patch"}, []Result{
		{Release: "v1.36.3", Patches: map[string]series.Kind{"a.patch": series.Override, "b.patch": series.Unneeded}, Compiled: 3, Upstream: 20, Ours: 4, Seconds: 9, kept: true},
		{Release: "v1.37.0", Patches: map[string]series.Kind{"a.patch": series.Common}, NotCounted: []string{"x"}, Failed: "why"},
	})
	const want = `PATCH                    v1.36.3    v1.37.0
a                        override   common
b                        dropped    -
packages compiled        3          0
upstream's tests passed  20         0
not counted              0          1
our tests passed         4          0
seconds                  (9)        0
result                   unchanged  FAILED
`
	if got != want {
		t.Errorf("the matrix is\n%s\nwant\n%s", got, want)
	}
}
