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
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
)

func TestNobodyEntersOrLeavesAPartitionLater(t *testing.T) {
	p, _ := start(t)
	target := map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesPrefix + "c": `{"cpushares":400}`}
	for name, test := range map[string]struct {
		stored, sent map[string]string
		warned       bool
	}{
		"joins":    {map[string]string{"a": "b"}, map[string]string{"a": "c", managementTarget: "", partition.ResourcesPrefix + "c": "{}"}, true},
		"leaves":   {target, nil, true},
		"is quiet": {target, target, false},
	} {
		for _, subresource := range []string{"", "status", "ephemeralcontainers", "resize"} {
			old, pod := newPod(test.stored), newPod(test.sent)
			for _, p := range []*core.Pod{old, pod} {
				delete(p.Spec.Containers[0].Resources.Requests, core.ResourceCPU)
			}
			var r recorder
			if err := p.Admit(warning.WithWarningRecorder(t.Context(), &r), attributes(pod.DeepCopy(), old, "x", subresource, admission.Update), nil); err != nil {
				t.Fatal(err)
			}
			if (len(r.warnings) > 0) != test.warned {
				t.Errorf("%s by %q: warnings %q", name, subresource, r.warnings)
			}
			updated := pod.DeepCopy()
			_ = p.Admit(t.Context(), attributes(updated, old, "x", subresource, admission.Update), nil)
			for key, value := range updated.Annotations {
				if partition.OwnsAnnotation(key) && test.stored[key] != value {
					t.Errorf("%s by %q: %s is %q", name, subresource, key, value)
				}
			}
			for key, value := range test.stored {
				if partition.OwnsAnnotation(key) && updated.Annotations[key] != value {
					t.Errorf("%s by %q: %s is gone", name, subresource, key)
				}
			}
		}
	}
}

// The annotations of a binding become the pod's, which nothing validates again.
func TestABindingBringsNoPodIntoAPartition(t *testing.T) {
	p, _ := start(t)
	for _, through := range []struct{ resource, subresource string }{{"pods", "binding"}, {"bindings", ""}} {
		for _, key := range []string{managementTarget, partition.ResourcesPrefix + "c", partition.WarningAnnotation} {
			binding := &core.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "", "a": "b"}}}
			request := func() admission.Attributes {
				return admission.NewAttributesRecord(binding, nil, core.Kind("Binding").WithVersion("version"), "x", "", core.Resource(through.resource).WithVersion("version"), through.subresource, admission.Create, nil, false, nil)
			}
			if err := p.Admit(t.Context(), request(), nil); err != nil || len(binding.Annotations) != 1 {
				t.Errorf("a binding by %v keeps %v, %v", through, binding.Annotations, err)
			}
			if err := p.Validate(t.Context(), request(), nil); err != nil {
				t.Errorf("a binding by %v got %v", through, err)
			}
			// A webhook or policy has the last word.
			binding.Annotations[key] = "{}"
			if err := p.Validate(t.Context(), request(), nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), key) {
				t.Errorf("a binding by %v with the annotation %s got %v, want 403", through, key, err)
			}
		}
	}
}

