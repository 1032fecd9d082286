// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy/agentpod"
)

// inNamespaces is the variable of this test's own process that has namespaces of its own.
const inNamespaces = "TEST_IN_NAMESPACES"

// TestTheListedPrivilegesSuffice runs the agent below the mounts of its pods, as user 0 without
// capabilities. The mounts are those of a process in namespaces of its own, and end with it. What the
// commands of the driver command need is theirs, so that its pod only observes here.
func TestTheListedPrivilegesSuffice(t *testing.T) {
	if !inOwnNamespaces(t) {
		return
	}
	for _, driverName := range operation.Drivers() {
		t.Run(string(driverName), func(t *testing.T) {
			h := newTestHost(t)
			// A pod has the host's processes by a mount, too.
			if err := os.Remove(h.at("proc")); err != nil {
				t.Fatal(err)
			}
			bind(t, "/proc", h.at("proc"), false)
			h.startAs(driverName)

			request := requestOf("op", operation.Static)
			request.Driver = driverName
			encoded, err := request.Encode()
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range []string{"observe " + string(driverName), string(encoded)} {
				spec := agentpod.Observe("n1", "agent", driverName)
				if role == string(encoded) {
					if spec, err = agentpod.Run("n1", "agent", request); err != nil {
						t.Fatal(err)
					}
				}
				var mounts []podMount
				for i, at := range spec.Containers[0].VolumeMounts {
					of := spec.Volumes[i].HostPath
					mounts = append(mounts, podMount{of.Path, at.MountPath, *of.Type == "DirectoryOrCreate", at.ReadOnly})
				}
				switch {
				case role != string(encoded):
					output := h.inPod(t, mounts, role)
					if observed, err := operation.ParseObservation([]byte(output)); err != nil || observed.Policy != operation.None || len(observed.Refused[operation.Static]) > 0 || observed.Kubelet == nil || observed.Kubelet.Reserved.String() != "500m" || len(observed.Kubelet.Places) != 1 {
						t.Errorf("what is observed is %s, %v", output, err)
					}
				case driverName != operation.DriverCommand:
					h.inPod(t, mounts, role)
					if j, err := load(h.open().disk); err != nil || j == nil || j.Result == nil || j.Result.Outcome != operation.Succeeded {
						t.Errorf("the journal is %+v, %v", j, err)
					}
				}
			}
		})
	}
}

// inOwnNamespaces runs a test in a process with user and mount namespaces of its own, and reports whether it is
// that process that asks.
func inOwnNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespaces) != "" {
		return true
	}
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	self.Env = append(os.Environ(), inNamespaces+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	output, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if strings.Contains(string(output), "--- SKIP") {
		t.Skipf("%s", output)
	}
	return false
}

// startAs starts the host's kubelet as a driver has it, and waits for it.
func (h *testHost) startAs(driverName operation.Driver) {
	h.t.Helper()
	switch driverName {
	case operation.DriverKubelet:
		s := newFakeSystemd(h.t, h)
		s.addKubelet(defaultUnit, kubeletArgs()...)
		s.addAgent(defaultUnit)
	case operation.DriverRKE2:
		s := newFakeSystemd(h.t, h)
		s.addRKE2(rke2Units[1])
		s.addAgent(rke2Units[1])
	case operation.DriverCommand:
		// Other tests' kubelets may run at the same time.
		configDir := "/etc/" + filepath.Base(h.root)
		if err := os.Mkdir(h.at(configDir), 0o755); err != nil {
			h.t.Fatal(err)
		}
		pid := h.startKubelet("kubelet.log", kubeletArgs("--config-dir="+configDir)...)
		settings, err := yaml.Marshal(Settings{Command: &CommandSettings{
			Start: []string{"/nowhere"}, Stop: []string{"/nowhere"}, IsActive: []string{"/nowhere"}, DropInDirectory: configDir,
		}})
		if err != nil {
			h.t.Fatal(err)
		}
		h.write(SettingsFile, string(settings))
		h.waitFor("the kubelet", func() bool {
			found, err := (&commandDriver{h.open().host, CommandSettings{DropInDirectory: configDir}}).listed()
			return err == nil && found == pid
		})
		return
	}
	driver, err := h.open().driver(h.t.Context(), driverName, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	defer driver.close()
	h.waitHealthy(driver)
}

// podMount is a directory of the host in a pod.
type podMount struct {
	from, to         string
	create, readOnly bool
}

// inPod runs the agent with a role below mounts, without capabilities, and returns what it prints.
func (h *testHost) inPod(t *testing.T, mounts []podMount, role string) string {
	t.Helper()
	// The path of a socket has at most 107 bytes.
	pod, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(pod) })
	for _, m := range mounts {
		if m.create {
			if err := os.MkdirAll(h.at(m.from), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		bind(t, h.at(m.from), filepath.Join(pod, m.to), m.readOnly)
	}
	agent := exec.Command(h.program())
	agent.Env = append(os.Environ(), rootOfHost+"="+filepath.Join(pod, agentpod.HostRoot), agentRole+"="+role)
	var output, stderr strings.Builder
	agent.Stdout, agent.Stderr = &output, &stderr
	ended := make(chan error)
	go func() {
		// A process that this thread starts has the capabilities that are left to it.
		runtime.LockOSThread()
		for capability := range uintptr(unix.CAP_LAST_CAP + 1) {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		}
		ended <- agent.Run()
	}()
	if err := <-ended; err != nil {
		t.Fatalf("the agent in the pod: %v\n%s", err, &stderr)
	}
	return output.String()
}

// bind mounts a directory somewhere else, with all that is mounted below it, until the test ends.
func bind(t *testing.T, from, to string, readOnly bool) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if readOnly {
		if err := unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			t.Fatal(err)
		}
	}
}
