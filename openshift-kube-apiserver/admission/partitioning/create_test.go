/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partitioning

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func TestAPodThatIsChangedAfterTheDecisionIsRefused(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	pod := newPod(map[string]string{managementTarget: ""})
	if _, err := create(t, p, pod, "open"); err != nil {
		t.Fatal(err)
	}
	a := attributes(pod, nil, "open", "", admission.Create)
	if err := p.Validate(t.Context(), a, nil); err != nil {
		t.Errorf("the pod as decided: %v", err)
	}
	pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("1")
	if err := p.Validate(t.Context(), a, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `container "c" has requests.cpu 1, `) {
		t.Errorf("cpu set again: %v", err)
	}
	skipped := newPod(map[string]string{managementTarget: ""})
	skipped.Spec.Containers[0].Resources.Requests = core.ResourceList{core.ResourceCPU: resource.MustParse("1")}
	if _, err := create(t, p, skipped, "open"); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(t.Context(), attributes(skipped, nil, "open", "", admission.Create), nil); err != nil {
		t.Errorf("a skipped pod: %v", err)
	}
}

// A webhook that comes last can make a whole partitioned pod. What the caches deny counts
// only after a live read.
func TestAForgedPartitionedPodIsRefused(t *testing.T) {
	p, client := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("plain", "", ""))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	for name, requests := range map[string]core.ResourceList{"BestEffort": nil, "Burstable": newPod(nil).Spec.Containers[0].Resources.Requests} {
		forge := func(pod *core.Pod) {
			pod.Annotations = map[string]string{managementTarget: ""}
			partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
		}
		build := func() *core.Pod {
			pod := newPod(nil)
			pod.Spec.Containers[0].Resources.Requests = requests.DeepCopy()
			return pod
		}
		if _, err := createAs(t, p, build(), "plain", nil, func(*core.Pod) {}, forge); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the namespace is not annotated") {
			t.Errorf("%s: got %v", name, err)
		}
		late := partitiontest.Namespace("late-"+strings.ToLower(name), partition.AllowedAnnotation, "management")
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := createAs(t, p, build(), late.Name, nil, func(*core.Pod) {}, forge); err != nil {
			t.Errorf("%s, where it may be: got %v", name, err)
		}
	}
}

// An autoscaler's webhook: what it says of memory stands, what it says of cpu is told of.
func TestWebhooksMayChangeMemoryAndNotCPU(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"),
		limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	set := func(name core.ResourceName, value string) func(*core.Pod) {
		return func(pod *core.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(value) }
	}
	for name, test := range map[string]struct {
		webhook func(*core.Pod)
		memory  string
		told    string
	}{
		"memory":                  {set(core.ResourceMemory, "5Mi"), "5Mi", ""},
		"cpu":                     {set(core.ResourceCPU, "800m"), "1Mi", `container "c"`},
		"what LimitRanger put in": {set(core.ResourceCPU, "100m"), "1Mi", ""},
	} {
		pod := newPod(map[string]string{managementTarget: ""})
		told, err := createAs(t, p, pod, "open", nil, test.webhook)
		if err != nil {
			t.Fatal(err)
		}
		requests := pod.Spec.Containers[0].Resources.Requests
		cores := requests["management.workload.openshift.io/cores"]
		if got := strings.Join(told, ""); !strings.Contains(got, test.told) || (got == "") != (test.told == "") || requests.Memory().String() != test.memory || cores.Value() != 400 || !requests.CPU().IsZero() {
			t.Errorf("%s: told %q, the pod has %v", name, got, requests)
		}
	}
}

