// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/agentpod"
	"workload.openshift.io/operators/drain"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/nodejob"
	"workload.openshift.io/operators/rollout"
)

// runner is what an operation does to a node: it cordons and drains where a group wants that, and
// has a Job switch the policy. Package rollout calls it, and says what must hold.
type runner struct {
	nodes   nodeclient.Client
	jobs    nodejob.Jobs
	labels  labels
	drainer drain.Drainer
	// drained says what keeps a node that was drained from its switch after all: for what it waits, or why it is
	// refused.
	drained func(ctx context.Context, node *corev1.Node, status nodestatus.Status, group *v1alpha1.CPUManagerPolicy) (waits, refused string, err error)
	config  Settings
	now     func() time.Time
}

// operationOf returns the node and what it says of an operation; false if it is about another one.
func (r runner) operationOf(ctx context.Context, name, id string) (*corev1.Node, nodestatus.Status, bool, error) {
	var node corev1.Node
	if err := r.nodes.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return nil, nodestatus.Status{}, false, err
	}
	status, is := statusOf(&node, id)
	return &node, status, is, nil
}

// statusOf returns what a node says of an operation; false if it is about another one.
func statusOf(node *corev1.Node, id string) (nodestatus.Status, bool) {
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	return status, err == nil && status.ID == id
}

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get

// Start implements rollout.Runner. The Job has the name of the operation, and nobody else has that:
// a Job that has ended stays for a day, and so does that of what was given up, which never runs. The agent
// has a journal, too, so that a Job in the place of a deleted one gets the result of the first.
func (r runner) Start(ctx context.Context, name, id string) error {
	node, status, is, err := r.operationOf(ctx, name, id)
	if err != nil || !is || status.State != nodestatus.Running {
		return err
	}
	job, _, err := r.jobs.Get(ctx, name, jobName(name, id))
	if err != nil {
		return err
	}
	if job != nil {
		if at, _ := nodejob.Ended(job); at.IsZero() || r.jobs.NeverRuns(job) != "" {
			return nil
		}
		// It has ended without a result; Observe has said so.
		return r.jobs.Remove(ctx, job)
	}
	if ready, err := r.prepare(ctx, node, status); err != nil || !ready {
		return err
	}
	request := operation.Request{
		ID: id, Policy: status.Policy, Driver: operation.Driver(r.config.Driver),
		Limits: operation.Limits{Total: r.config.SwitchTimeout},
	}
	pod, err := agentpod.Run(name, r.config.AgentImage, request)
	if err != nil {
		return err
	}
	if err := r.setBegun(ctx, name, id, true); err != nil {
		return err
	}
	return r.jobs.Create(ctx, node, nodejob.Job{Kind: switches, Name: jobName(node.Name, id), Pod: pod, Spec: batchv1.JobSpec{
		// A pod that was evicted or lost with its node is replaced, and attaches to what runs.
		BackoffLimit: ptr.To(int32(3)),
		// A pod that has waited so long, for an image or a place, must not begin any more.
		ActiveDeadlineSeconds:   ptr.To(int64(r.config.OperationTimeout.Seconds())),
		TTLSecondsAfterFinished: ptr.To(int32(nodejob.KeepEnded.Seconds())),
	}})
}

// setBegun writes down whether a node may have been changed for an operation.
func (r runner) setBegun(ctx context.Context, name, id string, begun bool) error {
	return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		status, is := statusOf(node, id)
		if begun && (!is || status.State != nodestatus.Running) {
			return fmt.Errorf("node %s: operation %s has ended", name, id)
		}
		if is && status.Begun != begun {
			status.Begun = begun
			node.Annotations[nodestatus.StatusAnnotation] = status.String()
		}
		return nil
	})
}

