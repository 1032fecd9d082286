// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"testing"

	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

func TestGroupsAreCoresAndSockets(t *testing.T) {
	host, err := topology.Read(topologytest.Sysfs(t, topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 2, Offline: "5"}))
	if err != nil {
		t.Fatal(err)
	}
	cores, sockets := host.Groups()
	if got, want := fmt.Sprint(cores, sockets), "[0,4 1 2,6 3,7] [0-1,4 2-3,6-7]"; got != want {
		t.Errorf("the cores and sockets are %s, want %s", got, want)
	}
}
