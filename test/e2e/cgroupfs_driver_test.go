// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
)

// Cgroups of pods are confined and freed with the cgroupfs driver on cgroup v2, too. Other
// tests in a VM have the systemd driver. The name of this file puts it before those of its part
// that share a node, so that node starts once.
func TestPodCgroupsAreConfinedWithTheCgroupfsDriver(t *testing.T) {
	in(t, vm)
	if config.CgroupDriver != host.SystemdDriver {
		t.Skip("the other tests have the cgroupfs driver on this host")
	}
	with := config
	with.Pinning, with.CgroupDriver = pinning, host.Cgroupfs
	c := share(t, "node with the cgroupfs driver", with)
	t.Run("they have their pool", func(t *testing.T) { podCgroups(t, c) })
	t.Run("the upgrade page frees them", func(t *testing.T) { freedByUpgradePage(t, c) })
}
