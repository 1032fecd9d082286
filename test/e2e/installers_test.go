// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The kubelet starts in every state that installers produce, one after another, whatever was
// before.
func TestKubeletStartsInEveryStateOfInstallers(t *testing.T) {
	in(t, vm)
	underEachPolicy(t, kubeletStartsInEveryStateOfInstallers)
}

func kubeletStartsInEveryStateOfInstallers(t *testing.T, c *host.Cluster) {
	before := keepConfiguration(t, c)
	const (
		empty = `{"management": {"cpuset": ""}}`
		slice = "systemReserved: {cpu: 100m}\nsystemReservedCgroup: /system.slice\nenforceNodeAllocatable: [pods, system-reserved-compressible]\n"
		// Of the cluster's own configuration, where nothing else is reserved.
		kubeReserved = 500
	)
	all := fixture.CPUs(t, allCPUs(t))
	for _, test := range []struct {
		name, file, configuration string
		// reserved is what cpu allocatable lacks, in millicores.
		reserved    int64
		want, event string
	}{
		{"white space only", " \n", "", kubeReserved, "management", ""},
		{"no type", "{}", "", kubeReserved, "", ""},
		{"an empty set after a line break, and none at the end", "\n" + empty, "", kubeReserved, "management", ""},
		{"an empty set and reserved CPUs", empty, "reservedSystemCPUs: \"0\"\n", 1000, "management", ""},
		{"a pool and the same reserved CPUs", pinning, "reservedSystemCPUs: \"0\"\n", 1000, "management", ""},
		{"a pool and a reserved cgroup", pinning, slice, 1000, "management", "ReservedCgroupDropped"},
		{"a pool", pinning, "", 1000, "management", ""},
		{"a pool of all CPUs", `{"management": {"cpuset": "` + all.String() + `"}}`, "", kubeReserved, "management", "PoolsHoldEveryCPU"},
		{"a pool that is larger than the reserved CPUs", `{"management": {"cpuset": "` + all.String() + `"}}`, "reservedSystemCPUs: \"0\"\n", 1000, "management", "PoolsHoldEveryCPU"},
		{"no file, and there was one", "", "", kubeReserved, "", "PinningFileMissing"},
		{"a file again", pinning, "", 1000, "management", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.configuration == slice {
				in(t, vm) // systemd has this cgroup
			} else {
				in(t)
			}
			if test.event != "" {
				fixture.ForgetEvents(t, c.Client, test.event)
			}
			c.Config.KubeletConfiguration = before + test.configuration
			restart(t, c, test.file)
			expectTypes(t, c, test.want)
			node := getNode(t, c)
			if reserved := node.Status.Capacity.Cpu().MilliValue() - node.Status.Allocatable.Cpu().MilliValue(); reserved != test.reserved {
				t.Errorf("%dm are reserved, want %dm", reserved, test.reserved)
			}
			if test.event != "" {
				fixture.AwaitEvent(t, c.Client, eventLimit, test.event, "")
			}
		})
	}
	c.Config.KubeletConfiguration = before
	t.Run("a file that all users may read", func(t *testing.T) {
		in(t)
		if err := os.Chmod(partition.PinningFilePath, 0o644); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		if info, err := os.Stat(partition.PinningFilePath); err != nil || info.Mode() != 0o644 {
			t.Errorf("the file has the mode %v (%v)", info.Mode(), err)
		}
		expectTypes(t, c, "management")
	})
	t.Run("a file without a byte", func(t *testing.T) {
		in(t)
		restart(t, c, "{}")
		expectTypes(t, c, "")
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(partition.PinningFilePath, 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Kubelet.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "the node has cores", func() error {
			if capacity := getNode(t, c).Status.Capacity; capacity.Name(cores, "").IsZero() {
				return fmt.Errorf("its capacity is %v", capacity)
			}
			return nil
		})
		expectTypes(t, c, "management")
	})
}

// expectTypes checks that the node has the cores of one workload type, or of none.
func expectTypes(t *testing.T, c *host.Cluster, want string) {
	t.Helper()
	var found []string
	for name := range getNode(t, c).Status.Capacity {
		if workloadType, is := partition.TypeOfCores(string(name)); is {
			found = append(found, workloadType)
		}
	}
	if want == "" && len(found) == 0 {
		return
	}
	if !slices.Equal(found, []string{want}) {
		t.Errorf("the node has the cores of %q, want %q", found, want)
	}
}

// Pools and reserved CPUs that differ are united, whichever has more, and the kubelet starts. A
// container that exclusively holds a CPU of the difference keeps it, unless a pool wants it.
func TestReservedCPUsAndPoolsAreUnited(t *testing.T) {
	in(t, vm)
	underEachPolicy(t, reservedCPUsAndPoolsAreUnited, vm)
}

