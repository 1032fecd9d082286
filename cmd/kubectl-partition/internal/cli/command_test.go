// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// perform takes a command through its steps.
func perform(t *testing.T, o options, args ...string) error {
	t.Helper()
	command := &cobra.Command{}
	command.SetContext(t.Context())
	return steps(o)(command, args)
}

// What only a node can do says so on any other host, before it looks for files of a node.
func TestWorkOfANodeIsRefusedElsewhere(t *testing.T) {
	goos = "darwin"
	t.Cleanup(func() { goos = runtime.GOOS })
	for _, args := range []string{"audit", "audit --watch", "audit --serve 127.0.0.1:0", "audit --record x", "plan --on-host --remove", "render --from-node"} {
		if _, code, said := run(args); code != 2 || !strings.Contains(said, "it runs darwin, not Linux; run it on the node") {
			t.Errorf("%q ended with %d and said %q", args, code, said)
		}
	}
}

// kubectl itself runs the command that it is given, with what is to be completed.
func TestKubectlCompletesThePlugin(t *testing.T) {
	kubectl := os.Getenv("TEST_ASSET_KUBECTL")
	if kubectl == "" {
		t.Skip("TEST_ASSET_KUBECTL does not name a kubectl; make e2e-plugin sets it")
	}
	script, code, said := run("completion kubectl")
	if code != 0 {
		t.Fatalf("it ended with %d and said %q", code, said)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"kubectl_complete-partition": script,
		"kubectl-partition":          "#!/bin/sh\necho \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(kubectl, cobra.ShellCompRequestCmd, "partition", "lint", "--o")
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := command.Output(); err != nil || !strings.HasPrefix(string(out), "__complete lint --o\n") {
		t.Errorf("%v, with %q", err, out)
	}
}

func TestCommandsComplete(t *testing.T) {
	for line, want := range map[string]string{
		"__complete pl":                     "plan\t",
		"__complete render --target k":      "kubeadm\t",
		"__complete completion ":            "kubectl\t",
		"__complete cpu-policy worker-1 st": "static\n",
	} {
		var out, errOut bytes.Buffer
		command := Command(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
		command.SetArgs(strings.Split(line, " ")) // an empty word is one
		if err := command.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, with %q", line, err, out.String())
		}
	}
}

func TestVersion(t *testing.T) {
	if printed, code, said := run("--version"); code != 0 || printed != "kubectl partition version "+version.Get().GitVersion+"\n" || said != "" {
		t.Errorf("it ended with %d, printed %q and said %q", code, printed, said)
	}
	if _, code, said := run("-v"); code != 2 || !strings.Contains(said, "'v'") {
		t.Errorf("-v is the verbosity of kubectl, but it ended with %d and said %q", code, said)
	}
}
