// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/deploy"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/partition"
)

// Label is on the namespace of the audit pods, which has a name of its own each time.
const Label = "app.kubernetes.io/name=workload-partitioning-gather"

const (
	// removeTimeout is how long removing may take, also when nothing else may go on.
	removeTimeout = 30 * time.Second
	// mostText bounds the log in which a record comes: as text it is compressed.
	mostText = 32 << 20
)

// recorded is what came of a node.
type recorded struct {
	files map[string][]byte
	err   error
}

// addNodes adds the records of nodes, in the order of their names. At most AtOnce are in memory.
func (g *gatherer) addNodes(ctx context.Context) {
	if g.Image == "" {
		g.archive.lacks("nodes", errors.New("no pod was to read them"))
		return
	}
	list, err := g.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: g.Nodes})
	if err != nil {
		g.archive.lacks("nodes", err)
		return
	}
	if len(list.Items) == 0 {
		g.archive.lacks("nodes", fmt.Errorf("the cluster has none with the labels %q", g.Nodes))
		return
	}
	namespace, err := g.createNamespace(ctx)
	if namespace != "" {
		defer g.removeNamespace(ctx, namespace)
	}
	if err != nil {
		g.archive.lacks("nodes", fmt.Errorf("the namespace for audit pods: %w", err))
		return
	}
	g.Say("reading nodes, %d at a time of %d, by pods of namespace %s", min(g.AtOnce, len(list.Items)), len(list.Items), namespace)
	results := make([]chan recorded, len(list.Items))
	for i := range results {
		results[i] = make(chan recorded, 1)
	}
	free := make(chan struct{}, g.AtOnce)
	go func() {
		for i := range list.Items {
			free <- struct{}{} // after the end of the context each of them ends at once
			go func() {
				files, err := g.record(ctx, namespace, &list.Items[i])
				results[i] <- recorded{files, err}
			}()
		}
	}()
	for i, node := range list.Items {
		result := <-results[i]
		<-free
		g.archive.lacks("node "+node.Name, result.err)
		for _, name := range slices.Sorted(maps.Keys(result.files)) {
			g.archive.add("nodes/"+node.Name+"/"+name, result.files[name])
		}
	}
}

// createNamespace makes a namespace for audit pods. Its name is not empty if there is something to remove.
func (g *gatherer) createNamespace(ctx context.Context) (name string, err error) {
	key, value, _ := strings.Cut(Label, "=")
	wanted := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "workload-partitioning-gather-",
		Labels: map[string]string{
			key: value, "pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "privileged", "pod-security.kubernetes.io/audit": "privileged",
			"security.openshift.io/scc.podSecurityLabelSync": "false",
		},
		Annotations: map[string]string{partition.AllowedAnnotation: "management", "openshift.io/node-selector": ""},
	}}
	namespace, err := g.client.CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// A policy may keep this user from allowing a type. Then the pods are ordinary.
		delete(wanted.Annotations, partition.AllowedAnnotation)
		namespace, err = g.client.CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	_, err = g.client.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "audit"}}, metav1.CreateOptions{})
	return namespace.Name, err
}

// removeNamespace removes the pods that are left, and their namespace, also after an interrupt. Of a node that does not
// answer nothing is waited for.
func (g *gatherer) removeNamespace(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := g.client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	err = errors.Join(err, g.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	if err != nil {
		g.Say("namespace %s is left; remove it with kubectl delete namespace %[1]s: %v", name, err)
		g.archive.lacks("removing namespace "+name, err)
	}
}

// record has a pod audit a node, and returns the files of its record.
func (g *gatherer) record(ctx context.Context, namespace string, node *v1.Node) (map[string][]byte, error) {
	if err := unreachable(node); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.NodeTimeout, fmt.Errorf("it took longer than %s", g.NodeTimeout))
	defer cancel()
	wanted, err := auditPod(node, g.Image, g.NodeTimeout)
	if err != nil {
		return nil, err
	}
	pods := g.client.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}) // or with its namespace
	}()
	state := errors.New("its pod was not seen")
	err = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, false, func(ctx context.Context) (bool, error) {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			state = err
			return false, nil
		}
		ended, err := ending(now)
		if err != nil && !ended {
			state = err
			return false, nil
		}
		return ended, err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), state)
	case err != nil && !errors.Is(err, errNotRecorded):
		return nil, err
	}
	failed := err
	text, err := g.log(ctx, pod, &v1.PodLogOptions{LimitBytes: ptr.To[int64](mostText)})
	if err != nil {
		return nil, errors.Join(failed, fmt.Errorf("the log of its pod: %w", err))
	}
	if failed != nil {
		return nil, fmt.Errorf("%w: %s", failed, lastLine(text))
	}
	files, err := audit.ParseText(text)
	if err != nil {
		return nil, fmt.Errorf("the log of its pod: %w", err)
	}
	return files, nil
}

