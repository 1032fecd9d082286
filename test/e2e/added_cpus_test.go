// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A CPU that comes after the kubelet has started belongs to no container until it starts again, and an
// Event says so.
func TestAddedCPUsNeedARestart(t *testing.T) {
	in(t, vm)
	needsCPUs(t, 4)
	if !config.Dedicated {
		t.Skip("the CPUs of this host are not ours to switch off")
	}
	underEachPolicy(t, addedCPUsNeedARestart)
}

func addedCPUsNeedARestart(t *testing.T, c *host.Cluster) {
	all := fixture.CPUs(t, allCPUs(t))
	last := slices.Max(all.List())
	set := func(state string) {
		if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", last), []byte(state), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		set("1")
		restart(t, c, pinning)
	})
	set("0")
	restart(t, c, pinning)
	namespace := fixture.Namespace(t, c.Client, "")
	ordinary := start(t, c, namespace, fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))[0]
	others := all.Difference(cpuset.New(0))
	expectPlaced(t, ordinary, others.Difference(cpuset.New(last)))
	set("1")
	fixture.AwaitEvent(t, c.Client, eventLimit, "WorkloadPartitioningCPUOnline", fmt.Sprintf("CPU %d came online after the kubelet had started, so no container may use it yet: restart the kubelet", last))
	time.Sleep(reconciliations(2)) // the period in which it must not get the CPU
	expectPlaced(t, ordinary, others.Difference(cpuset.New(last)))
	restart(t, c, pinning)
	expectPlaced(t, ordinary, others)
}
