package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestControlPlanesBesideEndWithTheCluster(t *testing.T) {
	dir := t.TempDir()
	config := Config{
		Paths: Paths{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")},
		// No bridge is made.
		WithoutNode: true, Node: Node{Address: "127.0.0.1"},
	}
	besides := config.Beside(7)
	besides.Node.Address = "127.0.0.1"
	var running []Component
	for _, c := range []*Cluster{New(config), New(besides)} {
		for _, dir := range []string{c.data("logs"), c.Config.Paths.Run} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.rememberHost(); err != nil {
			t.Fatal(err)
		}
		etcd := c.component(program{name: "etcd", args: []string{"/bin/sleep", "100"}})
		if err := etcd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = etcd.Kill() })
		running = append(running, etcd)
	}
	// make down knows the paths, and not what is beside.
	if err := New(Config{Paths: config.Paths}).Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, etcd := range running {
		if pid := etcd.PID(); pid != 0 {
			t.Errorf("process %d runs, of which the log is %s", pid, etcd.Log())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is still %v (%v)", left, err)
	}
}
