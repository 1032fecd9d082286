// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

const (
	gib  = 1 << 30
	huge = "hugepages-2Mi"
)

// host is a machine of some NUMA nodes with four CPUs, 8 GiB and 512 huge pages of 2 MiB each.
func host(t *testing.T, nodes int) []topology.NUMANode {
	t.Helper()
	read, err := topology.ReadNUMA(topologytest.Sysfs(t, topologytest.Host{
		Nodes: nodes, CoresPerNode: 2, ThreadsPerCore: 2, MemoryPerNode: 8 * gib, HugePagesPerNode: map[int64]int64{2 << 20: 512, 1 << 30: 0},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func cpus(t *testing.T, list string) (ids []int64) {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range set.List() {
		ids = append(ids, int64(id))
	}
	return ids
}

func on(nodes ...int64) *podresourcesv1.TopologyInfo {
	info := &podresourcesv1.TopologyInfo{}
	for _, id := range nodes {
		info.Nodes = append(info.Nodes, &podresourcesv1.NUMANode{ID: id})
	}
	return info
}

func memory(kind string, size uint64, nodes ...int64) *podresourcesv1.ContainerMemory {
	return &podresourcesv1.ContainerMemory{MemoryType: kind, Size: size, Topology: on(nodes...)}
}

func device(name, id string, nodes ...int64) *podresourcesv1.ContainerDevices {
	d := &podresourcesv1.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
	if len(nodes) > 0 {
		d.Topology = on(nodes...)
	}
	return d
}

func pod(namespace, name string, containers ...*podresourcesv1.ContainerResources) *podresourcesv1.PodResources {
	return &podresourcesv1.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

// TestZones has rows of one machine each: CPUs 0-1,4-5 are on NUMA node 0, and 2-3,6-7 on NUMA node 1.
func TestZones(t *testing.T) {
	for name, test := range map[string]struct {
		allocatable *podresourcesv1.AllocatableResourcesResponse
		pods        []*podresourcesv1.PodResources
		driver      string
		want        []string // resource of a zone: capacity, allocatable, available
		err         string
	}{
		"an empty node has what the kubelet gives away": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "1-7"), Memory: []*podresourcesv1.ContainerMemory{
				memory("memory", 6*gib, 0), memory("memory", 7*gib, 1), memory(huge, gib, 0), memory(huge, gib, 1),
			}},
			want: []string{
				"node-0 cpu: 4 3 3", "node-0 hugepages-2Mi: 1Gi 1Gi 1Gi", "node-0 memory: 8Gi 6Gi 6Gi",
				"node-1 cpu: 4 4 4", "node-1 hugepages-2Mi: 1Gi 1Gi 1Gi", "node-1 memory: 8Gi 7Gi 7Gi",
			},
		},
		"an exclusive CPU is available to no other pod": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")},
			pods:        []*podresourcesv1.PodResources{pod("a", "exclusive", &podresourcesv1.ContainerResources{Name: "c", CpuIds: cpus(t, "2,6")})},
			want:        []string{"node-0 cpu: 4 4 4", "node-1 cpu: 4 4 2"},
		},
		"CPUs on two NUMA nodes are taken from both": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")},
			pods:        []*podresourcesv1.PodResources{pod("a", "wide", &podresourcesv1.ContainerResources{CpuIds: cpus(t, "4-7")})},
			want:        []string{"node-0 cpu: 4 4 2", "node-1 cpu: 4 4 2"},
		},
		"a Guaranteed container with a fraction of a CPU shares, and takes none (C10)": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")},
			pods:        []*podresourcesv1.PodResources{pod("a", "fraction", &podresourcesv1.ContainerResources{Name: "c"}), pod("a", "besteffort")},
			want:        []string{"node-0 cpu: 4 4 4", "node-1 cpu: 4 4 4"},
		},
		"a static pod's exclusive CPUs are taken as any other's (C11)": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")},
			pods:        []*podresourcesv1.PodResources{pod("kube-system", "static-node1", &podresourcesv1.ContainerResources{CpuIds: cpus(t, "0-1")})},
			want:        []string{"node-0 cpu: 4 4 2", "node-1 cpu: 4 4 4"},
		},
		"a finished pod that the kubelet still lists has given back what it had (C12)": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7"), Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "a", 0)}},
			pods:        []*podresourcesv1.PodResources{pod("a", "finished", &podresourcesv1.ContainerResources{Name: "c"})},
			want:        []string{"node-0 cpu: 4 4 4", "node-0 example.com/nic: 1 1 1", "node-1 cpu: 4 4 4"},
		},
		"CPUs of a pod as a whole and those of its containers are counted once": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")},
			pods: []*podresourcesv1.PodResources{{Name: "pod-level", CpuIds: cpus(t, "0-1,4"), Containers: []*podresourcesv1.ContainerResources{
				{Name: "own", CpuIds: cpus(t, "4")}, {Name: "rest", CpuIds: cpus(t, "0-1")},
			}}},
			want: []string{"node-0 cpu: 4 4 1", "node-1 cpu: 4 4 4"},
		},
		"CPUs of a pool on both NUMA nodes are available to no pod": {
			// The patched kubelet reserves the pool 0,2,6.
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "1,3-5,7")},
			pods:        []*podresourcesv1.PodResources{pod("a", "partitioned", &podresourcesv1.ContainerResources{Name: "c"})},
			want:        []string{"node-0 cpu: 4 3 3", "node-1 cpu: 4 2 2"},
		},
		"a pool that has a whole NUMA node leaves no CPU there": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "2-3,6-7")},
			want:        []string{"node-0 cpu: 4 0 0", "node-1 cpu: 4 4 4"},
		},
		"a DRA driver's CPUs are offered to nobody": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-7")}, driver: "dra.cpu",
			want: []string{"node-0 cpu: 4 0 0", "node-1 cpu: 4 0 0"},
		},
		"nor are they where the CPU manager has the policy none": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{}, driver: "dra.cpu",
			want: []string{"node-0 cpu: 4 0 0", "node-1 cpu: 4 0 0"},
		},
		"a kubelet whose CPU manager has the policy none gives no CPUs by NUMA node": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 0)}},
			want:        []string{"node-0 memory: 8Gi 1Gi 1Gi"},
		},
		"memory and huge pages of a container are taken from its NUMA node": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{
				memory("memory", 6*gib, 0), memory("memory", 6*gib, 1), memory(huge, gib, 0), memory(huge, gib, 1),
			}},
			pods: []*podresourcesv1.PodResources{
				pod("a", "b", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 1), memory(huge, 4<<20, 1)}}),
				pod("a", "c", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", 2*gib, 1)}}),
			},
			want: []string{
				"node-0 hugepages-2Mi: 1Gi 1Gi 1Gi", "node-0 memory: 8Gi 6Gi 6Gi",
				"node-1 hugepages-2Mi: 1Gi 1Gi 1020Mi", "node-1 memory: 8Gi 6Gi 3Gi",
			},
		},
		"memory on two NUMA nodes fills the first one": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{memory("memory", 6*gib, 0), memory("memory", 6*gib, 1)}},
			pods: []*podresourcesv1.PodResources{
				pod("a", "first", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 0)}}),
				pod("a", "wide", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", 7*gib, 0, 1)}}),
			},
			want: []string{"node-0 memory: 8Gi 6Gi 0", "node-1 memory: 8Gi 6Gi 4Gi"},
		},
		"memory of a pod as a whole has that of its containers": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{memory("memory", 6*gib, 0)}},
			pods: []*podresourcesv1.PodResources{{Name: "pod-level", Memory: []*podresourcesv1.ContainerMemory{memory("memory", 2*gib, 0)}, Containers: []*podresourcesv1.ContainerResources{
				{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 0)}},
			}}},
			want: []string{"node-0 memory: 8Gi 6Gi 4Gi"},
		},
		"memory that was reserved after pods had it is not available below zero": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 0)}},
			pods:        []*podresourcesv1.PodResources{pod("a", "b", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", 2*gib, 0)}})},
			want:        []string{"node-0 memory: 8Gi 1Gi 0"},
		},
		"devices count where they are, and those without a NUMA node nowhere": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{
				device("example.com/nic", "a", 0), device("example.com/nic", "b", 1), device("example.com/nic", "c", 1), device("example.com/far", "d"),
			}},
			pods: []*podresourcesv1.PodResources{pod("a", "b", &podresourcesv1.ContainerResources{Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "c", 1), device("example.com/far", "d")}})},
			want: []string{"node-0 example.com/nic: 1 1 1", "node-1 example.com/nic: 2 2 1"},
		},
		"a device of two NUMA nodes counts in both": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{device("example.com/gpu", "a", 0, 1), device("example.com/gpu", "b", 0)}},
			pods:        []*podresourcesv1.PodResources{pod("a", "b", &podresourcesv1.ContainerResources{Devices: []*podresourcesv1.ContainerDevices{device("example.com/gpu", "a", 0, 1)}})},
			want:        []string{"node-0 example.com/gpu: 2 2 1", "node-1 example.com/gpu: 1 1 0"},
		},
		"a device that broke while a container has it is capacity alone": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "a", 0)}},
			pods:        []*podresourcesv1.PodResources{pod("a", "b", &podresourcesv1.ContainerResources{Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "broken", 0)}})},
			want:        []string{"node-0 example.com/nic: 2 1 1"},
		},
		"a CPU that sysfs does not have is an error": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: cpus(t, "0-8")},
			err:         "the kubelet gives CPUs 8 to pods, and sysfs has them in no NUMA node",
		},
		"a NUMA node that sysfs does not have is an error": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 2)}},
			err:         "the kubelet gives memory of NUMA node 2 to pods, and sysfs has no such node",
		},
		"a device on a NUMA node that sysfs does not have is an error": {
			allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "a", 5)}},
			err:         "the kubelet gives example.com/nic of NUMA node 5 to pods, and sysfs has no such node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			zones, err := Observed{Nodes: host(t, 2), Allocatable: test.allocatable, Pods: test.pods, CPUDriver: test.driver}.Zones()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(zones); !slices.Equal(got, test.want) {
				t.Errorf("the zones have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func shown(zones v1alpha2.ZoneList) (lines []string) {
	for _, zone := range zones {
		for _, r := range zone.Resources {
			lines = append(lines, fmt.Sprintf("%s %s: %s %s %s", zone.Name, r.Name, r.Capacity.String(), r.Allocatable.String(), r.Available.String()))
		}
	}
	return lines
}

