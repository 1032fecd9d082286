// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A static pod whose manifest has its own UID is on its pool, and has its weight, whether
// it was created before the file came or after, and is an ordinary pod once the file has gone.
func TestStaticPodsWithAUIDOfTheirOwnArePartitioned(t *testing.T) {
	in(t, core, long)
	underEachPolicy(t, staticPodsWithAUIDOfTheirOwnArePartitioned)
}

func staticPodsWithAUIDOfTheirOwnArePartitioned(t *testing.T, c *host.Cluster) {
	t.Cleanup(func() { restart(t, c, pinning) })
	const name = "own-uid"
	manifest := staticPod(name, asks, fixture.Awake, "cpu=400m memory=16Mi", "")
	manifest.UID = "0123456789abcdef0123456789abcdef"
	restart(t, c, "")
	writeStaticPods(t, c, manifest)
	var p *v1.Pod
	// expect waits until the pod has the form, with the CPUs and the weight that go with it.
	expect := func(t *testing.T, partitioned bool) {
		t.Helper()
		want := allCPUs(t)
		if partitioned {
			want = "0"
		}
		waitFor(t, 2*time.Minute, "the pod runs as the file has it", func() (err error) {
			if p, err = c.Client.CoreV1().Pods("default").Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{}); err != nil {
				return err
			}
			if _, is := partition.PartitionedType(p); is != partitioned || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
				return fmt.Errorf("it has the annotations %v and the containers %v", p.Annotations, p.Status.ContainerStatuses)
			}
			whole, err := host.PodUsage(p)
			if err != nil {
				return err
			}
			container, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err == nil && (whole.Weight != weight(409) || container.CPUs != want) {
				err = fmt.Errorf("it has the weight %d and its container the CPUs %s, want %d and %s", whole.Weight, container.CPUs, weight(409), want)
			}
			return err
		})
	}
	// again waits until its container, which is killed behind the kubelet's back, runs again.
	again := func(t *testing.T) {
		t.Helper()
		killed := fixture.ContainerID(p.Status.ContainerStatuses[0])
		if _, err := runtimeClient(t, c).StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: killed}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, 2*time.Minute, "its container runs again", func() (err error) {
			p, err = c.Client.CoreV1().Pods("default").Get(t.Context(), p.Name, metav1.GetOptions{})
			if err == nil && (fixture.ContainerID(p.Status.ContainerStatuses[0]) == killed || p.Status.ContainerStatuses[0].State.Running == nil) {
				err = fmt.Errorf("its container is %v", p.Status.ContainerStatuses)
			}
			return err
		})
	}
	expect(t, false)
	for _, step := range []struct {
		name, file  string
		partitioned bool
	}{{"the file comes", pinning, true}, {"the kubelet starts again", pinning, true}, {"the file goes", "", false}, {"the file comes back", pinning, true}} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			expect(t, step.partitioned)
			again(t)
			expect(t, step.partitioned)
			if step.partitioned {
				expectNoLeak(t, p, onPool)
			}
		})
	}
}
