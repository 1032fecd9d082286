// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	virtv1 "kubevirt.io/api/core/v1"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// testPod returns a Guaranteed pod of which each container asks for one of the amounts of cpu.
func testPod(name string, cpu ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name)}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}}
	for i, amount := range cpu {
		list := "memory=1Mi cpu=" + amount
		pod.Spec.Containers = append(pod.Spec.Containers, podtest.Container(fmt.Sprintf("c%d", i), list, list))
	}
	return pod
}

// with changes a pod.
func with(pod corev1.Pod, changes ...func(*corev1.Pod)) corev1.Pod {
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

func burstable(pod *corev1.Pod) { pod.Status.QOSClass = corev1.PodQOSBurstable }
func failed(pod *corev1.Pod)    { pod.Status.Phase = corev1.PodFailed }

func selects(label, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{label: value} }
}

// testNode returns a node with four CPUs, of which it reserves 100m.
func testNode(name string) *corev1.Node {
	capacity := podtest.List("cpu=4 memory=8Gi pods=5")
	allocatable := podtest.List("cpu=3900m memory=8Gi pods=5")
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{Label: "false", virtv1.CPUManager: "false"}}, Status: corev1.NodeStatus{Capacity: capacity, Allocatable: allocatable}}
}

// clusterNode returns a Ready node with further labels, given as key=value.
func clusterNode(name string, labels ...string) *corev1.Node {
	node := testNode(name)
	node.Annotations = map[string]string{}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	return node
}

func notReady(node *corev1.Node) *corev1.Node {
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	return node
}

func cordoned(node *corev1.Node) *corev1.Node {
	node.Spec.Unschedulable = true
	return node
}

func tainted(node *corev1.Node, effect corev1.TaintEffect) *corev1.Node {
	node.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}}
	return node
}

// unchanged fails the test if the node of a situation is another at its end.
func unchanged(t *testing.T, s Situation) Situation {
	before := s.Node.DeepCopy()
	t.Cleanup(func() {
		if !equality.Semantic.DeepEqual(s.Node, before) {
			t.Errorf("the node was changed: %v", s.Node)
		}
	})
	return s
}

func annotated(node *corev1.Node, status string) *corev1.Node {
	node.Annotations[nodestatus.StatusAnnotation] = status
	return node
}

func vmi(name, node string, changes ...func(*virtv1.VirtualMachineInstance)) virtv1.VirtualMachineInstance {
	m := virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "v", Name: name, UID: types.UID("vmi-" + name)}}
	m.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	m.Status.NodeName, m.Status.Phase = node, virtv1.Running
	for _, change := range changes {
		change(&m)
	}
	return m
}

// machine returns a VirtualMachine that is stopped, and is pinned once it starts.
func machine(name string, changes ...func(*virtv1.VirtualMachine)) virtv1.VirtualMachine {
	m := virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "v", Name: name}, Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}
	m.Spec.Template.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func launcher(vmi string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{virtv1.CreatedByLabel: "vmi-" + vmi} }
}

func kubeVirt(gates, disabled []string) *virtv1.KubeVirt {
	return &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}, Spec: virtv1.KubeVirtSpec{Configuration: virtv1.KubeVirtConfiguration{
		DeveloperConfiguration: &virtv1.DeveloperConfiguration{FeatureGates: gates, DisabledFeatureGates: disabled}}}}
}

