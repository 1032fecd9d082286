/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
