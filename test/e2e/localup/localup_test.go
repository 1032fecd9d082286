// SPDX-License-Identifier: Apache-2.0

// Package localup runs upstream's own hack/local-up-cluster.sh, unmodified, in a tree with the series, as upstream's
// developers do, and looks at where pods run.
package localup

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// runtime is containerd alone: the script starts the rest. CRI-O, if it is the runtime, uses the network and the directory of it.
var runtime *host.Cluster

// crioProgram and plugin are paths; both are empty without CRI-O.
var crioProgram, plugin string

// printk is the console's log level, which the script raises and leaves.
const printk = "/proc/sys/kernel/printk"

// cniPrograms is where the script looks for CNI plugins, and would download some. While the test has changed the host, it
// is a link.
const cniPrograms = "/opt/cni/bin"

func TestMain(m *testing.M) {
	config := host.Config{RuntimeAlone: true, Temporary: true, Progress: fixture.Progress()}
	flag.StringVar(&config.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&config.Tree, "tree", "", "the release's tree with the series")
	flag.StringVar(&config.Images, "images", "", "directory of the archives of images; without it, the test makes them")
	flag.StringVar(&crioProgram, "crio", "", "the program of CRI-O that takes containerd's place, with pinns next to it or in PATH; needs -plugin")
	flag.StringVar(&plugin, "plugin", "", "the kubectl plugin, which writes CRI-O's drop-in")
	flag.Parse()
	if config.Bin == "" {
		fmt.Println("SKIPPED: the test needs -bin, -tools and -tree; make local-up builds all of it and sets them")
		return
	}
	if why := host.Unfit(); why != nil {
		fmt.Println("SKIPPED: the test does not run, because", why)
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		config.CgroupDriver = host.SystemdDriver
	}
	runtime = host.New(config)
	os.Exit(tidy.Run(host.Dir, down, m.Run))
}

// mark is in the environment of all that the script has started, and of CRI-O.
var mark = "LOCAL_UP_TEST=" + host.Dir

// down ends what the script has started, and removes what it and the test have made, also for tests that were killed.
func down() error {
	// The kernel gives a port back when its process has ended, some time after the signal.
	all := poll.Until(context.Background(), 100*time.Millisecond, time.Minute, func(context.Context) error {
		left, err := marked()
		for _, pid := range left {
			err = fmt.Errorf("process %d runs", pid)
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		return err
	})
	if target, err := os.Readlink(cniPrograms); err == nil && target == runtime.Config.Tools {
		all = errors.Join(all, os.Remove(cniPrograms), os.RemoveAll(partition.PinningFilePath))
		_ = os.Remove(filepath.Dir(cniPrograms)) // fails if it is not empty
	}
	all = errors.Join(all, removeImageCache())
	return errors.Join(all, runtime.Down(context.Background()))
}

// marked returns the processes that the script has started, CRI-O and its monitors.
func marked() (pids []int, err error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		variables, _ := process.Environ() // it may have ended
		name, _ := process.Comm()
		args, _ := process.CmdLine()
		// CRI-O starts monitors with an environment of their own.
		monitor := name == "conmon" && strings.Contains(strings.Join(args, " "), host.Dir+"/")
		if process.PID != os.Getpid() && (slices.Contains(variables, mark) || monitor) {
			pids = append(pids, process.PID)
		}
	}
	return pids, nil
}

func TestUpstreamsLocalClusterIsPartitioned(t *testing.T) {
	needPrograms(t, "scripts/install-packages.sh local-up", "cfssl", "cfssljson", "sudo", "openssl", "curl")
	if err := runtime.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	prepareHost(t)
	dir := filepath.Join(host.Dir, "local-up") // goes with the cluster's directory
	socket := runtime.RuntimeSocket()
	var crio *crio
	if crioProgram != "" {
		crio = startCRIO(t, filepath.Join(dir, "crio"))
		socket = crio.socket
	}
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	ask := fixture.Asks("management")
	static := fixture.Pod("static", ask, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))
	static.Namespace = metav1.NamespaceSystem
	if err := os.WriteFile(filepath.Join(manifests, "static.yaml"), []byte(fixture.Manifest(static)), 0o644); err != nil {
		t.Fatal(err)
	}
	client := start(t, dir, manifests, socket)
	t.Cleanup(func() {
		if err := os.Remove(filepath.Join(manifests, "static.yaml")); err != nil {
			t.Error(err)
		}
		fixture.WaitFor(t, time.Second, time.Minute, "no pod is left", func(ctx context.Context) error {
			pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("there are %d pods", len(pods.Items))
			}
			return err
		})
	})

	namespace := fixture.Namespace(t, client, "management")
	create := func(pod *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
		return client.CoreV1().Pods(namespace).Create(t.Context(), pod, options)
	}
	fixture.AwaitActive(t, time.Minute, create, true)
	pool := cpuset.New(0)
	online, err := host.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{"partitioned": ask, "ordinary": nil} {
		pod := fixture.Pod(name, annotations, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))
		if _, err := create(pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	all := []expected{
		{namespace, "partitioned", pool},
		{namespace, "ordinary", online.Difference(pool)},
		{static.Namespace, static.Name + "-127.0.0.1", pool}, // the script's name of the node
	}
	containers := map[string]string{}
	for _, one := range all {
		containers[one.name] = expectCPUs(t, client, one).Status.ContainerStatuses[0].ContainerID
	}
	if crio == nil {
		return
	}
	crio.expectSandboxes(t, client, all, pool)
	crio.restart(t)
	later := fixture.Pod("after-a-restart", ask, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))
	if _, err := create(later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all = append(all, expected{namespace, later.Name, pool})
	for _, one := range all {
		now := expectCPUs(t, client, one).Status.ContainerStatuses[0].ContainerID
		if before := containers[one.name]; before != "" && now != before {
			t.Errorf("pod %s has the container %s, and before the restart of CRI-O it was %s", one.name, now, before)
		}
	}
	crio.expectSandboxes(t, client, all, pool)
}

