// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// pluginCheckout is a checkout that has this project's series of the plugin, and nothing else.
func pluginCheckout(t *testing.T) project.Checkout {
	t.Helper()
	here, err := project.Find()
	if err != nil {
		t.Fatal(err)
	}
	c := project.Checkout{Dir: t.TempDir()}
	for _, dir := range []string{project.PluginPins, project.PluginPatches, project.PluginFake} {
		if err := os.CopyFS(c.Path(dir), os.DirFS(here.Path(dir))); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestPluginsSeriesComesBackAsItWas(t *testing.T) {
	c := pluginCheckout(t)
	plugin := tree.Plugin{Project: c}
	if err := plugin.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := readAll(t, c.Path(project.PluginPatches))
	if err := plugin.Export(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, data := range readAll(t, c.Path(project.PluginPatches)) {
		if before[path] != data {
			t.Errorf("an export changes %s:\n%s", path, data)
		}
	}
}

func TestPluginKeepsWorkThatTheSeriesLacks(t *testing.T) {
	c := pluginCheckout(t)
	plugin := tree.Plugin{Project: c}
	if err := plugin.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := c.Path(project.PluginDir, "pkg", "util", "resource.go")
	edit(t, file, "package util", "package util\n\n// A line.")
	g := git.Repo{Dir: c.Path(project.PluginDir)}
	if _, err := g.Run(t.Context(), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "util: add a line\n\nIt is a test.\n\nUpstream-Status: Inappropriate [a test]\nTests: this one\nDrop-When: it has ended"); err != nil {
		t.Fatal(err)
	}
	// Something else is changed, so that the repository would be made again.
	edit(t, c.Path(project.PluginFake, "fakeclient.go"), "package util", "package util\n\n// Changed.")
	if err := plugin.Update(t.Context()); err == nil || !strings.Contains(err.Error(), "carry plugin --export") {
		t.Errorf("Update over a commit of the user: %v", err)
	}
	if err := plugin.Export(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data := readAll(t, c.Path(project.PluginPatches))["util-add-a-line.patch"]; !strings.Contains(data, "+// A line.") {
		t.Errorf("the commit's patch is %q", data)
	}
	findings, err := lint.PluginFindings(c, "")
	if err != nil || len(findings) == 0 || !strings.Contains(findings[0].String(), "budget") {
		t.Errorf("one patch more than the budget has: %v, %v", findings, err)
	}
}

func TestPluginOfAMinorVersionHasItsOwnModuleAndSeries(t *testing.T) {
	c := pluginCheckout(t)
	patches, err := series.ReadPlugin(c, "")
	if err != nil || len(patches) < 2 {
		t.Fatalf("patches %v, %v", patches, err)
	}
	for path, data := range map[string]string{
		filepath.Join(project.PluginPatches, "v1.99", project.DroppedName): patches[0].Name + " it is not needed there\n",
		filepath.Join(project.PluginPatches, "v1.99", patches[1].Name):     strings.ReplaceAll(string(patches[1].Data), "NewCache", "OtherCache"),
		filepath.Join(project.PluginPins, "v1.99", "go.sum"):               readAll(t, c.Path(project.PluginPins))["go.sum"],
		filepath.Join(project.PluginPins, "v1.99", "go.mod"):               strings.Replace(readAll(t, c.Path(project.PluginPins))["go.mod"], "go 1.24.0", "go 1.21.0", 1),
	} {
		if err := disk.Write(c.Path(path), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	plugin := tree.Plugin{Project: c, Release: "v1.99.1"}
	if err := plugin.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := c.Path(project.OutputDir, "v1.99.1", "scheduler-plugins")
	if subjects, err := (git.Repo{Dir: dir}).Run(t.Context(), "log", "--format=%s"); err != nil || strings.Count(subjects, "\n") != len(patches)-1 {
		t.Errorf("the commits are %q, %v", subjects, err)
	}
	helpers := readAll(t, filepath.Join(dir, "pkg", "noderesourcetopology"))["pluginhelpers.go"]
	if !strings.Contains(helpers, "var OtherCache") || !strings.Contains(readAll(t, dir)["go.mod"], "go 1.21.0") {
		t.Errorf("it is not of its own patch and module:\n%s", helpers)
	}
	if err := plugin.Export(t.Context()); err == nil || !strings.Contains(err.Error(), project.PluginDir) {
		t.Errorf("Export: %v", err)
	}
}

func TestPluginNamesAPatchThatDoesNotApply(t *testing.T) {
	c := pluginCheckout(t)
	files, err := filepath.Glob(c.Path(project.PluginPatches, "*.patch"))
	if err != nil || len(files) == 0 {
		t.Fatalf("patches %q, %v", files, err)
	}
	edit(t, files[0], " func initNodeTopologyInformer", " func initOther")
	if err := (tree.Plugin{Project: c}).Update(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(files[0])) {
		t.Errorf("Update: %v", err)
	}
	if _, err := os.Stat(c.Path(project.PluginDir)); !os.IsNotExist(err) {
		t.Errorf("half of a repository is there: %v", err)
	}
}

func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			continue // a minor version's
		}
		var data []byte
		if data, err = os.ReadFile(filepath.Join(dir, entry.Name())); err == nil {
			files[entry.Name()] = string(data)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func edit(t *testing.T, path, old, by string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q, %v", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, by, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
