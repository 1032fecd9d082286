// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func TestWhenAnAuditPodHasEnded(t *testing.T) {
	status := func(phase v1.PodPhase, state v1.ContainerState) v1.PodStatus {
		return v1.PodStatus{Phase: phase, ContainerStatuses: []v1.ContainerStatus{{State: state}}}
	}
	exited := func(phase v1.PodPhase, code int32) v1.PodStatus {
		return status(phase, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}})
	}
	waits := func(reason string) v1.PodStatus {
		return status(v1.PodPending, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: "why"}})
	}
	for _, row := range []struct {
		name   string
		status v1.PodStatus
		ended  bool
		want   string
	}{
		{"nothing is known of it yet", v1.PodStatus{}, false, "its pod is Pending"},
		{"its container is created", waits("ContainerCreating"), false, "its pod waits: ContainerCreating: why"},
		{"it runs", status(v1.PodRunning, v1.ContainerState{Running: &v1.ContainerStateRunning{}}), false, "its pod is Running"},
		{"the node is clean", exited(v1.PodSucceeded, 0), true, ""},
		{"the node has findings", exited(v1.PodFailed, 1), true, ""},
		{"the audit could not look", exited(v1.PodFailed, 2), true, "kubectl partition audit failed, with exit code 2"},
		{"the audit was killed", exited(v1.PodFailed, 137), true, "kubectl partition audit failed, with exit code 137"},
		{"its image is not there", waits("ErrImagePull"), true, "its pod waits: ErrImagePull: why"},
		{"its image is still not there", waits("ImagePullBackOff"), true, "its pod waits: ImagePullBackOff: why"},
		{"the kubelet has refused it", v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfpods", Message: "why"}, true, "its kubelet has not run the pod: OutOfpods: why"},
	} {
		ended, err := ending(&v1.Pod{Status: row.status})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if ended != row.ended || got != row.want {
			t.Errorf("%s: it has ended: %t, %q; want %t, %q", row.name, ended, got, row.ended, row.want)
		}
	}
}

func TestWhichNodesArePassedOver(t *testing.T) {
	node := func(system string, ready v1.ConditionStatus) *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{OperatingSystem: system}, Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: ready, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC))}}}}
	}
	for _, row := range []struct {
		name string
		node *v1.Node
		want string
	}{
		{"one that is ready is read", node("linux", v1.ConditionTrue), ""},
		{"one that is not ready is tried", node("linux", v1.ConditionFalse), ""},
		{"one without a status is tried", &v1.Node{}, ""},
		{"the kubelet of one is silent", node("linux", v1.ConditionUnknown), "its kubelet has not answered since 2026-11-29T01:02:03Z (NodeStatusUnknown)"},
		{"one is of Windows", node("windows", v1.ConditionTrue), "its system is windows"},
	} {
		got := ""
		if err := unreachable(row.node); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// What the object has of others is called hidden.
func TestWhatIsKeptOfAnObject(t *testing.T) {
	const text = `
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {a: b}
  managedFields: [{manager: hidden}]
  annotations: {kubectl.kubernetes.io/last-applied-configuration: hidden, nodegroup.workload.openshift.io/claim: claimed, workload.openshift.io.example.com/a: hidden, notworkload.openshift.io/a: hidden}
spec:
  podCIDR: kept
  template:
    metadata: {annotations: {vault.example.com/token: hidden, target.workload.openshift.io/management: kept}}
    spec:
      imagePullSecrets: [{name: hidden}]
      volumes: [{name: v, secret: {secretName: hidden}}]
      initContainers: [{name: c, env: [{name: PASSWORD, value: hidden}], envFrom: [{secretRef: {name: hidden}}], volumeMounts: [{name: hidden}], args: [kept]}]
status: {capacity: {cpu: "4"}, hostIP: hidden, hostIPs: [{ip: hidden}], podIP: hidden, podIPs: [{ip: hidden}]}
`
	object := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, row := range []struct {
		name string
		keep [][]string
		want string
	}{
		{"all", nil, `{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"nodegroup.workload.openshift.io/claim":"claimed"},"labels":{"a":"b"},"name":"node-1"},` +
			`"spec":{"podCIDR":"kept","template":{"metadata":{"annotations":{"target.workload.openshift.io/management":"kept"}},"spec":{"initContainers":[{"args":["kept"],"name":"c"}]}}},"status":{"capacity":{"cpu":"4"}}}`},
		{"some fields", [][]string{{"status", "capacity"}, {"status", "images"}}, `{"metadata":{"annotations":{"nodegroup.workload.openshift.io/claim":"claimed"},"labels":{"a":"b"},"name":"node-1"},"status":{"capacity":{"cpu":"4"}}}`},
	} {
		got, err := json.Marshal(kind{keep: row.keep}.reduced(object()))
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s (%v)\nwant %s", row.name, got, err, row.want)
		}
	}
}

func TestNoSecretIsRead(t *testing.T) {
	for _, k := range append(ofCluster(), ofCompanion("a")...) {
		if k.Resource == "secrets" {
			t.Errorf("%+v is read", k)
		}
	}
}

// The pod has the rights of those in deploy/audit.yaml and no others, depends on nothing that may be broken, and ends by itself.
func TestAnAuditPodEndsByItselfAndMovesNoOther(t *testing.T) {
	pod, err := auditPod(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, "registry.example.com/image", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	spec, container := pod.Spec, pod.Spec.Containers[0]
	if spec.NodeName != "n" || !spec.HostNetwork || spec.NodeSelector != nil || len(spec.Tolerations) != 1 || spec.Tolerations[0].Key != "" {
		t.Errorf("it needs more than its node: %+v", spec)
	}
	if spec.PriorityClassName != "" || len(container.Resources.Requests) != 1 || !container.Resources.Requests.Memory().IsZero() {
		t.Errorf("it takes the place of others: priority %q, requests %v", spec.PriorityClassName, container.Resources.Requests)
	}
	if spec.RestartPolicy != v1.RestartPolicyNever || ptr.Deref(spec.ActiveDeadlineSeconds, 0) != 90 || ptr.Deref(spec.TerminationGracePeriodSeconds, 1) != 0 {
		t.Errorf("it does not end: %+v", spec)
	}
	security := container.SecurityContext
	if ptr.Deref(spec.AutomountServiceAccountToken, true) || ptr.Deref(security.Privileged, false) || ptr.Deref(security.AllowPrivilegeEscalation, true) || len(security.Capabilities.Add) != 1 || !ptr.Deref(security.ReadOnlyRootFilesystem, false) {
		t.Errorf("it may do too much: %+v", security)
	}
	for _, mount := range container.VolumeMounts {
		if !mount.ReadOnly || mount.RecursiveReadOnly == nil {
			t.Errorf("it may write: %+v", mount)
		}
	}
	if container.Image != "registry.example.com/image" || strings.Join(container.Command, " ") != "kubectl-partition audit --root=/host --record=-" || len(container.Args)+len(container.Ports) > 0 || container.LivenessProbe != nil {
		t.Errorf("it runs %+v", container)
	}
}
