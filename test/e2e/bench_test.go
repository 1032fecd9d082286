package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cmd/cluster/local"
	"workload.openshift.io/partition"
)

// BenchmarkPodStart measures the time from the creation of a pod to the start of its
// container, as the runtime tells it, with an unpatched kubelet and with ours. They
// take turns in one run, and what counts is the ratio of medians.
func BenchmarkPodStart(b *testing.B) {
	c := partitioned(b)
	b.Cleanup(func() {
		c.UseKubelet("")
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			b.Error(err)
		}
		restart(b, c, pinning)
	})
	namespace := newNamespace(b, c, "management")
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
				// There and back, so that a host that gets slower does so for all.
				kind := kinds[i]
				if round%2 == 1 {
					kind = kinds[len(kinds)-1-i]
				}
				c.UseKubelet(kind.kubelet)
				if err := c.ChangeCPUManagerPolicy("static"); err != nil {
					b.Fatal(err)
				}
				restart(b, c, kind.file)
				// The kubelet's own start is not meant, nor are the first pod's caches.
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

type startKind struct {
	name, kubelet, file string
	annotations         map[string]string
	took                []time.Duration
}

func startOne(b *testing.B, c *local.Cluster, runtime runtimeapi.RuntimeServiceClient, namespace, name string, kind *startKind) time.Duration {
	p := pod(name, kind.annotations, container("c", "trap exit TERM; sleep 1000 & wait", "cpu=100m memory=16Mi", ""))
	began := time.Now()
	if _, err := c.Client.CoreV1().Pods(namespace).Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
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
			return fmt.Errorf("it has %d running containers", len(listed.Containers))
		}
		status, err := runtime.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: listed.Containers[0].Id})
		if err == nil {
			started = status.Status.StartedAt
		}
		return err
	})
	var grace int64
	if err := c.Client.CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		b.Fatal(err)
	}
	waitFor(b, time.Minute, "pod "+name+" is gone from the runtime", func() error {
		listed, err := runtime.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}, LabelSelector: map[string]string{"io.kubernetes.pod.name": name}}})
		if err == nil && len(listed.Items) > 0 {
			err = fmt.Errorf("it has a sandbox")
		}
		return err
	})
	return time.Unix(0, started).Sub(began)
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkCreatePods measures how many pods a second 16 clients create through our
// kube-apiserver and an unpatched one on the same etcd. They take turns in one run, and
// what counts is the ratio of medians.
func BenchmarkCreatePods(b *testing.B) {
	endShared(b)
	with := config
	with.WithoutNode, with.SecondAPIServer = true, filepath.Join(upstreamBin, "kube-apiserver")
	c := local.New(with)
	b.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := c.Up(b.Context()); err != nil {
		b.Fatal(err)
	}
	unpatched, err := c.StartSecondAPIServer(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	reportingNode(b, c, "reporting", "management")
	namespace := newNamespace(b, c, "management")
	awaitActive(b, creating(b, c, namespace), true)
	// Many short turns, since a host is not equally fast for long.
	const clients, rounds, pods = 16, 60, 160
	servers := map[string][]*kubernetes.Clientset{"patched": manyClients(b, "", clients), "unpatched": manyClients(b, unpatched, clients)}
	rates := map[string][]float64{}
	// A partitioned pod is a larger object than the one that asked, whoever makes it so:
	// the plugin's own cost is that against a server that is given the same object.
	objects := map[string]*v1.Pod{"ordinary": twoContainers(nil), "asking": twoContainers(asks)}
	objects["partitioned"] = twoContainers(asks)
	partition.Mutate(partition.V1(objects["partitioned"]), partition.Policy{Gate: func(string) partition.Reason { return "" }})
	kinds := []string{"ordinary", "partitioned", "asking"}
	var turns []turn
	for _, kind := range kinds {
		turns = append(turns, turn{kind, "patched"}, turn{kind, "unpatched"})
	}
	for b.Loop() {
		for round := range rounds + 1 {
			for i := range turns {
				// Each is first, and each is last, as often as the others.
				turn := turns[(i+round)%len(turns)]
				if round/len(turns)%2 == 1 {
					turn = turns[(len(turns)-1-i+round)%len(turns)]
				}
				rate := createMany(b, servers[turn.server], namespace, objects[turn.kind], pods)
				// The first round warms up.
				if round > 0 {
					rates[turn.kind+"/"+turn.server] = append(rates[turn.kind+"/"+turn.server], rate)
				}
			}
			var grace int64
			if err := c.Client.CoreV1().Pods(namespace).DeleteCollection(b.Context(), metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{}); err != nil {
				b.Fatal(err)
			}
			// Until controllers have seen it.
			time.Sleep(300 * time.Millisecond)
		}
	}
	for _, kind := range kinds {
		patched, base := medianRate(rates[kind+"/patched"]), medianRate(rates[kind+"/unpatched"])
		b.ReportMetric(base, "pods/s-unpatched-"+kind)
		b.ReportMetric(patched/base, "ratio-"+kind)
	}
	b.ReportMetric(0, "ns/op")
}

type turn struct{ kind, server string }

func medianRate(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// manyClients returns clients of a server, each with a connection of its own.
func manyClients(b *testing.B, url string, n int) (clients []*kubernetes.Clientset) {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags(url, local.Kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
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

func twoContainers(annotations map[string]string) *v1.Pod {
	return pod("", maps.Clone(annotations), container("c", "true", "cpu=100m memory=16Mi", ""), container("d", "true", "cpu=50m memory=16Mi", ""))
}

// createMany returns how many pods were created a second.
func createMany(b *testing.B, clients []*kubernetes.Clientset, namespace string, object *v1.Pod, pods int) float64 {
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
	return float64(pods) / time.Since(began).Seconds()
}
