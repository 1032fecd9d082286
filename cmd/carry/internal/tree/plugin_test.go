// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
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
	findings, err := lint.PluginFindings(c)
	if err != nil || len(findings) == 0 || !strings.Contains(findings[0].String(), "budget") {
		t.Errorf("one patch more than the budget has: %v, %v", findings, err)
	}
}

func TestPluginNamesAPatchThatDoesNotApply(t *testing.T) {
	c := pluginCheckout(t)
	series, err := filepath.Glob(c.Path(project.PluginPatches, "*.patch"))
	if err != nil || len(series) == 0 {
		t.Fatalf("patches %q, %v", series, err)
	}
	edit(t, series[0], " func initNodeTopologyInformer", " func initOther")
	if err := (tree.Plugin{Project: c}).Update(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(series[0])) {
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
