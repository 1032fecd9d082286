// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// kubectlPartition runs kubectl-partition with the cluster's kubeconfig, and returns what it
// printed. It expects the exit code.
func kubectlPartition(t testing.TB, code int, args ...string) string {
	t.Helper()
	out, errOut, got := runPlugin(t, args...)
	if got != code {
		t.Fatalf("kubectl partition %s ended with %d, want %d: %s\n%s", strings.Join(args, " "), got, code, errOut, out)
	}
	return out
}

// runPlugin runs kubectl-partition with the cluster's kubeconfig, and returns what it printed and
// its exit code.
func runPlugin(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	needs(t, kubectlPlugin)
	var out, errOut bytes.Buffer
	command := exec.CommandContext(t.Context(), plugin, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+host.Kubeconfig)
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), command.ProcessState.ExitCode()
}

// What kubectl partition says of a cluster is what is there.
func TestPluginSaysWhatIsThere(t *testing.T) {
	in(t, kubectlPlugin)
	c := partitioned(t)
	quietNode(t, c)
	allows, plain := fixture.Namespace(t, c.Client, "management"), fixture.Namespace(t, c.Client, "")
	awaitActive(t, creating(t, c, allows), true)
	start(t, c, allows, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "")))
	start(t, c, plain, fixture.Pod("skipped", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))
	t.Run("status counts pods, and names what was skipped", func(t *testing.T) {
		var status struct {
			Servers []struct{ Plugin string }
			Types   []struct {
				Name   string
				Active bool
				Pods   int
			}
			Nodes []struct {
				Name                string
				RequestedMillicores int64
				PoolCPUs            int
			}
			Skipped []struct {
				Reason partition.Reason
				Newest []struct{ Namespace, Name string }
			}
		}
		if err := json.Unmarshal([]byte(kubectlPartition(t, 1, "status", "--pools", "-o", "json")), &status); err != nil {
			t.Fatal(err)
		}
		if len(status.Servers) != 1 || status.Servers[0].Plugin != "present" {
			t.Errorf("the kube-apiservers are %+v, want one with the plugin", status.Servers)
		}
		// Other tests' types stay active.
		found := false
		for _, of := range status.Types {
			found = found || of.Name == "management" && of.Active && of.Pods == 1
		}
		if !found {
			t.Errorf("the types are %+v, want management, active, with a pod", status.Types)
		}
		if len(status.Nodes) != 1 || status.Nodes[0].Name != host.NodeName || status.Nodes[0].RequestedMillicores != 400 || status.Nodes[0].PoolCPUs != 1 {
			t.Errorf("the nodes are %+v, want %s with 400m on a pool of one CPU", status.Nodes, host.NodeName)
		}
		if len(status.Skipped) != 1 || status.Skipped[0].Reason != partition.ReasonNamespaceNotAnnotated || len(status.Skipped[0].Newest) != 1 || status.Skipped[0].Newest[0].Namespace != plain {
			t.Errorf("skipped are %+v, want the pod of namespace %s", status.Skipped, plain)
		}
	})
	t.Run("explain says why, and what to change", func(t *testing.T) {
		for namespace, want := range map[string][]string{
			allows: {"partitioned", "originally asked for cpu: 400m", host.NodeName},
			plain:  {"skipped", partition.AllowedAnnotation},
		} {
			name := map[string]string{allows: "partitioned", plain: "skipped"}[namespace]
			said := kubectlPartition(t, map[string]int{allows: 0, plain: 1}[namespace], "explain", "-n", namespace, name)
			for _, want := range want {
				if !strings.Contains(said, want) {
					t.Errorf("of pod %s it says\n%s\nwant that it has %q", name, said, want)
				}
			}
		}
	})
	t.Run("lint finds it in the cluster", func(t *testing.T) {
		said := kubectlPartition(t, 1, "lint", "--live", "-n", plain)
		if !strings.Contains(said, string(partition.ReasonNamespaceNotAnnotated)) || !strings.Contains(said, "skipped") {
			t.Errorf("it says\n%s\nwant the reason %s and the pod", said, partition.ReasonNamespaceNotAnnotated)
		}
		kubectlPartition(t, 0, "lint", "--live", "-n", allows)
	})
}

