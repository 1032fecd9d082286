// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// TestMain makes this program play a kubelet, or the agent, for the tests that need a process.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "kubelet":
		playKubelet()
	case os.Getenv(agentRole) != "":
		playAgent()
	default:
		os.Setenv(ownerOfHost, strconv.Itoa(os.Getpid()))
		os.Exit(m.Run())
	}
}

const (
	// rootOfHost is the variable with the root of the played host, ownerOfHost has the process of
	// the tests, and agentRole a request, or observe and a driver.
	rootOfHost  = "TEST_HOST_ROOT"
	ownerOfHost = "TEST_HOST_OWNER"
	agentRole   = "TEST_AGENT_REQUEST"
)

// A kubelet that is played gets a mount namespace of its own, as those in containers have. Otherwise
// kubectl partition audit, which other tests run at the same time, would take it for the host's. It
// needs root for that, as to be mistaken.
func init() {
	if filepath.Base(os.Args[0]) == "kubelet" {
		runtime.LockOSThread()
		_ = unix.Unshare(unix.CLONE_NEWNS)
	}
}

// endWithOwner ends this process once the tests have ended, however they did.
func endWithOwner() {
	owner, err := strconv.Atoi(os.Getenv(ownerOfHost))
	if err != nil {
		return
	}
	for unix.Kill(owner, 0) == nil {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(1)
}

// playKubelet does what upstream's kubelet does with its configuration and the CPU manager's checkpoint,
// and serves healthz.
func playKubelet() {
	go endWithOwner()
	root := os.Getenv(rootOfHost)
	config := flag.String("config", "", "")
	configDir := flag.String("config-dir", "", "")
	rootDir := flag.String("root-dir", "", "")
	policyFlag := flag.String("cpu-manager-policy", "", "")
	_ = flag.CommandLine.Parse(os.Args[1:])
	fail := func(err error) {
		fmt.Fprintf(os.Stderr, "E1103 10:00:00.000000 1 run.go:72] \"command failed\" err=%q\n", err)
		os.Exit(1)
	}
	settings := map[string]any{policyField: "none"}
	paths := []string{filepath.Join(root, *config)}
	if *configDir != "" {
		dropIns, err := filepath.Glob(filepath.Join(root, *configDir, "*.conf"))
		if err != nil {
			fail(err)
		}
		paths = append(paths, dropIns...)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(data, &settings)
		}
		if err != nil {
			fail(err)
		}
	}
	if *policyFlag != "" {
		settings[policyField] = *policyFlag
	}
	policy := settings[policyField].(string)
	if settings["broken"] == policy {
		fail(fmt.Errorf("broken under the policy %s", policy))
	}
	path := filepath.Join(root, *rootDir, "cpu_manager_state")
	data, err := os.ReadFile(path)
	if err == nil {
		var checkpoint struct{ PolicyName string }
		if err := json.Unmarshal(data, &checkpoint); err != nil || checkpoint.PolicyName != policy {
			fail(fmt.Errorf("configured policy %q differs from state checkpoint policy %q (%w)", policy, checkpoint.PolicyName, err))
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(settings["healthzBindAddress"].(string), healthzPort))
	if err != nil {
		fail(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	if data == nil {
		time.Sleep(20 * time.Millisecond)
		checkpoint := fmt.Sprintf(`{"policyName":%q,"defaultCpuSet":"1-3","checksum":1}`, policy)
		if err := errors.Join(os.WriteFile(path+".tmp", []byte(checkpoint), 0o600), os.Rename(path+".tmp", path)); err != nil {
			fail(err)
		}
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	<-terminated
}

// playAgent is the agent in its pod: it observes, or carries out a request.
func playAgent() {
	if err := agent(klog.NewContext(context.Background(), logr.Discard()), os.Getenv(agentRole)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func agent(ctx context.Context, role string) error {
	if driverName, observes := strings.CutPrefix(role, "observe "); observes {
		host, err := OpenHost(os.Getenv(rootOfHost))
		if err != nil {
			return err
		}
		host.volatile = survives
		observed, err := host.Observe(ctx, operation.Driver(driverName), Configz{})
		if err != nil {
			return err
		}
		message, err := observed.Encode()
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(message)
		return err
	}
	request, err := operation.ParseRequest([]byte(role))
	if err != nil {
		return err
	}
	host, err := openTestHost(os.Getenv(rootOfHost))
	if err != nil {
		return err
	}
	_, err = host.Run(ctx, request, os.Args[0])
	return err
}

// openTestHost is [OpenHost] for a host whose commands need no chroot, and that is quick.
func openTestHost(root string) (*Host, error) {
	h, err := OpenHost(root)
	if err != nil {
		return nil, err
	}
	h.chroot, h.volatile, h.interval, h.stable = false, survives, 10*time.Millisecond, 50*time.Millisecond
	return h, nil
}

// survives says that a reboot leaves a directory as it is: that of a test may be on a tmpfs.
func survives(string) (string, error) { return "", nil }

// testHost is a host below a directory.
type testHost struct {
	t    *testing.T
	root string
}

const (
	testConfig    = "/etc/kubernetes/kubelet.yaml"
	testConfigDir = "/etc/kubernetes/kubelet.conf.d"
	testDropIn    = testConfigDir + "/99-z01-harvester-cpu-manager.conf"
	testRootDir   = "/var/lib/kubelet"
	testState     = testRootDir + "/cpu_manager_state"
)

// newTestHost returns a host with four CPUs, whose kubelet has the policy none and reserves CPU.
func newTestHost(t *testing.T) *testHost {
	t.Helper()
	// The path of a socket has at most 107 bytes, and a test's own directory has its name.
	root, err := os.MkdirTemp("", "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h := &testHost{t, root}
	address := freeAddress(t)
	for _, dir := range []string{"etc/systemd/system", "var/lib", testRootDir, testConfigDir, "run"} {
		if err := os.MkdirAll(h.at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/proc", h.at("proc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.program(), h.at("kubelet")); err != nil {
		t.Fatal(err)
	}
	sysfs := topologytest.Sysfs(t, topologytest.Host{Nodes: 1, CoresPerNode: 2, ThreadsPerCore: 2})
	if err := os.CopyFS(h.at("sys"), os.DirFS(sysfs)); err != nil {
		t.Fatal(err)
	}
	h.write(testConfig, fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzBindAddress: %s\nkubeReserved: {cpu: 500m}\n", address))
	h.write(testState, `{"policyName":"none","defaultCpuSet":"","checksum":1}`)
	return h
}

// healthzPort is the kubelet's default.
const healthzPort = "10248"

// freeAddress returns an address of the loopback interface that no other kubelet has. A port that the
// kernel chose could become that of somebody's connection while the kubelet is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		listener, err := net.Listen("tcp", net.JoinHostPort(address, healthzPort))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		return address
	}
}

func (h *testHost) at(path string) string { return filepath.Join(h.root, path) }

func (h *testHost) program() string {
	h.t.Helper()
	program, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	return program
}

func (h *testHost) write(path, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.at(path)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.at(path), []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// read returns the content of a file, and nothing if there is none.
func (h *testHost) read(path string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.at(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *testHost) open() *Host {
	h.t.Helper()
	host, err := openTestHost(h.root)
	if err != nil {
		h.t.Fatal(err)
	}
	return host
}

func kubeletArgs(more ...string) []string {
	return append([]string{"--config=" + testConfig, "--config-dir=" + testConfigDir, "--root-dir=" + testRootDir}, more...)
}

// startKubelet starts the kubelet with a log and these arguments, and returns its process.
func (h *testHost) startKubelet(log string, args ...string) int {
	h.t.Helper()
	kubelet := exec.Command(h.at("kubelet"), args...)
	kubelet.Env = append(os.Environ(), rootOfHost+"="+h.root)
	stderr, err := os.OpenFile(h.at(log), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer stderr.Close()
	kubelet.Stderr = stderr
	if err := kubelet.Start(); err != nil {
		h.t.Fatal(err)
	}
	go kubelet.Wait()
	h.t.Cleanup(func() { _ = kubelet.Process.Kill() })
	// The kernel has the command line a moment after Start returns.
	for line := fmt.Sprintf("/proc/%d/cmdline", kubelet.Process.Pid); ; time.Sleep(time.Millisecond) {
		if data, err := os.ReadFile(line); err != nil || len(data) > 0 {
			return kubelet.Process.Pid
		}
	}
}

// useCommands gives the host the settings of the driver command, and starts its kubelet.
func (h *testHost) useCommands(args ...string) {
	h.t.Helper()
	pid, log := h.at("kubelet.pid"), h.at("kubelet.log")
	// An agent that is killed ends its commands, at any instant. So the kubelet's process says its
	// number itself, and keeps the lock until then.
	locked := "exec 9>" + h.at("kubelet.lock") + "; flock 9; "
	alive := fmt.Sprintf("p=$(cat %s) && [ -d /proc/$p ] && ! grep -q '^State:.Z' /proc/$p/status", pid)
	kubelet := fmt.Sprintf("echo $$ >%[1]s.new; mv %[1]s.new %[1]s; %[2]s=%[3]s exec %[4]s %[5]s 9>&-", pid, rootOfHost, h.root, h.at("kubelet"), strings.Join(kubeletArgs(args...), " "))
	start := fmt.Sprintf("%s if ! { %s; }; then setsid /bin/sh -c '%s' </dev/null >>%s 2>&1 & fi", locked, alive, kubelet, log)
	settings, err := yaml.Marshal(Settings{Command: &CommandSettings{
		Start:    []string{"/bin/sh", "-c", start},
		Stop:     []string{"/bin/sh", "-c", fmt.Sprintf("%s kill $(cat %s); while %s; do sleep 0.01; done", locked, pid, alive)},
		Kill:     []string{"/bin/sh", "-c", "kill -9 $(cat " + pid + ")"},
		IsActive: []string{"/bin/sh", "-c", locked + alive + " && echo $p"}, DropInDirectory: testConfigDir, Log: "/kubelet.log",
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(SettingsFile, string(settings))
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("the kubelet's log is %q", h.read("kubelet.log"))
		}
		if process, err := strconv.Atoi(strings.TrimSpace(h.read("kubelet.pid"))); err == nil {
			_ = syscall.Kill(process, syscall.SIGKILL)
		}
	})
	driver, err := h.open().commandDriver()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := driver.start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.waitHealthy(driver)
}

// A test waits this long for a condition, with this pause between two looks.
const pause, patience = 10 * time.Millisecond, 10 * time.Second

// waitHealthy waits until a kubelet that has been started is healthy.
func (h *testHost) waitHealthy(driver driver) {
	h.t.Helper()
	k, err := driver.kubelet(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	url, err := healthz(k.flags, k.config)
	if err == nil {
		err = poll.Until(h.t.Context(), pause, patience, func(ctx context.Context) error { return probeHealthz(ctx, url) })
	}
	if err != nil {
		h.t.Fatalf("the kubelet is not healthy: %v\n%s", err, h.read("kubelet.log"))
	}
}

func quiet(t *testing.T) context.Context { return klog.NewContext(t.Context(), logr.Discard()) }
