// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var readsCommits = regexp.MustCompile(`\bgit (?:log|show) .*`)

// With log.showSignature, git prints the signature of a commit before what a format asks for.
func TestScriptsReadCommitsWithoutSignatures(t *testing.T) {
	var files []string
	for _, pattern := range []string{"Makefile", "*/*.mk", "scripts/*.sh"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: there are the files %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	read := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range readsCommits.FindAllString(string(text), -1) {
			read++
			if !strings.Contains(command, " --no-show-signature ") {
				t.Errorf("%s: %q must have --no-show-signature", strings.TrimPrefix(file, root+"/"), command)
			}
		}
	}
	if read == 0 {
		t.Error("nothing reads commits")
	}
}
