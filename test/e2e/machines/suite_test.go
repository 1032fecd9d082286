package machines

import (
	"errors"
	"flag"
	"os"
	"testing"

	"workload.openshift.io/kubernetes/cmd/cluster/machine"
)

var suiteRun = flag.String("suite-run", "", "which tests of package e2e run in a machine; empty means all")

// TestSuite runs the tests of package e2e in a machine: they are on its node.
func TestSuite(t *testing.T) {
	err := suite(t)
	// QEMU's emulation stops a kernel now and then, see the comment on awaitBoot.
	if errors.Is(err, machine.ErrLost) {
		t.Logf("%v; once more, in a new machine", err)
		err = suite(t)
	}
	if err != nil {
		t.Error(err)
	}
}

func suite(t *testing.T) error {
	m := boot(t, machine.Config{})
	if siblings, err := m.Run(t.Context(), "cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list"); err != nil || siblings != "0-1" {
		t.Errorf("the siblings of CPU 0 are %q (%v), want 0-1", siblings, err)
	}
	err := m.Stream(t.Context(), "/payload/e2e.test -test.v -test.run='"+*suiteRun+"' -systemd -bin=/payload/bin -tools=/payload/tools -images=/payload/images", nil, os.Stdout)
	if errors.Is(err, machine.ErrLost) {
		keep(t, m)
	}
	return err
}
