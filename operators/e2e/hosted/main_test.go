// SPDX-License-Identifier: Apache-2.0

// Package hosted tests the companions of hosted clusters as make up-hosted starts them: on a real node of this host, with a
// management cluster beside it. It imports none of their packages. The kernel that they tune is this host's.
package hosted

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
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
	flag.StringVar(&config.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&images, "images", "", "directory of the companions' images, as images build writes it")
	flag.StringVar(&controller, "controller", "", "the program partition-controller")
	flag.Parse()
	if config.Bin == "" {
		fmt.Println("SKIPPED: the end-to-end tests need -bin, -tools, -tree, -images and -controller; make operators-e2e builds all of it and sets them")
		return
	}
	if why := host.Unfit(); why != nil {
		fmt.Println("SKIPPED: the end-to-end tests do not run, because", why)
		return
	}
	directory, err := filepath.Abs("../../..")
	if err != nil {
		panic(err) // go test has just set the working directory
	}
	repository = directory
	began := time.Now()
	config.Progress = func(format string, args ...any) {
		fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	config.Temporary = true
	cluster = host.New(config)
	management = host.New(config.Beside(1))
	os.Exit(tidy.Run(host.Dir, down, func() int {
		status := m.Run()
		if status != 0 && cluster.Exists() {
			keepLogs()
		}
		return status
	}))
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

func keepLogs() {
	logs, err := os.MkdirTemp("", "companions-e2e-")
	if err == nil {
		err = cluster.SaveLogs(logs)
	}
	if err != nil {
		fmt.Println("the logs cannot be kept:", err)
		return
	}
	fmt.Println("the logs of all components are kept in", logs)
}
