// SPDX-License-Identifier: Apache-2.0

package main

import "cmp"

// part is what make does for one of its targets. Its name is in results, in PART and in a version's table.
type part struct {
	name string
	args []string
	// anyway means that it runs whatever has passed before.
	anyway bool
	// unless is why it cannot run on this host, if that is not empty.
	unless func(*run) string
	// alone means that the parts that run in parallel must have ended: QEMU has work for all CPUs, and would
	// leave them next to nothing.
	alone bool
	// waits means that it mostly waits, as parts with a node do: at the lowest priority it would wait in vain.
	waits bool
}

// left is what make test leaves to make test-all.
type left struct{ name, target, because string }

// binaries is the part before all others. It is about this checkout, whatever has passed in another.
var binaries = part{name: "binaries", args: []string{"build"}, anyway: true}

func noNode(r *run) string { return r.noNode }

// checks are the parts that need no node, and run in parallel. The order is that in which a mistake shows soonest.
func (r *run) checks() []part {
	short := r.short()
	parts := []part{
		{name: "unit tests", args: append([]string{"unit"}, short...)},
		{name: "lint", args: append([]string{"lint"}, short...)},
		{name: "round trip of the series", args: []string{"round-trip"}},
		{name: "the series applied to every release", args: []string{"lint-series"}},
	}
	if r.noVM == "" && r.noNode == "" {
		parts = append(parts, part{name: "the system of virtual machines", args: []string{"vm-base"}, anyway: true}) // of this host
	}
	// It needs a node's binaries, and no node.
	parts = append(parts, part{name: "companions against a control plane", args: append([]string{"operators-test"}, short...), unless: noNode, waits: true})
	if r.target == "test" {
		return parts
	}
	for _, each := range r.others() {
		parts = append(parts, part{name: "the series verified on " + each, args: []string{"verify", "VERIFY=" + each}})
	}
	return append(parts,
		part{name: "kubectl partition on macOS and Windows", args: []string{"plugin-elsewhere"}},
		part{name: "rebase to other releases", args: []string{"rebase-test"}},
		part{name: "signatures of images by cosign", args: []string{"images-cosign-test"}},
		part{name: "the same bytes elsewhere", args: []string{"reproducible"}},
		part{name: "what workload classes save", args: []string{"bench-classes"}},
		// There may be a newer one since it passed.
		part{name: "the series on a pre-release", args: []string{"preview"}, anyway: true},
	)
}

// nodes are the parts that need a node.
func (r *run) nodes() []part {
	noVM := func(r *run) string { return cmp.Or(r.noNode, r.noVM) }
	conformance := func(name string, specs ...string) part {
		return part{name: name, args: append([]string{"conformance-compare"}, specs...), unless: func(r *run) string { return cmp.Or(r.noNode, noConformance()) }}
	}
	vm := func(name string, args ...string) part { return part{name: name, args: args, unless: noVM, alone: true} }
	if r.target == "test" {
		return []part{
			{name: "companions on a real node", args: []string{"operators-e2e", "SHORT=-short"}, unless: noNode},
			// Without OLDER, no binaries of older releases are built.
			{name: "end-to-end tests on a real node", args: []string{"e2e", "OLDER=", "SHORT=-short"}, unless: noNode},
			{name: "virtual machine: core", args: []string{"e2e-vm-core"}, alone: true, unless: func(r *run) string { return cmp.Or(r.noNode, noTime(r), r.noVM) }},
		}
	}
	return []part{
		{name: "the NUMA-aware scheduler", args: []string{"scheduler-test"}, unless: noNode},
		{name: "end-to-end tests on a real node", args: []string{"e2e"}, unless: noNode},
		// One run of the core shows two things: that it passes there, and that it passes with the race detector.
		{name: "end-to-end core on " + r.oldest + ", race detector", args: []string{"e2e-race", "RELEASE=" + r.oldest}, unless: noNode},
		{name: "end-to-end core in FIPS mode", args: []string{"e2e-fips"}, unless: noNode},
		{name: "kubectl partition on a large cluster", args: []string{"e2e-plugin"}, unless: noNode},
		{name: "upstream's local cluster", args: []string{"local-up"}, unless: noNode},
		// Together, these are all specs. Each ends within three quarters of an hour, and several hosts can share them.
		conformance("conformance of nodes", `FOCUS=\[sig-node\].*\[Conformance\]`),
		conformance("conformance of the rest, in parallel", `SKIP=\[sig-node\]|\[Serial\]`),
		conformance("conformance of the rest, one by one", `FOCUS=\[Conformance\].*\[Serial\]|\[Serial\].*\[Conformance\]`, `SKIP=\[sig-node\]`),
		{name: "workload classes while calls of the API fail", args: []string{"operators-classes"}, unless: noNode},
		{name: "companions on a real node", args: []string{"operators-e2e"}, unless: noNode},
		{name: "the console of cpupolicy in a browser", args: []string{"operators-browser"}, unless: func(r *run) string { return cmp.Or(r.noNode, noBrowser()) }},
		{name: "the companions' Helm chart", args: []string{"operators-chart-test"}, unless: noNode},
		// By the first letters of its tests, so that none is left out. Without OLDER, the unpatched kubelet does not run
		// there: it takes minutes, only to be compared with ours.
		vm("virtual machine: the suite, A-N", "e2e-vm", "E2E_RUN=^TestSuite$$", "E2E_SUITE=^Test[A-N]", "OLDER="),
		vm("virtual machine: the suite, O-Z", "e2e-vm", "E2E_RUN=^TestSuite$$", "E2E_SUITE=^Test[O-Z]", "OLDER="),
		vm("virtual machine: a node's life, isolated CPUs", "e2e-vm", "E2E_RUN=^Test(NodeSurvivesRebootsAndFailures|IsolatedCPUsChangeNoPool)$$"),
		vm("virtual machine: two nodes, host daemons", "e2e-vm", "E2E_RUN=^Test(TypeIsActiveOnceBothNodesHaveIt|HostDaemonsOnThePool)$$"),
		// All of them take half an hour. These are what the companion is for, kills and power cuts.
		vm("virtual machine: companions", "operators-e2e-vm", "OPERATOR=cpupolicy", "E2E_RUN=/(gets_CPUs_of_its_own|killed_at_each_step|power_fails)"),
		vm("virtual machine: boots of a pool", "e2e-vm", "OPERATOR=tuning"),
		vm("virtual machine: NUMA nodes", "operators-e2e-vm", "OPERATOR=numaresources"),
		// All of the specs take an hour and a half. These are one or two of each kind.
		vm("virtual machine: upstream's specs of kubelets", "node-compare",
			"FOCUS=online non-exclusively|exclusively a CPU to multiple|running with SMT Alignment should admit|bigger than free memory|via the replace endpoint", "SKIP="),
	}
}

