package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/partition"
)

const hard = `{"effect": "RequiredDuringScheduling"}`

// reportingNode makes a node that reports the cores of types, and takes it away after
// the test. No kubelet is behind it.
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

// reportCores makes a node report the cores of exactly these types.
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

// awaitActive waits until a pod that asks for the type would be partitioned, or not.
func awaitActive(t testing.TB, create creator, want bool) {
	t.Helper()
	waitFor(t, 5*time.Second, fmt.Sprintf("the type is active: %v", want), func() error {
		p, err := create(pod("probe", asks, container("c", "true", "cpu=100m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if _, is := partition.PartitionedType(p); is != want {
			return fmt.Errorf("the pod has annotations %v", p.Annotations)
		}
		return nil
	})
}

// creator creates pods in a namespace, as a client.
type creator func(*v1.Pod, metav1.CreateOptions) (*v1.Pod, error)

func creating(t testing.TB, c *host.Cluster, namespace string) creator {
	return func(p *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
		return c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, options)
	}
}

// shapes are pods of all kinds; want is the reason why one is not partitioned in a
// namespace and a cluster that allow it.
var shapes = map[string]struct {
	build func() *v1.Pod
	want  partition.Reason
	// millicores of each container, init containers first; -1 is none.
	millicores []int64
}{
	"requests": {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=400m memory=16Mi", "")) }, "", []int64{400}},
	"requests and limit": {func() *v1.Pod {
		return pod("", nil, container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	}, "", []int64{400}},
	"init containers and sidecars": {func() *v1.Pod {
		p := pod("", nil, container("c", "true", "cpu=400m memory=16Mi", ""))
		always := v1.ContainerRestartPolicyAlways
		sidecar := container("sidecar", "true", "cpu=30m memory=16Mi", "")
		sidecar.RestartPolicy = &always
		p.Spec.InitContainers = []v1.Container{container("init", "true", "cpu=200m memory=16Mi", ""), sidecar}
		return p
	}, "", []int64{200, 30, 400}},
	"many containers": {func() *v1.Pod {
		p := pod("", nil)
		for i := range 40 {
			p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprintf("c-%d", i), "true", fmt.Sprintf("cpu=%dm memory=1Mi", i+1), ""))
		}
		return p
	}, "", func() (all []int64) {
		for i := range 40 {
			all = append(all, int64(i+1))
		}
		return all
	}()},
	"a container without requests": {func() *v1.Pod {
		return pod("", nil, container("c", "true", "cpu=400m memory=16Mi", ""), container("d", "true", "", ""))
	}, "", []int64{400, -1}},
	"no requests":           {func() *v1.Pod { return pod("", nil, container("c", "true", "", "")) }, "", []int64{-1}},
	"fractions":             {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=100500u memory=16Mi", "")) }, "", []int64{101}},
	"very large":            {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=1000000 memory=16Mi", "")) }, "", []int64{1000000000}},
	"too large":             {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=9E memory=16Mi", "")) }, partition.ReasonCPUOutOfRange, nil},
	"too large for 64 bits": {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=9223372036854776 memory=16Mi", "")) }, partition.ReasonCPUOutOfRange, nil},
	"huge pages without memory": {func() *v1.Pod {
		return pod("", nil, container("c", "true", "cpu=400m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), container("d", "true", "memory=16Mi", ""))
	}, partition.ReasonHugePagesNeedCPU, nil},
	"huge pages": {func() *v1.Pod {
		return pod("", nil, container("c", "true", "cpu=400m memory=16Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"))
	}, "", []int64{400}},
	"a cpu limit only, and memory": {func() *v1.Pod { return pod("", nil, container("c", "true", "memory=16Mi", "cpu=500m")) }, "", []int64{500}},
	"requests without memory":      {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=400m", "")) }, partition.ReasonQoSChange, nil},
	"limits only":                  {func() *v1.Pod { return pod("", nil, container("c", "true", "", "cpu=400m memory=16Mi")) }, partition.ReasonGuaranteed, nil},
	"guaranteed":                   {func() *v1.Pod { return pod("", nil, container("c", "true", "cpu=1 memory=16Mi", "cpu=1 memory=16Mi")) }, partition.ReasonGuaranteed, nil},
	"pod-level memory": {func() *v1.Pod {
		p := pod("", nil, container("c", "true", "cpu=1 memory=16Mi", "cpu=1 memory=16Mi"))
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
		return p
	}, partition.ReasonPodLevelCPU, nil},
	"pod-level cpu": {func() *v1.Pod {
		p := pod("", nil, container("c", "true", "memory=16Mi", ""))
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
		return p
	}, partition.ReasonPodLevelCPU, nil},
}

// texts are parts of what a client reads.
var texts = map[partition.Reason]string{
	partition.ReasonGuaranteed: "QoS class Guaranteed", partition.ReasonQoSChange: "would become BestEffort", partition.ReasonPodLevelCPU: "spec.resources has CPU",
	partition.ReasonTypeInactive: "no pool of this type is active", partition.ReasonNamespaceNotAnnotated: "namespace is not annotated with workload.openshift.io/allowed", partition.ReasonNamespaceOtherTypes: "does not list it",
	partition.ReasonCPUOutOfRange: "more than 1000000 CPUs", partition.ReasonHugePagesNeedCPU: "has huge pages and neither cpu nor memory",
}

// Every row of the table of reasons with every shape of a pod, soft and hard.
func TestNewPodsBecomeWhatTheCasesSay(t *testing.T) {
	in(t, core)
	c := apiServer(t)
	reportingNode(t, c, "reporting", "management")
	open, plain, others := newNamespace(t, c, "management, absent"), newNamespace(t, c, ""), newNamespace(t, c, "other")
	awaitActive(t, creating(t, c, open), true)
	for shape, of := range shapes {
		for _, row := range []struct {
			name, namespace, workloadType string
			reason                        partition.Reason
			alwaysRefused                 bool
		}{
			{"allowed", open, "management", of.want, false},
			{"an inactive type", open, "absent", partition.ReasonTypeInactive, false},
			{"a plain namespace", plain, "management", partition.ReasonNamespaceNotAnnotated, false},
			{"other types only", others, "management", partition.ReasonNamespaceOtherTypes, true},
		} {
			for _, effect := range []string{"", hard} {
				for _, how := range []string{"create", "dry run", "generateName", "apply"} {
					t.Run(fmt.Sprintf("%s/%s/%s%s", shape, row.name, how, map[bool]string{true: "/hard"}[effect == hard]), func(t *testing.T) {
						p := of.build()
						p.Annotations = map[string]string{partition.TargetAnnotation(row.workloadType): effect, "mine": "kept"}
						got, told, err := send(t, row.namespace, p, how)
						if row.reason != "" && (effect == hard || row.alwaysRefused) {
							if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), texts[row.reason]) || !strings.Contains(err.Error(), row.workloadType) {
								t.Errorf("got %v, want 403 with %q", err, texts[row.reason])
							}
							return
						}
						if err != nil {
							t.Fatal(err)
						}
						if row.reason == "" {
							if len(told) > 0 {
								t.Errorf("the client was told %q", told)
							}
							expectPartitioned(t, got, of.millicores)
							return
						}
						warning := got.Annotations[partition.WarningAnnotation]
						if !strings.Contains(warning, texts[row.reason]) || !slices.Equal(told, []string{warning}) {
							t.Errorf("the annotation says %q, the client was told %q, want %q", warning, told, texts[row.reason])
						}
						expectOrdinary(t, c, row.namespace, of.build(), got)
					})
				}
			}
		}
	}
	t.Run("the audit log has each warning", func(t *testing.T) {
		p, _, err := send(t, plain, pod("audited", asks, container("c", "true", "", "")), "create")
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, 10*time.Second, "the audit log has it", func() error {
			data, err := os.ReadFile(c.AuditLog())
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(data)) {
				var event struct {
					ObjectRef   struct{ Name, Namespace string }
					Annotations map[string]string
				}
				if json.Unmarshal([]byte(line), &event) == nil && event.ObjectRef.Name == "audited" && event.ObjectRef.Namespace == plain && event.Annotations[partition.WarningAnnotation] == p.Annotations[partition.WarningAnnotation] {
					return nil
				}
			}
			return fmt.Errorf("it does not")
		})
	})
	for name, test := range map[string]struct {
		annotations map[string]string
		path, says  string
	}{
		"two targets":           {map[string]string{managementTarget: "", partition.TargetPrefix + "absent": ""}, "metadata.annotations", "a pod may ask for one workload type"},
		"no JSON":               {map[string]string{managementTarget: "yes"}, "metadata.annotations[" + managementTarget + "]", "must be a JSON object"},
		"a list":                {map[string]string{managementTarget: "[]"}, "metadata.annotations[" + managementTarget + "]", "must be a JSON object"},
		"an unknown effect":     {map[string]string{managementTarget: `{"effect": "Sometimes"}`}, "metadata.annotations[" + managementTarget + "]", "unknown effect"},
		"an unknown key":        {map[string]string{managementTarget: `{"cpuset": "0"}`}, "metadata.annotations[" + managementTarget + "]", "unknown key"},
		"a key in another case": {map[string]string{managementTarget: `{"Effect": "PreferredDuringScheduling"}`}, "metadata.annotations[" + managementTarget + "]", "unknown key"},
		"a key twice":           {map[string]string{managementTarget: `{"effect": "", "effect": ""}`}, "metadata.annotations[" + managementTarget + "]", "more than once"},
		"a type in capitals":    {map[string]string{partition.TargetPrefix + "Management": ""}, "metadata.annotations[" + partition.TargetPrefix + "Management]", "workload type"},
	} {
		t.Run("invalid: "+name, func(t *testing.T) {
			_, _, err := send(t, open, pod("", test.annotations, container("c", "true", "cpu=100m memory=16Mi", "")), "create")
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.path) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want 422 with %s and %q", err, test.path, test.says)
			}
		})
	}
	t.Run("annotations that ours would make too large", func(t *testing.T) {
		large := func(effect string) *v1.Pod {
			const most = 256 << 10
			return pod("", map[string]string{managementTarget: effect, "mine": strings.Repeat("x", most-len("mine")-len(managementTarget)-len(hard))}, container("c", "true", "cpu=100m memory=16Mi", ""))
		}
		p, told, err := send(t, open, large(""), "create")
		if err != nil {
			t.Fatal(err)
		}
		if _, is := partition.PartitionedType(p); is || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 100 || len(p.Annotations) > 2 || len(told) != 1 || !strings.Contains(told[0], "larger than Kubernetes accepts") {
			t.Errorf("the pod has %d annotations, %v, the client was told %q", len(p.Annotations), p.Spec.Containers[0].Resources, told)
		}
		if _, _, err := send(t, open, large(hard), "create"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "larger than Kubernetes accepts") {
			t.Errorf("with the hard effect got %v", err)
		}
	})
	t.Run("an effect that is empty is soft", func(t *testing.T) {
		p, _, err := send(t, open, pod("", map[string]string{managementTarget: `{"effect": ""}`}, container("c", "true", "cpu=100m memory=16Mi", "")), "create")
		if err != nil || p.Annotations[managementTarget] != `{"effect":"PreferredDuringScheduling"}` {
			t.Errorf("got %v, annotations %v", err, p.Annotations)
		}
	})
}

var sent int

// send creates a pod in one of the ways that clients have, and returns what a client is
// told beside the answer.
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

func expectPartitioned(t *testing.T, p *v1.Pod, millicores []int64) {
	t.Helper()
	if p.Annotations["mine"] != "kept" || p.Annotations[partition.WarningAnnotation] != "" {
		t.Errorf("the pod has annotations %v", p.Annotations)
	}
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	if len(containers) != len(millicores) {
		t.Fatalf("the pod has %d containers, want %d", len(containers), len(millicores))
	}
	if ours := len(p.Annotations) - 1; ours != len(containers)+1 {
		t.Errorf("the pod has annotations %v, want one a container and the target", p.Annotations)
	}
	for i, want := range millicores {
		of := containers[i].Resources
		request, has := of.Requests[cores]
		limit := of.Limits[cores]
		_, cpuRequest := of.Requests[v1.ResourceCPU]
		_, cpuLimit := of.Limits[v1.ResourceCPU]
		if has != (want >= 0) || (has && (request.Value() != want || limit.Value() != want)) || cpuRequest || cpuLimit {
			t.Errorf("container %s has %v, want %d cores", containers[i].Name, of, want)
		}
		if annotation := p.Annotations[partition.ResourcesAnnotation(containers[i].Name)]; !strings.HasPrefix(annotation, fmt.Sprintf(`{"cpushares":%d`, max(want, 2))) {
			t.Errorf("container %s has the annotation %s, want %d shares", containers[i].Name, annotation, want)
		}
	}
}

// expectOrdinary checks that a pod is what the same one without the request is.
func expectOrdinary(t *testing.T, c *host.Cluster, namespace string, without, got *v1.Pod) {
	t.Helper()
	without.Name = "without"
	want, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), without, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	// The volume of the token has a random name.
	a, b := got.DeepCopy(), want
	for _, p := range []*v1.Pod{a, b} {
		p.Spec.Volumes = nil
		for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				containers[i].VolumeMounts = nil
			}
		}
	}
	if !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
		t.Errorf("the pod has\n%v\nand without its request\n%v", a.Spec, b.Spec)
	}
	if keys := slices.Sorted(maps.Keys(got.Annotations)); !slices.Equal(keys, []string{"mine", partition.WarningAnnotation}) {
		t.Errorf("the pod has annotations %v", got.Annotations)
	}
}

