// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
)

// The pages that lead through a node's life, in that order. Their commands begin with a prompt,
// in blocks of the language console.
var pages = []string{"install.md", "annotate.md", "verify.md", "fleet.md", "switch-off.md"}

// The commands of the pages, as printed, one after another, do on a node what the pages say, and
// print what stands below them.
func TestCommandsOfThePagesWork(t *testing.T) {
	in(t, vm, kubectlPlugin)
	if config.Supervisor != host.Systemd || runtime.NumCPU() != 8 {
		t.Skip("the pages show a node of eight CPUs, whose kubelet is a systemd unit")
	}
	with := config
	with.Pinning = ""
	c := alone(t, with)
	t.Cleanup(func() { _ = os.Remove(partition.PinningFilePath) })
	// There is no registry here.
	if err := c.Tag(t.Context(), image.Busybox, "docker.io/library/busybox:1.35"); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for path, target := range map[string]string{"docs/user": docs, "bin/kubectl": filepath.Join(config.Bin, "kubectl"), "bin/kubectl-partition": plugin} {
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.MkdirAll(filepath.Join(work, filepath.Dir(path)), 0o755)
		}
		if err == nil {
			err = os.Symlink(target, filepath.Join(work, path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The fleet is this one machine.
	if err := os.WriteFile(filepath.Join(work, "bin", "ssh"), []byte("#!/bin/bash\nshift\nexec bash -c \"$*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		commands := readPage(t, filepath.Join(docs, page))
		for i, result := range runPage(t, work, commands) {
			command := commands[i]
			t.Logf("%s:%d: # %s\n%s", page, command.line, command.text, result.output)
			want := 0
			if command.fails {
				want = 1
			}
			if result.code != want {
				t.Fatalf("%s:%d: %s ended with %d, want %d", page, command.line, command.text, result.code, want)
			}
			if len(command.output) > 0 && !matches(command.output, result.output) {
				t.Errorf("%s:%d: %s prints something else than\n%s", page, command.line, command.text, strings.Join(command.output, "\n"))
			}
		}
	}
}

// pageCommand is a command of a page.
type pageCommand struct {
	line int
	text string
	// output are the lines below it; without any, the page does not say what it prints. A line
	// that is ... stands for any lines.
	output []string
	// fails means that the sentence above the block says that it exits with 1.
	fails bool
}

var prompt = regexp.MustCompile(`^[#$] `)

// readPage returns the commands of a page.
func readPage(t *testing.T, file string) (commands []pageCommand) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	inBlock, begun, before := false, 0, ""
	for number := 1; scanner.Scan(); number++ {
		line := strings.TrimSpace(scanner.Text())
		switch {
		case !inBlock && line == "```console":
			inBlock, begun = true, len(commands)
		case !inBlock:
			if line != "" {
				before = line
			}
		case line == "```":
			inBlock = false
		case prompt.MatchString(line):
			commands = append(commands, pageCommand{line: number, text: line[2:], fails: strings.HasSuffix(before, "exits with 1:")})
		case len(commands) > begun: // in a block without a prompt there is nothing to run
			last := &commands[len(commands)-1]
			last.output = append(last.output, line)
		}
	}
	if err := scanner.Err(); err != nil || len(commands) == 0 {
		t.Fatalf("%s has no commands: %v", file, err)
	}
	return commands
}

// pageResult is what a command did.
type pageResult struct {
	code   int
	output string
}

// runPage runs the commands of a page in one shell.
func runPage(t *testing.T, dir string, commands []pageCommand) []pageResult {
	t.Helper()
	const ends = "\x1eends with "
	var script strings.Builder
	script.WriteString("exec 2>&1\n")
	for _, command := range commands {
		fmt.Fprintf(&script, "%s\nprintf '%s%%d\\n' $?\n", command.text, ends)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	shell.Dir = dir
	shell.Env = append(os.Environ(), "KUBECONFIG="+host.Kubeconfig, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	results := make([]pageResult, len(commands))
	rest := string(out)
	for i := range results {
		output, after, _ := strings.Cut(rest, ends)
		code, after, found := strings.Cut(after, "\n")
		if !found {
			t.Fatalf("line %d: %s did not end:\n%s", commands[i].line, commands[i].text, output)
		}
		results[i].output = output
		if _, err := fmt.Sscan(code, &results[i].code); err != nil {
			t.Fatal(err)
		}
		rest = after
	}
	return results
}

// What differs from one run to the next.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z|-[0-9a-f]{8,10}-[0-9a-z]{5}\b|\+wp\.[0-9a-f]+|v\d+\.\d+\.\d+|\b\d+(\.\d+)?(ms|s)\b|\bNotes: \d+`)

// matches compares what a command has printed with the lines of a page, word by word.
func matches(want []string, got string) bool {
	var pattern strings.Builder
	for _, line := range want {
		if line == "..." {
			pattern.WriteString(`(.*\n)*`)
			continue
		}
		pattern.WriteString(regexp.QuoteMeta(same(line)) + `\n`)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for i := range lines {
		lines[i] = same(lines[i])
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(strings.Join(lines, "\n") + "\n")
}

func same(line string) string {
	return strings.Join(strings.Fields(varying.ReplaceAllString(line, "*")), " ")
}
