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

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

const (
	target    = partition.TargetPrefix + Type
	soft      = `{"effect":"PreferredDuringScheduling"}`
	hard      = `{"effect":"RequiredDuringScheduling"}`
	resources = partition.ResourcesPrefix
)

var list, container, pod = podtest.List, podtest.Container, podtest.Pod

// OrdinaryPod returns a Burstable pod that does not ask. Its container c requests 400m of CPU
// and is limited to 500m.
func OrdinaryPod() *v1.Pod { return pod(nil, container("c", "cpu=400m memory=1Mi", "cpu=500m")) }

// PartitionedPod returns what must become of [OrdinaryPod] if it asks for [Type], with the
// soft effect.
func PartitionedPod() *v1.Pod {
	return pod(annotations(target, soft, resources+"c", `{"cpushares":400,"cpulimit":500}`), container("c", "cores=400 memory=1Mi", "cores=400"))
}

// Cases returns all cases, made afresh, so that a test may change their pods.
func Cases() []Case {
	asks := func(more ...string) map[string]string { return annotations(append([]string{target, soft}, more...)...) }
	asking, wanted := OrdinaryPod(), PartitionedPod()
	asking.Annotations, wanted.Annotations["mine"] = asks("mine", "1"), "1"
	burstable := container("a", "cpu=400m memory=1Mi", "cpu=500m")
	cases := []Case{{
		Name: "a pod that does not ask is left alone",
		Pod:  pod(annotations("mine", "1"), burstable),
		Want: Want{Pod: pod(annotations("mine", "1"), burstable)},
	}, {
		Name: "requests and limits become cores and an annotation",
		Pod:  asking,
		Want: partitioned(wanted),
	}, {
		Name: "a pod with the hard effect is partitioned, too",
		Pod:  pod(annotations(target, hard), burstable),
		Want: partitioned(pod(annotations(target, hard, resources+"a", `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 memory=1Mi", "cores=400"))),
	}, {
		Name: "an empty value is the soft effect, and is normalised",
		Pod:  pod(annotations(target, ""), burstable),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 memory=1Mi", "cores=400"))),
	}, {
		Name: "a limit alone is a request too",
		Pod:  pod(asks(), container("a", "memory=1Mi", "cpu=500m")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":500,"cpulimit":500}`), container("a", "cores=500 memory=1Mi", "cores=500"))),
	}, {
		Name: "a request of zero with a limit is still one",
		Pod:  pod(asks(), container("a", "cpu=0 memory=1Mi", "cpu=500m")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":2,"cpulimit":500}`), container("a", "cores=0 memory=1Mi", "cores=0"))),
	}, {
		Name: "a request of zero without a limit is as good as none",
		Pod:  pod(asks(), container("a", "cpu=0 memory=1Mi", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":2}`), container("a", "cpu=0 memory=1Mi", ""))),
	}, {
		Name: "a container without request gets the smallest weight and no cores",
		Pod:  pod(asks(), container("a", "cpu=1 memory=1Mi", ""), container("b", "", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":1000}`, resources+"b", `{"cpushares":2}`), container("a", "cores=1000 memory=1Mi", "cores=1000"), container("b", "", ""))),
	}, {
		Name: "a tiny request has the kernel's smallest weight",
		Pod:  pod(asks(), container("a", "cpu=1m memory=1Mi", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":2}`), container("a", "cores=1 memory=1Mi", "cores=1"))),
	}, {
		Name: "a fraction of a millicore is rounded up",
		Pod:  pod(asks(), container("a", "cpu=100500u memory=1Mi", "cpu=200100u")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":101,"cpulimit":201}`), container("a", "cores=101 memory=1Mi", "cores=101"))),
	}, {
		Name: "a BestEffort pod gets annotations only",
		Pod:  pod(asks(), container("a", "", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":2}`), container("a", "", ""))),
	}, {
		Name: "init containers and sidecars are partitioned too",
		Pod:  withInit(pod(asks(), burstable), container("init", "cpu=250m", ""), sidecar("sidecar", "cpu=100m", "")),
		Want: partitioned(withInit(pod(asks(resources+"a", `{"cpushares":400,"cpulimit":500}`, resources+"init", `{"cpushares":250}`, resources+"sidecar", `{"cpushares":100}`),
			container("a", "cores=400 memory=1Mi", "cores=400")), container("init", "cores=250", "cores=250"), sidecar("sidecar", "cores=100", "cores=100"))),
	}, {
		Name: "huge pages stay with memory",
		Pod:  pod(asks(), container("a", "cpu=100m memory=1Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":100}`), container("a", "cores=100 memory=1Mi hugepages-2Mi=2Mi", "cores=100 hugepages-2Mi=2Mi"))),
	}, {
		Name: "the largest quantity of CPU",
		Pod:  pod(asks(), container("a", "cpu=1M memory=1Mi", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":1000000000}`), container("a", "cores=1000000000 memory=1Mi", "cores=1000000000"))),
	}, {
		Name: "forged annotations are recomputed or removed",
		Pod: pod(asks(resources+"a", `{"cpushares":9999,"cpulimit":9,"cpuset":"1"}`, resources+"none", `{"cpuset":"1"}`, partition.WarningAnnotation, "x"),
			container("a", "cpu=400m memory=1Mi", "")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400"))),
	}, {
		Name: "forged annotations of a pod that does not ask are removed",
		Pod:  pod(annotations("mine", "1", resources+"a", `{"cpuset":"1"}`), burstable),
		Want: Want{Pod: pod(annotations("mine", "1"), burstable)},
	}, {
		Name: "a copy of a partitioned pod is partitioned alike",
		Pod:  pod(asks(resources+"a", `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 memory=1Mi", "cores=400")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":400,"cpulimit":500}`), container("a", "cores=400 memory=1Mi", "cores=400"))),
	}, {
		Name: "a cpulimit below the request does not count",
		Pod:  pod(asks(resources+"a", `{"cpushares":400,"cpulimit":399}`), container("a", "cores=400 memory=1Mi", "cores=400")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":400}`), container("a", "cores=400 memory=1Mi", "cores=400"))),
	}, {
		Name: "cores of another type become those of the type asked for",
		Pod:  pod(asks(), container("a", "other.workload.openshift.io/cores=300 memory=1Mi", "other.workload.openshift.io/cores=300")),
		Want: partitioned(pod(asks(resources+"a", `{"cpushares":300}`), container("a", "cores=300 memory=1Mi", "cores=300"))),
	}, {
		Name: "cores without a target become cpu",
		Pod:  pod(annotations(resources+"a", `{"cpushares":400,"cpulimit":500,"cpuset":"0"}`), container("a", "cores=400 memory=1Mi", "cores=400")),
		Want: Want{Reason: partition.ReasonCoresWithoutTarget, Pod: pod(nil, burstable)},
	}, {
		Name: "two targets are refused",
		Pod:  pod(asks(partition.TargetPrefix+otherType, ""), burstable),
		Want: Want{Outcome: partition.Refused, Reason: partition.ReasonInvalidTarget},
	}, {
		Name: "a target with an unknown effect is refused",
		Pod:  pod(annotations(target, `{"effect":"Wished"}`), burstable),
		Want: Want{Outcome: partition.Refused, Reason: partition.ReasonInvalidTarget},
	}}
	huge := container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")
	asked := func(containers ...v1.Container) *v1.Pod { return pod(asks(), containers...) }
	level := asked(container("a", "memory=1Mi", ""))
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=1 memory=1Mi")}
	full := pod(asks("mine", strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-120)), container("a", "cpu=400m memory=1Mi", ""))
	for _, rule := range []struct {
		holds, namespace, workloadType, featureGate string
		reason                                      partition.Reason
		pod                                         *v1.Pod
	}{
		{holds: "a Guaranteed pod", reason: partition.ReasonGuaranteed, pod: asked(container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi"))},
		{holds: "a pod that would become BestEffort", reason: partition.ReasonQoSChange, pod: asked(container("a", "cpu=100m", ""))},
		{holds: "CPU of the pod as a whole", reason: partition.ReasonPodLevelCPU, pod: level, featureGate: "PodLevelResources"},
		{holds: "more CPU than any host has", reason: partition.ReasonCPUOutOfRange, pod: asked(container("a", "cpu=9E memory=1Mi", ""))},
		{holds: "millicores that do not fit 64 bits", reason: partition.ReasonCPUOutOfRange, pod: asked(container("a", "cpu=1 memory=1Mi", "cpu=9223372036854776"))},
		{holds: "huge pages with cpu alone", reason: partition.ReasonHugePagesNeedCPU, pod: asked(huge, container("b", "memory=1Mi", ""))},
		{holds: "annotations that ours would make too large", reason: partition.ReasonAnnotationsTooLarge, pod: full},
		{holds: "a type that is not active", reason: partition.ReasonTypeInactive, pod: asked(burstable), workloadType: InactiveType},
		{holds: "a namespace without annotation", reason: partition.ReasonNamespaceNotAnnotated, pod: asked(burstable), namespace: Plain},
		{holds: "a namespace with other types only", reason: partition.ReasonNamespaceOtherTypes, pod: asked(burstable), namespace: Others},
	} {
		for _, effect := range []partition.Effect{partition.Preferred, partition.Required} {
			asks := rule.pod.DeepCopy()
			delete(asks.Annotations, target)
			workloadType := Type
			if rule.workloadType != "" {
				workloadType = rule.workloadType
			}
			asks.Annotations[partition.TargetAnnotation(workloadType)] = partition.Target{Type: workloadType, Effect: effect}.AnnotationValue()
			want := NotPartitioned(rule.reason, effect, ordinary(asks))
			want.NoRoom = rule.reason == partition.ReasonAnnotationsTooLarge
			cases = append(cases, Case{Name: rule.holds + ", " + string(effect), Namespace: rule.namespace, Pod: asks, FeatureGate: rule.featureGate, Want: want})
		}
	}
	for i := range cases {
		if cases[i].Namespace == "" {
			cases[i].Namespace = Open
		}
	}
	return cases
}

func partitioned(pod *v1.Pod) Want { return Want{Outcome: partition.Partitioned, Pod: pod} }

// annotations returns a map of alternating keys and values.
func annotations(keysAndValues ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		all[keysAndValues[i]] = keysAndValues[i+1]
	}
	return all
}

// sidecar is an init container that keeps running.
func sidecar(name, requests, limits string) v1.Container {
	c, always := container(name, requests, limits), v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func withInit(pod *v1.Pod, containers ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = containers
	return pod
}
