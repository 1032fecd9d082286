// SPDX-License-Identifier: Apache-2.0

package nodefiles_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

// pools makes partitions of pairs of a type and a list.
func pools(pairs ...string) (all []nodefiles.Partition) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, nodefiles.Partition{Type: pairs[i], CPUSet: &pairs[i+1]})
	}
	return all
}

func TestValidateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		configuration nodefiles.NodeConfiguration
		want          string
	}{
		"no pool":                           {nodefiles.NodeConfiguration{}, "partitions: Required value"},
		"a type without a pool":             {nodefiles.NodeConfiguration{Partitions: []nodefiles.Partition{{Type: "management"}}}, `partitions[0].cpuset: Required value: the pool of "management"`},
		"a type twice":                      {nodefiles.NodeConfiguration{Partitions: pools("a", "0", "a", "1")}, `partitions[1].type: Duplicate value: "a"`},
		"an invalid type":                   {nodefiles.NodeConfiguration{Partitions: pools("Management", "0")}, `"Management"`},
		"a type that upstream reads":        {nodefiles.NodeConfiguration{Partitions: pools("hugepages-2mi", "0")}, `"hugepages-2mi"`},
		"a malformed list":                  {nodefiles.NodeConfiguration{Partitions: pools("management", "0 - 1")}, `workload type "management": cpuset "0 - 1": "0 - 1" is not a CPU or a range of CPUs`},
		"control characters":                {nodefiles.NodeConfiguration{Partitions: pools("management", "0\x1b[2J")}, `cpuset "0\x1b[2J"`},
		"a range the wrong way round":       {nodefiles.NodeConfiguration{Partitions: pools("management", "1-0")}, `workload type "management": cpuset "1-0"`},
		"a CPU beyond all":                  {nodefiles.NodeConfiguration{Partitions: pools("management", "0-8192")}, "CPU 8192 is beyond 8191"},
		"a CPU that the host lacks":         {nodefiles.NodeConfiguration{CPUs: "0-55", Partitions: pools("management", "0-1,56")}, `workload type "management": cpuset "0-1,56": the host has no CPU 56; it has 0-55`},
		"pools that overlap":                {nodefiles.NodeConfiguration{Partitions: pools("infra", "1-2", "management", "0-1")}, `workload type "management": cpuset "0-1": CPU 1 is in the pool of "infra" too`},
		"a malformed list of the host":      {nodefiles.NodeConfiguration{CPUs: "all", Partitions: pools("management", "0")}, `cpus: Invalid value: "all"`},
		"an unknown policy":                 {nodefiles.NodeConfiguration{CPUManagerPolicy: "dynamic", Partitions: pools("management", "0")}, `cpuManagerPolicy: Unsupported value: "dynamic": supported values: "none", "static"`},
		"an unknown part of the host":       {nodefiles.NodeConfiguration{Host: []nodefiles.HostPart{"affinity", "tapes"}, Partitions: pools("management", "0")}, `host[1]: Unsupported value: "tapes"`},
		"a part of the host twice":          {nodefiles.NodeConfiguration{Host: []nodefiles.HostPart{"affinity", "affinity"}, Partitions: pools("management", "0")}, `host[1]: Duplicate value: "affinity"`},
		"a role that would leave its place": {nodefiles.NodeConfiguration{Roles: []string{"../etc"}, Partitions: pools("management", "0")}, `roles[0]: Invalid value: "../etc"`},
		"a role twice":                      {nodefiles.NodeConfiguration{Roles: []string{"worker", "worker"}, Partitions: pools("management", "0")}, `roles[1]: Duplicate value: "worker"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := nodefiles.Validate(test.configuration, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// What the kubelet accepts and a careful operator would not do, each naming the CPU.
func TestValidateWarns(t *testing.T) {
	const unchecked, noCores = "The host's CPUs are not known", "The host's physical cores are not known"
	// CPUs 0 and 4 are siblings, 1 and 5, ...; the first two cores are NUMA node 0.
	host := topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 2}
	for name, test := range map[string]struct {
		host          *topologytest.Host
		configuration nodefiles.NodeConfiguration
		want          []string
	}{
		"nothing about whole cores of a known host":     {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1,4-5")}, nil},
		"what could not be checked":                     {nil, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1")}, []string{"the host has CPUs 0-1", noCores}},
		"cores that are not known":                      {nil, nodefiles.NodeConfiguration{CPUs: "0-7", Partitions: pools("management", "0-1")}, []string{noCores}},
		"one thread of a core":                          {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1,4")}, []string{`CPU 1 is in the pool of "management", and its sibling CPU 5 is in no pool`}},
		"a core that two pools share, once":             {&host, nodefiles.NodeConfiguration{Partitions: pools("infra", "0-1", "management", "4-5")}, []string{`CPU 0 is in the pool of "infra", and its sibling CPU 4 is in that of "management"`, `CPU 1 is in the pool of "infra", and its sibling CPU 5 is in that of "management"`}},
		"a pool without CPU 0":                          {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "1,5")}, []string{"CPU 0 is in no pool"}},
		"nothing about a CPU 0 that is offline":         {&topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 1, Offline: "0"}, nodefiles.NodeConfiguration{Partitions: pools("management", "1-2")}, nil},
		"all CPUs":                                      {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-7")}, []string{"every CPU of the host, 0-7"}},
		"all CPUs and nothing to keep the host on":      {&host, nodefiles.NodeConfiguration{Partitions: pools("a", "0-3", "b", "4-7"), Host: nodefiles.HostParts}, []string{"every CPU of the host, 0-7", "sibling CPU 4", "sibling CPU 5", "sibling CPU 6", "sibling CPU 7"}},
		"all CPUs and the static policy":                {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-7"), CPUManagerPolicy: "static"}, []string{"every CPU of the host, 0-7", "the kubelet does not start without a reservation"}},
		"CPUs that this host does not have, in no pool": {&host, nodefiles.NodeConfiguration{CPUs: "0-55", Partitions: pools("management", "0-1,4-5")}, []string{"The configuration says that the host has CPUs 0-55, and this host has 0-7."}},
		"one CPU":                           {&topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 1}, nodefiles.NodeConfiguration{Partitions: pools("management", "0")}, []string{`The pool of "management" has one CPU, 0`}},
		"CPUs that a runtime does not know": {nil, nodefiles.NodeConfiguration{CPUs: "0-2047", Partitions: pools("management", "0-1,1024-1025")}, []string{noCores, `The pool of "management" has CPU 1024-1025`}},
		"nothing about a type that is on and not confined":  {nil, nodefiles.NodeConfiguration{Partitions: pools("management", "")}, nil},
		"parts of the host without a pool":                  {nil, nodefiles.NodeConfiguration{Partitions: pools("management", ""), Host: []nodefiles.HostPart{nodefiles.Affinity, nodefiles.IRQBalance}}, []string{"this is left out: affinity, irqbalance"}},
		"an affinity that outlives a pool":                  {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1,4-5"), Host: []nodefiles.HostPart{nodefiles.Affinity}}, []string{"containers inherit CPUAffinity from runc before 1.2.7"}},
		"CPUs of the system that slices would take from it": {&host, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1,4-5"), SystemCPUs: "2,6", Host: []nodefiles.HostPart{nodefiles.Slices}}, []string{"on CPU 2,6 a slice of its own at the top, with AllowedCPUs=2,6."}},
		"parts of the host that need all CPUs":              {nil, nodefiles.NodeConfiguration{Partitions: pools("management", "0-1"), Host: nodefiles.HostParts}, []string{unchecked, noCores, "inherit CPUAffinity", "slices leaves out", "irqbalance leaves out", "kernel-arguments leaves out isolcpus and rcu_nocbs"}},
	} {
		t.Run(name, func(t *testing.T) {
			var known *topology.Topology
			if test.host != nil {
				var err error
				if known, err = topology.Read(topologytest.Sysfs(t, *test.host)); err != nil {
					t.Fatal(err)
				}
			}
			_, warnings, err := nodefiles.Validate(test.configuration, known)
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) != len(test.want) {
				t.Fatalf("got %d warnings, want %d:\n%s", len(warnings), len(test.want), strings.Join(warnings, "\n"))
			}
			for i, want := range test.want {
				if !strings.Contains(warnings[i], want) {
					t.Errorf("got %q, want %s", warnings[i], want)
				}
			}
		})
	}
}

// Pools that confine nothing reserve nothing, and keep the host nowhere.
func TestPoolsThatConfineNothingReserveNothing(t *testing.T) {
	for name, configuration := range map[string]nodefiles.NodeConfiguration{
		"every CPU": {CPUs: "0-3", Partitions: pools("management", "0-3"), Host: nodefiles.HostParts},
		"no CPU":    {CPUs: "0-3", Partitions: pools("management", ""), Host: nodefiles.HostParts},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, _, err := nodefiles.Validate(configuration, nil)
			if err != nil {
				t.Fatal(err)
			}
			files, err := nodes[0].HostFiles()
			if err != nil || len(files) > 0 || nodes[0].KernelArguments() != nil || nodes[0].KubeletConfiguration() != nil {
				t.Errorf("host files %v, arguments %v, kubelet %v, %v; want none", files, nodes[0].KernelArguments(), nodes[0].KubeletConfiguration(), err)
			}
		})
	}
}

// The static policy gives no CPU of a core away of which the host has the rest to itself.
func TestAPoolMayShareACoreWithSystemCPUs(t *testing.T) {
	// CPUs 0 and 4 are threads of one core; the other cores have one thread.
	known, err := topology.Read(topologytest.Sysfs(t, topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 2, Offline: "5-7"}))
	if err != nil {
		t.Fatal(err)
	}
	for system, want := range map[string]bool{"4": false, "3": true} {
		_, warnings, err := nodefiles.Validate(nodefiles.NodeConfiguration{CPUManagerPolicy: "static", SystemCPUs: system, Partitions: pools("management", "0")}, known)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(warnings, func(warning string) bool { return strings.Contains(warning, "without the rest of its physical core") }); got != want {
			t.Errorf("with the host's own work on CPU %s the warning comes: %v, want %v; the warnings are\n%s", system, got, want, strings.Join(warnings, "\n"))
		}
	}
}

// No pod has the host's own CPUs, so the weight of all pods together is what it is with these in the pool.
func TestTheHostsOwnCPUsAddNoWeight(t *testing.T) {
	weight := func(pool, system string) string {
		nodes, _, err := nodefiles.Validate(nodefiles.NodeConfiguration{CPUs: "0-7", Partitions: pools("management", pool), SystemCPUs: system, Host: []nodefiles.HostPart{nodefiles.Slices}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files, err := nodes[0].HostFiles()
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile("CPUWeight=.*|$").FindString(string(files[0].Content))
	}
	if got, want := weight("0-1", "2-3"), weight("0-3", ""); got != want || want == "" {
		t.Errorf("with the host's own CPUs system.slice has %q, want %q", got, want)
	}
	if got := weight("0-1", "2-7"); got != "" {
		t.Errorf("where no CPU is left to pods system.slice has %q, want no weight", got)
	}
}

// What the kubelet accepts, and no operator wants: hosts are those of real firmware, and one has two kinds of
// cores (kubernetes/kubernetes issue 140495).
func TestPoolsThatDoNotSuitTheirHostAreNamed(t *testing.T) {
	const givenAway, isolated = "without the rest of its physical core", "which the kernel argument isolcpus names"
	alike := topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 2}
	// CPUs 0 and 4 are threads of one core, and 5 to 7 are offline, so that the other cores have one thread.
	unlike := alike
	unlike.Offline = "5-7"
	set := alike
	set.Isolated = "2-3,6-7"
	for name, test := range map[string]struct {
		host         topologytest.Host
		pool, policy string
		want         string
	}{
		"a pool splits a core, and all are alike":         {alike, "0", "static", ""},
		"a pool splits the larger kind of cores":          {unlike, "0", "static", givenAway},
		"nothing says which policy the kubelet has":       {unlike, "0", "", givenAway},
		"with the policy none no container is given CPUs": {unlike, "0", "none", ""},
		"a pool has the whole core":                       {unlike, "0,4", "static", ""},
		"a pool is on isolated CPUs":                      {set, "2-3,6-7", "none", isolated},
		"half of a pool is on isolated CPUs":              {set, "1-2,5-6", "none", isolated},
		"a pool of one isolated CPU has none to balance":  {set, "2", "none", ""},
		"others are isolated":                             {set, "0-1,4-5", "none", ""},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := topology.Read(topologytest.Sysfs(t, test.host))
			if err != nil {
				t.Fatal(err)
			}
			_, warnings, err := nodefiles.Validate(nodefiles.NodeConfiguration{CPUManagerPolicy: test.policy, Partitions: []nodefiles.Partition{{Type: "management", CPUSet: &test.pool}}}, known)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{givenAway, isolated} {
				said := slices.ContainsFunc(warnings, func(warning string) bool { return strings.Contains(warning, text) && strings.HasSuffix(warning, ".") })
				if want := test.want == text; said != want {
					t.Errorf("%q is said: %v, want %v; the warnings are\n%s", text, said, want, strings.Join(warnings, "\n"))
				}
			}
		})
	}
}

// The design's section 7 has the form of CRI-O's drop-in, to the byte.
func TestCRIODropInIsAsInTheDesign(t *testing.T) {
	design, err := os.ReadFile("../../docs/dev/design.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(design)
	if table == nil {
		t.Fatal("the design has no TOML")
	}
	nodes, _, err := nodefiles.Validate(nodefiles.NodeConfiguration{Partitions: pools("management", "0-1,52-53")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := nodes[0].CRIODropIn()
	if err != nil {
		t.Fatal(err)
	}
	if want := "[crio.runtime]\ninfra_ctr_cpuset = \"0-1,52-53\"\n\n" + string(table[1]); string(file.Content) != want {
		t.Errorf("got\n%s\nwant\n%s", file.Content, want)
	}
}

// A list is rendered in canonical form, whatever was written.
func TestPoolsAreCanonical(t *testing.T) {
	nodes, _, err := nodefiles.Validate(nodefiles.NodeConfiguration{Partitions: pools("management", "53,0,52,1,1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []func() (nodefiles.File, error){nodes[0].PinningFile, nodes[0].CRIODropIn, nodes[0].KubeletDropIn} {
		file, err := write()
		if err != nil || !bytes.Contains(file.Content, []byte("0-1,52-53")) {
			t.Errorf("%s: %v\n%s", file.Path, err, file.Content)
		}
	}
}
