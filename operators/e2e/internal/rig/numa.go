// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"
)

// NUMA is what a node's kernel and kubelet say of its NUMA nodes, as a test reads it from sysfs and podresources. It says CPUs as the
// kernel does, such as 0-3,8.
type NUMA struct {
	// Zones are the NUMA nodes, by the names of their zones in a report.
	Zones map[string]NUMANode
	// Allocatable are the CPUs that the kubelet gives to containers of their own. Empty means that it gives none.
	Allocatable string
	// Pods are those that the kubelet has, by namespace/name, with the CPUs that each has got for itself.
	Pods map[string]string
}

// NUMANode is one of them.
type NUMANode struct {
	CPUs string
	// Memory is the kernel's, in bytes.
	Memory int64
	// Given is how many bytes of memory, and of huge pages, are allocatable and available, by kind. It is empty if no manager
	// gives memory.
	Given map[string][2]int64
}

// ReadNUMA reads it, from a sysfs and from the kubelet's socket.
func ReadNUMA(ctx context.Context, sysfs, socket string) (n NUMA, err error) {
	n = NUMA{Zones: map[string]NUMANode{}, Pods: map[string]string{}}
	lists, err := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*/cpulist"))
	if err != nil {
		return n, err
	}
	for _, list := range lists {
		dir := filepath.Dir(list)
		cpus, err := os.ReadFile(list)
		if err != nil {
			return n, err
		}
		meminfo, err := os.ReadFile(filepath.Join(dir, "meminfo"))
		if err != nil {
			return n, err
		}
		_, total, _ := strings.Cut(string(meminfo), "MemTotal:")
		var kibibytes int64
		if _, err := fmt.Sscan(total, &kibibytes); err != nil {
			return n, fmt.Errorf("%s/meminfo: MemTotal: %w", dir, err)
		}
		n.Zones["node-"+strings.TrimPrefix(filepath.Base(dir), "node")] = NUMANode{CPUs: strings.TrimSpace(string(cpus)), Memory: kibibytes << 10, Given: map[string][2]int64{}}
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return n, err
	}
	defer connection.Close()
	client := podresourcesv1.NewPodResourcesListerClient(connection)
	all, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return n, err
	}
	list, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return n, err
	}
	change := func(block *podresourcesv1.ContainerMemory, allocatable, available int64) error {
		zone := fmt.Sprintf("node-%d", block.Topology.Nodes[0].ID) // under single-numa-node it is on one
		of, found := n.Zones[zone]
		if !found {
			return fmt.Errorf("podresources has %s of %s, which sysfs does not have", block.MemoryType, zone)
		}
		was := of.Given[block.MemoryType]
		of.Given[block.MemoryType] = [2]int64{was[0] + allocatable, was[1] + available}
		return nil
	}
	n.Allocatable = setOf(all.CpuIds).String()
	for _, block := range all.Memory {
		if err := change(block, int64(block.Size), int64(block.Size)); err != nil {
			return n, err
		}
	}
	for _, pod := range list.PodResources {
		own := cpuset.New()
		for _, container := range pod.Containers {
			own = own.Union(setOf(container.CpuIds))
			for _, block := range container.Memory {
				if err := change(block, 0, -int64(block.Size)); err != nil {
					return n, err
				}
			}
		}
		n.Pods[pod.Namespace+"/"+pod.Name] = own.String()
	}
	return n, nil
}

func setOf(ids []int64) cpuset.CPUSet {
	all := cpuset.New()
	for _, id := range ids {
		all = all.Union(cpuset.New(int(id)))
	}
	return all
}

