// SPDX-License-Identifier: Apache-2.0

// Package hosted tests the companions of hosted clusters as make up-hosted starts them: on a real node of this host, with a
// management cluster beside it. It imports none of their packages. The kernel that they tune is this host's.
package hosted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	config host.Config
	// controller is the program partition-controller; images is where scripts of make find those of the companions.
	images, controller string
	// cluster is the node's, and management the one beside it. Both are described before the tests, and started by them.
	cluster, management *host.Cluster
	// repository is the directory of the checkout, whose scripts make runs.
	repository string
)

// asCluster is the argument that makes this test binary the command cluster, as far as the scripts need it. The real
// one leaves a cluster of tests alone.
const asCluster = "as-cluster"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asCluster {
		if err := playCluster(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var fit bool
	if images, controller, fit = rig.ParseFlags(&config); !fit {
		return
	}
	directory, err := filepath.Abs("../../..")
	if err != nil {
		panic(err) // go test has just set the working directory
	}
	repository = directory
	cluster = host.New(config)
	management = host.New(config.Beside(1))
	os.Exit(rig.RunTests(cluster, down, m.Run))
}

// down has TuneD give back what it changed on this host, and ends both clusters and the companions.
func down() error {
	if !cluster.Exists() {
		return nil
	}
	shim, remove, err := writeShim()
	if err != nil {
		return errors.Join(err, cluster.Down(context.Background()))
	}
	defer remove()
	output, err := script("undo-tuning.sh", shim, filepath.Join(config.Bin, "kubectl"))
	if err != nil {
		err = fmt.Errorf("undo-tuning.sh: %w: %s", err, output)
	}
	return errors.Join(err, cluster.Down(context.Background()))
}

// script runs one of make's.
func script(name string, arguments ...string) (string, error) {
	command := exec.Command(filepath.Join(repository, "scripts", name), arguments...)
	command.Dir = repository
	output, err := command.CombinedOutput()
	return string(output), err
}

// writeShim writes the program that scripts take for the command cluster.
func writeShim() (path string, remove func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	directory, err := os.MkdirTemp("", "companions-e2e-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(directory, "cluster")
	return path, func() { _ = os.RemoveAll(directory) }, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' %s \"$@\"\n", self, asCluster), 0o700)
}

// playCluster does what cluster/cmd does: environment [--management], and run NAME -- PROGRAM [ARGUMENT...].
func playCluster(arguments []string) error {
	at := host.New(host.Config{})
	switch {
	case arguments[0] == "environment":
		if slices.Contains(arguments, "--management") {
			at = host.New(host.Config{}.Beside(1))
		}
		fmt.Println("KUBECONFIG=" + at.Config.Paths.Kubeconfig())
		return nil
	case arguments[0] == "run" && len(arguments) > 3 && arguments[2] == "--":
		_, err := at.Run(arguments[1], nil, arguments[3:]...)
		return err
	}
	return fmt.Errorf("this is no command of the tests: %q", arguments)
}
