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