// A node starts with the files that kubectl partition render writes.
func TestRenderedFilesMakeAPartitionedNode(t *testing.T) {
	in(t, kubectlPlugin)
	c := partitioned(t)
	quietNode(t, c) // audit would count pods that end
	dir := t.TempDir()
	kubectlPartition(t, 0, "render", "--type", "management", "--cpuset", "0", "--cpus-of-host", allCPUs(t), "--to", dir)
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	keepConfiguration(t, c)
	for line := range strings.Lines(read("etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf")) {
		if !strings.HasPrefix(line, "apiVersion:") && !strings.HasPrefix(line, "kind:") {
			c.Config.KubeletConfiguration += line
		}
	}
	restart(t, c, read(partition.PinningFilePath))
	pods := start(t, c, fixture.Namespace(t, c.Client, "management"), fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))
	expectCPUs(t, pods[0], 0, "0", 1)
	if got, want := getNode(t, c).Status.Allocatable.Cpu().Value(), int64(fixture.CPUs(t, otherCPUs(t)).Size()); got != want {
		t.Errorf("the node's allocatable cpu is %d, want %d", got, want)
	}
	kubectlPartition(t, 0, "audit")
	kubectlPartition(t, 0, "plan", "--on-host", "--file", partition.PinningFilePath, host.NodeName)
	t.Run("and kube-apiserver has its types active", func(t *testing.T) {
		before := c.Config.AdmissionConfiguration
		serve := func(configuration string) {
			c.Config.AdmissionConfiguration = configuration
			if err := errors.Join(c.WriteAdmissionConfiguration(), c.RestartAPIServer(context.WithoutCancel(t.Context()))); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { serve(before) })
		serve(read("etc/kubernetes/admission/configuration.yaml"))
		awaitActive(t, creating(t, c, fixture.Namespace(t, c.Client, "management")), true)
	})
}

// The files of --host=kthreads,disks move every kernel thread that can be moved to the pool, and the ends of the pool's
// requests to disks; an audit then names none.
func TestKernelThreadsAndDisksAreMovedToThePool(t *testing.T) {
	in(t, vm, kubectlPlugin)
	if config.Supervisor != host.Systemd {
		t.Skip("systemd and udev move them, and nothing moves them back: this needs a VM of ours")
	}
	partitioned(t)
	about := func() (notes []string) {
		for _, note := range auditNode(t).Notes {
			if note.Code == audit.NoteKernel || note.Code == audit.NoteDisks {
				notes = append(notes, note.Message)
			}
		}
		return notes
	}
	if notes := about(); len(notes) != 2 {
		t.Errorf("before that the audit says %q, want the kernel's threads and the disks", notes)
	}
	dir := t.TempDir()
	kubectlPartition(t, 0, "render", "--type", "management", "--cpuset", "0", "--cpus-of-host", allCPUs(t), "--host=kthreads,disks", "--to", dir)
	for _, of := range []string{"/etc/systemd", "/etc/udev"} { // the node has a pinning file
		if err := os.CopyFS(of, os.DirFS(filepath.Join(dir, of))); err != nil {
			t.Fatal(err)
		}
	}
	// At the boot, timers.target starts the timer, and udev looks at every disk.
	for _, command := range []string{"systemctl daemon-reload", "systemctl restart timers.target", "udevadm control --reload", "udevadm trigger --action=change --subsystem-match=block --settle"} {
		args := strings.Fields(command)
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	disks, err := filepath.Glob("/sys/block/*/queue/rq_affinity")
	if err != nil || len(disks) == 0 {
		t.Errorf("there is no disk: %v", err)
	}
	for _, disk := range disks {
		if text, err := os.ReadFile(disk); err != nil || strings.TrimSpace(string(text)) != "2" {
			t.Errorf("%s has %q: %v", disk, text, err)
		}
	}
	waitFor(t, time.Minute, "the kernel's threads are on the pool", func() error {
		threads, left := 0, []string{}
		err := eachTask(func(task int, kernel, inPod bool) {
			const mayNotMove = 0x04000000 // PF_NO_SETAFFINITY (Linux, include/linux/sched.h)
			var allowed unix.CPUSet
			process, err := procfs.NewProc(task)
			if err != nil || !kernel || inPod || unix.SchedGetaffinity(task, &allowed) != nil {
				return // it has ended, or is not a kernel thread of the host
			}
			// The thread of an interrupt follows that.
			stat, err := process.Stat()
			if err != nil || stat.Flags&mayNotMove != 0 || strings.HasPrefix(stat.Comm, "irq/") {
				return
			}
			if threads++; allowed.Count() != 1 || !allowed.IsSet(0) {
				left = append(left, stat.Comm)
			}
		})
		if err == nil && (len(left) > 0 || threads < 5) {
			err = fmt.Errorf("of %d, these are not: %q", threads, left)
		}
		return err
	})
	if notes := about(); len(notes) > 0 {
		t.Errorf("the audit says %q", notes)
	}
}
