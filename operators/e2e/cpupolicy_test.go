// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

// The stories of a node whose policy is switched, one after another: each begins as the one before it
// has left the node.
//
// A switch there and back is told twice. With a pool, a host of two CPUs has one that is shared, which an ordinary pod
// has whatever a switch does. Without a pool it has two, so that the pod loses one and gets it back.
func TestANodeSwitchesItsCPUManagerPolicy(t *testing.T) {
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := thisNode()
	t.Cleanup(func() {
		if t.Failed() {
			node.Tell(t)
		}
	})
	supervisor := supervise(t, cluster.Kubelet)
	before := node.Object(t)
	for _, archive := range node.Archives(t) {
		node.Run(t, filepath.Join(config.Tools, "ctr")+" --address="+cluster.RuntimeSocket()+" --namespace=k8s.io images import "+archive)
	}
	config.Progress("installing the companion")
	overlay := node.Install(t, "..", "command")
	config.Progress("the companion is ready")
	node.WaitFor(t, node.Limit, "the node is observed", func() error { return node.Labelled(t, "false") })
	node.CreateNamespace(t)
	ordinary := node.StartPod(t, rig.Pod("ordinary", nil, "memory=16Mi", ""))
	shared := onlineCPUs(t)

	// A story that fails leaves a node of which the next one knows nothing.
	story := func(name string, tell func(*testing.T)) {
		if !t.Run(name, tell) {
			t.FailNow()
		}
	}
	toStatic := func(t *testing.T) {
		node.Change(t, "static")
		exclusive := node.StartPod(t, rig.Pod("exclusive", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi"))
		own := node.CPUsOf(t, exclusive)
		if own.Size() != 1 || !own.IsSubsetOf(shared) {
			t.Errorf("the pod has CPUs %s, want one of %s", own, shared)
		}
		// Where there is no other shared CPU, the ordinary pod has nowhere else to run.
		if rest := shared.Difference(own); !rest.IsEmpty() {
			node.WaitFor(t, node.Limit, "the ordinary pod has the rest", func() error { return node.Has(t, ordinary, rest) })
		}
	}
	toNone := func(t *testing.T) {
		node.RemovePod(t, "exclusive")
		node.Change(t, "none")
		if err := node.Has(t, ordinary, shared); err != nil {
			t.Error(err)
		}
	}
	if shared.Size() < 2 {
		t.Fatalf("the host has CPUs %s, want two", shared)
	}
	story("without a pool: from none to static a Guaranteed pod gets CPUs of its own", toStatic)
	story("without a pool: from static to none every pod gets all CPUs again", toNone)
	pool := cpuset.New(0)
	var partitioned *corev1.Pod
	var used []time.Duration
	story("the pinning file comes, and the pool is nobody else's", func(t *testing.T) {
		supervisor.restart(t, pinning)
		shared = onlineCPUs(t).Difference(pool)
		node.WaitFor(t, node.Limit, "the type is active", func() error { return node.Active(t) })
		// As ordinary pods, the companion's would leave the exclusive one too little cpu.
		node.Call(t, "rollout", "restart", "--namespace="+rig.Namespace, "deployment")
		node.AwaitCompanion(t)
		partitioned = node.StartPod(t, rig.Pod("partitioned", rig.Partitioned, "cpu=100m memory=16Mi", ""))
		node.WaitFor(t, node.Limit, "the ordinary pod has left it", func() error { return node.Has(t, ordinary, shared) })
		used = usage(t, partitioned).Used
	})
	story("from none to static a Guaranteed pod gets CPUs of its own", toStatic)
	story("none is refused while that pod runs", func(t *testing.T) {
		err := node.Request(t.Context(), "none")
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), rig.PodNamespace+"/exclusive") {
			t.Errorf("the request gives %v, want a conflict that names the pod", err)
		}
		if now := node.Status(t); now.Status != "complete" || now.Policy != "static" {
			t.Errorf("the node's status is %+v, and was that static is complete", now)
		}
	})
	story("from static to none every pod gets all shared CPUs again", toNone)
	story("a kubelet that does not start is rolled back, although the agent is killed meanwhile", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it waits for a minute and a half; make operators-e2e without SHORT=-short runs it")
		}
		const option = "no-such-option"
		supervisor.breakNextStart("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicyOptions: {" + option + ": \"true\"}\n")
		began := time.Now()
		node.MustRequest(t, "static")
		node.AwaitStep(t, "healthyAgain")
		killAgent(t)
		ended := node.AwaitStatus(t, "failed")
		t.Logf("from the request to the end of a roll-back, with a second agent's pod: %s", time.Since(began).Round(100*time.Millisecond))
		for _, part := range []string{"rolled back, the policy in force is none", option} {
			if !strings.Contains(ended.Message, part) {
				t.Errorf("the message is %q, want one with %q", ended.Message, part)
			}
		}
		node.InForce(t, "none")
		if _, err := os.Stat(brokenDropIn); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v), so that the kubelet was not started again", brokenDropIn, err)
		}
	})
	story("a roll-back waits for the label that a pod requires, and the pod goes on", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it waits for a minute; make operators-e2e without SHORT=-short runs it")
		}
		// As KubeVirt does it when a kubelet restarts.
		const label = "kubevirt.io/schedulable"
		schedulable := func(value string) {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
			if _, err := cluster.Client.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), host.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
		schedulable(`"true"`)
		t.Cleanup(func() { schedulable("null") })
		machine := rig.Pod("machine", nil, "memory=16Mi", "")
		machine.Spec.NodeSelector = map[string]string{label: "true"}
		machine = node.StartPod(t, machine)
		supervisor.breakNextStart("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicyOptions: {no-such-option: \"true\"}\n")
		var back time.Time
		var away sync.WaitGroup
		away.Go(func() {
			for t.Context().Err() == nil {
				if _, err := os.Stat(brokenDropIn); err == nil {
					break // the kubelet of the switch starts
				}
				time.Sleep(node.Pause)
			}
			schedulable(`"false"`)
			time.Sleep(45 * time.Second)
			schedulable(`"true"`)
			back = time.Now()
		})
		node.MustRequest(t, "static")
		ended := node.AwaitStatus(t, "failed")
		away.Wait()
		if !strings.Contains(ended.Message, "rolled back, the policy in force is none") {
			t.Errorf("the message is %q", ended.Message)
		}
		t.Logf("the roll-back ended %s after the label was back", time.Since(back).Round(100*time.Millisecond))
		now, err := cluster.Client.CoreV1().Pods(machine.Namespace).Get(t.Context(), machine.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].ContainerID != machine.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("the pod is %s (%s: %s), want it to run on in its container", now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		node.RemovePod(t, "machine")
	})
	story("no partitioned container leaves its pool in all of this", func(t *testing.T) {
		if err := node.Has(t, partitioned, pool); err != nil {
			t.Error(err)
		}
		if !host.CgroupV1() {
			return // there is one account for all CPUs
		}
		for cpu, total := range usage(t, partitioned).Used {
			if ran := total - used[cpu]; (ran != 0) != pool.Contains(cpu) {
				t.Errorf("the partitioned container ran for %s on CPU %d, and its pool is %s", ran, cpu, pool)
			}
		}
	})
	story("nothing is left after it is uninstalled, with the controller already gone", func(t *testing.T) {
		node.Uninstall(t, overlay)
		after := node.Object(t)
		for kind, keys := range map[string][2]map[string]string{"label": {before.Labels, after.Labels}, "annotation": {before.Annotations, after.Annotations}} {
			for key := range maps.Keys(keys[1]) {
				// kube-controller-manager's, which comes when it likes.
				const ttl = "node.alpha.kubernetes.io/ttl"
				if _, was := keys[0][key]; !was && key != ttl {
					t.Errorf("the node has the %s %s=%s, which it had not before", kind, key, keys[1][key])
				}
			}
		}
		if after.Spec.Unschedulable || len(after.Spec.Taints) > 0 {
			t.Errorf("the node is unschedulable: %t, with the taints %v", after.Spec.Unschedulable, after.Spec.Taints)
		}
		// What a node remembers: its policy, and its last operation.
		for dir, want := range map[string][]string{dropIns: {rig.DropIn}, rig.AgentDirectory: {"journal.json", "lock"}} {
			entries, err := os.ReadDir(dir)
			var names []string
			for _, entry := range entries {
				names = append(names, entry.Name())
			}
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("%s has %q (%v), want %q", dir, names, err, want)
			}
		}
	})
}

