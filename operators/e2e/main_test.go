// SPDX-License-Identifier: Apache-2.0

// Package e2e tests companions on a real node of this host, as users install and see them: it imports
// none of their packages. The node, its control plane and what is left of both afterwards are those of
// package host, as in test/e2e.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	config host.Config
	// images is a directory of images build, and controller the program partition-controller.
	images, controller string
	// cluster is described before the tests, and started by them.
	cluster *host.Cluster
)

const (
	// pinning is the pinning file, once there is one.
	pinning = `{"management": {"cpuset": "0"}}`
	// settingsFile says how the agent asks for this host's kubelet.
	settingsFile = "/etc/partition-agent/cpu-policy.yaml"
	// kubeletProgram is what the cluster runs as its kubelet.
	kubeletProgram = "/etc/partition-agent/kubelet"
	// settingsMark begins settings of these tests. A run that finds it may remove both directories.
	settingsMark = "# Of the end-to-end tests of companions, which remove it and " + rig.AgentDirectory + ".\n"
)

// dropIns is the --config-dir of the kubelet.
var dropIns = filepath.Join(host.Dir, "kubelet.conf.d")

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asCommand {
		os.Exit(ask(os.Args[2]))
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
	os.Exit(run(m))
}

func run(m *testing.M) int {
	began := time.Now()
	config.Progress = func(format string, args ...any) {
		fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	config.CPUManagerPolicy = "none"
	config.ReconcilePeriod = 500 * time.Millisecond
	config.Temporary = true
	config.Kubelet = kubeletProgram
	cluster = host.New(config)
	down := func() error { return errors.Join(cluster.Down(context.Background()), removeSettings()) }
	return tidy.Run(host.Dir, down, func() int {
		if err := writeSettings(); err != nil {
			fmt.Println(err)
			return 1
		}
		status := m.Run()
		if status != 0 && cluster.Exists() {
			keepLogs()
		}
		return status
	})
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

// writeSettings tells the agent that this test binary is the commands by which it reaches the
// supervisor, and writes the program that is the kubelet with a --config-dir. It refuses a host that
// has an agent of its own.
func writeSettings() error {
	// Killed tests may have left theirs.
	if err := removeSettings(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(settingsFile), rig.AgentDirectory} {
		if _, err := os.Lstat(dir); err == nil {
			return fmt.Errorf("%s exists, and these tests did not make it: the host has a partition-agent, which they would disturb", dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := map[string]any{"dropInDirectory": dropIns, "log": cluster.Kubelet.Log()}
	for name, what := range map[string]string{"start": start, "stop": stop, "kill": kill, "isActive": isActive} {
		command[name] = []string{self, asCommand, what}
	}
	settings, err := yaml.Marshal(map[string]any{"command": command})
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(settingsFile), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(settingsFile, append([]byte(settingsMark), settings...), 0o600); err != nil {
		return err
	}
	// The kubelet does not make the directory.
	script := fmt.Sprintf("#!/bin/sh\numask 022\nmkdir -p '%s'\nexec '%s' --config-dir='%[1]s' \"$@\"\n", dropIns, filepath.Join(config.Bin, "kubelet"))
	return os.WriteFile(kubeletProgram, []byte(script), 0o700)
}

// removeSettings removes what writeSettings has written, and the agent after it.
func removeSettings() error {
	settings, err := os.ReadFile(settingsFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.HasPrefix(settings, []byte(settingsMark)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(rig.AgentDirectory); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(settingsFile))
}
