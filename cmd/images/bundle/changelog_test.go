// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAreasAreThoseOfTheTable(t *testing.T) {
	page := "# Contributing\n\n| target | run it |\n|---|---|\n| `make` | never |\n\n| area | for |\n|---|---|\n| `kubelet` | `pkg/kubelet` and patches |\n| `make` | the Makefile |\n\n| what | where |\n|---|---|\n| `x` | y |\n"
	if got, err := areas(page); err != nil || !slices.Equal(got, []string{"kubelet", "make"}) {
		t.Errorf("got %q (%v), want kubelet and make", got, err)
	}
	if _, err := areas("# Contributing\n"); err == nil || !strings.Contains(err.Error(), "CONTRIBUTING.md lacks the table of areas") {
		t.Errorf("without a table: got error %v", err)
	}
}

func TestSubjectsAreGroupedByAreaAndStayAsTheyAre(t *testing.T) {
	s := source{commit: "0123456", date: time.Date(2026, 11, 23, 0, 30, 0, 0, time.FixedZone("", 3600)), previous: "v0.1.0", releases: []string{"v1.37.0", "v1.36.4"}}
	binaries := map[string]string{"v1.37.0": "v1.37.0+wp.1234567", "v1.36.4": "v1.36.4+wp.89abcde"}
	const head = "# v0.2.0\n\n2026-11-22, commit 0123456.\n\n| release | binaries |\n|---|---|\n| v1.37.0 | v1.37.0+wp.1234567 |\n| v1.36.4 | v1.36.4+wp.89abcde |\n\n"
	for _, test := range []struct {
		name, previous, want string
		commits              []commit
	}{
		{"nothing", "v0.1.0", "Nothing has changed since v0.1.0.\n", nil},
		{"a first version", "", "Changes since the first commit:\n\n## make\n\n- go (3)\n", []commit{{"3", "make: go"}}},
		{"areas in the order of the table, each with its commits in their order", "v0.1.0",
			"Changes since v0.1.0:\n\n## kubelet\n\n- keep `X`: always (2)\n- stop (4)\n\n## make\n\n- go (3)\n- make, docs: go (6)\n\n## other\n\n- Go on (1)\n- kubelets: go (5)\n",
			[]commit{{"1", "Go on"}, {"2", "kubelet: keep `X`: always"}, {"3", "make: go"}, {"4", "kubelet: stop"}, {"5", "kubelets: go"}, {"6", "make, docs: go"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.previous = test.previous
			if got := s.changelog("v0.2.0", binaries, []string{"kubelet", "make"}, test.commits); got != head+test.want {
				t.Errorf("got\n%s\nwant\n%s", got, head+test.want)
			}
		})
	}
}
