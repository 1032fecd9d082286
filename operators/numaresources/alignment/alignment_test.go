// SPDX-License-Identifier: Apache-2.0

package alignment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/numaresources/alignment"
)

// report is a node's. Each zone is a list such as "cpu=6/8/10", which is available, allocatable and capacity.
func report(policy, scope string, zones ...string) *v1alpha2.NodeResourceTopology {
	t := &v1alpha2.NodeResourceTopology{Attributes: v1alpha2.AttributeList{{Name: numaresources.AttributePolicy, Value: policy}, {Name: numaresources.AttributeScope, Value: scope}}}
	for i, text := range zones {
		zone := v1alpha2.Zone{Name: numaresources.ZoneName(i), Type: numaresources.ZoneType}
		for _, of := range strings.Fields(text) {
			name, amounts, _ := strings.Cut(of, "=")
			parts := strings.Split(amounts, "/")
			for len(parts) < 3 {
				parts = append(parts, parts[len(parts)-1])
			}
			zone.Resources = append(zone.Resources, v1alpha2.ResourceInfo{Name: name, Available: resource.MustParse(parts[0]), Allocatable: resource.MustParse(parts[1]), Capacity: resource.MustParse(parts[2])})
		}
		t.Zones = append(t.Zones, zone)
	}
	return t
}

