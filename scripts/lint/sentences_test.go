// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sentence is a comparison with a part of a text that is for people: an error's, or the message of a status.
var sentence = regexp.MustCompile(`strings\.(Contains|HasPrefix|HasSuffix|Cut\w*)\([^"]*(\.Error\(\)|\.Message\b)`)

// sentences are the lines that may do so, each with the reason.
var sentences = []string{
	`strings.CutSuffix(s.Message, "; "+StaysClaimed)`, // what older controllers have stored
	`strings.HasSuffix(about.Error(), err.Error())`,   // it finds the field that an error of package time is about
}

// Programs tell each other codes, so that the words can change.
func TestNoProgramParsesSentences(t *testing.T) {
	for _, dir := range []string{"operators", "cmd/kubectl-partition", "node"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "companiontest") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				if sentence.MatchString(line) && !slices.ContainsFunc(sentences, func(allowed string) bool { return strings.Contains(line, allowed) }) {
					t.Errorf("%s:%d: a text for people is parsed; give it a code: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