// expected are the CPUs of a pod's container.
type expected struct {
	namespace, name string
	cpus            cpuset.CPUSet
}

// needPrograms fails the test if the host lacks a program that a command installs.
func needPrograms(t *testing.T, command string, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v; %s installs it", err, command)
		}
	}
}

// prepareHost writes the pinning file, and shows the script the CNI plugins of the tests. It replaces nothing of the host's.
func prepareHost(t *testing.T) {
	t.Helper()
	for _, path := range []string{cniPrograms, partition.PinningFilePath} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the host has a %s, which the test does not replace (%v)", path, err)
		}
	}
	level, err := os.ReadFile(printk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(printk, level, 0); err != nil {
			t.Error(err)
		}
	})
	err = errors.Join(
		os.MkdirAll(filepath.Dir(cniPrograms), 0o755), os.Symlink(runtime.Config.Tools, cniPrograms),
		os.MkdirAll(filepath.Dir(partition.PinningFilePath), 0o755), os.WriteFile(partition.PinningFilePath, []byte(`{"management": {"cpuset": "0"}}`), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// start runs the script until the test ends, and returns a client of its cluster, whose node is Ready.
func start(t *testing.T, dir, manifests, socket string) kubernetes.Interface {
	t.Helper()
	certificates := filepath.Join(dir, "certificates")
	flags := fmt.Sprintf("--root-dir=%s --cert-dir=%s --local-storage-capacity-isolation=false", runtime.KubeletDir(), certificates)
	if host.CgroupV1() {
		flags += " --fail-cgroupv1=false"
	}
	gates := "AllAlpha=false"
	if host.Unprivileged() {
		gates = "KubeletInUserNamespace=true"
	}
	var said bytes.Buffer
	script := exec.Command(filepath.Join(runtime.Config.Tree, "hack/local-up-cluster.sh"), "-o", runtime.Config.Bin)
	script.Dir = runtime.Config.Tree
	script.Stdout, script.Stderr = &said, &said
	script.Env = append(os.Environ(),
		"PATH="+strings.Join([]string{runtime.Config.Tools, runtime.Config.Bin, os.Getenv("PATH")}, ":"),
		"CERT_DIR="+certificates, "LOG_DIR="+dir, "TMP_DIR="+dir, "ETCD_DIR="+filepath.Join(dir, "etcd"),
		"POD_MANIFEST_PATH="+manifests,
		"CONTAINER_RUNTIME_ENDPOINT=unix://"+socket,
		"CGROUP_DRIVER="+string(runtime.CgroupDriver()),
		"KUBELET_FLAGS="+flags, "FEATURE_GATES="+gates,
		"KUBE_ENABLE_CLUSTER_DNS=false", // its image is downloaded
		"START_MODE=nokubeproxy",        // it would leave the host's firewall changed
		"TERM=dumb", "NO_PROXY=*", "no_proxy=*", mark,
	)
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt of the tests is not the script's
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- script.Wait() }()
	t.Cleanup(func() {
		_ = unix.Kill(script.Process.Pid, unix.SIGINT) // it stops its components
		select {
		case <-ended:
		case <-time.After(3 * time.Minute): // on emulated CPUs; on others it takes seconds
			t.Error("the script did not end in three minutes after an interrupt")
		}
		if t.Failed() {
			t.Logf("the script has said:\n%s", said.String())
			for _, name := range []string{"kubelet.log", "kube-apiserver.log"} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				t.Logf("the end of %s (%v):\n%s", name, err, text[max(0, len(text)-8000):])
			}
		}
	})
	var client kubernetes.Interface
	fixture.WaitFor(t, time.Second, 10*time.Minute, "the script's node is Ready", func(ctx context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("the script has ended: %v", err)
		default:
		}
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(certificates, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue }
		if !slices.ContainsFunc(nodes.Items, func(node v1.Node) bool { return slices.ContainsFunc(node.Status.Conditions, ready) }) {
			return fmt.Errorf("none of %d nodes is Ready", len(nodes.Items))
		}
		return nil
	})
	return client
}

// expectCPUs waits until a pod runs, expects that its container may use these CPUs, as the kernel says, and returns the pod.
func expectCPUs(t *testing.T, client kubernetes.Interface, want expected) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	fixture.WaitFor(t, time.Second, 2*time.Minute, "pod "+want.name+" runs", func(ctx context.Context) (err error) {
		if pod, err = client.CoreV1().Pods(want.namespace).Get(ctx, want.name, metav1.GetOptions{}); err != nil {
			return err
		}
		return fixture.Running(pod)
	})
	fixture.WaitFor(t, time.Second, time.Minute, "pod "+want.name+" has its CPUs", func(context.Context) error {
		usage, err := host.ContainerUsage(pod, pod.Status.ContainerStatuses[0].ContainerID)
		if err != nil {
			return err
		}
		if got := fixture.CPUs(t, usage.CPUs); !got.Equals(want.cpus) {
			return fmt.Errorf("it may use the CPUs %s, want %s", got, want.cpus)
		}
		return nil
	})
	t.Logf("pod %s may use the CPUs %s", want.name, want.cpus)
	return pod
}
