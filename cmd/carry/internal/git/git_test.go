// SPDX-License-Identifier: Apache-2.0

package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheUsersConfigurationCountsOnlyForWhatIsTrusted(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	r := Repo{Dir: filepath.Join(home, `a "repository"`)}
	if err := os.Mkdir(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := "[diff]\n\tnoprefix = true\n[safe]\n\tdirectory = /elsewhere\n\tdirectory = \"" + home + `/a \"repository\"` + "\"\n\tdirectory = \"" + home + `/a \"repository\"/.git` + "\"\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(r Repo, args ...string) string {
		t.Helper()
		out, err := r.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run(r, "init", "-q")
	if err := os.WriteFile(filepath.Join(r.Dir, "f"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	someoneElses := r.With("GIT_TEST_ASSUME_DIFFERENT_OWNER=1")
	run(someoneElses, "add", "f")
	if diff := run(someoneElses, "diff", "--cached"); !strings.Contains(diff, "+++ b/f") {
		t.Errorf("the diff is\n%s\nwant prefixes: the user's configuration must not change it", diff)
	}
	run(Repo{Dir: home, Env: someoneElses.Env}, "clone", "-q", r.Dir, "clone")
	other := Repo{Dir: filepath.Join(home, "clone"), Env: someoneElses.Env}
	if _, err := other.Run(t.Context(), "status"); err == nil || !strings.Contains(err.Error(), "dubious ownership") {
		t.Errorf("git in a directory of someone else that the user does not trust: %v", err)
	}
}
