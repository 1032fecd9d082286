// Package e2e checks a real node on this host: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, containerd and kubelet, built from the
// tree. The tests follow the source document's workflow, steps 5 to 12. Each names
// in its failure what was observed.
//
// The tests share one cluster and run one after another. They skip, and say why,
// where a host cannot run a node.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/kubernetes/test/e2e/tidy"
)

var (
	config host.Config
	// upstreamKubelet is that of upstreamBin.
	upstreamBin, upstreamKubelet string
	// runSuite selects tests; see suite.
	runSuite string
	// docs has the documentation's pages for users.
	docs string
	// olderBin is a list of directories of patched binaries of older releases.
	olderBin string
	// shared is the cluster that tests share, if there is one, and sharedKind which.
	shared     *host.Cluster
	sharedKind string
)

const pinning = `{"management": {"cpuset": "0"}}`

func TestMain(m *testing.M) {
	flag.StringVar(&config.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&upstreamBin, "upstream-bin", "", "directory of the same release's binaries without the series")
	flag.StringVar(&olderBin, "older-bin", "", "directories of patched binaries of older releases, separated by colons")
	systemd := flag.Bool("systemd", false, "this host is a VM of ours, where systemd runs the node")
	flag.StringVar(&config.Images, "images", "", "directory of image archives; empty means that they are made")
	flag.StringVar(&runSuite, "suite", "", "the suite to run: core, vm or vm-core; empty means all tests")
	flag.StringVar(&docs, "docs", "../../docs/user", "directory of the documentation for users, whose commands tests run")
	flag.Parse()
	if *systemd {
		config = config.OnDedicatedHost()
	}
	upstreamKubelet = filepath.Join(upstreamBin, "kubelet")
	if !slices.Contains([]suite{"", core, vm, vmCore}, suite(runSuite)) {
		fmt.Printf("-suite is %q; there are %s, %s and %s\n", runSuite, core, vm, vmCore)
		os.Exit(2)
	}
	if why := host.Unfit(); why != nil {
		fmt.Println("SKIPPED: the end-to-end tests do not run, because", why)
		return
	}
	config.Progress = fixture.Progress()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if config.Bin == "" || config.Tools == "" || (config.Tree == "" && config.Images == "") {
		fmt.Println("run make e2e, which builds what the tests need and names it with flags")
		return 1
	}
	config.Temporary = true
	cluster := host.New(config)
	return tidy.Run(host.Dir, func() error { return cluster.Down(context.Background()) }, func() int {
		status := m.Run()
		if status != 0 {
			keepLogs(cluster)
		}
		return status
	})
}

// needsUpstream skips tests that compare with upstream's own binaries where there are
// none: make e2e-core leaves them out.
func needsUpstream(t testing.TB) {
	t.Helper()
	if upstreamBin == "" {
		t.Skip("no unpatched binaries were given")
	}
}

// keepLogs saves the logs of a cluster in which a test has failed.
func keepLogs(c *host.Cluster) {
	if !c.Exists() {
		return
	}
	logs, err := os.MkdirTemp("", "workload-partitioning-e2e-")
	if err == nil {
		err = c.SaveLogs(logs)
	}
	fmt.Println("the logs of all components are kept in", logs, err)
}

// partitioned returns the node whose pool is CPU 0, and starts it at the first call.
func partitioned(t testing.TB) *host.Cluster {
	t.Helper()
	with := config
	with.Pinning = pinning
	return share(t, "node", with)
}

// apiServer returns a control plane without a node.
func apiServer(t testing.TB) *host.Cluster {
	t.Helper()
	with := config
	with.WithoutNode = true
	return share(t, "control plane", with)
}

// share returns the cluster of a kind that tests share. There is one at a time on this
// host.
func share(t testing.TB, kind string, with host.Config) *host.Cluster {
	t.Helper()
	if shared == nil || sharedKind != kind {
		endShared(t)
		cluster := host.New(with)
		if err := cluster.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		shared, sharedKind = cluster, kind
	}
	return shared
}

func endShared(t testing.TB) {
	t.Helper()
	if shared == nil {
		return
	}
	if t.Failed() {
		keepLogs(shared)
	}
	if err := shared.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	shared = nil
}

// alone starts a cluster of the test's own, in place of the shared one.
func alone(t *testing.T, with host.Config) *host.Cluster {
	t.Helper()
	endShared(t)
	c := host.New(with)
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(c)
		}
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}
