// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/cpupolicy"
)

// The rights of what serves the webhooks: it reads, and the metrics of its process ask who may read them.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups="",resources=pods,verbs=list,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=partition-control-plane,verbs=get,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts;virtualmachineinstances;virtualmachines,verbs=list,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceslices,verbs=list,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=cpupolicy-webhooks

// addWebhooks adds the webhooks of deploy/cpupolicy/webhooks.yaml. They run on every replica.
func addWebhooks(mgr manager.Manager, config *configv1alpha1.ControllerConfiguration) {
	decoder, reader := admission.NewDecoder(mgr.GetScheme()), mgr.GetAPIReader()
	validator := &nodeValidator{
		situations: situations{reader: reader, others: mgr.GetClient(), fresh: time.Minute},
		controller: fmt.Sprintf("system:serviceaccount:%s:partition-controller", config.Namespace),
	}
	for path, handler := range map[string]admission.Handler{
		"/cpupolicy/validate-node":           validator,
		"/cpupolicy/mutate-virtualmachine":   &vmMutator{decoder: decoder},
		"/cpupolicy/validate-virtualmachine": &vmValidator{decoder: decoder, reader: reader},
	} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: handler})
	}
}

// nodeValidator answers a request for a policy: with what prevents it, as far as that can be
// known at once. The controller looks again, with what was observed on the node. It writes nothing.
//
// Every pod of the cluster may reach its port. So it decides about the Node that the API has: what is
// posted says what is asked for, and nothing else.
type nodeValidator struct {
	situations situations
	// controller is the user whose writes are the controller's, as admissionpolicies.yaml has it.
	controller string
}

// Handle implements admission.Handler.
func (v *nodeValidator) Handle(ctx context.Context, request admission.Request) admission.Response {
	var before, after metav1.PartialObjectMetadata
	if err := errors.Join(json.Unmarshal(request.OldObject.Raw, &before), json.Unmarshal(request.Object.Raw, &after)); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var node corev1.Node
	if err := live(ctx, v.situations.reader, client.ObjectKey{Name: request.Name}, before.UID, &node); isGone(err) {
		return refused(http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
	} else if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	by := cpupolicy.User
	// Who impersonates the controller has no token of it.
	if _, byToken := request.UserInfo.Extra[credentialID]; byToken && request.UserInfo.Username == v.controller {
		by = cpupolicy.Controller
	}
	value, has := after.Annotations[nodestatus.StatusAnnotation]
	status, invalid := nodestatus.ParseStatus(value)
	if err := cpupolicy.CheckWrite(node.Annotations, after.Annotations, by); err != nil {
		if has && invalid != nil {
			return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		}
		return refused(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	}
	if by == cpupolicy.Controller || !has || value == node.Annotations[nodestatus.StatusAnnotation] {
		return admission.Allowed("")
	}
	return v.ask(ctx, &node, status)
}

// credentialID is what names the token of a ServiceAccount in a request (k8s.io/apiserver,
// pkg/authentication/serviceaccount, CredentialIDKey).
const credentialID = "authentication.kubernetes.io/credential-id"

// live reads the object that a request is about. The error is a NotFound if there is none of that name, or if it has
// another UID: kube-apiserver knows that, and anyone who may read the object, but nobody who only reaches this port.
func live(ctx context.Context, reader client.Reader, key client.ObjectKey, uid types.UID, into client.Object) error {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "the object of this request"}, key.Name)
	if key.Name == "" || uid == "" {
		return gone
	}
	if err := reader.Get(ctx, key, into); isNoKind(err) || err == nil && into.GetUID() != uid {
		return gone
	} else if err != nil {
		return err
	}
	return nil
}

// ask answers a user's new request for a node. Nothing is under way there: CheckWrite has seen to that.
func (v *nodeValidator) ask(ctx context.Context, node *corev1.Node, status nodestatus.Status) admission.Response {
	// The rules would take this very request for another one.
	delete(node.Annotations, nodestatus.StatusAnnotation)
	situation, err := v.settled(ctx, node, status.Policy)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("node %s: policy %s was not looked at: %w", node.Name, status.Policy, err))
	}
	findings := cpupolicy.Preconditions(cpupolicy.Request{Policy: status.Policy, AllowEvicted: status.AllowEvicted}, situation)
	warnings := warningsOf(findings)
	if cpupolicy.Refused(findings) {
		text := fmt.Sprintf("node %s: policy %s is refused:", node.Name, status.Policy)
		var causes []metav1.StatusCause
		for _, f := range findings {
			if !f.Warning {
				text += "\n" + oneLine(f)
				causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(f.Code), Field: f.Object, Message: oneLine(f)})
			}
		}
		if o := nodestatus.ObservedOf(node); o != nil && len(situation.Refused) > 0 {
			seen := fmt.Sprintf("the agent saw that at %s; a request from %s on has the node observed again", o.At.Format(time.RFC3339), o.At.Add(v.situations.fresh).Format(time.RFC3339))
			text += "\n" + seen
			causes = append(causes, metav1.StatusCause{Type: nodestatus.CauseObserved, Message: seen})
		}
		return refused(http.StatusConflict, metav1.StatusReasonConflict, text, causes...).WithWarnings(warnings...)
	}
	if nodegroup.Paused(node) {
		warnings = append(warnings, fmt.Sprintf("node %s is paused: the request waits until its annotation %s is gone", node.Name, nodegroup.PausedAnnotation))
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// An operation gives the lock of the control plane back a moment after its status has said how it
// ended. A user who waited for that end, and asks for the next node, waits for the lock as well, but for
// less than the five seconds that kube-apiserver waits for the webhook.
const (
	settleLimit = 3 * time.Second
	settlePause = 200 * time.Millisecond
)

// settled returns what is known of a node. If an operation that has ended holds the lock of the control
// plane, it waits until that gives it back. One that keeps it for longer is part of the situation.
func (v *nodeValidator) settled(ctx context.Context, node *corev1.Node, policy cpupolicy.Policy) (cpupolicy.Situation, error) {
	situation, err := v.situations.of(ctx, node, policy)
	if err != nil || situation.Lock.Operation == "" || situation.Lock.Owner != "" {
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
		released = err == nil && !holders.Has(Name, holder.Operation)
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
	status, _, err := nodestatus.ReadStatus(node.Annotations)
	return err == nil && status.ID == lock.Operation && !status.UnderWay(), nil
}

// refused returns an answer that kubectl shows as it is, with the reason before it. Programs read the causes: without
// any, the text is one.
func refused(code int32, reason metav1.StatusReason, text string, causes ...metav1.StatusCause) admission.Response {
	if causes == nil {
		causes = []metav1.StatusCause{{Message: text}}
	}
	response := admission.Denied(text)
	response.Result.Code, response.Result.Reason = code, reason
	response.Result.Details = &metav1.StatusDetails{Causes: causes}
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
		text := untrusted.Abbreviate(oneLine(f), maxWarning)
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
