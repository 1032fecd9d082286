// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/operators/e2e/internal/rig"
)

func TestPodsGetNUMANodesOfAMachine(t *testing.T) {
	rows := []row{
		{"a report says what the NUMA nodes of the machine have", reportOfMachine},
		{"a pod that fits the node and no zone waits, and the kubelet refuses the one of the default scheduler", fitsNoZone},
		{"another policy is reported, and pods are placed by it", anotherPolicy},
	}
	for seed := range uint64(4) {
		rows = append(rows, row{fmt.Sprintf("of thirty pods at once as many run as fit, seed %d", seed), func(t *testing.T, s *site) { burst(t, s, seed) }})
	}
	runRows(t, "numaresources", append(rows, row{"cpupolicy switches the CPU manager, and the report says so", switchedCPUManager}))
}

// What the report is held against is read in the machine by the test itself.
func reportOfMachine(t *testing.T, s *site) {
	n := s.numa()
	before := n.awaitReport(t, nil)
	progress("the report: %s", rig.Shown(before))
	if len(before.Zones) != 2 || rig.Attribute(before, "topologyManagerPolicy") != firstPolicy || rig.Attribute(before, "topologyManagerScope") != "container" {
		t.Fatalf("the report is %s, want two zones, and how the kubelet was configured", rig.Shown(before))
	}
	for i, zone := range before.Zones {
		if cpus, _ := rig.Amounts(zone, "cpu"); cpus != [3]int64{4, 3, 3} {
			t.Errorf("the zone %s has the CPUs %d, want four, and three without the one of the pool", zone.Name, cpus)
		}
		costs := ""
		for _, cost := range zone.Costs {
			costs += fmt.Sprintf(" %d", cost.Value)
		}
		if distance := n.Run(t, fmt.Sprintf("cat /sys/devices/system/node/node%d/distance", i)); strings.TrimSpace(costs) != distance {
			t.Errorf("the zone %s has the costs%s, and by sysfs %s", zone.Name, costs, distance)
		}
	}

	began := time.Now()
	pod := n.StartPod(t, guaranteedBy(numaScheduler, "exclusive", "cpu=2 memory=256Mi"))
	n.took("from a pod until it runs", began)
	own := n.CPUsOf(t, pod)
	var at int
	n.awaitReport(t, func(report *v1alpha2.NodeResourceTopology) error {
		for i := range report.Zones {
			if available(report, "cpu")[i] == 1 {
				at = i
				taken := available(before, "memory")[i] - available(report, "memory")[i]
				if rest := available(report, "cpu")[1-i]; taken != 256<<20 || rest != 3 {
					return fmt.Errorf("of the pod's zone %d bytes are taken, and the other has %d CPUs", taken, rest)
				}
				return nil
			}
		}
		return errors.New("no zone has one CPU left")
	})
	n.took("from a pod until it is in the report", began)
	numa, err := n.readNUMA(t)
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := cpuset.Parse(numa.Zones[before.Zones[at].Name].CPUs)
	if given := numa.Pods[rig.PodNamespace+"/exclusive"]; err != nil || own.String() != given || own.Size() != 2 || !own.IsSubsetOf(cpus) {
		t.Errorf("the kernel lets the pod run on CPUs %s, podresources say %s, and the zone has %s (%v)", own, given, cpus, err)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	if mems := n.Run(t, "cat $(find /sys/fs/cgroup/kubepods.slice -name cri-containerd-"+id+".scope)/cpuset.mems.effective"); mems != fmt.Sprint(at) {
		t.Errorf("the pod may have memory of the NUMA nodes %s, want %d", mems, at)
	}
	began = time.Now()
	n.RemovePod(t, "exclusive")
	n.awaitReport(t, func(report *v1alpha2.NodeResourceTopology) error {
		for i := range report.Zones {
			if available(report, "cpu")[i] != 3 || available(report, "memory")[i] != available(before, "memory")[i] {
				return fmt.Errorf("zone %d is not what it was", i)
			}
		}
		return nil
	})
	n.took("from the pod's deletion until the report is what it was", began)
}

func fitsNoZone(t *testing.T, s *site) {
	n := s.numa()
	const size = "cpu=2 memory=64Mi"
	for _, name := range []string{"half-0", "half-1"} {
		n.StartPod(t, guaranteedBy(numaScheduler, name, size))
	}
	report := n.awaitReport(t, func(report *v1alpha2.NodeResourceTopology) error {
		if cpus := available(report, "cpu"); cpus[0] != 1 || cpus[1] != 1 {
			return fmt.Errorf("the zones have %d CPUs, want one each", cpus)
		}
		return nil
	})
	if n.room(t, guaranteedBy("", "any", size)) < 1 {
		t.Fatalf("the node as a whole has no room for %s", size)
	}

	began := time.Now()
	n.create(t, guaranteedBy("", "by-default", size))
	n.awaitPod(t, "by-default", "is refused by the kubelet", isRefused)
	n.took("from a pod of the default scheduler until the kubelet refuses it", began)
	n.RemovePod(t, "by-default")

	began = time.Now()
	n.create(t, guaranteedBy(numaScheduler, "by-numa", size))
	why := waits(n.awaitPod(t, "by-numa", "waits", waitsFor("lacks 1 of cpu")))
	n.took("from a pod of "+numaScheduler+" until it waits", began)
	explained := n.explain(t, "by-numa")
	t.Logf("its condition says %q, and kubectl partition explain:\n%s", why, explained)
	for what, text := range map[string]string{"the condition": why, "kubectl partition explain": explained} {
		named := false
		for _, zone := range report.Zones { // both lack as much
			named = named || strings.Contains(text, zone.Name+" lacks 1 of cpu")
		}
		if !named {
			t.Errorf("%s names no zone, with what it lacks: %s", what, text)
		}
	}

	began = time.Now()
	n.StartPod(t, guaranteedBy(numaScheduler, "fits", "cpu=1 memory=64Mi"))
	n.took("from a pod that fits a zone until it runs", began)
	n.atFirstTry(t, "fits")
	n.awaitPod(t, "by-numa", "still waits", waitsFor("cpu")) // now the node as a whole lacks one, too

	began = time.Now()
	n.RemovePod(t, "half-0")
	n.awaitPod(t, "by-numa", "runs", running)
	n.took("from the end of another pod until the one that has waited runs", began)
	for _, name := range []string{"half-1", "fits", "by-numa"} {
		n.RemovePod(t, name)
	}
}

func running(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("it is %s on node %q: %s", pod.Status.Phase, pod.Spec.NodeName, waits(pod))
	}
	return nil
}

