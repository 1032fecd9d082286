// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// BenchmarkPodStart compares how long it takes from the creation of a pod to the start of its
// container, which the runtime reports, with an unpatched kubelet and with a patched one. They
// take turns in one run. The result is the ratio of medians.
func BenchmarkPodStart(b *testing.B) {
	c := partitioned(b)
	b.Cleanup(func() {
		c.UseKubelet("")
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			b.Error(err)
		}
		restart(b, c, pinning)
	})
	namespace := fixture.Namespace(b, c.Client, "management")
	connection, err := grpc.NewClient("unix://"+c.RuntimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer connection.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(connection)
	kinds := []*startKind{
		{name: "unpatched", kubelet: upstreamKubelet},
		{name: "patched-without-file"},
		{name: "patched-ordinary", file: pinning},
		{name: "patched-partitioned", file: pinning, annotations: asks},
	}
	const rounds, pods = 4, 12
	for b.Loop() {
		for round := range rounds {
			for i := range kinds {
				// Forward and backward, so that a host that gets slower slows all of them.
				kind := kinds[i]
				if round%2 == 1 {
					kind = kinds[len(kinds)-1-i]
				}
				c.UseKubelet(kind.kubelet)
				if err := c.ChangeCPUManagerPolicy("static"); err != nil {
					b.Fatal(err)
				}
				restart(b, c, kind.file)
				// Not measured: what a kubelet does right after its start, of which nothing
				// marks the end, and the first pod, which fills its caches.
				time.Sleep(3 * time.Second)
				for n := range pods + 1 {
					took := startOne(b, c, runtime, namespace, fmt.Sprintf("%s-%d-%d", kind.name, round, n), kind)
					if n > 0 {
						kind.took = append(kind.took, took)
					}
				}
			}
		}
	}
	base := median(kinds[0].took)
	b.ReportMetric(float64(base.Milliseconds()), "ms-unpatched")
	for _, kind := range kinds[1:] {
		b.ReportMetric(float64(median(kind.took))/float64(base), "ratio-"+kind.name)
	}
	b.ReportMetric(0, "ns/op")
}

// startKind is a kubelet, its pinning file, and the pods that it starts.
type startKind struct {
	name, kubelet, file string
	annotations         map[string]string
	// took has the results.
	took []time.Duration
}

// startOne creates a pod, returns how long its container took to start, and deletes the pod.
func startOne(b *testing.B, c *host.Cluster, runtime runtimeapi.RuntimeServiceClient, namespace, name string, kind *startKind) time.Duration {
	p := fixture.Pod(name, kind.annotations, fixture.Container("c", fixture.Idle, "cpu=100m memory=16Mi", ""))
	began := time.Now()
	p, err := c.Client.CoreV1().Pods(namespace).Create(b.Context(), p, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var started int64
	waitFor(b, time.Minute, "pod "+name+" runs", func() error {
		listed, err := runtime.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"io.kubernetes.pod.name": name}}})
		if err != nil {
			return err
		}
		if len(listed.Containers) != 1 {
			return fmt.Errorf("it has %d running containers, want one", len(listed.Containers))
		}
		status, err := runtime.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: listed.Containers[0].Id})
		if err == nil {
			started = status.Status.StartedAt
		}
		return err
	})
	deleteNow(b, c, p)
	waitFor(b, time.Minute, "pod "+name+" is gone from the runtime", func() error {
		listed, err := runtime.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}, LabelSelector: map[string]string{"io.kubernetes.pod.name": name}}})
		if err == nil && len(listed.Items) > 0 {
			err = fmt.Errorf("it still has a sandbox")
		}
		return err
	})
	return time.Unix(0, started).Sub(began)
}

// median returns the median, and sorts the durations.
func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkCreatePods compares how many pods a second 16 clients create through a patched
// kube-apiserver and through an unpatched one on the same etcd. They take turns. The results
// are the mean ratio of their throughputs, its standard error, and the ratio of the CPU time
// that all processes take.
//
// Two processes of one binary differ by some percent for as long as they run. So both restart
// before each block of turns, each in the other's place, and the error is that of blocks.
// Garbage is collected between turns: how often it is collected depends on the heap, and not
// on the plugin.
func BenchmarkCreatePods(b *testing.B) {
	b.Setenv("GOGC", "1000") // of both servers and etcd
	with := config
	with.WithoutNode = true
	c := alone(b, with)
	reportingNode(b, c, "reporting", "management")
	for b.Loop() {
		compareCreation(b, c, 8, 10, nil)
	}
	b.ReportMetric(0, "ns/op")
}

