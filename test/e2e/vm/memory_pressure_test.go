package vm

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// When memory runs out, the kubelet evicts an ordinary pod. The control plane runs on, and the
// node is Ready.
func TestMemoryPressure(t *testing.T) {
	// The usual threshold would be too low: the kubelet does not count the kernel's own memory,
	// some hundred megabytes, and before its count is that low the VM does little but read its
	// programs again. The transition period is short because no pod is scheduled to a node with
	// memory pressure.
	const eviction = "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 5s}\nevictionPressureTransitionPeriod: 10s\n"
	n := bootNode(t, `{"management": {"cpuset": "0-1"}}`, vm.Config{Memory: 6144}, host.Config{KubeletConfiguration: eviction})
	namespace := fixture.Namespace(t, n.client, "management")
	before := n.controlPlane(t)
	hog := fixture.Pod("hog", nil, fixture.Container("c", `dd if=/dev/zero of=/memory/first bs=1M count=$(($(sed -n 's/^MemAvailable: *\([0-9]*\)[0-9][0-9][0-9] kB/\1/p' /proc/meminfo) - 1300))
i=0; while :; do dd if=/dev/zero of=/memory/$i bs=1M count=8; i=$((i+1)); sleep 1; done`, "memory=16Mi", ""))
	hog.Spec.Volumes = []v1.Volume{{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}}
	hog.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	n.create(t, namespace, hog)
	waitFor(t, 10*time.Minute, "the ordinary pod is evicted", func(ctx context.Context) error {
		p, err := n.client.CoreV1().Pods(namespace).Get(ctx, "hog", metav1.GetOptions{})
		if err == nil && (p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted") {
			err = fmt.Errorf("it is %s, with the reason %q", p.Status.Phase, p.Status.Reason)
		}
		return err
	})
	if after := n.controlPlane(t); !slices.Equal(after, before) {
		t.Errorf("the containers of the control plane were %q, and are %q", before, after)
	}
	n.awaitReady(t, n.now(t))
}