// unreachable returns why no pod of a node can be read.
func unreachable(node *v1.Node) error {
	if system := node.Status.NodeInfo.OperatingSystem; system != "" && system != "linux" {
		return fmt.Errorf("its system is %s", system)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionUnknown {
			return fmt.Errorf("its kubelet has not answered since %s (%s)", condition.LastTransitionTime.UTC().Format(time.RFC3339), condition.Reason)
		}
	}
	return nil
}

// errNotRecorded is that of an audit that failed. Its log says why.
var errNotRecorded = errors.New("kubectl partition audit failed")

// ending reports whether a pod has ended, or never will run. The error says why it has no record, or why it has not ended yet.
func ending(pod *v1.Pod) (ended bool, err error) {
	for _, container := range pod.Status.ContainerStatuses {
		if state := container.State.Terminated; state != nil {
			// 1 means that it has findings, and 2 that it could not look.
			if state.ExitCode > 1 {
				return true, fmt.Errorf("%w, with exit code %d", errNotRecorded, state.ExitCode)
			}
			return true, nil
		}
	}
	if pod.Status.Phase == v1.PodFailed {
		return true, fmt.Errorf("its kubelet has not run the pod: %s: %s", pod.Status.Reason, pod.Status.Message)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if state := container.State.Waiting; state != nil {
			// The kubelet tries again, but the image does not come from that.
			ended = slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, state.Reason)
			return ended, fmt.Errorf("its pod waits: %s: %s", state.Reason, state.Message)
		}
	}
	return false, fmt.Errorf("its pod is %s", cmp.Or(pod.Status.Phase, v1.PodPending))
}

// lastLine returns the last line of a text, of a length that a person reads.
func lastLine(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := lines[len(lines)-1]
	const most = 300
	return string(last[:min(len(last), most)])
}

// auditPod returns a pod that writes the record of its node into its log. What it may do there is what the pods of
// deploy/audit.yaml may, of which the reasons are there. It has the host's whole file system, since paths differ between
// installers; and it needs neither scheduler nor network, neither of which may work.
func auditPod(node *v1.Node, image string, timeout time.Duration) (*v1.Pod, error) {
	template, err := auditTemplate()
	if err != nil {
		return nil, err
	}
	key, value, _ := strings.Cut(Label, "=")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "audit-", Labels: map[string]string{key: value}, Annotations: template.Annotations}, Spec: *template.Spec.DeepCopy()}
	spec := &pod.Spec
	spec.NodeName, spec.NodeSelector, spec.HostNetwork = node.Name, nil, true
	spec.ServiceAccountName, spec.AutomountServiceAccountToken, spec.EnableServiceLinks = "audit", ptr.To(false), ptr.To(false)
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = v1.RestartPolicyNever, ptr.To[int64](0)
	// It ends by itself if nothing is left to remove it.
	spec.ActiveDeadlineSeconds = ptr.To(int64(timeout/time.Second) + 30)
	// It must not push other pods off the node, nor be refused for want of room.
	spec.PriorityClassName = ""
	container := &spec.Containers[0]
	container.Image, container.Command, container.Args = image, []string{"kubectl-partition", "audit", "--root=/host", "--record=-"}, nil
	container.Ports, container.LivenessProbe = nil, nil
	container.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("0")}
	container.VolumeMounts = []v1.VolumeMount{{Name: "host", MountPath: "/host", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}}
	spec.Volumes = []v1.Volume{{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/", Type: ptr.To(v1.HostPathDirectory)}}}}
	return pod, nil
}

// auditTemplate returns that of the DaemonSet in deploy/audit.yaml, which belongs to all nodes.
var auditTemplate = sync.OnceValues(func() (*v1.PodTemplateSpec, error) {
	for document := range bytes.SplitSeq(deploy.Audit, []byte("\n---\n")) {
		set := &appsv1.DaemonSet{}
		if err := yaml.Unmarshal(document, set); err != nil {
			return nil, err
		}
		if set.Kind == "DaemonSet" {
			return &set.Spec.Template, nil
		}
	}
	return nil, errors.New("deploy/audit.yaml has no DaemonSet")
})
