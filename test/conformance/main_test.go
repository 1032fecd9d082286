// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/test/conformance/specs"
)

func TestTheListOfKnownSpecsCanBeRead(t *testing.T) {
	known, err := specs.ParseKnown(knownText)
	if err != nil {
		t.Fatal(err)
	}
	const name = "[sig-architecture] Conformance Tests should have at least two untainted nodes [Conformance]"
	if reason := known[name]; reason != "Both count the nodes, want two, and find one." {
		t.Errorf("the reason of %q is %q", name, reason)
	}
}

func TestTheDesignHasTheReasonOfEachDifference(t *testing.T) {
	page, err := os.ReadFile("../../docs/dev/design.md")
	if err != nil {
		t.Fatal(err)
	}
	design := strings.Join(strings.Fields(string(page)), " ")
	differences, err := specs.ParseDifferences(nodeDifferencesText)
	if err != nil {
		t.Fatal(err)
	}
	for name, difference := range differences {
		if !strings.Contains(design, difference.Reason) {
			t.Errorf("%s is known to differ since %q, which docs/dev/design.md does not say", name, difference.Reason)
		}
	}
	if _, err := specs.ParseKnown(nodeKnownText); err != nil {
		t.Error(err)
	}
}

func TestSpecsOfTheKubeletAreLeftOutByTheirNames(t *testing.T) {
	leftOut, err := specs.ParseKnown(nodeLeftOutText)
	if err != nil {
		t.Fatal(err)
	}
	const manager = "[sig-node] CPU Manager [Feature:CPUManager] "
	all := []specs.Spec{
		{Name: "[sig-node] Pods run"},
		{Name: manager + "when checking the CFS quota management should enforce for best-effort pod"},
		{Name: manager + "when running guaranteed pod tests with feature gates disabled should allocate"},
	}
	run, idle, err := nodeSpecs(all, leftOut)
	if err != nil || len(run) != 1 || run[0] != all[1] || len(idle) != len(leftOut)-1 {
		t.Errorf("%v run, and %q are idle, %v", run, idle, err)
	}
	if _, _, err := nodeSpecs(all, specs.Known{"(": "a mistake"}); err == nil || !strings.Contains(err.Error(), "node-left-out") {
		t.Errorf("got %v", err)
	}
}

func TestEachSpecOfTheKubeletRunsInOneVM(t *testing.T) {
	for _, name := range []string{
		"[sig-node] CPU Manager [Feature:CPUManager] a [Serial]", "[sig-node] Memory Manager [LinuxOnly] a",
		"[sig-node] Topology Manager [Feature:TopologyManager] a", "[sig-node] Pod InPlace Resize Container a",
	} {
		vms := 0
		for _, kind := range nodeVMs {
			if kind.has(specs.Spec{Name: name}) {
				vms++
			}
		}
		if vms != 1 {
			t.Errorf("%s runs in %d VMs", name, vms)
		}
	}
}

func TestTwoRunsDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil {
		t.Error("a second run has the directory, too")
	}
	unlock()
	unlock, err = lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
