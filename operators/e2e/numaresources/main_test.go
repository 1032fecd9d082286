// SPDX-License-Identifier: Apache-2.0

// Package numaresources tests the companion of that name on a real node of this host, as users install and see it: it imports none
// of its packages. The node is that of package host, with a pool, the static CPU and memory managers, and a topology manager.
package numaresources

import (
	"context"
	"errors"
	"os"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	config host.Config
	// images is a directory of images build, and controller the program partition-controller.
	images, controller string
	// cluster is described before the tests, and started by them.
	cluster *host.Cluster
	// afterwards undoes what the tests did to the host.
	afterwards []func() error
)

// pool are the CPUs of the workload type management.
const pool = "0"

func TestMain(m *testing.M) {
	var fit bool
	if images, controller, fit = rig.ParseFlags(&config); !fit {
		return
	}
	config.Pinning = `{"management": {"cpuset": "` + pool + `"}}`
	// What is reserved of memory is what the kubelet evicts at.
	config.KubeletConfiguration = "topologyManagerPolicy: " + policyAtFirst + "\ntopologyManagerScope: pod\n" +
		"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 300Mi}}]\n" +
		"syncFrequency: 5s\n" // or a pod sees its ConfigMap a minute later
	cluster = host.New(config)
	os.Exit(rig.RunTests(cluster, func() error {
		err := cluster.Down(context.Background())
		for _, undo := range afterwards {
			err = errors.Join(err, undo())
		}
		return err
	}, m.Run))
}
