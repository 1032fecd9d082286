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
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// With cores, such a pod would stay Pending for good: no scheduler finds them there.
func TestPodsForNodesThatDoNotCountStayOrdinary(t *testing.T) {
	labelled := func(name, label, value string, types ...string) *v1.Node {
		node := partitiontest.Node(name, types...)
		node.Labels = map[string]string{label: value}
		return node
	}
	p, _ := start(t, partitiontest.Namespace("kube-system", partition.EnabledAnnotation, "management"), partitiontest.Namespace("open", partition.AllowedAnnotation, "management"),
		partitiontest.Node("a", "management"), partitiontest.Node("late"), labelled("windows", v1.LabelOSStable, "windows"), labelled("virtual", "type", "virtual-kubelet"),
		labelled("ignored", "workload.openshift.io/partitioning", "ignore"), labelled("odd", "workload.openshift.io/partitioning", "ignore", "management"))
	ofDaemonSet := func(node string) func(*core.PodSpec) {
		return func(spec *core.PodSpec) {
			spec.Affinity = &core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{
				{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{node}}}}}}}}
		}
	}
	on := func(node string) func(*core.PodSpec) { return func(spec *core.PodSpec) { spec.NodeName = node } }
	selecting := func(label, value string) func(*core.PodSpec) {
		return func(spec *core.PodSpec) { spec.NodeSelector = map[string]string{label: value} }
	}
	for name, test := range map[string]struct {
		where    func(*core.PodSpec)
		ordinary bool
	}{
		"a DaemonSet's on a node with a pool":                        {where: ofDaemonSet("a")},
		"a DaemonSet's on a node that is to get one":                 {where: ofDaemonSet("late")},
		"a DaemonSet's on a node that nobody has seen":               {where: ofDaemonSet("new")},
		"a DaemonSet's on a node that has a pool and does not count": {where: ofDaemonSet("odd")},
		"a DaemonSet's on Windows":                                   {where: ofDaemonSet("windows"), ordinary: true},
		"a DaemonSet's on a virtual node":                            {where: ofDaemonSet("virtual"), ordinary: true},
		"a DaemonSet's on a node to ignore":                          {where: ofDaemonSet("ignored"), ordinary: true},
		"one that names a node to ignore":                            {where: on("ignored"), ordinary: true},
		"one that names a node with a pool":                          {where: on("a")},
		"one that selects Windows":                                   {where: selecting(v1.LabelOSStable, "windows"), ordinary: true},
		"one that selects Linux":                                     {where: selecting(v1.LabelOSStable, "linux")},
		"one that selects something else":                            {where: selecting("disk", "ssd")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(map[string]string{managementTarget: ""})
			test.where(&pod.Spec)
			told, err := create(t, p, pod, "open")
			if err != nil || internalpod.CarriesCores(pod) == test.ordinary || strings.Contains(strings.Join(told, ""), "nodes that do not count") != test.ordinary {
				t.Errorf("got %v, told %q, the pod has %v", err, told, pod.Spec.Containers[0].Resources)
			}
			pod = newPod(map[string]string{managementTarget: `{"effect":"RequiredDuringScheduling"}`})
			test.where(&pod.Spec)
			if _, err := create(t, p, pod, "open"); apierrors.IsForbidden(err) != test.ordinary {
				t.Errorf("with the hard effect: got %v", err)
			}
		})
	}
	pod := newPod(map[string]string{managementTarget: ""})
	selecting(v1.LabelOSStable, "windows")(&pod.Spec)
	var r recorder
	deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
	if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "open", "", admission.Create), nil); err != nil || !strings.Contains(strings.Join(r.warnings, ""), "nodes that do not count") {
		t.Errorf("a Deployment that selects Windows got %v, told %q", err, r.warnings)
	}
}
