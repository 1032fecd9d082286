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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// shapes are pods of all kinds; want is the reason why one is not partitioned in a
// namespace and a cluster that allow it.
var shapes = map[string]struct {
	build func() *v1.Pod
	want  partition.Reason
	// millicores of each container, init containers first; -1 is none.
	millicores []int64
}{
	"requests": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""))
	}, "", []int64{400}},
	"requests and limit": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	}, "", []int64{400}},
	"init containers and sidecars": {func() *v1.Pod {
		p := fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""))
		always := v1.ContainerRestartPolicyAlways
		sidecar := fixture.Container("sidecar", "true", "cpu=30m memory=16Mi", "")
		sidecar.RestartPolicy = &always
		p.Spec.InitContainers = []v1.Container{fixture.Container("init", "true", "cpu=200m memory=16Mi", ""), sidecar}
		return p
	}, "", []int64{200, 30, 400}},
	"many containers": {func() *v1.Pod {
		p := fixture.Pod("", nil)
		for i := range 40 {
			p.Spec.Containers = append(p.Spec.Containers, fixture.Container(fmt.Sprintf("c-%d", i), "true", fmt.Sprintf("cpu=%dm memory=1Mi", i+1), ""))
		}
		return p
	}, "", func() (all []int64) {
		for i := range 40 {
			all = append(all, int64(i+1))
		}
		return all
	}()},
	"a container without requests": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""), fixture.Container("d", "true", "", ""))
	}, "", []int64{400, -1}},
	"no requests": {func() *v1.Pod { return fixture.Pod("", nil, fixture.Container("c", "true", "", "")) }, "", []int64{-1}},
	"fractions": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=100500u memory=16Mi", ""))
	}, "", []int64{101}},
	"very large": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=1000000 memory=16Mi", ""))
	}, "", []int64{1000000000}},
	"too large": {func() *v1.Pod { return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=9E memory=16Mi", "")) }, partition.ReasonCPUOutOfRange, nil},
	"too large for 64 bits": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=9223372036854776 memory=16Mi", ""))
	}, partition.ReasonCPUOutOfRange, nil},
	"huge pages without memory": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), fixture.Container("d", "true", "memory=16Mi", ""))
	}, partition.ReasonHugePagesNeedCPU, nil},
	"huge pages": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"))
	}, "", []int64{400}},
	"a cpu limit only, and memory": {func() *v1.Pod { return fixture.Pod("", nil, fixture.Container("c", "true", "memory=16Mi", "cpu=500m")) }, "", []int64{500}},
	"requests without memory":      {func() *v1.Pod { return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m", "")) }, partition.ReasonQoSChange, nil},
	"limits only": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "", "cpu=400m memory=16Mi"))
	}, partition.ReasonGuaranteed, nil},
	"guaranteed": {func() *v1.Pod {
		return fixture.Pod("", nil, fixture.Container("c", "true", "cpu=1 memory=16Mi", "cpu=1 memory=16Mi"))
	}, partition.ReasonGuaranteed, nil},
	"pod-level memory": {func() *v1.Pod {
		p := fixture.Pod("", nil, fixture.Container("c", "true", "cpu=1 memory=16Mi", "cpu=1 memory=16Mi"))
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
		return p
	}, partition.ReasonPodLevelCPU, nil},
	"pod-level cpu": {func() *v1.Pod {
		p := fixture.Pod("", nil, fixture.Container("c", "true", "memory=16Mi", ""))
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
		p, _, err := send(t, plain, fixture.Pod("audited", asks, fixture.Container("c", "true", "", "")), "create")
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
			_, _, err := send(t, open, fixture.Pod("", test.annotations, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create")
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.path) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want 422 with %s and %q", err, test.path, test.says)
			}
		})
	}
	t.Run("annotations that ours would make too large", func(t *testing.T) {
		large := func(effect string) *v1.Pod {
			const most = 256 << 10
			return fixture.Pod("", map[string]string{managementTarget: effect, "mine": strings.Repeat("x", most-len("mine")-len(managementTarget)-len(hard))}, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
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
		p, _, err := send(t, open, fixture.Pod("", map[string]string{managementTarget: `{"effect": ""}`}, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create")
		if err != nil || p.Annotations[managementTarget] != `{"effect":"PreferredDuringScheduling"}` {
			t.Errorf("got %v, annotations %v", err, p.Annotations)
		}
	})
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
