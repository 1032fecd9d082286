package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
)

// Containers with exclusive CPUs keep them, whatever becomes of the pools; a pool that
// wants one of theirs keeps the kubelet from starting.
func TestContainersKeepTheirExclusiveCPUs(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	t.Cleanup(func() {
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	restart(t, c, "")
	namespace := newNamespace(t, c, "management")
	// Without a pool the CPU manager keeps CPU 0 for the system, and gives away the last one.
	exclusive := pod("exclusive", nil, container("c", awake, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi"))
	pods := start(t, c, namespace, exclusive, pod("shared", nil, container("c", awake, "memory=16Mi", "")))
	has := containerUsage(t, pods[0], 0).CPUs
	if has != "1" {
		t.Fatalf("the exclusive container has CPUs %s, want 1", has)
	}
	keeps := func(t *testing.T) {
		t.Helper()
		// As long as it takes the CPU manager to reconcile twice.
		for range 6 {
			if now := containerUsage(t, pods[0], 0).CPUs; now != has {
				t.Errorf("the exclusive container has CPUs %s, and had %s", now, has)
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	// What is shared beside the pool: where nothing is left, the exclusive CPU is.
	beside := cpus(t, allCPUs(t)).Difference(cpuset.New(0, 1))
	if beside.IsEmpty() {
		beside = cpuset.New(1)
	}
	without := cpus(t, allCPUs(t)).Difference(cpuset.New(1))
	for _, step := range []struct {
		name, file string
		shared     cpuset.CPUSet
	}{
		{"the file comes", pinning, beside},
		{"the kubelet starts again, with nothing left to share", pinning, beside},
		{"the pool shrinks", `{"management": {"cpuset": ""}}`, without},
		{"the pool grows", pinning, beside},
		{"the file goes", "", without},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			keeps(t)
			if got := containerUsage(t, pods[1], 0).CPUs; got != step.shared.String() {
				t.Errorf("the container without exclusive CPUs has %s, want %s", got, step.shared)
			}
		})
	}
	checkpoint := filepath.Join(c.KubeletDir(), "cpu_manager_state")
	unharmed := func(t *testing.T, before []byte) {
		t.Helper()
		if after, err := os.ReadFile(checkpoint); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the checkpoint was\n%s\nand is\n%s (%v)", before, after, err)
		}
	}
	read := func(t *testing.T) []byte {
		t.Helper()
		data, err := os.ReadFile(checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	t.Run("a pool wants an exclusive CPU", func(t *testing.T) {
		before := read(t)
		fails(t, c, `{"management": {"cpuset": "1"}}`, "container c of pod "+namespace+"/exclusive (UID "+string(pods[0].UID)+") exclusively holds CPU 1")
		unharmed(t, before)
	})
	t.Run("the kubelet starts with the previous pool", func(t *testing.T) {
		restart(t, c, pinning)
		keeps(t)
	})
	t.Run("a checkpoint that can not be read is upstream's business", func(t *testing.T) {
		before := read(t)
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		damaged := []byte("{")
		if err := os.WriteFile(checkpoint, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(checkpoint, before, 0o600); err != nil {
				t.Error(err)
			}
		})
		fails(t, c, pinning, "could not restore state from checkpoint")
		unharmed(t, damaged)
	})
	restart(t, c, pinning)
	keeps(t)
	taken := `{"management": {"cpuset": "1"}}`
	t.Run("nothing of the pod runs, so the pool gets its CPU, and the pod another", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		stopInRuntime(t, c, pods[0])
		restart(t, c, taken)
		waitFor(t, time.Minute, "the exclusive container runs again", func() error {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), exclusive.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err == nil && (cpus(t, usage.CPUs).Size() != 1 || usage.CPUs == "1") {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			pods[0], has = p, usage.CPUs
			return err
		})
	})
	t.Run("the pod has been deleted while the kubelet was away", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		deleteNow(t, c, pods[0])
		takes := `{"management": {"cpuset": "` + has + `"}}`
		fails(t, c, takes, "container c of pod "+namespace+"/exclusive (UID "+string(pods[0].UID)+") exclusively holds CPU "+has)
		stopInRuntime(t, c, pods[0])
		restart(t, c, takes)
	})
	restart(t, c, pinning)
}

// fails starts the kubelet with a pinning file, and expects it to end and say why.
func fails(t *testing.T, c *host.Cluster, file, why string) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	c.Config.Pinning = file
	if err := c.StartKubelet(t.Context()); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the kubelet's start ended with %v, want %s", err, why)
	}
}