func TestResize(t *testing.T) {
	limitRange := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "limited"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{
		Type: v1.LimitTypeContainer, DefaultRequest: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}, Default: v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m")},
	}}}}
	p, _ := start(t, limitRange)
	cores := core.ResourceName("management.workload.openshift.io/cores")
	partitioned := newPod(map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesPrefix + "c": `{"cpushares":400}`})
	partitioned.Spec.Containers[0].Resources = core.ResourceRequirements{
		Requests: core.ResourceList{cores: resource.MustParse("400"), core.ResourceMemory: resource.MustParse("1Mi")}, Limits: core.ResourceList{cores: resource.MustParse("400")}}
	withZero := partitioned.DeepCopy()
	withZero.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("0")
	for name, test := range map[string]struct {
		stored    *core.Pod
		change    func(*core.ResourceRequirements)
		wantError string
	}{
		"memory, with a zero":                         {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceMemory] = resource.MustParse("2Mi") }, ""},
		"memory, without the zero":                    {withZero, func(r *core.ResourceRequirements) { delete(r.Requests, core.ResourceCPU) }, ""},
		"memory, with a default in place of the zero": {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("100m") }, ""},
		"cpu request in place of the zero":            {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") }, "spec.containers[0].resources.requests[cpu]"},
		"memory":                                      {partitioned, func(r *core.ResourceRequirements) { r.Requests[core.ResourceMemory] = resource.MustParse("2Mi") }, ""},
		"memory, with LimitRanger's defaults": {partitioned, func(r *core.ResourceRequirements) {
			r.Requests[core.ResourceCPU], r.Limits[core.ResourceCPU] = resource.MustParse("100m"), resource.MustParse("200m")
		}, ""},
		"cpu request": {partitioned, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") },
			`spec.containers[0].resources.requests[cpu]: Invalid value: "500m": the CPU of a partitioned pod does not change after its creation; it is counted as management.workload.openshift.io/cores`},
		"cpu limit": {partitioned, func(r *core.ResourceRequirements) { r.Limits[core.ResourceCPU] = resource.MustParse("500m") }, "spec.containers[0].resources.limits[cpu]"},
		"LimitRanger's default in a pod that is ordinary for a reason": {newPod(map[string]string{partition.WarningAnnotation: "workload type \"management\" ignored: no pool of this type is active here"}),
			func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("100m") }, ""},
		"memory of a pod that an older kube-apiserver created": {newPod(map[string]string{managementTarget: ""}), func(r *core.ResourceRequirements) { r.Requests[core.ResourceMemory] = resource.MustParse("2Mi") }, ""},
		"cpu of a pod that an older kube-apiserver created":    {newPod(map[string]string{managementTarget: ""}), func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") }, ""},
		"an ordinary pod's cpu":                                {newPod(nil), func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := test.stored.DeepCopy()
			test.change(&pod.Spec.Containers[0].Resources)
			err := p.Admit(t.Context(), attributes(pod, test.stored, "limited", "resize", admission.Update), nil)
			if test.wantError != "" {
				// A webhook may do it after the last Admit.
				test.change(&pod.Spec.Containers[0].Resources)
				if err := p.Validate(t.Context(), attributes(pod, test.stored, "limited", "resize", admission.Update), nil); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("the validation says %v, want an error with %q", err, test.wantError)
				}
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an error with %q", err, test.wantError)
				}
				return
			}
			if err := p.Validate(t.Context(), attributes(pod, test.stored, "limited", "resize", admission.Update), nil); err != nil {
				t.Error(err)
			}
			now, has := pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU]
			if _, had := test.stored.Spec.Containers[0].Resources.Requests[core.ResourceCPU]; err != nil || has != had || (test.stored == withZero && !now.IsZero()) {
				t.Errorf("got %v, %v", err, pod.Spec.Containers[0].Resources)
			}
		})
	}
}

// A manifest that is sent again by PUT has what the pod was created with, which may be a default.
func TestAManifestWithDefaultsIsSentAgain(t *testing.T) {
	p, _ := start(t, limitRange(v1.LimitRangeItem{Default: cpuOf("200m"), DefaultRequest: cpuOf("100m")}))
	cores := core.ResourceName("management.workload.openshift.io/cores")
	stored := newPod(map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesPrefix + "c": `{"cpushares":100,"cpulimit":200}`})
	stored.Spec.Containers[0].Resources = core.ResourceRequirements{
		Requests: core.ResourceList{cores: resource.MustParse("100"), core.ResourceMemory: resource.MustParse("1Mi")}, Limits: core.ResourceList{cores: resource.MustParse("100")}}
	pod := newPod(stored.Annotations)
	pod.Spec.Containers[0].Resources = core.ResourceRequirements{
		Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("100m"), core.ResourceMemory: resource.MustParse("2Mi")}, Limits: core.ResourceList{core.ResourceCPU: resource.MustParse("200m")}}
	if err := p.Admit(t.Context(), attributes(pod, stored, "open", "resize", admission.Update), nil); err != nil {
		t.Fatal(err)
	}
	want := stored.Spec.Containers[0].Resources.DeepCopy()
	want.Requests[core.ResourceMemory] = resource.MustParse("2Mi")
	if got := pod.Spec.Containers[0].Resources; !apiequality.Semantic.DeepEqual(got, *want) {
		t.Errorf("got %v, want %v", got, *want)
	}
}