func TestPreconditions(t *testing.T) {
	const control = "node-role.kubernetes.io/control-plane="
	static, none := Request{Policy: Static}, Request{Policy: None}
	reserves := readmission.Kubelet{Reserved: resource.MustParse("100m")}
	on := func(node *corev1.Node, change func(*Situation)) Situation {
		s := Situation{Node: node, Kubelet: reserves, Nodes: []corev1.Node{*node}}
		if change != nil {
			change(&s)
		}
		return s
	}
	pods := func(pods ...corev1.Pod) func(*Situation) { return func(s *Situation) { s.Pods = pods } }
	nodes := func(nodes ...*corev1.Node) func(*Situation) {
		return func(s *Situation) {
			for _, node := range nodes {
				s.Nodes = append(s.Nodes, *node)
			}
		}
	}
	claimed := func(node *corev1.Node) func(*Situation) {
		return func(s *Situation) {
			nodes(node)(s)
			s.ForeignClaims = map[string]string{node.Name: "tuning for the operation t1"}
		}
	}
	vms := func(vms []virtv1.VirtualMachineInstance, others ...*corev1.Node) func(*Situation) {
		return func(s *Situation) { s.VMs = vms; nodes(others...)(s) }
	}
	machines := func(machines []virtv1.VirtualMachine, others ...*corev1.Node) func(*Situation) {
		return func(s *Situation) { s.Machines = machines; nodes(others...)(s) }
	}
	waits := func(m *virtv1.VirtualMachine) { m.Status.Created = true }
	notDedicated := func(m *virtv1.VirtualMachine) { m.Spec.Template.Spec.Domain.CPU = nil }
	goes := func(m *virtv1.VirtualMachine) { m.DeletionTimestamp = &metav1.Time{} }
	for _, test := range []struct {
		name      string
		request   Request
		situation Situation
		want      []string // code, object and parts of the rest, with | between; a leading ? means a warning
	}{
		{"nothing prevents static", static, on(clusterNode("n1"), pods(testPod("a", "2"))), nil},
		{"nothing prevents none", none, on(clusterNode("n1"), pods(with(testPod("a", "2"), burstable))), nil},

		{"static already", static, on(clusterNode("n1"), func(s *Situation) { s.InForce = Static }), []string{"AlreadyInForce|node n1|static already"}},
		{"none already", none, on(clusterNode("n1"), func(s *Situation) { s.InForce = None }), []string{"AlreadyInForce|node n1|none already"}},
		{"the label is not the truth", static, on(clusterNode("n1", Label+"=true"), nil), nil},

		{"asked for before", static, on(annotated(clusterNode("n1"), `{"status":"requested","policy":"none"}`), nil), []string{"OperationUnderWay|node n1|policy none is requested|wait"}},
		{"running", static, on(annotated(clusterNode("n1"), `{"status":"running","policy":"static","id":"a1"}`), nil), []string{"OperationUnderWay|node n1|policy static is running"}},
		{"this very operation", Request{ID: "a1", Policy: Static}, on(annotated(clusterNode("n1"), `{"status":"running","policy":"static","id":"a1"}`), nil), nil},
		{"another than this operation", Request{ID: "b2", Policy: Static}, on(annotated(clusterNode("n1"), `{"status":"running","policy":"static","id":"a1"}`), nil), []string{"OperationUnderWay|node n1"}},
		{"an ended one", static, on(annotated(clusterNode("n1"), `{"status":"failed","policy":"static","id":"a1"}`), nil), nil},
		{"a status that cannot be parsed", static, on(annotated(clusterNode("n1"), `{"status":"runn`), nil), nil},

		{"KubeVirt with its gate", static, on(clusterNode("n1"), func(s *Situation) { s.KubeVirt = kubeVirt([]string{"Snapshot", "CPUManager"}, nil) }), nil},
		{"KubeVirt without its gate", static, on(clusterNode("n1"), func(s *Situation) { s.KubeVirt = kubeVirt([]string{"Snapshot"}, nil) }), []string{"FeatureGateOff|KubeVirt kubevirt/kubevirt|CPUManager off|featureGates"}},
		{"KubeVirt with its gate disabled", static, on(clusterNode("n1"), func(s *Situation) { s.KubeVirt = kubeVirt([]string{"CPUManager"}, []string{"CPUManager"}) }), []string{"FeatureGateOff|"}},
		{"KubeVirt as installed", static, on(clusterNode("n1"), func(s *Situation) { s.KubeVirt = &virtv1.KubeVirt{} }), []string{"FeatureGateOff|"}},
		{"the way back to none is open without the gate", none, on(clusterNode("n1"), func(s *Situation) { s.KubeVirt = kubeVirt(nil, nil) }), []string{"?FeatureGateOff|"}},

		{"pinned machines on the node", none, on(clusterNode("n1"), vms([]virtv1.VirtualMachineInstance{vmi("b", "n1"), vmi("a", "n1")}, clusterNode("n2", Label+"=true"), clusterNode("n3"), clusterNode("n4", Label+"=true"))),
			[]string{"PinnedMachine|VirtualMachineInstance v/a|dedicatedCpuPlacement|migrate it (to n2, n4), or stop it", "PinnedMachine|VirtualMachineInstance v/b"}},
		{"a pinned machine with nowhere to go", none, on(clusterNode("n1", Label+"=true"), vms([]virtv1.VirtualMachineInstance{vmi("a", "n1")}, cordoned(clusterNode("n2", Label+"=true")), notReady(clusterNode("n3", Label+"=true")))),
			[]string{"PinnedMachine|VirtualMachineInstance v/a|stop it: no other node"}},
		{"a pinned machine that migrates to the node", none, on(clusterNode("n1"), vms([]virtv1.VirtualMachineInstance{vmi("a", "n2", func(m *virtv1.VirtualMachineInstance) {
			m.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{TargetNode: "n1"}
		})})), []string{"PinnedMachine|VirtualMachineInstance v/a"}},
		{"machines that are not pinned, have ended, are elsewhere or have left", none, on(clusterNode("n1"), vms([]virtv1.VirtualMachineInstance{
			vmi("a", "n1", func(m *virtv1.VirtualMachineInstance) { m.Spec.Domain.CPU = nil }),
			vmi("b", "n1", func(m *virtv1.VirtualMachineInstance) { m.Status.Phase = virtv1.Succeeded }),
			vmi("c", "n2", func(m *virtv1.VirtualMachineInstance) {
				m.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{TargetNode: "n1", Failed: true}
			}),
		}, clusterNode("n2", Label+"=true"), clusterNode("n3", Label+"=true"))), nil},
		{"a pinned machine elsewhere loses its last target", none, on(clusterNode("n1", Label+"=true"), vms([]virtv1.VirtualMachineInstance{vmi("a", "n2"), vmi("b", "")}, clusterNode("n2", Label+"=true"), clusterNode("n3", Label+"=false"))),
			[]string{"?NoMigrationTarget|VirtualMachineInstance v/a|on node n2 has no other node to migrate to"}},
		{"stopped machines with the last static node", none, on(clusterNode("n1", Label+"=true"), machines([]virtv1.VirtualMachine{machine("b"), machine("a", waits), machine("c", notDedicated), machine("d", goes)}, clusterNode("n2", Label+"=false"))),
			[]string{"?NoStaticNode|VirtualMachine v/a|waits for a restart to get dedicatedCpuPlacement|give another node the policy static", "?NoStaticNode|VirtualMachine v/b|has dedicatedCpuPlacement and does not run: no node with the policy static is left"}},
		{"stopped machines with another static node, which is down just now", none, on(clusterNode("n1", Label+"=true"), machines([]virtv1.VirtualMachine{machine("a")}, notReady(clusterNode("n2", Label+"=true")))), nil},
		{"a machine that runs is named once", none, on(clusterNode("n1", Label+"=true"), func(s *Situation) {
			machines([]virtv1.VirtualMachine{machine("a", waits)})(s)
			s.VMs = []virtv1.VirtualMachineInstance{vmi("a", "n1")}
		}), []string{"PinnedMachine|VirtualMachineInstance v/a"}},
		{"stopped machines do not matter to static", static, on(clusterNode("n1"), machines([]virtv1.VirtualMachine{machine("a")})), nil},
		{"pinned machines do not matter to static", static, on(clusterNode("n1"), vms([]virtv1.VirtualMachineInstance{vmi("a", "n1"), vmi("b", "n2")})), nil},

		{"pods that may have exclusive CPUs, as far as the API shows it", none, on(clusterNode("n1"), pods(testPod("a", "1", "500m"), testPod("b", "500m"), with(testPod("c", "1"), failed))),
			[]string{"ExclusivePod|pod d/a|whole CPUs (1)|delete it"}},
		{"no pod can have under none", none, on(clusterNode("n1"), func(s *Situation) { s.InForce = None; s.Pods = []corev1.Pod{testPod("a", "1")} }), []string{"AlreadyInForce|node n1|none already"}},
		{"no pod could have under none, when it was observed", none, on(clusterNode("n1"), func(s *Situation) { s.Seen, s.Pods = None, []corev1.Pod{testPod("a", "1")} }), []string{"?ExclusivePod|pod d/a"}},
		{"pods could have under static, when it was observed", none, on(clusterNode("n1"), func(s *Situation) { s.Seen, s.Pods = Static, []corev1.Pod{testPod("a", "1")} }), []string{"ExclusivePod|pod d/a"}},
		{"the pod of a machine is named once", none, on(clusterNode("n1"), func(s *Situation) {
			vms([]virtv1.VirtualMachineInstance{vmi("a", "n1")}, clusterNode("n2", Label+"=true"))(s)
			s.Pods = []corev1.Pod{with(testPod("virt-launcher-a", "1"), launcher("a")), with(testPod("virt-launcher-gone", "1"), launcher("gone"))}
		}), []string{"PinnedMachine|VirtualMachineInstance v/a", "ExclusivePod|pod d/virt-launcher-gone"}},

		{"static without a reservation", static, on(clusterNode("n1"), func(s *Situation) { s.Kubelet.Reserved = resource.Quantity{} }), []string{"NoReservation|node n1|would not start|reserve"}},
		{"static without a reservation, as far as the kubelet that runs shows it", static, on(clusterNode("n1"), func(s *Situation) { s.Kubelet.Reserved, s.Seen = resource.Quantity{}, None }), []string{"?NoReservation|node n1"}},
		{"static with a pool", static, on(clusterNode("n1"), func(s *Situation) { s.Kubelet.Reserved, s.Kubelet.ReservedCPUs = resource.Quantity{}, cpuset.New(0, 1) }), nil},
		{"none without a reservation", none, on(clusterNode("n1"), func(s *Situation) { s.Kubelet.Reserved = resource.Quantity{} }), nil},

		{"static where a DRA driver gives the CPUs", static, on(clusterNode("n1"), func(s *Situation) { s.CPUDriver = "dra.cpu" }), []string{"CPUDriver|node n1|DRA driver dra.cpu|remove the driver"}},
		{"none where a DRA driver gives the CPUs", none, on(clusterNode("n1"), func(s *Situation) { s.CPUDriver = "dra.cpu" }), nil},

		{"pods that the restarted kubelet rejects", static, on(clusterNode("n1"), pods(testPod("b", "4"), testPod("a", "4"))),
			[]string{"PodRejected|pod d/a|UnexpectedAdmissionError|--allow-evicted", "PodRejected|pod d/b|UnexpectedAdmissionError"}},
		{"more pods than are looked at", static, on(clusterNode("n1"), func(s *Situation) { s.Pods, s.MorePods = []corev1.Pod{testPod("a", "1")}, true }), []string{"?PodMayBeRejected|node n1|more than 1 pods"}},
		{"accepted", Request{Policy: Static, AllowEvicted: true}, on(clusterNode("n1"), pods(testPod("b", "4"))), []string{"?PodRejected|pod d/b"}},
		{"pods that it may reject", static, on(clusterNode("n1"), func(s *Situation) { s.Kubelet.TopologyPolicy, s.Pods = "restricted", []corev1.Pod{testPod("a", "2")} }), []string{"?PodMayBeRejected|pod d/a|NUMA"}},
		{"pods that want the label of the other policy", none, on(clusterNode("n1", Label+"=true"), pods(with(testPod("a", "100m"), selects(Label, "true")))), []string{"PodRejected|pod d/a|requires of its node cpumanager=true, which has cpumanager=false after the switch|NodeAffinity|another node"}},
		{"pods that want KubeVirt's label of the other policy", static, on(clusterNode("n1"), pods(with(testPod("a", "100m"), selects(virtv1.CPUManager, "false")))),
			[]string{"PodRejected|pod d/a|requires of its node kubevirt.io/cpumanager=false, which has kubevirt.io/cpumanager=true after the switch"}},
		{"pods that want the label of the new policy", static, on(clusterNode("n1"), pods(with(testPod("a", "100m"), selects(Label, "true")))), nil},
		{"a pod whose label has gone, whatever the policy is", static, on(clusterNode("n1", "kubevirt.io/schedulable=false"), pods(with(testPod("a", "100m"), selects("kubevirt.io/schedulable", "true")))),
			[]string{"PodRejected|pod d/a|requires of its node kubevirt.io/schedulable=true, which has kubevirt.io/schedulable=false: the restarted kubelet rejects it (NodeAffinity)|wait until the node is as the pod requires"}},
		{"a pod that does not tolerate a taint that has come", static, on(tainted(clusterNode("n1"), corev1.TaintEffectNoExecute), pods(testPod("a", "100m"))), []string{"PodRejected|pod d/a|does not tolerate the taint k=v:NoExecute|TaintToleration|wait until"}},
		{"a taint that keeps pods away, and ends none", static, on(tainted(clusterNode("n1"), corev1.TaintEffectNoSchedule), pods(testPod("a", "100m"))), nil},
		{"the situation of the node is not changed", static, unchanged(t, on(clusterNode("n1"), pods(testPod("a", "100m")))), nil},

		{"the control plane is whole", static, on(clusterNode("n1", control), nodes(clusterNode("n2", control), notReady(clusterNode("worker")))), nil},
		{"a worker does not care", static, on(clusterNode("worker"), nodes(notReady(clusterNode("n1", control)))), nil},
		{"another of the control plane is down", static, on(clusterNode("n1", control), nodes(notReady(clusterNode("n3", "node-role.kubernetes.io/etcd=true")), notReady(clusterNode("n2", "node-role.kubernetes.io/master=")))),
			[]string{"ControlPlaneNotReady|node n2|not Ready", "ControlPlaneNotReady|node n3"}},
		{"another companion has one of the control plane", static, on(clusterNode("n1", control), claimed(clusterNode("n2", control))), []string{"ControlPlaneUnderWay|node n2|claimed by tuning for the operation t1"}},
		{"another companion has an ordinary node", static, on(clusterNode("n1", control), claimed(clusterNode("n2"))), nil},
		{"another of the control plane is under way", static, on(clusterNode("n1", control), nodes(annotated(clusterNode("n2", control), `{"status":"running","policy":"none","id":"x"}`))), []string{"ControlPlaneUnderWay|node n2|policy none is running"}},
		{"another of the control plane waits as well", static, on(clusterNode("n1", control), nodes(annotated(clusterNode("n2", control), `{"status":"requested","policy":"none","id":"x"}`))), nil},
		{"another has the lock", Request{ID: "b2", Policy: Static}, on(clusterNode("n1", control), func(s *Situation) {
			nodes(annotated(clusterNode("n2", control), `{"status":"requested","policy":"none","id":"x"}`))(s)
			s.Lock = Lock{"", "x", "n2"}
		}), []string{"ControlPlaneUnderWay|node n2|lock|operation x"}},
		{"an operation of another companion has the lock, with the same id", Request{ID: "b2", Policy: Static}, on(clusterNode("n1", control), func(s *Situation) { s.Lock = Lock{"tuning", "b2", "n2"} }),
			[]string{"ControlPlaneUnderWay|node n2|lock of the control plane for the operation b2 of tuning"}},
		{"this operation has the lock", Request{ID: "b2", Policy: Static}, on(clusterNode("n1", control), func(s *Situation) { s.Lock = Lock{"", "b2", "n1"} }), nil},

		{"the agent refuses", none, on(clusterNode("n1"), func(s *Situation) { s.Refused = operation.Refuse("/etc/k/a.conf:7: options beside none") }), []string{"NodeRefuses|node n1|/etc/k/a.conf:7: options beside none|observe"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Preconditions(test.request, test.situation)
			var lines []string
			refused := false
			for _, f := range got {
				lines = append(lines, string(f.Code)+" "+f.String())
				refused = refused || !f.Warning
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %d findings, want %d: %s", len(got), len(test.want), strings.Join(lines, "\n"))
			}
			for i, f := range got {
				parts := strings.Split(test.want[i], "|")
				code, warning := strings.CutPrefix(parts[0], "?")
				if string(f.Code) != code || f.Warning != warning || parts[1] != "" && f.Object != parts[1] {
					t.Errorf("got %s (warning: %v), want %s", lines[i], f.Warning, test.want[i])
				}
				for _, part := range parts[2:] {
					if !strings.Contains(f.String(), part) {
						t.Errorf("%q lacks %q", f.String(), part)
					}
				}
			}
			if Refused(got) != refused {
				t.Errorf("Refused: %v", !refused)
			}
		})
	}
}