// prepare cordons and drains a node as its group wants it, and reports whether that is done. What
// cannot be done ends the operation before anything was changed. Before a Job that replaces a lost one
// it was done already.
func (r runner) prepare(ctx context.Context, node *corev1.Node, status nodestatus.Status) (done bool, err error) {
	group, err := r.group(ctx, status)
	if err != nil || status.Group == "" {
		return err == nil, err
	}
	if group == nil {
		return false, r.giveUp(ctx, node, status, "nothing was changed: the CPUManagerPolicy "+status.Group+" is gone")
	}
	if !group.Spec.Cordon || status.Begun {
		return true, nil
	}
	if err := r.cordon(ctx, node.Name, status.ID); err != nil {
		return false, err
	}
	if group.Spec.Drain == nil {
		return true, nil
	}
	left, err := r.drainer.Evict(ctx, node.Name)
	var undrainable *drain.UndrainableError
	if errors.As(err, &undrainable) {
		return false, r.giveUp(ctx, node, status, "nothing was changed: "+err.Error())
	}
	if err != nil || len(left) > 0 {
		return false, err
	}
	waits, refused, err := r.drained(ctx, node, status, group)
	if err != nil || waits != "" {
		return false, err
	}
	if refused != "" {
		return false, r.giveUp(ctx, node, status, "nothing was changed: "+refused)
	}
	return true, nil
}

// giveUp ends an operation that has no Job. If it had one, only the journal on the node knows what was changed.
func (r runner) giveUp(ctx context.Context, node *corev1.Node, status nodestatus.Status, why string) error {
	if status.Begun {
		return r.settle(ctx, node, status.ID)
	}
	return r.takeName(ctx, node, status.ID, why)
}

// takeName has a Job that never runs take the name of an operation's own, so that nobody who is late
// starts it after all. The next look finds it.
func (r runner) takeName(ctx context.Context, node *corev1.Node, id, why string) error {
	// Its pod never comes to be.
	pod := agentpod.Observe(node.Name, r.config.AgentImage, operation.Driver(r.config.Driver))
	return r.jobs.Create(ctx, node, nodejob.Job{Kind: switches, Name: jobName(node.Name, id), Why: why, Pod: pod, Spec: nodejob.ForNameAlone()})
}

// group returns the group for which the controller asked; nil if a person did, or if it is gone.
func (r runner) group(ctx context.Context, status nodestatus.Status) (*v1alpha1.CPUManagerPolicy, error) {
	if status.Group == "" {
		return nil, nil
	}
	var group v1alpha1.CPUManagerPolicy
	if err := r.nodes.Reader.Get(ctx, client.ObjectKey{Name: status.Group}, &group); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &group, nil
}

// CordonedAnnotation on a Node names the operation that has cordoned it. The cordon goes with it.
const CordonedAnnotation = "cpupolicy.workload.openshift.io/cordoned"

func (r runner) cordon(ctx context.Context, name, id string) error {
	return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		if status, is := statusOf(node, id); !is || status.State != nodestatus.Running {
			return fmt.Errorf("node %s: operation %s has ended", name, id)
		}
		if !node.Spec.Unschedulable {
			node.Spec.Unschedulable = true
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, CordonedAnnotation, id)
		}
		return nil
	})
}

func (r runner) uncordon(ctx context.Context, name, id string) error {
	return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		if node.Annotations[CordonedAnnotation] == id {
			node.Spec.Unschedulable = false
			delete(node.Annotations, CordonedAnnotation)
		}
		return nil
	})
}

// Observe implements rollout.Runner.
func (r runner) Observe(ctx context.Context, name, id string) (rollout.Result, error) {
	job, pods, err := r.jobs.Get(ctx, name, jobName(name, id))
	if err != nil {
		return rollout.Result{}, err
	}
	if job == nil {
		return r.notStarted(ctx, name, id)
	}
	if r.jobs.NeverRuns(job) != "" {
		return rollout.Result{Seen: rollout.Over, Phase: rollout.Failed, Message: r.jobs.NeverRuns(job)}, nil
	}
	return r.hear(ctx, name, id, job, pods)
}

