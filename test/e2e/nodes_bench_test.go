// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

var (
	nodeCount = flag.Int("nodes", 5000, "simulated nodes of BenchmarkManyNodes")
	podCount  = flag.Int("pods", 20_000, "pods that BenchmarkManyNodes has scheduled, half of them partitioned")
)

// BenchmarkManyNodes measures a control plane with many simulated nodes, all of which report cores:
// how soon a type is active, the creation of pods, what the plugin takes, how pods are spread with
// the scheduler's default configuration and with that of the documentation, and a change of pools
// in groups of nodes.
func BenchmarkManyNodes(b *testing.B) {
	const inGroup = 50
	groups := min(1000, *nodeCount/2) / inGroup
	if groups < 2 {
		b.Fatalf("-nodes is %d, want %d at least: two groups whose pools change, and as many nodes besides", *nodeCount, 4*inGroup)
	}
	needs(b, unpatchedBinaries)
	with := config
	with.WithoutNode, with.Controllers = true, []string{"kube-controller-manager", "kwok"}
	c := alone(b, with)
	startPatiently(b, c)
	// The last node reports no cores yet.
	const late = "late"
	if _, err := c.Client.CoreV1().Nodes().Create(b.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: late}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	for group := range groups {
		createNodes(b, c, inGroup, groupName(group), "8000")
	}
	rest := *nodeCount - 1 - groups*inGroup
	createNodes(b, c, rest, "simulated", "8000")
	awaitNodes(b, c, *nodeCount-1)

	namespace, applications := fixture.Namespace(b, c.Client, "management"), fixture.Namespace(b, c.Client, "")

	part := func(name string, measure func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			measure(b)
			b.ReportMetric(0, "ns/op")
		})
	}
	part("latch", func(b *testing.B) { benchmarkLatch(b, c, namespace, late) })
	reportCores(b, c, late, "management") // also if that part was left out
	// From here on, nothing changes nodes: heartbeats of thousands would take the CPUs on which is
	// measured.
	if err := c.Kwok.Stop(time.Minute); err != nil {
		b.Fatal(err)
	}
	part("create", func(b *testing.B) { benchmarkCreationBesideNodes(b, c) })
	// That part has ended its kube-apiservers, which collect garbage more rarely than others.
	if err := c.StartAPIServer(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := c.ControllerManager.Stop(time.Minute); err != nil {
		b.Fatal(err)
	}
	part("schedule", func(b *testing.B) { benchmarkSpread(b, c, namespace, applications, rest) })
	part("change", func(b *testing.B) { benchmarkChangeOfPools(b, c, namespace, groups, inGroup) })
}

// startPatiently restarts kube-controller-manager so that it takes no node for lost: kwok reports a
// node again only after ten minutes.
func startPatiently(b *testing.B, c *host.Cluster) {
	b.Helper()
	args := c.ControllerManager.Args()
	if at := slices.Index(args, "--v=2"); at >= 0 {
		args[at] = "--node-monitor-grace-period=24h"
	}
	if err := errors.Join(c.ControllerManager.Kill(), c.ControllerManager.Start()); err != nil {
		b.Fatal(err)
	}
}

// groupName is the name of the template of a group of nodes.
func groupName(group int) string { return fmt.Sprintf("group-%d", group) }

