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
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func cpuOf(text string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(text)}
}

func limitRange(item v1.LimitRangeItem) *v1.LimitRange {
	if item.Type == "" {
		item.Type = v1.LimitTypeContainer
	}
	return &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "open"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}
}

func resourceQuota(name v1.ResourceName, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	hard := v1.ResourceList{name: resource.MustParse("100")}
	return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "open"}, Spec: v1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
		Status: v1.ResourceQuotaStatus{Hard: hard, Used: v1.ResourceList{name: resource.MustParse("0")}}}
}

// namespaceConstraints are objects that constrain cpu, or seem to; refuses is part of what
// upstream says of a pod without cpu, and empty if it says nothing.
var namespaceConstraints = map[string]struct {
	object  runtime.Object
	zero    bool
	refuses string
}{
	"a LimitRange with defaults":           {limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}), false, ""},
	"a LimitRange with a minimum":          {limitRange(v1.LimitRangeItem{Min: cpuOf("50m")}), false, "minimum cpu usage per Container is 50m"},
	"a LimitRange with a maximum":          {limitRange(v1.LimitRangeItem{Max: cpuOf("4")}), false, "maximum cpu usage per Container is 4"},
	"a LimitRange with a ratio":            {limitRange(v1.LimitRangeItem{MaxLimitRequestRatio: cpuOf("10")}), false, "cpu max limit to request ratio"},
	"a LimitRange with a minimum of a pod": {limitRange(v1.LimitRangeItem{Type: v1.LimitTypePod, Min: cpuOf("50m")}), false, "minimum cpu usage per Pod is 50m"},
	"a LimitRange of memory":               {limitRange(v1.LimitRangeItem{Max: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, Default: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}), false, ""},
	"a LimitRange that refuses it anyway":  {limitRange(v1.LimitRangeItem{Min: cpuOf("3")}), false, ""},
	"a LimitRange of cores":                {limitRange(v1.LimitRangeItem{Max: v1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse("100")}}), false, ""},
	"a quota on cpu":                       {resourceQuota(v1.ResourceCPU), true, ""},
	"a quota on requests.cpu":              {resourceQuota(v1.ResourceRequestsCPU), true, ""},
	"a quota on limits.cpu":                {resourceQuota(v1.ResourceLimitsCPU), false, "must specify limits.cpu for: c"},
	"a quota on memory":                    {resourceQuota(v1.ResourceRequestsMemory), false, ""},
	"a quota whose scopes match":           {resourceQuota(v1.ResourceLimitsCPU, v1.ResourceQuotaScopeNotBestEffort), false, "must specify limits.cpu for: c"},
	"a quota whose scopes do not match":    {resourceQuota(v1.ResourceLimitsCPU, v1.ResourceQuotaScopeTerminating), false, ""},
	"a quota that counts other pods":       {resourceQuota(v1.ResourceRequestsCPU, v1.ResourceQuotaScopeTerminating), false, ""},
}

// Cores that are written by hand, with zeros beside them, do not evade what the namespace says of cpu.
func TestZerosBesideCoresContentNoConstraint(t *testing.T) {
	for name, object := range map[string]runtime.Object{
		"a LimitRange with a maximum below it": limitRange(v1.LimitRangeItem{Max: cpuOf("1")}),
		"a LimitRange with a maximum":          limitRange(v1.LimitRangeItem{Max: cpuOf("80")}),
		"a LimitRange with a maximum of a pod": limitRange(v1.LimitRangeItem{Type: v1.LimitTypePod, Max: cpuOf("1")}),
		"a quota on limits.cpu":                resourceQuota(v1.ResourceLimitsCPU),
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"), object)
			partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
			zeros := core.ResourceList{core.ResourceCPU: resource.MustParse("0"), "management.workload.openshift.io/cores": resource.MustParse("50000"), core.ResourceMemory: resource.MustParse("1Mi")}
			for _, annotations := range []map[string]string{
				{managementTarget: ""},
				{managementTarget: "", partition.ResourcesAnnotation("c"): `{"cpushares":51200,"cpulimit":1}`},
			} {
				pod := newPod(annotations)
				pod.Spec.Containers[0].Resources = core.ResourceRequirements{Requests: zeros.DeepCopy(), Limits: zeros.DeepCopy()}
				told, err := create(t, p, pod, "open")
				if err == nil && (internalpod.CarriesCores(pod) || !strings.Contains(strings.Join(told, ""), `"of-cpu"`)) {
					t.Errorf("the pod has %v, told %q, want an ordinary one", pod.Spec.Containers[0].Resources, told)
				}
			}
		})
	}
}

