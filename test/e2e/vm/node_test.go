package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// asks are the annotations of a pod that asks for the type of the tests' nodes.
var asks = fixture.Asks("management")

// node is a VM whose control plane consists of partitioned static pods.
type node struct {
	*vm.VM
	client *kubernetes.Clientset
	// pools are those of the node's pinning file.
	pools partition.Pools
	cpus  cpuset.CPUSet
}

// bootNode starts a VM and makes it a node with the pinning file.
func bootNode(t *testing.T, pinning string, config vm.Config, cluster host.Config) *node {
	t.Helper()
	n := &node{VM: boot(t, config)}
	begin := time.Now()
	cluster.Pinning, cluster.ControlPlaneType = pinning, "management"
	if _, err := n.StartCluster(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Logf("from the boot's end to Ready: %s", time.Since(begin).Round(time.Second))
	var err error
	if n.client, err = n.Client(); err != nil {
		t.Fatal(err)
	}
	n.learn(t)
	return n
}

// learn reads the node's CPUs and its pinning file.
func (n *node) learn(t *testing.T) {
	t.Helper()
	n.cpus = fixture.CPUs(t, n.run(t, "cat /sys/devices/system/cpu/present"))
	var err error
	if n.pools, err = partition.Parse([]byte(n.run(t, "cat "+partition.PinningFilePath)), n.cpus); err != nil {
		t.Fatal(err)
	}
}

// writePinningFile replaces the node's; a kubelet that starts reads it.
func (n *node) writePinningFile(t *testing.T, content string) {
	t.Helper()
	if err := n.Write(t.Context(), partition.PinningFilePath, []byte(content)); err != nil {
		t.Fatal(err)
	}
	n.run(t, "chmod 600 "+partition.PinningFilePath)
}

func (n *node) run(t *testing.T, script string) string {
	t.Helper()
	output, err := n.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// waitFor is [fixture.WaitFor] with the pause of this package: to ask takes a VM much of its CPUs.
func waitFor(t *testing.T, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	fixture.WaitFor(t, 500*time.Millisecond, limit, what, condition)
}

// awaitReady waits until the node's kubelet has said, after a time, that it is Ready.
func (n *node) awaitReady(t *testing.T, since time.Time) {
	t.Helper()
	waitFor(t, 5*time.Minute, n.Name()+" is Ready", func(ctx context.Context) error {
		object, err := n.client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue && condition.LastHeartbeatTime.After(since) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", object.Status.Conditions)
	})
}

// now is the VM's time: its clock need not be the host's.
func (n *node) now(t *testing.T) time.Time {
	t.Helper()
	now, err := time.Parse(time.RFC3339, n.run(t, "date --utc +%Y-%m-%dT%H:%M:%SZ"))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func (n *node) create(t *testing.T, namespace string, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := n.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRunning waits until all pods of the cluster run.
func (n *node) awaitRunning(t *testing.T, limit time.Duration) []v1.Pod {
	t.Helper()
	var pods []v1.Pod
	waitFor(t, limit, "all pods run", func(ctx context.Context) error {
		list, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var not []string
		for _, p := range list.Items {
			if fixture.Running(&p) != nil {
				not = append(not, p.Name+" is "+string(p.Status.Phase))
			}
		}
		if len(not) > 0 {
			return fmt.Errorf("%s", strings.Join(not, ", "))
		}
		pods = list.Items
		return nil
	})
	return pods
}

// expectPlaced waits until each container, of all pods that run on the node, may use its
// CPUs and no other, and each task of it: the pool's, or its own, or those that are left.
// CPUs that are offline are not looked for.
func (n *node) expectPlaced(t *testing.T, offline ...int) {
	t.Helper()
	// Two processes, whatever the number of containers: they are slow to start under
	// emulation. A task may have ended.
	const script = `find /sys/fs/cgroup/kubepods.slice -name 'cri-containerd-*.scope' | awk '{
  group = $0
  found = ""
  getline found < (group "/cpuset.cpus.effective")
  while ((getline task < (group "/cgroup.threads")) > 0) {
    status = "/proc/" task "/status"
    while ((getline line < status) > 0)
      if (split(line, field, /:[ \t]*/) == 2 && field[1] == "Cpus_allowed_list" && !((group, field[2]) in seen)) {
        seen[group, field[2]]
        found = found " " field[2]
      }
    close(status)
  }
  close(group "/cpuset.cpus.effective")
  close(group "/cgroup.threads")
  sub(/.*\//, "", group)
  print group, found
}'`
	gone := cpuset.New(offline...)
	waitFor(t, 90*time.Second, "all containers are where they belong", func(ctx context.Context) error {
		output, err := n.Run(ctx, script)
		if err != nil {
			return err
		}
		found := map[string][]string{}
		for line := range strings.Lines(output) {
			if fields := strings.Fields(line); len(fields) > 1 {
				found[strings.TrimSuffix(strings.TrimPrefix(fields[0], "cri-containerd-"), ".scope")] = fields[1:]
			}
		}
		list, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name()})
		if err != nil {
			return err
		}
		taken, others := cpuset.New(), n.cpus.Difference(n.pools.Union()).Difference(gone)
		type container struct {
			pod     *v1.Pod
			cpus    []string
			allowed cpuset.CPUSet
		}
		var shared []container
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase != v1.PodRunning || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			id := fixture.ContainerID(p.Status.ContainerStatuses[0])
			cpus, ok := found[id]
			if !ok {
				return fmt.Errorf("pod %s has no container %s", p.Name, id)
			}
			workloadType, partitioned := partition.PartitionedType(p)
			switch {
			case partitioned:
				shared = append(shared, container{p, cpus, n.pools[workloadType].Difference(gone)})
			case p.Status.QOSClass == v1.PodQOSGuaranteed:
				own := fixture.CPUs(t, cpus[0])
				if !own.IsSubsetOf(others.Difference(taken)) || int64(own.Size()) != p.Spec.Containers[0].Resources.Requests.Cpu().Value() {
					return fmt.Errorf("pod %s has CPUs %s for itself; others have %s, and pools %s", p.Name, own, taken, n.pools.Union())
				}
				taken = taken.Union(own)
			default:
				shared = append(shared, container{p, cpus, others})
			}
		}
		for _, c := range shared {
			want := c.allowed.Difference(taken)
			for _, cpus := range c.cpus {
				if cpus != want.String() {
					return fmt.Errorf("pod %s or a task of it may use CPUs %s, want %s", c.pod.Name, cpus, want)
				}
			}
		}
		return nil
	})
}

// expectClean checks that the node has the cgroups of its pods and of no other.
func (n *node) expectClean(t *testing.T) {
	t.Helper()
	waitFor(t, time.Minute, "nothing is left of pods that are gone", func(ctx context.Context) error {
		output, err := n.Run(ctx, "find /sys/fs/cgroup/kubepods.slice -name 'kubepods*-pod*.slice' -printf '%f\\n'")
		if err != nil {
			return err
		}
		list, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name()})
		if err != nil {
			return err
		}
		for group := range strings.FieldsSeq(output) {
			if !slices.ContainsFunc(list.Items, func(p v1.Pod) bool {
				uid := strings.ReplaceAll(string(p.UID), "-", "_")
				return strings.Contains(group, uid) || strings.Contains(group, p.Annotations[v1.MirrorPodAnnotationKey]) && p.Annotations[v1.MirrorPodAnnotationKey] != ""
			}) {
				return fmt.Errorf("%s is of no pod", group)
			}
		}
		return nil
	})
}

// controlPlane returns the containers of the static pods, once all run: one that finds no
// API when a node starts ends, and starts again.
func (n *node) controlPlane(t *testing.T) (containers []string) {
	t.Helper()
	waitFor(t, 3*time.Minute, "the control plane runs", func(ctx context.Context) error {
		containers = nil
		list, err := n.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			for _, status := range p.Status.ContainerStatuses {
				if status.State.Running == nil {
					return fmt.Errorf("container %s of pod %s does not: %v", status.Name, p.Name, status.State)
				}
				containers = append(containers, p.Name+" "+status.ContainerID)
			}
		}
		return nil
	})
	slices.Sort(containers)
	return containers
}
