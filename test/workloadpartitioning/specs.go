// SPDX-License-Identifier: Apache-2.0

// Package workloadpartitioning has specs for any cluster: what a user can check
// with a kubeconfig. Like upstream's own packages of specs, it is imported by the test binary
// that runs it. A spec is skipped, with the reason, where the cluster has no partition, or where
// the user may not do what it needs.
package workloadpartitioning

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	e2eskipper "k8s.io/kubernetes/test/e2e/framework/skipper"
	imageutils "k8s.io/kubernetes/test/utils/image"
	admissionapi "k8s.io/pod-security-admission/api"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// workloadType is the type that the specs ask for.
const workloadType = partitiontest.Type

var (
	target = partition.TargetAnnotation(workloadType)
	cores  = v1.ResourceName(partition.CoresResource(workloadType))
)

// shell is the image of containers that a spec looks into; it needs sh, cat and grep.
var shell string

// RegisterFlags adds the flags of this package.
func RegisterFlags(flags *flag.FlagSet) {
	flags.StringVar(&shell, "partitioning-image", imageutils.GetE2EImage(imageutils.BusyBox), "image with sh, cat and grep")
}

var _ = framework.SIGDescribe("node")("WorkloadPartitioning", func() {
	f := framework.NewDefaultFramework("workload-partitioning")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	ginkgo.Context("nodes", func() {
		ginkgo.It("should offer cores for all of their CPUs", func(ctx context.Context) {
			for _, node := range nodesWithCores(ctx, f) {
				want := node.Status.Capacity.Cpu().MilliValue()
				for name, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
					got := list[cores]
					gomega.Expect(got.Value()).To(gomega.Equal(want), "%s of %s on node %s", name, cores, node.Name)
				}
			}
		})
	})

	ginkgo.Context("admission", func() {
		var namespaces map[string]string
		ginkgo.BeforeEach(func(ctx context.Context) {
			namespaces = map[string]string{}
			for _, n := range partitiontest.Namespaces() {
				namespaces[n.Name] = namespaceLike(ctx, f, n)
			}
			skipUnlessActive(ctx, f, namespaces[partitiontest.Open])
		})
		for _, test := range partitiontest.Cases() {
			ginkgo.It("should decide on "+test.Name, func(ctx context.Context) {
				namespace := namespaces[test.Namespace]
				pod, err := create(ctx, f, namespace, test.Pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if test.Want.Pod == nil {
					if test.Want.Reason == partition.ReasonInvalidTarget {
						gomega.Expect(err).To(gomega.MatchError(apierrors.IsInvalid, "it is invalid"))
						return
					}
					gomega.Expect(err).To(gomega.And(gomega.MatchError(apierrors.IsForbidden, "it is forbidden"), gomega.MatchError(gomega.ContainSubstring(test.Want.Text()))))
					return
				}
				framework.ExpectNoError(err)
				if test.FeatureGate != "" && dropped(test.Pod, pod) {
					e2eskipper.Skipf("the cluster has the feature gate %s off", test.FeatureGate)
				}
				gomega.Expect(test.Want.Diff(pod)).To(gomega.BeEmpty())
			})
		}

		ginkgo.It("should keep a pod as it is after its creation", func(ctx context.Context) {
			open := namespaces[partitiontest.Open]
			pod, err := create(ctx, f, open, podtest.Pod(asks(), podtest.Container("c", "cpu=100m memory=16Mi", "memory=32Mi")), metav1.CreateOptions{})
			framework.ExpectNoError(err)
			pods := f.ClientSet.CoreV1().Pods(open)
			forged := fmt.Sprintf(`{"metadata": {"annotations": {%q: null, %q: "{\"cpushares\":100000}"}}}`, target, partition.ResourcesAnnotation("c"))
			after, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(forged), metav1.PatchOptions{})
			framework.ExpectNoError(err)
			for _, key := range []string{target, partition.ResourcesAnnotation("c")} {
				gomega.Expect(after.Annotations).To(gomega.HaveKeyWithValue(key, pod.Annotations[key]))
			}
			_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}`), metav1.PatchOptions{}, "resize")
			if apierrors.IsNotFound(err) {
				e2eskipper.Skipf("the cluster has no in-place resize")
			}
			gomega.Expect(err).To(gomega.And(gomega.MatchError(apierrors.IsInvalid, "it is invalid"), gomega.MatchError(gomega.ContainSubstring(string(cores)))))
		})

		ginkgo.It("should warn of a Deployment whose pods it would skip", func(ctx context.Context) {
			gomega.Expect(warningsOfDeployment(ctx, f, namespaces[partitiontest.Plain])).To(gomega.ContainElement(gomega.ContainSubstring(partition.AllowedAnnotation)))
			gomega.Expect(warningsOfDeployment(ctx, f, namespaces[partitiontest.Open])).NotTo(gomega.ContainElement(gomega.ContainSubstring(partition.Domain)))
		})

		ginkgo.It("should count cores in a ResourceQuota", func(ctx context.Context) {
			open := namespaces[partitiontest.Open]
			name := v1.ResourceName("requests." + string(cores))
			quota := &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cores"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{name: resource.MustParse("500")}}}
			_, err := f.ClientSet.CoreV1().ResourceQuotas(open).Create(ctx, quota, metav1.CreateOptions{})
			framework.ExpectNoError(err)
			gomega.Eventually(ctx, func(ctx context.Context) (v1.ResourceList, error) {
				quota, err := f.ClientSet.CoreV1().ResourceQuotas(open).Get(ctx, quota.Name, metav1.GetOptions{})
				return quota.Status.Used, err
			}).WithTimeout(time.Minute).Should(gomega.HaveKey(name), "kube-apiserver refuses all pods until the quota has a status")
			_, err = create(ctx, f, open, podtest.Pod(asks(), podtest.Container("c", "cpu=501m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			gomega.Expect(err).To(gomega.And(gomega.MatchError(apierrors.IsForbidden, "it is forbidden"), gomega.MatchError(gomega.ContainSubstring("exceeded quota"))))
			_, err = create(ctx, f, open, podtest.Pod(asks(), podtest.Container("c", "cpu=400m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			framework.ExpectNoError(err)
		})
	})

	ginkgo.Context("on a node", func() {
		var node, allows string
		ginkgo.BeforeEach(func(ctx context.Context) {
			nodes := slices.DeleteFunc(nodesWithCores(ctx, f), func(n v1.Node) bool { return n.Spec.Unschedulable || len(noSchedule(n)) > 0 })
			if len(nodes) == 0 {
				e2eskipper.Skipf("no node with %s takes pods without tolerations", cores)
			}
			node = nodes[0].Name
			allows = namespaceLike(ctx, f, partitiontest.Namespace("open", partition.AllowedAnnotation, workloadType))
			skipUnlessActive(ctx, f, allows)
		})

		ginkgo.It("should run partitioned pods on the pool, and all others off it", func(ctx context.Context) {
			first := run(ctx, f, allows, node, podtest.Pod(asks(), podtest.Container("c", "cpu=10m memory=8Mi", "")))
			second := run(ctx, f, allows, node, podtest.Pod(asks(), podtest.Container("c", "", "")))
			ordinary := run(ctx, f, allows, node, podtest.Pod(nil, podtest.Container("c", "memory=8Mi", "")))
			pool, same, others := cpusOf(ctx, f, first), cpusOf(ctx, f, second), cpusOf(ctx, f, ordinary)
			if pool.Equals(others) {
				skipUnlessConfined(ctx, f, node)
			}
			gomega.Expect(same.String()).To(gomega.Equal(pool.String()), "CPUs of a partitioned pod, where another one's are the wanted ones")
			gomega.Expect(pool.Intersection(others).String()).To(gomega.BeEmpty(), "CPUs of the pool %s that an ordinary pod may use, too", pool)
		})

		ginkgo.It("should weigh and limit a container as it asked", func(ctx context.Context) {
			large := run(ctx, f, allows, node, podtest.Pod(asks(), podtest.Container("c", "cpu=400m memory=8Mi", "cpu=500m memory=16Mi")))
			small := run(ctx, f, allows, node, podtest.Pod(asks(), podtest.Container("c", "cpu=100m memory=8Mi", "")))
			const weight = "cat /sys/fs/cgroup/cpu.weight 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.shares"
			gomega.Expect(number(ctx, f, large, weight)).To(gomega.BeNumerically(">", number(ctx, f, small, weight)), "weight of 400m compared with that of 100m")
			const quota = "cut -d ' ' -f 1 /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
			const period = "cut -d ' ' -f 2 /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_period_us"
			gomega.Expect(number(ctx, f, large, quota)*2).To(gomega.Equal(number(ctx, f, large, period)), "twice the quota of 500m")
		})

		ginkgo.It("should tell a container what it asked for", func(ctx context.Context) {
			pod := podtest.Pod(asks(), podtest.Container("c", "cpu=300m memory=8Mi", ""))
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "ASKED", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}}}
			gomega.Expect(number(ctx, f, run(ctx, f, allows, node, pod), "echo $ASKED")).To(gomega.Equal(int64(300)))
		})

		ginkgo.It("should resize the memory of a partitioned pod", func(ctx context.Context) {
			pod := run(ctx, f, allows, node, podtest.Pod(asks(), podtest.Container("c", "cpu=10m memory=8Mi", "memory=16Mi")))
			before := cpusOf(ctx, f, pod)
			_, err := f.ClientSet.CoreV1().Pods(allows).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(`{"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "32Mi"}}}]}}`), metav1.PatchOptions{}, "resize")
			if apierrors.IsNotFound(err) {
				e2eskipper.Skipf("the cluster has no in-place resize")
			}
			framework.ExpectNoError(err)
			gomega.Eventually(ctx, func(ctx context.Context) (string, error) {
				now, err := f.ClientSet.CoreV1().Pods(allows).Get(ctx, pod.Name, metav1.GetOptions{})
				if err != nil || len(now.Status.ContainerStatuses) == 0 || now.Status.ContainerStatuses[0].Resources == nil {
					return "", err
				}
				return now.Status.ContainerStatuses[0].Resources.Limits.Memory().String(), nil
			}).WithTimeout(2 * time.Minute).Should(gomega.Equal("32Mi"))
			gomega.Expect(cpusOf(ctx, f, pod).String()).To(gomega.Equal(before.String()))
		})

		ginkgo.It("should partition static pods that ask", func(ctx context.Context) {
			pods, err := f.ClientSet.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			skipIfForbidden(err, "list pods in all namespaces")
			framework.ExpectNoError(err)
			found := 0
			for i := range pods.Items {
				pod := &pods.Items[i]
				// A kubelet that skips a static pod takes the target away. One without the series leaves it as it is, empty or not.
				_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
				if _, asks := pod.Annotations[target]; !mirror || !asks {
					continue
				}
				found++
				got, partitioned := partition.PartitionedType(pod)
				gomega.Expect(partitioned && got == workloadType).To(gomega.BeTrueBecause("static pod %s/%s asks for type %s; warning: %q", pod.Namespace, pod.Name, workloadType, pod.Annotations[partition.WarningAnnotation]))
			}
			if found == 0 {
				e2eskipper.Skipf("no static pod of node %s asks for type %s", node, workloadType)
			}
		})
	})
})