func TestConstraintsOfTheNamespaceAreKept(t *testing.T) {
	for name, test := range namespaceConstraints {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"), test.object)
			partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
			build := func(effect string) *core.Pod {
				pod := newPod(map[string]string{managementTarget: effect})
				pod.Spec.Containers[0].Resources.Limits = core.ResourceList{core.ResourceCPU: resource.MustParse("500m")}
				return pod
			}
			pod := build("")
			told, err := create(t, p, pod, "open")
			if err != nil {
				t.Fatal(err)
			}
			resources := pod.Spec.Containers[0].Resources
			cpu, has := resources.Requests[core.ResourceCPU]
			if test.refuses != "" {
				if cpu.MilliValue() != 400 || internalpod.CarriesCores(pod) || resources.Limits.CPU().MilliValue() != 500 || !strings.Contains(strings.Join(told, ""), test.refuses) || !strings.Contains(strings.Join(told, ""), `"of-cpu"`) {
					t.Errorf("the pod has %v, told %q, want an ordinary one and %q", resources, told, test.refuses)
				}
				if _, err := create(t, p, build(`{"effect": "RequiredDuringScheduling"}`), "open"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refuses) || !strings.Contains(err.Error(), `"of-cpu"`) {
					t.Errorf("with the hard effect got %v", err)
				}
			} else if !internalpod.CarriesCores(pod) || has != test.zero || !cpu.IsZero() || len(told) > 0 {
				t.Errorf("the pod has %v, told %q, want a partitioned one, with a zero: %v", resources, told, test.zero)
			}
			template := build("")
			var r recorder
			deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec}}}
			if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "open", "", admission.Create), nil); err != nil {
				t.Error(err)
			}
			if got := strings.Join(r.warnings, ""); !strings.Contains(got, test.refuses) || (test.refuses == "") != (got == "") {
				t.Errorf("of the template was told %q, want %q", got, test.refuses)
			}
			expectMirror(t, p, test.refuses == "")
		})
	}
}

// LimitRanger gives cores to each container that has none. They count only for those that ask, and name no cpu.
func TestCoresOfALimitRangeAreAskedForByNobody(t *testing.T) {
	amount := func(text string) v1.ResourceList {
		return v1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse(text)}
	}
	cpu := func(request, limit string) core.ResourceRequirements {
		of := func(text string) core.ResourceList {
			list := core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")}
			if text != "" {
				list[core.ResourceCPU] = resource.MustParse(text)
			}
			return list
		}
		return core.ResourceRequirements{Requests: of(request), Limits: of(limit)}
	}
	asks := map[string]string{managementTarget: ""}
	for name, test := range map[string]struct {
		item        v1.LimitRangeItem
		annotations map[string]string
		resources   core.ResourceRequirements
		// cores are those of the pod in the end, and value its resources annotation; without cores it keeps its
		// resources.
		cores, value string
		// refused is part of what upstream says of the pod in the end.
		refused string
	}{
		"asks, a maximum":          {v1.LimitRangeItem{Max: amount("500")}, asks, cpu("400m", ""), "400", `{"cpushares":400}`, ""},
		"asks for more":            {v1.LimitRangeItem{Max: amount("500")}, asks, cpu("900m", ""), "900", `{"cpushares":900}`, "maximum management.workload.openshift.io/cores usage per Container is 500, but limit is 900"},
		"asks with a limit":        {v1.LimitRangeItem{Default: amount("100")}, asks, cpu("2", "3"), "2k", `{"cpushares":2000,"cpulimit":3000}`, ""},
		"asks and names no cpu":    {v1.LimitRangeItem{Default: amount("100")}, asks, cpu("", ""), "100", `{"cpushares":100}`, ""},
		"does not ask, Guaranteed": {v1.LimitRangeItem{Default: amount("100")}, nil, cpu("4", "4"), "", "", ""},
		"does not ask, no cpu":     {v1.LimitRangeItem{Default: amount("100")}, nil, core.ResourceRequirements{}, "", "", ""},
		"is skipped":               {v1.LimitRangeItem{Default: amount("100")}, asks, cpu("4", "4"), "", "", ""},
		"does not ask, a maximum":  {v1.LimitRangeItem{Max: amount("500")}, nil, cpu("4", "4"), "", "", "maximum management.workload.openshift.io/cores usage per Container is 500.  No limit is specified"},
	} {
		t.Run(name, func(t *testing.T) {
			object := limitRange(test.item)
			corev1.SetObjectDefaults_LimitRange(object)
			p, _ := start(t, partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"), object)
			partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
			limits := func(pod *core.Pod) {
				if err := limitranger.PodMutateLimitFunc(object, pod); err != nil {
					t.Fatal(err)
				}
			}
			pod := newPod(maps.Clone(test.annotations))
			pod.Spec.Containers[0].Resources = *test.resources.DeepCopy()
			limits(pod)
			// LimitRanger runs again as well.
			if _, err := createAs(t, p, pod, "open", nil, limits); err != nil {
				t.Fatal(err)
			}
			want := *test.resources.DeepCopy()
			if test.cores != "" {
				for _, list := range []core.ResourceList{want.Requests, want.Limits} {
					list["management.workload.openshift.io/cores"] = resource.MustParse(test.cores)
					delete(list, core.ResourceCPU)
				}
			}
			got := pod.Spec.Containers[0].Resources
			for _, list := range []core.ResourceList{got.Requests, got.Limits} {
				if zero, has := list[core.ResourceCPU]; has && zero.IsZero() {
					delete(list, core.ResourceCPU) // of the second run
				}
			}
			if !apiequality.Semantic.DeepEqual(got, want) || pod.Annotations[partition.ResourcesAnnotation("c")] != test.value {
				t.Errorf("got %v with %v, want %v with %s", got, pod.Annotations, want, test.value)
			}
			if err := limitranger.PodValidateLimitFunc(object, pod); (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("upstream says %v, want %q", err, test.refused)
			}
		})
	}
}
