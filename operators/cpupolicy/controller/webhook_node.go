/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/operation"
	"workload.openshift.io/operators/nodegroup"
)

// addWebhooks adds the webhooks of deploy/cpupolicy/webhooks.yaml, and returns what answers requests
// for a policy. They run on every replica.
func addWebhooks(mgr manager.Manager, config *configv1alpha1.ControllerConfiguration) (*nodeValidator, error) {
	controller, err := ownUser(mgr.GetClient())
	if err != nil {
		return nil, err
	}
	decoder, reader := admission.NewDecoder(mgr.GetScheme()), mgr.GetAPIReader()
	validator := &nodeValidator{
		decoder:    decoder,
		situations: situations{reader: reader, others: mgr.GetClient(), namespace: config.Namespace, fresh: time.Minute},
		locks:      nodegroup.Client{Reader: reader, Writer: mgr.GetClient()},
		controller: controller,
	}
	for path, handler := range map[string]admission.Handler{
		"/cpupolicy/validate-node":           validator,
		"/cpupolicy/mutate-virtualmachine":   &vmMutator{decoder: decoder},
		"/cpupolicy/validate-virtualmachine": &vmValidator{decoder: decoder, reader: reader},
	} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: handler})
	}
	return validator, nil
}

// ownUser returns the user that this process is to kube-apiserver. All replicas are the same one, and
// what it writes is the controller's. Every user may ask that (upstream, the ClusterRole
// system:basic-user).
func ownUser(c client.Client) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("asking kube-apiserver which user this is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// nodeValidator answers whoever asks for a policy: with what stands in the way, as far as that can be
// known at once. The controller looks again, with what was observed on the node.
type nodeValidator struct {
	decoder    admission.Decoder
	situations situations
	locks      nodegroup.Client
	// controller is the user whose writes are the controller's.
	controller string
}

// Handle implements admission.Handler.
func (v *nodeValidator) Handle(ctx context.Context, request admission.Request) admission.Response {
	var before, after corev1.Node
	if err := v.decoder.DecodeRaw(request.OldObject, &before); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := v.decoder.Decode(request, &after); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	by := cpupolicy.User
	if request.UserInfo.Username == v.controller {
		by = cpupolicy.Controller
	}
	value, has := after.Annotations[cpupolicy.StatusAnnotation]
	status, invalid := cpupolicy.ParseStatus(value)
	if err := cpupolicy.CheckWrite(before.Annotations, after.Annotations, by); err != nil {
		if has && invalid != nil {
			return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		}
		return refused(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	}
	if by == cpupolicy.Controller || !has || value == before.Annotations[cpupolicy.StatusAnnotation] {
		return admission.Allowed("")
	}
	return v.ask(ctx, &after, status, ptr.Deref(request.DryRun, false))
}

// ask answers a user's new request. Nothing is under way on the node: CheckWrite has seen to that.
func (v *nodeValidator) ask(ctx context.Context, node *corev1.Node, status cpupolicy.Status, dryRun bool) admission.Response {
	// The rules would take this very request for another one.
	delete(node.Annotations, cpupolicy.StatusAnnotation)
	situation, err := v.settled(ctx, node, status.Policy)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("node %s: policy %s was not looked at: %w", node.Name, status.Policy, err))
	}
	// kube-apiserver asks again if somebody else has written the Node in between. Then this request has
	// the lock already.
	findings := cpupolicy.Preconditions(cpupolicy.Request{
		ID:           placeholder(node.Name),
		Policy:       status.Policy,
		AllowEvicted: status.AllowEvicted,
	}, situation)
	warnings := warningsOf(findings)
	if cpupolicy.Refused(findings) {
		text := fmt.Sprintf("node %s: policy %s is refused:", node.Name, status.Policy)
		for _, f := range findings {
			if !f.Warning {
				text += "\n" + oneLine(f)
			}
		}
		if o := observedOf(node); o != nil && situation.Refused != "" {
			text += fmt.Sprintf("\nthe agent saw that at %s; a request from %s on has the node observed again", o.At.Format(time.RFC3339), o.At.Add(v.situations.fresh).Format(time.RFC3339))
		}
		return refused(http.StatusConflict, metav1.StatusReasonConflict, text).WithWarnings(warnings...)
	}
	if companion.Paused(node) { // it takes the lock when it begins
		return admission.Allowed("").WithWarnings(append(warnings, fmt.Sprintf("node %s is paused: the request waits until its annotation %s is gone", node.Name, companion.PausedAnnotation))...)
	}
	if cpupolicy.IsControlPlane(node) && !dryRun {
		var full *nodegroup.FullError
		if err := v.takeLock(ctx, node.Name); errors.As(err, &full) {
			return refused(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("node %s: policy %s is refused: the lock of the control plane is %s", node.Name, status.Policy, full))
		} else if err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("node %s: the lock of the control plane was not taken: %w", node.Name, err))
		}
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// An operation gives the lock of the control plane back a moment after its status has said how it
// ended. Whoever waited for that end, and asks for the next node, waits for the lock as well, but for
// less than the five seconds that kube-apiserver waits for the webhook.
const (
	settleLimit = 3 * time.Second
	settlePause = 200 * time.Millisecond
)

