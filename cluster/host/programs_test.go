// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/poll"
)

func TestFurtherProgramsEndWithTheCluster(t *testing.T) {
	dir := t.TempDir()
	config := Config{
		Paths: Paths{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")},
		// No bridge is made.
		WithoutNode: true, Node: Node{Address: "127.0.0.1"},
	}
	c := New(config)
	if _, err := c.Run("nodepool", nil, "/bin/sleep", "100"); err == nil {
		t.Error("a program was started, and no cluster is up")
	}
	for _, dir := range []string{c.data("logs"), c.Config.Paths.Run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.rememberHost(); err != nil {
		t.Fatal(err)
	}
	first, err := c.Run("nodepool", []string{"HYPERSHIFT=true"}, "/bin/sh", "-c", "echo $HYPERSHIFT; exec sleep 100")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Kill() })
	before := first.PID()
	if err := poll.Until(t.Context(), endPause, 10*time.Second, func(context.Context) error {
		if log, err := os.ReadFile(first.Log()); err != nil || string(log) != "true\n" {
			return fmt.Errorf("its log has %q (%v), want its environment's variable", log, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	second, err := c.Run("nodepool", nil, "/bin/sleep", "100")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Kill() })
	if after := second.PID(); after == 0 || after == before {
		t.Errorf("process %d runs, and %d before it, want another", after, before)
	}
	// make restart and make logs find it by its name.
	if found, err := New(config).Component("nodepool"); err != nil || found.PID() != second.PID() {
		t.Errorf("by its name, %v is found (%v)", found, err)
	}
	if err := New(Config{Paths: config.Paths}).Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pid := second.PID(); pid != 0 {
		t.Errorf("process %d runs", pid)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is still %v (%v)", left, err)
	}
}

func TestAProgramThatIsNotOneIsRefused(t *testing.T) {
	dir := t.TempDir()
	config := Config{Paths: Paths{Data: dir, Run: dir}}
	for name, test := range map[string]struct {
		config Config
		name   string
		args   []string
		want   string
	}{
		"a component's name":   {config, "etcd", []string{"/bin/true"}, "component of that name"},
		"a path":               {config, "../etcd", []string{"/bin/true"}, "lower-case letters"},
		"no command":           {config, "nodepool", nil, "no command"},
		"a host under systemd": {config.OnDedicatedHost(), "nodepool", []string{"/bin/true"}, "unit"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(test.config).Run(test.name, nil, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