func reservedCPUsAndPoolsAreUnited(t *testing.T, c *host.Cluster) {
	before := keepConfiguration(t, c)
	reserve := func(cpus string) {
		c.Config.KubeletConfiguration = before + fmt.Sprintf("reservedSystemCPUs: %q\n", cpus)
	}
	static := c.Config.CPUManagerPolicy != "none"
	all := fixture.CPUs(t, allCPUs(t))
	last := slices.Max(all.List())
	namespace := fixture.Namespace(t, c.Client, "management")
	pods := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	exclusive := cpuset.New()
	// expect checks where everything runs.
	expect := func(t *testing.T, pool, reserved cpuset.CPUSet) {
		t.Helper()
		expectPlaced(t, pods[0], pool)
		shared := all.Difference(pool)
		if static {
			shared = shared.Difference(reserved).Difference(exclusive)
		}
		if shared.IsEmpty() { // on a host of two CPUs
			shared = reserved.Difference(pool)
		}
		expectPlaced(t, pods[1], shared)
		if len(pods) > 2 {
			expectPlaced(t, pods[2], exclusive)
		}
		node := getNode(t, c)
		if got, want := node.Status.Allocatable.Cpu().Value(), int64(runtime.NumCPU()-pool.Union(reserved).Size()); got != want {
			t.Errorf("the node's allocatable cpu is %d, want %d", got, want)
		}
	}
	differ := func(t *testing.T) {
		t.Helper()
		for _, test := range []struct {
			name     string
			pool     cpuset.CPUSet
			reserved cpuset.CPUSet
			missing  string
		}{
			{"more is reserved", cpuset.New(0), cpuset.New(0, last), ""},
			{"less is reserved", cpuset.New(0, last), cpuset.New(0), fmt.Sprintf("does not contain CPU %d,", last)},
			{"something else is reserved", cpuset.New(0), cpuset.New(last), "does not contain CPU 0,"},
		} {
			if !test.pool.Intersection(exclusive).IsEmpty() || test.pool.Equals(all) {
				continue // those are others' rows
			}
			t.Run(test.name, func(t *testing.T) {
				fixture.ForgetEvents(t, c.Client, "ReservedCPUsDiffer")
				reserve(test.reserved.String())
				restart(t, c, `{"management": {"cpuset": "`+test.pool.String()+`"}}`)
				expect(t, test.pool, test.reserved)
				if test.missing != "" {
					fixture.AwaitEvent(t, c.Client, eventLimit, "ReservedCPUsDiffer", test.missing)
				}
			})
		}
	}
	differ(t)
	if !static {
		return
	}
	t.Run("and a container is exclusive", func(t *testing.T) {
		needsCPUs(t, 4)
		c.Config.KubeletConfiguration = before
		restart(t, c, pinning)
		holder := start(t, c, namespace, fixture.Exclusive("exclusive", 1))[0]
		t.Cleanup(func() {
			c.Config.KubeletConfiguration = before
			restart(t, c, pinning)
			releaseExclusive(t, c, holder)
		})
		pods = append(pods, holder)
		exclusive = fixture.CPUs(t, containerUsage(t, holder, 0).CPUs)
		expectHeld := func(t *testing.T) {
			t.Helper()
			if got, err := heldCPUs(c, holder); err != nil || got != exclusive.String() {
				t.Errorf("the checkpoint gives the exclusive container the CPUs %q (%v), want %s", got, err, exclusive)
			}
		}
		last = exclusive.List()[0]
		t.Run("on the difference", func(t *testing.T) {
			differ(t)
			expectHeld(t)
		})
		t.Run("on a CPU that a pool wants", func(t *testing.T) {
			for _, reserved := range []string{"0", cpuset.New(0, last).String()} {
				reserve(reserved)
				expectNoStart(t, c, fmt.Sprintf(`{"management": {"cpuset": "0,%d"}}`, last), fmt.Sprintf("exclusively holds CPU %d, which", last))
				expectHeld(t)
			}
		})
		t.Run("and ends before the kubelet starts", func(t *testing.T) {
			reserve(cpuset.New(0, last).String())
			if err := c.StopKubelet(); err != nil {
				t.Fatal(err)
			}
			stopInRuntime(t, c, holder)
			restart(t, c, pinning)
			waitFor(t, time.Minute, "it runs again", func() error {
				p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), holder.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if status := p.Status.ContainerStatuses[0]; fixture.ContainerID(p.Status.ContainerStatuses[0]) == fixture.ContainerID(holder.Status.ContainerStatuses[0]) || status.State.Running == nil {
					return fmt.Errorf("its container is %v", status)
				}
				pods[2] = p
				return nil
			})
			expect(t, cpuset.New(0), cpuset.New(last))
			expectHeld(t)
		})
		t.Run("elsewhere", func(t *testing.T) {
			last = slices.Max(all.Difference(exclusive).List())
			differ(t)
			expectHeld(t)
		})
	})
}

// cpuCheckpoint is the CPU manager's checkpoint: the shared CPUs, and those of each container, by the
// UID of its pod.
type cpuCheckpoint struct {
	PolicyName, DefaultCPUSet string
	Entries                   map[string]map[string]string
}

func readCheckpoint(c *host.Cluster) (read cpuCheckpoint, err error) {
	data, err := os.ReadFile(filepath.Join(c.KubeletDir(), "cpu_manager_state"))
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	return read, err
}

// heldCPUs returns the CPUs that the CPU manager's checkpoint gives to a pod's first container.
func heldCPUs(c *host.Cluster, p *v1.Pod) (string, error) {
	checkpoint, err := readCheckpoint(c)
	return checkpoint.Entries[string(p.UID)][p.Spec.Containers[0].Name], err
}
