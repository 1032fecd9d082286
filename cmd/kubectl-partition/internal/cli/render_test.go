// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

// runRender runs the command, on a host if there is one, and returns its exit code.
func runRender(t *testing.T, host *topologytest.Host, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(input)
	c := &renderOptions{IOStreams: streams, fromNode: fromNode{sysfs: filepath.Join(t.TempDir(), "none")}}
	if host != nil {
		c.fromNode.sysfs = topologytest.Sysfs(t, *host)
	}
	command := c.command()
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(append([]string{}, args...)) // nil would mean those of the test
	return ExitCode(command.Execute(), stderr), stdout.String(), stderr.String()
}

// CPUs 0 and 8 are siblings, 1 and 9, ...; NUMA node 0 has 0-3 and 8-11.
var renderHost = topologytest.Host{Nodes: 2, CoresPerNode: 4, ThreadsPerCore: 2}

// What was chosen is explained on standard error, and printed apart from that.
func TestRenderFromNode(t *testing.T) {
	code, out, errOut := runRender(t, &renderHost, "", "--from-node", "--cpus", "3", "--host=slices,irqbalance", "--target", "cloud-init")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, want := range []string{`"cpuset": "0-1,8-9"`, "AllowedCPUs=0-1,8-9\n", "CPUWeight=469\n", "IRQBALANCE_BANNED_CPULIST=2-7,10-15\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if !strings.HasPrefix(errOut, "The host has 16 CPUs, 0-15: 8 physical cores on 2 NUMA nodes.\nThe pool is 0-1,8-9.\n") || strings.Contains(errOut, "warning") {
		t.Errorf("got %s", errOut)
	}
}

// The modes hold whatever the umask is, and nothing is overwritten by accident.
func TestRenderWritesTheTree(t *testing.T) {
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	directory := filepath.Join(t.TempDir(), "new")
	args := []string{"--cpuset", "0-1", "--cpus-of-host", "0-7", "--to", directory}
	if code, _, errOut := runRender(t, nil, "", args...); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	pinning := filepath.Join(directory, "etc/kubernetes/openshift-workload-pinning")
	for name, want := range map[string]os.FileMode{pinning: 0o600, filepath.Join(directory, "etc/crio/crio.conf.d/01-workload-partitioning"): 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %#o", name, info, err, want)
		}
	}
	first, err := os.ReadFile(pinning)
	if err != nil {
		t.Fatal(err)
	}
	args[1] = "0-3"
	code, _, errOut := runRender(t, nil, "", args...)
	if now, err := os.ReadFile(pinning); code != 2 || !strings.Contains(errOut, pinning) || err != nil || !bytes.Equal(now, first) {
		t.Errorf("a second run: exit code %d, %s; the file is now %s", code, errOut, now)
	}
	code, _, errOut = runRender(t, nil, "", append(args, "--force")...)
	if now, err := os.ReadFile(pinning); code != 0 || err != nil || bytes.Equal(now, first) {
		t.Errorf("with --force: exit code %d, %s; the file is now %s", code, errOut, now)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(pinning), ".render-*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

func TestRenderPrints(t *testing.T) {
	for name, test := range map[string]struct {
		input string
		args  []string
		want  []string
	}{
		"two MachineConfigs and two KubeletConfigs": {
			args: []string{"--cpuset", "0-1", "--role", "master", "--role", "worker", "--target", "machineconfig"},
			want: []string{"name: 02-master-workload-partitioning\n", "\n---\n", "name: 02-worker-workload-partitioning\n", "name: worker-workload-partitioning\n"},
		},
		"pools in the order of their types": {
			args: []string{"--type", "management", "--cpuset", "0-1", "--type", "infra", "--cpuset", "2-3", "--target", "butane"},
			want: []string{"workloads.infra]", `"cpuset" = "2-3"`, "workloads.management]", `"cpuset" = "0-1"`},
		},
		"a file from standard input": {
			input: "controlPlane: {name: master, workload: {partitions: [{name: management, cpuIDs: 0-1}]}}",
			args:  []string{"--file", "-", "--target", "cloud-init", "--cpu-manager-policy", "static"},
			want:  []string{"#cloud-config\n", "cpuManagerPolicy: static"},
		},
		"all parts of the host": {
			args: []string{"--cpuset", "0-1", "--cpus-of-host", "0-7", "--host", "--target", "cloud-init"},
			want: []string{"CPUAffinity=0-1", "AllowedCPUs=0-1", "IRQBALANCE_BANNED_CPULIST=2-7", "cpumask - - - - 00000003", "irqaffinity=0-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runRender(t, nil, test.input, test.args...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errOut)
			}
			rest := out
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("%q is missing, or not in its place, in\n%s", want, out)
				}
				rest = after
			}
		})
	}
}

func TestRenderSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		host  *topologytest.Host
		input string
		args  []string
		want  string
	}{
		"nothing":                                {nil, "", nil, "nothing says which pools there are"},
		"a type without a set":                   {nil, "", []string{"--type", "management"}, `each --type needs one --cpuset: there are types ["management"]`},
		"two sets and one type":                  {nil, "", []string{"--type", "a", "--cpuset", "0", "--cpuset", "1"}, `cpusets ["0" "1"]`},
		"a set that the kubelet refuses":         {nil, "", []string{"--cpuset", "0-1,96", "--cpus-of-host", "0-55", "--to", "x"}, `workload type "management": cpuset "0-1,96": the host has no CPU 96; it has 0-55`},
		"a set that this host lacks":             {&renderHost, "", []string{"--cpuset", "16", "--from-node", "--to", "x"}, "the host has no CPU 16; it has 0-15"},
		"a set that only --cpus-of-host has":     {&renderHost, "", []string{"--cpuset", "16", "--cpus-of-host", "0-55", "--from-node", "--to", "x"}, "the host has no CPU 16; it has 0-15"},
		"pools that overlap":                     {nil, "", []string{"--type", "a", "--cpuset", "0-1", "--type", "b", "--cpuset", "1-2", "--to", "x"}, `CPU 1 is in the pool of "a" too`},
		"a part of the host without equals sign": {nil, "", []string{"--cpuset", "0", "--host", "affinity"}, "needs an equals sign, as in --host=affinity"},
		"an unknown part of the host":            {nil, "", []string{"--cpuset", "0", "--host=tapes"}, `host[0]: Unsupported value: "tapes"`},
		"an unknown target":                      {nil, "", []string{"--cpuset", "0", "--target", "helm"}, `target "helm": want one of butane`},
		"a tree without a directory":             {nil, "", []string{"--cpuset", "0"}, "give a directory for them with --to"},
		"two files of cloud-init":                {nil, "", []string{"--cpuset", "0", "--role", "master", "--role", "worker", "--target", "cloud-init"}, "makes 2 files; give a directory for them with --to"},
		"a file and a set":                       {nil, "", []string{"--file", "-", "--cpuset", "0"}, "[cpuset file] were all set"},
		"a file that does not exist":             {nil, "", []string{"--file", "/does/not/exist"}, "/does/not/exist"},
		"a bad file":                             {nil, "kind: Pod", []string{"--file", "-"}, "standard input: document 1: "},
		"a bad pool among several":               {nil, "controlPlane: {name: master, workload: {partitions: [{name: a, cpuIDs: 0-1}]}}\ncompute: [{name: worker, workload: {partitions: [{name: a, cpuIDs: 1-0}]}}]", []string{"--file", "-", "--to", "x"}, `roles ["worker"]: workload type "a": cpuset "1-0"`},
		"a number of CPUs without a host":        {nil, "", []string{"--cpus", "4"}, "--cpus needs --from-node"},
		"more types than one to choose for":      {&renderHost, "", []string{"--from-node", "--type", "a", "--type", "b"}, "--from-node chooses one pool"},
		"more CPUs than a NUMA node has":         {&renderHost, "", []string{"--from-node", "--cpus", "9"}, "no NUMA node has 9 CPUs"},
		"a host that cannot be read":             {nil, "", []string{"--from-node"}, "this host's topology: "},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runRender(t, test.host, test.input, test.args...)
			if code != 2 || out != "" || !strings.Contains(errOut, test.want) {
				t.Errorf("exit code %d, printed %q and %q; want 2, nothing and %s", code, out, errOut, test.want)
			}
		})
	}
}

// A warning names the CPU, and does not change the exit code.
func TestRenderWarns(t *testing.T) {
	code, _, errOut := runRender(t, &renderHost, "", "--from-node", "--cpuset", "1-2,9", "--to", t.TempDir())
	for _, want := range []string{"warning: CPU 0 is in no pool", `warning: CPU 2 is in the pool of "management", and its sibling CPU 10 is in no pool`} {
		if code != 0 || !strings.Contains(errOut, want) {
			t.Errorf("exit code %d, %s; want 0 and %s", code, errOut, want)
		}
	}
}