func asks() map[string]string { return map[string]string{target: ""} }

// nodesWithCores returns the nodes that have a pool of the type. It skips the spec if there is
// none.
func nodesWithCores(ctx context.Context, f *framework.Framework) (with []v1.Node) {
	nodes, err := f.ClientSet.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	skipIfForbidden(err, "list nodes")
	framework.ExpectNoError(err)
	for _, node := range nodes.Items {
		if _, has := node.Status.Capacity[cores]; has {
			with = append(with, node)
		}
	}
	if len(with) == 0 {
		e2eskipper.Skipf("no node has %s", cores)
	}
	return with
}

func noSchedule(node v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return t.Effect == v1.TaintEffectPreferNoSchedule })
}

func skipIfForbidden(err error, what string) {
	if apierrors.IsForbidden(err) {
		e2eskipper.Skipf("the user may not %s: %v", what, err)
	}
}

// namespaceLike makes a namespace with the annotations of another, and returns its name.
func namespaceLike(ctx context.Context, f *framework.Framework, like *v1.Namespace) string {
	namespace, err := f.CreateNamespace(ctx, "partitioning", nil)
	framework.ExpectNoError(err)
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, partition.AllowedAnnotation, like.Annotations[partition.AllowedAnnotation])
	if like.Annotations[partition.AllowedAnnotation] != "" {
		_, err = f.ClientSet.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		skipIfForbidden(err, "annotate namespaces")
		framework.ExpectNoError(err)
	}
	return namespace.Name
}

