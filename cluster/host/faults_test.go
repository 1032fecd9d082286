// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFaultsAreCrashesAndRacesOfOurs(t *testing.T) {
	const (
		line    = "I1123 22:18:23.667415   18653 logs.go:334] \"fatal error: of a pod\"\n"
		handled = "E1123 22:18:23.667415   18653 panic.go:115] \"Observed a panic\" panic=\"oops\"\n"
	)
	for name, test := range map[string]struct {
		printed string
		want    []string
	}{
		"nothing":           {"", nil},
		"what goes on":      {line + handled, nil},
		"a fatal error":     {line + "fatal error: concurrent map writes\n\ngoroutine 1\n", []string{"fatal error: concurrent map writes\n\ngoroutine 1"}},
		"a panic":           {line + "panic: oops\n", []string{"panic: oops"}},
		"a race of others":  {"==================\nWARNING: DATA RACE\nk8s.io/kubernetes\n==================\n" + line, nil},
		"a race of ours":    {"WARNING: DATA RACE\nk8s.io\nworkload.openshift.io/partition\n==================\n" + line, []string{"WARNING: DATA RACE\nk8s.io\nworkload.openshift.io/partition"}},
		"a race, then ours": {"WARNING: DATA RACE\nk8s.io\n==================\n" + line + "panic: workload.openshift.io\n", []string{"panic: workload.openshift.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := faultsIn([]byte(test.printed)); strings.Join(got, "|") != strings.Join(test.want, "|") {
				t.Errorf("got the faults %q, want %q", got, test.want)
			}
		})
	}
}

func TestFaultsAreReturnedOnce(t *testing.T) {
	c := New(Config{Temporary: true, Paths: Paths{Data: t.TempDir()}})
	log := filepath.Join(c.Config.Paths.Data, "logs", "kubelet.log")
	if err := os.Mkdir(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct{ printed, want string }{
		{"panic: first\n", "panic: first"},
		{"panic: first\n", ""},
		{"panic: first\npanic: second\n", "panic: second"},
		{"panic: new\n", "panic: new"},
	} {
		if err := os.WriteFile(log, []byte(test.printed), 0o600); err != nil {
			t.Fatal(err)
		}
		faults, err := c.Faults()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(faults, "|"); (test.want == "") != (got == "") || !strings.HasSuffix(got, test.want) {
			t.Errorf("call %d returns %q, want one that ends with %q", i, got, test.want)
		}
	}
}
