// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

const (
	policyAtFirst = "single-numa-node"
	exporters     = "partition-numaresources-exporter"
	nodePool      = "hypershift.openshift.io/nodePool=hostedcluster02"
)

// sysfs is where the kubelet sees the kernel's.
var sysfs = "/sys"

// operator is a NUMAResourcesOperator with the enhancement's example of a hosted cluster (OpenShift, topology-aware-scheduling).
const operator = `apiVersion: nodetopology.openshift.io/v1
kind: NUMAResourcesOperator
metadata: {name: numaresourcesoperator}
spec:
  nodeGroups:
  - nodeSelector: {matchLabels: {hypershift.openshift.io/nodePool: hostedcluster02}}
`

// The stories of a node, one after another. What the exporter writes is held against what the kubelet and the kernel say, which the
// test asks by itself.
func TestANodeSaysWhatItsNUMANodesHave(t *testing.T) {
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := &rig.Node{
		Cluster: &rig.Cluster{
			Client: cluster.Client, Kubectl: filepath.Join(config.Bin, "kubectl"), Kubeconfig: host.Kubeconfig, Images: images, Controller: controller,
			Companion: "numaresources", Pause: 100 * time.Millisecond, Limit: 2 * time.Minute, SwitchLimit: 3 * time.Minute,
		},
		Name: host.NodeName,
		Shell: func(ctx context.Context, script string) (string, error) {
			output, err := exec.CommandContext(ctx, "sh", "-c", script).Output()
			return strings.TrimSuffix(string(output), "\n"), err
		},
		CPUs: func(_ context.Context, pod *corev1.Pod) (string, error) {
			usage, err := host.ContainerUsage(pod, pod.Status.ContainerStatuses[0].ContainerID)
			return usage.CPUs, err
		},
	}
	t.Cleanup(func() {
		if t.Failed() {
			node.Tell(t)
		}
	})
	for _, archive := range node.Archives(t) {
		node.Run(t, filepath.Join(config.Tools, "ctr")+" --address="+cluster.RuntimeSocket()+" --namespace=k8s.io images import "+archive)
	}
	// It runs beside the companion, which must not touch it.
	node.CreateNamespace(t)
	beside := node.StartPod(t, rig.Pod("beside", rig.Partitioned, "cpu=50m memory=16Mi", ""))
	node.Call(t, "label", "node", host.NodeName, nodePool)
	config.Progress("installing the companion")
	overlay := node.InstallWith(t, filepath.Join("..", ".."), "exporterImage: partition-node\n  schedulerImage: topo-aware-scheduler",
		"exporterImage: "+node.Reference(t, "partition-node"),
		"kubeletCertificate: "+filepath.Join(host.Dir, "pki", "kubelet", "kubelet.crt"),
		"podResources: "+filepath.Join(cluster.KubeletDir(), "pod-resources"),
		"period: 2s")
	config.Progress("the companion is ready")

	story := func(name string, tell func(*testing.T)) {
		if !t.Run(name, tell) {
			t.FailNow()
		}
	}
	all, err := host.OnlineCPUs()
	if err != nil || all.Size() < 2 {
		t.Fatalf("the host has CPUs %s (%v), want two", all, err)
	}
	inPool := cpuset.New(0)
	story("kube-apiserver refuses a group with two selectors", func(t *testing.T) {
		two := strings.TrimSuffix(operator, "\n") + "\n    machineConfigPoolSelector: {matchLabels: {a: b}}\n"
		output, err := node.Try(t, two, "apply", "-f", "-")
		if err == nil || !strings.Contains(output, "exactly one of nodeSelector, machineConfigPoolSelector and poolName must be set") {
			t.Errorf("kubectl says %q (%v)", output, err)
		}
	})
	story("an exporter says how the kubelet runs, whose certificate is its own", func(t *testing.T) {
		began := time.Now()
		if output, err := node.Try(t, operator, "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		node.WaitFor(t, node.Limit, "the report is right", func() error { return right(t, node) })
		t.Logf("from the NUMAResourcesOperator to the first report: %s", time.Since(began).Round(100*time.Millisecond))
		now := topologyOf(t, node)
		t.Logf("the report: %s", rig.Shown(now))
		configz, err := node.Configz(t)
		if err != nil || configz["topologyManagerPolicy"] != policyAtFirst || rig.Attribute(now, "topologyManagerPolicy") != policyAtFirst || rig.Attribute(now, "topologyManagerScope") != "pod" {
			t.Errorf("the report says %v, and configz %v (%v)", now.Attributes, configz, err)
		}
		object := node.Object(t)
		if owners := now.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != object.UID {
			t.Errorf("its owners are %v, want the Node", owners)
		}
		node.WaitFor(t, node.Limit, "the operator is available", func() error {
			return conditions(t, node, map[string]string{"Available": "True", "Degraded": "False", "Progressing": "False", "PolicyUnknown": "False", "NodesDiffer": "False", "Stale": "False"})
		})
	})
	story("the CPUs of the pool are available to nobody", func(t *testing.T) {
		capacity, allocatable, available := cpusOf(topologyOf(t, node))
		if want := all.Difference(inPool).Size(); capacity != all.Size() || allocatable != want || available != want {
			t.Errorf("the zones have %d CPUs, of which %d are allocatable and %d available; want %d, and %d without the pool", capacity, allocatable, available, all.Size(), want)
		}
		if err := node.Has(t, beside, inPool); err != nil {
			t.Error(err)
		}
	})
	story("the exporter has no privilege but that it is root", func(t *testing.T) { checkPrivileges(t) })
	free := all.Difference(inPool).Size()
	story("an exclusive CPU is available to no other pod, until its pod is gone", func(t *testing.T) {
		before := rig.Attribute(topologyOf(t, node), podfingerprint.Attribute)
		began := time.Now()
		exclusive := node.StartPod(t, rig.Pod("exclusive", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi"))
		await(t, node, free-1)
		t.Logf("from the pod to the report: %s", time.Since(began).Round(100*time.Millisecond))
		t.Logf("the report: %s", rig.Shown(topologyOf(t, node)))
		own := node.CPUsOf(t, exclusive)
		if given := podsOf(t)[rig.PodNamespace+"/exclusive"]; own.String() != given || own.Size() != 1 {
			t.Errorf("the kernel lets the pod run on CPUs %s, and podresources say %s", own, given)
		}
		if rig.Attribute(topologyOf(t, node), podfingerprint.Attribute) == before {
			t.Error("the fingerprint is the same")
		}
		began = time.Now()
		node.RemovePod(t, "exclusive")
		await(t, node, free)
		t.Logf("from its end to the report: %s", time.Since(began).Round(100*time.Millisecond))
		if rig.Attribute(topologyOf(t, node), podfingerprint.Attribute) != before {
			t.Error("the fingerprint is not what it was")
		}
	})
	story("a finished pod has given back its CPU before it is deleted", func(t *testing.T) {
		pod := rig.Pod("finished", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Args = []string{"-c", "sleep 5"}
		node.StartPod(t, pod)
		await(t, node, free-1)
		await(t, node, free)
		now, err := cluster.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || now.Status.Phase != corev1.PodSucceeded {
			t.Errorf("the pod is %v (%v), want it to have succeeded", now.Status.Phase, err)
		}
		node.RemovePod(t, "finished")
	})
	story("a static pod's CPU is taken, too, under its mirror's name", func(t *testing.T) {
		pod := rig.Pod("static", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		manifest, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(host.ManifestDir, "static-numa.yaml")
		if err := os.WriteFile(path, manifest, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		await(t, node, free-1)
		print := podfingerprint.NewFingerprint(1)
		if err := print.Add(pod.Namespace, pod.Name+"-"+host.NodeName); err != nil {
			t.Fatal(err)
		}
		if got := rig.Attribute(topologyOf(t, node), podfingerprint.Attribute); got != print.Sign() {
			t.Errorf("the fingerprint is %s, want %s, of the mirror alone", got, print.Sign())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		await(t, node, free)
	})
	story("a fraction of a CPU takes none", func(t *testing.T) {
		before := topologyOf(t, node)
		node.StartPod(t, rig.Pod("burstable", nil, "cpu=100m memory=32Mi", ""))
		time.Sleep(5 * time.Second)
		if now := topologyOf(t, node); now.ResourceVersion != before.ResourceVersion {
			t.Errorf("it was written: %s, and was %s", rig.Shown(now), rig.Shown(before))
		}
		// Its memory is its own: it is Guaranteed.
		node.StartPod(t, rig.Pod("fraction", nil, "cpu=100m memory=32Mi", "cpu=100m memory=32Mi"))
		node.WaitFor(t, node.Limit, "the report is right", func() error { return right(t, node) })
		t.Logf("the report: %s", rig.Shown(topologyOf(t, node)))
		if _, _, available := cpusOf(topologyOf(t, node)); available != free {
			t.Errorf("%d CPUs are available, want %d", available, free)
		}
		node.RemovePod(t, "fraction")
		node.RemovePod(t, "burstable")
	})
	story("init containers and sidecars", func(t *testing.T) {
		// What an init container had, the next container has.
		pod := rig.Pod("after-init", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")
		first := pod.Spec.Containers[0]
		first.Name, first.Args = "init", []string{"-c", "sleep 3"}
		pod.Spec.InitContainers = []corev1.Container{first}
		node.StartPod(t, pod)
		await(t, node, free-1)
		node.RemovePod(t, "after-init")
		await(t, node, free)
		// A sidecar has its own beside it.
		before := memoryOf(topologyOf(t, node))
		pod = rig.Pod("with-sidecar", nil, "cpu=100m memory=32Mi", "cpu=100m memory=32Mi")
		side := rig.Pod("sidecar", nil, "cpu=50m memory=16Mi", "cpu=50m memory=16Mi").Spec.Containers[0]
		side.Name, side.RestartPolicy = "side", ptr.To(corev1.ContainerRestartPolicyAlways)
		first = *side.DeepCopy()
		first.Name, first.Args, first.RestartPolicy = "init", []string{"-c", "true"}, nil
		pod.Spec.InitContainers = []corev1.Container{first, side}
		node.StartPod(t, pod)
		node.WaitFor(t, node.Limit, "the report is right", func() error {
			if err := right(t, node); err != nil {
				return err
			}
			if taken := before - memoryOf(topologyOf(t, node)); taken != 48<<20 {
				return fmt.Errorf("%d bytes are taken, want those of the container and its sidecar", taken)
			}
			return nil
		})
		t.Logf("the report: %s", rig.Shown(topologyOf(t, node)))
		node.RemovePod(t, "with-sidecar")
		await(t, node, free)
	})
	story("a resource that is registered late is there within five seconds, and available as pods come and go", func(t *testing.T) {
		registerDevices(t)
		began := time.Now()
		awaitDevices := func(available string) {
			t.Helper()
			node.WaitFor(t, node.Limit, available+" devices are available", func() error {
				now, err := node.Report(t)
				if err != nil {
					return err
				}
				for _, r := range now.Zones[0].Resources {
					if r.Name == nic && r.Capacity.String()+"/"+r.Allocatable.String()+"/"+r.Available.String() == available {
						return right(t, node)
					}
				}
				return fmt.Errorf("the report is %s", rig.Shown(now))
			})
		}
		awaitDevices("2/2/2")
		took := time.Since(began)
		if t.Logf("from the registration to the report: %s", took.Round(100*time.Millisecond)); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		node.WaitFor(t, node.Limit, "the scheduler may place pods", func() error {
			if allocatable := node.Object(t).Status.Allocatable[nic]; allocatable.Value() != 2 {
				return fmt.Errorf("the Node has %s of them", allocatable.String())
			}
			return nil
		})
		node.StartPod(t, rig.Pod("wired", nil, "cpu=100m memory=16Mi "+nic+"=1", nic+"=1"))
		awaitDevices("2/2/1")
		node.RemovePod(t, "wired")
		awaitDevices("2/2/2")
	})
	story("an exporter's configuration is put back, and used", func(t *testing.T) {
		names := strings.Fields(node.Call(t, "get", "configmaps", "--namespace="+exporters, "--selector=nodetopology.openshift.io/group", "--output=name"))
		if len(names) != 1 {
			t.Fatalf("there are the ConfigMaps %q", names)
		}
		content := func() (string, error) {
			return node.Try(t, "", "get", names[0], "--namespace="+exporters, "--output=jsonpath={.data}")
		}
		before, err := content()
		if err != nil {
			t.Fatal(before, err)
		}
		node.Call(t, "patch", names[0], "--namespace="+exporters, "--type=merge", "--patch", `{"data":{"config.yaml":"paused: true"}}`)
		back := func() {
			t.Helper()
			node.WaitFor(t, node.Limit, "it is put back", func() error {
				now, err := content()
				if err == nil && now == before {
					return nil
				}
				return fmt.Errorf("it is %s (%v)", now, err)
			})
		}
		back()
		node.Call(t, "delete", names[0], "--namespace="+exporters)
		back()
		began := time.Now()
		node.Call(t, "patch", "numaresourcesoperators", "numaresourcesoperator", "--type=json", "--patch", `[{"op":"add","path":"/spec/nodeGroups/0/config","value":{"podsFingerprinting":"Enabled"}}]`)
		node.WaitFor(t, node.Limit, "the exporter does as it says", func() error {
			if method := rig.Attribute(topologyOf(t, node), podfingerprint.AttributeMethod); method != podfingerprint.MethodAll {
				return fmt.Errorf("the fingerprint is of the pods %q", method)
			}
			return nil
		})
		t.Logf("from the group's config to the report: %s", time.Since(began).Round(100*time.Millisecond))
		print := podfingerprint.NewFingerprint(0)
		for name := range podsOf(t) {
			namespace, pod, _ := strings.Cut(name, "/")
			if err := print.Add(namespace, pod); err != nil {
				t.Fatal(err)
			}
		}
		if got := rig.Attribute(topologyOf(t, node), podfingerprint.Attribute); got != print.Sign() {
			t.Errorf("the fingerprint is %s, want %s, of all pods", got, print.Sign())
		}
	})
	story("it writes nothing at rest, and takes little", func(t *testing.T) {
		node.WaitFor(t, node.Limit, "the devices of a plugin that has ended are gone", func() error {
			now, err := node.Report(t)
			if err == nil && strings.Contains(rig.Shown(now), nic) {
				err = fmt.Errorf("the report is %s", rig.Shown(now))
			}
			return err
		})
		before := topologyOf(t, node).ResourceVersion
		const rest = 20 * time.Second
		used := cpuTime(t)
		time.Sleep(rest)
		t.Logf("at rest the exporter takes %.1f thousandths of a CPU", 1000*(cpuTime(t)-used)/rest.Seconds())
		if now := topologyOf(t, node).ResourceVersion; now != before {
			t.Errorf("the resource version is %s, and was %s", now, before)
		}
		status, err := exporter(t).NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		if t.Logf("the exporter takes %.1f MiB", float64(status.RssAnon)/(1<<20)); status.RssAnon > 30<<20 {
			t.Errorf("the exporter takes %d bytes", status.RssAnon)
		}
	})
	story("a kubelet that starts with another policy is reported with that", func(t *testing.T) {
		// It sees the host's huge pages when it starts.
		reserveHugePages(t, hugePages)
		restartKubelet(t, func(c *host.Config) {
			c.KubeletConfiguration = strings.Replace(c.KubeletConfiguration, policyAtFirst, "restricted", 1)
		})
		began := time.Now()
		node.WaitFor(t, node.Limit, "the report has it", func() error {
			if err := right(t, node); err != nil {
				return err
			}
			if policy := rig.Attribute(topologyOf(t, node), "topologyManagerPolicy"); policy != "restricted" {
				return fmt.Errorf("the policy is %s", policy)
			}
			return nil
		})
		t.Logf("from the kubelet's start to the report: %s", time.Since(began).Round(100*time.Millisecond))
	})
	story("huge pages that a pod has are available to no other", func(t *testing.T) {
		awaitPages := func(want string) {
			t.Helper()
			node.WaitFor(t, node.Limit, "the huge pages are "+want, func() error {
				if now := rig.Shown(topologyOf(t, node)); !strings.Contains(now, "node-0 hugepages-2Mi "+want+", ") {
					return fmt.Errorf("the report is %s", now)
				}
				return right(t, node)
			})
		}
		awaitPages("32Mi/32Mi/32Mi")
		node.StartPod(t, rig.Pod("huge", nil, "cpu=100m memory=32Mi hugepages-2Mi=4Mi", "cpu=100m memory=32Mi hugepages-2Mi=4Mi"))
		awaitPages("32Mi/32Mi/28Mi")
		node.RemovePod(t, "huge")
		awaitPages("32Mi/32Mi/32Mi")
	})
	story("a kubelet whose CPU manager has the policy none gives no CPUs by NUMA node", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it starts the kubelet twice")
		}
		for _, policy := range []string{"none", "static"} {
			restartKubelet(t, func(c *host.Config) { c.CPUManagerPolicy = policy })
			began := time.Now()
			node.WaitFor(t, node.Limit, "the report has it", func() error {
				if is := rig.Attribute(topologyOf(t, node), "cpuManagerPolicy"); is != policy {
					return fmt.Errorf("the policy is %s", is)
				}
				return right(t, node)
			})
			t.Logf("%s: from the kubelet's start to the report: %s", policy, time.Since(began).Round(100*time.Millisecond))
			if capacity, _, _ := cpusOf(topologyOf(t, node)); (capacity == 0) != (policy == "none") {
				t.Errorf("with the policy %s the zones have %d CPUs", policy, capacity)
			}
		}
	})
	story("a kubelet that sees two NUMA nodes gives CPUs of one of them", func(t *testing.T) { tellOfTwoNUMANodes(t, node) })
	story("nothing is left after it is uninstalled, and no other pod was touched", func(t *testing.T) {
		node.Uninstall(t, overlay)
		if output, err := node.Try(t, "", "get", "noderesourcetopologies.topology.node.k8s.io"); err == nil || !strings.Contains(output, "the server doesn't have a resource type") {
			t.Errorf("kubectl says %q (%v)", output, err)
		}
		now, err := cluster.Client.CoreV1().Pods(beside.Namespace).Get(t.Context(), beside.Name, metav1.GetOptions{})
		if err != nil || now.UID != beside.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the pod beside is %+v (%v)", now.Status, err)
		}
	})
}

// hugePages is how many of 2 MiB the test takes from the host meanwhile.
const hugePages = 16

// reserveHugePages has the kernel set huge pages of the default size aside until the end of the test binary's tests.
func reserveHugePages(t *testing.T, number int) {
	t.Helper()
	const path = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	afterwards = append(afterwards, func() error { return os.WriteFile(path, before, 0) })
	if err := os.WriteFile(path, []byte(strconv.Itoa(number)), 0); err != nil {
		t.Fatal(err)
	}
}

// restartKubelet stops the kubelet, forgets what its managers noted, and starts it with another configuration.
func restartKubelet(t *testing.T, change func(*host.Config)) {
	t.Helper()
	if err := cluster.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"memory_manager_state", "cpu_manager_state"} {
		if err := os.Remove(filepath.Join(cluster.KubeletDir(), state)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	change(&cluster.Config)
	if err := cluster.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// memoryOf is how many bytes of memory the first zone has available.
func memoryOf(topology *v1alpha2.NodeResourceTopology) int64 {
	for _, r := range topology.Zones[0].Resources {
		if r.Name == "memory" {
			return r.Available.Value()
		}
	}
	return 0
}

func topologyOf(t *testing.T, node *rig.Node) *v1alpha2.NodeResourceTopology {
	t.Helper()
	now, err := node.Report(t)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// cpusOf sums the CPUs of all zones.
func cpusOf(topology *v1alpha2.NodeResourceTopology) (capacity, allocatable, available int) {
	for _, zone := range topology.Zones {
		for _, r := range zone.Resources {
			if r.Name == "cpu" {
				capacity, allocatable, available = capacity+int(r.Capacity.Value()), allocatable+int(r.Allocatable.Value()), available+int(r.Available.Value())
			}
		}
	}
	return capacity, allocatable, available
}

// await waits until so many CPUs are available, by the report and by what the kubelet says.
func await(t *testing.T, node *rig.Node, available int) {
	t.Helper()
	node.WaitFor(t, node.Limit, fmt.Sprintf("%d CPUs are available", available), func() error {
		now, err := node.Report(t)
		if err != nil {
			return err
		}
		if _, _, is := cpusOf(now); is != available {
			return fmt.Errorf("the report is %s", rig.Shown(now))
		}
		return right(t, node)
	})
}

// right compares the report with podresources, sysfs, configz and checkpoints, as the test reads them.
func right(t *testing.T, node *rig.Node) error {
	t.Helper()
	numa, err := readNUMA(t)
	if err != nil {
		return err
	}
	now, err := node.RightReport(t, numa)
	if err != nil {
		return err
	}
	allocatable, err := cpuset.Parse(numa.Allocatable)
	if err != nil {
		return err
	}
	return agreesWithCheckpoints(t, now, allocatable)
}

func readNUMA(t *testing.T) (rig.NUMA, error) {
	return rig.ReadNUMA(t.Context(), sysfs, filepath.Join(cluster.KubeletDir(), "pod-resources", "kubelet.sock"))
}

// podsOf are the kubelet's pods, with the CPUs that each has got for itself.
func podsOf(t *testing.T) map[string]string {
	t.Helper()
	numa, err := readNUMA(t)
	if err != nil {
		t.Fatal(err)
	}
	return numa.Pods
}

// agreesWithCheckpoints compares a report with what the kubelet's CPU and memory managers note for themselves of pods that have not
// ended: they forget the others later. The exporter reads none of that.
func agreesWithCheckpoints(t *testing.T, now *v1alpha2.NodeResourceTopology, allocatable cpuset.CPUSet) error {
	t.Helper()
	var cpus struct {
		Entries map[string]map[string]string `json:"entries"`
	}
	var memory struct {
		Machine map[string]struct {
			Memory map[string]struct {
				Allocatable int64 `json:"allocatable"`
			} `json:"memoryMap"`
		} `json:"machineState"`
		Entries map[string]map[string][]struct {
			NUMANodes []int  `json:"numaAffinity"`
			Type      string `json:"type"`
			Size      int64  `json:"size"`
		} `json:"entries"`
	}
	for name, into := range map[string]any{"cpu_manager_state": &cpus, "memory_manager_state": &memory} {
		data, err := os.ReadFile(filepath.Join(cluster.KubeletDir(), name))
		if os.IsNotExist(err) {
			continue // its policy has none
		}
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	list, err := cluster.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	free, taken := allocatable, map[string]int64{}
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		uid := string(pod.UID)
		if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
			uid = hash // a mirror's pod
		}
		for _, text := range cpus.Entries[uid] {
			given, err := cpuset.Parse(text)
			if err != nil {
				return err
			}
			free = free.Difference(given)
		}
		for _, blocks := range memory.Entries[uid] {
			for _, block := range blocks {
				taken[fmt.Sprintf("node-%d %s", block.NUMANodes[0], block.Type)] += block.Size
			}
		}
	}
	if _, _, available := cpusOf(now); available != free.Size() {
		return fmt.Errorf("the zones have %d CPUs available, and by the CPU manager's checkpoint %s are free", available, free)
	}
	for _, zone := range now.Zones {
		for kind, of := range memory.Machine[strings.TrimPrefix(zone.Name, "node-")].Memory {
			for _, r := range zone.Resources {
				want := of.Allocatable - taken[zone.Name+" "+kind]
				if r.Name == kind && (r.Allocatable.Value() != of.Allocatable || r.Available.Value() != want) {
					return fmt.Errorf("of %s the zone %s has %d and %d available, and by the memory manager's checkpoint %d and %d", kind, zone.Name, r.Allocatable.Value(), r.Available.Value(), of.Allocatable, want)
				}
			}
		}
	}
	return nil
}

// conditions compares conditions of the NUMAResourcesOperator.
func conditions(t *testing.T, node *rig.Node, want map[string]string) error {
	t.Helper()
	output := node.Call(t, "get", "numaresourcesoperators", "numaresourcesoperator", "--output=json")
	var object struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(output), &object); err != nil {
		return err
	}
	is := map[string]string{}
	for _, condition := range object.Status.Conditions {
		is[condition.Type] = string(condition.Status)
	}
	for kind, status := range want {
		if is[kind] != status {
			return fmt.Errorf("%s is %q, want %s: %+v", kind, is[kind], status, object.Status.Conditions)
		}
	}
	return nil
}

// exporter finds the exporter's process.
func exporter(t *testing.T) procfs.Proc {
	t.Helper()
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if args, err := process.CmdLine(); err == nil && len(args) > 1 && filepath.Base(args[0]) == "partition-node" && args[1] == "topology" {
			return process
		}
	}
	t.Fatal("no exporter runs")
	return procfs.Proc{}
}

// cpuTime is how many seconds of CPU time the exporter has taken.
func cpuTime(t *testing.T) float64 {
	t.Helper()
	stat, err := exporter(t).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.CPUTime()
}

// checkPrivileges asks the kernel what the exporter may do.
func checkPrivileges(t *testing.T) {
	process := exporter(t)
	status, err := process.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	if status.UIDs[0] != 0 {
		t.Errorf("its users are %v, want root, whose the kubelet's socket is", status.UIDs)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		if strings.HasPrefix(key, "Cap") && strings.Trim(value, "0") != "" || key == "NoNewPrivs" && value != "1" || key == "Seccomp" && value != "2" {
			t.Errorf("its %s is %s", key, value)
		}
	}
	ours, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := process.Namespaces()
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := ours.Namespaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		if theirs[kind].Inode == hosts[kind].Inode {
			t.Errorf("it has the host's %s namespace", kind)
		}
	}
	mounts, err := procfs.GetProcMounts(process.PID)
	if err != nil {
		t.Fatal(err)
	}
	// What the kubelet and the runtime make for each pod.
	own := []string{"/etc/hosts", "/dev/termination-log"}
	kernels := []string{"proc", "tmpfs", "devpts", "mqueue"}
	for _, mount := range mounts {
		_, writable := mount.Options["rw"]
		if writable && !slices.Contains(kernels, mount.FSType) && !slices.Contains(own, mount.MountPoint) {
			t.Errorf("it can write %s (%s): %s", mount.MountPoint, mount.FSType, mount.Source)
		}
	}
	t.Logf("the exporter is process %s, with these mounts of the host: %s", strconv.Itoa(process.PID), hostMounts(mounts))
}

func hostMounts(mounts []*procfs.MountInfo) string {
	var names []string
	for _, mount := range mounts {
		if strings.HasPrefix(mount.MountPoint, "/run/") || strings.HasPrefix(mount.MountPoint, "/etc/partition") {
			names = append(names, mount.MountPoint+" from "+mount.Root)
		}
	}
	return strings.Join(names, ", ")
}
