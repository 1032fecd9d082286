// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a real node on this host: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, containerd and kubelet. Tests take their proof from the kernel, the runtime and
// the API, and each failure says what was observed.
//
// The tests run one after another, and most of them share a cluster. Where a host cannot run a
// node they are skipped, and say why.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

var (
	config host.Config
	// upstreamBin has unpatched binaries of the same release, and upstreamKubelet is one of them.
	upstreamBin, upstreamKubelet string
	// plugin is kubectl-partition, and specs the compiled specs of test/workloadpartitioning;
	// empty means that their tests are skipped.
	plugin, specs string
	// meter is the meter of package noise in a VM, where it cannot be compiled.
	meter string
	// fips says that the binaries are to be in FIPS mode.
	fips bool
	// runSuite selects tests; see suite.
	runSuite string
	// docs is the directory of the documentation for users.
	docs string
	// olderBin lists directories of patched binaries of older releases, separated by colons.
	olderBin string
	// controlPlaneImages is a directory of images of the control plane; empty means that their test is
	// skipped.
	controlPlaneImages string
	// previousBin has kubelet and kube-apiserver of this project's previous version.
	previousBin string
	// shared is the cluster that tests share, of the kind sharedKind. It is nil while there is
	// none. sharedFailed says that a test has failed in it.
	shared       *host.Cluster
	sharedKind   string
	sharedFailed bool
)

// pinning is the pinning file of the node that tests share.
const pinning = `{"management": {"cpuset": "0"}}`

func TestMain(m *testing.M) {
	flag.StringVar(&config.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&upstreamBin, "upstream-bin", "", "directory of the same release's binaries without the series")
	flag.StringVar(&plugin, "plugin", "", "the command kubectl-partition")
	flag.StringVar(&specs, "specs", "", "the compiled specs of test/workloadpartitioning")
	flag.StringVar(&olderBin, "older-bin", "", "directories of patched binaries of older releases, separated by colons")
	flag.StringVar(&previousBin, "previous-bin", "", "directory of kubelet and kube-apiserver of this project's previous version")
	flag.StringVar(&controlPlaneImages, "control-plane-images", "", "directory that images build has written, with those of the control plane")
	flag.StringVar(&meter, "meter", "", "the compiled meter of package noise, for a host without a compiler; empty means that TestStorm has no application")
	systemd := flag.Bool("systemd", false, "this host is a VM of ours, where systemd runs the node")
	flag.StringVar(&config.Images, "images", "", "directory of image archives; empty means that they are made")
	flag.BoolVar(&fips, "fips", false, "the Kubernetes binaries were built to be in FIPS mode")
	flag.StringVar(&runSuite, "suite", "", "the suite to run: core, vm or vm-core; empty means all tests")
	flag.StringVar(&docs, "docs", "../../docs/user", "directory of the documentation for users, whose commands tests run")
	flag.BoolVar(&listNeeds, "needs", false, "print the targets of the Makefile that build what the selected tests need, and run none")
	flag.Parse()
	if *systemd {
		config = config.OnDedicatedHost()
		config.ReconcilePeriod = 2 * time.Second // an emulated VM has no time for more
		fixture.Awake = fixture.AwakeEmulated
	} else {
		config.ReconcilePeriod = 500 * time.Millisecond
	}
	upstreamKubelet = filepath.Join(upstreamBin, "kubelet")
	if !slices.Contains([]suite{"", core, vm, vmCore}, suite(runSuite)) {
		fmt.Printf("-suite is %q; there are %s, %s and %s\n", runSuite, core, vm, vmCore)
		os.Exit(2)
	}
	if listNeeds {
		m.Run()
		printNeeds()
		return
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
		fmt.Println("-bin, -tools and -tree or -images are missing; run make e2e, which builds all of it and sets them")
		return 1
	}
	config.Temporary = true
	cluster := host.New(config)
	return tidy.Run(host.Dir, func() error { return errors.Join(undoAll(), removeTracers(), cluster.Down(context.Background())) }, func() int {
		status := m.Run()
		if status != 0 {
			keepLogs(cluster)
		}
		return status
	})
}

// undoings undo what tests change of the host besides the cluster.
var undoings struct {
	sync.Mutex
	all []func() error
}

// undoAtEnd has something of the host undone when the test ends, or is interrupted. It returns a function that undoes it
// at once; only the first call does anything.
func undoAtEnd(t testing.TB, undo func() error) (now func() error) {
	now = sync.OnceValue(undo)
	undoings.Lock()
	defer undoings.Unlock()
	undoings.all = append(undoings.all, now)
	t.Cleanup(func() {
		if err := now(); err != nil {
			t.Error(err)
		}
	})
	return now
}

func undoAll() (err error) {
	undoings.Lock()
	defer undoings.Unlock()
	for _, undo := range slices.Backward(undoings.all) {
		err = errors.Join(err, undo())
	}
	return err
}

// keepLogs copies the logs of a cluster in which a test has failed to a directory, and prints
// which.
func keepLogs(c *host.Cluster) {
	if !c.Exists() {
		return
	}
	logs, err := os.MkdirTemp("", "workload-partitioning-e2e-")
	if err == nil {
		err = c.SaveLogs(logs)
	}
	if err != nil {
		fmt.Println("the logs cannot be kept:", err)
		return
	}
	fmt.Println("the logs of all components are kept in", logs)
}

// partitioned returns the shared node, whose pool is CPU 0.
func partitioned(t testing.TB) *host.Cluster {
	t.Helper()
	with := config
	with.Pinning = pinning
	return share(t, "node", with)
}

// apiServer returns the shared control plane, which has no node.
func apiServer(t testing.TB) *host.Cluster {
	t.Helper()
	with := config
	with.WithoutNode = true
	return share(t, "control plane", with)
}

// share returns the shared cluster of a kind. If there is another kind, it ends that one first:
// a host has room for one.
func share(t testing.TB, kind string, with host.Config) *host.Cluster {
	t.Helper()
	if shared == nil || sharedKind != kind {
		endShared(t)
		cluster := host.New(with)
		if err := cluster.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		shared, sharedKind, sharedFailed = cluster, kind, false
	}
	t.Cleanup(func() { sharedFailed = sharedFailed || t.Failed() })
	return shared
}

func endShared(t testing.TB) {
	t.Helper()
	if shared == nil {
		return
	}
	reportFaults(t, shared)
	if sharedFailed || t.Failed() {
		keepLogs(shared)
	}
	if err := shared.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	shared = nil
}

// reportFaults fails a test if a component has crashed: a supervisor would start it again, and the
// node go on. It does so, too, for data races in this project's code, if components report them.
func reportFaults(t testing.TB, c *host.Cluster) {
	t.Helper()
	faults, err := c.Faults()
	if err != nil {
		t.Error(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// alone starts a cluster for one test. It ends the shared one first.
func alone(t testing.TB, with host.Config) *host.Cluster {
	t.Helper()
	endShared(t)
	return up(t, with)
}

// up starts a cluster for one test, next to the shared one if the configuration says so.
func up(t testing.TB, with host.Config) *host.Cluster {
	t.Helper()
	c := host.New(with)
	t.Cleanup(func() {
		reportFaults(t, c)
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