// compareCreation has pods created through the kube-apiserver of the cluster, which is patched, and
// through an unpatched one, in a number of blocks of some rounds of turns each, and reports the
// results. It logs those of each block, so that those of several runs can be added up. It calls
// after, unless that is nil, at the end of each block, when no pods are left.
func compareCreation(b *testing.B, c *host.Cluster, blocks, rounds int, after func(servers map[bool][]*kubernetes.Clientset)) {
	b.Helper()
	namespace := fixture.Namespace(b, c.Client, "management")
	// It would cost time for each pod, and only in the kube-apiserver to which it is connected.
	if err := c.ControllerManager.Stop(10 * time.Second); err != nil {
		b.Fatal(err)
	}
	const clients, pods = 16, 240
	// A partitioned pod is a larger object than the pod that asked. The plugin's own cost shows
	// where the unpatched kube-apiserver is given the partitioned pod.
	objects := map[string]*v1.Pod{"ordinary": twoContainers(nil), "asking": twoContainers(asks), "partitioned": fixture.Partitioned(twoContainers(asks))}
	kinds := []string{"ordinary", "partitioned", "asking"}
	turns := map[string]*results{}
	for _, kind := range kinds {
		turns[kind] = &results{blocks: make([]float64, blocks), cpu: map[bool]time.Duration{}}
	}
	for block := range blocks {
		servers := bothServers(b, c, namespace, clients, block%2 == 0)
		processes := []int{c.APIServer.PID(), c.SecondAPIServer.PID(), c.Etcd.PID(), os.Getpid()}
		for round := range rounds + 1 {
			for _, server := range servers {
				if err := server[0].RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(b.Context()).Error(); err != nil {
					b.Fatal(err)
				}
			}
			first := round%2 == 0
			for i := range kinds {
				// Each kind comes first as often as the others.
				kind := kinds[(i+round)%len(kinds)]
				took, cpu := map[bool]time.Duration{}, map[bool]time.Duration{}
				for _, patched := range []bool{first, !first} {
					before := cpuTime(b, processes)
					took[patched] = createMany(b, servers[patched], namespace, objects[kind], pods)
					cpu[patched] = cpuTime(b, processes) - before
				}
				// The first round warms up.
				if round > 0 {
					turns[kind].add(block, took, cpu)
				}
			}
			deletePods(b, servers[first][0], namespace)
			for _, clients := range servers {
				awaitNoPods(b, clients[0], namespace)
			}
		}
		for _, kind := range kinds {
			b.Logf("block %d: the ratio of %s pods is %.4f", block, kind, math.Exp(turns[kind].blocks[block]/float64(rounds)))
		}
		if after != nil {
			after(servers)
		}
	}
	for _, kind := range kinds {
		r := turns[kind]
		mean, standardError := r.ratio(float64(rounds))
		b.ReportMetric(float64(blocks*rounds*pods)/r.took.Seconds(), "pods/s-unpatched-"+kind)
		b.ReportMetric(mean, "ratio-"+kind)
		b.ReportMetric(standardError, "error-"+kind)
		b.ReportMetric(r.cpu[false].Seconds()/r.cpu[true].Seconds(), "cpu-ratio-"+kind)
	}
}

