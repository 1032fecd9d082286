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
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/constraint"
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

// Cores that are written by hand, with zeros next to them, do not evade what the namespace says of cpu.
func TestZerosBesideCoresContentNoConstraint(t *testing.T) {
	for name, object := range map[string]runtime.Object{
		"a LimitRange with a maximum below it": limitRange(v1.LimitRangeItem{Max: cpuOf("1")}),
		"a LimitRange with a maximum":          limitRange(v1.LimitRangeItem{Max: cpuOf("80")}),
		"a LimitRange with a maximum of a pod": limitRange(v1.LimitRangeItem{Type: v1.LimitTypePod, Max: cpuOf("1")}),
		"a quota on limits.cpu":                resourceQuota(v1.ResourceLimitsCPU),
	} {
		t.Run(name, func(t *testing.T) {
			p := startConstrained(t, object)
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

// LimitRanger gives a pod its defaults before the plugin runs, and judges it afterwards. What becomes an ordinary pod in
// between keeps the defaults, as it would have without this plugin.
func TestPodsThatBecomeOrdinaryKeepTheDefaultLimit(t *testing.T) {
	kubelet := &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}
	// No container of kubeadm's static pods has a limit of cpu.
	withoutLimit := func(annotations map[string]string) *core.Pod {
		pod := newPod(annotations)
		pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("100m")
		partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
		return pod
	}
	mirror := withoutLimit(map[string]string{managementTarget: ""})
	mirror.Annotations[core.MirrorPodAnnotationKey], mirror.Spec.NodeName = "hash", "a"
	// kubectl debug --copy-to keeps resources, and drops annotations.
	copied := withoutLimit(map[string]string{managementTarget: ""})
	copied.Annotations = nil
	for name, test := range map[string]struct {
		pod *core.Pod
		as  user.Info
	}{
		"a mirror":                         {mirror, kubelet},
		"a copied pod with annotations":    {withoutLimit(map[string]string{managementTarget: ""}), nil},
		"a copied pod without annotations": {copied, nil},
	} {
		for object, constraints := range map[string]struct {
			limits v1.LimitRangeItem
			quota  v1.ResourceName
		}{
			"a maximum":                          {limits: v1.LimitRangeItem{Max: cpuOf("4")}},
			"a ratio with a default":             {limits: v1.LimitRangeItem{MaxLimitRequestRatio: cpuOf("50"), Default: cpuOf("4")}},
			"a quota of limits with the default": {limits: v1.LimitRangeItem{Default: cpuOf("4")}, quota: v1.ResourceLimitsCPU},
		} {
			t.Run(name+", "+object, func(t *testing.T) {
				limits := limitRange(constraints.limits)
				corev1.SetObjectDefaults_LimitRange(limits)
				objects := []runtime.Object{limits}
				if constraints.quota != "" {
					objects = append(objects, resourceQuota(constraints.quota))
				}
				p := startConstrained(t, objects...)
				pod := test.pod.DeepCopy()
				if err := limitranger.PodMutateLimitFunc(limits, pod); err != nil {
					t.Fatal(err)
				}
				if _, err := createAs(t, p, pod, "open", test.as); err != nil {
					t.Fatal(err)
				}
				if err := constraint.ValidateLimits(limits, pod); err != nil {
					t.Errorf("LimitRanger refuses the pod: %v", err)
				}
				resources := pod.Spec.Containers[0].Resources
				if internalpod.CarriesCores(pod) || resources.Requests.CPU().String() != "100m" || resources.Limits.CPU().String() != "4" {
					t.Errorf("the pod has %v, want cpu of 100m with the default limit of 4", resources)
				}
			})
		}
	}
}

func TestConstraintsOfTheNamespaceAreKept(t *testing.T) {
	for name, test := range namespaceConstraints {
		t.Run(name, func(t *testing.T) {
			p := startConstrained(t, test.object)
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

// LimitRanger gives cores to each container that has none, whether or not the pod asks.
func TestCoresOfALimitRangeAreAskedForByNobody(t *testing.T) {
	asks := map[string]string{managementTarget: ""}
	hard := map[string]string{managementTarget: `{"effect": "RequiredDuringScheduling"}`}
	of100 := v1.LimitRangeItem{Default: coresOf("100")}
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
		"asks, a maximum":                    {v1.LimitRangeItem{Max: coresOf("500")}, asks, cpuAndMemory("400m", ""), "400", `{"cpushares":400}`, ""},
		"asks for more":                      {v1.LimitRangeItem{Max: coresOf("500")}, asks, cpuAndMemory("900m", ""), "900", `{"cpushares":900}`, "maximum management.workload.openshift.io/cores usage per Container is 500, but limit is 900"},
		"asks with a limit":                  {of100, asks, cpuAndMemory("2", "3"), "2k", `{"cpushares":2000,"cpulimit":3000}`, ""},
		"asks for as much":                   {of100, asks, cpuAndMemory("100m", ""), "100", `{"cpushares":100}`, ""},
		"asks and names no cpu":              {of100, asks, cpuAndMemory("", ""), "", `{"cpushares":2}`, ""},
		"asks, BestEffort":                   {of100, hard, core.ResourceRequirements{}, "", `{"cpushares":2}`, ""},
		"asks, is skipped and names no cpu":  {of100, map[string]string{partition.TargetPrefix + "infra": ""}, cpuAndMemory("", ""), "", "", ""},
		"does not ask, Guaranteed":           {of100, nil, cpuAndMemory("4", "4"), "", "", ""},
		"does not ask, no cpu":               {of100, nil, core.ResourceRequirements{}, "", "", ""},
		"is skipped":                         {of100, asks, cpuAndMemory("4", "4"), "", "", ""},
		"does not ask, a maximum":            {v1.LimitRangeItem{Max: coresOf("500")}, nil, cpuAndMemory("4", "4"), "", "", "maximum management.workload.openshift.io/cores usage per Container is 500.  No limit is specified"},
		"has a forged annotation of another": {of100, map[string]string{managementTarget: "", partition.ResourcesAnnotation("c"): `{"cpushares":100}`}, cpuAndMemory("2", ""), "2k", `{"cpushares":2000}`, ""},
		"asks, BestEffort, the least":        {v1.LimitRangeItem{Default: coresOf("2")}, map[string]string{managementTarget: hard[managementTarget], partition.ResourcesAnnotation("c"): `{"cpushares":2}`}, core.ResourceRequirements{}, "", `{"cpushares":2}`, ""},
		"asks for the least":                 {v1.LimitRangeItem{Default: coresOf("2")}, asks, cpuAndMemory("2m", ""), "2", `{"cpushares":2}`, ""},
	} {
		for order, others := range map[string]func(*v1.LimitRange) []*v1.LimitRange{
			"alone":          func(of *v1.LimitRange) []*v1.LimitRange { return []*v1.LimitRange{of} },
			"before another": func(of *v1.LimitRange) []*v1.LimitRange { return []*v1.LimitRange{of, ofStorage()} },
			"after another":  func(of *v1.LimitRange) []*v1.LimitRange { return []*v1.LimitRange{ofStorage(), of} },
		} {
			t.Run(name+", "+order, func(t *testing.T) {
				object := limitRange(test.item)
				corev1.SetObjectDefaults_LimitRange(object)
				limitRanges := others(object)
				p := startConstrained(t, limitRanges...)
				pod := newPod(maps.Clone(test.annotations))
				pod.Spec.Containers[0].Resources = *test.resources.DeepCopy()
				applyLimitRanges(t, pod, limitRanges...)
				// LimitRanger runs again as well.
				runAgain := func(pod *core.Pod) { applyLimitRanges(t, pod, limitRanges...) }
				if _, err := createAs(t, p, pod, "open", nil, runAgain); err != nil {
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
				dropZeros(got)
				if !apiequality.Semantic.DeepEqual(got, want) || pod.Annotations[partition.ResourcesAnnotation("c")] != test.value {
					t.Errorf("got %v with %v, want %v with %s", got, pod.Annotations, want, test.value)
				}
				if err := constraint.ValidateLimits(object, pod); (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
					t.Errorf("upstream says %v, want %q", err, test.refused)
				}
			})
		}
	}
}

// Cores that were written by hand are not LimitRanger's, also where they are as many.
func TestCoresAsManyAsADefaultAreKept(t *testing.T) {
	object := limitRange(v1.LimitRangeItem{Default: coresOf("100")})
	object.Spec.Limits[0].Default["infra.workload.openshift.io/cores"] = resource.MustParse("100")
	corev1.SetObjectDefaults_LimitRange(object)
	runAgain := func(pod *core.Pod) { applyLimitRanges(t, pod, object) }
	copied := map[string]string{managementTarget: "", partition.ResourcesAnnotation("c"): `{"cpushares":100,"cpulimit":200}`,
		"kubernetes.io/limit-ranger": "LimitRanger plugin set: management.workload.openshift.io/cores request for container c"}
	bare := core.ResourceRequirements{Requests: internalCores("100"), Limits: internalCores("100")}
	withInfra := *bare.DeepCopy()
	for _, list := range []core.ResourceList{withInfra.Requests, withInfra.Limits} {
		list["infra.workload.openshift.io/cores"] = resource.MustParse("100")
	}
	without := func(prefixes ...string) func(*core.Pod) {
		return func(pod *core.Pod) {
			maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
				return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
			})
		}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		resources   core.ResourceRequirements
		webhooks    []func(*core.Pod)
		cpu, cores  string
		told        string
	}{
		"a copy of kubectl debug":         {nil, withInfra, nil, "200m", "0", "because the pod asks for no workload type"},
		"a copy of a whole pod":           {copied, bare, nil, "0", "100", ""},
		"a copy of a whole pod, again":    {copied, bare, []func(*core.Pod){runAgain}, "0", "100", ""},
		"a handwritten pod":               {map[string]string{managementTarget: ""}, withInfra, nil, "0", "100", ""},
		"a webhook takes all annotations": {copied, bare, []func(*core.Pod){without("")}, "100m", "0", "because the pod asks for no workload type"},
		"a webhook takes ours":            {copied, bare, []func(*core.Pod){without(partition.TargetPrefix, partition.ResourcesPrefix)}, "100m", "0", "because the pod asks for no workload type"},
		"a webhook takes the target":      {copied, bare, []func(*core.Pod){func(pod *core.Pod) { without(partition.TargetPrefix)(pod); runAgain(pod) }}, "100m", "0", "because the pod asks for no workload type"},
		"a webhook takes the limits": {copied, bare, []func(*core.Pod){func(pod *core.Pod) {
			pod.Spec.Containers[0].Resources.Limits = nil
			applyLimitRanges(t, pod, limitRange(v1.LimitRangeItem{Default: coresOf("200")}))
			runAgain(pod)
		}}, "0", "100", ""},
		"a webhook replaces the target": {copied, bare, []func(*core.Pod){func(pod *core.Pod) {
			without(partition.TargetPrefix)(pod)
			pod.Annotations[partition.TargetAnnotation("infra")] = ""
			runAgain(pod)
		}}, "100m", "0", "infra"},
	} {
		t.Run(name, func(t *testing.T) {
			more := limitRange(v1.LimitRangeItem{Default: coresOf("200")})
			more.Name = "more"
			p := startConstrained(t, object, more)
			pod := newPod(maps.Clone(test.annotations))
			pod.Spec.Containers[0].Resources = *test.resources.DeepCopy()
			applyLimitRanges(t, pod, object)
			told, err := createAs(t, p, pod, "open", nil, test.webhooks...)
			if err != nil {
				t.Fatal(err)
			}
			requests := pod.Spec.Containers[0].Resources.Requests
			if cpu, cores := requests[core.ResourceCPU], requests["management.workload.openshift.io/cores"]; cpu.String() != test.cpu || cores.String() != test.cores || !strings.Contains(strings.Join(told, ""), test.told) {
				t.Errorf("it requests %v, told %q, want cpu %s, cores %s and %q", requests, told, test.cpu, test.cores, test.told)
			}
		})
	}
}

// A resize gets defaults as well, of which upstream would refuse all but cpu and memory.
func TestAResizeGetsNoCoresOfALimitRange(t *testing.T) {
	object := limitRange(v1.LimitRangeItem{Default: coresOf("100")})
	corev1.SetObjectDefaults_LimitRange(object)
	p := startConstrained(t, object, ofStorage())
	build := func(annotations map[string]string, containers ...core.ResourceRequirements) *core.Pod {
		pod := newPod(annotations)
		pod.Spec.Containers = nil
		for i, resources := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, core.Container{Name: string(rune('a' + i)), Resources: resources})
		}
		return pod
	}
	target := map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesAnnotation("a"): `{"cpushares":400}`, partition.ResourcesAnnotation("b"): `{"cpushares":2}`}
	own := core.ResourceRequirements{Requests: internalCores("400"), Limits: internalCores("400")}
	asMany := core.ResourceRequirements{Requests: internalCores("100"), Limits: internalCores("100")}
	for name, test := range map[string]struct {
		stored *core.Pod
		// sent is the resources of container a in the request; nil means the stored ones.
		sent *core.ResourceRequirements
	}{
		"an ordinary pod":                {build(nil, cpuAndMemory("4", "4")), nil},
		"an ordinary pod, BestEffort":    {build(nil, core.ResourceRequirements{}), nil},
		"a partitioned pod":              {build(target, own, cpuAndMemory("", "")), nil},
		"a partitioned pod with as many": {build(target, asMany, cpuAndMemory("", "")), nil},
		"a partitioned pod, the manifest sent again": {build(target, own, cpuAndMemory("", "")), &core.ResourceRequirements{
			Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("400m"), core.ResourceMemory: resource.MustParse("1Gi")}, Limits: core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")}}},
	} {
		t.Run(name, func(t *testing.T) {
			test.stored.Annotations = maps.Clone(test.stored.Annotations)
			if test.stored.Annotations == nil {
				test.stored.Annotations = map[string]string{}
			}
			test.stored.Annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: management.workload.openshift.io/cores request for container a"
			pod := test.stored.DeepCopy()
			if test.sent != nil {
				pod.Spec.Containers[0].Resources = *test.sent
			}
			applyLimitRanges(t, pod, object, ofStorage())
			if err := p.Admit(t.Context(), attributes(pod, test.stored, "open", "resize", admission.Update), nil); err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(pod.Spec, test.stored.Spec) {
				t.Errorf("got %v, want %v", pod.Spec.Containers, test.stored.Spec.Containers)
			}
		})
	}
}

func TestAMirrorGetsNoCoresOfALimitRange(t *testing.T) {
	object := limitRange(v1.LimitRangeItem{Default: coresOf("100")})
	corev1.SetObjectDefaults_LimitRange(object)
	p := startConstrained(t, object, ofStorage())
	for _, annotations := range []map[string]string{nil, {managementTarget: ""}} {
		mirror := newPod(maps.Clone(annotations))
		mirror.Spec.NodeName = "a"
		mirror.Spec.Containers = append(mirror.Spec.Containers, core.Container{Name: "idle"})
		partition.Mutate(internalpod.View(mirror), partition.Policy{Gate: partition.AnyType})
		if mirror.Annotations == nil {
			mirror.Annotations = map[string]string{}
		}
		mirror.Annotations[core.MirrorPodAnnotationKey] = "hash"
		want := mirror.DeepCopy()
		applyLimitRanges(t, mirror, object, ofStorage())
		kubelet := &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}
		if _, err := createAs(t, p, mirror, "open", kubelet, func(pod *core.Pod) { applyLimitRanges(t, pod, object, ofStorage()) }); err != nil {
			t.Fatal(err)
		}
		for _, c := range mirror.Spec.Containers {
			dropZeros(c.Resources)
		}
		if !apiequality.Semantic.DeepEqual(mirror.Spec.Containers, want.Spec.Containers) {
			t.Errorf("got %v, want %v", mirror.Spec.Containers, want.Spec.Containers)
		}
	}
}

func coresOf(text string) v1.ResourceList {
	return v1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse(text)}
}

func internalCores(text string) core.ResourceList {
	return core.ResourceList{"management.workload.openshift.io/cores": resource.MustParse(text), core.ResourceMemory: resource.MustParse("1Gi")}
}

// cpuAndMemory returns resources with 1Gi of memory, and with cpu where it is not empty.
func cpuAndMemory(request, limit string) core.ResourceRequirements {
	of := func(text string) core.ResourceList {
		list := core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")}
		if text != "" {
			list[core.ResourceCPU] = resource.MustParse(text)
		}
		return list
	}
	return core.ResourceRequirements{Requests: of(request), Limits: of(limit)}
}

// startConstrained starts a plugin with an active type, whose namespace "open" has the LimitRanges or quotas.
func startConstrained[O runtime.Object](t *testing.T, constraints ...O) *plugin {
	t.Helper()
	objects := []runtime.Object{partitiontest.Node("a", "management"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management,infra")}
	for _, object := range constraints {
		objects = append(objects, object)
	}
	p, _ := start(t, objects...)
	partitiontest.Eventually(t, "the type is active", func() bool { return p.activation.States()["management"].Active })
	return p
}

// ofStorage returns a LimitRange with which LimitRanger has something to say of every container.
func ofStorage() *v1.LimitRange {
	object := limitRange(v1.LimitRangeItem{DefaultRequest: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}})
	object.Name = "of-storage"
	return object
}

// applyLimitRanges does to the pod what LimitRanger does, which never gives ephemeral storage here.
func applyLimitRanges(t *testing.T, pod *core.Pod, limitRanges ...*v1.LimitRange) {
	t.Helper()
	for _, limitRange := range limitRanges {
		if err := limitranger.PodMutateLimitFunc(limitRange, pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range pod.Spec.Containers {
		delete(c.Resources.Requests, core.ResourceEphemeralStorage)
	}
}

// dropZeros takes out what keeps a policy from filling in cpu in a second run.
func dropZeros(of core.ResourceRequirements) {
	for _, list := range []core.ResourceList{of.Requests, of.Limits} {
		if zero, has := list[core.ResourceCPU]; has && zero.IsZero() {
			delete(list, core.ResourceCPU)
		}
	}
}
