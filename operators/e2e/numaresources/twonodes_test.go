// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
	"workload.openshift.io/operators/e2e/internal/rig"
)

// tellOfTwoNUMANodes restarts the kubelet where it sees a NUMA node for each of the host's first two CPUs. Both CPUs are real, and so is
// what the kubelet gives; only /sys/devices/system/node is a directory of the test, mounted where the kubelet alone sees it. What it
// mounts for pods is seen by itself alone, too, so that pods get no token; the exporter is a process of the test, with the
// same program and a token of a pod.
func tellOfTwoNUMANodes(t *testing.T, node *rig.Node) {
	// Paused, the companion neither brings its exporter back nor deletes what another one writes.
	node.Call(t, "annotate", "numaresourcesoperators", "numaresourcesoperator", "workload.openshift.io/paused=")
	node.WaitFor(t, node.Limit, "the companion is paused", func() error {
		return conditions(t, node, map[string]string{"Paused": "True"})
	})
	node.Call(t, "delete", "daemonsets", "--all", "--namespace="+exporters)
	node.WaitFor(t, node.Limit, "the exporter has ended", func() error {
		pods, err := cluster.Client.CoreV1().Pods(exporters).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("there still is %s", pods.Items[0].Name)
		}
		return err
	})
	imagined := imagine(t)
	program := filepath.Join(t.TempDir(), "kubelet")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount --propagation=private sh -c 'mount --bind \"%s\" /sys/devices/system/node && exec \"%s\" \"$@\"' kubelet \"$@\"\n",
		filepath.Join(imagined, "devices/system/node"), filepath.Join(config.Bin, "kubelet"))
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	// Its certificate is now one of a CA. Memory on the second NUMA node would be the runtime's to bind, and the kernel has no such node.
	authority, serving := certify(t, node)
	before := cluster.Config.KubeletConfiguration
	restartKubelet(t, func(c *host.Config) {
		c.KubeletConfiguration = "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n" + serving
		cluster.UseKubelet(program)
	})
	sysfs = imagined
	startExporter(t, imagined, "--cluster-ca="+authority)
	zones := func(want string) {
		t.Helper()
		node.WaitFor(t, node.Limit, "the zones are "+want, func() error {
			now, err := node.Report(t)
			if err != nil {
				return err
			}
			if err := right(t, node); err != nil {
				return err
			}
			if is := rig.Shown(now); !strings.HasPrefix(is, want+", ") {
				return fmt.Errorf("the report is %s", is)
			}
			return nil
		})
	}
	// The pool has the first one as a whole.
	zones("node-0 cpu 1/0/0, node-1 cpu 1/1/1")
	exclusive := node.StartPod(t, rig.Pod("exclusive", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi"))
	zones("node-0 cpu 1/0/0, node-1 cpu 1/1/0")
	if own := node.CPUsOf(t, exclusive); own.String() != "1" {
		t.Errorf("the kernel lets the pod run on CPUs %s", own)
	}
	t.Logf("the report: %s", rig.Shown(topologyOf(t, node)))
	node.RemovePod(t, "exclusive")
	zones("node-0 cpu 1/0/0, node-1 cpu 1/1/1")
	// Only where the host sees its mounts it can remove what pods leave.
	sysfs = "/sys"
	restartKubelet(t, func(c *host.Config) {
		c.KubeletConfiguration = before
		cluster.UseKubelet("")
	})
}

// certify makes a CA, and a certificate of it for the node's address. It returns the CA's file, and what the kubelet is told.
func certify(t *testing.T, node *rig.Node) (authority, configuration string) {
	t.Helper()
	// The certificate comes first, and its CA's second.
	chain, key, err := cert.GenerateSelfSignedCertKey(node.Object(t).Status.Addresses[0].Address, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, ca := pem.Decode(chain)
	dir := t.TempDir()
	for name, data := range map[string][]byte{"ca.crt": ca, "kubelet.crt": chain, "kubelet.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ca.crt"), fmt.Sprintf("tlsCertFile: %s\ntlsPrivateKeyFile: %s\n", filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key"))
}

// imagine makes a sysfs whose NUMA nodes have one CPU and half of the memory each, and returns it.
func imagine(t *testing.T) string {
	t.Helper()
	nodes, err := topology.ReadNUMA(topology.Sysfs)
	if err != nil {
		t.Fatal(err)
	}
	return topologytest.Sysfs(t, topologytest.Host{Nodes: 2, CoresPerNode: 1, ThreadsPerCore: 1, MemoryPerNode: nodes[0].Memory / 2, HugePagesPerNode: map[int64]int64{2 << 20: 0}})
}

// startExporter runs the exporter until the end of the test, with the token of a pod that never starts.
func startExporter(t *testing.T, sysfs string, arguments ...string) {
	t.Helper()
	const account = "partition-topology"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: exporters, Name: "outside"},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: host.NodeName, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "none", Image: "registry.invalid/none", ImagePullPolicy: corev1.PullNever}},
		},
	}
	pod, err := cluster.Client.CoreV1().Pods(exporters).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if request, err = cluster.Client.CoreV1().ServiceAccounts(exporters).CreateToken(t.Context(), account, request, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.LoadFromFile(host.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range admin.AuthInfos {
		user.ClientCertificate, user.ClientKey, user.ClientCertificateData, user.ClientKeyData, user.Token = "", "", nil, nil, request.Status.Token
	}
	dir := t.TempDir()
	kubeconfig, configuration := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	if err := clientcmd.WriteToFile(*admin, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(configuration, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	object, err := cluster.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(controller), "partition-node"), append([]string{"topology",
		"--kubeconfig=" + kubeconfig, "--config=" + configuration, "--sysfs=" + sysfs,
		"--podresources-socket=" + filepath.Join(cluster.KubeletDir(), "pod-resources", "kubelet.sock"),
		"--kubelet-host=" + object.Status.Addresses[0].Address}, arguments...)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	log := &strings.Builder{}
	command.Stderr = log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Wait() // the context of the test has ended
		if t.Failed() {
			t.Logf("the exporter: %s", log)
		}
	})
}
