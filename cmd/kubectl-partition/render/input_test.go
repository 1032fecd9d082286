// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/kubectl-partition/render"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

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
