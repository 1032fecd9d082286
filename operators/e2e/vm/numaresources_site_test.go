// SPDX-License-Identifier: Apache-2.0

package vm

import (
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

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/operators/e2e/internal/rig"
)

// The machine has two NUMA nodes of four CPUs and half of the memory. The pool has the first CPU of each, and memory is reserved
// at which the kubelet evicts.
var numaTopology = vm.Topology{Sockets: 2, Cores: 4, Threads: 1}

const (
	numaPinning = `{"management": {"cpuset": "0,4"}}`
	numaKubelet = "topologyManagerPolicy: " + firstPolicy + `
topologyManagerScope: container
memoryManagerPolicy: Static
reservedMemory:
- {numaNode: 0, limits: {memory: 150Mi}}
- {numaNode: 1, limits: {memory: 150Mi}}
`
	firstPolicy = "single-numa-node"
	// numaScheduler is the NUMA-aware one, by which a pod asks for it.
	numaScheduler = "topo-aware-scheduler"
	// numaObjects are those of docs/user/numaresources.md.
	numaObjects = `apiVersion: nodetopology.openshift.io/v1
kind: NUMAResourcesOperator
metadata: {name: numaresourcesoperator}
spec:
  nodeGroups:
  - nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
---
apiVersion: nodetopology.openshift.io/v1
kind: NUMAResourcesScheduler
metadata: {name: numaresourcesscheduler}
`
)

// numa returns the node of that machine, which has the companion with its exporter and its scheduler.
func (s *site) numa() *node {
	if s.nodes[0] != nil {
		return s.nodes[0]
	}
	n := s.start("numaresources", numaTopology, host.Config{Pinning: numaPinning, KubeletConfiguration: numaKubelet})
	n.CreateNamespace(s.t)
	n.Call(s.t, "label", "node", n.Name, "node-role.kubernetes.io/worker=")
	progress("installing the companion")
	n.InstallWith(s.t, "../..", "exporterImage: partition-node\n  schedulerImage: "+numaScheduler,
		"exporterImage: "+n.Reference(s.t, "partition-node"),
		"schedulerImage: "+n.Reference(s.t, numaScheduler),
		"kubeletCertificate: "+filepath.Join(host.Dir, "pki", "kubelet", "kubelet.crt"),
		"podResources: "+filepath.Join(n.KubeletDir, "pod-resources"))
	began := time.Now()
	if output, err := n.Try(s.t, numaObjects, "apply", "-f", "-"); err != nil {
		s.t.Fatalf("%v: %s", err, output)
	}
	n.awaitReport(s.t, nil)
	n.took("from the NUMAResourcesOperator to a right report", began)
	n.Call(s.t, "wait", "--for=condition=Available", "numaresourcesoperators/numaresourcesoperator", "numaresourcesschedulers/numaresourcesscheduler", "--timeout="+n.Limit.String())
	n.took("from both objects until they are Available", began)
	s.nodes[0] = n
	return n
}

// took tells how long something took, with what ran the machine's CPUs.
func (n *node) took(what string, began time.Time) {
	progress("%s: %s (%s)", what, time.Since(began).Round(100*time.Millisecond), n.vm.Accelerator())
}

// asReader, as first argument, makes the test binary a program that reads a sysfs and the kubelet's socket, in a VM.
const asReader = "read-numa"

