/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/partition"
)

// What users of cpupolicy write and read.
const (
	statusAnnotation = "harvesterhci.io/cpu-manager-policy-update-status"
	label            = "cpumanager"
	namespace        = "partition-cpupolicy"
	dropInName       = "99-z01-harvester-cpu-manager.conf"
)

// The limits are generous, for hosts whose CPUs are busy. What a step takes is logged.
const (
	switchLimit = 3 * time.Minute
	limit       = 2 * time.Minute
)

// pool is what the pinning file gives to partitioned pods.
var pool = cpuset.New(0)

// The stories of a node whose policy is switched, one after another: each begins as the one before it
// has left the node.
func TestANodeSwitchesItsCPUManagerPolicy(t *testing.T) {
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			tell(t)
		}
	})
	supervisor := supervise(t, cluster.Kubelet)
	before := node(t)
	overlay := install(t)
	waitFor(t, limit, "the node is observed", func() error { return labelled(t, "false") })
	namespaceOfPods(t)
	partitioned := startPod(t, "partitioned", map[string]string{partition.TargetAnnotation("management"): ""}, "cpu=100m memory=16Mi", "")
	ordinary := startPod(t, "ordinary", nil, "memory=16Mi", "")
	used := usage(t, partitioned).Used

	// A story that fails leaves a node of which the next one knows nothing.
	story := func(name string, tell func(*testing.T)) {
		if !t.Run(name, tell) {
			t.FailNow()
		}
	}
	story("from none to static a Guaranteed pod gets CPUs of its own", func(t *testing.T) {
		change(t, "static")
		exclusive := startPod(t, "exclusive", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")
		own := cpus(t, usage(t, exclusive).CPUs)
		if own.Size() != 1 || !own.IsSubsetOf(shared(t)) {
			t.Errorf("the pod has CPUs %s, want one of %s", own, shared(t))
		}
		// Where there is no other shared CPU, the ordinary pod has nowhere else to run.
		if rest := shared(t).Difference(own); !rest.IsEmpty() {
			waitFor(t, limit, "the ordinary pod has the rest", func() error { return has(t, ordinary, rest) })
		}
	})
	story("none is refused while that pod runs", func(t *testing.T) {
		err := request(t, "none")
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), podNamespace+"/exclusive") {
			t.Errorf("the request gives %v, want a conflict that names the pod", err)
		}
		if now := status(t); now.Status != "complete" || now.Policy != "static" {
			t.Errorf("the node's status is %+v, and was that static is complete", now)
		}
	})
	story("from static to none every pod gets all shared CPUs again", func(t *testing.T) {
		removePod(t, "exclusive")
		change(t, "none")
		if err := has(t, ordinary, shared(t)); err != nil {
			t.Error(err)
		}
	})
	story("a kubelet that does not start is rolled back, although the agent is killed meanwhile", func(t *testing.T) {
		const option = "no-such-option"
		supervisor.breakNextStart("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicyOptions: {" + option + ": \"true\"}\n")
		began := time.Now()
		mustRequest(t, "static")
		waitFor(t, switchLimit, "the way back nears its end", func() error { return stepIs("healthyAgain") })
		killAgent(t)
		ended := awaitStatus(t, "failed")
		t.Logf("from the request to the end of a roll-back, with a second agent's pod: %s", time.Since(began).Round(100*time.Millisecond))
		for _, part := range []string{"rolled back, the policy in force is none", option} {
			if !strings.Contains(ended.Message, part) {
				t.Errorf("the message is %q, want one with %q", ended.Message, part)
			}
		}
		inForce(t, "none")
		if _, err := os.Stat(brokenDropIn); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v), so that the kubelet was not started again", brokenDropIn, err)
		}
	})
	story("no partitioned container leaves its pool in all of this", func(t *testing.T) {
		now := usage(t, partitioned)
		if got := cpus(t, now.CPUs); !got.Equals(pool) {
			t.Errorf("the partitioned container has CPUs %s, want %s", got, pool)
		}
		if !host.CgroupV1() {
			return // there is one account for all CPUs
		}
		for cpu, total := range now.Used {
			if ran := total - used[cpu]; (ran != 0) != pool.Contains(cpu) {
				t.Errorf("the partitioned container ran for %s on CPU %d, and its pool is %s", ran, cpu, pool)
			}
		}
	})
	story("nothing is left after it is uninstalled, with the controller already gone", func(t *testing.T) {
		uninstall(t, overlay)
		after := node(t)
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
		for dir, want := range map[string][]string{dropIns: {dropInName}, agentDirectory: {"journal.json", "lock"}} {
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

// install brings the images onto the node and the manifests onto the cluster, with the driver command,
// and waits until the companion is ready. It returns the directory of the manifests.
func install(t *testing.T) (overlay string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(images, "archives", "*.tar"))
	if err != nil || len(archives) != 2 {
		t.Fatalf("%s has the images %q (%v), want two", images, archives, err)
	}
	for _, archive := range archives {
		call(t, filepath.Join(config.Tools, "ctr"), "--address", cluster.RuntimeSocket(), "--namespace", "k8s.io", "images", "import", archive)
	}
	agent, controllerImage := reference(t, "partition-agent"), reference(t, "partition-controller")
	name, tag, _ := strings.Cut(controllerImage, ":")

	base, err := filepath.Abs(filepath.Join("..", "deploy", "cpupolicy"))
	if err != nil {
		t.Fatal(err)
	}
	overlay = t.TempDir()
	// kustomize takes no absolute path.
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := os.ReadFile(filepath.Join(base, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const line = "  agentImage: partition-agent\n"
	if !strings.Contains(string(configuration), line) {
		t.Fatalf("the configuration has no %q: %s", line, configuration)
	}
	for file, content := range map[string]string{
		"config.yaml": strings.Replace(string(configuration), line, "  agentImage: "+agent+"\n  driver: command\n", 1),
		"kustomization.yaml": fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
images:
- {name: partition-controller, newName: %s, newTag: %s}
replicas:
- {name: partition-controller, count: 1}
configMapGenerator:
- {name: configuration, namespace: %s, behavior: replace, files: [config.yaml]}
`, relative, name, tag, namespace),
	} {
		if err := os.WriteFile(filepath.Join(overlay, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config.Progress("installing the companion")
	kubectl(t, "apply", "--server-side", "-k", overlay)
	kubectl(t, "rollout", "status", "--namespace="+namespace, "deployment/partition-controller", "--timeout=2m")
	config.Progress("the companion is ready")
	return overlay
}

// reference returns how the node knows an image of the directory.
func reference(t *testing.T, name string) string {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(images, "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], name+":") {
			return "workload.openshift.io/" + fields[0]
		}
	}
	t.Fatalf("%s/images.txt has no image %s: %s", images, name, list)
	return ""
}

// uninstall removes the companion as make uninstall does.
func uninstall(t *testing.T, overlay string) {
	t.Helper()
	kubectl(t, "scale", "--namespace="+namespace, "deployment/partition-controller", "--replicas=0")
	kubectl(t, "delete", "--namespace="+namespace, "pods", "--selector=app=partition-controller", "--force", "--grace-period=0")
	kubectl(t, "delete", "--ignore-not-found", "-k", overlay)
	if left := kubectl(t, "get", "--ignore-not-found", "--output=name", "-k", overlay); left != "" {
		t.Errorf("there still are %s", left)
	}
	t.Log(call(t, controller, "clean", "--controllers=cpupolicy", "--kubeconfig="+host.Kubeconfig))
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return call(t, filepath.Join(config.Bin, "kubectl"), append([]string{"--kubeconfig=" + host.Kubeconfig}, args...)...)
}

// call runs a program, and returns what it prints.
func call(t *testing.T, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s", filepath.Base(program), strings.Join(args, " "), err, output, stderr.String())
	}
	return string(output)
}

// tell logs what a companion did, for whoever looks for the cause of a failure.
func tell(t *testing.T) {
	for _, args := range [][]string{
		{"get", "node", host.NodeName, "--output=jsonpath={.metadata.annotations}"},
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
		{"logs", "--namespace=" + namespace, "--selector=app=partition-controller", "--tail=100"},
		{"logs", "--namespace=" + namespace + "-agent", "--selector=cpupolicy.workload.openshift.io/job", "--prefix", "--tail=50"},
	} {
		output, err := exec.Command(filepath.Join(config.Bin, "kubectl"), append([]string{"--kubeconfig=" + host.Kubeconfig}, args...)...).CombinedOutput()
		t.Logf("kubectl %s: %s (%v)", strings.Join(args, " "), output, err)
	}
}

// waitFor waits until a condition returns nil, or ends the test with what it returned last.
func waitFor(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	if err := poll.Until(t.Context(), 100*time.Millisecond, limit, func(context.Context) error { return condition() }); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

func node(t *testing.T) *corev1.Node {
	t.Helper()
	node, err := cluster.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// update is what the annotation says.
type update struct{ Status, Policy, Message string }

func status(t *testing.T) (s update) {
	t.Helper()
	if err := json.Unmarshal([]byte(node(t).Annotations[statusAnnotation]), &s); err != nil {
		t.Fatalf("annotation %s: %v", statusAnnotation, err)
	}
	return s
}

// request asks for a policy, and returns what the companion answers.
func request(t *testing.T, policy string) error {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "{\"status\":\"requested\",\"policy\":\"%s\"}"}}}`, statusAnnotation, policy)
	_, err := cluster.Client.CoreV1().Nodes().Patch(t.Context(), host.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func mustRequest(t *testing.T, policy string) {
	t.Helper()
	if err := request(t, policy); err != nil {
		t.Fatal(err)
	}
}

// awaitStatus waits until a request has come to an end, which must be the one that is wanted.
func awaitStatus(t *testing.T, want string) (s update) {
	t.Helper()
	waitFor(t, switchLimit, "the request ends", func() error {
		if s = status(t); s.Status != "complete" && s.Status != "failed" {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	if s.Status != want {
		t.Fatalf("the request has ended with %+v, want %s", s, want)
	}
	return s
}

// change switches to a policy, and sees that it is in force.
func change(t *testing.T, policy string) {
	t.Helper()
	began := time.Now()
	mustRequest(t, policy)
	if ended := awaitStatus(t, "complete"); ended.Policy != policy {
		t.Errorf("%+v has ended, and %s was asked for", ended, policy)
	}
	t.Logf("from the request to its end: %s", time.Since(began).Round(100*time.Millisecond))
	inForce(t, policy)
}

// inForce checks that a node that is Ready has a policy, whoever is asked.
func inForce(t *testing.T, policy string) {
	t.Helper()
	if err := labelled(t, fmt.Sprint(policy == "static")); err != nil {
		t.Error(err)
	}
	var checkpoint struct {
		PolicyName string `json:"policyName"`
	}
	data, err := os.ReadFile(filepath.Join(cluster.KubeletDir(), "cpu_manager_state"))
	if err == nil {
		err = json.Unmarshal(data, &checkpoint)
	}
	if err != nil || checkpoint.PolicyName != policy {
		t.Errorf("the checkpoint is %s (%v), want the policy %s", data, err, policy)
	}
	if dropIn, err := os.ReadFile(filepath.Join(dropIns, dropInName)); err != nil || !strings.Contains(string(dropIn), "cpuManagerPolicy: "+policy+"\n") {
		t.Errorf("the drop-in is %q (%v), want the policy %s", dropIn, err, policy)
	}
	waitFor(t, limit, "the node is Ready", func() error {
		for _, condition := range node(t).Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return errors.New(condition.Message)
			}
		}
		return nil
	})
}

// labelled returns an error unless the label of the node has a value.
func labelled(t *testing.T, want string) error {
	t.Helper()
	if got, has := node(t).Labels[label]; got != want || !has {
		return fmt.Errorf("the label %s is %q, want %s", label, got, want)
	}
	return nil
}

// stepIs returns an error unless an operation is at a step, by the agent's journal.
func stepIs(want string) error {
	var journal struct{ Step string }
	data, err := os.ReadFile(filepath.Join(agentDirectory, "journal.json"))
	if err == nil {
		err = json.Unmarshal(data, &journal)
	}
	if err == nil && journal.Step != want {
		err = fmt.Errorf("the step is %s, want %s", journal.Step, want)
	}
	return err
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

// podNamespace is that of the pods of this test.
const podNamespace = "e2e-cpupolicy"

func namespaceOfPods(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podNamespace, Annotations: map[string]string{partition.AllowedAnnotation: "management"}}}
	if _, err := cluster.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, limit, "the namespace has a ServiceAccount", func() error {
		_, err := cluster.Client.CoreV1().ServiceAccounts(podNamespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// startPod starts a pod that works for some milliseconds, five times a second, and returns it once it
// runs.
func startPod(t *testing.T, name string, annotations map[string]string, requests, limits string) *corev1.Pod {
	t.Helper()
	const awake = "trap exit TERM; while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; sleep 0.2; done"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Args: []string{"-c", awake},
			Resources: corev1.ResourceRequirements{Requests: resources(requests), Limits: resources(limits)},
		}}},
	}
	pods := cluster.Client.CoreV1().Pods(podNamespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, limit, "pod "+name+" runs", func() (err error) {
		if pod, err = pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if statuses := pod.Status.ContainerStatuses; len(statuses) == 0 || statuses[0].State.Running == nil {
			return fmt.Errorf("it is %s (%s), with the containers %v", pod.Status.Phase, pod.Status.Message, statuses)
		}
		return nil
	})
	return pod
}

// resources reads a list such as "cpu=1 memory=16Mi".
func resources(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for field := range strings.FieldsSeq(text) {
		name, quantity, _ := strings.Cut(field, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

// removePod deletes a pod, and waits until it is gone.
func removePod(t *testing.T, name string) {
	t.Helper()
	pods := cluster.Client.CoreV1().Pods(podNamespace)
	if err := pods.Delete(t.Context(), name, *metav1.NewDeleteOptions(1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, limit, "pod "+name+" is gone", func() error {
		_, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%v)", err)
	})
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

// has returns an error unless a pod's container may use just these CPUs.
func has(t *testing.T, pod *corev1.Pod, want cpuset.CPUSet) error {
	t.Helper()
	if got := cpus(t, usage(t, pod).CPUs); !got.Equals(want) {
		return fmt.Errorf("pod %s has CPUs %s, want %s", pod.Name, got, want)
	}
	return nil
}

func cpus(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// shared are the CPUs in no pool.
func shared(t *testing.T) cpuset.CPUSet {
	t.Helper()
	online, err := host.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	return online.Difference(pool)
}