func TestZonesHaveTheirDistances(t *testing.T) {
	nodes := host(t, 2)
	// A third one has memory alone.
	nodes = append(nodes, topology.NUMANode{Number: 4, Memory: gib, Distances: map[int]int64{0: 30, 1: 40, 4: 10}})
	zones, err := Observed{Nodes: nodes, Allocatable: &podresourcesv1.AllocatableResourcesResponse{}}.Zones()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(zones)
	want := "[{node-0 Node  [{node-0 10} {node-1 20}] [] []} {node-1 Node  [{node-0 20} {node-1 10}] [] []} {node-4 Node  [{node-0 30} {node-1 40} {node-4 10}] [] []}]"
	if got != want {
		t.Errorf("the zones are %s, want %s", got, want)
	}
}

// sign is the fingerprint of pods by upstream's library, which the scheduler's plugin uses, too.
func sign(names ...string) string {
	print := podfingerprint.NewFingerprint(0)
	for _, name := range names {
		namespace, name, _ := strings.Cut(name, "/")
		if err := print.Add(namespace, name); err != nil {
			panic(err)
		}
	}
	return print.Sign()
}

func TestAttributes(t *testing.T) {
	exclusive := pod("a", "exclusive", &podresourcesv1.ContainerResources{CpuIds: cpus(t, "1")})
	static := pod("kube-system", "static-node1", &podresourcesv1.ContainerResources{Memory: []*podresourcesv1.ContainerMemory{memory("memory", gib, 0)}})
	wired := pod("b", "wired", &podresourcesv1.ContainerResources{Devices: []*podresourcesv1.ContainerDevices{device("example.com/nic", "a", 0)}})
	shared := pod("a", "shared", &podresourcesv1.ContainerResources{Name: "c"})
	kubelet := Kubelet{TopologyManagerPolicy: "single-numa-node", TopologyManagerScope: "pod", CPUManagerPolicy: "static", MemoryManagerPolicy: "Static"}
	const policies = "topologyManagerPolicy=single-numa-node topologyManagerScope=pod cpuManagerPolicy=static memoryManagerPolicy=Static"
	print := func(method string, names ...string) string {
		return " nodeTopologyPodsFingerprint=" + sign(names...) + " nodeTopologyPodsFingerprintMethod=" + method
	}
	for name, test := range map[string]struct {
		observed Observed
		want     string
	}{
		"by default the fingerprint is of pods that have something for themselves": {
			Observed{Kubelet: kubelet, Pods: []*podresourcesv1.PodResources{exclusive, shared, wired, static}},
			policies + print("with-exclusive-resources", "a/exclusive", "b/wired", "kube-system/static-node1"),
		},
		"the order of the pods is of no account": {
			Observed{Kubelet: kubelet, Pods: []*podresourcesv1.PodResources{static, exclusive, shared, wired}},
			policies + print("with-exclusive-resources", "a/exclusive", "b/wired", "kube-system/static-node1"),
		},
		"a fingerprint of all pods": {
			Observed{Kubelet: kubelet, Pods: []*podresourcesv1.PodResources{exclusive, shared}, Fingerprint: FingerprintAll},
			policies + print("all", "a/exclusive", "a/shared"),
		},
		"no fingerprint": {Observed{Kubelet: kubelet, Pods: []*podresourcesv1.PodResources{exclusive}, Fingerprint: FingerprintNone}, policies},
		"a node without pods has a fingerprint, too": {
			Observed{Kubelet: kubelet}, policies + print("with-exclusive-resources"),
		},
		"a DRA driver that gives CPUs is named": {
			Observed{Kubelet: kubelet, CPUDriver: "dra.cpu", Fingerprint: FingerprintNone}, policies + " cpuDriver=dra.cpu",
		},
		"the start of the kubelet is there in whole seconds": {
			Observed{Kubelet: kubelet, Started: time.Unix(1e9, 5e8), Fingerprint: FingerprintNone}, policies + " kubeletStarted=2001-09-09T01:46:40Z",
		},
		"a policy that is not known is not guessed": {
			Observed{Kubelet: Kubelet{Unknown: CertificateNotVerified}, Fingerprint: FingerprintNone}, "policyUnknown=CertificateNotVerified",
		},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := test.observed.Attributes()
			var got []string
			for _, attribute := range attributes {
				got = append(got, attribute.Name+"="+attribute.Value)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("the attributes are\n%s\nwant\n%s", strings.Join(got, " "), test.want)
			}
			if read, known := KubeletOf(attributes); read != test.observed.Kubelet || known != (read.Unknown == "") {
				t.Errorf("they are read as %+v, known: %t", read, known)
			}
			if driver := CPUDriverOf(attributes); driver != test.observed.CPUDriver {
				t.Errorf("the driver is read as %q", driver)
			}
			if started := StartedOf(attributes); !started.Equal(test.observed.Started.Truncate(time.Second)) {
				t.Errorf("the start is read as %s", started)
			}
		})
	}
	if sign("a/b") == sign("a/b", "a/c") {
		t.Error("another pod does not change a fingerprint")
	}
}

