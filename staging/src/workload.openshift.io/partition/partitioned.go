package partition

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// TypeOf returns the workload type of a pod that [Mutate] partitioned, and false
// for every other pod. An annotation alone makes no partitioned pod: each container
// must have its resources annotation and no cpu, so that a pod from an API server
// without the admission plugin is an ordinary one. It does not allocate.
func TypeOf(pod *v1.Pod) (workloadType string, ok bool) {
	for key := range pod.Annotations {
		if name, found := strings.CutPrefix(key, TargetPrefix); found {
			if workloadType != "" {
				return "", false
			}
			workloadType = name
		}
	}
	if workloadType == "" || !partitionedContainers(pod, pod.Spec.InitContainers) || !partitionedContainers(pod, pod.Spec.Containers) {
		return "", false
	}
	return workloadType, true
}

func partitionedContainers(pod *v1.Pod, containers []v1.Container) bool {
	for i := range containers {
		request, limit := containers[i].Resources.Requests[cpu], containers[i].Resources.Limits[cpu]
		if !request.IsZero() || !limit.IsZero() {
			return false
		}
		if !hasResources(pod.Annotations, containers[i].Name) {
			return false
		}
	}
	return true
}

// hasResources looks up a container's resources annotation without building its key.
func hasResources(annotations map[string]string, container string) bool {
	for key := range annotations {
		if name, ok := strings.CutPrefix(key, ResourcesPrefix); ok && name == container {
			return true
		}
	}
	return false
}

// AsOrdinary returns a copy of a partitioned pod in which each container asks for
// CPU as it did before [Mutate]: what upstream code that turns requests into
// weights and quotas should see. The copy shares everything else with the pod;
// only the containers' requests and limits may be changed in it.
func AsOrdinary(pod *v1.Pod) *v1.Pod {
	workloadType, _ := TypeOf(pod)
	ordinary := *pod
	ordinary.Spec.InitContainers = asOrdinary(pod, pod.Spec.InitContainers, workloadType)
	ordinary.Spec.Containers = asOrdinary(pod, pod.Spec.Containers, workloadType)
	return &ordinary
}

// ContainerAsOrdinary is [AsOrdinary] for one container of the pod.
func ContainerAsOrdinary(pod *v1.Pod, container *v1.Container) *v1.Container {
	workloadType, _ := TypeOf(pod)
	return &asOrdinary(pod, []v1.Container{*container}, workloadType)[0]
}

func asOrdinary(pod *v1.Pod, containers []v1.Container, workloadType string) []v1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		resources := &containers[i].Resources
		resources.Requests = maps.Clone(resources.Requests)
		resources.Limits = maps.Clone(resources.Limits)
		view := Container[v1.ResourceList, v1.ResourceName]{
			Name:         containers[i].Name,
			Requirements: Requirements[v1.ResourceList, v1.ResourceName]{Requests: &resources.Requests, Limits: &resources.Limits},
		}
		view.restore(pod.Annotations, workloadType)
	}
	return containers
}
