// SPDX-License-Identifier: Apache-2.0

package localup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// crio is a CRI-O all of whose files are in a directory of the test, with the drop-in that the plugin renders.
type crio struct {
	dir, socket string
	process     *exec.Cmd
	ended       chan struct{}
}

// startCRIO starts it, with the images of the tests, until the test ends.
func startCRIO(t *testing.T, dir string) *crio {
	t.Helper()
	needPrograms(t, "scripts/install-packages.sh crio", "conmon", "skopeo", "iptables")
	c := &crio{dir: dir, socket: filepath.Join(dir, "crio.sock")}
	rendered := filepath.Join(dir, "rendered")
	if out, err := exec.Command(plugin, "render", "--cpuset", "0", "--to", rendered).CombinedOutput(); err != nil {
		t.Fatalf("%s render: %v\n%s", plugin, err, out)
	}
	pinns := filepath.Join(filepath.Dir(crioProgram), "pinns")
	if _, err := os.Stat(pinns); err != nil {
		if pinns, err = exec.LookPath("pinns"); err != nil {
			t.Fatalf("CRI-O needs pinns next to %s, or in PATH: %v", crioProgram, err)
		}
	}
	conmon, err := exec.LookPath("conmon")
	if err != nil {
		t.Fatal(err)
	}
	conmonCgroup := "pod"
	if runtime.CgroupDriver() == host.SystemdDriver {
		conmonCgroup = "system.slice"
	}
	for name, content := range map[string]string{
		"policy.json": `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"crio.conf": fmt.Sprintf(`[crio]
root = "%[1]s/storage"
runroot = "%[1]s/run"
storage_driver = "vfs"
log_dir = "%[1]s/logs"
version_file = "%[1]s/run/version"
version_file_persist = "%[1]s/version"
clean_shutdown_file = "%[1]s/clean"
[crio.api]
listen = "%[2]s"
[crio.runtime]
cgroup_manager = "%[3]s"
conmon_cgroup = "%[4]s"
pinns_path = "%[5]s"
namespaces_dir = "%[1]s/namespaces"
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
drop_infra_ctr = false
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "%[6]s"
runtime_root = "%[1]s/runc"
monitor_path = "%[7]s"
[crio.image]
pause_image = "%[8]s"
pause_command = "/pause"
signature_policy = "%[1]s/policy.json"
[crio.network]
network_dir = "%[9]s"
plugin_dirs = ["%[10]s"]
[crio.nri]
enable_nri = false
`, dir, c.socket, runtime.CgroupDriver(), conmonCgroup, pinns, filepath.Join(runtime.Config.Tools, "runc"), conmon, image.Pause, filepath.Join(host.Dir, "cni"), runtime.Config.Tools),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := filepath.Glob(imageCache); err != nil {
		t.Fatal(err)
	} else if len(found) == 0 {
		if err := os.WriteFile(hadNoCache(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	images := runtime.Config.Images
	if images == "" {
		images = filepath.Join(dir, "images")
		if err := image.Save(t.Context(), runtime.Config.Tree, images); err != nil {
			t.Fatal(err)
		}
	}
	for name, reference := range map[string]string{"pause": image.Pause, "busybox": image.Busybox} {
		archives, err := filepath.Glob(filepath.Join(images, "*"+name+"*.tar"))
		if err != nil || len(archives) != 1 {
			t.Fatalf("the archives of %s are %v (%v)", reference, archives, err)
		}
		copied := exec.Command("skopeo", "copy", "--policy="+filepath.Join(dir, "policy.json"), "docker-archive:"+archives[0],
			fmt.Sprintf("containers-storage:[vfs@%s/storage+%[1]s/run]%s", dir, reference))
		if out, err := copied.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", copied, err, out)
		}
	}
	t.Cleanup(func() {
		if c.process != nil {
			c.stop(t, syscall.SIGTERM)
		}
		if t.Failed() {
			text, err := os.ReadFile(c.log())
			t.Logf("the end of CRI-O's log (%v):\n%s", err, text[max(0, len(text)-8000):])
		}
	})
	c.start(t)
	return c
}

// imageCache is a file that skopeo leaves on the host, wherever the images go.
const imageCache = "/var/lib/containers/cache/blob-info-cache-v1.*"

// hadNoCache exists if the host did not have that file before.
func hadNoCache() string { return filepath.Join(host.Dir, "no-image-cache") }

// removeImageCache removes what skopeo has left, if the host did not have it before.
func removeImageCache() error {
	if _, err := os.Stat(hadNoCache()); err != nil {
		return nil
	}
	found, err := filepath.Glob(imageCache)
	for _, path := range found {
		err = errors.Join(err, os.Remove(path))
	}
	for dir := filepath.Dir(imageCache); dir != "/var/lib"; dir = filepath.Dir(dir) {
		_ = os.Remove(dir) // fails if it is not empty
	}
	return err
}

func (c *crio) log() string { return filepath.Join(c.dir, "crio.log") }

func (c *crio) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.process = exec.Command(crioProgram, "--config="+filepath.Join(c.dir, "crio.conf"), "--config-dir="+filepath.Join(c.dir, "rendered/etc/crio/crio.conf.d"))
	c.process.Stdout, c.process.Stderr = log, log
	c.process.Env = append(os.Environ(), mark)
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt of the tests is not CRI-O's
	_ = os.Remove(c.socket)
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	ended, process := make(chan struct{}), c.process
	c.ended = ended
	var why error
	go func() { why = process.Wait(); close(ended) }()
	fixture.WaitFor(t, 100*time.Millisecond, time.Minute, "CRI-O listens", func(context.Context) error {
		select {
		case <-ended:
			text, _ := os.ReadFile(c.log())
			t.Fatalf("CRI-O has ended: %v\n%s", why, text)
		default:
		}
		_, err := os.Stat(c.socket)
		return err
	})
}

func (c *crio) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	_ = c.process.Process.Signal(signal) // it may have ended
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Errorf("CRI-O did not end in a minute after the signal %s", signal)
	}
}

// restart kills it, and starts it again.
func (c *crio) restart(t *testing.T) {
	t.Helper()
	c.stop(t, syscall.SIGKILL)
	c.start(t)
}

// expectSandboxes expects that the sandboxes of pods may use the CPUs of infra_ctr_cpuset in the drop-in: the pool.
func (c *crio) expectSandboxes(t *testing.T, client kubernetes.Interface, pods []expected, pool cpuset.CPUSet) {
	t.Helper()
	for _, one := range pods {
		pod, err := client.CoreV1().Pods(one.namespace).Get(t.Context(), one.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found, err := host.Sandbox(pod)
		if err != nil {
			t.Fatal(err)
		}
		sandboxes := 0
		for name, usage := range found {
			if !strings.HasPrefix(name, "crio-") || strings.HasPrefix(name, "crio-conmon-") || strings.Contains(name, "/") {
				continue
			}
			sandboxes++
			if got := fixture.CPUs(t, usage.CPUs); !got.Equals(pool) {
				t.Errorf("the sandbox of pod %s may use the CPUs %s, want %s", one.name, got, pool)
			}
		}
		if sandboxes != 1 {
			t.Errorf("pod %s has %d sandboxes: its other cgroups are %v", one.name, sandboxes, found)
		}
	}
}
