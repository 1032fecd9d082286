// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThePageSaysWhatBecameOfTheConformanceSuite(t *testing.T) {
	o := Options{Version: "v0.2.0", Checkout: t.TempDir(), Say: t.Logf}
	write := func(release, side, title string, cases ...string) {
		t.Helper()
		var text strings.Builder
		fmt.Fprintf(&text, "<testsuites><testsuite name=%q>", "Kubernetes conformance of "+title)
		for _, one := range cases {
			status, name, _ := strings.Cut(one, " ")
			fmt.Fprintf(&text, `<testcase name="[It] %s" classname="s" status="%s" time="1"></testcase>`, name, status)
		}
		text.WriteString("</testsuite></testsuites>")
		file := filepath.Join(o.Checkout, "_output", release, "conformance", side, "junit.xml")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods, nodes, daemons := "passed [sig-node] Pods should be updated [Conformance]", "failed [sig-architecture] should have two nodes [Conformance]", "failed [sig-apps] Daemon set should rollback [Conformance] [Serial] [sig-apps, Serial, Conformance]"
	write("v1.37.2", "partitioned", "v1.37.2+wp.1111111, partitioned", pods, nodes, daemons)
	write("v1.37.2", "unpatched", "v1.37.2+wp.1111111, unpatched", pods, nodes, strings.Replace(daemons, "failed", "passed", 1))
	write("v1.36.5", "partitioned", "v1.36.5+wp.2222222, partitioned, 1 of 462 specs", pods)
	write("v1.35.8", "partitioned", "v1.35.8+wp.0000000, partitioned", pods) // other binaries
	releases := []string{"v1.37.2", "v1.36.5", "v1.35.8"}
	versions := map[string]string{"v1.37.2": "v1.37.2+wp.1111111", "v1.36.5": "v1.36.5+wp.2222222", "v1.35.8": "v1.35.8+wp.3333333"}
	found, err := o.junit(releases, versions)
	if err != nil {
		t.Fatal(err)
	}
	got, err := conformance(o.Version, releases, versions, found)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "conformance.md", got)
}
