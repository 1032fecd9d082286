// SPDX-License-Identifier: Apache-2.0

// Package numaresources tests the companion of that name on a real node of this host, as users install and see it: it imports none
// of its packages. The node is that of package host, with a pool, the static CPU and memory managers, and a topology manager.
package numaresources

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
)

var (
	config host.Config
	// images is a directory of images build, and controller the program partition-controller.
	images, controller string
	// cluster is described before the tests, and started by them.
	cluster *host.Cluster
)

// pool are the CPUs of the workload type management.
const pool = "0"

func TestMain(m *testing.M) {
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
	began := time.Now()
	config.Progress = func(format string, args ...any) {
		fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	config.Pinning = `{"management": {"cpuset": "` + pool + `"}}`
	// What is reserved of memory is what the kubelet evicts at.
	config.KubeletConfiguration = "topologyManagerPolicy: " + policyAtFirst + "\ntopologyManagerScope: pod\n" +
		"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 300Mi}}]\n"
	config.Temporary = true
	cluster = host.New(config)
	os.Exit(tidy.Run(host.Dir, func() error { return cluster.Down(context.Background()) }, func() int {
		status := m.Run()
		if status != 0 && cluster.Exists() {
			keepLogs()
		}
		return status
	}))
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
