// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/kubectl-partition/render"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

// pools makes partitions of pairs of a type and a list.
func pools(pairs ...string) (all []render.Partition) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, render.Partition{Type: pairs[i], CPUSet: &pairs[i+1]})
	}
	return all
}

func TestValidateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		configuration render.NodeConfiguration
		want          string
	}{
		"no pool":                           {render.NodeConfiguration{}, "partitions: Required value"},
		"a type without a pool":             {render.NodeConfiguration{Partitions: []render.Partition{{Type: "management"}}}, `partitions[0].cpuset: Required value: the pool of "management"`},
		"a type twice":                      {render.NodeConfiguration{Partitions: pools("a", "0", "a", "1")}, `partitions[1].type: Duplicate value: "a"`},
		"an invalid type":                   {render.NodeConfiguration{Partitions: pools("Management", "0")}, `"Management"`},
		"a type that upstream reads":        {render.NodeConfiguration{Partitions: pools("hugepages-2mi", "0")}, `"hugepages-2mi"`},
		"a malformed list":                  {render.NodeConfiguration{Partitions: pools("management", "0 - 1")}, `workload type "management": cpuset "0 - 1": "0 - 1" is not a CPU or a range of CPUs`},
		"control characters":                {render.NodeConfiguration{Partitions: pools("management", "0\x1b[2J")}, `cpuset "0\x1b[2J"`},
		"a range the wrong way round":       {render.NodeConfiguration{Partitions: pools("management", "1-0")}, `workload type "management": cpuset "1-0"`},
		"a CPU beyond all":                  {render.NodeConfiguration{Partitions: pools("management", "0-8192")}, "CPU 8192 is beyond 8191"},
		"a CPU that the host lacks":         {render.NodeConfiguration{CPUs: "0-55", Partitions: pools("management", "0-1,56")}, `workload type "management": cpuset "0-1,56": the host has no CPU 56; it has 0-55`},
		"pools that overlap":                {render.NodeConfiguration{Partitions: pools("infra", "1-2", "management", "0-1")}, `workload type "management": cpuset "0-1": CPU 1 is in the pool of "infra" too`},
		"a malformed list of the host":      {render.NodeConfiguration{CPUs: "all", Partitions: pools("management", "0")}, `cpus: Invalid value: "all"`},
		"an unknown policy":                 {render.NodeConfiguration{CPUManagerPolicy: "dynamic", Partitions: pools("management", "0")}, `cpuManagerPolicy: Unsupported value: "dynamic": supported values: "none", "static"`},
		"an unknown part of the host":       {render.NodeConfiguration{Host: []render.HostPart{"affinity", "disks"}, Partitions: pools("management", "0")}, `host[1]: Unsupported value: "disks"`},
		"a part of the host twice":          {render.NodeConfiguration{Host: []render.HostPart{"affinity", "affinity"}, Partitions: pools("management", "0")}, `host[1]: Duplicate value: "affinity"`},
		"a role that would leave its place": {render.NodeConfiguration{Roles: []string{"../etc"}, Partitions: pools("management", "0")}, `roles[0]: Invalid value: "../etc"`},
		"a role twice":                      {render.NodeConfiguration{Roles: []string{"worker", "worker"}, Partitions: pools("management", "0")}, `roles[1]: Duplicate value: "worker"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := render.Validate(test.configuration, nil); err == nil || !strings.Contains(err.Error(), test.want) {
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
		configuration render.NodeConfiguration
		want          []string
	}{
		"nothing about whole cores of a known host":     {&host, render.NodeConfiguration{Partitions: pools("management", "0-1,4-5")}, nil},
		"what could not be checked":                     {nil, render.NodeConfiguration{Partitions: pools("management", "0-1")}, []string{"the host has CPUs 0-1", noCores}},
		"cores that are not known":                      {nil, render.NodeConfiguration{CPUs: "0-7", Partitions: pools("management", "0-1")}, []string{noCores}},
		"one thread of a core":                          {&host, render.NodeConfiguration{Partitions: pools("management", "0-1,4")}, []string{`CPU 1 is in the pool of "management", and its sibling CPU 5 is in no pool`}},
		"a core that two pools share, once":             {&host, render.NodeConfiguration{Partitions: pools("infra", "0-1", "management", "4-5")}, []string{`CPU 0 is in the pool of "infra", and its sibling CPU 4 is in that of "management"`, `CPU 1 is in the pool of "infra", and its sibling CPU 5 is in that of "management"`}},
		"a pool without CPU 0":                          {&host, render.NodeConfiguration{Partitions: pools("management", "1,5")}, []string{"CPU 0 is in no pool"}},
		"nothing about a CPU 0 that is offline":         {&topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 1, Offline: "0"}, render.NodeConfiguration{Partitions: pools("management", "1-2")}, nil},
		"all CPUs":                                      {&host, render.NodeConfiguration{Partitions: pools("management", "0-7")}, []string{"every CPU of the host, 0-7"}},
		"all CPUs and nothing to keep the host on":      {&host, render.NodeConfiguration{Partitions: pools("a", "0-3", "b", "4-7"), Host: render.HostParts}, []string{"every CPU of the host, 0-7", "sibling CPU 4", "sibling CPU 5", "sibling CPU 6", "sibling CPU 7"}},
		"all CPUs and the static policy":                {&host, render.NodeConfiguration{Partitions: pools("management", "0-7"), CPUManagerPolicy: "static"}, []string{"every CPU of the host, 0-7", "the kubelet does not start without a reservation"}},
		"CPUs that this host does not have, in no pool": {&host, render.NodeConfiguration{CPUs: "0-55", Partitions: pools("management", "0-1,4-5")}, []string{"The configuration says that the host has CPUs 0-55, and this host has 0-7."}},
		"one CPU":                           {&topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 1}, render.NodeConfiguration{Partitions: pools("management", "0")}, []string{`The pool of "management" has one CPU, 0`}},
		"CPUs that a runtime does not know": {nil, render.NodeConfiguration{CPUs: "0-2047", Partitions: pools("management", "0-1,1024-1025")}, []string{noCores, `The pool of "management" has CPU 1024-1025`}},
		"nothing about a type that is on and not confined": {nil, render.NodeConfiguration{Partitions: pools("management", "")}, nil},
		"parts of the host without a pool":                 {nil, render.NodeConfiguration{Partitions: pools("management", ""), Host: []render.HostPart{render.Affinity, render.IRQBalance}}, []string{"this is left out: affinity, irqbalance"}},
		"an affinity that outlives a pool":                 {&host, render.NodeConfiguration{Partitions: pools("management", "0-1,4-5"), Host: []render.HostPart{render.Affinity}}, []string{"containers inherit CPUAffinity from runc before 1.2.7"}},
		"parts of the host that need all CPUs":             {nil, render.NodeConfiguration{Partitions: pools("management", "0-1"), Host: render.HostParts}, []string{unchecked, noCores, "inherit CPUAffinity", "slices leaves out", "irqbalance leaves out", "kernel-arguments leaves out isolcpus and rcu_nocbs"}},
	} {
		t.Run(name, func(t *testing.T) {
			var known *topology.Topology
			if test.host != nil {
				var err error
				if known, err = topology.Read(topologytest.Sysfs(t, *test.host)); err != nil {
					t.Fatal(err)
				}
			}
			_, warnings, err := render.Validate(test.configuration, known)
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
	for name, configuration := range map[string]render.NodeConfiguration{
		"every CPU": {CPUs: "0-3", Partitions: pools("management", "0-3"), Host: render.HostParts},
		"no CPU":    {CPUs: "0-3", Partitions: pools("management", ""), Host: render.HostParts},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, _, err := render.Validate(configuration, nil)
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

func TestRead(t *testing.T) {
	const header = "apiVersion: cli.workload.openshift.io/v1alpha1\nkind: NodeConfiguration\n"
	for name, test := range map[string]struct {
		text string
		want string // roles and pools
	}{
		"a configuration":              {header + "partitions: [{type: management, cpuset: 0-1}]", "[] management=0-1"},
		"several documents":            {"# ours\n---\n" + header + "roles: [master]\npartitions: [{type: a, cpuset: '0'}]\n---\n" + header + "roles: [worker]\npartitions: [{type: a, cpuset: ''}]", "[master] a=0; [worker] a="},
		"JSON":                         {`{"apiVersion": "cli.workload.openshift.io/v1alpha1", "kind": "NodeConfiguration", "partitions": [{"type": "a", "cpuset": "0"}]}`, "[] a=0"},
		"the installer's two pools":    {"controlPlane:\n  name: master\n  workload: {partitions: [{name: management, cpuIDs: 0-1}]}\ncompute:\n- name: worker\n  workload: {partitions: [{name: management, cpuIDs: 0-1}]}", "[master] management=0-1; [worker] management=0-1"},
		"the installer's other fields": {"apiVersion: v1\nbaseDomain: example.com\ncontrolPlane: {name: master, replicas: 1, workload: {partitions: [{name: management, cpuIDs: '0-1,52-53'}]}}", "[master] management=0-1,52-53"},
		"a machine pool without any":   {"controlPlane: {name: master, workload: {partitions: [{name: a, cpuIDs: 0-1}]}}\ncompute: [{name: worker}, {name: infra, workload: {partitions: []}}]", "[master] a=0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := render.Read(strings.NewReader(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				text := "[" + strings.Join(c.Roles, " ") + "]"
				for _, p := range c.Partitions {
					text += " " + p.Type + "=" + *p.CPUSet
				}
				got = append(got, text)
			}
			if strings.Join(got, "; ") != test.want {
				t.Errorf("got %q, want %s", got, test.want)
			}
		})
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing": {"", "there is no NodeConfiguration, and no machine pool with workload.partitions"},
		"a file of the installer without partitions": {"controlPlane: {name: master}", "no machine pool with workload.partitions"},
		"another kind":                  {"apiVersion: v1\nkind: Pod", `document 1: apiVersion "v1" and kind "Pod": want cli.workload.openshift.io/v1alpha1 and NodeConfiguration`},
		"an unknown field":              {header + "partitions: [{type: a, cpuset: '0', cores: 2}]", `document 1: unknown field "partitions[0].cores"`},
		"a field twice":                 {header + "cpus: 0-1\ncpus: 0-3", `key "cpus" already set`},
		"a single CPU without quotes":   {header + "partitions: [{type: a, cpuset: 0}]", `write it in quotes: "0"`},
		"a second document that is bad": {header + "partitions: [{type: a, cpuset: '0'}]\n---\nkind: Other", "document 2: "},
		"the installer's unknown field": {"controlPlane: {name: master, workload: {partitions: [{name: a, cpuSet: '0'}]}}", `controlPlane.workload: unknown field "partitions[0].cpuSet"`},
		"the installer's missing set":   {"compute: [{name: worker, workload: {partitions: [{name: a}]}}]", `compute[0].workload.partitions[0].cpuIDs: the pool of "a" is missing`},
		"the installer's single CPU":    {"compute: [{name: worker, workload: {partitions: [{name: a, cpuIDs: 1}]}}]", `compute[0].workload: `},
		"no YAML":                       {"\t:", "document 1: "},
		"a very large file":             {strings.Repeat("# comment\n", 200000), "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render.Read(strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %s", err, test.want)
			}
		})
	}
}

func TestPropose(t *testing.T) {
	// CPUs 0 and 8 are siblings, 1 and 9, ...; NUMA node 0 has 0-3 and 8-11.
	host := topologytest.Host{Nodes: 2, CoresPerNode: 4, ThreadsPerCore: 2}
	isolated, small := host, topologytest.Host{Nodes: 1, CoresPerNode: 2, ThreadsPerCore: 1}
	isolated.Isolated = "1-3,9-11"
	for name, test := range map[string]struct {
		host      topologytest.Host
		cpus      int
		want      string
		wantError string
	}{
		"two cores with siblings":       {host: host, cpus: 4, want: "0-1,8-9"},
		"whole cores for an odd number": {host: host, cpus: 3, want: "0-1,8-9"},
		"a whole NUMA node":             {host: host, cpus: 8, want: "0-3,8-11"},
		"more than a NUMA node":         {host: host, cpus: 9, wantError: "no NUMA node has 9 CPUs of whole physical cores that are not isolated; 8 is the most"},
		"the other NUMA node":           {host: isolated, cpus: 4, want: "4-5,12-13"},
		"what is not set aside":         {host: isolated, cpus: 2, want: "0,8"},
		"cores of one thread":           {host: small, cpus: 1, want: "0"},
		"every CPU":                     {host: small, cpus: 2, wantError: "would be every CPU of the host, 0-1"},
		"none":                          {host: small, cpus: 0, wantError: "a pool needs at least one CPU, not 0"},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := topology.Read(topologytest.Sysfs(t, test.host))
			if err != nil {
				t.Fatal(err)
			}
			got, err := render.Propose(known, test.cpus)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want %s", err, test.wantError)
				}
				return
			}
			if err != nil || got.Pool.String() != test.want {
				t.Errorf("got %s, %v; want %s", got.Pool, err, test.want)
			}
			golden(t, strings.ReplaceAll("propose "+name, " ", "-")+".golden", []byte(strings.Join(got.Reasons, "\n")+"\n"))
		})
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
			_, warnings, err := render.Validate(render.NodeConfiguration{CPUManagerPolicy: test.policy, Partitions: []render.Partition{{Type: "management", CPUSet: &test.pool}}}, known)
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