// hear says what a Job has told of an operation.
func (r runner) hear(ctx context.Context, name, id string, job *batchv1.Job, pods []corev1.Pod) (rollout.Result, error) {
	at, why := nodejob.Ended(job)
	said := ""
	for _, text := range r.jobs.Messages(pods, name, true) {
		result, err := operation.ParseResult([]byte(text))
		if err != nil {
			said = cmp.Or(said, text) // an agent without a result says why
		}
		if err != nil || result.ID != id {
			continue // of a program that is not ours, or cut
		}
		if at.IsZero() {
			break // its end has a time in a moment
		}
		return r.conclude(ctx, name, result, at)
	}
	if at.IsZero() {
		return rollout.Result{Seen: rollout.UnderWay, Message: cmp.Or(said, nodejob.WhyWaiting(pods))}, nil
	}
	// The journal on the node knows more than a Job without a word. Another one reads it.
	_, status, is, err := r.operationOf(ctx, name, id)
	if isGone(err) || is && status.State == nodestatus.Running {
		return rollout.Result{Seen: rollout.Absent, Message: cmp.Or(said, why)}, nil
	}
	if err == nil && (is || r.now().Sub(at) > keepFailed) {
		err = r.jobs.Remove(ctx, job)
	}
	return rollout.Result{}, err
}

// settleUnknown settles an operation that a node's claim names, and neither its status nor a Job. Such a claim may be
// forged, so that a node has one such Job at a time, and another one for another operation after a while.
func (r runner) settleUnknown(ctx context.Context, node *corev1.Node, id string) (rollout.Result, error) {
	job, pods, err := r.jobs.Get(ctx, node.Name, unknownJobName(node.Name))
	if err != nil {
		return rollout.Result{}, err
	}
	if job == nil {
		return rollout.Result{}, r.settleAs(ctx, node, unknownJobName(node.Name), id)
	}
	if r.jobs.Operation(job) == id {
		return r.hear(ctx, node.Name, id, job, pods)
	}
	if at, _ := nodejob.Ended(job); !at.IsZero() && r.now().Sub(at) > keepFailed {
		err = r.jobs.Remove(ctx, job)
	}
	return rollout.Result{}, err
}

// settle has an operation end on its node that is not to run any more and has no Job that says what became of it:
// its host unit may be there, since a node may have been frozen, or its pod may still come. The Job takes the name
// of the operation's own. It waits for the node as long as that takes; only a node that is gone needs none.
func (r runner) settle(ctx context.Context, node *corev1.Node, id string) error {
	return r.settleAs(ctx, node, jobName(node.Name, id), id)
}

func (r runner) settleAs(ctx context.Context, node *corev1.Node, name, id string) error {
	pod := agentpod.Settle(node.Name, r.config.AgentImage, operation.Driver(r.config.Driver), id)
	return r.jobs.Create(ctx, node, nodejob.Job{Kind: switches, Name: name, Operation: id, Pod: pod, Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To(int32(3)), TTLSecondsAfterFinished: ptr.To(int32(nodejob.KeepEnded.Seconds())),
	}})
}

// notStarted says of an operation without a Job whether its drain has taken too long. One that does not run any more
// may have had a Job; one that has begun was drained before that.
func (r runner) notStarted(ctx context.Context, name, id string) (rollout.Result, error) {
	absent := rollout.Result{Seen: rollout.Absent}
	node, status, is, err := r.operationOf(ctx, name, id)
	if isGone(err) {
		return absent, nil
	}
	if err != nil {
		return rollout.Result{}, err
	}
	if !is {
		return r.settleUnknown(ctx, node, id)
	}
	if status.State != nodestatus.Running {
		return rollout.Result{}, r.settle(ctx, node, id)
	}
	group, err := r.group(ctx, status)
	if err != nil || group == nil || group.Spec.Drain == nil || status.Begun {
		return absent, err
	}
	limit := defaultDrainTimeout
	if group.Spec.Drain.Timeout != nil {
		limit = group.Spec.Drain.Timeout.Duration
	}
	limit = min(limit, longestDrain(r.config))
	if r.now().Before(status.Since.Add(limit)) {
		return absent, nil
	}
	why := ""
	left, err := r.drainer.Left(ctx, name)
	var undrainable *drain.UndrainableError
	switch {
	case errors.As(err, &undrainable):
		why = "nothing was changed: " + err.Error()
	case err != nil:
		return rollout.Result{}, err
	case len(left) == 0: // in time or not, it is done
		// If it waits until the time limit, this is why.
		absent.Message, _, err = r.drained(ctx, node, status, group)
		return absent, err
	default:
		why = fmt.Sprintf("nothing was changed: after %s these pods were still there: %s", limit, drain.List(left, 5))
	}
	if err := r.giveUp(ctx, node, status, why); err != nil {
		return rollout.Result{}, err
	}
	return rollout.Result{Seen: rollout.UnderWay}, nil // the next look finds the Job
}

