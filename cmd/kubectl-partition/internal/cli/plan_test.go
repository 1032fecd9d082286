// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// runPlan runs the command, and returns what it prints and its exit code.
func runPlan(t *testing.T, stdin string, args ...string) (output, errors string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	command := Command(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
	command.SetArgs(append([]string{"plan"}, args...))
	code = ExitCode(command.ExecuteContext(t.Context()), &errOut)
	return out.String(), errOut.String(), code
}

// planState is a node of four CPUs, whose pool is CPU 0. The container of ran/radio holds CPU 3.
const planState = "testdata/plan/node"

func TestPlanPrintsWhatChanges(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
	}{
		"unchanged": {args: []string{"--type", "management", "--cpuset", "0"}},
		"grows":     {args: []string{"--type", "management", "--cpuset", "0-1"}, code: 1},
		"taken":     {args: []string{"--type", "management", "--cpuset", "0,3"}, code: 1},
		"moves":     {args: []string{"--type", "management", "--cpuset", "1", "-o", "wide"}},
		"removed":   {args: []string{"--remove"}},
		"two-types": {args: []string{"--type", "management", "--cpuset", "0", "--type", "infra", "--cpuset", "", "-o", "yaml"}},
		"json":      {args: []string{"--type", "management", "--cpuset", "0-1", "-o", "json"}, code: 1},
		"mistake":   {args: []string{"--type", "management", "--cpuset", "0-9"}, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			output, errors, code := runPlan(t, "", append(test.args, "--state", planState)...)
			if code != test.code || errors != "" {
				t.Errorf("the exit code is %d, want %d, and the error %q", code, test.code, errors)
			}
			expectGolden(t, "plan/"+name+".golden", output)
		})
	}
}

func TestPlanNamesWhatIsMissingOrWrong(t *testing.T) {
	const present = planState + "/openshift-workload-pinning"
	broken := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(broken, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"nothing is wanted":            {args: []string{"--state", planState}, want: "at least one of the flags in the group [file type remove]"},
		"a type without a set":         {args: []string{"--state", planState, "--type", "management"}, want: "[type cpuset]"},
		"a type without its set":       {args: []string{"--state", planState, "--type", "management", "--type", "infra", "--cpuset", "0"}, want: "there are 2 --type and 1 --cpuset"},
		"a type twice":                 {args: []string{"--state", planState, "--type", "a", "--cpuset", "0", "--type", "a", "--cpuset", "1"}, want: "--type a is given twice"},
		"no CPUs are known":            {args: []string{"--remove", "--present-file", present}, want: "nothing says which CPUs the node has"},
		"CPUs that are none":           {args: []string{"--remove", "--online", "x"}, want: `--online: "x" is not a CPU`},
		"a directory that is none":     {args: []string{"--remove", "--state", present}, want: "is not a directory"},
		"a file that is not there":     {args: []string{"--state", planState, "--file", broken + "/none"}, want: "no such file"},
		"a checkpoint that is missing": {args: []string{"--state", planState, "--remove", "--checkpoint", broken + "/none"}, want: "no such file"},
		"a configuration of others":    {args: []string{"--state", planState, "--remove", "--kubelet-config", write("kind", "kind: Pod")}, want: `kind "Pod" is not KubeletConfiguration`},
		"reserved CPUs that are none":  {args: []string{"--state", planState, "--remove", "--kubelet-config", write("reserved", "reservedSystemCPUs: 0-99999999")}, want: "CPU 99999999 is beyond 8191"},
		"a record that is none":        {args: []string{"--state", planState, "--remove", "--record", write("record", "{")}, want: "record: unexpected end"},
		"pods of several nodes":        {args: []string{"--online", "0", "--remove", "--pods", write("pods", `{"kind": "List", "items": [{"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x"}}, {"metadata": {"name": "b", "namespace": "n"}, "spec": {"nodeName": "y"}}]}`)}, want: "those of several nodes"},
		"a pod's name that is none":    {args: []string{"--state", planState, "--remove", "--pods", write("names", "kind: PodList\nitems: [{metadata: {name: \"a; rm\", namespace: ns}}]")}, want: `"ns/a; rm" is not a pod's namespace and name`},
		"a pod in place of a list":     {args: []string{"--state", planState, "--remove", "--pods", write("pod", "kind: Pod\nmetadata: {name: a, namespace: n}\nspec: {nodeName: worker-1}")}, want: `kind "Pod" is neither List nor PodList`},
		"more than a list":             {args: []string{"--state", planState, "--remove", "--pods", write("more", `{"kind": "List", "items": []} {"kind": "List", "items": []}`)}, want: "there is more input after the list of pods"},
		"a node's name that is none":   {args: []string{"--online", "0", "--remove", "--pods", write("node", `{"kind": "List", "items": [{"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x; rm"}}]}`)}, want: `pod n/a: spec.nodeName "x; rm" is not the name of a Node`},
		"names and labels":             {args: []string{"--remove", "-l", "a=b", "worker-1"}, want: "not both"},
		"a file and a directory":       {args: []string{"--remove", "--on-host", "--state", planState}, want: "[on-host state] were all set"},
		"too little is known":          {args: []string{"--online", "0-3", "--present-file", present, "--file", "-"}, stdin: `{"management": {"cpuset": "0-1"}}`, want: "too little is known to tell whether the change is safe"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errors, code := runPlan(t, test.stdin, test.args...)
			if code != 2 || !strings.Contains(errors, test.want) {
				t.Errorf("the exit code is %d, and the error %q, want 2 and %q", code, errors, test.want)
			}
		})
	}
}

// The API has only the number of a node's CPUs. A group of equal nodes may be given all of them at once.
func TestPlanOfAGroupIsGivenTheCPUsOfEachNode(t *testing.T) {
	node := func(name string) any {
		return object(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+name+`"}, "status": {"capacity": {"cpu": "2"}}}`)
	}
	cluster := fakeCluster(t, map[string][]any{"/api/v1/nodes": {node("a"), node("b")}})
	for online, test := range map[string]struct {
		unknown int
		want    string
	}{
		"":    {unknown: 2},
		"0,2": {},
		"0-2": {want: "--online 0-2 has 3 CPUs, and node a has 2"},
	} {
		output, errors, code := runPlan(t, "", append(cluster, "-l", "edge=yes", "--type", "management", "--cpuset", "0", "--online", online)...)
		if unknown := strings.Count(output, "OnlineCPUsUnknown"); code != 2 || unknown != test.unknown || !strings.Contains(errors, test.want) {
			t.Errorf("with --online %q: the exit code is %d, and the CPUs of %d nodes are not known, want 2 and %d: %s\n%s", online, code, unknown, test.unknown, errors, output)
		}
	}
}

// Texts from a node's files do not reach the terminal as they are.
func TestPlanEscapesControlCharacters(t *testing.T) {
	directory := t.TempDir()
	if err := os.CopyFS(directory, os.DirFS(planState)); err != nil {
		t.Fatal(err)
	}
	const hostile = `{"policyName":"static","defaultCpuSet":"1-2","entries":{"\u001b[2J\nuid":{"\u001b]0;title\u0007":"3"}}}`
	if err := os.WriteFile(filepath.Join(directory, "cpu_manager_state"), []byte(hostile), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	output, _, code := runPlan(t, "", "--state", directory, "--type", "management", "--cpuset", "0,3")
	if code != 1 && code != 2 || strings.ContainsAny(output, "\x1b\x07") || !strings.Contains(output, `\x1b[2J\nuid`) {
		t.Errorf("the exit code is %d, and it prints\n%q", code, output)
	}
}