// Under the policy none a pod may have CPUs of both zones.
func anotherPolicy(t *testing.T, s *site) {
	n := s.numa()
	const policy = "none"
	hasPolicy := func(want string) func(*v1alpha2.NodeResourceTopology) error {
		return func(report *v1alpha2.NodeResourceTopology) error {
			if is := rig.Attribute(report, "topologyManagerPolicy"); is != want {
				return fmt.Errorf("the policy is %s, want %s", is, want)
			}
			return nil
		}
	}
	n.awaitReport(t, hasPolicy(firstPolicy))
	n.create(t, guaranteedBy(numaScheduler, "larger", "cpu=4 memory=64Mi"))
	n.awaitPod(t, "larger", "waits", waitsFor("larger than every zone"))
	began := time.Now()
	n.setTopologyManagerPolicy(t, policy)
	n.took("from another policy until the kubelet is healthy", began)
	n.awaitReport(t, hasPolicy(policy))
	n.took("from another policy until it is reported", began)
	pod := n.awaitPod(t, "larger", "runs", running)
	n.took("from another policy until the pod runs that fits no zone", began)
	if own := n.CPUsOf(t, pod); own.Size() != 4 || !own.IsSubsetOf(cpuset.New(1, 2, 3, 5, 6, 7)) {
		t.Errorf("it has CPUs %s, want four of those that the pool does not have", own)
	}
	n.RemovePod(t, "larger")
	n.setTopologyManagerPolicy(t, firstPolicy)
	n.awaitReport(t, hasPolicy(firstPolicy))
}

// The other companion changes how the kubelet runs, of which the exporter is told by the kubelet alone.
func switchedCPUManager(t *testing.T, s *site) {
	n := s.numa()
	hasPolicy := func(want string) func(*v1alpha2.NodeResourceTopology) error {
		return func(report *v1alpha2.NodeResourceTopology) error {
			if is := rig.Attribute(report, "cpuManagerPolicy"); is != want {
				return fmt.Errorf("the CPU manager's policy is %s, want %s", is, want)
			}
			return nil
		}
	}
	n.awaitReport(t, hasPolicy("static"))
	n.prepare(t)
	beside := *n.Cluster
	beside.Companion = "cpupolicy"
	switched := *n.Node
	switched.Cluster = &beside
	progress("installing cpupolicy")
	overlay := switched.Install(t, "../..", "kubelet")
	switched.WaitFor(t, n.Limit, "the node is observed", func() error { return switched.Labelled(t, "true") })
	for _, policy := range []string{"none", "static"} {
		began := time.Now()
		switched.Change(t, policy)
		n.took("from the request for "+policy+" until it is in force", began)
		n.awaitReport(t, hasPolicy(policy))
		n.took("from the request for "+policy+" until it is reported", began)
	}
	pod := n.StartPod(t, guaranteedBy(numaScheduler, "exclusive", "cpu=2 memory=64Mi"))
	if own := n.CPUsOf(t, pod); own.Size() != 2 {
		t.Errorf("it has CPUs %s, want two of its own", own)
	}
	n.awaitReport(t, nil)
	n.RemovePod(t, "exclusive")
	switched.Uninstall(t, overlay)
}

