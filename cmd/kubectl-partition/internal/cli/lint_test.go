// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/text/encoding/unicode"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

// runLint runs the command in testdata/lint, so that file names are short.
func runLint(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	command := Command(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
	command.SetArgs(append([]string{"lint"}, args...))
	code = ExitCode(command.Execute(), &errOut)
	return out.String(), errOut.String(), code
}

func TestLintPrints(t *testing.T) {
	t.Chdir("testdata/lint")
	for file, test := range map[string]struct {
		args []string
		code int
	}{
		"table.txt":   {[]string{"manifests"}, 1},
		"wide.txt":    {[]string{"manifests", "-o", "wide", "--require", "management", "--namespace-selector", "platform=true"}, 1},
		"github.txt":  {[]string{"manifests", "-o", "github"}, 1},
		"json.json":   {[]string{"manifests/operator.yaml", "-o", "json"}, 1},
		"yaml.yaml":   {[]string{"manifests/operator.yaml", "-o", "yaml"}, 1},
		"sarif.json":  {[]string{"manifests/namespace.yaml", "-o", "sarif", "--active-types", "infra"}, 0},
		"broken.txt":  {[]string{"broken.yaml"}, 2},
		"ignored.txt": {[]string{"manifests", "--ignore-file", "ignore.yaml"}, 1},
		"rules.txt":   {[]string{"--list-rules"}, 0},
	} {
		t.Run(file, func(t *testing.T) {
			got, stderr, code := runLint(t, "", test.args...)
			if code != test.code {
				t.Errorf("the exit code is %d, want %d: %s", code, test.code, stderr)
			}
			expectGolden(t, "lint/golden/"+file, got)
		})
	}
}

func TestLintReadsStandardInput(t *testing.T) {
	manifest, err := os.ReadFile("testdata/lint/manifests/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, code := runLint(t, string(manifest), "-", "-n", "other")
	if !strings.HasPrefix(stdout, "-:") || code != 1 {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

// Windows PowerShell writes UTF-16, and kubectl reads it.
func TestLintReadsUTF16(t *testing.T) {
	manifest, err := os.ReadFile("testdata/lint/manifests/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := runLint(t, string(manifest), "-", "--require", "management")
	for _, order := range []unicode.Endianness{unicode.LittleEndian, unicode.BigEndian} {
		encoded, err := unicode.UTF16(order, unicode.UseBOM).NewEncoder().Bytes(manifest)
		if err != nil {
			t.Fatal(err)
		}
		if got, stderr, code := runLint(t, string(encoded), "-", "--require", "management"); got != want || code != 1 {
			t.Errorf("exit code %d: %s\n%s\nwant what is found in UTF-8:\n%s", code, stderr, got, want)
		}
		file := filepath.Join(t.TempDir(), "operator.yaml")
		if err := os.WriteFile(file, encoded, 0o644); err != nil {
			t.Fatal(err)
		}
		stdout, _, code := runLint(t, "", file, "--require", "management", "--fix")
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, encoded) || code != 2 || !strings.Contains(stdout, "the file is in UTF-16") {
			t.Errorf("exit code %d, and the file is changed: %t (%v)\n%s", code, !bytes.Equal(after, encoded), err, stdout)
		}
	}
}

// kubectl leaves out the byte order mark, and JSON objects need nothing between them.
func TestLintReadsJSONWithAByteOrderMark(t *testing.T) {
	const objects = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "annotations": {"target.workload.openshift.io/management": "{}"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
`
	want, _, _ := runLint(t, objects, "-")
	if got, stderr, code := runLint(t, "\ufeff"+objects, "-"); got != want || code != 1 {
		t.Errorf("exit code %d: %s\n%s\nwant what is found without the mark:\n%s", code, stderr, got, want)
	}
}

func TestLintFixesFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/lint/manifests")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "namespace.yaml")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := runLint(t, "", dir, "--fix")
	if !strings.Contains(stderr, "fixed "+filepath.Join(dir, "operator.yaml")) || code != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	got, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(got), "\n  annotations: # none yet\n    workload.openshift.io/allowed: management\n") {
		t.Errorf("got %v\n%s", err, got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// What is left after a disk has filled is the file as it was: it is replaced, and not written.
func TestLintReplacesWhatItFixes(t *testing.T) {
	dir := t.TempDir()
	before, err := os.ReadFile("testdata/lint/manifests/namespace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, link, other := filepath.Join(dir, "real", "namespace.yaml"), filepath.Join(dir, "namespace.yaml"), filepath.Join(dir, "other")
	must(os.Mkdir(filepath.Dir(file), 0o755))
	must(os.WriteFile(file, before, 0o644))
	must(os.Link(file, other))
	must(os.Symlink("real/namespace.yaml", link))
	if os.Getuid() == 0 {
		must(os.Chown(file, 1000, 1000))
	}
	operator := filepath.Join(dir, "operator.yaml")
	data, err := os.ReadFile("testdata/lint/manifests/operator.yaml")
	must(err)
	must(os.WriteFile(operator, data, 0o644))
	runLint(t, "", link, operator, "--fix")
	if got, err := os.ReadFile(other); err != nil || !bytes.Equal(got, before) {
		t.Errorf("the file was written in place: %v\n%s", err, got)
	}
	if got, err := os.ReadFile(file); err != nil || bytes.Equal(got, before) {
		t.Errorf("the file is not fixed: %v\n%s", err, got)
	}
	if target, err := os.Readlink(link); err != nil || target != "real/namespace.yaml" {
		t.Errorf("the link is %q, %v", target, err)
	}
	info, err := os.Stat(file)
	must(err)
	if owner := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 && (owner.Uid != 1000 || owner.Gid != 1000) {
		t.Errorf("the owner is %d:%d", owner.Uid, owner.Gid)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("left behind are %v, %v", entries, err)
	}
}

func TestLintEscapesWhatMovesTheCursor(t *testing.T) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a\u001b[2J\n::error::x","annotations":{"workload.openshift.io/management":""}}}`
	for _, format := range []string{"wide", "github"} {
		stdout, _, _ := runLint(t, pod, "-", "-o", format)
		if strings.Contains(stdout, "\x1b") || strings.Count(stdout, "\n::error") > 0 || !strings.Contains(stdout, `a\x1b[2J\n`) {
			t.Errorf("%s: %q", format, stdout)
		}
	}
}

func TestLintRefusesWhatItCannotDo(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing to lint":            {nil, "give files, directories, - for standard input, or --live"},
		"a file and a cluster":       {[]string{"a", "--live"}, `"a" is a file`},
		"fixing a cluster":           {[]string{"--live", "--fix"}, "--fix writes files"},
		"fixing standard input":      {[]string{"-", "--fix"}, "cannot write standard input"},
		"a file that does not exist": {[]string{"no/such.yaml"}, "no/such.yaml: no such file"},
		"an invalid type":            {[]string{"-", "--require", "Management"}, `workload type "Management"`},
		"an invalid selector":        {[]string{"-", "--require", "management", "--namespace-selector", "=="}, `--namespace-selector "=="`},
		"a selector alone":           {[]string{"-", "--namespace-selector", "a=b"}, "give both"},
		"an unknown format":          {[]string{"-", "-o", "xml"}, "the format must be one of"},
		"no ignore file":             {[]string{"-", "--ignore-file", "no/such"}, "no/such: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if stdout, stderr, code := runLint(t, "", test.args...); code != 2 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, %q, %q, want %q", code, stdout, stderr, test.want)
			}
		})
	}
}

// On a host with two kinds of cores, lint says of rendered files what render says: in a directory, and as one manifest.
func TestLintKnowsTheHostAsRenderDoes(t *testing.T) {
	// CPUs 0 and 4 are siblings, 1 and 5; 2 and 3 have none.
	host := topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 2, Offline: "6-7"}
	const finding = "A pool has CPU 0 without the rest of its physical core or socket"
	for name, test := range map[string]struct {
		pool, policy string
		code         int
	}{
		"a pool that splits a core":  {"0,2", "static", 1},
		"a pool with whole cores":    {"0,2,4", "static", 0},
		"a policy that gives no CPU": {"0,2", "none", 0},
	} {
		for target, flags := range map[string][]string{"tree": nil, "machineconfig": nil, "cloud-init": nil, "butane": {"--butane-variant=fcos"}} {
			t.Run(name+", as "+target, func(t *testing.T) {
				directory := t.TempDir()
				code, _, errOut := runRender(t, &host, "", append(flags, "--from-node", "--cpuset", test.pool, "--cpu-manager-policy", test.policy, "--target", target, "--to", directory)...)
				if code != 0 || strings.Contains(errOut, finding) != (test.code == 1) {
					t.Fatalf("render: exit code %d, %s", code, errOut)
				}
				streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
				l := &lintOptions{streams: streams, config: genericclioptions.NewConfigFlags(true), fromNode: fromNode{sysfs: topologytest.Sysfs(t, host)}}
				command := l.command()
				command.SilenceErrors, command.SilenceUsage = true, true
				files := []string{directory}
				if dropIn := filepath.Join(directory, nodefiles.KubeletDropInPath); target == "tree" {
					files = append(files, dropIn)
				}
				command.SetArgs(append(files, "--from-node"))
				code = ExitCode(command.Execute(), stderr)
				if code != test.code || strings.Contains(stdout.String(), finding) != (test.code == 1) {
					t.Errorf("lint: exit code %d, %s%s", code, stdout, stderr)
				}
			})
		}
	}
}

func TestLintOfAClusterTakesNoHost(t *testing.T) {
	if _, stderr, code := runLint(t, "", "--live", "--from-node"); code != 2 || !strings.Contains(stderr, "--live reads a cluster, and --from-node") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
