// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// need is what a test needs besides the release's binaries. make e2e builds what those tests need that
// E2E_RUN selects: the target need-NAME of the Makefile.
type need string

// maybe is a need of some steps of a test, which are left out without it.
type maybe need

const (
	// unpatchedBinaries are a kubelet and a kube-apiserver of the same release without the series.
	unpatchedBinaries need = "unpatched-binaries"
	// olderBinaries are those of older releases, with the series.
	olderBinaries need = "older-binaries"
	// previousBinaries are those of this project's previous version.
	previousBinaries need = "previous-binaries"
	// kwok plays kubelets.
	kwok need = "kwok"
	// images are those of the control plane.
	images need = "control-plane-images"
	// kubectlPlugin is kubectl-partition.
	kubectlPlugin need = "plugin"
	// compiledSpecs are those of test/workloadpartitioning.
	compiledSpecs need = "specs"
)

// missing returns why a need is not there; it is empty if it is.
func (n need) missing() string {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	switch {
	case n == unpatchedBinaries && upstreamBin == "":
		return "no unpatched binaries were given"
	case n == olderBinaries && olderBin == "":
		return "no binaries of older releases were given; make test-all and make e2e build them"
	case n == previousBinaries && previousBin == "":
		return "no binaries of this project's previous version were given; make e2e builds them if a tag v* or PREVIOUS names it"
	case n == kwok && !exists(filepath.Join(config.Tools, "kwok")):
		return "there is no kwok; make kwok builds it"
	case n == images && !exists(controlPlaneImages):
		return "there are no images of the control plane; make control-plane-images makes them"
	case n == kubectlPlugin && plugin == "":
		return "no binary of the plugin was given"
	case n == compiledSpecs && specs == "":
		return "no binary of the specs was given"
	}
	return ""
}

var (
	// listNeeds means that no test runs: each that is selected only says what it needs.
	listNeeds bool
	// declared are the needs of each test, by the name of the test.
	declared = map[string]map[need]bool{}
)

func declareNeeds(t *testing.T, marks []mark) {
	t.Helper()
	test := topLevel(t)
	if declared[test] == nil {
		declared[test] = map[need]bool{}
	}
	for _, m := range marks {
		switch m := m.(type) {
		case need:
			declared[test][m] = true
		case maybe:
			declared[test][need(m)] = true
		}
	}
	if listNeeds {
		t.Skip("needs are listed")
	}
	for _, m := range marks {
		if n, is := m.(need); is {
			needs(t, n)
		}
	}
}

// needs skips a test, a step of a test or a benchmark for which something is missing. The test has to name it at
// its top, since make e2e would not build it otherwise.
func needs(t testing.TB, n need) {
	t.Helper()
	if of, is := declared[topLevel(t)]; is && !of[n] {
		t.Errorf("it needs %s, and does not say so in its first statement", n)
	}
	if why := n.missing(); why != "" {
		t.Skip(why)
	}
}

func topLevel(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// printNeeds prints what the tests need that were selected.
func printNeeds() {
	all := map[need]bool{}
	for _, of := range declared {
		maps.Copy(all, of)
	}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		fmt.Printf("need-%s\n", n)
	}
}
