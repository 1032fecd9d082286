package machines

import (
	"flag"
	"os"
	"testing"

	"workload.openshift.io/kubernetes/cmd/cluster/machine"
)

var suiteRun = flag.String("suite-run", "", "which tests of package e2e run in a machine; empty means all that have a meaning there")

// TestSuite runs the tests of package e2e in a machine: they are on its node.
func TestSuite(t *testing.T) {
	m := boot(t, machine.Config{})
	run := *suiteRun
	if err := m.Stream(t.Context(), "/payload/e2e.test -test.v -test.run='"+run+"' -systemd -bin=/payload/bin -tools=/payload/tools -images=/payload/images", nil, os.Stdout); err != nil {
		t.Error(err)
	}
}