// printNUMA prints what it reads, and returns the exit code.
func printNUMA(sysfs, socket string) int {
	numa, err := rig.ReadNUMA(context.Background(), sysfs, socket)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(numa)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// readNUMA returns what the machine's kernel and its kubelet say.
func (n *node) readNUMA(t *testing.T) (numa rig.NUMA, err error) {
	output, err := n.Shell(t.Context(), "/payload/vm.test "+asReader+" /sys "+filepath.Join(n.KubeletDir, "pod-resources", "kubelet.sock"))
	if err == nil {
		err = json.Unmarshal([]byte(output), &numa)
	}
	return numa, err
}

// awaitReport waits until the report agrees with configz, with sysfs and with podresources. It also waits until check returns nil, if
// there is one.
func (n *node) awaitReport(t *testing.T, check func(*v1alpha2.NodeResourceTopology) error) (report *v1alpha2.NodeResourceTopology) {
	t.Helper()
	n.WaitFor(t, n.Limit, "the report is right", func() error {
		numa, err := n.readNUMA(t)
		if err != nil {
			return err
		}
		if report, err = n.RightReport(t, numa); err == nil && check != nil {
			err = check(report)
		}
		if err != nil && report != nil {
			err = fmt.Errorf("%w; the report is %s", err, rig.Shown(report))
		}
		return err
	})
	return report
}

// available returns what is available of a resource, by zone.
func available(report *v1alpha2.NodeResourceTopology, resource string) (amounts []int64) {
	for _, zone := range report.Zones {
		amount, _ := rig.Amounts(zone, resource)
		amounts = append(amounts, amount[2])
	}
	return amounts
}

// guaranteedBy returns a Guaranteed pod for a scheduler. An empty name is the default one.
func guaranteedBy(scheduler, name, resources string) *corev1.Pod {
	pod := rig.Pod(name, nil, resources, resources)
	pod.Spec.SchedulerName = scheduler
	return pod
}

// create creates a pod.
func (n *node) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := n.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitPod waits until check returns nil for a pod.
func (n *node) awaitPod(t *testing.T, name, what string, check func(*corev1.Pod) error) (pod *corev1.Pod) {
	t.Helper()
	n.WaitFor(t, n.Limit, "pod "+name+" "+what, func() (err error) {
		if pod, err = n.Client.CoreV1().Pods(rig.PodNamespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			err = check(pod)
		}
		return err
	})
	return pod
}

// refusal is the kubelet's reason.
const refusal = "TopologyAffinityError"

// isRefused returns nil if the kubelet has refused a pod for its NUMA nodes. If the zone that the topology manager has chosen lacks
// memory, the memory manager does so, as an error that it did not expect.
func isRefused(pod *corev1.Pod) error {
	byMemoryManager := pod.Status.Reason == "UnexpectedAdmissionError" && strings.Contains(pod.Status.Message, "[memorymanager]")
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != refusal && !byMemoryManager {
		return fmt.Errorf("it is %s on node %q: %s %s", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
	return nil
}

// waits returns why a pod that has no node waits, and nothing for others.
func waits(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && pod.Spec.NodeName == "" {
			return c.Message
		}
	}
	return ""
}

// waitsFor returns a check that a pod waits with a reason.
func waitsFor(reason string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if why := waits(pod); !strings.Contains(why, reason) {
			return fmt.Errorf("it is %s on node %q, and waits since %q; want %q", pod.Status.Phase, pod.Spec.NodeName, why, reason)
		}
		return nil
	}
}

// atFirstTry fails the test if a pod was not placed, or not admitted, when it was first looked at.
func (n *node) atFirstTry(t *testing.T, name string) {
	t.Helper()
	events, err := n.Client.CoreV1().Events(rig.PodNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Reason == "FailedScheduling" || event.Reason == refusal || event.Reason == "UnexpectedAdmissionError" {
			t.Errorf("pod %s: %s: %s", name, event.Reason, event.Message)
		}
	}
}

// explain returns what kubectl partition explain says of a pod that waits.
func (n *node) explain(t *testing.T, name string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), plugin, "explain", "--kubeconfig="+n.Kubeconfig, "--namespace="+rig.PodNamespace, name).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("kubectl partition explain ends with %v, want the code 1, since the pod waits: %s", err, output)
	}
	return string(output)
}

// room returns how many more pods with these requests the node as a whole has room for, which is what the default scheduler goes by.
func (n *node) room(t *testing.T, pod *corev1.Pod) int64 {
	t.Helper()
	list, err := n.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	free := n.Object(t).Status.Allocatable
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == n.Name && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			for name, request := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
				left := free[name]
				left.Sub(request)
				free[name] = left
			}
		}
	}
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	left := func(name corev1.ResourceName) int64 {
		amount, ask := free[name], asked[name]
		return amount.MilliValue() / ask.MilliValue()
	}
	return min(left(corev1.ResourceCPU), left(corev1.ResourceMemory))
}

// setTopologyManagerPolicy restarts the kubelet with another one.
func (n *node) setTopologyManagerPolicy(t *testing.T, policy string) {
	t.Helper()
	n.Run(t, "sed -i 's/^topologyManagerPolicy: .*/topologyManagerPolicy: "+policy+"/' "+filepath.Join(host.Dir, "kubelet.yaml"))
	n.restart(t)
}