// skipUnlessActive skips the spec where pods of the type are not partitioned.
func skipUnlessActive(ctx context.Context, f *framework.Framework, allows string) {
	var partitioned bool
	var warning string
	// kube-apiserver may not have seen the namespace's annotation yet. Not gomega.Eventually, which would fail the spec.
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		pod, err := create(ctx, f, allows, podtest.Pod(asks(), podtest.Container("c", "cpu=10m memory=8Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return false, err
		}
		_, partitioned = partition.PartitionedType(pod)
		warning = pod.Annotations[partition.WarningAnnotation]
		return partitioned || warning == "", nil // without a warning it is unpatched, or decided against
	})
	framework.ExpectNoError(ctx.Err())
	if !wait.Interrupted(err) {
		framework.ExpectNoError(err)
	}
	if !partitioned {
		e2eskipper.Skipf("the type %s is not active here: %q", workloadType, warning)
	}
}

// skipUnlessConfined skips the spec where the kubelet says that the type has no CPUs.
func skipUnlessConfined(ctx context.Context, f *framework.Framework, node string) {
	text, err := f.ClientSet.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
	skipIfForbidden(err, fmt.Sprintf("read the kubelet's metrics, which would say whether the type %s is confined on node %s", workloadType, node))
	framework.ExpectNoError(err)
	if series := fmt.Sprintf("kubelet_workload_partitioning_pool_cpus{workload_type=%q} 0", workloadType); strings.Contains(string(text), series+"\n") {
		e2eskipper.Skipf("the type %s is not confined on node %s: %s", workloadType, node, series)
	}
}

