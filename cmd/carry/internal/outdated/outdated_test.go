// SPDX-License-Identifier: Apache-2.0

package outdated_test

import (
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/outdated"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

// The releases of treetest.Source are of August 2026: october is their last month of support.
var (
	october = time.Date(2027, 10, 31, 23, 0, 0, 0, time.UTC)
	later   = time.Date(2027, 11, 1, 0, 0, 0, 0, time.UTC)
)

func TestTheTableSaysWhatCanBeHad(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*treetest.Source)
		now    time.Time
		// want is the table without its head.
		want     string
		outdated int
	}{
		"nothing is newer": {
			change: func(*treetest.Source) {},
			now:    october,
			want: `v1.37.0  v1.37.0  until 2027-10  -
v1.36.3  v1.36.3  unknown        -
`,
		},
		"the support has ended": {
			change: func(*treetest.Source) {},
			now:    later,
			want: `v1.37.0  v1.37.0  ended 2027-10  -
v1.36.3  v1.36.3  unknown        -
`,
		},
		"newer releases, of which not all can be downloaded": {
			change: func(s *treetest.Source) {
				s.Publish("v1.36.9", nil)
				s.Publish("v1.36.10", nil)
				s.Publish("v1.36.11", nil)
				s.Refuse("k8s.io/kubernetes", "v1.36.11")
				s.Forget("k8s.io/mount-utils", "v0.36.10")
				s.Refuse("k8s.io/api", "v0.36.10")
			},
			now: october,
			want: `v1.37.0  v1.37.0  until 2027-10  -
v1.36.3  v1.36.9  unknown        carry rebase v1.36.9

v1.36.11 is listed but cannot be downloaded: k8s.io/kubernetes v1.36.11: 403 Forbidden
v1.36.10 is listed but cannot be downloaded: k8s.io/api v0.36.10: 403 Forbidden; k8s.io/mount-utils v0.36.10: no checksum is available (404 Not Found)
`,
			outdated: 1,
		},
		"a module is refused that no binary needs": {
			change: func(s *treetest.Source) {
				s.Publish("v1.36.4", nil)
				s.Refuse("k8s.io/sample-controller", "v0.36.4")
			},
			now: october,
			want: `v1.37.0  v1.37.0  until 2027-10  -
v1.36.3  v1.36.4  unknown        carry rebase v1.36.4
`,
			outdated: 1,
		},
		"a newer minor version": {
			change: func(s *treetest.Source) {
				s.Publish("v1.38.0-alpha.1", nil)
				s.Publish("v1.38.0", nil)
			},
			now: october,
			want: `-        v1.38.0  until 2027-10  carry rebase v1.38.0
v1.37.0  v1.37.0  until 2027-10  -
v1.36.3  v1.36.3  unknown        -
`,
			outdated: 1,
		},
		"a pre-release of a newer minor version": {
			change: func(s *treetest.Source) {
				s.Publish("v1.38.0-alpha.1", nil)
				s.Publish("v1.38.0-alpha.2", nil)
				s.Refuse("k8s.io/api", "v0.38.0-alpha.1")
				s.Refuse("k8s.io/kubernetes", "v1.38.0-alpha.2")
			},
			now: october,
			want: `-        v1.38.0-alpha.1  unknown        carry preview v1.38.0-alpha.1
v1.37.0  v1.37.0          until 2027-10  -
v1.36.3  v1.36.3          unknown        -

v1.38.0-alpha.2 is listed but cannot be downloaded: k8s.io/kubernetes v1.38.0-alpha.2: 403 Forbidden
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := treetest.New(t), treetest.NewSource(t)
			c.AddRelease("v1.36.3", nil)
			s.Publish("v1.37.0", nil)
			test.change(s)
			rows, err := outdated.Ask(t.Context(), c.Project, test.now)
			c.Must(err)
			_, table, _ := strings.Cut(outdated.Table(rows), "\n")
			if table != test.want {
				t.Errorf("the table is\n%s\nwant\n%s", table, test.want)
			}
			newer := 0
			for _, row := range rows {
				if row.Outdated() {
					newer++
				}
			}
			if newer != test.outdated {
				t.Errorf("%d rows are outdated, want %d", newer, test.outdated)
			}
		})
	}
	t.Run("a source that does not answer is an error", func(t *testing.T) {
		c, s := treetest.New(t), treetest.NewSource(t)
		s.Break()
		_, err := outdated.Ask(t.Context(), c.Project, october)
		treetest.ExpectError(t, err, "the versions of k8s.io/kubernetes cannot be listed")
	})
}
