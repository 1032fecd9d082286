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
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/console"
	"workload.openshift.io/operators/nodegroup"
)

// addConsole adds the console and the action endpoint, with the certificate of the webhooks.
func addConsole(mgr manager.Manager, config *configv1alpha1.ControllerConfiguration, validator *nodeValidator) error {
	server, is := mgr.GetWebhookServer().(*webhook.DefaultServer)
	if !is {
		return errors.New("the webhook server has no options to take the certificate from")
	}
	return mgr.Add(console.New(console.Options{
		Config:      mgr.GetConfig(),
		FieldOwner:  client.FieldOwner(companion.FieldOwner(Name)),
		BindAddress: config.CPUPolicy.Console.BindAddress,
		TLSOpts:     server.Options.TLSOpts,
		Requester:   requester{validator: validator, nodes: nodegroup.Client{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient()}},
		InForce:     inForce,
		Situation:   validator.situations.of,
	}))
}

// requester writes requests of people whom the console has let through. The webhook knows only who
// writes, which is the controller, so what it would say to a user is asked here.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;patch,roleName=cpupolicy-webhooks

type requester struct {
	validator *nodeValidator
	nodes     nodegroup.Client
}

// Request implements console.Requester.
func (r requester) Request(ctx context.Context, name string, policy cpupolicy.Policy) error {
	refused := false
	again := func(err error) bool { return apierrors.IsConflict(err) && !refused }
	return retry.OnError(retry.DefaultBackoff, again, func() error {
		return r.nodes.UpdateNode(ctx, name, func(node *corev1.Node) error {
			err := r.request(ctx, node, policy)
			refused = err != nil
			return err
		})
	})
}

func (r requester) request(ctx context.Context, node *corev1.Node, policy cpupolicy.Policy) error {
	before := maps.Clone(node.Annotations)
	status := cpupolicy.Status{State: cpupolicy.Requested, Policy: policy}
	if before[cpupolicy.StatusAnnotation] == status.String() {
		return conflict("policy " + string(policy) + " is requested already")
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, cpupolicy.StatusAnnotation, status.String())
	if err := cpupolicy.CheckWrite(before, node.Annotations, cpupolicy.User); err != nil {
		return conflict(err.Error())
	}
	answer := r.validator.ask(ctx, node.DeepCopy(), status)
	if !answer.Allowed {
		return &apierrors.StatusError{ErrStatus: *answer.Result}
	}
	return nil
}

func conflict(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: message}}
}