// What each run decides may change with the next; no pod counts twice, nor a dry run at all.
func TestAPodIsCountedOnceWithItsLastDecision(t *testing.T) {
	p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"))
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	asks := func(pod *core.Pod) { pod.Annotations = map[string]string{managementTarget: ""} }
	guaranteed := func(pod *core.Pod) {
		pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
	}
	inject := func(pod *core.Pod) {
		sidecar := *newPod(nil).Spec.Containers[0].DeepCopy()
		sidecar.Name = "sidecar"
		pod.Spec.Containers = append(pod.Spec.Containers, sidecar)
	}
	nothing := func(*core.Pod) {}
	for name, test := range map[string]struct {
		build   []func(*core.Pod)
		webhook func(*core.Pod)
		want    string
	}{
		"it asks":                {[]func(*core.Pod){asks}, nothing, "partitioned "},
		"a webhook makes it ask": {nil, asks, "partitioned "},
		"a webhook makes it Guaranteed": {[]func(*core.Pod){asks}, func(pod *core.Pod) {
			r := &pod.Spec.Containers[0].Resources
			r.Limits[core.ResourceMemory] = r.Requests[core.ResourceMemory]
			pod.Annotations[partition.ResourcesPrefix+"c"] = `{"cpushares":400,"cpulimit":400}`
		}, "skipped guaranteed"},
		"a Guaranteed pod, and nothing more": {[]func(*core.Pod){asks, guaranteed}, nothing, "skipped guaranteed"},
		"a Guaranteed pod, and a sidecar":    {[]func(*core.Pod){asks, guaranteed}, inject, "partitioned "},
		"a webhook takes the target":         {[]func(*core.Pod){asks}, func(pod *core.Pod) { delete(pod.Annotations, managementTarget) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			legacyregistry.Reset()
			pod := newPod(nil)
			for _, change := range test.build {
				change(pod)
			}
			told, err := createAs(t, p, pod, "open", nil, test.webhook)
			if err != nil {
				t.Fatal(err)
			}
			outcome, reason, _ := strings.Cut(test.want, " ")
			if got := counted(t); (test.want == "" && len(got) > 0) || (test.want != "" && (len(got) != 1 || got["management "+test.want] != 1)) {
				t.Errorf("counted %v, want one of %q", got, test.want)
			}
			if (len(told) > 0) != (outcome != "partitioned") || (reason != "" && !strings.Contains(strings.Join(told, ""), "Guaranteed")) {
				t.Errorf("told %q", told)
			}
			if _, has := pod.Spec.Containers[0].Resources.Requests["management.workload.openshift.io/cores"]; has != (outcome == "partitioned") {
				t.Errorf("the pod is %v", pod.Spec.Containers)
			}
			if cpu := pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU]; outcome != "partitioned" && cpu.MilliValue() != 400 {
				t.Errorf("the pod is %v", pod.Spec.Containers)
			}
		})
	}
	legacyregistry.Reset()
	pod := newPod(map[string]string{managementTarget: ""})
	dry := admission.NewAttributesRecord(pod, nil, core.Kind("Pod").WithVersion("version"), "open", "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, true, nil)
	if err := p.Admit(t.Context(), dry, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(t.Context(), dry, nil); err != nil || len(counted(t)) > 0 {
		t.Errorf("a dry run: %v, counted %v", err, counted(t))
	}
}

// counted returns the counter of pods by type, outcome and reason.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_workload_partitioning_pods_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts[labels["workload_type"]+" "+labels["outcome"]+" "+labels["reason"]] = metric.GetCounter().GetValue()
		}
	}
	return counts
}

func TestMetrics(t *testing.T) {
	p, client := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management, invented-1, invented-2, half"))
	partitiontest.Eventually(t, "the type is latched", func() bool { return p.activation.States()["management"].Latched })
	// What one node reports alone makes no label: a node may report anything.
	for name, types := range map[string][]string{"b": {"half", "two"}, "c": {"two"}} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), partitiontest.Node(name, types...), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	partitiontest.Eventually(t, "the other nodes are seen", func() bool { return p.activation.Known("two") })
	legacyregistry.Reset()
	for _, target := range []string{"management", "management", "invented-1", "invented-2", "half"} {
		if _, err := create(t, p, newPod(map[string]string{partition.TargetAnnotation(target): ""}), "open"); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = create(t, p, newPod(map[string]string{managementTarget: "x"}), "open")
	_, _ = create(t, p, newPod(nil), "open")
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP apiserver_workload_partitioning_active [ALPHA] Whether pods are partitioned as a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_active gauge
apiserver_workload_partitioning_active{workload_type="management"} 1
apiserver_workload_partitioning_active{workload_type="two"} 0
# HELP apiserver_workload_partitioning_nodes_missing [ALPHA] Number of nodes that do not report the cores of a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_nodes_missing gauge
apiserver_workload_partitioning_nodes_missing{workload_type="management"} 2
apiserver_workload_partitioning_nodes_missing{workload_type="two"} 1
# HELP apiserver_workload_partitioning_pods_total [ALPHA] Number of created pods that asked for a workload type, by what became of them and why.
# TYPE apiserver_workload_partitioning_pods_total counter
apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"} 2
apiserver_workload_partitioning_pods_total{outcome="refused",reason="invalid_target",workload_type="other"} 1
apiserver_workload_partitioning_pods_total{outcome="skipped",reason="type_inactive",workload_type="other"} 3
# HELP apiserver_workload_partitioning_unlatched [ALPHA] Whether a workload type is active and could not be written to the annotation of kube-system that keeps it so.
# TYPE apiserver_workload_partitioning_unlatched gauge
apiserver_workload_partitioning_unlatched{workload_type="management"} 0
apiserver_workload_partitioning_unlatched{workload_type="two"} 0
`), "apiserver_workload_partitioning_active", "apiserver_workload_partitioning_nodes_missing", "apiserver_workload_partitioning_pods_total", "apiserver_workload_partitioning_unlatched"); err != nil {
		t.Error(err)
	}
}