// A kubelet writes what its node has. Whatever that is, it keeps nobody busy, and takes no memory to speak of.
func TestPreconditionsWithAnyNumberOfCPUs(t *testing.T) {
	const most = 512 << 20 // bytes, freed ones included
	var pods []corev1.Pod
	for i := range 50 {
		pods = append(pods, testPod(fmt.Sprintf("p%02d", i), "2"))
	}
	for _, test := range []struct {
		name, capacity, allocatable string
		maybe                       bool
	}{
		{"as many as Linux can have", "8192", "1", false},
		{"as many as Linux can have, all of them for pods", "8192", "8192", true},
		{"as many as are looked at for so many pods", "5242", "5242", false},
		{"one more", "8193", "8193", true},
		{"as many as a quantity can have, one of them for pods", "1E", "1", false},
		{"as many as a quantity can have, all of them for pods", "1E", "1E", true},
		{"fewer than it gives to pods", "1", "1E", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := clusterNode("n1")
			node.Status.Capacity[corev1.ResourcePods], node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110"), resource.MustParse("110")
			node.Status.Capacity[corev1.ResourceCPU], node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(test.capacity), resource.MustParse(test.allocatable)
			s := Situation{Node: node, Pods: pods, Kubelet: readmission.Kubelet{Reserved: readmission.ReservedNow(node)}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			findings := Preconditions(Request{Policy: Static}, s)
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
				t.Errorf("it took %d MiB", allocated>>20)
			}
			maybe := slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == PodMayBeRejected && strings.Contains(f.Text, " CPUs") })
			if maybe != test.maybe {
				t.Errorf("that nobody knows the CPUs is said: %v, want %v, in %d findings such as %v", maybe, test.maybe, len(findings), findings[:min(1, len(findings))])
			}
		})
	}
}
