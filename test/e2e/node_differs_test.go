// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/node/plan"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A kubelet that starts judges the pods that it knows by the Node that there is then: it rejects one that
// requires a label that has gone, and one that does not tolerate a taint that has come. The plan of any
// pinning file says so beforehand.
func TestPlanNamesPodsThatNoLongerGoWithTheirNode(t *testing.T) {
	in(t, kubectlPlugin)
	c := partitioned(t)
	quietNode(t, c)
	const failing = "trap 'exit 1' TERM; while :; do sleep 1; done" // a pod whose containers end well is no longer Failed
	patch := func(t *testing.T, patch string) {
		t.Helper()
		if _, err := c.Client.CoreV1().Nodes().Patch(cleanup(t), host.NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitReason := func(t *testing.T, pod *v1.Pod, reason string) {
		t.Helper()
		waitFor(t, time.Minute, "pod "+pod.Name+" is rejected", func() error {
			now, err := c.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err == nil && (now.Status.Phase != v1.PodFailed || now.Status.Reason != reason) {
				err = fmt.Errorf("it is %s for %q: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
			}
			return err
		})
	}
	t.Run("a label has gone", func(t *testing.T) {
		t.Cleanup(func() { patch(t, `{"metadata": {"labels": {"a": null}}}`) })
		patch(t, `{"metadata": {"labels": {"a": "b"}}}`)
		namespace := fixture.Namespace(t, c.Client, "management")
		requires := fixture.Pod("requires", nil, fixture.Container("c", failing, "cpu=10m memory=16Mi", ""))
		requires.Spec.NodeSelector = map[string]string{"a": "b"}
		pods := start(t, c, namespace, requires, fixture.Pod("other", nil, fixture.Container("c", failing, "cpu=10m memory=16Mi", "")))
		expectVerdict(t, foresee(t, c, pinning), plan.Safe)
		patch(t, `{"metadata": {"labels": {"a": null}}}`)
		expectVerdict(t, foresee(t, c, pinning), plan.Unsafe, plan.CodeNodeDiffers+" "+namespace+"/requires")
		var said plan.Plan
		if err := json.Unmarshal([]byte(kubectlPartition(t, 1, "plan", "--on-host", host.NodeName, "--type", "management", "--cpuset", "0", "-o", "json")), &said); err != nil || said.Verdict != plan.Unsafe {
			t.Errorf("kubectl partition plan says %+v (%v)", said, err)
		}
		// The kubelet's own kubeconfig is enough for that, and without the API it is unknown.
		kubectlPartition(t, 1, "plan", "--on-host", host.NodeName, "--kubeconfig", filepath.Join(host.Dir, "kubelet.kubeconfig"), "--type", "management", "--cpuset", "0")
		kubectlPartition(t, 2, "plan", "--on-host", "--type", "management", "--cpuset", "0")
		restart(t, c, pinning)
		awaitReason(t, pods[0], "NodeAffinity")
		if now := awaitRunning(t, c, namespace, "other"); fixture.ContainerID(now.Status.ContainerStatuses[0]) != fixture.ContainerID(pods[1].Status.ContainerStatuses[0]) {
			t.Error("the other pod has another container")
		}
	})
	t.Run("a taint has come", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		tolerates := fixture.Pod("tolerates", nil, fixture.Container("c", failing, "cpu=10m memory=16Mi", ""))
		tolerates.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
		pods := start(t, c, namespace, tolerates, fixture.Pod("other", nil, fixture.Container("c", failing, "cpu=10m memory=16Mi", "")))
		// The controller that evicts for taints comes before the kubelet, unless it is down, too.
		if err := c.ControllerManager.Stop(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			patch(t, `{"spec": {"taints": null}}`)
			if err := c.ControllerManager.Start(); err != nil {
				t.Error(err)
			}
		})
		patch(t, `{"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}`)
		expectVerdict(t, foresee(t, c, pinning), plan.Unsafe, plan.CodeNodeDiffers+" "+namespace+"/other")
		restart(t, c, pinning)
		awaitReason(t, pods[1], "TaintToleration")
		awaitRunning(t, c, namespace, "tolerates")
	})
}
