// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/gather"
	"workload.openshift.io/kubernetes/node/audit"
)

// entries returns the files of an archive in their order, by the names that they have below its directory.
func entries(t *testing.T, path string) (names []string, files map[string]string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, below := strings.CutPrefix(header.Name, strings.TrimSuffix(filepath.Base(path), ".tar.gz")+"/")
		if !below || header.Mode != 0o600 {
			t.Errorf("the archive has %s with the mode %o", header.Name, header.Mode)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		files[name] = string(content)
	}
}

// kubelets play those of a few nodes, which differ in what becomes of the pods there.
func kubelets(t *testing.T, c *host.Cluster, record string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.Split(r.URL.Path, "/"); {
		case len(path) != 5 || path[1] != "containerLogs":
			http.NotFound(w, r)
		case path[2] == "partition-cpupolicy":
			fmt.Fprintf(w, "a line of container %s, of which it has %s\n", path[4], r.URL.Query().Get("tailLines"))
		case strings.HasPrefix(path[3], "audit-"):
			fmt.Fprintf(w, "W1129 a warning\n%s", record)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	address, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var number int32
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	for name, ready := range map[string]v1.ConditionStatus{"broken": v1.ConditionTrue, "silent": v1.ConditionUnknown, "slow": v1.ConditionTrue, "works": v1.ConditionTrue} {
		node := largeNode(name)
		node.Labels = map[string]string{"role": name}
		node.Annotations = map[string]string{"nodegroup.workload.openshift.io/claim": `{"owner":"cpupolicy"}`, "kubectl.kubernetes.io/last-applied-configuration": "hidden"}
		made, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = node.Status
		made.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
		made.Status.DaemonEndpoints.KubeletEndpoint.Port = number
		made.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.Now()}}
		if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	watching, err := c.Client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{LabelSelector: gather.Label})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watching.Stop)
	go func() {
		for event := range watching.ResultChan() {
			pod, is := event.Object.(*v1.Pod)
			if !is || pod.Status.ContainerStatuses != nil || pod.DeletionTimestamp != nil {
				continue
			}
			status := v1.ContainerStatus{Name: "audit"}
			switch pod.Spec.NodeName {
			case "works": // it has a finding
				pod.Status.Phase, status.State.Terminated = v1.PodFailed, &v1.ContainerStateTerminated{ExitCode: 1}
			case "broken":
				status.State.Waiting = &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}
			default:
				continue
			}
			pod.Status.ContainerStatuses = []v1.ContainerStatus{status}
			_, _ = c.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
		}
	}()
}

