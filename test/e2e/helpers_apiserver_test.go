// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// partitioningConfig returns an admission configuration file with fields of the plugin's
// configuration.
func partitioningConfig(configuration string) string {
	return `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{"name": "workload.openshift.io/Partitioning", "configuration":
		{"apiVersion": "partitioning.workload.openshift.io/v1alpha1", "kind": "PartitioningConfiguration", ` + configuration + `}}]}`
}

// restartAPIServer restarts kube-apiserver with an admission configuration file; the empty one
// means that there is none.
func restartAPIServer(t *testing.T, c *host.Cluster, configuration string) {
	t.Helper()
	c.Config.AdmissionConfiguration = configuration
	if err := c.RestartAPIServer(cleanup(t)); err != nil {
		t.Fatal(err)
	}
}

// useAPIServer restarts the control plane with another kube-apiserver; the empty path means ours.
func useAPIServer(t *testing.T, c *host.Cluster, path string) {
	t.Helper()
	c.UseAPIServer(path)
	restartAPIServer(t, c, c.Config.AdmissionConfiguration)
}

// reportingNode creates a node without a kubelet that reports the cores of workload types. It
// deletes the node after the test.
func reportingNode(t testing.TB, c *host.Cluster, name string, workloadTypes ...string) {
	t.Helper()
	if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, c, name) })
	reportCores(t, c, name, workloadTypes...)
}

func deleteNode(t testing.TB, c *host.Cluster, name string) {
	t.Helper()
	if err := c.Client.CoreV1().Nodes().Delete(cleanup(t), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// reportCores has a node report the cores of these types, and of no others.
func reportCores(t testing.TB, c *host.Cluster, name string, workloadTypes ...string) {
	t.Helper()
	capacity := map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110"}
	for _, workloadType := range workloadTypes {
		capacity[partition.CoresResource(workloadType)] = "4k"
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status/capacity", "value": capacity}, {"op": "add", "path": "/status/allocatable", "value": capacity}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// awaitActive waits until pods that ask are partitioned, or until they no longer are.
func awaitActive(t testing.TB, create creator, want bool) {
	t.Helper()
	fixture.AwaitActive(t, 5*time.Second, create, want)
}

// activeType returns the shared control plane, which has no node but one without a kubelet that reports
// cores of the type management, so that the type is active; and a namespace that allows it.
func activeType(t testing.TB) (c *host.Cluster, namespace string) {
	t.Helper()
	c = apiServer(t)
	reportingNode(t, c, "reporting", "management")
	namespace = fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, namespace), true)
	return c, namespace
}

// creator creates a pod.
type creator func(*v1.Pod, metav1.CreateOptions) (*v1.Pod, error)

// creating returns the administrator's creator for a namespace.
func creating(t testing.TB, c *host.Cluster, namespace string) creator {
	return func(p *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
		return c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, options)
	}
}

// sent counts the pods of send, and names them.
var sent int

// send creates a pod, and returns what is stored and the warnings that come with the answer. It
// does so in one of the ways that clients have: create, dry run, generateName or apply.
func send(t *testing.T, namespace string, p *v1.Pod, how string) (*v1.Pod, []string, error) {
	t.Helper()
	client, recorded := recording(t)
	sent++
	if p.Name == "" {
		p.Name = fmt.Sprintf("p-%d", sent)
	}
	var options metav1.CreateOptions
	switch how {
	case "dry run":
		options.DryRun = []string{metav1.DryRunAll}
	case "generateName":
		p.GenerateName, p.Name = p.Name+"-", ""
	case "apply":
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "e2e"})
		return got, recorded.texts, err
	}
	got, err := client.CoreV1().Pods(namespace).Create(t.Context(), p, options)
	return got, recorded.texts, err
}

// warnings records the HTTP warnings that come with answers.
type warnings struct {
	sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

// clientConfig returns the administrator's configuration for a kube-apiserver; the empty URL
// means the first one.
func clientConfig(t testing.TB, url string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags(url, host.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func clientFor(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// recording returns a client of the administrator's and the warnings that it gets.
func recording(t *testing.T) (*kubernetes.Clientset, *warnings) {
	t.Helper()
	config, recorded := clientConfig(t, ""), &warnings{}
	config.WarningHandler = recorded
	return clientFor(t, config), recorded
}

// kubectl runs kubectl in a namespace, and returns what it printed, warnings included.
func kubectl(t testing.TB, namespace, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(config.Bin, "kubectl"), append([]string{"--kubeconfig=" + host.Kubeconfig, "--namespace=" + namespace}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	// Its caches do not belong in a home directory.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// mustKubectl is kubectl for a command that succeeds.
func mustKubectl(t testing.TB, namespace, input string, args ...string) string {
	t.Helper()
	output, err := kubectl(t, namespace, input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}

// scrape returns kube-apiserver's metrics.
func scrape(t *testing.T, c *host.Cluster) string {
	t.Helper()
	data, err := c.Client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// podSeries returns the series of kube-apiserver's counter of pods, by their names with labels.
func podSeries(t *testing.T, c *host.Cluster) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for line := range strings.Lines(scrape(t, c)) {
		if strings.HasPrefix(line, "apiserver_workload_partitioning_pods_total{") {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			var count float64
			if _, err := fmt.Sscan(value, &count); err != nil {
				t.Fatal(err)
			}
			series[name+"}"] = count
		}
	}
	return series
}
