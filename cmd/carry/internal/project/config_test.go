// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// A module that a rebase does not raise no longer builds after it.
func TestEachModuleOnTheCoreIsRaised(t *testing.T) {
	here, err := project.Find()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "git", "-C", here.Dir, "ls-files", "go.mod", "*/go.mod").Output()
	if err != nil {
		t.Skipf("the files of the project are not known: %v", err)
	}
	files := strings.Fields(string(output))
	if len(files) < len(project.RaisedDirs) {
		t.Fatalf("the project has the modules %q only", files)
	}
	for _, name := range files {
		data, err := os.ReadFile(here.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(name)
		onCore := dir == project.ModuleDirs[project.CoreModule] || slices.ContainsFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == project.CoreModule })
		if raised := slices.Contains(project.RaisedDirs, dir); onCore && !raised {
			t.Errorf("%s requires %s, and a rebase does not raise it", name, project.CoreModule)
		}
	}
	for _, dir := range slices.Concat(project.RaisedDirs, project.ReaderDirs) {
		if !slices.Contains(files, filepath.Join(dir, "go.mod")) {
			t.Errorf("a rebase raises %s, where no module is", dir)
		}
	}
}
