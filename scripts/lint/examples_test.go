// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	pinningFile   = "etc/kubernetes/openshift-workload-pinning"
	crioDropIn    = "etc/crio/crio.conf.d/01-workload-partitioning"
	kubeletDropIn = "etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf"
)

// fleetCommands stand for the commands that docs/user/examples/change-pools.sh calls. A node is a
// directory; one that is called down cannot be reached, one that is called cordoned is, and the pods of
// one that is called unlisted cannot be listed. Each plan ends with the next code of the file codes.
var fleetCommands = map[string]string{
	"ssh":               `node=${1#root@}; shift; command=$*; [[ $node != down ]] || exit 255; exec bash -c "${command//\/etc\//$FLEET/$node/etc/}"`,
	"systemctl":         `echo "systemctl $*" >>"$FLEET/log"`,
	"kubectl":           `[[ $1 == get ]] || echo "kubectl $1" >>"$FLEET/log"; [[ $* != "get node cordoned"* ]] || echo true; [[ $1 != get || $* != *unlisted* ]]`,
	"kubectl-partition": `[[ $1 == audit ]] || { code=$(head -n 1 "$FLEET/codes"); sed -i 1d "$FLEET/codes"; exit "$code"; }`,
}

// On a machine of test/e2e the script is run as docs/user/fleet.md prints it. Here it meets what
// that machine does not have: drop-ins, and plans that are not safe.
func TestPoolsOfAFleetChange(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "docs/user/examples/change-pools.sh"))
	if err != nil {
		t.Fatal(err)
	}
	// What render has written for the new pools, and what a node may have of it for the old ones.
	const policy = "cpuManagerPolicy: static\n"
	rendered := map[string]string{pinningFile: "wider", crioDropIn: "wider", kubeletDropIn: policy + "reservedSystemCPUs: 0-3\n"}
	crio, kubelet := map[string]string{crioDropIn: "narrow"}, map[string]string{kubeletDropIn: policy + "reservedSystemCPUs: 0-1\n"}
	both := maps.Clone(crio)
	maps.Copy(both, kubelet)
	for name, test := range map[string]struct {
		codes string
		// node and file are n1 and that of render unless they are given.
		node, file string
		dropIns    map[string]string
		// kept are the drop-ins that do not change.
		kept bool
		// log is what is called, and said the end of the error. Empty means none.
		log, said string
	}{
		"the change is safe":                    {codes: "0", log: "systemctl restart kubelet, kubectl wait"},
		"the node has CRI-O's drop-in":          {codes: "0", dropIns: crio, log: "systemctl restart crio kubelet, kubectl wait"},
		"the node has the kubelet's drop-in":    {codes: "0", dropIns: kubelet, log: "systemctl restart kubelet, kubectl wait"},
		"it has both":                           {codes: "0", dropIns: both, log: "systemctl restart crio kubelet, kubectl wait"},
		"the file is not of render":             {codes: "0", file: "other", dropIns: both, kept: true, log: "systemctl restart kubelet, kubectl wait"},
		"the kubelet's reserves no CPU":         {codes: "0", dropIns: map[string]string{kubeletDropIn: policy}, kept: true, log: "systemctl restart kubelet, kubectl wait"},
		"the kubelet's has another policy":      {dropIns: map[string]string{kubeletDropIn: "reservedSystemCPUs: 0-1\n"}, said: "or change the kubelet first"},
		"the change is safe without pods":       {codes: "1\n0", log: "kubectl drain, systemctl restart kubelet, kubectl wait, kubectl uncordon"},
		"it was cordoned before":                {node: "cordoned", codes: "1\n0", log: "kubectl drain, systemctl restart kubelet, kubectl wait"},
		"the change is not safe even then":      {codes: "1\n1", log: "kubectl drain", said: "n1: the change is not safe even without its pods; it stays drained"},
		"it is not known then":                  {codes: "1\n2", log: "kubectl drain", said: "n1: it is not known whether the change is safe; it stays drained"},
		"it is not known if the change is safe": {codes: "2", dropIns: both, said: "n1: it is not known whether the change is safe"},
		"its pods cannot be listed":             {node: "unlisted", codes: "0", said: "unlisted: it is not known whether the change is safe"},
		"the node cannot be reached":            {node: "down", said: "down: cannot read /" + crioDropIn},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, node, file := t.TempDir(), cmp.Or(test.node, "n1"), cmp.Or(test.file, pinningFile)
			write := func(path, content string, mode os.FileMode) {
				path = filepath.Join(fleet, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), mode); err != nil {
					t.Fatal(err)
				}
			}
			for name, command := range fleetCommands {
				write("bin/"+name, "#!/usr/bin/env bash\n"+command+"\n", 0o755)
			}
			write("codes", test.codes+"\n", 0o644)
			write("log", "", 0o644)
			write("wider/other", "wider", 0o644)
			for path, content := range rendered {
				write("wider/"+path, content, 0o644)
			}
			want := map[string]string{pinningFile: "narrow"}
			maps.Copy(want, test.dropIns)
			for path, content := range want {
				write(node+"/"+path, content, 0o644)
				if test.said == "" && (path == pinningFile || !test.kept) {
					want[path] = rendered[path]
				}
			}
			command := exec.CommandContext(t.Context(), "bash", script, file, node)
			command.Dir = filepath.Join(fleet, "wider")
			command.Env = append(os.Environ(), "FLEET="+fleet, "PATH="+filepath.Join(fleet, "bin")+":"+os.Getenv("PATH"))
			output, err := command.CombinedOutput()
			if failed := err != nil; failed != (test.said != "") || !strings.HasSuffix(strings.TrimSpace(string(output)), test.said) {
				t.Errorf("it ends with %v and says\n%s\nwant %q at the end", err, output, test.said)
			}
			found, on := map[string]string{}, os.DirFS(filepath.Join(fleet, node))
			err = fs.WalkDir(on, ".", func(path string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() {
					var content []byte
					content, err = fs.ReadFile(on, path)
					found[path] = string(content)
				}
				return err
			})
			if err != nil || !maps.Equal(found, want) {
				t.Errorf("the node has %q (%v), want %q", found, err, want)
			}
			log, err := os.ReadFile(filepath.Join(fleet, "log"))
			if got := strings.ReplaceAll(strings.TrimSpace(string(log)), "\n", ", "); err != nil || got != test.log {
				t.Errorf("what is called is %q (%v), want %q", got, err, test.log)
			}
		})
	}
}