// benchmarkLatch measures how long it takes from the report of the last node to the latch. The
// latch is removed in between, when that node does not report.
func benchmarkLatch(b *testing.B, c *host.Cluster, namespace, late string) {
	const turns = 15
	var took []time.Duration
	for b.Loop() {
		for turn := range turns {
			if turn > 0 {
				reportCores(b, c, late)
				waitFor(b, time.Minute, "the type is active no more", func() error {
					// kube-apiserver writes it again until it has seen the node.
					fixture.RemoveLatch(b, c.Client)
					p, err := c.Client.CoreV1().Pods(namespace).Create(b.Context(), fixture.Pod("probe", asks, fixture.Container("c", "true", sizes[0], "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					if err != nil {
						return err
					}
					if _, is := partition.PartitionedType(p); is {
						return errors.New("a pod that asks is partitioned")
					}
					return nil
				})
			}
			took = append(took, timeToLatch(b, c, late))
		}
	}
	b.ReportMetric(float64(median(took).Microseconds())/1000, "ms-to-latch")
	b.ReportMetric(float64(slices.Max(took).Microseconds())/1000, "ms-to-latch-at-most")
}

// timeToLatch returns the time from the report of a node to the latch, which must come within a
// minute.
func timeToLatch(b *testing.B, c *host.Cluster, node string) time.Duration {
	b.Helper()
	system, err := c.Client.CoreV1().Namespaces().Get(b.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	watch, err := c.Client.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", system.Name).String(), ResourceVersion: system.ResourceVersion})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	began := time.Now()
	reportCores(b, c, node, "management")
	annotations := system.Annotations
	for event := range watch.ResultChan() {
		system, ok := event.Object.(*v1.Namespace)
		if !ok {
			b.Logf("the watch of %s says %s: %v", metav1.NamespaceSystem, event.Type, event.Object)
			break
		}
		if annotations = system.Annotations; partition.ListsType(annotations[partition.EnabledAnnotation], "management") {
			return time.Since(began)
		}
	}
	b.Fatalf("the type management was not latched in %s from the report of node %s (limit %s): %s has the annotations %v", time.Since(began), node, limit, system.Name, annotations)
	return 0
}

// benchmarkCreationBesideNodes is BenchmarkCreatePods in a cluster of many nodes. It also compares
// the memory of both kube-apiservers, which the same nodes and no pods are left in.
func benchmarkCreationBesideNodes(b *testing.B, c *host.Cluster) {
	b.Setenv("GOGC", "400") // of both servers
	// The caller starts one again, with its own environment.
	b.Cleanup(func() {
		if err := errors.Join(c.SecondAPIServer.Kill(), c.APIServer.Kill()); err != nil {
			b.Error(err)
		}
		c.UseAPIServer("") // ours, whichever was in the first place last
	})
	heap, memory := map[bool][]float64{}, map[bool][]float64{}
	for b.Loop() {
		const blocks, rounds = 6, 5 // the error is that of blocks
		compareCreation(b, c, blocks, rounds, func(servers map[bool][]*kubernetes.Clientset) {
			patchedFirst := len(heap[true])%2 == 0
			for patched, clients := range servers {
				heap[patched] = append(heap[patched], liveHeap(b, clients[0].RESTClient().Get().AbsPath("/debug/pprof/heap")))
				pid := c.SecondAPIServer.PID()
				if patched == patchedFirst {
					pid = c.APIServer.PID()
				}
				bytes, _ := resident(b, pid)
				memory[patched] = append(memory[patched], bytes)
			}
		})
	}
	for name, of := range map[string]map[bool][]float64{"heap": heap, "resident": memory} {
		var more []float64
		for i := range of[true] {
			more = append(more, (of[true][i]-of[false][i])/(1<<20))
		}
		mean, standardError := meanOf(more)
		unpatched, _ := meanOf(of[false])
		b.ReportMetric(unpatched/(1<<20), "MiB-"+name+"-unpatched")
		b.ReportMetric(mean, "MiB-"+name+"-more")
		b.ReportMetric(standardError, "MiB-"+name+"-error")
	}
}

// benchmarkSpread measures how many pods the scheduler places in a second, and how they are
// spread, with its default configuration and with that of the documentation. Every other node
// has an application.
func benchmarkSpread(b *testing.B, c *host.Cluster, namespace, applications string, nodes int) {
	awaitActive(b, creating(b, c, namespace), true)
	createAll(b, c, applications, nodes/2, func(i int) *v1.Pod { return application(fmt.Sprintf("simulated-%d", 2*i)) })
	all := *podCount / 2 * 2
	type result struct {
		rate                      []float64
		counts, amounts, ordinary spread
	}
	configurations := []string{"", "scheduler.yaml"}
	results := map[string]*result{"": {}, "scheduler.yaml": {}}
	for b.Loop() {
		const rounds = 2
		for round := range rounds {
			for _, configuration := range configurations {
				createAll(b, c, namespace, all, func(i int) *v1.Pod {
					var annotations map[string]string
					if i%2 == 0 {
						annotations = asks
					}
					p := fixture.Pod("", annotations, fixture.Container("c", fixture.Idle, sizes[i/2%len(sizes)], ""))
					p.GenerateName = fmt.Sprintf("p-%d-", round)
					// Nodes whose pools change later have no application.
					p.Spec.NodeSelector = map[string]string{simulated: "simulated"}
					return p
				})
				r := results[configuration]
				pods, took := schedule(b, c, namespace, all, configuration)
				r.rate = append(r.rate, float64(all)/took.Seconds())
				partitioned, ordinary := apart(pods)
				r.counts, r.amounts = spreadOf(partitioned, cores, nodes)
				_, r.ordinary = spreadOf(ordinary, v1.ResourceCPU, nodes)
				deletePods(b, c.Client, namespace)
				awaitNoPods(b, c.Client, namespace)
			}
			slices.Reverse(configurations) // a host that gets slower slows both
		}
	}
	for configuration, name := range map[string]string{"": "default", "scheduler.yaml": "by-cores"} {
		r := results[configuration]
		rate, _ := meanOf(r.rate)
		b.Logf("%s: %.0f pods/s (%.0f); partitioned pods on a node %s; their cores %s; cpu of ordinary pods %s", name, rate, r.rate, r.counts, r.amounts, r.ordinary)
		b.ReportMetric(rate, "pods/s-"+name)
		b.ReportMetric(r.counts.most, "pods-on-a-node-at-most-"+name)
		b.ReportMetric(r.counts.deviation, "pods-on-a-node-deviation-"+name)
		b.ReportMetric(r.amounts.deviation/r.amounts.mean, "cores-relative-deviation-"+name)
	}
}

// apart tells partitioned pods from ordinary ones.
func apart(pods []*v1.Pod) (partitioned, ordinary []*v1.Pod) {
	for _, p := range pods {
		if _, is := partition.PartitionedType(p); is {
			partitioned = append(partitioned, p)
		} else {
			ordinary = append(ordinary, p)
		}
	}
	return partitioned, ordinary
}

// createAll creates pods, several at a time.
func createAll(b *testing.B, c *host.Cluster, namespace string, count int, pod func(i int) *v1.Pod) {
	b.Helper()
	errs := make([]error, count)
	const atOnce = 16
	workqueue.ParallelizeUntil(b.Context(), atOnce, count, func(i int) {
		_, errs[i] = c.Client.CoreV1().Pods(namespace).Create(b.Context(), pod(i), metav1.CreateOptions{})
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// schedule starts kube-scheduler with a configuration and stops it when all pods of a namespace
// have a node. It returns the pods, and the time from the first binding to the last.
func schedule(b *testing.B, c *host.Cluster, namespace string, count int, configuration string) (pods []*v1.Pod, took time.Duration) {
	b.Helper()
	var seen sync.Mutex
	bound := map[string]*v1.Pod{}
	var first, last time.Time
	see := func(object any) {
		p, ok := object.(*v1.Pod)
		if !ok || p.Spec.NodeName == "" {
			return
		}
		seen.Lock()
		defer seen.Unlock()
		if bound[p.Name] == nil {
			bound[p.Name], last = p, time.Now()
			if first.IsZero() {
				first = last
			}
		}
	}
	watched := cache.NewListWatchFromClient(c.Client.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: watched, ObjectType: &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }}})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.Fatal("the pods cannot be watched")
	}
	configureScheduler(b, c, configuration)
	waitFor(b, 5*time.Minute+time.Duration(count)*50*time.Millisecond, "all pods have a node", func() error {
		seen.Lock()
		defer seen.Unlock()
		if len(bound) < count {
			return fmt.Errorf("%d of %d have", len(bound), count)
		}
		return nil
	})
	if err := c.Scheduler.Stop(10 * time.Second); err != nil {
		b.Fatal(err)
	}
	seen.Lock()
	defer seen.Unlock()
	for _, p := range bound {
		pods = append(pods, p)
	}
	return pods, last.Sub(first)
}

// benchmarkChangeOfPools gives groups of nodes larger pools, as docs/user/fleet.md has it: it asks
// for the plan of a group, drains it, has its nodes report less allocatable cpu, and lets pods come
// again. A Deployment with two pods for each node goes through it.
//
// Nothing answers for the configuration of a simulated kubelet, so no plan can say that a change is
// safe, and each group is drained.
func benchmarkChangeOfPools(b *testing.B, c *host.Cluster, namespace string, groups, inGroup int) {
	if err := c.Kwok.Start(); err != nil {
		b.Fatal(err)
	}
	startPatiently(b, c)
	configureScheduler(b, c, "scheduler.yaml")
	awaitNodes(b, c, *nodeCount-1)
	awaitActive(b, creating(b, c, namespace), true)
	replicas := int32(2 * groups * inGroup)
	deployment := operatorsOn(groups, replicas)
	if _, err := c.Client.AppsV1().Deployments(namespace).Create(b.Context(), deployment, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	// As many as two groups have may be away.
	away := intstr.FromInt32(replicas / int32(groups) * 2)
	if _, err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).Create(b.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: deployment.Name}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &away, Selector: deployment.Spec.Selector}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	available := func() (n int32) {
		now, err := c.Client.AppsV1().Deployments(namespace).Get(b.Context(), deployment.Name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return now.Status.AvailableReplicas
	}
	allAvailable := func() {
		fixture.WaitFor(b, time.Second/2, 10*time.Minute, "all pods of the Deployment are available", func(context.Context) error {
			if n := available(); n < replicas {
				return fmt.Errorf("%d of %d are", n, replicas)
			}
			return nil
		})
	}
	allAvailable()
	wider := filepath.Join(b.TempDir(), "openshift-workload-pinning")
	if err := os.WriteFile(wider, []byte(`{"management": {"cpuset": "0-1"}}`), 0o600); err != nil {
		b.Fatal(err)
	}
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/status/allocatable/cpu", "value": "6"}})
	if err != nil {
		b.Fatal(err)
	}
	least := watchAvailable(b, c, namespace, deployment.Name)
	var took, asked, planned, drained []time.Duration
	ends := map[int]int{}
	for b.Loop() {
		for group := range groups {
			selector := simulated + "=" + groupName(group)
			began := time.Now()
			plan, errOut, code := runPlugin(b, "plan", "-l", selector, "--file", wider)
			planned = append(planned, time.Since(began))
			ends[code]++
			if ends[code] == 1 {
				b.Logf("plan of group %d ends with %d, and begins with:\n%s%s", group, code, firstLines(plan, 8), firstLines(errOut, 4))
			}
			const notSafe, notKnown = 1, 2
			if code != notSafe && code != notKnown {
				b.Fatalf("plan of group %d ends with %d, want %d or %d: only then is a group drained", group, code, notSafe, notKnown)
			}
			drainBegan := time.Now()
			drain(b, group, inGroup)
			drained = append(drained, time.Since(drainBegan))
			for i := range inGroup {
				if _, err := c.Client.CoreV1().Nodes().Patch(b.Context(), fmt.Sprintf("%s-%d", groupName(group), i), types.JSONPatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
					b.Fatal(err)
				}
			}
			statusBegan := time.Now()
			status, errOut, code := runPlugin(b, "status")
			asked = append(asked, time.Since(statusBegan))
			if group == groups/2 {
				b.Logf("status, while group %d is drained, ends with %d, and prints:\n%s%s", group, code, firstLines(status, 12), errOut)
			}
			mustKubectl(b, namespace, "", "uncordon", "-l", selector)
			allAvailable()
			took = append(took, time.Since(began))
		}
	}
	b.Logf("of %d plans, by exit codes: %v", groups, ends)
	b.ReportMetric(median(took).Seconds(), "s-each-group")
	b.ReportMetric(median(planned).Seconds(), "s-plan")
	b.ReportMetric(median(drained).Seconds(), "s-drain")
	b.ReportMetric(median(asked).Seconds(), "s-status")
	b.ReportMetric(100*float64(least())/float64(replicas), "percent-available-at-least")
}

// watchAvailable watches a Deployment until the benchmark ends. It returns a function that returns
// how many of its pods were available at least, since then.
func watchAvailable(b *testing.B, c *host.Cluster, namespace, name string) (least func() int32) {
	b.Helper()
	var seen sync.Mutex
	var fewest int32 = math.MaxInt32
	see := func(object any) {
		deployment, ok := object.(*appsv1.Deployment)
		if !ok {
			return
		}
		seen.Lock()
		defer seen.Unlock()
		fewest = min(fewest, deployment.Status.AvailableReplicas)
	}
	watched := cache.NewListWatchFromClient(c.Client.AppsV1().RESTClient(), "deployments", namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: watched, ObjectType: &appsv1.Deployment{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }}})
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.Fatalf("the Deployment %s/%s cannot be watched", namespace, name)
	}
	return func() int32 {
		seen.Lock()
		defer seen.Unlock()
		return fewest
	}
}

