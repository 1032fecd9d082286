// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/partition"
)

var (
	bin       = flag.String("bin", "", "directory of the patched Kubernetes binaries; without it, the tests against a control plane are skipped")
	tools     = flag.String("tools", "", "directory of etcd and kwok")
	nodeCount = flag.Int("nodes", 5000, "nodes of the large cluster")
	podCount  = flag.Int("pods", 100_000, "pods of the large cluster, of which half are partitioned, and a tenth is skipped")
)

// asCommand, in the environment, makes the test binary the command itself. Its value is the
// file for the peak of its memory.
const asCommand = "KUBECTL_PARTITION_PEAK"

func TestMain(m *testing.M) {
	file := os.Getenv(asCommand)
	if file == "" {
		os.Exit(tests(m))
	}
	code := run()
	// The kernel's account for a parent (ru_maxrss) begins with that of the parent itself.
	self, err := procfs.Self()
	var memory procfs.ProcStatus
	if err == nil {
		memory, err = self.NewStatus()
	}
	if err == nil {
		err = os.WriteFile(file, fmt.Append(nil, memory.VmHWM), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(code)
}

// paths are those of the control planes; paths of sockets are short.
var paths = host.Paths{Data: "/var/lib/workload-partitioning-plugin", Run: "/run/workload-partitioning-plugin"}

// tests runs the tests, and removes the control planes of tests that were interrupted or killed, too.
func tests(m *testing.M) int {
	flag.Parse()
	if *bin == "" {
		return m.Run()
	}
	return tidy.Run(paths.Data, func() error { return host.New(host.Config{Paths: paths}).Down(context.Background()) }, func() int {
		err := os.Mkdir(paths.Data, 0o700)
		if err == nil {
			err = host.Own(paths.Data)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	})
}

// outcome is what a run of the command gave and cost.
type outcome struct {
	stdout, stderr string
	code           int
	wall, cpu      time.Duration
	peak           uint64 // bytes
}

// command runs the command in a separate process.
func command(t *testing.T, args ...string) outcome {
	t.Helper()
	file := filepath.Join(t.TempDir(), "peak")
	process := exec.CommandContext(t.Context(), os.Args[0], args...)
	process.Env = append(os.Environ(), asCommand+"="+file)
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	began := time.Now()
	err := process.Run()
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), wall: time.Since(began)}
	if process.ProcessState == nil {
		t.Fatal(err)
	}
	o.code, o.cpu = process.ProcessState.ExitCode(), process.ProcessState.UserTime()+process.ProcessState.SystemTime()
	peak, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(peak), &o.peak)
	}
	if err != nil {
		t.Fatalf("%v: %v; it printed %s", args, err, o.stderr)
	}
	return o
}

// readStatus runs status and decodes what it printed.
func readStatus(t *testing.T, args ...string) (*status.Status, outcome) {
	t.Helper()
	o := command(t, append([]string{"status", "-o", "json"}, args...)...)
	s := &status.Status{}
	if err := json.Unmarshal([]byte(o.stdout), s); err != nil {
		t.Fatalf("status %v printed %q and %q: %v", args, o.stdout, o.stderr, err)
	}
	return s, o
}

// controlPlane starts a control plane without a node, and skips the test if no binaries were
// given.
func controlPlane(t *testing.T, controllers ...string) *host.Cluster {
	t.Helper()
	if *bin == "" || *tools == "" {
		t.Skip("-bin and -tools are missing: make build kwok gives their content")
	}
	const beside = 7 // none of the end-to-end tests'
	config := host.Config{Bin: *bin, Tools: *tools, Temporary: true, Paths: paths}.Beside(beside)
	config.Controllers = append([]string{}, controllers...)
	c := host.New(config)
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// namespace creates a namespace in which pods can be created although no controller makes a
// service account.
func namespace(t *testing.T, client kubernetes.Interface, name string, annotations map[string]string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}, metav1.CreateOptions{})
	if err == nil {
		_, err = client.CoreV1().ServiceAccounts(name).Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

const (
	management = "management"
	operators  = "operators"
)

var cores = v1.ResourceName(partition.CoresResource(management))

// largeNode is one of eight CPUs, of which a pool has one.
func largeNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi"),
			v1.ResourcePods: resource.MustParse("250"), cores: resource.MustParse("8000")}},
	}
}

