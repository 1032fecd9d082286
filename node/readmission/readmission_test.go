// SPDX-License-Identifier: Apache-2.0

package readmission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// testPod returns a pod of which each container asks for one of the amounts of cpu, and for as much
// memory as is left out of account. It is Guaranteed.
func testPod(name string, cpu ...string) v1.Pod {
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name)}, Status: v1.PodStatus{QOSClass: v1.PodQOSGuaranteed}}
	for i, amount := range cpu {
		pod.Spec.Containers = append(pod.Spec.Containers, testContainer(fmt.Sprintf("c%d", i), amount))
	}
	return pod
}

func testContainer(name, cpu string) v1.Container {
	list := "memory=1Mi cpu=" + cpu
	return podtest.Container(name, list, list)
}

// with changes a pod.
func with(pod v1.Pod, changes ...func(*v1.Pod)) v1.Pod {
	for _, change := range changes {
		change(&pod)
	}
	return pod
}

func burstable(pod *v1.Pod) { pod.Status.QOSClass = v1.PodQOSBurstable }
func staticPod(pod *v1.Pod) {
	pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
}
func failed(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed }
func bestEffort(pod *v1.Pod) {
	pod.Status.QOSClass, pod.Spec.Containers[0].Resources = v1.PodQOSBestEffort, v1.ResourceRequirements{}
}

func priority(value int32) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Priority = &value }
}

func initContainer(cpu string, restart v1.ContainerRestartPolicy) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		c := testContainer(fmt.Sprintf("i%d", len(pod.Spec.InitContainers)), cpu)
		if restart != "" {
			c.RestartPolicy = &restart
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
}

func asks(name v1.ResourceName, amount string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount) }
}

// byDRA has the pod ask for a device of a DRA driver as if that were an extended resource, which its status shows, too.
func byDRA(name v1.ResourceName) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		asks(name, "1")(pod)
		c := pod.Spec.Containers[0]
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: c.Name, ResourceName: string(name)}}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: c.Name, Resources: c.Resources.DeepCopy()}}
	}
}

// reports gives a pod the status that a kubelet gives it to which that much is allocated.
func reports(cpu string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, AllocatedResources: requests, Resources: &v1.ResourceRequirements{Requests: requests}}}
	}
}

func partitioned(pod *v1.Pod) {
	pod.Annotations = map[string]string{partition.TargetAnnotation("management"): ""}
	pod.Spec.Containers[0].Resources.Limits = nil
	partition.Mutate(partition.V1(pod), partition.Policy{Gate: partition.AnyType})
}

func asksNoCPU(pod *v1.Pod) {
	delete(pod.Spec.Containers[0].Resources.Requests, v1.ResourceCPU)
	delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
}

func selects(label, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{label: value} }
}

// host returns the CPUs of a host with that many NUMA nodes, cores on each, and threads on each core.
// The second threads have the higher numbers, as on most hosts.
func host(numaNodes, cores, threads int) (cpus []CPU) {
	for thread := range threads {
		for core := range numaNodes * cores {
			cpus = append(cpus, CPU{ID: thread*numaNodes*cores + core, Core: core, NUMANode: core / cores, Socket: core / cores})
		}
	}
	return cpus
}

