// SPDX-License-Identifier: Apache-2.0

// Package vm tests what only a virtual machine can show. It runs the tests of package e2e in
// one, with systemd, cgroup v2 and many CPUs. Its own tests boot a node, cut its power, take
// CPUs from it, and join two nodes.
//
// Where there is no QEMU the tests are skipped, and say why.
package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/kubernetes/test/e2e/internal/noise"
)

var (
	files vm.Files
	// payload has the files of every VM, by their paths there.
	payload map[string]string
	// consoles is the directory in which the consoles of failed tests are kept. It is empty
	// before the first one.
	consoles string
	// kept has the VMs whose consoles are there.
	kept     = map[*vm.VM]bool{}
	progress = fixture.Progress()
)

func TestMain(m *testing.M) {
	var suite, plugin string
	flag.StringVar(&files.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&files.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&files.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&files.Cluster, "cluster", "", "the command of module cluster")
	flag.StringVar(&suite, "suite", "", "the compiled tests of package e2e")
	flag.StringVar(&plugin, "plugin", "", "the command kubectl-partition; may be empty")
	flag.Parse()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		fmt.Println("SKIPPED: the tests in VMs do not run, because", err)
		return
	}
	files.More = map[string]string{"e2e.test": suite}
	const docs = "../../../docs/user"
	err := filepath.WalkDir(docs, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files.More["docs"+strings.TrimPrefix(file, docs)] = file
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if plugin != "" {
		files.More["kubectl-partition"] = plugin
	}
	if *upstreamBin != "" {
		files.More["upstream-bin/kubelet"] = filepath.Join(*upstreamBin, "kubelet")
	}
	if *olderBin != "" {
		files.More["older/kubelet"] = filepath.Join(*olderBin, "kubelet")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	down := func() error { return errors.Join(vm.Down(), files.Close()) }
	return tidy.Run(vm.Dir, down, func() int {
		dir, err := os.MkdirTemp("", "workload-partitioning-meter-")
		defer os.RemoveAll(dir)
		if err == nil {
			files.More["meter"], err = noise.Build(context.Background(), dir)
		}
		if err == nil {
			err = os.Mkdir(vm.Dir, 0o700)
		}
		if err == nil {
			err = host.Own(vm.Dir)
		}
		if err == nil {
			payload, err = files.Payload(context.Background())
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return m.Run()
	})
}

// boot starts a VM for a test. There is no node in it yet.
func boot(t *testing.T, config vm.Config) *vm.VM {
	t.Helper()
	if config.Payload == nil {
		config.Payload = payload
	}
	config.Progress = progress
	m := vm.New(config)
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, m)
		}
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// keep copies the console and the logs of a VM in which a test has failed to a directory, once.
func keep(t *testing.T, m *vm.VM) {
	if kept[m] {
		return
	}
	kept[m] = true
	if consoles == "" {
		var err error
		if consoles, err = os.MkdirTemp("", "workload-partitioning-vm-"); err != nil {
			t.Error(err)
			return
		}
	}
	dir, err := os.MkdirTemp(consoles, filepath.Base(t.Name())+"-")
	if err != nil {
		t.Error(err)
		return
	}
	for name, file := range map[string]string{"console": m.Console(), "qemu": m.Log()} {
		if data, err := os.ReadFile(file); err == nil {
			_ = os.WriteFile(filepath.Join(dir, m.Name()+"-"+name+".log"), data, 0o644)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if logs, err := os.Create(filepath.Join(dir, m.Name()+"-logs.tar")); err == nil {
		// The tests of package e2e keep their logs in /tmp. The others are of clusters that kubeadm makes.
		_ = m.Stream(ctx, "tar -c --ignore-failed-read "+host.Dir+"/logs /tmp/workload-partitioning-e2e-* /var/log/pods /root/kubeadm.log 2>/dev/null; true", nil, logs)
		logs.Close()
	}
	t.Logf("the console and the logs of %s are kept in %s", m.Name(), dir)
}
