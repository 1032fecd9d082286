// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"flag"
	"fmt"
	"os"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
)

// ParseFlags reads the flags of tests on this host's node, for a cluster that tells its progress and does not outlast them.
// It returns the directory of the companions' images and the program partition-controller. Where the tests cannot run,
// fit is false, and it has said why.
func ParseFlags(config *host.Config) (images, controller string, fit bool) {
	flag.StringVar(&config.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&images, "images", "", "directory of the companions' images, as images build writes it")
	flag.StringVar(&controller, "controller", "", "the program partition-controller")
	flag.Parse()
	if config.Bin == "" {
		fmt.Println("SKIPPED: the end-to-end tests need -bin, -tools, -tree, -images and -controller; make operators-e2e builds all of it and sets them")
		return "", "", false
	}
	if why := host.Unfit(); why != nil {
		fmt.Println("SKIPPED: the end-to-end tests do not run, because", why)
		return "", "", false
	}
	began := time.Now()
	config.Progress = func(format string, args ...any) {
		fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	config.Temporary = true
	return images, controller, true
}

// RunTests runs tests, then down, also when it is interrupted. If a test fails, it keeps the cluster's logs, and says where.
func RunTests(cluster *host.Cluster, down func() error, tests func() int) (status int) {
	return tidy.Run(host.Dir, down, func() int {
		status := tests()
		if status != 0 && cluster.Exists() {
			keepLogs(cluster)
		}
		return status
	})
}

func keepLogs(cluster *host.Cluster) {
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