// drain drains the nodes of a group, several of them at once: kubectl takes the nodes that it is
// given one after another, and waits for the pods of each. How many pods are missing at once is up to
// their disruption budget.
func drain(b *testing.B, group, inGroup int) {
	b.Helper()
	const atOnce = 10
	var each [atOnce][]string
	for i := range inGroup {
		each[i%atOnce] = append(each[i%atOnce], fmt.Sprintf("%s-%d", groupName(group), i))
	}
	var errs [atOnce]error
	var all sync.WaitGroup
	for i, nodes := range each {
		all.Go(func() {
			output, err := kubectl(b, metav1.NamespaceDefault, "", append([]string{"drain", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=10m"}, nodes...)...)
			if err != nil {
				errs[i] = fmt.Errorf("kubectl drain %s: %w: %s", strings.Join(nodes, " "), err, output)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
}

// operatorsOn returns a Deployment of partitioned pods that run on these groups of nodes.
func operatorsOn(groups int, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "operators"}
	template := fixture.Pod("", asks, fixture.Container("c", fixture.Idle, sizes[0], "")).Spec
	var names []string
	for group := range groups {
		names = append(names, groupName(group))
	}
	template.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: simulated, Operator: v1.NodeSelectorOpIn, Values: names}}}}}}}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: labels["app"]}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: template},
	}}
}

// firstLines returns the beginning of a text.
func firstLines(text string, count int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[:min(count, len(lines))], "")
}