// leaves are what make test leaves to make test-all.
func (r *run) leaves() []left {
	if r.target != "test" {
		return nil
	}
	var older []left
	if r.oldest != r.release {
		older = []left{
			{"end-to-end core on " + r.oldest + ", race detector", "e2e-race RELEASE=" + r.oldest, "its binaries take long to build"},
			{"TestKubeletsOfOlderReleasesKeepPools", "e2e", "their binaries take long to build"},
		}
	}
	return append(older,
		left{"end-to-end core in FIPS mode", "e2e-fips", "its binaries take long to build"},
		left{"the long end-to-end tests", "e2e", "they, and the unpatched binaries that they need, take a quarter of an hour"},
		left{"workload classes with the real controllers of Machines", "operators-test", "OpenShift's and Cluster API's take long to compile"},
		left{"signatures of images by cosign", "images-cosign-test", "cosign's own code takes long to compile"},
		left{"krew's check of the plugin's manifest", "unit", "krew takes long to compile"},
		left{"the companions' Helm chart", "operators-chart-test", "Helm's own code takes long to compile"},
		left{"what workload classes save", "bench-classes", "it imports the scheduler, and calculates for minutes"},
		left{"the roll-back of a companion on a real node", "operators-e2e", "it waits for a minute and a half"},
		left{"the companions with the race detector", "unit", "what they import takes long to compile"},
		left{"the NUMA-aware scheduler", "scheduler-test", "kube-scheduler and the kubelet's managers take long to compile"},
		left{"unit tests and lint of the alerts", "unit lint", "Prometheus' own code takes long to compile"},
		left{"the specs of any cluster, and their lint", "e2e", "upstream's test framework takes long to compile"},
		left{"the series verified on every release", "verify", "the releases take long to compile"},
		left{"kubectl partition on macOS and Windows", "plugin-elsewhere", "all that it imports is compiled four times"},
		left{"rebase to other releases", "rebase-test", "it needs still more releases"},
		left{"the same bytes elsewhere", "reproducible", "it compiles with an empty cache"},
		left{"conformance", "conformance-compare", "its specs take more than an hour"},
		left{"the series on a pre-release", "preview", "it takes long to compile"},
		left{"the rest in virtual machines", "e2e-vm", "it takes hours without KVM"},
	)
}

// short has make leave out the tests that take long.
func (r *run) short() []string {
	if r.target == "test" {
		return []string{"SHORT=-short"}
	}
	return nil
}
