// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"workload.openshift.io/kubernetes/cluster/vm"
)

var (
	suiteName   = flag.String("suite-name", "vm", "suite of package e2e that runs in a VM")
	suiteRun    = flag.String("suite-run", "", "regular expression of the names of its tests; empty means all")
	kernelArgs  = flag.String("kernel-args", "", "additional arguments of that VM's kernel; may be empty")
	upstreamBin = flag.String("upstream-bin", "", "directory of the unpatched kubelet of the same release; may be empty")
)

// The tests of package e2e pass in a VM, on its node. If the VM stops, they run again, in a
// new one.
func TestSuite(t *testing.T) {
	err := suite(t)
	if errors.Is(err, vm.ErrStopped) && !t.Failed() {
		t.Logf("%v; the tests run again, in a new VM", err)
		err = suite(t)
	}
	if err != nil {
		t.Error(err)
	}
}

// suite runs them in a new VM.
func suite(t *testing.T) error {
	m := boot(t, vm.Config{Append: *kernelArgs})
	siblings, err := m.Run(t.Context(), "cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
	if err != nil {
		return err
	}
	if siblings != "0-1" {
		t.Errorf("the siblings of CPU 0 are %q, want 0-1", siblings)
	}
	var output bytes.Buffer
	command := "/payload/e2e.test -test.v -test.run='" + *suiteRun + "' -suite=" + *suiteName + " -systemd -bin=/payload/bin -tools=/payload/tools -images=/payload/images -docs=/payload/docs -meter=/payload/meter"
	if files.More["kubectl-partition"] != "" {
		command += " -plugin=/payload/kubectl-partition"
	}
	if *upstreamBin != "" {
		command += " -upstream-bin=/payload/upstream-bin"
	}
	err = m.Stream(t.Context(), command, nil, io.MultiWriter(os.Stdout, &output))
	switch {
	case errors.Is(err, vm.ErrStopped):
		keep(t, m)
		if bytes.Contains(output.Bytes(), []byte("--- FAIL")) {
			t.Error("a test failed before the VM stopped")
		}
	case err == nil && !bytes.Contains(output.Bytes(), []byte("--- PASS: ")):
		err = fmt.Errorf("no test of the suite %s whose name matches %q has run there", *suiteName, *suiteRun)
	}
	return err
}
