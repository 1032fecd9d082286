// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// The kernel argument isolcpus changes neither the pool nor exclusive CPUs under the static policy.
// Under the policy none, containers do not run on CPUs that it isolates: neither without a pinning
// file nor with one.
func TestIsolatedCPUsChangeNoPool(t *testing.T) {
	n := bootNode(t, `{"management": {"cpuset": "0-1"}}`, vm.Config{Append: "isolcpus=6-7 nohz_full=6-7"}, host.Config{})
	for _, file := range []string{"isolated", "nohz_full"} {
		if list := n.run(t, "cat /sys/devices/system/cpu/"+file); list != "6-7" {
			t.Errorf("the kernel's list %s is %q, want 6-7", file, list)
		}
	}
	expectPlaced := func(t *testing.T, more ...*v1.Pod) {
		namespace := fixture.Namespace(t, n.client, "management")
		n.create(t, namespace, append(more,
			fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")),
			fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Idle, "cpu=100m memory=16Mi", "")))...)
		n.awaitRunning(t, 2*time.Minute)
		n.expectPlaced(t)
	}
	t.Run("policy static", func(t *testing.T) {
		expectPlaced(t, fixture.Exclusive("exclusive", 4))
	})
	t.Run("policy none", func(t *testing.T) {
		n.run(t, "cd "+host.Dir+" && grep -q '^cpuManagerPolicy: static$' kubelet.yaml && systemctl stop kubelet && rm kubelet/cpu_manager_state"+
			" && sed -i 's/^cpuManagerPolicy: static$/cpuManagerPolicy: none/' kubelet.yaml && systemctl start kubelet")
		n.awaitReady(t, n.now(t))
		n.cpus = n.cpus.Difference(cpuset.New(6, 7))
		expectPlaced(t)
	})
}