// create creates a pod, with a name and an image. Pods that never start ask for a scheduler that
// does not exist.
func create(ctx context.Context, f *framework.Framework, namespace string, pod *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
	pod = pod.DeepCopy()
	pod.GenerateName = "partitioning-"
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].Image = shell
		}
	}
	if pod.Spec.NodeName == "" && pod.Spec.Affinity == nil {
		pod.Spec.SchedulerName = "nobody"
	}
	return f.ClientSet.CoreV1().Pods(namespace).Create(ctx, pod, options)
}

// run starts a pod on a node, and returns it when it runs.
func run(ctx context.Context, f *framework.Framework, namespace, node string, pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "while :; do sleep 3600; done"}
	e2epod.SetNodeAffinity(&pod.Spec, node)
	pod, err := create(ctx, f, namespace, pod, metav1.CreateOptions{})
	framework.ExpectNoError(err)
	framework.ExpectNoError(e2epod.WaitForPodRunningInNamespace(ctx, f.ClientSet, pod))
	return pod
}

// output runs a shell command in a pod's container.
func output(ctx context.Context, f *framework.Framework, pod *v1.Pod, command string) string {
	stdout, stderr, err := e2epod.Exec(f.TContext(ctx), e2epod.ExecOptions{Command: []string{"sh", "-c", command}, Namespace: pod.Namespace, PodName: pod.Name, ContainerName: "c", CaptureStdout: true, CaptureStderr: true})
	framework.ExpectNoError(err, "%s in pod %s/%s: %s", command, pod.Namespace, pod.Name, stderr)
	return strings.TrimSpace(stdout)
}

func number(ctx context.Context, f *framework.Framework, pod *v1.Pod, command string) int64 {
	value, err := strconv.ParseInt(output(ctx, f, pod, command), 10, 64)
	framework.ExpectNoError(err, "%s in pod %s/%s", command, pod.Namespace, pod.Name)
	return value
}

// cpusOf returns the CPUs that what is started in a pod may use.
func cpusOf(ctx context.Context, f *framework.Framework, pod *v1.Pod) cpuset.CPUSet {
	cpus, err := cpuset.Parse(output(ctx, f, pod, "grep Cpus_allowed_list /proc/self/status | cut -f 2"))
	framework.ExpectNoError(err)
	return cpus
}

// dropped reports whether the API server has dropped the resources of the pod as a whole.
func dropped(sent, stored *v1.Pod) bool {
	return sent.Spec.Resources != nil && stored.Spec.Resources == nil
}

// warningsOfDeployment returns what the API server warns of when a Deployment is applied whose
// pods ask.
func warningsOfDeployment(ctx context.Context, f *framework.Framework, namespace string) []string {
	var warnings recorder
	config := rest.CopyConfig(f.ClientConfig())
	config.WarningHandler = &warnings
	client, err := kubernetes.NewForConfig(config)
	framework.ExpectNoError(err)
	pod := podtest.Pod(asks(), podtest.Container("c", "cpu=100m memory=16Mi", ""))
	pod.Labels = map[string]string{"app": "warned"}
	pod.Spec.Containers[0].Image = shell
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "warned"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		Template: v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
	}}
	_, err = client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	framework.ExpectNoError(err)
	return warnings
}

// recorder keeps warnings.
type recorder []string

func (r *recorder) HandleWarningHeader(code int, _, text string) { *r = append(*r, text) }
