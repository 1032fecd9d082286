// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"os/exec"
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

// A look that fails is repeated within a minute: controller-runtime's own waits grow to 17 minutes, whatever else is due meanwhile.
func TestControllersOfCompanionsTryAgainWithinAMinute(t *testing.T) {
	var files []string
	for _, pattern := range []string{"operators/*/controller/*.go", "operators/internal/example/*.go"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: there are the files %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		controllers, limits := strings.Count(string(text), "ControllerManagedBy("), strings.Count(string(text), "RateLimiter: ")
		if controllers != limits && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s has %d controllers, and %d options RateLimiter; take companion.Retries()", strings.TrimPrefix(file, root+"/"), controllers, limits)
		}
	}
}

// What make uninstall cannot remove as a whole, it must not begin to remove.
func TestMakeRemovesNothingBeforeItKnowsThatItCan(t *testing.T) {
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\ntouch $0.called\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ operator, want string }{
		{"", `there is no companion ""`},
		{"tuning-ordinary", `there is no companion "tuning-ordinary"`},
		{"cpupolicy-cert-manager", `there is no companion "cpupolicy-cert-manager"`},
		{"tuning", "tuning also works in a hosted cluster"},
	} {
		command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "uninstall", "OPERATOR="+test.operator, "KUBECTL="+kubectl, "HOSTED_KUBECONFIG=")
		command.Dir, command.Env = root, append(os.Environ(), "MAKEFLAGS=")
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), test.want) {
			t.Errorf("OPERATOR=%s: make ends with %v and says\n%s\nwant %q", test.operator, err, output, test.want)
		}
	}
	if _, err := os.Stat(kubectl + ".called"); err == nil {
		t.Error("it has called kubectl")
	}
}

func TestMakeInstallsTheImagesThatWerePushed(t *testing.T) {
	for _, test := range []struct{ operator, fips, want string }{
		{"cpupolicy", "", "_output/v9.9.9/images"},
		{"cpupolicy", "1", "_output/v9.9.9/fips-images"},
		{"example", "", "_output/operators/example/images"},
	} {
		command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "install", "OPERATOR="+test.operator, "REGISTRY=registry.example.com", "FIPS="+test.fips, "RELEASE=v9.9.9", "KUBECTL=/bin/true")
		command.Dir, command.Env = root, append(os.Environ(), "MAKEFLAGS=")
		output, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(output), " "+test.want+" ") {
			t.Errorf("OPERATOR=%s FIPS=%s: make would install\n%s\nwant the images of %s (%v)", test.operator, test.fips, output, test.want, err)
		}
	}
}

// Without a registry, the nodes of an older release get the scheduler of that release, and not the newest one, which may
// have been built as well.
func TestImagesHaveTheSchedulerOfTheRelease(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "scripts", "operators-images.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"scripts/operators-images.sh":                  string(script),
		"_output/bin/images":                           "#!/bin/sh\necho \"$@\" >images\n",
		"_output/bin/partition-controller":             "controller",
		"_output/bin/topo-aware-scheduler":             "newest",
		"_output/older/scheduler/topo-aware-scheduler": "older",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "-ec", `git init --quiet . && git -c user.name=a -c user.email=a commit --quiet --allow-empty --message=a
scripts/operators-images.sh _output/bin _output/older/scheduler/topo-aware-scheduler made partition-tuned`)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	images, err := os.ReadFile(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "=_output/older/scheduler --bin="; !strings.Contains(string(images), "--only=partition-controller,topo-aware-scheduler,partition-tuned ") || !strings.Contains(string(images), want) {
		t.Errorf("images is called with %s, want %q before other programs", images, want)
	}
}
