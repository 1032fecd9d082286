// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// second is a control plane next to a cluster with the defaults.
var second = Config{Bin: "/opt/bin", Tools: "/opt/tools"}.Beside(1)

var (
	aPath    = regexp.MustCompile(`/(?:var|run|etc)/[-\w./]+`)
	aPort    = regexp.MustCompile(`(?:port=|\d:)(\d{4,5})\b`)
	anIP     = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	aBridge  = regexp.MustCompile(`\bwp\d(?:-\d+)?\b`)
	aService = regexp.MustCompile(`[-\w]+\.service$`)
)

// uses returns the paths, ports, addresses and names that a cluster has on its host, each with where
// it was found.
func uses(c *Cluster) map[string]string {
	texts := c.runtimeFiles()
	texts["kubelet.yaml"] = c.kubeletConfiguration()
	texts["server"] = c.server(c.Config.Ports.APIServer)
	texts["paths"] = strings.Join(append(c.Config.Paths.Authority(), c.Config.Paths.Kubeconfig(), c.Config.Paths.Manifests(), c.KubeletDir(), c.AuditLog(), c.RuntimeSocket(), c.ProxySocket()), " ")
	for _, path := range slices.Collect(maps.Keys(texts)) {
		texts["name of "+path] = path
	}
	for _, component := range c.components() {
		texts[component.Name()] = strings.Join(component.Args(), " ") + " " + component.Log()
		switch component := component.(type) {
		case *process:
			texts["process "+component.Name()] = component.file()
		case *unit:
			texts["unit "+component.Name()] = component.file()
		}
	}
	for i, port := range c.Config.Ports.fields() {
		texts[fmt.Sprint("port ", i)] = fmt.Sprintf("port=%d", *port)
	}
	found := map[string]string{}
	for where, text := range texts {
		for _, kind := range []*regexp.Regexp{aPath, anIP, aBridge, aService} {
			for _, use := range kind.FindAllString(text, -1) {
				found[use] = where
			}
		}
		for _, match := range aPort.FindAllStringSubmatch(text, -1) {
			found[match[1]] = where
		}
	}
	return found
}

func TestClustersWithOtherPathsAndPortsShareNothing(t *testing.T) {
	for name, supervised := range map[string]func(Config) Config{
		"processes":        func(c Config) Config { return c },
		"units of systemd": Config.OnDedicatedHost,
	} {
		t.Run(name, func(t *testing.T) {
			first := uses(New(supervised(Config{Bin: "/opt/bin", Tools: "/opt/tools"})))
			other := uses(New(supervised(second)))
			for use, where := range first {
				if whereElse, both := other[use]; both {
					t.Errorf("both clusters have %s, in %q and %q", use, where, whereElse)
				}
			}
			// The test sees what it is about.
			for use, in := range map[string]map[string]string{
				"/run/workload-partitioning/containerd.sock": first, "23790": first, "6443": first, "10257": first, "10.247.0.1": first, "wp0": first,
				"/var/lib/workload-partitioning/beside-1/etcd": other, "/run/workload-partitioning/beside-1/containerd.sock": other,
				"23890": other, "6543": other, "10357": other, "10.249.1.1": other, "wp0-1": other,
			} {
				if _, ok := in[use]; !ok {
					t.Errorf("nothing is found that has %s, in %v", use, slices.Sorted(maps.Keys(in)))
				}
			}
			for use := range other {
				if strings.HasPrefix(use, "/var/lib/") && !strings.HasPrefix(use, second.Paths.Data) || strings.HasPrefix(use, "/run/") && !strings.HasPrefix(use, second.Paths.Run) {
					t.Errorf("the second cluster has %s, which is not below its paths", use)
				}
			}
		})
	}
}

func TestPortsOfClustersDiffer(t *testing.T) {
	owners := map[int]string{0: "no one", 10248: "the kubelet's health", 10249: "kube-proxy's metrics", 10250: "the kubelet", 10256: "kube-proxy's health"}
	configs := map[string]Config{"the cluster": New(Config{}).Config}
	for number := 1; number <= 50; number++ {
		configs[fmt.Sprint("control plane ", number)] = Config{}.Beside(number)
	}
	for name, config := range configs {
		for _, port := range config.Ports.fields() {
			if owner, taken := owners[*port]; taken {
				t.Errorf("port %d is that of %s, and of %s", *port, owner, name)
			}
			owners[*port] = name
		}
	}
}

func TestDefaults(t *testing.T) {
	node := Node{Name: "node-2", Address: "10.248.0.2", PodNet: "10.247.2.0/24"}
	for name, test := range map[string]struct {
		config    Config
		want      Node
		ownBridge bool
	}{
		"no node is given":      {Config{}, Node{NodeName, "10.247.0.1", "10.247.0.0/24"}, true},
		"one on another bridge": {second, Node{NodeName, "10.249.1.1", "10.249.1.0/24"}, true},
		"one on a host's link":  {Config{Node: node}, node, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(test.config)
			if c.Config.Node != test.want || c.ownBridge() != test.ownBridge {
				t.Errorf("the node is %+v with its own bridge: %v, want %+v and %v", c.Config.Node, c.ownBridge(), test.want, test.ownBridge)
			}
		})
	}
}

// A cluster without a node must leave to another cluster's node what is the node's.
func TestWhatIsRememberedForDown(t *testing.T) {
	onHost := second
	onHost.Node.Address = "127.0.0.1"
	for name, test := range map[string]struct {
		config      Config
		bridge      string
		withoutNode bool
	}{
		"a node":                                    {Config{}, "wp0", false},
		"a node on a host's link":                   {Config{Node: Node{Address: "10.248.0.1"}}, "wp0", false},
		"a control plane with a bridge":             {second, "wp0-1", true},
		"a control plane on an address of the host": {onHost, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Paths = Paths{Data: t.TempDir()}
			c := New(test.config)
			if err := c.rememberHost(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(c.Config.Paths.Data, "host.json"))
			if err != nil {
				t.Fatal(err)
			}
			var r record
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			// Down may be called by a command that knows the paths alone.
			if got := New(Config{Paths: c.Config.Paths}).bridge(r); got != test.bridge {
				t.Errorf("Down removes the bridge %q, want %q", got, test.bridge)
			}
			if r.WithoutNode != test.withoutNode || test.withoutNode && len(r.Absent)+len(r.Sysctls) > 0 {
				t.Errorf("Down goes by %+v, want that it is without a node: %v", r, test.withoutNode)
			}
		})
	}
	if got := New(Config{}).bridge(record{}); got != "wp0" {
		t.Errorf("by an older record, Down removes the bridge %q, want wp0", got)
	}
}

func TestADescriptionIsTheSameWhereverTheProgramsAre(t *testing.T) {
	describe := func(dir string, pinning string) string {
		return New(Config{Bin: dir + "/bin", Tools: dir + "/tools", Tree: dir + "/tree", CPUManagerPolicy: pinning}).Description()
	}
	if here, there := describe("/here", "static"), describe("/there", "static"); here != there || !strings.Contains(here, "conntrack:") || !strings.Contains(here, "--etcd-servers=") {
		t.Errorf("here it is\n%s\nand there\n%s", here, there)
	}
	if describe("/here", "static") == describe("/here", "none") {
		t.Error("another policy makes no difference")
	}
}
