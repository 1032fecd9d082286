// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestNotesAreByEffect(t *testing.T) {
	all := []note{
		{"1111111111", "new: `kubectl partition gather` writes one archive for a fault."}, {"2222222222", "action: Replace `a` by `b`: it is gone."},
		{"3333333333", "fixed: A pool survives a restart of the kubelet."}, {"4444444444", "changed:Pods that ask for nothing are skipped."}, {"5555555555", "new: A Helm chart."},
	}
	for name, test := range map[string]struct {
		previous string
		trailers []note
	}{"of-each-effect": {"v0.1.0", all}, "none": {"v0.1.0", nil}, "first-version": {"", all[:1]}} {
		t.Run(name, func(t *testing.T) {
			got, err := source{previous: test.previous, releases: []string{"v1.37.2", "v1.36.5"}}.notes("v0.2.0", test.trailers)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "notes-"+name+".md", got)
		})
	}
}

// golden compares a text with a file of testdata, which -update writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%v; -update writes it: the text is\n%s\nwant\n%s", err, got, want)
	}
}

func TestANoteSaysWhatItsEffectIs(t *testing.T) {
	for name, text := range map[string]string{"no effect": "A pool survives.", "an unknown one": "breaking: A pool goes.", "no sentence": "fixed: "} {
		t.Run(name, func(t *testing.T) {
			if _, err := (source{}).notes("v0.2.0", []note{{"1111111111", text}}); err == nil || !strings.Contains(err.Error(), `commit 1111111111: trailer "Release-Note: `+text) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
