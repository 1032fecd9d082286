// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkedSince is the commit after which subjects are checked: what is older stays as it is.
const checkedSince = "af910c76ea56"

// A subject is "area: imperative", or "area, area: imperative". No program can tell an imperative from a noun
// here, but what begins with a capital letter is none.
var subject = regexp.MustCompile(`^([a-z0-9]+(?:, [a-z0-9]+)*): [^A-Z\s]`)

func TestSubjectsBeginWithAnAreaOfTheList(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| area | for |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	areas := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z0-9]+)` \\|").FindAllStringSubmatch(table, -1) {
		areas[found[1]] = true
	}
	if len(areas) < 10 {
		t.Fatalf("CONTRIBUTING.md has the areas %v", areas)
	}
	log := exec.Command("git", "log", "--no-merges", "--format=%h %s", checkedSince+"..HEAD")
	log.Dir = root
	output, err := log.Output()
	if err != nil {
		t.Skipf("this is not a git repository that has the commit %s", checkedSince)
	}
	for line := range strings.Lines(string(output)) {
		commit, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		found := subject.FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s: %q is not \"area: imperative\"", commit, text)
			continue
		}
		for area := range strings.SplitSeq(found[1], ", ") {
			if !areas[area] {
				t.Errorf("%s: %q begins with %s, which is no area in CONTRIBUTING.md", commit, text, area)
			}
		}
	}
}

// TestReleaseNotesSayTheirEffect: make release would refuse the version.
func TestReleaseNotesSayTheirEffect(t *testing.T) {
	note := regexp.MustCompile(`^(action|changed|new|fixed): \S`)
	log := exec.Command("git", "log", "--no-merges", "--format=%h%x1f%(trailers:key=Release-Note,valueonly,unfold,separator=%x1f)", checkedSince+"..HEAD")
	log.Dir = root
	output, err := log.Output()
	if err != nil {
		t.Skipf("this is not a git repository that has the commit %s", checkedSince)
	}
	for line := range strings.Lines(string(output)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\x1f")
		for _, text := range fields[1:] {
			if text != "" && !note.MatchString(text) {
				t.Errorf("%s: the trailer Release-Note is %q, want an effect (action, changed, new or fixed), a colon and a sentence", fields[0], text)
			}
		}
	}
}
