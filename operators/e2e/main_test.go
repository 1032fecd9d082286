// SPDX-License-Identifier: Apache-2.0

// Package e2e tests companions on a real node of this host, as users install and see them: it imports
// none of their packages. The node, its control plane and what is left of both afterwards are those of
// package host, as in test/e2e.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
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
	var fit bool
	if images, controller, fit = rig.ParseFlags(&config); !fit {
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	config.CPUManagerPolicy = "none"
	config.ReconcilePeriod = 500 * time.Millisecond
	config.Kubelet = kubeletProgram
	cluster = host.New(config)
	down := func() error { return errors.Join(cluster.Down(context.Background()), removeSettings()) }
	return rig.RunTests(cluster, down, func() int {
		if err := writeSettings(); err != nil {
			fmt.Println(err)
			return 1
		}
		return m.Run()
	})
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