// aCompanion makes what a companion has in its namespace, with something hidden in each object.
func aCompanion(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	const name = "partition-cpupolicy"
	namespace(t, client, name, map[string]string{"workload.openshift.io/allowed": "management"})
	_, err := client.CoreV1().Namespaces().Patch(t.Context(), name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/part-of":"workload-partitioning"}}}`), metav1.PatchOptions{})
	if err == nil {
		_, err = client.CoreV1().Secrets(name).Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "webhook-certificate"}, StringData: map[string]string{"tls.key": "hidden"}}, metav1.CreateOptions{})
	}
	for of, content := range map[string]string{"configuration": "controller: cpupolicy", "kube-root-ca.crt": "hidden"} {
		if err == nil {
			_, err = client.CoreV1().ConfigMaps(name).Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: of}, Data: map[string]string{"config.yaml": content}}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	pod := operator("partition-controller", "works", false, v1.ResourceRequirements{})
	pod.OwnerReferences, pod.Spec.Containers = nil, pod.Spec.Containers[:1]
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "TOKEN", Value: "hidden"}}
	made, err := client.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil {
		made.Status.Phase, made.Status.ContainerStatuses = v1.PodRunning, []v1.ContainerStatus{{Name: "c0", RestartCount: 1, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		_, err = client.CoreV1().Pods(name).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recordText is what the pod of a node writes, and the codes of what an audit finds there.
func recordText(t *testing.T) (text string, findings []audit.Code) {
	t.Helper()
	options, err := audit.Recorded("../../node/audit/testdata/v1-cgroupfs.txtar", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := audit.RecordText(t.Context(), options, &written); err != nil {
		t.Fatal(err)
	}
	return written.String(), codes(t, options)
}

func codes(t *testing.T, options audit.Options) (codes []audit.Code) {
	t.Helper()
	result, err := audit.Audit(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// expectNothingLeft waits until a gather has left no pod, and no namespace that is not about to go.
func expectNothingLeft(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: gather.Label})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods are left (%v)", len(pods.Items), err)
	}
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: gather.Label})
	if err != nil || len(namespaces.Items) == 0 {
		t.Errorf("there were no namespaces (%v)", err)
	}
	for _, namespace := range namespaces.Items {
		if namespace.DeletionTimestamp == nil { // nothing here empties it
			t.Errorf("namespace %s is left", namespace.Name)
		}
	}
}

// An archive has what can be read, and says what cannot. It has no secrets, and nothing is left in the cluster.
func TestGatherReadsACluster(t *testing.T) {
	c := controlPlane(t)
	text, want := recordText(t)
	kubelets(t, c, text)
	aCompanion(t, c.Client)
	file := filepath.Join(t.TempDir(), "fault.tar.gz")
	flags := []string{"gather", "--kubeconfig", c.Config.Paths.Kubeconfig(), "--image", "registry.example.com/kubectl-partition", "--node-timeout", "3s", "--to", file}
	o := command(t, flags...)
	if o.code != 1 || o.stdout != file+"\n" {
		t.Errorf("it ended with %d, and printed %q and\n%s", o.code, o.stdout, o.stderr)
	}
	names, files := entries(t, file)
	var kinds []string
	for _, of := range []string{"nodes", "events-of-nodes", "namespaces", "events-of-kube-system", "lock-of-control-plane", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		kinds = append(kinds, "cluster/"+of+".json")
	}
	for _, of := range []string{"configmaps.json", "events.json", "pods.json", "daemonsets.json", "deployments.json", "jobs.json", "leases.json", "logs/partition-controller/c0.log", "logs/partition-controller/c0.previous.log"} {
		kinds = append(kinds, "companions/partition-cpupolicy/"+of)
	}
	server := strings.ReplaceAll(c.Client.RESTClient().(*rest.RESTClient).Get().URL().Host, ":", "_")
	if expected := slices.Concat([]string{"README", "cluster/versions.json", "cluster/status.json", "kube-apiserver/" + server + ".metrics"}, kinds,
		[]string{"nodes/works/README", "nodes/works/audit.json", "nodes/works/node.txtar", "nodes/works/versions.json", "errors"}); !slices.Equal(names, expected) {
		t.Errorf("the archive has\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(expected, "\n"))
	}
	for name, content := range files {
		if strings.Contains(content, "hidden") {
			t.Errorf("%s has what is hidden:\n%s", name, content)
		}
	}
	for name, has := range map[string]string{
		"cluster/nodes.json": `"nodegroup.workload.openshift.io/claim"`, "cluster/status.json": `"plugin": "present"`, "cluster/versions.json": `"gitVersion": "v1.`,
		"kube-apiserver/" + server + ".metrics": "apiserver_workload_partitioning_", "companions/partition-cpupolicy/configmaps.json": "controller: cpupolicy",
		"companions/partition-cpupolicy/logs/partition-controller/c0.log": "a line of container c0, of which it has 5000",
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s lacks %s:\n%s", name, has, files[name])
		}
	}
	lacks := strings.Split(strings.TrimSpace(files["errors"]), "\n")
	for i, want := range []string{"node broken: its pod waits: ErrImagePull: no such image", "node silent: its kubelet has not answered since ", "node slow: it took longer than 3s: its pod is Pending"} {
		if len(lacks) != 3 || !strings.HasPrefix(lacks[i], want) || !strings.Contains(o.stderr, "- "+want) {
			t.Errorf("errors has %q, and on stderr is\n%s\nwant %q", lacks, o.stderr, want)
		}
	}
	record := filepath.Join(t.TempDir(), "node.txtar")
	if err := os.WriteFile(record, []byte(files["nodes/works/node.txtar"]), 0o600); err != nil {
		t.Fatal(err)
	}
	again := command(t, "audit", "--from", record, "-o", "json")
	var result audit.Result
	if err := json.Unmarshal([]byte(again.stdout), &result); err != nil || again.code != 1 {
		t.Fatalf("audit --from ended with %d (%v): %s%s", again.code, err, again.stdout, again.stderr)
	}
	var got []audit.Code
	for _, f := range result.Findings {
		got = append(got, f.Code)
	}
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("an audit of the record finds %v, want %v", got, want)
	}
	expectNothingLeft(t, c.Client)

	t.Run("an archive is not overwritten, unless that is asked for", func(t *testing.T) {
		before, err := os.Stat(file)
		if err != nil || before.Mode().Perm() != 0o600 {
			t.Errorf("it has the mode %v (%v)", before.Mode(), err)
		}
		o := command(t, flags...)
		if after, err := os.Stat(file); o.code != 2 || !strings.Contains(o.stderr, file+" exists; --force overwrites it") || err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("without --force it ended with %d: %s", o.code, o.stderr)
		}
		if o := command(t, append(flags, "--force", "--selector", "role=works")...); o.code != 0 {
			t.Errorf("with --force, and of the one node that works, it ended with %d: %s", o.code, o.stderr)
		}
		if _, files := entries(t, file); files["errors"] != "" || files["nodes/works/node.txtar"] == "" {
			t.Errorf("then it lacks %s", files["errors"])
		}
	})
	t.Run("what a user may not read is named", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "nothing.tar.gz")
		o := command(t, "gather", "--kubeconfig", c.Config.Paths.Kubeconfig(), "--as", "nobody", "--no-pods", "--to", file)
		_, files := entries(t, file)
		for _, what := range []string{"metrics", "nodes: ", "which companions there are"} {
			if o.code != 1 || !strings.Contains(files["errors"], what) {
				t.Errorf("it ended with %d, and errors lacks %q:\n%s", o.code, what, files["errors"])
			}
		}
	})
	t.Run("an interrupt leaves nothing", func(t *testing.T) {
		dir := t.TempDir()
		process := exec.Command(os.Args[0], "gather", "--kubeconfig", c.Config.Paths.Kubeconfig(), "--image", "registry.example.com/kubectl-partition", "--selector", "role=slow", "--to", filepath.Join(dir, "a.tar.gz"))
		process.Env = append(os.Environ(), asCommand+"="+filepath.Join(t.TempDir(), "peak"))
		var stderr bytes.Buffer
		process.Stderr = &stderr
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = process.Process.Kill() })
		if err := poll.Until(t.Context(), 50*time.Millisecond, time.Minute, func(ctx context.Context) error {
			pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: gather.Label})
			if err == nil && len(pods.Items) == 0 {
				err = errors.New("there is no pod")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := process.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait()
		left, err := os.ReadDir(dir)
		if process.ProcessState.ExitCode() != 2 || err != nil || len(left) > 0 {
			t.Errorf("it ended with %v, and left %v (%v): %s", process.ProcessState, left, err, &stderr)
		}
		expectNothingLeft(t, c.Client)
	})
}
