// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func passing(name string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: types.SpecStatePassed}
}

func skipping(name, why string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: types.SpecStateSkipped, Failure: types.Failure{Message: why}}
}

func failing(name, why string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: types.SpecStateFailed, Failure: types.Failure{Message: why}}
}

func resultsOf(reports ...types.SpecReport) *Results {
	r := &Results{Specs: map[string]types.SpecReport{}}
	for _, report := range reports {
		r.Specs[report.FullText()] = report
	}
	return r
}

func TestKnownSpecs(t *testing.T) {
	known, err := ParseKnown("# one node\na b\n\nc\n# no disk\nd\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(known) != 3 || known["a b"] != "one node" || known["c"] != "one node" || known["d"] != "no disk" {
		t.Errorf("known are %q", known)
	}
	for text, want := range map[string]string{
		"a\n# why\n":      `line 1: "a" has no reason above it`,
		"# why\na\na\n":   `line 3: "a" is there twice`,
		"# why\n#\n\nb\n": `line 4: "b" has no reason above it`, // as below a header
	} {
		if _, err := ParseKnown(text); err == nil || err.Error() != want {
			t.Errorf("%q gives %v, want %s", text, err, want)
		}
	}
}

func TestAKnownSpecThatDoesNotExistIsAFinding(t *testing.T) {
	findings := Known{"a": "one node", "b": "one node"}.Unlisted([]Spec{{"a", false}})
	if want := "b\n    is in a list, and there is no such spec"; len(findings) != 1 || findings[0] != want {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

func TestJudge(t *testing.T) {
	specs := []Spec{{"passes", false}, {"fails", false}, {"known", false}, {"known, and passes", false}, {"has not run", false}}
	findings := Judge(specs, resultsOf(passing("passes"), failing("fails", "a reason\nmore"), failing("known", ""), passing("known, and passes")),
		Known{"known": "one node", "known, and passes": "no disk"})
	want := []string{"fails\n    failed: a reason", "known, and passes\n    passed, and is known to fail: no disk", "has not run\n    has not run"}
	if strings.Join(findings, "|") != strings.Join(want, "|") {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

func TestCompare(t *testing.T) {
	specs := []Spec{{"same", false}, {"fails with the series", false}, {"fails without", false}, {"fails now and then", false}, {"mostly fails", false}, {"known", false}}
	one := resultsOf(passing("same"), failing("fails with the series", "lost"), passing("fails without"), failing("fails now and then", "slow"), failing("mostly fails", "slow"), passing("known"))
	other := resultsOf(passing("same"), passing("fails with the series"), failing("fails without", "lost"), passing("fails now and then"), passing("mostly fails"), failing("known", ""))
	differing := Differing(specs, one, other)
	if len(differing) != 5 {
		t.Fatalf("%v differ", differing)
	}
	again := resultsOf(failing("fails with the series", "lost"), passing("fails without"), passing("fails now and then"), failing("mostly fails", "slow"), passing("known"))
	otherAgain := resultsOf(passing("fails with the series"), failing("fails without", "lost"), passing("fails now and then"), failing("mostly fails", "slow"), passing("known"))
	findings := Compare(differing, []*Results{one, again, again}, []*Results{other, otherAgain, otherAgain}, Known{"known": "no disk"}, "without the series")
	want := []string{
		"fails with the series\n    passed 0 of 3 times, and 3 of 3 times without the series\n    failed: lost",
		"fails without\n    passed 3 of 3 times, and 0 of 3 times without the series\n    failed: lost",
		"mostly fails\n    passed 0 of 3 times, and 1 of 3 times without the series\n    failed: slow",
		"known\n    passed, and is known to fail: no disk",
	}
	if strings.Join(findings, "|") != strings.Join(want, "|") {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

func TestASpecThatSkipsItselfDiffersFromOneThatFails(t *testing.T) {
	specs := []Spec{{"skips", false}, {"skips on both", false}}
	one := resultsOf(skipping("skips", "no disk"), skipping("skips on both", "no disk"))
	other := resultsOf(failing("skips", "lost"), skipping("skips on both", "no disk"))
	differing := Differing(specs, one, other)
	if len(differing) != 1 || differing[0].Name != "skips" {
		t.Fatalf("%v differ", differing)
	}
	findings := Compare(differing, []*Results{one, one, one}, []*Results{other, other, other}, nil, "without the file")
	want := "skips\n    passed 0 of 3 times, and 0 of 3 times without the file\n    skipped: no disk\n    failed: lost"
	if strings.Join(findings, "|") != want {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

func TestASpecThatIsKnownToDifferAndDoesNotIsAFinding(t *testing.T) {
	specs := []Spec{{"differs", false}, {"is the same", false}, {"is not known", false}}
	findings := Differences{"differs": {Reason: "section 1"}, "is the same": {Reason: "section 2"}, "was not to run": {Reason: "section 3"}}.Same(specs, specs[:1])
	if want := "is the same\n    does not differ, and is known to: section 2"; strings.Join(findings, "|") != want {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

// A fluke of the side in the middle must not hide what differs on the last one.
func TestSpecsThatHaveRunAgainCountForWhatMostlyBecameOfThem(t *testing.T) {
	specs := []Spec{{"broken by the file", false}, {"fine", false}}
	unpatched := resultsOf(passing("broken by the file"), passing("fine"))
	patched := resultsOf(failing("broken by the file", "slow"), passing("fine"))
	partitioned := resultsOf(failing("broken by the file", "lost"), passing("fine"))

	differing := Differing(specs, patched, unpatched)
	if len(differing) != 1 {
		t.Fatalf("%v differ", differing)
	}
	patched.Settle(differing, []*Results{unpatched, unpatched, patched})
	if differing := Differing(specs, patched, unpatched); len(differing) > 0 {
		t.Errorf("%v differ still", differing)
	}
	differing = Differing(specs, partitioned, patched)
	differences := Differences{"broken by the file": {Failure: regexp.MustCompile("^lost")}}
	if len(differing) != 1 || !differences.Explain(differing[0], partitioned, patched) {
		t.Errorf("with the file, %v differ", differing)
	}
	if differences.Explain(specs[0], patched, partitioned) || differences.Explain(specs[1], partitioned, patched) {
		t.Error("a difference is known that is not")
	}
	differences["broken by the file"] = Difference{Failure: regexp.MustCompile("^slow")}
	if differences.Explain(differing[0], partitioned, patched) {
		t.Error("it is known to differ, however it fails")
	}
}

func TestKnownDifferences(t *testing.T) {
	differences, err := ParseDifferences("# a list\n#\n\n# section 1\na b\n    CPUs <1-7>\nc\n  ^lost$\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, failure := range map[string]string{"a b": "has CPUs <1-7>", "c": "lost"} {
		if difference := differences[name]; difference.Reason != "section 1" || !difference.Failure.MatchString(failure) {
			t.Errorf("of %s, known is %v", name, difference)
		}
	}
	for text, want := range map[string]string{
		"# why\na\n":              `"a" has no expression of its failure below it`,
		"# why\na\n b\n c\n":      "line 4: there is no spec above it, or it has an expression already",
		"# why\n b\n":             "line 2: there is no spec above it, or it has an expression already",
		"# why\na\n (\n":          "line 3: error parsing regexp: missing closing ): `(`",
		"a\n b\n":                 `line 1: "a" has no reason above it`,
		"# why\na\n b\n\na\n b\n": `line 5: "a" is there twice`,
	} {
		if _, err := ParseDifferences(text); err == nil || err.Error() != want {
			t.Errorf("%q gives %v, want %s", text, err, want)
		}
	}
}

// The third run of a spec that ended alike twice would change nothing, and takes minutes.
func TestSpecsRunAgainUntilMostRunsEndAlike(t *testing.T) {
	all := []Spec{{"passes", false}, {"fails", false}, {"does both", false}}
	none := resultsOf()
	first := resultsOf(passing("passes"), failing("fails", "lost"), passing("does both"))
	second := resultsOf(passing("passes"), failing("fails", "lost"), failing("does both", "slow"))
	third := resultsOf(passing("does both"))
	for _, test := range []struct {
		results []*Results
		want    int
	}{
		{[]*Results{none}, 3}, {[]*Results{first}, 0},
		{[]*Results{none, none, none}, 3}, {[]*Results{first, none, none}, 3}, {[]*Results{first, second, none}, 1}, {[]*Results{first, second, third}, 0},
	} {
		if undecided := Undecided(all, test.results); len(undecided) != test.want {
			t.Errorf("%v are undecided, want %d", undecided, test.want)
		}
	}
	findings := JudgeAgain(all, []*Results{first, second, third})
	if want := "fails\n    did not pass, and then passed 0 of 2 times\n    failed: lost"; strings.Join(findings, "|") != want {
		t.Errorf("findings are %q, want %q", findings, want)
	}
}

// The report has no failure that the verdict has settled, and no result of a spec that no longer runs.
func TestTheReportSaysWhatTheVerdictDoes(t *testing.T) {
	all := []Spec{{"fine", false}, {"a fluke", false}, {"a finding", false}, {"anything", false}}
	results := resultsOf(passing("fine"), failing("a fluke", "slow"), failing("a finding", "lost"), passing("anything"), failing("left out by now", "lost"))
	results.Settle(all[1:], []*Results{
		resultsOf(passing("a fluke"), failing("a finding", "lost again"), passing("anything")),
		resultsOf(passing("a fluke"), failing("a finding", "lost again"), skipping("anything", "no disk")),
		resultsOf(failing("a fluke", "slow"), passing("a finding"), failing("anything", "no luck")),
	})
	if passed, others := results.Count(all); passed != 2 || len(others) != 2 || others[0] != all[2] {
		t.Errorf("%d passed, and not %v", passed, others)
	}
	file := filepath.Join(t.TempDir(), "junit.xml")
	if err := results.WriteJUnit(all, file, "specs"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"<testcase ": 4, "<failure ": 2, "lost again": 1, string(unsettled): 1, "slow": 0, "left out": 0} {
		if got := strings.Count(string(data), text); (got > 0) != (want > 0) || strings.HasPrefix(text, "<") && got != want {
			t.Errorf("the report has %q %d times, want %d\n%s", text, got, want, data)
		}
	}
}

// ginkgo skips what follows a set-up that failed. That is no word of the specs themselves.
func TestASpecThatItsContainerSkipsHasNotRun(t *testing.T) {
	for why, want := range map[string]bool{
		"Skipping since SMT is off":                    true,
		"Spec skipped because a BeforeAll node failed": false,
		"Spec skipped because an earlier spec failed":  false,
		"": false,
	} {
		if got := final(skipping("a", why)); got != want {
			t.Errorf("skipped with %q it is final: %v", why, got)
		}
	}
}