// agrees compares the zones of a report.
func (n NUMA) agrees(report *v1alpha2.NodeResourceTopology) error {
	if len(report.Zones) != len(n.Zones) {
		return fmt.Errorf("there are %d zones, and %d NUMA nodes in sysfs", len(report.Zones), len(n.Zones))
	}
	allocatable, err := cpuset.Parse(n.Allocatable)
	if err != nil {
		return err
	}
	free := allocatable
	for _, list := range n.Pods {
		own, err := cpuset.Parse(list)
		if err != nil {
			return err
		}
		free = free.Difference(own)
	}
	for name, node := range n.Zones {
		at := slices.IndexFunc(report.Zones, func(z v1alpha2.Zone) bool { return z.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no zone %s", name)
		}
		zone := report.Zones[at]
		cpus, err := cpuset.Parse(node.CPUs)
		if err != nil {
			return err
		}
		want, has := [3]int64{int64(cpus.Size()), int64(cpus.Intersection(allocatable).Size()), int64(cpus.Intersection(free).Size())}, !allocatable.IsEmpty()
		if got, found := Amounts(zone, "cpu"); found != has || has && got != want {
			return fmt.Errorf("the zone %s has %d CPUs (%t), and by sysfs and podresources %d (%t)", name, got, found, want, has)
		}
		for kind, given := range node.Given {
			got, _ := Amounts(zone, kind)
			if got[1] != given[0] || got[2] != given[1] {
				return fmt.Errorf("of %s the zone %s has %d allocatable and available, and by podresources %d", kind, name, got[1:], given)
			}
			if kind == "memory" && got[0] != node.Memory {
				return fmt.Errorf("the zone %s has %d bytes of memory, and by sysfs %d", name, got[0], node.Memory)
			}
		}
	}
	return nil
}

// Amounts returns the capacity of a resource in a zone, what is allocatable, and what is available. It returns zeroes and false if the zone does not
// have it.
func Amounts(zone v1alpha2.Zone, resource string) (amounts [3]int64, found bool) {
	for _, r := range zone.Resources {
		if r.Name == resource {
			return [3]int64{r.Capacity.Value(), r.Allocatable.Value(), r.Available.Value()}, true
		}
	}
	return amounts, false
}

// Attribute returns the value of an attribute of a report, and nothing if it does not have it.
func Attribute(report *v1alpha2.NodeResourceTopology, name string) string {
	for _, a := range report.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// Shown is a report in one line.
func Shown(report *v1alpha2.NodeResourceTopology) string {
	var parts []string
	for _, zone := range report.Zones {
		for _, r := range zone.Resources {
			parts = append(parts, fmt.Sprintf("%s %s %s/%s/%s", zone.Name, r.Name, r.Capacity.String(), r.Allocatable.String(), r.Available.String()))
		}
	}
	for _, a := range report.Attributes {
		parts = append(parts, a.Name+"="+a.Value)
	}
	return strings.Join(parts, ", ")
}

// Report returns what the node reports of its NUMA nodes.
func (n *Node) Report(t *testing.T) (*v1alpha2.NodeResourceTopology, error) {
	t.Helper()
	output, err := n.Try(t, "", "get", "noderesourcetopologies.topology.node.k8s.io", n.Name, "--output=json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	report := &v1alpha2.NodeResourceTopology{}
	return report, json.Unmarshal([]byte(output), report)
}

// RightReport returns the node's report, or an error if that differs from how the kubelet runs, or from what it and the kernel
// say of NUMA nodes.
func (n *Node) RightReport(t *testing.T, numa NUMA) (*v1alpha2.NodeResourceTopology, error) {
	t.Helper()
	report, err := n.Report(t)
	if err != nil {
		return nil, err
	}
	configz, err := n.Configz(t)
	if err != nil {
		return nil, err
	}
	for name, want := range configz {
		if got := Attribute(report, name); got != want {
			return nil, fmt.Errorf("the report says %s=%q, and configz %q", name, got, want)
		}
	}
	return report, numa.agrees(report)
}

// Configz returns the kubelet's policies, by way of kube-apiserver.
func (n *Node) Configz(t *testing.T) (map[string]string, error) {
	t.Helper()
	output, err := n.Try(t, "", "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/configz")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	var answer struct {
		Kubelet map[string]any `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(output), &answer); err != nil {
		return nil, err
	}
	policies := map[string]string{}
	for _, name := range []string{"topologyManagerPolicy", "topologyManagerScope", "cpuManagerPolicy", "memoryManagerPolicy"} {
		policies[name] = fmt.Sprint(answer.Kubelet[name])
	}
	return policies, nil
}
