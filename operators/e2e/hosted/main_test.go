// SPDX-License-Identifier: Apache-2.0

// Package hosted tests the companions of hosted clusters as make up-hosted starts them: on a real node of this host, with a
// management cluster beside it. It imports none of their packages. The kernel that they tune is this host's.
package hosted

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	config host.Config
	// controller is the program partition-controller.
	controller string
	// cluster is the node's, and management the one beside it. Both are described before the tests, and started by them.
	cluster, management *host.Cluster
	scripts             rig.Scripts
)

func TestMain(m *testing.M) {
	rig.PlayCluster()
	var fit bool
	if _, controller, fit = rig.ParseFlags(&config); !fit {
		return
	}
	repository, err := filepath.Abs("../../..")
	if err != nil {
		panic(err) // go test has just set the working directory
	}
	cluster = host.New(config)
	management = host.New(config.Beside(1))
	scripts = rig.Scripts{Repository: repository, Hosted: cluster.Config.Paths.Kubeconfig(), Management: management.Config.Paths.Kubeconfig(), Programs: cluster.Config.Paths}
	os.Exit(rig.RunTests(cluster, down, m.Run))
}

// down has TuneD give back what it changed on this host, and ends both clusters and the companions.
func down() error {
	if !cluster.Exists() {
		return nil
	}
	_, err := scripts.Run("undo-tuning.sh", nil, filepath.Join(config.Bin, "kubectl"))
	return errors.Join(err, cluster.Down(context.Background()))
}