// pod is a Guaranteed one. Each container is a list such as "cpu=2 memory=1Gi"; one that begins with "init:" ends before others
// start, and one that begins with "sidecar:" does not.
func pod(containers ...string) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}}
	for i, text := range containers {
		c := corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
		kind, list, found := strings.Cut(text, ":")
		if !found {
			kind, list = "", text
		}
		for _, of := range strings.Fields(list) {
			name, amount, _ := strings.Cut(of, "=")
			c.Resources.Requests[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
		c.Resources.Limits = c.Resources.Requests
		always := corev1.ContainerRestartPolicyAlways
		switch kind {
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "sidecar":
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// asWhole is the pod with a list of what it asks for as a whole, besides.
func asWhole(p *corev1.Pod, list string) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.Resources = &pod(list).Spec.Containers[0].Resources
	return p
}

func burstable(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.QOSClass = corev1.PodQOSBurstable
	return p
}

func TestCheck(t *testing.T) {
	single := func(zones ...string) *v1alpha2.NodeResourceTopology {
		return report("single-numa-node", "container", zones...)
	}
	podScope := func(zones ...string) *v1alpha2.NodeResourceTopology {
		return report("single-numa-node", "pod", zones...)
	}
	restricted := func(zones ...string) *v1alpha2.NodeResourceTopology {
		return report("restricted", "container", zones...)
	}
	four := pod("cpu=4")
	for _, test := range []struct {
		name       string
		node       *v1alpha2.NodeResourceTopology
		pod        *corev1.Pod
		unreported []*corev1.Pod
		// shown are in the report.
		shown    []*corev1.Pod
		spanning bool
		// want is empty for a pod that fits.
		want string
	}{
		{name: "a pod that fits into a zone", node: single("cpu=2/8", "cpu=4/8"), pod: four},
		{name: "a pod that fits the node and no zone", node: single("cpu=2/8", "cpu=3/8"), pod: four, want: `container "c0" fits into no zone: node-1 lacks 1 of cpu`},
		{name: "a pod that is larger than each zone", node: single("cpu=8", "cpu=8"), pod: pod("cpu=10"), want: `container "c0" is larger than every zone: the largest lacks 2 of cpu`},
		{name: "under restricted a pod that is larger than each zone gets as few as do", node: restricted("cpu=8", "cpu=8"), pod: pod("cpu=10")},
		{name: "under restricted a pod that would do with one zone gets no two", node: restricted("cpu=2/8", "cpu=3/8"), pod: four, want: `container "c0" fits into no zone: node-1 lacks 1 of cpu`},
		{name: "under restricted the hardware decides how many zones are few", node: restricted("cpu=6/6/8", "cpu=6/6/8"), pod: pod("cpu=7"), want: `container "c0" is larger than every zone: the largest lacks 1 of cpu`},
		{name: "under restricted resources that need different numbers of zones", node: restricted("cpu=8 memory=8Gi", "cpu=8 memory=8Gi"), pod: pod("cpu=10 memory=1Gi"), want: `container "c0" is larger than every zone: the largest lacks 2 of cpu`},
		{name: "best-effort takes CPUs of any zone", node: report("best-effort", "container", "cpu=1/8", "cpu=3/8"), pod: four},
		{name: "best-effort has no CPUs to take", node: report("best-effort", "container", "cpu=1/8", "cpu=1/8"), pod: four, want: "the pod fits into no zone: node-0 lacks 2 of cpu"},
		{name: "best-effort has none beside a pod whose init container may have others", node: report("best-effort", "pod", "cpu=4/8", "cpu=4/8"), pod: four, unreported: []*corev1.Pod{pod("init:cpu=2", "cpu=4")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "with scope pod an init container may have CPUs that the others do not get", node: podScope("cpu=8/8"), pod: pod("cpu=4"), unreported: []*corev1.Pod{pod("init:cpu=2", "cpu=4")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "a container gets the CPUs of an init container that has as many", node: podScope("cpu=8/8"), pod: pod("cpu=4"), unreported: []*corev1.Pod{pod("init:cpu=4", "cpu=4")}},
		{name: "two init containers that have as many have the same", node: podScope("cpu=8/8"), pod: pod("cpu=2"), unreported: []*corev1.Pod{pod("init:cpu=2", "init:cpu=2", "cpu=4")}},
		{name: "unless best-effort has memory decide on their zones", node: report("best-effort", "container", "cpu=8/8 memory=8Gi"), pod: pod("cpu=2"), unreported: []*corev1.Pod{pod("init:cpu=4 memory=1Gi", "cpu=4 memory=1Gi")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "no report shows what an init container has beyond the rest of its pod", node: single("cpu=6/8"), pod: pod("cpu=6"), shown: []*corev1.Pod{pod("init:cpu=4", "cpu=2")}, want: "the pod may find no zone, since init containers of other pods keep what they had, which no report shows"},
		{name: "it is in one zone alone", node: single("cpu=6/8", "cpu=8"), pod: pod("cpu=6"), shown: []*corev1.Pod{pod("init:cpu=4", "cpu=2")}},
		{name: "that of a pod of several zones may be in each", node: report("restricted", "pod", "cpu=4/8", "cpu=3/8"), pod: pod("cpu=1"), shown: []*corev1.Pod{pod("init:cpu=12", "cpu=9")}, want: "the pod may find no zone, since init containers of other pods keep what they had, which no report shows"},
		{name: "it is taken under best-effort, too", node: report("best-effort", "container", "cpu=2/8", "cpu=4/8"), pod: pod("cpu=6"), shown: []*corev1.Pod{pod("init:cpu=4", "cpu=2")}, want: "the pod may find no zone, since init containers of other pods keep what they had, which no report shows"},
		{name: "nor devices", node: single("cpu=8 example.com/nic=3/4"), pod: pod("example.com/nic=3"), shown: []*corev1.Pod{pod("init:example.com/nic=2", "example.com/nic=1")}, want: "the pod may find no zone, since init containers of other pods keep what they had, which no report shows"},
		{name: "memory is taken back when the rest starts", node: single("cpu=8 memory=7Gi/8Gi"), pod: pod("cpu=500m memory=7Gi"), shown: []*corev1.Pod{pod("init:memory=2Gi", "memory=1Gi")}},
		{name: "a device of a pod that asks for CPUs as a whole", node: single("cpu=8 example.com/nic=1", "cpu=8 example.com/nic=1"), pod: asWhole(pod("example.com/nic=2"), "cpu=4"), want: `container "c0" is larger than every zone: the largest lacks 1 of example.com/nic`},
		{name: "with scope pod, too", node: podScope("cpu=2/8 example.com/nic=1", "cpu=8"), pod: asWhole(pod("example.com/nic=1"), "cpu=4"), want: "the pod fits into no zone: node-0 lacks 2 of cpu"},
		{name: "with scope container, containers share what a pod asks for as a whole", node: single("cpu=8", "cpu=8"), pod: asWhole(pod(""), "cpu=12")},
		{name: "a pod that fits a zone may have more than a zone while its init container runs", node: podScope("cpu=8", "cpu=8"), pod: pod("cpu=8"), unreported: []*corev1.Pod{pod("init:cpu=4", "cpu=5"), pod("cpu=3")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "a pod with an init container must leave others what they need", node: report("best-effort", "pod", "cpu=4/8", "cpu=4/8"), pod: pod("init:cpu=2", "cpu=3"), unreported: []*corev1.Pod{pod("cpu=4")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "best-effort refuses memory that is in no zone", node: report("best-effort", "container", "cpu=8 memory=1Gi/8Gi", "cpu=8 memory=2Gi/8Gi"), pod: pod("cpu=1 memory=3Gi"), want: `container "c0" fits into no zone: node-1 lacks 1Gi of memory`},
		{name: "none gives memory of a zone, whatever the CPUs are", node: report("none", "container", "cpu=0/8 memory=4Gi/8Gi", "cpu=8 memory=2Gi/8Gi"), pod: pod("cpu=1 memory=3Gi")},
		{name: "none refuses memory that is in no zone", node: report("none", "container", "cpu=8 memory=1Gi/8Gi", "cpu=8 memory=2Gi/8Gi"), pod: pod("cpu=1 memory=3Gi"), want: `container "c0" fits into no zone: node-1 lacks 1Gi of memory`},
		{name: "none takes CPUs of any zone", node: report("none", "container", "cpu=1/8", "cpu=3/8"), pod: four},
		{name: "a fraction of a CPU is shared", node: single("cpu=0/8"), pod: pod("cpu=1500m")},
		{name: "a Burstable pod has no CPU for itself", node: single("cpu=0/8"), pod: burstable(four)},
		{name: "a Burstable pod has devices", node: single("cpu=8 example.com/nic=0/1", "cpu=8 example.com/nic=0/1"), pod: burstable(pod("cpu=4 example.com/nic=1")), want: `container "c0" fits into no zone: node-0 lacks 1 of example.com/nic`},
		{name: "CPU and device must be in one zone", node: single("cpu=0/8 example.com/nic=1", "cpu=8"), pod: pod("cpu=1 example.com/nic=1"), want: `container "c0" fits into no zone: node-0 lacks 1 of cpu`},
		{name: "a resource that the kubelet does not give by zones", node: single("cpu=4/8"), pod: pod("cpu=4 memory=100Gi")},
		{name: "memory that the kubelet gives by zones", node: single("cpu=8 memory=1Gi/8Gi", "cpu=8 memory=2Gi/8Gi"), pod: pod("cpu=500m memory=3Gi"), want: `container "c0" fits into no zone: node-1 lacks 1Gi of memory`},
		{name: "cores of a workload type", node: single("cpu=0/8"), pod: burstable(pod("management.workload.openshift.io/cores=100"))},
		{name: "with scope container each container has a zone of its own", node: single("cpu=4", "cpu=4"), pod: pod("cpu=3", "cpu=3")},
		{name: "with scope pod all have one", node: podScope("cpu=4", "cpu=4"), pod: pod("cpu=3", "cpu=3"), want: "the pod is larger than every zone: the largest lacks 2 of cpu"},
		{name: "with scope pod an init container's CPUs are used again", node: podScope("cpu=4"), pod: pod("init:cpu=4", "cpu=3")},
		{name: "with scope pod a sidecar keeps its CPUs", node: podScope("cpu=4"), pod: pod("sidecar:cpu=2", "cpu=3"), want: "the pod is larger than every zone: the largest lacks 1 of cpu"},
		{name: "with scope container an init container's zone must have room for the rest", node: single("cpu=2/4", "cpu=4"), pod: pod("init:cpu=1", "cpu=4"), want: `the pod fits into no zone: node-0 lacks 2 of cpu`},
		{name: "with scope container two zones that have room for all", node: single("cpu=4", "cpu=4"), pod: pod("init:cpu=1", "cpu=4")},
		{name: "an unreported pod that fits beside it", node: single("cpu=8"), pod: four, unreported: []*corev1.Pod{four}},
		{name: "an unreported pod may be in its zone", node: single("cpu=7/8"), pod: four, unreported: []*corev1.Pod{four}, want: `the pod may find no zone, since the node has not reported yet what other pods have got`},
		{name: "pods alike fill all zones", node: single("cpu=8", "cpu=8"), pod: four, unreported: []*corev1.Pod{four, four, four}},
		{name: "one more than fits", node: single("cpu=8", "cpu=8"), pod: four, unreported: []*corev1.Pod{four, four, four, four}, want: `the pod may find no zone, since the node has not reported yet what other pods have got`},
		{name: "the order decides whether both fit", node: single("cpu=4/8", "cpu=5/8"), pod: pod("cpu=5"), unreported: []*corev1.Pod{pod("cpu=1"), four}, want: `the pod may find no zone, since the node has not reported yet what other pods have got`},
		{name: "it must not take the only zone of another", node: single("cpu=8 example.com/nic=1", "cpu=8"), pod: four, unreported: []*corev1.Pod{pod("cpu=5 example.com/nic=1")}, want: `the pod may find no zone, since the node has not reported yet what other pods have got`},
		{name: "a pod of several zones comes to nobody", node: restricted("cpu=8", "cpu=8"), pod: pod("cpu=10"), unreported: []*corev1.Pod{pod("cpu=1")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "nobody comes to a pod of several zones before it is reported", node: restricted("cpu=8", "cpu=8"), pod: pod("cpu=1"), unreported: []*corev1.Pod{pod("cpu=10")}, want: "the pod may find no zone, since the node has not reported yet what other pods have got"},
		{name: "memory beside a pod that has memory of several zones", node: restricted("cpu=8 memory=4Gi/8Gi", "cpu=8 memory=8Gi"), pod: pod("cpu=1 memory=1Gi"), spanning: true, want: "the pod needs several zones, or shares them with a pod that does, which cannot be foreseen"},
		{name: "memory of several zones on a node where some is taken", node: restricted("cpu=16 memory=8Gi", "cpu=16 memory=7Gi/8Gi"), pod: pod("cpu=17 memory=9Gi"), want: "the pod fits into no zone: node-1 lacks 1Gi of memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			node, err := alignment.Read(test.node)
			if err != nil {
				t.Fatal(err)
			}
			others := alignment.Others{Spanning: test.spanning}
			for _, p := range test.unreported {
				others.Unreported = append(others.Unreported, node.Needed(p))
			}
			for _, p := range test.shown {
				others.Hidden = append(others.Hidden, node.Hidden(node.Needed(p), true, time.Time{})...)
			}
			got := ""
			if lack := node.Check(node.Needed(test.pod), others); lack != nil {
				got = lack.String()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCheckWithout(t *testing.T) {
	two, four := pod("cpu=2"), pod("cpu=4")
	for _, test := range []struct {
		name             string
		zones            []string
		pod              *corev1.Pod
		staying, leaving []*corev1.Pod
		room             bool
	}{
		{"a pod that fills a zone makes room", []string{"cpu=0/4", "cpu=0/4"}, four, []*corev1.Pod{four}, []*corev1.Pod{four}, true},
		{"two that may be in different zones", []string{"cpu=0/4", "cpu=0/4"}, four, []*corev1.Pod{two, two}, []*corev1.Pod{two, two}, false},
		{"two that are in one zone, since another fills the other", []string{"cpu=0/4", "cpu=0/4"}, four, []*corev1.Pod{four}, []*corev1.Pod{two, two}, true},
		{"all leave", []string{"cpu=0/4", "cpu=0/4"}, four, nil, []*corev1.Pod{two, two, two, two}, true},
		{"a pod that is too large for each zone", []string{"cpu=0/4", "cpu=0/4"}, pod("cpu=5"), nil, []*corev1.Pod{four, four}, false},
		{"a pod that the report does not show", []string{"cpu=3/4", "cpu=3/4"}, four, nil, []*corev1.Pod{four}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			node, err := alignment.Read(report("single-numa-node", "container", test.zones...))
			if err != nil {
				t.Fatal(err)
			}
			needs := func(pods []*corev1.Pod) (list []alignment.Need) {
				for _, p := range pods {
					list = append(list, node.Needed(p))
				}
				return list
			}
			lack := node.CheckWithout(node.Needed(test.pod), alignment.Others{}, needs(test.staying), needs(test.leaving))
			if (lack == nil) != test.room {
				t.Errorf("got %v", lack)
			}
		})
	}
}

// Upstream's memory manager takes back what init containers have when the next container is added, and a pod says only later that it has started.
func TestMemoryOfInitContainersIsHeldUntilTheRestStarts(t *testing.T) {
	node, err := alignment.Read(report("single-numa-node", "container", "cpu=8 memory=8Gi"))
	if err != nil {
		t.Fatal(err)
	}
	need := node.Needed(pod("init:cpu=3 memory=3Gi", "cpu=3 memory=1Gi"))
	if got := node.Hidden(need, false, time.Time{}); len(got) != 1 || got[0].Amounts[corev1.ResourceMemory] != 2<<30 || got[0].Amounts[corev1.ResourceCPU] != 0 {
		t.Errorf("before, %v is hidden", got)
	}
	if got := node.Hidden(need, true, time.Time{}); len(got) != 0 {
		t.Errorf("after, %v is hidden", got)
	}
}

// When the kubelet restarts, init containers that have ended get memory again, until another container starts.
func TestMemoryOfInitContainersIsHeldWhenTheKubeletRestarts(t *testing.T) {
	start := time.Unix(1e9, 0)
	of := report("single-numa-node", "container", "cpu=8 memory=8Gi")
	of.Attributes = append(of.Attributes, v1alpha2.AttributeInfo{Name: numaresources.AttributeStarted, Value: start.Format(time.RFC3339)})
	node, err := alignment.Read(of)
	if err != nil {
		t.Fatal(err)
	}
	need := node.Needed(pod("init:cpu=1 memory=2Gi", "sidecar:cpu=1 memory=1Gi", "init:cpu=1 memory=3Gi", "cpu=1 memory=4Gi"))
	got := node.Hidden(need, true, start)
	if len(got) != 2 || got[0].Amounts[corev1.ResourceMemory] != 2<<30 || got[1].Amounts[corev1.ResourceMemory] != 3<<30 {
		t.Errorf("of a pod that started before, %v is hidden", got)
	}
	if got := node.Hidden(need, true, start.Add(time.Second)); len(got) != 0 {
		t.Errorf("of a pod with a container that started later, %v is hidden", got)
	}
}

// With the policy none a kubelet starts whatever the number of NUMA nodes is, and takes CPUs of any.
func TestManyZones(t *testing.T) {
	zones := slices.Repeat([]string{"cpu=4/8"}, 32)
	node, err := alignment.Read(report("none", "container", zones...))
	if err != nil {
		t.Fatal(err)
	}
	if lack := node.Check(node.Needed(pod("cpu=100")), alignment.Others{}); lack != nil {
		t.Errorf("a pod that fits: %s", lack)
	}
	thirty := node.Needed(pod("cpu=30"))
	if lack := node.CheckWithout(node.Needed(pod("cpu=150")), alignment.Others{}, nil, []alignment.Need{thirty}); lack == nil {
		t.Error("a pod is placed where none is certain to leave so much")
	}
	if _, err := alignment.Read(report("restricted", "container", zones...)); err == nil {
		t.Error("32 zones are looked at where the kubelet refuses pods")
	}
}

// What a compromised node reports must neither take hours to read nor fill the conditions of pods.
func TestReportsOfOthersAreShort(t *testing.T) {
	for amount, want := range map[string]string{"1e999999999": "zone node-0 of the report has an amount of cpu that is no whole number", "0.5": "no whole number", "8": ""} {
		_, err := alignment.Read(report("restricted", "container", "cpu="+amount))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v", amount, err)
		}
	}
	r := report("restricted", "container", "cpu=1")
	r.Zones[0].Name = strings.Repeat("\U0001d7d8", 1<<18)
	node, err := alignment.Read(r)
	if err != nil {
		t.Fatal(err)
	}
	if lack := node.Check(node.Needed(pod("cpu=2")), alignment.Others{}); lack == nil || len(lack.String()) > 300 {
		t.Errorf("got %.400s", lack)
	}
	r.Attributes = v1alpha2.AttributeList{{Name: numaresources.AttributePolicyUnknown, Value: r.Zones[0].Name}}
	if _, err := alignment.Read(r); err == nil || len(err.Error()) > 300 {
		t.Errorf("got %.400s", err)
	}
}

func TestMayNeed(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"whole CPUs of a Guaranteed pod", pod("cpu=2 memory=1Gi"), true},
		{"whole CPUs of an init container", pod("init:cpu=2", "cpu=500m"), true},
		{"a fraction", pod("cpu=500m memory=1Gi"), false},
		{"whole CPUs of a Burstable pod", burstable(pod("cpu=2")), false},
		{"huge pages", pod("cpu=500m hugepages-2Mi=4Mi"), true},
		{"a device of a Burstable pod", burstable(pod("example.com/nic=1")), true},
		{"cores of a workload type", burstable(pod("management.workload.openshift.io/cores=100")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := alignment.MayNeed(test.pod); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPodsThatAskForTheSame(t *testing.T) {
	limited := pod("cpu=2")
	limited.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}
	for _, test := range []struct {
		name string
		a, b *corev1.Pod
		same bool
	}{
		{"the same amounts, written differently", pod("cpu=2 memory=1Gi"), pod("memory=1024Mi cpu=2000m"), true},
		{"more of a resource", pod("cpu=2"), pod("cpu=3"), false},
		{"another resource", pod("cpu=2 example.com/a=1"), pod("cpu=2 example.com/b=1"), false},
		{"what is asked for in one container or in two", pod("cpu=2", "cpu=1"), pod("cpu=1", "cpu=2"), false},
		{"an init container and a sidecar", pod("init:cpu=1", "cpu=2"), pod("sidecar:cpu=1", "cpu=2"), false},
		{"another class of service", pod("cpu=2"), burstable(pod("cpu=2")), false},
		{"resources of the pod as a whole", pod("cpu=2"), limited, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if a, b := alignment.Asked(test.a), alignment.Asked(test.b); (a == b) != test.same {
				t.Errorf("one asks for %s, the other for %s", a, b)
			}
		})
	}
}

func TestReadRefusesWhatSaysNothing(t *testing.T) {
	for _, test := range []struct {
		name       string
		attributes v1alpha2.AttributeList
		want       string
	}{
		{"the exporter could not ask the kubelet", v1alpha2.AttributeList{{Name: numaresources.AttributePolicyUnknown, Value: string(numaresources.CertificateNotVerified)}}, "CertificateNotVerified"},
		{"another exporter says nothing of it", nil, "the report has no policy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := alignment.Read(&v1alpha2.NodeResourceTopology{Attributes: test.attributes}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