func TestReadmission(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	static := func(reserved string) Kubelet {
		return Kubelet{Policy: partition.StaticPolicy, Reserved: resource.MustParse(reserved)}
	}
	on := func(k Kubelet, cpus []CPU, settings ...string) Kubelet {
		k.CPUs, k.Options = cpus, map[string]string{}
		for _, s := range settings {
			switch key, value, _ := strings.Cut(s, "="); key {
			case "topology":
				k.TopologyPolicy = value
			case "scope":
				k.TopologyScope = value
			case "memory":
				k.MemoryPolicy = value
			case "closest":
				k.TopologyOptions = map[string]string{"prefer-closest-numa-nodes": value}
			case "reserved":
				k.ReservedCPUs, _ = cpuset.Parse(value)
			default:
				k.Options[key] = value
			}
		}
		return k
	}
	// holding adds what a container holds: pod, container (- for none) and CPUs.
	holding := func(k Kubelet, held string) Kubelet {
		words := strings.Fields(held)
		cpus, err := cpuset.Parse(words[2])
		if err != nil {
			t.Fatal(err)
		}
		k.Held = append(k.Held, partition.Assignment{Pod: "uid-" + words[0], Container: strings.Trim(words[1], "-"), CPUs: cpus})
		return k
	}
	for _, test := range []struct {
		name    string
		kubelet Kubelet
		cpus    string // capacity; 4 by default
		pods    []v1.Pod
		want    []string // pod, reason, and a part of the text; ? before the reason means maybe
	}{
		{name: "all fits", kubelet: static("980m"), pods: []v1.Pod{testPod("a", "2"), testPod("b", "1"), with(testPod("c", "20m"), burstable)}},
		{name: "whole CPUs are taken from those that are not reserved, the oldest pod first", kubelet: static("200m"), pods: []v1.Pod{testPod("a", "2"), testPod("b", "2")},
			want: []string{"b UnexpectedAdmissionError asks for 2 whole CPUs in container c0, with only 1"}},
		{name: "a pod that was given CPUs and does not fit keeps them from younger ones until all were looked at", kubelet: static("1"), pods: []v1.Pod{testPod("a", "2", "2"), testPod("b", "2")},
			want: []string{"a UnexpectedAdmissionError container c1", "b UnexpectedAdmissionError with only 1"}},
		{name: "under none no pod gets exclusive CPUs", kubelet: Kubelet{Policy: "none", Reserved: resource.MustParse("200m")}, pods: []v1.Pod{testPod("a", "2"), testPod("b", "1")}},
		{name: "all requests count against the new allocatable", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "1700m"), burstable), with(testPod("b", "1700m"), burstable), with(testPod("c", "1300m"), burstable)},
			want: []string{"b OutOfcpu asks for 1700m of cpu, and older pods have 1700m of 3"}},
		{name: "also under none, with a larger reservation", kubelet: Kubelet{Policy: "none", Reserved: resource.MustParse("3")}, pods: []v1.Pod{testPod("a", "2")}, want: []string{"a OutOfcpu asks for 2 of cpu, and older pods have 0 of 1"}},
		{name: "a fraction of a CPU is shared, and so are a Burstable pod's whole ones", kubelet: static("1"), pods: []v1.Pod{testPod("a", "1500m"), with(testPod("b", "1"), burstable)}},
		{name: "ended pods are not admitted again", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "3"), failed), testPod("b", "3")}},
		{name: "a static pod starts again, whatever has become of it", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "3"), staticPod, failed), testPod("b", "3")}, want: []string{"b UnexpectedAdmissionError"}},
		{name: "what a kubelet has allocated counts, and not what is asked for since", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "1500m"), burstable, reports("2500m")), with(testPod("b", "1"), burstable)}, want: []string{"b OutOfcpu older pods have 2500m of 3"}},
		{name: "except for a partitioned pod", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "100m"), burstable, partitioned, reports("2500m")), with(testPod("b", "3"), burstable)}},
		{name: "static pods come first", kubelet: static("1"), pods: []v1.Pod{testPod("a", "2"), with(testPod("b", "2"), staticPod)}, want: []string{"a UnexpectedAdmissionError 2 whole CPUs"}},
		{name: "partitioned pods ask for no cpu", kubelet: static("1"), pods: []v1.Pod{testPod("a", "3"), with(testPod("b", "0"), burstable, asksNoCPU, asks("management.workload.openshift.io/cores", "4000"))}},
		{name: "the cores of partitioned pods stay limited", kubelet: static("1"), pods: []v1.Pod{with(testPod("b", "0"), asksNoCPU, asks("management.workload.openshift.io/cores", "4001"))},
			want: []string{"b OutOfmanagement.workload.openshift.io/cores asks for 4001"}},
		{name: "a critical pod ends others", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "2500m"), burstable), with(testPod("b", "100m"), burstable), with(testPod("c", "600m"), burstable, priority(2_000_000_000))},
			want: []string{"a Preempting ends so that d/c fits"}},
		{name: "and only what is needed, Guaranteed pods last", kubelet: static("1"), pods: []v1.Pod{testPod("a", "1500m"), with(testPod("b", "1"), burstable), with(testPod("x"), func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSBestEffort }), with(testPod("c", "1300m"), burstable, priority(2_000_000_001))},
			want: []string{"b Preempting ends so that d/c fits"}},
		{name: "a critical pod that would not fit even so is rejected", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "2"), burstable, priority(2_000_000_000)), with(testPod("b", "2"), burstable, priority(2_000_000_000))},
			want: []string{"b UnexpectedAdmissionError older pods have 2 of 3"}},
		{name: "too many pods", kubelet: static("1"), pods: slices.Repeat([]v1.Pod{with(testPod("a", "0"), bestEffort)}, 6), want: []string{"a OutOfpods asks for 1 of pods, and older pods have 5 of 5"}},
		{name: "memory", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "10m"), burstable, asks(v1.ResourceMemory, "9Gi"))}, want: []string{"a OutOfmemory asks for 9Gi of memory"}},
		{name: "an extended resource that the node lacks is the cluster's", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "10m"), asks("example.com/licence", "9"))}},
		{name: "huge pages that the node lacks", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "10m"), asks("hugepages-2Mi", "2Mi"))}, want: []string{"a OutOfhugepages-2Mi"}},
		{name: "resources of the pod as a whole give no exclusive CPUs", kubelet: static("1"), pods: []v1.Pod{testPod("a", "2"),
			with(testPod("b", "1"), func(p *v1.Pod) {
				p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}
			})}},

		{name: "an init container's CPUs are used again", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "1", "1"), initContainer("2", "")), testPod("b", "1")}},
		{name: "what it leaves stays with the pod", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "1"), initContainer("2", "")), testPod("b", "1"), testPod("c", "1")},
			want: []string{"c UnexpectedAdmissionError with only 0"}},
		{name: "a sidecar keeps its own", kubelet: static("1"), pods: []v1.Pod{with(testPod("a", "2"), initContainer("1", always)), testPod("b", "1")}, want: []string{"b UnexpectedAdmissionError with only 0"}},

		{name: "a container keeps what it holds", kubelet: holding(static("1"), "a c0 2-3"), pods: []v1.Pod{testPod("b", "1"), testPod("a", "2")}},
		{name: "and others get none of it", kubelet: holding(static("1"), "a c0 2-3"), pods: []v1.Pod{testPod("b", "2"), testPod("a", "1")},
			want: []string{"b UnexpectedAdmissionError with only 1"}},
		{name: "a pod that holds CPUs as a whole keeps them", kubelet: holding(static("1"), "a - 1-3"), pods: []v1.Pod{testPod("a", "2", "1")}},
		{name: "a container without any needs some", kubelet: holding(static("1"), "a c0 1-2"), pods: []v1.Pod{testPod("a", "2", "2")}, want: []string{"a UnexpectedAdmissionError container c1, with only 1"}},
		{name: "what an init container holds is used again", kubelet: holding(static("1"), "a i0 1-3"), pods: []v1.Pod{with(testPod("a", "3"), initContainer("3", ""))}},
		{name: "what is held stays, whatever the settings are now", cpus: "8", kubelet: holding(on(static("1"), host(2, 4, 1), "topology=single-numa-node", "full-pcpus-only=true"), "a c0 3-4"), pods: []v1.Pod{testPod("a", "2")}},
		{name: "a static pod holds CPUs by the UID of its file", kubelet: holding(static("1"), "x c0 1-3"), pods: []v1.Pod{with(testPod("a", "3"), func(pod *v1.Pod) { staticPod(pod); pod.Annotations[v1.MirrorPodAnnotationKey] = "uid-x" })}},
		{name: "the host's CPUs may have any numbers", kubelet: func() Kubelet { k := static("1"); k.Online = cpuset.New(1, 5, 6, 9); return k }(), pods: []v1.Pod{testPod("a", "3"), testPod("b", "1")},
			want: []string{"b UnexpectedAdmissionError with only 0"}},
		{name: "a Node that says it has more CPUs than there can be costs nothing", cpus: "1E", kubelet: static("1"), pods: []v1.Pod{testPod("a", "8191")}, want: []string{"a ?TopologyAffinityError more than 8192 CPUs"}},
		{name: "and neither does one with thousands of CPUs, and as many containers", cpus: "8192", kubelet: static("1"), pods: []v1.Pod{testPod("a", slices.Repeat([]string{"1"}, 33)...), testPod("b", "1500m")},
			want: []string{"a ?TopologyAffinityError its node has 8192 CPUs, and 33 containers that get some"}},
		{name: "a NUMA node of a number that no host has", cpus: "4", kubelet: on(static("1"), []CPU{{ID: 0}, {ID: 1, NUMANode: 64}, {ID: 2, NUMANode: -1}, {ID: 3}}, "topology=restricted"), pods: []v1.Pod{testPod("a", "2")}, want: []string{"a ?TopologyAffinityError more than 8 NUMA nodes"}},

		{name: "a part of a core under full-pcpus-only", cpus: "8", kubelet: on(static("1"), host(1, 4, 2), "full-pcpus-only=true"), pods: []v1.Pod{testPod("a", "3"), testPod("b", "2")},
			want: []string{"a SMTAlignmentError asks for 3 whole CPUs in container c0, which is not a multiple of the 2"}},
		{name: "half a reserved core is lost under full-pcpus-only", cpus: "8", kubelet: on(static("500m"), host(1, 4, 2), "full-pcpus-only=true"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "2"), testPod("c", "2")},
			want: []string{"c SMTAlignmentError the free whole cores have only 0"}},
		{name: "and is given away without", cpus: "8", kubelet: on(static("500m"), host(1, 4, 2), "full-pcpus-only=false"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "2"), testPod("c", "1")}},
		{name: "pools are the reservation", cpus: "8", kubelet: on(static("500m"), host(1, 4, 2), "full-pcpus-only=true", "reserved=0,1"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "2")},
			want: []string{"b SMTAlignmentError the free whole cores have only 0"}},
		{name: "reserved CPUs that are offline reserve nothing", cpus: "4", kubelet: on(static("500m"), host(1, 4, 1), "reserved=7"), pods: []v1.Pod{testPod("a", "3")}},

		{name: "CPUs of one NUMA node", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=single-numa-node"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "2"), testPod("c", "2")},
			want: []string{"c TopologyAffinityError asks for 2 whole CPUs, but the topology policy single-numa-node finds"}},
		{name: "more than a NUMA node has", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=single-numa-node"), pods: []v1.Pod{testPod("a", "5")}, want: []string{"a TopologyAffinityError single-numa-node"}},
		{name: "restricted spreads what cannot be on one", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=restricted"), pods: []v1.Pod{testPod("a", "5"), testPod("b", "2")}},
		{name: "and nothing else", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=restricted", "reserved=0,4"), pods: []v1.Pod{testPod("a", "2"), testPod("b", "2"), testPod("c", "2")},
			want: []string{"c TopologyAffinityError asks for 2 whole CPUs, but the topology policy restricted finds"}},
		{name: "best-effort takes what there is", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=best-effort", "reserved=0,4"), pods: []v1.Pod{testPod("a", "2"), testPod("b", "2"), testPod("c", "2")}},
		{name: "each container by itself", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=single-numa-node"), pods: []v1.Pod{testPod("a", "3", "3")}},
		{name: "the pod as a whole", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=single-numa-node", "scope=pod"), pods: []v1.Pod{testPod("a", "3", "3"), testPod("b", "2", "2")},
			want: []string{"a TopologyAffinityError asks for 6 whole CPUs"}},

		{name: "NUMA nodes that are not known", cpus: "8", kubelet: on(static("1"), nil, "topology=restricted"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "4"), testPod("c", "1500m")},
			want: []string{"a ?TopologyAffinityError may be rejected: the NUMA nodes", "b UnexpectedAdmissionError 4 whole CPUs"}},
		{name: "cores that are not known", cpus: "8", kubelet: on(static("1"), nil, "full-pcpus-only=true"), pods: []v1.Pod{testPod("a", "4")}, want: []string{"a ?TopologyAffinityError full-pcpus-only"}},
		{name: "more NUMA nodes than are looked at", cpus: "9", kubelet: on(static("1"), host(9, 1, 1), "topology=restricted"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "5")},
			want: []string{"a ?TopologyAffinityError may be rejected: the host has more than 8 NUMA nodes", "b UnexpectedAdmissionError 5 whole CPUs"}},
		{name: "as many as are looked at", cpus: "8", kubelet: on(static("1"), host(8, 1, 1), "topology=restricted"), pods: []v1.Pod{testPod("a", "4"), testPod("b", "3")}},
		{name: "devices may be elsewhere", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=single-numa-node"), pods: []v1.Pod{with(testPod("a", "2"), asks("example.com/nic", "1")), testPod("b", "2")},
			want: []string{"a ?TopologyAffinityError its example.com/nic"}},
		{name: "memory may be elsewhere", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=restricted", "memory=Static"), pods: []v1.Pod{testPod("a", "2")}, want: []string{"a ?TopologyAffinityError memory manager"}},
		{name: "distances are not known", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=restricted", "closest=true"), pods: []v1.Pod{testPod("a", "2")}, want: []string{"a ?TopologyAffinityError distances"}},
		{name: "an option that chooses other CPUs", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "topology=restricted", "distribute-cpus-across-numa=true"), pods: []v1.Pod{testPod("a", "2")},
			want: []string{"a ?TopologyAffinityError distribute-cpus-across-numa"}},
		{name: "such an option does not matter where only the number counts", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "distribute-cpus-across-numa=true"), pods: []v1.Pod{testPod("a", "2")}},
		{name: "unless CPUs are used again", cpus: "8", kubelet: on(static("1"), host(2, 4, 1), "distribute-cpus-across-numa=true"), pods: []v1.Pod{with(testPod("a", "1"), initContainer("2", ""))},
			want: []string{"a ?TopologyAffinityError distribute-cpus-across-numa"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := testNode(test.cpus, test.kubelet)
			for i := range test.pods {
				test.pods[i].CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
			}
			got := Foresee(node, test.kubelet, test.pods)
			if len(got) != len(test.want) {
				t.Fatalf("got %d rejections, want %d: %s", len(got), len(test.want), describe(got))
			}
			for i, r := range got {
				want := strings.SplitN(test.want[i], " ", 3)
				reason, maybe := strings.CutPrefix(want[1], "?")
				if r.Pod.Name != want[0] || r.Reason != reason || r.Maybe != maybe || len(want) == 3 && !strings.Contains(r.Text, want[2]) {
					t.Errorf("got %s, want %s", describe(got[i:i+1]), test.want[i])
				}
			}
		})
	}
}

func describe(rejections []Rejection) string {
	var lines []string
	for _, r := range rejections {
		lines = append(lines, fmt.Sprintf("%s %s (maybe: %v): %s", r.Pod.Name, r.Reason, r.Maybe, r.Text))
	}
	return strings.Join(lines, "; ")
}

// testNode returns a node with that many CPUs, 4 if it is empty, less what its kubelet reserves.
func testNode(cpus string, kubelet Kubelet) *v1.Node {
	if cpus == "" {
		cpus = "4"
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("5"),
		"management.workload.openshift.io/cores": resource.MustParse("4000"), "example.com/nic": resource.MustParse("2"),
	}
	allocatable := capacity.DeepCopy()
	cpu := capacity[v1.ResourceCPU].DeepCopy()
	cpu.Sub(kubelet.Reservation())
	allocatable[v1.ResourceCPU] = cpu
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Capacity: capacity, Allocatable: allocatable}}
}

func TestReservedNow(t *testing.T) {
	if got := ReservedNow(testNode("", Kubelet{Reserved: resource.MustParse("100m")})); got.String() != "100m" {
		t.Errorf("got %s, want 100m", got.String())
	}
}
