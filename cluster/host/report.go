package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// Report prints the node's pools and what it offers, and for each container where it may run,
// where it has run, and its weight. The row of a whole pod includes its sandbox, and the
// containers and commands that have ended in it.
func (c *Cluster) Report(ctx context.Context, w io.Writer) error {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, c.Config.Node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	online, err := OnlineCPUs()
	if err != nil {
		return err
	}
	pools, _, err := partition.Load(partition.PinningFilePath, online)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Node %s, kubelet %s, CPUs %s\n", node.Name, node.Status.NodeInfo.KubeletVersion, online)
	if len(pools) == 0 {
		fmt.Fprintf(w, "  no pinning file: not partitioned\n")
	}
	for _, workloadType := range pools.Types() {
		cores := v1.ResourceName(partition.CoresResource(workloadType))
		capacity := node.Status.Capacity[cores]
		fmt.Fprintf(w, "  pool %-12s CPUs %s\n", workloadType, pools[workloadType])
		fmt.Fprintf(w, "  %s: %d\n", cores, capacity.Value())
	}
	fmt.Fprintf(w, "  cpu: capacity %s, allocatable %s\n\n", node.Status.Capacity.Cpu(), node.Status.Allocatable.Cpu())

	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + c.Config.Node.Name})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tCONTAINER\tTYPE\tMAY USE\tHAS USED\tWEIGHT\tQUOTA")
	slices.SortFunc(pods.Items, func(a, b v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for i := range pods.Items {
		pod := &pods.Items[i]
		workloadType, ok := partition.PartitionedType(pod)
		if !ok {
			workloadType = "-"
		}
		if pod.Status.Phase == v1.PodRunning {
			whole, err := PodUsage(pod)
			if err != nil {
				return err
			}
			row(table, pod, "(whole pod)", workloadType, whole)
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
			if status.State.Running == nil {
				continue
			}
			usage, err := ContainerUsage(pod, status.ContainerID)
			if err != nil {
				return err
			}
			row(table, pod, status.Name, workloadType, usage)
		}
	}
	return table.Flush()
}

func row(w io.Writer, pod *v1.Pod, container, workloadType string, usage Usage) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\tCPU %s\t%s\t%d\t%s\n", pod.Namespace, pod.Name, container, workloadType, usage.CPUs, used(usage.Used), usage.Weight, quota(usage.Quota))
}

func used(perCPU []time.Duration) string {
	if len(perCPU) == 1 {
		return perCPU[0].Round(time.Millisecond).String()
	}
	var parts []string
	for cpu, duration := range perCPU {
		text := "0"
		if duration > 0 {
			text = max(duration, time.Millisecond).Round(time.Millisecond).String()
		}
		parts = append(parts, fmt.Sprintf("CPU %d: %s", cpu, text))
	}
	return strings.Join(parts, ", ")
}

func quota(cpus float64) string {
	if cpus == 0 {
		return "-"
	}
	return fmt.Sprintf("%gm", cpus*1000)
}

// OnlineCPUs returns the CPUs of this host that are online.
func OnlineCPUs() (cpuset.CPUSet, error) {
	data, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(data)))
}
