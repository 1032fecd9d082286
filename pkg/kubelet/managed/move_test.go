package managed

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

type statuses map[types.UID]v1.PodStatus

func (s statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s[uid]
	return status, ok
}

func TestEphemeralContainersAreMovedToo(t *testing.T) {
	pod := partitionedPod(t)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	found := statuses{"": {ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}, EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "debug"}}}}
	list := func() []*v1.Pod { return []*v1.Pod{pod} }
	active, _ := Pods(list, nil, found)
	if active()[0] != pod {
		t.Error("with the feature off the pod is another")
	}
	on(t, management)
	active, provider := Pods(list, nil, found)
	seen := active()[0]
	if len(seen.Spec.Containers) != 2 || seen.Spec.Containers[1].Name != "debug" || len(pod.Spec.Containers) != 1 {
		t.Errorf("the CPU manager sees %v", seen.Spec.Containers)
	}
	if cpus := CPUs(seen, cpuset.New(2, 3)); cpus.String() != "0-1" {
		t.Errorf("and keeps them on %s", cpus)
	}
	if _, changed := pod.Annotations[partition.ResourcesAnnotation("debug")]; changed {
		t.Error("the pod itself has changed")
	}
	status, ok := provider.GetPodStatus("")
	if !ok || len(status.ContainerStatuses) != 2 || len(found[""].ContainerStatuses) != 1 {
		t.Errorf("it finds %v", status.ContainerStatuses)
	}
}

func TestCPUsWhereTheCPUManagerHasNoChoice(t *testing.T) {
	none := cpuset.New()
	startedIn(t, t.TempDir())
	if got := CPUs(ordinaryPod(), none); !got.IsEmpty() {
		t.Errorf("with the feature off it is %s", got)
	}
	host.wasOn, host.online = true, cpuset.New(0, 1, 2, 3)
	if got := CPUs(partitionedPod(t), none); got.String() != "0-3" {
		t.Errorf("after the file has gone it is %s", got)
	}
	on(t, management)
	for _, test := range []struct {
		pod  *v1.Pod
		want string
	}{{ordinaryPod(), "2-3"}, {partitionedPod(t), "0-1"}} {
		if got := CPUs(test.pod, none); got.String() != test.want {
			t.Errorf("it is %s, want %s", got, test.want)
		}
	}
	if !slices.Equal(CPUs(ordinaryPod(), cpuset.New(3)).List(), []int{3}) {
		t.Error("a choice is not kept")
	}
}