func TestParseConfigz(t *testing.T) {
	const good = `{"kubeletconfig":{"topologyManagerPolicy":"restricted","topologyManagerScope":"container","cpuManagerPolicy":"static","memoryManagerPolicy":"None","syncFrequency":"1m0s"}}`
	for name, test := range map[string]struct{ data, err string }{
		"a kubelet's answer":         {good, ""},
		"an answer without a policy": {strings.Replace(good, `"restricted"`, `""`, 1), "kubeletconfig.topologyManagerPolicy is empty"},
		"another program's answer":   {`{"kube-proxy":{}}`, "it has no kubeletconfig"},
		"an answer that is cut off":  {good[:40], "unexpected end"},
		"a page":                     {"<html>", "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			kubelet, err := ParseConfigz([]byte(test.data))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || kubelet != (Kubelet{}) {
					t.Errorf("got %+v, %v; want an error with %q", kubelet, err, test.err)
				}
				return
			}
			want := Kubelet{TopologyManagerPolicy: "restricted", TopologyManagerScope: "container", CPUManagerPolicy: "static", MemoryManagerPolicy: "None"}
			if err != nil || kubelet != want {
				t.Errorf("got %+v, %v; want %+v", kubelet, err, want)
			}
		})
	}
}

func FuzzParseConfigz(f *testing.F) {
	f.Add([]byte(`{"kubeletconfig":{"topologyManagerPolicy":"restricted"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := ParseConfigz(data); (err == nil) != (k.TopologyManagerPolicy != "") {
			t.Errorf("got %+v, %v", k, err)
		}
	})
}