// operator is a pod of the usual size, of a Deployment.
func operator(name, node string, asks bool, resources v1.ResourceRequirements) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: "5b5f5bb99d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5b5f5bb99d", UID: "1", Controller: ptr.To(true)}}},
		Spec: v1.PodSpec{NodeName: node, AutomountServiceAccountToken: ptr.To(false)},
	}
	if asks {
		pod.Annotations = map[string]string{partition.TargetAnnotation(management): ""}
	}
	for i := range 2 {
		container := v1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/operator:v1", Resources: resources}
		for j := range 8 {
			container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: strings.Repeat("v", 20)})
		}
		container.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/ready"}}}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func requests(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

// awaitActive waits until pods are partitioned.
func awaitActive(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	probe := operator("probe", "", true, v1.ResourceRequirements{Requests: requests("100m", "16Mi")})
	if err := poll.Until(t.Context(), 100*time.Millisecond, time.Minute, func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if _, ok := partition.PartitionedType(pod); !ok {
			return fmt.Errorf("it is ordinary, with annotations %v", pod.Annotations)
		}
		return nil
	}); err != nil {
		t.Fatal("a pod that asks is not partitioned: ", err)
	}
}

// role creates a ClusterRole of the documentation, without one of its rules if that is not
// negative, and gives it to a separate user.
func role(t *testing.T, client kubernetes.Interface, file string, without int) (user string, left rbacv1.PolicyRule) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../docs/user/examples", file))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(data, role); err != nil {
		t.Fatal(err)
	}
	if without >= 0 {
		left = role.Rules[without]
		role.Rules = slices.Delete(role.Rules, without, without+1)
	}
	role.Name = fmt.Sprint(strings.TrimSuffix(file, ".yaml"), without)
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role.Name}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	// The authorizer sees a role a moment later.
	right := role.Rules[0]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: role.Name, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: right.Verbs[0], Group: right.APIGroups[0], Version: "*", Resource: right.Resources[0], Name: strings.Join(right.ResourceNames, "")}}}
	if err := poll.Until(t.Context(), 20*time.Millisecond, time.Minute, func(ctx context.Context) error {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New(cmp.Or(answer.Status.Reason, "it is not allowed"))
		}
		return err
	}); err != nil {
		t.Fatalf("user %s has no right to %v %v: %v", role.Name, right.Verbs, right.Resources, err)
	}
	return role.Name, left
}

