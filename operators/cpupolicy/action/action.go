// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/cpupolicy"
)

// The actions, as Harvester names them, and what they ask for.
var policies = map[string]cpupolicy.Policy{
	"enableCPUManager":  cpupolicy.Static,
	"disableCPUManager": cpupolicy.None,
}

// nodesPath is Harvester's.
const nodesPath = "/v1/harvester/nodes/"

var nodeResource = corev1.SchemeGroupVersion.WithResource("nodes")

// ServeHTTP is the endpoint of tools:
//
//	POST /v1/harvester/nodes/{node}?action=enableCPUManager|disableCPUManager
//
// Each request has a bearer token. What goes wrong is a Status, as kube-apiserver's. Where there is
// nothing to say, the answer is 204, as Harvester's is.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	err := s.serve(ctx, w, r)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := statusOf(r, err)
	data, err := json.Marshal(status)
	if err != nil {
		panic(err) // it is a type of the API
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// If the other side has gone there is nobody to tell.
	_, _ = w.Write(append(data, '\n'))
}

func (s *server) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	user, err := s.review(ctx, strings.TrimSpace(token))
	if apierrors.IsUnauthorized(err) {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if err != nil {
		return err
	}
	escaped, found := strings.CutPrefix(r.URL.EscapedPath(), nodesPath)
	node, err := url.PathUnescape(escaped)
	if !found || escaped == "" || strings.Contains(escaped, "/") || err != nil {
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path))
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return apierrors.NewMethodNotSupported(nodeResource.GroupResource(), r.Method)
	}
	return s.act(ctx, user, node, r.URL.Query().Get("action"))
}

// refusal is an error that is shown as it is.
func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,roleName=cpupolicy-webhooks

// act asks for a policy in the name of a user who may update the node. An error for the user has a
// Status of the API.
func (s *server) act(ctx context.Context, user authenticationv1.UserInfo, name, action string) error {
	policy, known := policies[action]
	if !known {
		return apierrors.NewBadRequest(fmt.Sprintf("action %q is not one of \"enableCPUManager\", \"disableCPUManager\"", action))
	}
	if err := s.may(ctx, user, "update", name); err != nil {
		return err
	}
	if problems := content.IsPathSegmentName(name); problems != nil {
		return apierrors.NewNotFound(nodeResource.GroupResource(), name)
	}
	own, err := s.nodes(s.http.Transport)
	if err != nil {
		return err
	}
	theirs, err := s.nodes(transport.NewImpersonatingRoundTripper(impersonation(user), s.http.Transport))
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx).WithValues("user", user.Username, "node", name, "policy", policy)
	var node *unstructured.Unstructured // it keeps the fields that this program does not know
	err = retry.OnError(retry.DefaultBackoff, isOutdated, func() (err error) {
		if node, err = own.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		annotations := node.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		status := nodestatus.Status{State: nodestatus.Requested, Policy: policy}.String()
		if annotations[nodestatus.StatusAnnotation] == status {
			// Such a write changes nothing, so kube-apiserver would ask no webhook.
			return refusal(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("node %s: policy %s is refused:\nit is requested already", name, policy))
		}
		annotations[nodestatus.StatusAnnotation] = status
		node.SetAnnotations(annotations)
		_, err = theirs.Update(ctx, node, metav1.UpdateOptions{FieldManager: "cpupolicy-action"})
		return err
	})
	if err != nil {
		logger.Info("Refused a policy that a user has asked for", "reason", err.Error())
		return err
	}
	logger.Info("A user has asked for a policy")
	s.Recorder.Eventf(node, nil, corev1.EventTypeNormal, nodestatus.PolicyRequested, nodestatus.RequestPolicy, "User %q has asked for the policy %s, by the action %s", user.Username, policy, action)
	return nil
}

// nodes returns the Nodes to whom a transport makes known to kube-apiserver.
func (s *server) nodes(as http.RoundTripper) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfigAndClient(s.Config, &http.Client{Transport: as})
	if err != nil {
		return nil, err
	}
	return client.Resource(nodeResource), nil
}

// isOutdated reports whether a conflict is about the resource version. The refusal of a webhook is a
// conflict, too, and does not name the object.
func isOutdated(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// statusOf returns what to tell of an error. Of one without a Status only the log says more.
func statusOf(r *http.Request, err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		klog.FromContext(r.Context()).Error(err, "Cannot answer a request", "method", r.Method, "path", r.URL.Path)
		known = apierrors.NewInternalError(errors.New("the log of partition-webhooks says more"))
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusInternalServerError
	}
	return status
}