// settled returns what is known of a node. If an operation that has ended holds the lock of the control
// plane, it waits until that gives it back. One that keeps it for longer is part of the situation.
func (v *nodeValidator) settled(ctx context.Context, node *corev1.Node, policy cpupolicy.Policy) (cpupolicy.Situation, error) {
	situation, err := v.situations.of(ctx, node, policy)
	if err != nil || situation.Lock.Operation == "" {
		return situation, err
	}
	holder := situation.Lock
	released := false
	_ = wait.PollUntilContextTimeout(ctx, settlePause, settleLimit, true, func(ctx context.Context) (bool, error) {
		ended, err := v.ended(ctx, holder)
		if err != nil || !ended {
			return true, err
		}
		holders, err := v.situations.holders(ctx)
		released = err == nil && !holders.Has(holder.Operation)
		return released, err
	})
	if !released {
		return situation, ctx.Err() // which says who has the lock
	}
	return v.situations.of(ctx, node, policy)
}

// ended reports whether the status of a node says that the operation that holds the lock has ended.
func (v *nodeValidator) ended(ctx context.Context, lock cpupolicy.Lock) (bool, error) {
	var node corev1.Node
	if err := v.situations.reader.Get(ctx, client.ObjectKey{Name: lock.Node}, &node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	status, _, err := cpupolicy.ReadStatus(node.Annotations)
	return err == nil && status.ID == lock.Operation && !status.UnderWay(), nil
}

// placeholder is the operation that holds the lock of the control plane for a request that has no id
// yet. The controller puts the id in its place. It must leave a holder alone that is younger than a
// request may take: its write may still come. Since says so.
func placeholder(node string) string { return "request-" + node }

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,resourceNames=control-plane,verbs=get;patch

// contended is for conflicts on the Lease, each of which means that somebody else has got on. The pauses
// are about one of the five seconds that kube-apiserver waits for the webhook.
var contended = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 10}

// takeLock takes the lock of the control plane for a request. If somebody else has it, the error is a
// nodegroup.FullError.
func (v *nodeValidator) takeLock(ctx context.Context, node string) error {
	key := client.ObjectKey{Namespace: v.situations.namespace, Name: controlPlaneLock}
	holder := nodegroup.Holder{Operation: placeholder(node), Node: node, Since: time.Now()}
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(contended, lost, func() error {
		return v.locks.UpdateHolders(ctx, key, func(holders nodegroup.Holders) (nodegroup.Holders, error) {
			// An older request for this node may have come to nothing. Its time must not be this one's.
			return holders.Remove(holder.Operation).Add(holder, 1)
		})
	})
}

// refused returns an answer that kubectl shows as it is, with the reason before it.
func refused(code int32, reason metav1.StatusReason, text string) admission.Response {
	response := admission.Denied(text)
	response.Result.Code, response.Result.Reason = code, reason
	return response
}

// What kube-apiserver passes on, in characters, before it cuts warnings
// (staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go).
const (
	maxWarning  = 256
	maxWarnings = 4096
)

// warningsOf returns those of the findings that are warnings. If there are too many, the last one says
// how many are left out.
func warningsOf(findings []cpupolicy.Finding) (warnings []string) {
	room, more := maxWarnings-maxWarning, 0
	for _, f := range findings {
		if !f.Warning {
			continue
		}
		text := operation.Abbreviate(oneLine(f), maxWarning)
		if more > 0 || len(text) > room {
			more++
			continue
		}
		warnings, room = append(warnings, text), room-len(text)
	}
	if more > 0 {
		warnings = append(warnings, fmt.Sprintf("and %d more warnings", more))
	}
	return warnings
}

func oneLine(f cpupolicy.Finding) string { return strings.Join(strings.Fields(f.String()), " ") }