// The ClusterRoles of the documentation suffice, each of their rules is needed, and a right that
// is missing is named.
func TestTheRolesOfTheDocumentationSuffice(t *testing.T) {
	c := controlPlane(t)
	kubeconfig := c.Config.Paths.Kubeconfig()
	if err := c.CreateNodes(t.Context(), 1, largeNode("only")); err != nil {
		t.Fatal(err)
	}
	namespace(t, c.Client, operators, map[string]string{partition.AllowedAnnotation: management})
	awaitActive(t, c.Client, operators)
	burstable := v1.ResourceRequirements{Requests: requests("100m", "16Mi")}
	if _, err := c.Client.CoreV1().Pods(operators).Create(t.Context(), operator("partitioned", "only-0", true, burstable), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("status", func(t *testing.T) {
		user, _ := role(t, c.Client, "status-role.yaml", -1)
		s, o := readStatus(t, "--kubeconfig", kubeconfig, "--as", user)
		if o.code != 0 || len(s.Unknown) > 0 || len(s.Servers) != 1 || s.Servers[0].Plugin != status.Present || len(s.Nodes) != 1 || s.Nodes[0].RequestedMillicores != 200 {
			t.Errorf("with all rights: exit code %d, %q, %s", o.code, o.stderr, o.stdout)
		}
		if of := s.Types[0]; of.Active == nil || !*of.Active || of.Since == nil || time.Since(of.Since.Time) > time.Hour {
			t.Errorf("the type is %+v", of)
		}
		const rules = 9
		for i := range rules {
			user, left := role(t, c.Client, "status-role.yaml", i)
			s, o := readStatus(t, "--kubeconfig", kubeconfig, "--as", user)
			if named := append(left.Resources, left.NonResourceURLs...)[0]; o.code != 2 || len(s.Unknown) != 1 || !strings.HasPrefix(s.Unknown[0].Right, left.Verbs[0]+" ") || !strings.Contains(s.Unknown[0].Right, named) {
				t.Errorf("without the right to %v %s: exit code %d, unknown %+v", left.Verbs, named, o.code, s.Unknown)
			}
		}
	})
	t.Run("explain", func(t *testing.T) {
		user, _ := role(t, c.Client, "explain-role.yaml", -1)
		o := command(t, "explain", "--kubeconfig", kubeconfig, "--as", user, "-n", operators, "partitioned")
		if o.code != 0 || !strings.Contains(o.stdout, "node only-0, which reports the type") {
			t.Errorf("with all rights: exit code %d, %s%s", o.code, o.stdout, o.stderr)
		}
		for i, named := range []string{"namespaces", "nodes", "pods", "limitranges", "resourcequotas"} {
			user, _ := role(t, c.Client, "explain-role.yaml", i)
			o := command(t, "explain", "--kubeconfig", kubeconfig, "--as", user, "-n", operators, "partitioned")
			if o.code != 2 || !strings.Contains(o.stdout+o.stderr, named) {
				t.Errorf("without the right to %s: exit code %d, %s%s", named, o.code, o.stdout, o.stderr)
			}
		}
	})
}

// A kube-apiserver without the plugin is found, although no other one knows a type yet.
func TestAServerWithoutThePluginIsFound(t *testing.T) {
	c := controlPlane(t)
	args := c.SecondAPIServer.Args()
	args[slices.Index(args, "--enable-admission-plugins=NodeRestriction")] = "--disable-admission-plugins=workload.openshift.io/Partitioning"
	other, err := c.StartSecondAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := poll.Until(t.Context(), time.Second, time.Minute, func(context.Context) error {
		s, o := readStatus(t, "--kubeconfig", c.Config.Paths.Kubeconfig(), "--server", other)
		if of := s.Servers[0]; of.URL != other || of.Plugin != status.Absent || o.code != 1 {
			return fmt.Errorf("exit code %d, servers %+v", o.code, s.Servers)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// Whatever the nodes have, nothing is partitioned there.
	if err := c.CreateNodes(t.Context(), 1, largeNode("only")); err != nil {
		t.Fatal(err)
	}
	namespace(t, c.Client, operators, map[string]string{partition.AllowedAnnotation: management})
	pod := operator("asks", "", true, v1.ResourceRequirements{Requests: requests("100m", "16Mi")})
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: template}}
	if _, err := c.Client.AppsV1().Deployments(operators).Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "deployment/web"}, other + " has no admission plugin"},
		{[]string{"lint", "--live"}, "no_plugin"},
	} {
		o := command(t, append(asked.args, "-n", operators, "--kubeconfig", c.Config.Paths.Kubeconfig(), "--server", other)...)
		if o.code != 1 || !strings.Contains(o.stdout, asked.want) {
			t.Errorf("%v: exit code %d, %s%s", asked.args, o.code, o.stdout, o.stderr)
		}
	}
}