// Pods of each workload kind are partitioned, and the author of each is warned at once
// if they would not be.
func TestPodsOfEachWorkloadKindArePartitioned(t *testing.T) {
	in(t)
	c := apiServer(t)
	reportingNode(t, c, "reporting", "management")
	open, plain := newNamespace(t, c, "management"), newNamespace(t, c, "")
	awaitActive(t, creating(t, c, open), true)
	labels := map[string]string{"app": "operator"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := func(restart v1.RestartPolicy) v1.PodTemplateSpec {
		spec := pod("", nil, container("c", "true", "cpu=400m memory=16Mi", "")).Spec
		spec.RestartPolicy = restart
		return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: spec}
	}
	always, never := template(v1.RestartPolicyAlways), template(v1.RestartPolicyNever)
	one := int32(1)
	meta := func(kind string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: kind} }
	kinds := map[string]func(namespace string) ([]string, error){}
	for name, create := range map[string]func(*kubernetes.Clientset, string) error{
		"deployment": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"daemonset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta("daemonset"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"statefulset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta("statefulset"), Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"replicaset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().ReplicaSets(ns).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta("replicaset"), Spec: appsv1.ReplicaSetSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"replicationcontroller": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.CoreV1().ReplicationControllers(ns).Create(t.Context(), &v1.ReplicationController{ObjectMeta: meta("replicationcontroller"), Spec: v1.ReplicationControllerSpec{Replicas: &one, Selector: labels, Template: &always}}, metav1.CreateOptions{})
			return err
		},
		"job": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: never}}, metav1.CreateOptions{})
			return err
		},
		"cronjob": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.BatchV1().CronJobs(ns).Create(t.Context(), &batchv1.CronJob{ObjectMeta: meta("cronjob"), Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: never}}}}, metav1.CreateOptions{})
			return err
		},
	} {
		kinds[name] = func(namespace string) ([]string, error) {
			client, recorded := recording(t)
			err := create(client, namespace)
			return recorded.texts, err
		}
	}
	for kind, create := range kinds {
		told, err := create(open)
		if err != nil || len(told) > 0 {
			t.Errorf("%s in a namespace that allows it: %v, told %q", kind, err, told)
		}
		told, err = create(plain)
		if err != nil || len(told) != 1 || !strings.HasPrefix(told[0], "pods of this template: ") || !strings.Contains(told[0], "namespace is not annotated with workload.openshift.io/allowed") {
			t.Errorf("%s in a namespace that does not: %v, told %q", kind, err, told)
		}
	}
	t.Run("a template that only defaulting makes Guaranteed", func(t *testing.T) {
		for _, resources := range [][2]string{{"", "cpu=400m memory=16Mi"}, {"cpu=400m", "cpu=400m memory=16Mi"}} {
			client, recorded := recording(t)
			guaranteed := *always.DeepCopy()
			guaranteed.Spec.Containers = []v1.Container{container("c", "true", resources[0], resources[1])}
			if _, err := client.AppsV1().Deployments(open).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta("guaranteed"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: guaranteed}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			if told := recorded.texts; len(told) != 1 || !strings.HasPrefix(told[0], "pods of this template: ") || !strings.Contains(told[0], texts[partition.ReasonGuaranteed]) {
				t.Errorf("requests %q, limits %q: told %q", resources[0], resources[1], told)
			}
		}
	})
	// As the controller would at the next full minute.
	mustKubectl(t, open, "", "create", "job", "cronjob-now", "--from=cronjob/cronjob")
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			waitFor(t, 20*time.Second, "it has a pod", func() error {
				pods, err := c.Client.CoreV1().Pods(open).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err
				}
				for i := range pods.Items {
					p := &pods.Items[i]
					// Those of a Deployment and a CronJob have a suffix of their owner's, too.
					if !strings.HasPrefix(p.Name, kind+"-") {
						continue
					}
					if _, is := partition.PartitionedType(p); !is || !equality.Semantic.DeepEqual(p.Spec.Containers[0].Resources.Requests[cores], resource.MustParse("400")) {
						t.Errorf("pod %s has annotations %v and %v", p.Name, p.Annotations, p.Spec.Containers[0].Resources)
					}
					return nil
				}
				return fmt.Errorf("there are %d pods", len(pods.Items))
			})
		})
	}
}