// deletePods deletes all pods of a namespace, without a grace period. One request for all of them
// would take longer than requests may, where there are thousands.
func deletePods(t testing.TB, client *kubernetes.Clientset, namespace string) {
	t.Helper()
	list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(list.Items))
	const atOnce = 16
	workqueue.ParallelizeUntil(t.Context(), atOnce, len(list.Items), func(i int) {
		err := client.CoreV1().Pods(namespace).Delete(t.Context(), list.Items[i].Name, *metav1.NewDeleteOptions(0))
		if !apierrors.IsNotFound(err) { // one that was ending has gone
			errs[i] = err
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// awaitNoPods waits until the cache of a kube-apiserver has no pods of a namespace.
func awaitNoPods(b *testing.B, client *kubernetes.Clientset, namespace string) {
	b.Helper()
	waitFor(b, time.Minute, "the cache of kube-apiserver has no pods", func() error {
		// With version 0 the answer comes from the cache.
		left, err := client.CoreV1().Pods(namespace).List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("it has %d pods", len(left.Items))
		}
		return err
	})
}

// bothServers restarts both kube-apiservers, with the patched one in the first or in the second
// place. It returns clients of both, those of the patched one under true.
func bothServers(b *testing.B, c *host.Cluster, namespace string, clients int, patchedFirst bool) map[bool][]*kubernetes.Clientset {
	b.Helper()
	if err := errors.Join(c.APIServer.Kill(), c.SecondAPIServer.Kill()); err != nil {
		b.Fatal(err)
	}
	first, second := filepath.Join(config.Bin, "kube-apiserver"), filepath.Join(upstreamBin, "kube-apiserver")
	if !patchedFirst {
		first, second = second, first
	}
	c.APIServer.Args()[0], c.SecondAPIServer.Args()[0] = first, second
	if err := c.StartAPIServer(b.Context()); err != nil {
		b.Fatal(err)
	}
	url, err := c.StartSecondAPIServer(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	servers := map[bool][]*kubernetes.Clientset{patchedFirst: manyClients(b, "", clients), !patchedFirst: manyClients(b, url, clients)}
	awaitActive(b, func(p *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
		return servers[true][0].CoreV1().Pods(namespace).Create(b.Context(), p, options)
	}, true)
	return servers
}

// results are those of pairs of turns, one of each kube-apiserver.
type results struct {
	// blocks has for each block the sum of the logarithms of the ratios of throughputs.
	blocks []float64
	// took is the time that the unpatched one took.
	took time.Duration
	// cpu is the CPU time of all processes, for the patched one under true.
	cpu map[bool]time.Duration
}

// add adds a pair of turns, with the times of the patched one under true.
func (r *results) add(block int, took, cpu map[bool]time.Duration) {
	r.blocks[block] += math.Log(took[false].Seconds() / took[true].Seconds())
	r.took += took[false]
	r.cpu[true] += cpu[true]
	r.cpu[false] += cpu[false]
}

// ratio returns the geometric mean of the ratios, patched to unpatched, and its standard error.
func (r *results) ratio(rounds float64) (mean, standardError float64) {
	n := float64(len(r.blocks))
	var sum, squares float64
	for _, block := range r.blocks {
		sum += block / rounds
		squares += block / rounds * block / rounds
	}
	return math.Exp(sum / n), math.Sqrt((squares/n - sum/n*sum/n) / (n - 1))
}

// cpuTime returns the CPU time that the processes have used together.
func cpuTime(b *testing.B, processes []int) (used time.Duration) {
	b.Helper()
	for _, pid := range processes {
		// The number of a process's clock is that of clock_getcpuclockid(3).
		var clock unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|unix.CLOCK_PROCESS_CPUTIME_ID), &clock); err != nil {
			b.Fatalf("the CPU time of process %d: %v", pid, err)
		}
		used += time.Duration(clock.Nano())
	}
	return used
}

// manyClients returns clients of a kube-apiserver, each with its own connection.
func manyClients(b *testing.B, url string, n int) (clients []*kubernetes.Clientset) {
	b.Helper()
	config := clientConfig(b, url)
	config.QPS = -1
	for range n {
		tls, err := rest.TLSConfigFor(config)
		if err != nil {
			b.Fatal(err)
		}
		client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}})
		if err != nil {
			b.Fatal(err)
		}
		clients = append(clients, client)
	}
	return clients
}

// twoContainers returns a pod of two containers.
func twoContainers(annotations map[string]string) *v1.Pod {
	return fixture.Pod("", annotations, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""), fixture.Container("d", "true", "cpu=50m memory=16Mi", ""))
}

// createMany creates pods, and returns how long it took.
func createMany(b *testing.B, clients []*kubernetes.Clientset, namespace string, object *v1.Pod, pods int) time.Duration {
	b.Helper()
	var all sync.WaitGroup
	began := time.Now()
	for _, client := range clients {
		all.Go(func() {
			for range pods / len(clients) {
				p := object.DeepCopy()
				p.GenerateName = "p-"
				if _, err := client.CoreV1().Pods(namespace).Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
