// Package e2e checks a real node on this host: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, containerd and kubelet, built from the
// tree. The tests follow the source document's workflow, steps 5 to 12. Each names
// in its failure what was observed.
//
// The tests share one cluster and run one after another. They skip, and say why,
// where a host can not run a node.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/cluster/local"
)

var (
	config          local.Config
	upstreamKubelet string
	// shared is the cluster whose pool is CPU 0.
	shared *local.Cluster
)

const pinning = `{"management": {"cpuset": "0"}}`

func TestMain(m *testing.M) {
	flag.StringVar(&config.Bin, "bin", "", "folder of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "folder of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&upstreamKubelet, "upstream-kubelet", "", "a kubelet of the same release without the series")
	flag.Parse()
	if why := noNode(); why != "" {
		fmt.Println("SKIPPED: the end-to-end tests do not run, because", why)
		return
	}
	start := time.Now()
	config.Progress = func(format string, args ...any) {
		fmt.Printf("%5.1fs %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	os.Exit(run(m))
}

// run leaves nothing of a cluster behind, also when it is interrupted.
func run(m *testing.M) (status int) {
	if config.Bin == "" || config.Tools == "" || config.Tree == "" || upstreamKubelet == "" {
		fmt.Println("run make e2e, which builds what the tests need and names it with flags")
		return 1
	}
	cluster := local.New(config)
	if cluster.Exists() {
		fmt.Println("a cluster of this host is up, or was; make down removes it")
		return 1
	}
	down := func() {
		if err := cluster.Down(context.Background()); err != nil {
			fmt.Println("down:", err)
			status = 1
		}
	}
	defer down()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	abandon := func() {
		if err := cluster.Abandon(context.Background()); err != nil {
			fmt.Println("down:", err)
		}
		os.Exit(1)
	}
	go func() {
		fmt.Println("interrupted by", <-interrupted)
		abandon()
	}()
	// go test's own time limit, of 30 minutes, would end us without a Down.
	time.AfterFunc(28*time.Minute, func() {
		fmt.Println("the tests take too long")
		abandon()
	})
	if status = m.Run(); status != 0 && cluster.Exists() {
		if logs, err := os.MkdirTemp("", "workload-partitioning-e2e-"); err == nil {
			fmt.Println("the logs of all parts are kept in", logs, cluster.SaveLogs(logs))
		}
	}
	return status
}

func noNode() string {
	switch {
	case runtime.GOOS != "linux":
		return "this is not Linux"
	case os.Getuid() != 0:
		return "a node needs root"
	case runtime.NumCPU() < 2:
		return "a partitioned node needs two CPUs"
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		return "there are no cgroups"
	}
	return ""
}

// partitioned returns the cluster whose pool is CPU 0, and starts it at the first
// call.
func partitioned(t *testing.T) *local.Cluster {
	t.Helper()
	if shared == nil {
		with := config
		with.Pinning = pinning
		cluster := local.New(with)
		if err := cluster.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		shared = cluster
	}
	return shared
}