// thirty pods are alike. The seed decides what they ask for, and what else is on the machine. The node as a whole has room for more
// of them than its zones.
func burst(t *testing.T, s *site, seed uint64) {
	n := s.numa()
	const thirty = 30
	random := rand.New(rand.NewPCG(seed, 69))
	before := fmt.Sprintf("cpu=%d memory=%dMi", 1+random.IntN(2), 64+random.IntN(1000))
	n.StartPod(t, guaranteedBy(numaScheduler, "before", before))
	report := n.awaitReport(t, nil)
	var each string
	var fit, room int64
	for tries := 0; fit == 0 || fit >= room; tries++ {
		if tries == 1000 {
			t.Fatalf("no pods have more room on the node than in its zones: %s", rig.Shown(report))
		}
		cpus, memory := 1+random.Int64N(2), 64+random.Int64N(1200)
		each = fmt.Sprintf("cpu=%d memory=%dMi", cpus, memory)
		fit = 0
		for i := range report.Zones {
			fit += min(available(report, "cpu")[i]/cpus, available(report, "memory")[i]/(memory<<20))
		}
		room = n.room(t, guaranteedBy("", "any", each))
	}
	progress("seed %d: a pod has %s; of thirty with %s %d fit into the zones, which have %d CPUs and %d bytes, and %d on the node as a whole", seed, before, each, fit, available(report, "cpu"), available(report, "memory"), room)

	if !t.Run("by "+numaScheduler, func(t *testing.T) {
		began := time.Now()
		n.createAtOnce(t, numaScheduler, each, thirty)
		want := outcome{running: fit, waiting: thirty - fit}
		settled := func() error {
			is := n.outcome(t)
			if is.refused+is.failed > 0 {
				t.Fatalf("they are %+v", is)
			}
			if is != want {
				return fmt.Errorf("they are %+v, want %+v", is, want)
			}
			return nil
		}
		n.WaitFor(t, n.Limit, "as many run as fit, and the rest waits", settled)
		n.took(fmt.Sprintf("from thirty pods of %s until %d run and %d wait", numaScheduler, fit, thirty-fit), began)
		// Nothing comes of the others later, either.
		for stays := time.Now().Add(10 * time.Second); time.Now().Before(stays); time.Sleep(time.Second) {
			if err := settled(); err != nil {
				t.Fatalf("later %v", err)
			}
		}
		n.awaitReport(t, nil)
		n.removeBurst(t)
		n.awaitReport(t, nil)
	}) {
		return
	}
	if !t.Run("by the default scheduler", func(t *testing.T) {
		began := time.Now()
		n.createAtOnce(t, "", each, thirty)
		n.WaitFor(t, n.Limit, "each runs or was refused", func() error {
			if is := n.outcome(t); is.running+is.refused != thirty {
				return fmt.Errorf("they are %+v", is)
			}
			return nil
		})
		is := n.outcome(t)
		n.took(fmt.Sprintf("from thirty pods of the default scheduler until %d run, and the kubelet has refused %d", is.running, is.refused), began)
		if is.running != fit {
			t.Errorf("%d run, and %d fit", is.running, fit)
		}
		n.removeBurst(t)
	}) {
		return
	}
	n.RemovePod(t, "before")
	n.awaitReport(t, nil)
}

// inBurst is the label of the pods of a burst.
const inBurst = "burst"

// createAtOnce creates pods that are alike.
func (n *node) createAtOnce(t *testing.T, scheduler, each string, number int) {
	t.Helper()
	errs := make([]error, number)
	var all sync.WaitGroup
	for i := range number {
		all.Go(func() {
			pod := guaranteedBy(scheduler, fmt.Sprintf("burst-%d", i), each)
			pod.Labels = map[string]string{inBurst: ""}
			_, errs[i] = n.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// outcome is how many pods of a burst run, wait for a node, were refused for their NUMA nodes, failed otherwise, or are on their way.
type outcome struct{ running, waiting, refused, failed, underWay int64 }

func (n *node) outcome(t *testing.T) (o outcome) {
	t.Helper()
	list, err := n.Client.CoreV1().Pods(rig.PodNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: inBurst})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		switch pod := &list.Items[i]; {
		case isRefused(pod) == nil:
			o.refused++
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			t.Logf("pod %s: %s %s %s", pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
			o.failed++
		case pod.Status.Phase == corev1.PodRunning:
			o.running++
		case waits(pod) != "":
			o.waiting++
		default:
			o.underWay++
		}
	}
	return o
}

// removeBurst deletes those pods, and waits until they are gone.
func (n *node) removeBurst(t *testing.T) {
	t.Helper()
	pods := n.Client.CoreV1().Pods(rig.PodNamespace)
	if err := pods.DeleteCollection(context.WithoutCancel(t.Context()), *metav1.NewDeleteOptions(1), metav1.ListOptions{LabelSelector: inBurst}); err != nil {
		t.Fatal(err)
	}
	n.WaitFor(t, n.Limit, "the pods are gone", func() error {
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: inBurst})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are still there, such as %s", len(list.Items), list.Items[0].Name)
		}
		return err
	})
}
