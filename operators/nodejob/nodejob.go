// SPDX-License-Identifier: Apache-2.0

// Package nodejob runs Jobs that work on one node each. A Job has a name that says for which operation it is, so that
// an operation has one, and nobody who is late starts a second.
//
// It knows no companion, and not what a Job does.
package nodejob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Jobs are those of a companion. It needs the verbs get, create and delete for jobs, and list for pods, in the namespace.
type Jobs struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// Group is that of the companion's API. The keys of labels and annotations begin with it.
	Group string
	// Container is the one in a Job's pods whose termination message counts.
	Container string
}

// nodeLabel on a Job has the UID of its node. kindLabel says what the Job does.
func (j Jobs) nodeLabel() string { return j.Group + "/node-uid" }
func (j Jobs) kindLabel() string { return j.Group + "/job" }

// NodeAnnotation on a Job has the name of its node, which may be too long for a label.
func (j Jobs) NodeAnnotation() string { return j.Group + "/node" }

func (j Jobs) operationAnnotation() string { return j.Group + "/operation" }
func (j Jobs) whyAnnotation() string       { return j.Group + "/why" }

// Name returns the name of the Job of an operation on a node. It is the operation's alone, and the node's: what a
// node claims in its own annotations is in the way of no other. It is no longer than a label may be, for a prefix of at
// most ten characters.
func Name(prefix, node, operation string) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q/%q", node, operation))
	return fmt.Sprintf("%s-%.41s-%x", prefix, operation, hash[:5])
}

// Job is what Create creates.
type Job struct {
	// Kind says what it does, as a label.
	Kind, Name string
	// Operation is for a Job whose name does not say it.
	Operation string
	// Why is for a Job that never runs: why not.
	Why string
	Pod corev1.PodSpec
	// Spec is the rest of the Job's, without a template.
	Spec batchv1.JobSpec
}

// Create creates a Job for a node. That it is there already is no error. It goes with the Node, so that it never runs on
// another one of the same name.
func (j Jobs) Create(ctx context.Context, node *corev1.Node, job Job) error {
	labels := map[string]string{j.kindLabel(): job.Kind, j.nodeLabel(): string(node.UID)}
	annotations := map[string]string{j.NodeAnnotation(): node.Name}
	if job.Operation != "" {
		annotations[j.operationAnnotation()] = job.Operation
	}
	if job.Why != "" {
		annotations[j.whyAnnotation()] = job.Why
	}
	job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: job.Pod}
	return client.IgnoreAlreadyExists(j.Writer.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: job.Name, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: job.Spec,
	}))
}

// Get returns a Job of a node and its pods, the newest first; nil if there is no such Job.
func (j Jobs) Get(ctx context.Context, node, name string) (*batchv1.Job, []corev1.Pod, error) {
	var job batchv1.Job
	if err := j.Reader.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: name}, &job); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	if of := job.Annotations[j.NodeAnnotation()]; of != node {
		return nil, nil, fmt.Errorf("job %s/%s is of node %q, and not of %q", job.Namespace, name, of, node)
	}
	var pods corev1.PodList
	if err := j.Reader.List(ctx, &pods, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: name}); err != nil {
		return nil, nil, err
	}
	owned := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, &job) })
	slices.SortFunc(owned, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return &job, owned, nil
}

// Remove deletes a Job and its pods. That it is gone, or another one has its name, is no error.
func (j Jobs) Remove(ctx context.Context, job *batchv1.Job) error {
	err := j.Writer.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// Operation returns the operation of a Job whose name does not say it.
func (j Jobs) Operation(job *batchv1.Job) string { return job.Annotations[j.operationAnnotation()] }

// NeverRuns returns why a Job never runs; empty if it does.
func (j Jobs) NeverRuns(job *batchv1.Job) string { return job.Annotations[j.whyAnnotation()] }

// KeepEnded is how long the Job of an operation stays after its end. Nobody needs it for longer than a
// controller that read the Node before that end may have been stopped, and then still create the Job.
const KeepEnded = 24 * time.Hour

// ForNameAlone is the Spec of a Job that never runs: the controller of Jobs takes one without completions for
// complete at once (upstream, pkg/controller/job, syncJob), so that it goes as if it had run.
func ForNameAlone() batchv1.JobSpec {
	return batchv1.JobSpec{Completions: ptr.To(int32(0)), TTLSecondsAfterFinished: ptr.To(int32(KeepEnded.Seconds()))}
}

// FewTries is the Spec of a Job whose pod is replaced twice if it fails, and that ends after a time. A node that has
// just joined often restarts its kubelet, and a container that starts at that moment fails.
func FewTries(limit, keep time.Duration) batchv1.JobSpec {
	return batchv1.JobSpec{
		BackoffLimit:            ptr.To(int32(2)),
		ActiveDeadlineSeconds:   ptr.To(int64(limit.Seconds())),
		TTLSecondsAfterFinished: ptr.To(int32(keep.Seconds())),
	}
}

// Ended returns when a Job has ended, by the clock of its controller, and why it failed if it did;
// the zero time if it has not.
func Ended(job *batchv1.Job) (at time.Time, why string) {
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

// Messages returns the termination messages of those pods that have run on a node, the newest first; those of
// containers that have failed only if partial. Of a container that did not start, the message is the runtime's, and
// not the program's.
func (j Jobs) Messages(pods []corev1.Pod, node string, partial bool) (texts []string) {
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if end := status.State.Terminated; end != nil && status.Name == j.Container && pod.Spec.NodeName == node && end.Message != "" && !slices.Contains(neverStarted, end.Reason) && (partial || end.ExitCode == 0) {
				texts = append(texts, end.Message)
			}
		}
	}
	return texts
}

// neverStarted are the reasons of containers that did not start, as containerd and CRI-O give them.
var neverStarted = []string{"StartError", "ContainerCannotRun"}

// WhyWaiting says what keeps pods from running, such as an image that cannot be pulled; empty if
// nothing does.
func WhyWaiting(pods []corev1.Pod) string {
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
