// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// krew's own program checks the manifest, and krew installs the plugin of each platform by it.
func TestKrewTakesTheManifest(t *testing.T) {
	if testing.Short() {
		t.Skip("a short run has no krew; make unit compiles it, and runs this test with it")
	}
	tools := t.TempDir()
	run := func(env []string, name string, args ...string) {
		t.Helper()
		command := exec.Command(name, args...)
		command.Env = append(os.Environ(), env...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run(nil, "go", "build", "-C", "../../../build/krew", "-o", tools, "tool")
	p := newProject(t)
	p.Releases = []string{"v1.37.0"}
	p.images("v1.37.0")
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.Dir(), manifestFile)
	run(nil, filepath.Join(tools, "validate-krew-manifest"), "-skip-install", "-manifest", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for platform := range p.Plugin {
		if uri := `"https://example.com/v0.2.0/` + pluginArchive(platform) + `"`; !strings.Contains(string(text), uri) {
			t.Errorf("the manifest lacks %s", uri)
		}
		system, architecture, _ := strings.Cut(platform, "/")
		home := t.TempDir()
		run([]string{"KREW_ROOT=" + home, "KREW_OS=" + system, "KREW_ARCH=" + architecture},
			filepath.Join(tools, "krew"), "install", "--manifest", file, "--archive", filepath.Join(p.Dir(), pluginArchive(platform)))
		for _, name := range []string{license, pluginName} {
			if system == "windows" && name == pluginName {
				name += ".exe"
			}
			if _, err := os.Stat(filepath.Join(home, "store", "partition", p.Version, name)); err != nil {
				t.Errorf("%s: krew has not installed %s: %v", platform, name, err)
			}
		}
	}
}

func TestThereIsNoManifestWithoutAURL(t *testing.T) {
	p := newProject(t)
	p.Releases, p.URL = []string{"v1.37.0"}, ""
	p.images("v1.37.0")
	if err := Write(t.Context(), p.Options); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir(), manifestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a manifest (%v)", err)
	}
}
