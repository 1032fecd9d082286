// SPDX-License-Identifier: Apache-2.0

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

// mustBe is the annotation of pods that must be partitioned, with their type. It is this package's own, so that what
// production made of a pod does not say what it had to make of it.
const mustBe = "e2e/must-be-partitioned"

// asks are the annotations of a pod that asks for the type of the nodes, and must get it.
var asks = map[string]string{partition.TargetAnnotation("management"): "", mustBe: "management"}

// node is a VM with a node in it. If it has a control plane, that runs as partitioned static pods.
type node struct {
	*vm.VM
	client *kubernetes.Clientset
	// pools are those of the pinning file, and cpus all CPUs of the VM. See learn.
	pools partition.Pools
	cpus  cpuset.CPUSet
}

// bootNode starts a VM with a single-node cluster in it, whose node has the pinning file.
func bootNode(t *testing.T, pinning string, config vm.Config, cluster host.Config) *node {
	t.Helper()
	n := &node{VM: boot(t, config)}
	begin := time.Now()
	cluster.Pinning, cluster.ControlPlaneType = pinning, "management"
	if _, err := n.StartCluster(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ready %s after the boot", time.Since(begin).Round(time.Second))
	var err error
	if n.client, err = n.Client(); err != nil {
		t.Fatal(err)
	}
	n.learn(t)
	return n
}

// learn reads the node's CPUs and pinning file.
func (n *node) learn(t *testing.T) {
	t.Helper()
	n.cpus = fixture.CPUs(t, n.run(t, "cat /sys/devices/system/cpu/present"))
	var err error
	if n.pools, err = partition.Parse([]byte(n.run(t, "cat "+partition.PinningFilePath)), n.cpus); err != nil {
		t.Fatal(err)
	}
}

// writePinningFile replaces the pinning file. The next kubelet that starts reads it.
func (n *node) writePinningFile(t *testing.T, content string) {
	t.Helper()
	if err := n.Write(t.Context(), partition.PinningFilePath, []byte(content)); err != nil {
		t.Fatal(err)
	}
	n.run(t, "chmod 600 "+partition.PinningFilePath)
}

// run returns the output of a script in the VM.
func (n *node) run(t *testing.T, script string) string {
	t.Helper()
	output, err := n.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// waitFor is [fixture.WaitFor] with the pause of this package. It is long, since each call
// costs an emulated VM CPU time.
func waitFor(t *testing.T, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	fixture.WaitFor(t, 500*time.Millisecond, limit, what, condition)
}

// awaitReady waits until the kubelet has reported its node as Ready after a time of the VM.
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

// ready returns the node's condition Ready.
func (n *node) ready(t *testing.T) (ready v1.NodeCondition) {
	t.Helper()
	object, err := n.client.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == v1.NodeReady {
			ready = condition
		}
	}
	return ready
}

// expectReadySince checks that the node is Ready, and has been since a condition was read.
func (n *node) expectReadySince(t *testing.T, before v1.NodeCondition) {
	t.Helper()
	if now := n.ready(t); now.Status != v1.ConditionTrue || !now.LastTransitionTime.Equal(&before.LastTransitionTime) {
		t.Errorf("the node's condition Ready is %s since %s, want True since %s", now.Status, now.LastTransitionTime, before.LastTransitionTime)
	}
}

// now returns the time of the VM, which may differ from the host's.
func (n *node) now(t *testing.T) time.Time {
	t.Helper()
	now, err := time.Parse(time.RFC3339, n.run(t, "date --utc +%Y-%m-%dT%H:%M:%SZ"))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// create creates pods.
func (n *node) create(t *testing.T, namespace string, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := n.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRunning waits until all pods of the cluster run, and returns them.
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

// expectPlaced waits until each container on the node, and each of its tasks, may use exactly
// its CPUs: those of its pool, its exclusive ones, or the shared ones. Static pods are the control plane's, which must
// be partitioned, as pods with the annotation mustBe. CPUs that are offline do not count.
func (n *node) expectPlaced(t *testing.T, offline ...int) {
	t.Helper()
	// It needs two processes for any number of containers, because processes are slow to start
	// under emulation. A task may have ended when its status is read.
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
	waitFor(t, 90*time.Second, "all containers have their CPUs", func(ctx context.Context) error {
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
			workloadType, partitioned := p.Annotations[mustBe]
			if _, static := p.Annotations[v1.MirrorPodAnnotationKey]; static {
				workloadType, partitioned = "management", true
			}
			if err := fixture.Running(p); err != nil && partitioned {
				return err
			}
			if p.Status.Phase != v1.PodRunning || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			id := fixture.ContainerID(p.Status.ContainerStatuses[0])
			cpus, ok := found[id]
			if !ok {
				return fmt.Errorf("there is no cgroup of container %s of pod %s", id, p.Name)
			}
			switch {
			case partitioned:
				shared = append(shared, container{p, cpus, n.pools[workloadType].Difference(gone)})
			case p.Status.QOSClass == v1.PodQOSGuaranteed:
				own := fixture.CPUs(t, cpus[0])
				if !own.IsSubsetOf(others.Difference(taken)) || int64(own.Size()) != p.Spec.Containers[0].Resources.Requests.Cpu().Value() {
					return fmt.Errorf("pod %s has the exclusive CPUs %s, want %s that are neither taken (%s) nor in a pool (%s)", p.Name, own, p.Spec.Containers[0].Resources.Requests.Cpu(), taken, n.pools.Union())
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
					return fmt.Errorf("the container of pod %s, or one of its tasks, may use CPUs %s, want %s", c.pod.Name, cpus, want)
				}
			}
		}
		return nil
	})
}

// expectClean waits until the node has cgroups of its pods only.
func (n *node) expectClean(t *testing.T) {
	t.Helper()
	waitFor(t, time.Minute, "no cgroup is left of a deleted pod", func(ctx context.Context) error {
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
				return fmt.Errorf("no pod has the cgroup %s", group)
			}
		}
		return nil
	})
}

// controlPlane returns the containers of the control plane, once all of them run. Right after
// the start of a node, one that does not reach the API may end and restart.
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
					return fmt.Errorf("container %s of pod %s is in the state %v", status.Name, p.Name, status.State)
				}
				containers = append(containers, p.Name+" "+status.ContainerID)
			}
		}
		return nil
	})
	slices.Sort(containers)
	return containers
}