// What a kube-apiserver without the plugin stored was never judged: status names the pods that a kubelet with the
// type would believe, until they are gone or their namespace allows it.
func TestPodsThatWerePlantedBeforeThePluginAreNamed(t *testing.T) {
	c := controlPlane(t)
	args := c.SecondAPIServer.Args()
	args[slices.Index(args, "--enable-admission-plugins=NodeRestriction")] = "--disable-admission-plugins=workload.openshift.io/Partitioning"
	other, err := c.StartSecondAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags(other, c.Config.Paths.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	unpatched, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespace(t, c.Client, "tenant", nil)
	namespace(t, c.Client, operators, map[string]string{partition.AllowedAnnotation: management})
	target := map[string]string{partition.TargetAnnotation(management): `{"effect":"PreferredDuringScheduling"}`}
	plant := func(namespace, name string, annotations map[string]string, requests v1.ResourceList) {
		t.Helper()
		pod := operator(name, "only-0", false, v1.ResourceRequirements{Requests: requests, Limits: v1.ResourceList{}})
		pod.OwnerReferences, pod.Annotations = nil, annotations
		for name, amount := range requests {
			if name == cores {
				for i := range pod.Spec.Containers {
					pod.Spec.Containers[i].Resources.Limits[name] = amount
				}
			}
		}
		if _, err := unpatched.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	sixteen := v1.ResourceList{cores: resource.MustParse("16000"), v1.ResourceMemory: resource.MustParse("16Mi")}
	forged := map[string]string{partition.TargetAnnotation(management): "", "resources.workload.openshift.io/c0": `{"cpushares":16000}`, "resources.workload.openshift.io/c1": `{"cpushares":2}`}
	plant("tenant", "planted", forged, sixteen)
	plant("tenant", "best-effort", forged, nil)
	plant("tenant", "as-openshift", target, sixteen)
	plant("tenant", "cores-alone", nil, sixteen)
	plant("tenant", "ordinary", nil, requests("100m", "16Mi"))
	plant(operators, "allowed", forged, sixteen)
	want := []status.PodNotAllowed{
		{Namespace: "tenant", Name: "as-openshift", Node: "only-0", Type: management, Partitioned: true},
		{Namespace: "tenant", Name: "best-effort", Node: "only-0", Type: management, Partitioned: true},
		{Namespace: "tenant", Name: "planted", Node: "only-0", Type: management, Partitioned: true},
		{Namespace: "tenant", Name: "cores-alone", Node: "only-0", Type: management},
	}
	kubeconfig := []string{"--kubeconfig", c.Config.Paths.Kubeconfig()}
	// This is what docs/user/upgrade.md has, with one pod.
	o := command(t, append([]string{"status"}, kubeconfig...)...)
	t.Log("before the first node has a pool, it prints\n", o.stdout)
	if s, _ := readStatus(t, kubeconfig...); !slices.Equal(s.NotAllowed, want) {
		t.Errorf("before the first node has a pool, pods that are not allowed are\n%+v, want\n%+v", s.NotAllowed, want)
	}
	if err := c.CreateNodes(t.Context(), 1, largeNode("only")); err != nil {
		t.Fatal(err)
	}
	s, o := readStatus(t, kubeconfig...)
	if !slices.Equal(s.NotAllowed, want) || o.code != 1 || s.Undecided != nil {
		t.Errorf("exit code %d, undecided %+v, notAllowed\n%+v, want\n%+v", o.code, s.Undecided, s.NotAllowed, want)
	}
	if len(s.Unbounded) != 1 || s.Unbounded[0] != (status.Unbounded{Namespace: operators, Type: management}) {
		t.Errorf("unbounded are %+v, want %s", s.Unbounded, operators)
	}
	o = command(t, append([]string{"status"}, kubeconfig...)...)
	t.Log("it prints\n", o.stdout)
	for _, text := range []string{"tenant/planted", "Delete each (kubectl delete pod --namespace NAMESPACE NAME)", "requests.management.workload.openshift.io/cores: operators"} {
		if !strings.Contains(o.stdout, text) {
			t.Errorf("it does not print %q", text)
		}
	}
	// An update changes nothing: a pod keeps its partition until it ends.
	patch := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
	if _, err := c.Client.CoreV1().Pods("tenant").Patch(t.Context(), "planted", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"planted", "best-effort"} {
		if err := c.Client.CoreV1().Pods("tenant").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		if s, _ := readStatus(t, kubeconfig...); slices.ContainsFunc(s.NotAllowed, func(p status.PodNotAllowed) bool { return p.Name == name }) {
			t.Errorf("%s is deleted, and still named", name)
		}
	}
	allow := []byte(`{"metadata":{"annotations":{"workload.openshift.io/allowed":"management"}}}`)
	if _, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), "tenant", types.MergePatchType, allow, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// What has no target is still undecided.
	if s, _ := readStatus(t, kubeconfig...); len(s.NotAllowed) != 0 || s.Undecided == nil || s.Undecided.Count != 1 {
		t.Errorf("in a namespace that allows the type, notAllowed are %+v, undecided %+v", s.NotAllowed, s.Undecided)
	}
}

// Status of a large cluster needs little memory, and counts every pod. What it takes is
// printed and not asserted: hosts differ.
func TestStatusOfALargeCluster(t *testing.T) {
	c := controlPlane(t, "kwok")
	const without = 3
	if err := c.CreateNodes(t.Context(), 1, largeNode("sample")); err != nil {
		t.Fatal(err)
	}
	namespace(t, c.Client, operators, map[string]string{partition.AllowedAnnotation: management})
	awaitActive(t, c.Client, operators)

	// Of ten pods five are partitioned, one is skipped and four do not ask.
	burstable, guaranteed := v1.ResourceRequirements{Requests: requests("100m", "16Mi")}, v1.ResourceRequirements{Requests: requests("100m", "16Mi"), Limits: requests("100m", "16Mi")}
	var samples []*v1.Pod
	for i := range 10 {
		resources := burstable
		if i == 5 {
			resources = guaranteed
		}
		pod, err := c.Client.CoreV1().Pods(operators).Create(t.Context(), operator(fmt.Sprint("sample-", i), "sample-0", i <= 5, resources), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, pod)
	}
	played := largeNode("simulated")
	if err := poll.Until(t.Context(), time.Second, 5*time.Minute, func(ctx context.Context) (err error) {
		played.Status, err = simulated(ctx, c.Client, "sample-0", samples)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// Heartbeats of thousands of nodes would take the CPUs on which status is measured. So kwok
	// has played one node, and the others look like it.
	if err := c.Kwok.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	late := played.DeepCopy()
	late.Name = "late"
	delete(late.Status.Capacity, cores)
	began := time.Now()
	if err := errors.Join(c.CreateNodes(t.Context(), *nodeCount-without-1, played), c.CreateNodes(t.Context(), without, late)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes were created in %s", *nodeCount, time.Since(began))
	copyPods(t, c, samples, *podCount, *nodeCount-without-1)
	if _, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(operators).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var o outcome
	var s *status.Status
	for range 3 {
		s, o = readStatus(t, "--kubeconfig", c.Config.Paths.Kubeconfig())
		t.Logf("status took %s, %s of CPU time, and at most %d MiB of memory", o.wall.Round(time.Millisecond), o.cpu.Round(time.Millisecond), o.peak>>20)
		if most := uint64(500 << 20); o.peak > most {
			t.Errorf("it had %d MiB of memory, want at most %d", o.peak>>20, most>>20)
		}
	}
	if o.code != 1 {
		t.Errorf("the exit code is %d, want 1; it printed %s", o.code, o.stderr)
	}
	if len(s.Types) != 1 || len(s.Skipped) != 1 || len(s.Autoscalers) != 1 || len(s.Unknown) != 0 || s.Undecided != nil {
		t.Fatalf("types %+v, skipped %+v, autoscalers %+v, unknown %+v, undecided %+v", s.Types, s.Skipped, s.Autoscalers, s.Unknown, s.Undecided)
	}
	partitioned, pods, requested := *podCount/2, 0, int64(0)
	for _, node := range s.Nodes {
		pods += node.Pods
		requested += node.RequestedMillicores
	}
	if of := s.Types[0]; of.Name != management || of.Active == nil || !*of.Active || of.Pods != partitioned || pods != partitioned || of.RequestedMillicores != int64(200*partitioned) || requested != of.RequestedMillicores ||
		of.NodesReporting != *nodeCount-without || len(of.Missing) != without || of.CoresMillicores != int64(8000*(*nodeCount-without)) {
		t.Errorf("the type is %+v, and its nodes add up to %d pods and %dm", of, pods, requested)
	}
	if of := s.Skipped[0]; of.Reason != partition.ReasonGuaranteed || of.Count != *podCount/10 {
		t.Errorf("skipped are %+v", of)
	}
}

// simulated returns what kwok has made of a node's status, and an error until it has played the
// node and its pods, which are read again.
func simulated(ctx context.Context, client kubernetes.Interface, name string, pods []*v1.Pod) (v1.NodeStatus, error) {
	for i := range pods {
		pod, err := client.CoreV1().Pods(operators).Get(ctx, pods[i].Name, metav1.GetOptions{})
		if err != nil {
			return v1.NodeStatus{}, err
		}
		if *pods[i] = *pod; pod.Status.Phase != v1.PodRunning {
			return v1.NodeStatus{}, fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
	}
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return v1.NodeStatus{}, err
	}
	if len(node.Status.Conditions) == 0 {
		return v1.NodeStatus{}, fmt.Errorf("node %s has no conditions", name)
	}
	return node.Status, nil
}

// copyPods copies pods into etcd until there are so many, spread over the nodes. To create them
// would take many minutes, and status would see the same. Each has its own revision, as
// kube-apiserver's cache requires (k8s.io/apiserver, pkg/storage/cacher).
func copyPods(t *testing.T, c *host.Cluster, samples []*v1.Pod, count, nodes int) {
	t.Helper()
	client, err := c.EtcdClient()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	errs := make([]error, count-len(samples))
	const atOnce = 16
	workqueue.ParallelizeUntil(t.Context(), atOnce, len(errs), func(at int) {
		i := len(samples) + at
		pod := samples[i%len(samples)].DeepCopy()
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Name, pod.UID, pod.ResourceVersion = fmt.Sprint("p-", i), uuid.NewUUID(), ""
		pod.Spec.NodeName = fmt.Sprint("simulated-", i%nodes)
		var value bytes.Buffer
		if errs[at] = serializer.Encode(pod, &value); errs[at] == nil {
			errs[at] = put(client, c.EtcdURL(), "/registry/pods/"+operators+"/"+pod.Name, value.Bytes())
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods were copied in %s", count, time.Since(began))
}

// put writes a key of etcd.
func put(client *http.Client, etcd, key string, value []byte) error {
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		return err
	}
	answer, err := client.Post(etcd+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd does not put %s: %s", key, answer.Status)
	}
	return nil
}
