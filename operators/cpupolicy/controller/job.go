// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/cpupolicy/agentpod"
)

// Labels of a Job say for which node it is, and what it does.
const (
	nodeLabel = "cpupolicy.workload.openshift.io/node-uid"
	kindLabel = "cpupolicy.workload.openshift.io/job"

	switches = "switch"
	observes = "observe"
)

// nodeNameAnnotation on a Job has the name of its node, which may be too long for a label.
const nodeNameAnnotation = "cpupolicy.workload.openshift.io/node"

// jobName returns the name of the Job of an operation on a node. It is the operation's alone, and the node's: what a
// node claims in its own annotations is in the way of no other. It is no longer than a label may be.
func jobName(node, operation string) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q/%q", node, operation))
	return fmt.Sprintf("cpu-policy-%.41s-%x", operation, hash[:5])
}

// unknownJobName returns the name of the Job that settles what the status of a node does not name. A node has one, whatever
// it claims.
func unknownJobName(node string) string { return jobName(node, "unknown") }

// operationAnnotation on that Job is the operation that it settles.
const operationAnnotation = "cpupolicy.workload.openshift.io/operation"

// observingJobName returns the name of the Job that looks at a node for a reason: what was asked
// for, or the boot of the node. For one reason there is one Job.
func observingJobName(node *corev1.Node, reason string) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q/%q/%q", node.UID, node.Status.NodeInfo.BootID, reason))
	return fmt.Sprintf("observe-%x", hash[:16])
}

// jobs are those that work on nodes.
type jobs struct {
	reader    client.Reader
	writer    client.Writer
	namespace string
}

// +kubebuilder:rbac:groups=batch,resources=jobs,namespace=agent,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// create creates a Job for a node, with further annotations. That it is there already is no error. It
// goes with the Node, so that it never runs on another one of the same name.
func (j jobs) create(ctx context.Context, node *corev1.Node, kind, name string, pod corev1.PodSpec, spec batchv1.JobSpec, annotations map[string]string) error {
	labels := map[string]string{kindLabel: kind, nodeLabel: string(node.UID)}
	all := map[string]string{nodeNameAnnotation: node.Name}
	maps.Copy(all, annotations)
	spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.namespace, Name: name, Labels: labels,
			Annotations:     all,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: spec,
	}
	return client.IgnoreAlreadyExists(j.writer.Create(ctx, job))
}

// get returns a Job of a node and its pods, the newest first; nil if there is no such Job.
func (j jobs) get(ctx context.Context, node, name string) (*batchv1.Job, []corev1.Pod, error) {
	var job batchv1.Job
	if err := j.reader.Get(ctx, client.ObjectKey{Namespace: j.namespace, Name: name}, &job); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	if of := job.Annotations[nodeNameAnnotation]; of != node {
		return nil, nil, fmt.Errorf("job %s/%s is of node %q, and not of %q", job.Namespace, name, of, node)
	}
	var pods corev1.PodList
	if err := j.reader.List(ctx, &pods, client.InNamespace(j.namespace), client.MatchingLabels{batchv1.JobNameLabel: name}); err != nil {
		return nil, nil, err
	}
	owned := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, &job) })
	slices.SortFunc(owned, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return &job, owned, nil
}

// remove deletes a Job and its pods. That it is gone, or another one has its name, is no error.
func (j jobs) remove(ctx context.Context, job *batchv1.Job) error {
	err := j.writer.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// ended returns when a Job has ended, by the clock of its controller, and why it failed if it did;
// the zero time if it has not.
func ended(job *batchv1.Job) (at time.Time, why string) {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return c.LastTransitionTime.Time, ""
		case batchv1.JobFailed:
			return c.LastTransitionTime.Time, strings.TrimSpace(c.Reason + ": " + c.Message)
		}
	}
	return time.Time{}, ""
}

// keepEnded is how long the Job of an operation stays after its end. Nobody needs it for longer than a
// controller that read the Node before that end may have been stopped, and then still create the Job.
const keepEnded = 24 * time.Hour

// whyAnnotation on a Job that never runs says why.
const whyAnnotation = "cpupolicy.workload.openshift.io/why"

// neverRuns is a Job that is there for its name alone: the controller of Jobs takes one without completions for
// complete at once (upstream, pkg/controller/job, syncJob), so that it goes as if it had run.
func neverRuns() batchv1.JobSpec {
	return batchv1.JobSpec{Completions: ptr.To(int32(0)), TTLSecondsAfterFinished: ptr.To(int32(keepEnded.Seconds()))}
}

// isTombstone reports whether a Job never runs.
func isTombstone(job *batchv1.Job) bool { return job.Annotations[whyAnnotation] != "" }

// messages returns the termination messages of those pods that have run on a node, the newest first; those of
// agents that have failed only if partial. Of a container that did not start, the message is the runtime's, and
// not the agent's.
func messages(pods []corev1.Pod, node string, partial bool) (texts []string) {
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if end := status.State.Terminated; end != nil && status.Name == agentpod.Container && pod.Spec.NodeName == node && end.Message != "" && !slices.Contains(neverStarted, end.Reason) && (partial || end.ExitCode == 0) {
				texts = append(texts, end.Message)
			}
		}
	}
	return texts
}

// neverStarted are the reasons of containers that did not start, as containerd and CRI-O give them.
var neverStarted = []string{"StartError", "ContainerCannotRun"}

// whyWaiting says what keeps pods from running, such as an image that cannot be pulled; empty if
// nothing does.
func whyWaiting(pods []corev1.Pod) string {
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if w := status.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return strings.TrimSpace(w.Reason + ": " + w.Message)
			}
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.TrimSpace(c.Reason + ": " + c.Message)
			}
		}
	}
	return ""
}

// isGone reports whether an error says that a node no longer exists.
func isGone(err error) bool { return apierrors.IsNotFound(err) }

// fewTries is a Job whose pod is replaced twice if it fails, and that ends after a time. A node that has
// just joined often restarts its kubelet, and a container that starts at that moment fails.
func fewTries(limit, keep time.Duration) batchv1.JobSpec {
	return batchv1.JobSpec{
		BackoffLimit:            ptr.To(int32(2)),
		ActiveDeadlineSeconds:   ptr.To(int64(limit.Seconds())),
		TTLSecondsAfterFinished: ptr.To(int32(keep.Seconds())),
	}
}