// longestDrain is how long a drain may take: what comes after it needs time as well.
func longestDrain(config Settings) time.Duration {
	return config.OperationTimeout.Duration - config.SwitchTimeout.Duration - config.LabelTimeout.Duration
}

// defaultDrainTimeout is that of the API's own default.
const defaultDrainTimeout = 15 * time.Minute

// conclude writes down what is in force now. A switch that was verified waits for the label, with
// which KubeVirt decides where VMs may run.
func (r runner) conclude(ctx context.Context, name string, result operation.Result, at time.Time) (rollout.Result, error) {
	over := resultOf(result)
	_, status, is, err := r.operationOf(ctx, name, result.ID)
	if isGone(err) || err == nil && !is {
		return over, nil // nobody waits for it any more, and something newer may be true
	}
	if err != nil {
		return rollout.Result{}, err
	}
	if over.Phase == rollout.Succeeded && result.Policy != status.Policy {
		over.Phase, over.Message = rollout.Failed, fmt.Sprintf("the agent reports a success, and the checkpoint has the policy %q", result.Policy)
	}
	if result.Unchanged() {
		if err := r.setBegun(ctx, name, result.ID, false); err != nil {
			return rollout.Result{}, err
		}
	}
	if result.Policy == "" {
		return over, nil
	}
	theirs, err := r.labels.kubeVirt(ctx)
	if err != nil {
		return rollout.Result{}, err
	}
	stale, reason := false, "after-"+result.ID
	if err := r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
		if _, is := statusOf(node, result.ID); !is {
			stale = true
			return nil
		}
		if o := nodestatus.ObservedOf(node); o == nil || o.For != reason {
			// What prevents which policy has changed with the policy: only an agent knows.
			(&nodestatus.Observed{Observation: operation.Observation{Policy: result.Policy}, At: r.now(), BootID: node.Status.NodeInfo.BootID, For: reason}).Put(node)
		}
		if !theirs {
			setLabels(node, result.Policy)
		}
		return nil
	}); err != nil || stale || !theirs {
		return over, err
	}
	agrees, err := r.labels.agree(ctx, name, result.Policy)
	switch {
	case err != nil:
		return rollout.Result{}, err
	case agrees || over.Phase != rollout.Succeeded:
	case r.now().Before(at.Add(r.config.LabelTimeout.Duration)):
		return rollout.Result{Seen: rollout.UnderWay}, nil
	default:
		over.Message = fmt.Sprintf("the policy is in force, but after %s the label %s still says otherwise; look at KubeVirt's virt-handler on this node", r.config.LabelTimeout.Duration, cpupolicy.Label)
	}
	return over, nil
}

// Finish implements rollout.Runner. A Job that has ended, or never runs, stays for a day: a controller that is late
// finds the name taken.
func (r runner) Finish(ctx context.Context, name, id string) error {
	if err := r.uncordon(ctx, name, id); err != nil && !isGone(err) {
		return err
	}
	job, _, err := r.jobs.Get(ctx, name, jobName(name, id))
	if err != nil {
		return err
	}
	if job == nil {
		var node corev1.Node
		if err := r.nodes.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		if _, is := statusOf(&node, id); !is {
			return nil // the node's journal has what settled it, and is what keeps a late pod from it
		}
		return r.takeName(ctx, &node, id, "it has ended")
	}
	if at, _ := nodejob.Ended(job); !at.IsZero() || r.jobs.NeverRuns(job) != "" {
		return nil
	}
	return r.jobs.Remove(ctx, job)
}
