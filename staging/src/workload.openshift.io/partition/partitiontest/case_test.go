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

package partitiontest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition"
)

func TestDiffNamesWhatDiffers(t *testing.T) {
	want := partitioned(pod(annotations("mine", "1", target, soft, resources+"a", `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400")))
	skipped := Want{Outcome: partition.Skipped, Reason: partition.ReasonTypeInactive, Pod: pod(nil, container("a", "cpu=400m memory=1Mi", ""))}
	inactive, _ := partition.RuleOf(partition.ReasonTypeInactive)
	for name, test := range map[string]struct {
		want   Want
		change func(*v1.Pod)
		differ string
	}{
		"the pod itself":                    {want, func(*v1.Pod) {}, ""},
		"the same quantity in another unit": {want, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1024Ki") }, ""},
		"a zero that was kept":              {want, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("0") }, ""},
		"an annotation of others":           {want, func(p *v1.Pod) { p.Annotations["theirs"] = "x" }, ""},
		"an annotation that was lost":       {want, func(p *v1.Pod) { delete(p.Annotations, "mine") }, `annotation mine is "", want "1"`},
		"an annotation with another value":  {want, func(p *v1.Pod) { p.Annotations[target] = hard }, "annotation " + target},
		"an extra annotation of ours":       {want, func(p *v1.Pod) { p.Annotations[resources+"b"] = "{}" }, "annotation " + resources + "b"},
		"cpu":                               {want, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1m") }, "container a has"},
		"an extra container":                {want, func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{container("b", "", "")} }, "container b is new"},
		"a container that was lost":         {want, func(p *v1.Pod) { p.Spec.Containers = nil }, "container a has"},
		"a warning":                         {want, func(p *v1.Pod) { p.Annotations[partition.WarningAnnotation] = "x" }, "the warning is"},
		"a pod that was skipped":            {skipped, func(p *v1.Pod) { p.Annotations = annotations(partition.WarningAnnotation, "ignored: "+inactive.Text) }, ""},
		"one without a warning":             {skipped, func(*v1.Pod) {}, "the warning is"},
		"one with another reason's warning": {skipped, func(p *v1.Pod) { p.Annotations = annotations(partition.WarningAnnotation, "x") }, "the warning is"},
		"one that kept its target":          {skipped, func(p *v1.Pod) { p.Annotations = annotations(target, soft) }, "annotation " + target},
	} {
		got := test.want.Pod.DeepCopy()
		test.change(got)
		if difference := test.want.Diff(got); !strings.Contains(difference, test.differ) || (test.differ == "") != (difference == "") {
			t.Errorf("%s: %q, want %q", name, difference, test.differ)
		}
	}
}

func TestCasesAreMadeAfresh(t *testing.T) {
	Cases()[1].Pod.Annotations[target] = "changed"
	if Cases()[1].Pod.Annotations[target] != soft {
		t.Error("a test has changed the pods of others")
	}
}
