// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testdata is absolute, since a test may change the directory.
var testdata, _ = filepath.Abs("testdata")

// expectGolden compares what a command printed with a file of testdata.
func expectGolden(t *testing.T, name, printed string) {
	t.Helper()
	path := filepath.Join(testdata, name)
	if *update {
		if err := os.WriteFile(path, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if printed != string(want) {
		t.Errorf("%s differs from what is printed now; go test -update rewrites it\n%s", path, printed)
	}
}
