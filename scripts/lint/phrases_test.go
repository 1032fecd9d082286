// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// phrases are those that readers stumbled over, each with what to write instead.
var phrases = map[string]string{
	"be had":            "be downloaded, be available",
	"whoever":           "anyone who, or the actual subject",
	"once more":         "again",
	"go before":         "override, take precedence over, come first",
	"goes before":       "overrides, takes precedence over, comes first",
	"is no end":         "is not final",
	"stand in the way":  "the reasons against it",
	"stands in the way": "the reasons against it",
}

// unswept are the places that quote others.
var unswept = []string{
	"patches/",
	"scripts/lint/phrases_test.go",
}

// A text for readers has none of these phrases: no string, comment or page.
func TestNoPhrasesThatReadersStumbleOver(t *testing.T) {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Skip("this is not a git checkout: ", err)
	}
	// A phrase may go on in the next line of a comment.
	const blank = `\s+(?:(?://|#|\*)\s+)?`
	patterns := map[string]*regexp.Regexp{}
	for phrase := range phrases {
		patterns[phrase] = regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(phrase, " ", blank) + `\b`)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if isUnswept(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			continue // deleted, a link to a directory, or no text
		}
		for phrase, pattern := range patterns {
			for _, at := range pattern.FindAllIndex(text, -1) {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				t.Errorf("%s:%d: %q: write %s", name, line, phrase, phrases[phrase])
			}
		}
	}
}

func isUnswept(name string) bool {
	for _, place := range unswept {
		if name == place || strings.HasSuffix(place, "/") && strings.HasPrefix(name, place) {
			return true
		}
	}
	return false
}
