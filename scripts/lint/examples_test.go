package lint

import (
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
// directory. Each plan ends with the next code of the file codes.
var fleetCommands = map[string]string{
	"ssh":               `node=${1#root@}; shift; command=$*; exec bash -c "${command//\/etc\//$FLEET/$node/etc/}"`,
	"systemctl":         `echo "systemctl $*" >>"$FLEET/log"`,
	"kubectl":           `[[ $1 == get ]] || echo "kubectl $1" >>"$FLEET/log"`,
	"kubectl-partition": `[[ $1 == audit ]] || { code=$(head -n 1 "$FLEET/codes"); sed -i 1d "$FLEET/codes"; exit "$code"; }`,
}

// On a machine of test/e2e the script is run as docs/user/fleet.md prints it. Here it meets what
// that machine does not have: drop-ins, and plans that are not safe.
func TestPoolsOfAFleetChange(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "docs/user/examples/change-pools.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		codes   string
		dropIns []string
		// log is what is called, and said the end of the error. Empty means none.
		log, said string
	}{
		"the change is safe":                         {codes: "0", log: "systemctl restart kubelet, kubectl wait"},
		"the node has CRI-O's drop-in":               {codes: "0", dropIns: []string{crioDropIn}, log: "systemctl restart crio kubelet, kubectl wait"},
		"the node has the kubelet's drop-in":         {codes: "0", dropIns: []string{kubeletDropIn}, log: "systemctl restart kubelet, kubectl wait"},
		"it has both":                                {codes: "0", dropIns: []string{crioDropIn, kubeletDropIn}, log: "systemctl restart crio kubelet, kubectl wait"},
		"the change is safe without pods":            {codes: "1\n0", log: "kubectl drain, systemctl restart kubelet, kubectl wait, kubectl uncordon"},
		"the change is not safe even then":           {codes: "1\n1", log: "kubectl drain", said: "n1: the change is not safe even without its pods; it stays drained"},
		"it is not known then":                       {codes: "1\n2", log: "kubectl drain", said: "n1: it is not known whether the change is safe; it stays drained"},
		"it is not known whether the change is safe": {codes: "2", said: "n1: it is not known whether the change is safe"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := t.TempDir()
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
			for _, path := range []string{pinningFile, crioDropIn, kubeletDropIn} {
				write("wider/"+path, "wider", 0o644)
			}
			has := append([]string{pinningFile}, test.dropIns...)
			for _, path := range has {
				write("n1/"+path, "narrow", 0o644)
			}
			command := exec.CommandContext(t.Context(), "bash", script, filepath.Join(fleet, "wider", pinningFile), "n1")
			command.Env = append(os.Environ(), "FLEET="+fleet, "PATH="+filepath.Join(fleet, "bin")+":"+os.Getenv("PATH"))
			output, err := command.CombinedOutput()
			if failed := err != nil; failed != (test.said != "") || !strings.HasSuffix(strings.TrimSpace(string(output)), test.said) {
				t.Errorf("it ends with %v and says\n%s\nwant %q at the end", err, output, test.said)
			}
			want := "wider"
			if test.said != "" {
				want = "narrow"
			}
			var found []string
			err = filepath.WalkDir(filepath.Join(fleet, "n1"), func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				found = append(found, path)
				content, err := os.ReadFile(path)
				if err == nil && string(content) != want {
					t.Errorf("%s is %q, want %q", path, content, want)
				}
				return err
			})
			if err != nil || len(found) != len(has) {
				t.Errorf("the node has %v (%v), want %v", found, err, has)
			}
			log, err := os.ReadFile(filepath.Join(fleet, "log"))
			if got := strings.ReplaceAll(strings.TrimSpace(string(log)), "\n", ", "); err != nil || got != test.log {
				t.Errorf("what is called is %q (%v), want %q", got, err, test.log)
			}
		})
	}
}
