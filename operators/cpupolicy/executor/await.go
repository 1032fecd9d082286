// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/node/kubeletclient"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/readmission"
)

// NodeBefore is what a Node was like before a switch.
type NodeBefore struct {
	// Labels are those of [policyLabels] that it has.
	Labels map[string]string `json:"labels,omitempty"`
	// Mismatched are the UIDs of the pods that did not go with it: they are not waited for.
	Mismatched []string `json:"mismatched,omitempty"`
}

// policyLabels follow the policy in the checkpoint, KubeVirt's and the companion's. Waiting brings them
// back only after the checkpoint.
var policyLabels = []string{"cpumanager", "kubevirt.io/cpumanager"}

// node asks kube-apiserver with the kubelet's own credentials. This process is root on the host, so it can
// read those in any case.
func (h host) node(ctx context.Context, plan *Plan) (labels, mismatches map[string]string, err error) {
	if plan.Kubeconfig == "" {
		return nil, nil, errors.New("the kubelet has no --kubeconfig")
	}
	client, err := kubeletclient.New(plan.Kubeconfig, plan.NodeName, func(path string) ([]byte, error) { return kubeletstate.ReadFile(h.disk.follow(path)) })
	if err != nil {
		return nil, nil, err
	}
	node, err := client.Node(ctx)
	if err != nil {
		return nil, nil, err
	}
	pods, err := client.Pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	labels = map[string]string{}
	for _, label := range policyLabels {
		if value, has := node.Labels[label]; has {
			labels[label] = value
		}
	}
	if plan.Node != nil {
		maps.DeleteFunc(node.Labels, func(label, _ string) bool { return slices.Contains(policyLabels, label) })
		for label, value := range plan.Node.Labels {
			metav1.SetMetaDataLabel(&node.ObjectMeta, label, value)
		}
	}
	return labels, readmission.Mismatches(node, pods), nil
}

// lookAtNode takes down how pods and Node go together. If nobody can say, nothing will be waited for.
func (e *Executor) lookAtNode(ctx context.Context, plan *Plan) {
	labels, mismatches, err := e.node(ctx, plan)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A roll-back will not wait for what pods require of their Node, which is not known")
		return
	}
	plan.Node = &NodeBefore{labels, slices.Sorted(maps.Keys(mismatches))}
}

// mostFailures is how often in a row kube-apiserver, or the container runtime, may fail to answer before nothing is
// waited for: a kubelet that cannot reach them does nothing to pods either.
const mostFailures = 3

// mostMissing is how many pods a failure names.
const mostMissing = 3

// await waits until all pods that went with the Node go with it again. If that takes too long, the failure
// names what is missing, and the way back goes on.
func (e *Executor) await(ctx context.Context, j Journal) Journal {
	if j.Plan == nil || j.Plan.Node == nil {
		return j
	}
	until, cancel := context.WithDeadline(ctx, j.awaitsUntil(time.Now()))
	defer cancel()
	missing, failures := []string{}, 0
	for until.Err() == nil {
		_, mismatches, err := e.node(until, j.Plan)
		if err != nil {
			if failures++; failures >= mostFailures {
				klog.FromContext(ctx).Error(err, "Not waiting for what pods require of their Node")
				return j
			}
		} else {
			failures = 0
			maps.DeleteFunc(mismatches, func(uid, _ string) bool { return slices.Contains(j.Plan.Node.Mismatched, uid) })
			if missing = slices.Sorted(maps.Values(mismatches)); len(missing) == 0 {
				return j
			}
			klog.FromContext(ctx).V(1).Info("Waiting for what pods require of their Node", "missing", missing)
		}
		sleep(until, e.interval)
	}
	if ctx.Err() != nil || len(missing) == 0 {
		return j
	}
	if more := len(missing) - mostMissing; more > 0 {
		missing = append(missing[:mostMissing], fmt.Sprintf("and so do %d more pods", more))
	}
	failure := *j.Failure
	failure.Message = fmt.Sprintf("%s; the kubelet was then started again although %s", failure.Message, strings.Join(missing, ", "))
	j.Failure = &failure
	return j
}
