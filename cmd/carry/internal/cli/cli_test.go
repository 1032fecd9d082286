// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestWhatIsUnderWayNeedNotBeNamed(t *testing.T) {
	one, two := []string{"v1.37.1"}, []string{"v1.36.4", "v1.37.1"}
	for name, test := range map[string]struct {
		releases, args []string
		want           string
		errors         []string
	}{
		"the only one":               {one, nil, "v1.37.1", nil},
		"the only one, named":        {one, one, "v1.37.1", nil},
		"one of two, named":          {two, one, "v1.37.1", nil},
		"none":                       {nil, nil, "", []string{"no rebase is under way", "carry rebase RELEASE"}},
		"none, named":                {nil, one, "", []string{"no rebase is under way"}},
		"two":                        {two, nil, "", []string{"more than one rebase is under way", "v1.36.4, v1.37.1"}},
		"another than the one named": {one, []string{"v1.36.4"}, "", []string{`no rebase of "v1.36.4"`, "under way are v1.37.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := underWay("rebase", test.releases, test.args)
			if got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
			if len(test.errors) > 0 {
				treetest.ExpectError(t, err, test.errors...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOutdatedSaysByItsExitCodeWhatItFound(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*treetest.Source)
		args   []string
		code   int
	}{
		"nothing newer":            {func(*treetest.Source) {}, nil, 0},
		"a newer release":          {func(s *treetest.Source) { s.Publish("v1.37.1", nil) }, []string{"-o", "json"}, 1},
		"only a pre-release":       {func(s *treetest.Source) { s.Publish("v1.38.0-alpha.1", nil) }, nil, 0},
		"a source that is broken":  {func(s *treetest.Source) { s.Break() }, nil, 2},
		"a form that is not known": {func(*treetest.Source) {}, []string{"-o", "yaml"}, 2},
		"a flag that is not known": {func(*treetest.Source) {}, []string{"--all"}, 2},
		"an argument":              {func(*treetest.Source) {}, []string{"v1.37.0"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := treetest.New(t), treetest.NewSource(t)
			s.Publish("v1.37.0", nil)
			test.change(s)
			t.Chdir(c.Project.Dir)
			cmd := outdatedCommand()
			cmd.SetArgs(test.args)
			code := 0
			if err := cmd.Execute(); err != nil {
				exit, ok := err.(ExitError)
				if !ok {
					t.Fatal(err)
				}
				code = exit.Code
			}
			if code != test.code {
				t.Errorf("the exit code is %d, want %d", code, test.code)
			}
		})
	}
}
