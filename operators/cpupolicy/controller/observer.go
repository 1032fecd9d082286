// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy/agentpod"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/nodejob"
)

// observer has agents look at nodes, and writes down what they saw. The agent runs in a pod without
// a token: what it saw is the pod's termination message.
type observer struct {
	nodes  nodeclient.Client
	jobs   nodejob.Jobs
	labels labels
	config Settings
	now    func() time.Time
	// looks are in which boot a node was last looked at for a reason, by UID and reason. It is no loss if the
	// process ends.
	looks map[string]bootLook
}

// bootLook is when a boot was first looked at.
type bootLook struct {
	boot string
	at   time.Time
}

// tooSoon reports whether a node has said within a while that it has booted again. Its name for a boot makes another Job,
// and its kubelet may write another one each second.
func (o observer) tooSoon(node *corev1.Node, reason string) bool {
	key, boot, now := string(node.UID)+"/"+reason, node.Status.NodeInfo.BootID, o.now()
	maps.DeleteFunc(o.looks, func(_ string, l bootLook) bool { return now.Sub(l.at) >= keepFailed })
	last, looked := o.looks[key]
	if !looked {
		o.looks[key] = bootLook{boot, now}
	}
	return looked && last.boot != boot
}

// keepFailed is how long the Job stays whose agent has not seen a thing: then another one looks.
const keepFailed = 10 * time.Minute

// observeAgain is after how long a node is looked at again although nothing was heard of it: somebody may have
// switched it on the host. It may take longer, since only mostObservedAgain of them are looked at at once.
const observeAgain = time.Hour

// due reports whether a node is to be observed although nobody asks: it has joined or booted since it was, has
// become Ready since, perhaps with another policy, or that is long ago. It must be Ready, and nobody may act on it.
// The reason is the same until it was observed. was is when that was in this boot, zero if it never was.
func (o observer) due(node *corev1.Node) (reason string, was time.Time, is bool) {
	if !nodegroup.IsReady(node) || node.Labels[corev1.LabelOSStable] == "windows" || node.Annotations[nodegroup.ClaimAnnotation] != "" || leftAlone(node) != "" {
		return "", time.Time{}, false
	}
	seen := nodestatus.ObservedOf(node)
	if seen == nil {
		return "boot", time.Time{}, true
	}
	age := o.now().Sub(seen.At) // below zero by a clock that was wrong then, or is now
	switch {
	case age.Abs() < keepFailed:
		// Neither a node that boots without an end, nor one whose clock is wrong, nor one that cannot be read
		// makes a Job each second.
		return "", time.Time{}, false
	case nodestatus.InForce(node) == "":
		return "boot", time.Time{}, true
	}
	return "again " + seen.At.Format(time.RFC3339), seen.At, age < 0 || age >= observeAgain || readySince(node).After(seen.At)
}

// observe has an agent look at a node, once for each reason and boot, and reports whether that is
// done. The problem says why nobody could look.
func (o observer) observe(ctx context.Context, node *corev1.Node, reason string) (done bool, problem string, err error) {
	if was := nodestatus.ObservedOf(node); was != nil && was.For == reason && was.BootID == node.Status.NodeInfo.BootID {
		return true, "", nil // the Job goes by itself
	}
	l, err := o.look(ctx, node, reason)
	return l.done, l.problem, err
}

// looked is what has become of a look at a node.
type looked struct {
	done    bool
	problem string
	// ended is when its Job has ended; zero if that is under way.
	ended time.Time
}

// look is observe, whatever was seen before.
func (o observer) look(ctx context.Context, node *corev1.Node, reason string) (l looked, err error) {
	if o.tooSoon(node, reason) {
		return l, nil
	}
	name := observingJobName(node, reason)
	job, pods, err := o.jobs.Get(ctx, node.Name, name)
	if err != nil {
		return l, err
	}
	if job == nil {
		pod := agentpod.Observe(node.Name, o.config.AgentImage, operation.Driver(o.config.Driver))
		return l, o.jobs.Create(ctx, node, nodejob.Job{Kind: observes, Name: name, Pod: pod, Spec: nodejob.FewTries(o.config.ObserveTimeout.Duration, keepFailed)})
	}
	why := ""
	l.ended, why = nodejob.Ended(job)
	// What an agent saw before it failed counts only if no other one follows.
	if texts := o.jobs.Messages(pods, node.Name, !l.ended.IsZero()); len(texts) > 0 {
		seen, err := operation.ParseObservation([]byte(texts[0]))
		if err != nil {
			l.problem = fmt.Sprintf("node %s could not be observed: %v", node.Name, err)
			return l, nil
		}
		if seen.Operation != "" && seen.Result == nil && seen.Step != operation.StepValidate {
			l.problem = fmt.Sprintf("node %s is in the middle of the operation %s, at the step %s", node.Name, seen.Operation, seen.Step)
			return l, nil
		}
		l.done = true
		return l, o.remember(ctx, node, reason, seen)
	}
	if !l.ended.IsZero() {
		l.problem = fmt.Sprintf("node %s could not be observed: Job %s/%s: %s", node.Name, job.Namespace, job.Name, why)
	} else if why := nodejob.WhyWaiting(pods); why != "" && o.now().Sub(job.CreationTimestamp.Time) > o.config.ObserveTimeout.Duration/2 {
		l.problem = fmt.Sprintf("node %s could not be observed: its agent does not start: %s", node.Name, why)
	}
	return l, nil
}

// remember writes down what was seen, in the Node of the API and in the caller's. The label comes with
// it in one write: a node that has been observed is not looked at again. A policy that is known in this boot stays if
// the agent could not read it.
func (o observer) remember(ctx context.Context, node *corev1.Node, reason string, seen operation.Observation) error {
	theirs, err := o.labels.kubeVirt(ctx)
	if err != nil {
		return err
	}
	observed := nodestatus.Observed{Observation: seen, At: o.now(), BootID: node.Status.NodeInfo.BootID, For: reason}
	if err := o.nodes.UpdateNode(ctx, node.Name, func(live *corev1.Node) error {
		if live.UID != node.UID {
			return nil
		}
		if was := nodestatus.ObservedOf(live); seen.Policy == "" && was != nil && was.BootID == observed.BootID {
			observed.Policy = was.Policy
		}
		observed.Put(live)
		if seen.Policy != "" && !theirs {
			setLabels(live, seen.Policy)
		}
		return nil
	}); err != nil {
		return err
	}
	observed.Put(node)
	return nil
}
