// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnlyCommandsKnowCompanions enforces what docs/dev/operators.md says of all packages of the
// module operators: companions never import each other, and nothing else imports a companion, but the
// commands that run them.
func TestOnlyCommandsKnowCompanions(t *testing.T) {
	dir := filepath.Join(root, "operators")
	var companions []string
	controllers, err := filepath.Glob(filepath.Join(dir, "*", "controller"))
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range controllers {
		companions = append(companions, filepath.Base(filepath.Dir(controller)))
	}
	if len(companions) == 0 {
		t.Fatalf("no companion has a package controller in %s; are they somewhere else now?", dir)
	}
	places, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range places {
		if !place.IsDir() || place.Name() == "cmd" || place.Name() == "deploy" {
			continue
		}
		for path, file := range importsOf(t, filepath.Join(dir, place.Name()), false) {
			below, is := strings.CutPrefix(path, operators+"/")
			first, _, _ := strings.Cut(below, "/")
			if is && slices.Contains(companions, first) && first != place.Name() {
				t.Errorf("%s imports %s, which is a companion", file, path)
			}
		}
	}
}