// thisNode is this host's node. The limits are generous, for hosts whose CPUs are busy. What a step
// takes is logged.
func thisNode() *rig.Node {
	return &rig.Node{
		Cluster: &rig.Cluster{
			Client: cluster.Client, Kubectl: filepath.Join(config.Bin, "kubectl"), Kubeconfig: host.Kubeconfig, Images: images, Controller: controller,
			Pause: 100 * time.Millisecond, Limit: 2 * time.Minute, SwitchLimit: 3 * time.Minute,
		},
		Name: host.NodeName,
		Shell: func(ctx context.Context, script string) (string, error) {
			output, err := exec.CommandContext(ctx, "sh", "-c", script).Output()
			return strings.TrimSuffix(string(output), "\n"), err
		},
		DropIns: dropIns, KubeletDir: cluster.KubeletDir(),
		CPUs: func(_ context.Context, pod *corev1.Pod) (string, error) {
			usage, err := host.ContainerUsage(pod, pod.Status.ContainerStatuses[0].ContainerID)
			return usage.CPUs, err
		},
	}
}

// killAgent kills the agent that carries a request out.
func killAgent(t *testing.T) {
	t.Helper()
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	for _, process := range processes {
		args, err := process.CmdLine()
		if err != nil || len(args) < 3 || filepath.Base(args[0]) != "partition-agent" || args[2] != "run" {
			continue // also if it has ended
		}
		if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed = true
	}
	if !killed {
		t.Fatal("no agent runs that could be killed")
	}
}

// usage is the kernel's account of a pod's container.
func usage(t *testing.T, pod *corev1.Pod) host.Usage {
	t.Helper()
	usage, err := host.ContainerUsage(pod, pod.Status.ContainerStatuses[0].ContainerID)
	if err != nil {
		t.Fatal(err)
	}
	return usage
}

func onlineCPUs(t *testing.T) cpuset.CPUSet {
	t.Helper()
	online, err := host.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	return online
}
