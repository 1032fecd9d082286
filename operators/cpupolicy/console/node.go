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

package console

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/cpupolicy"
)

// action is what somebody does to a node.
type action string

// The actions, as Harvester names them.
const (
	enable  action = "enableCPUManager"
	disable action = "disableCPUManager"
)

var actions = []action{enable, disable}

// policy is what an action asks for.
func (a action) policy() cpupolicy.Policy {
	if a == enable {
		return cpupolicy.Static
	}
	return cpupolicy.None
}

// actionFor is the reverse of policy.
func actionFor(policy cpupolicy.Policy) action {
	if policy == cpupolicy.Static {
		return enable
	}
	return disable
}

// Label is what people call it.
func (a action) Label() string {
	if a == enable {
		return "Enable CPU Manager"
	}
	return "Disable CPU Manager"
}

var nodes = schema.GroupResource{Resource: "nodes"}

func nodeAccess(verb, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: nodes.Resource, Name: name}
}

// node is what is shown of a Node.
type node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Policy is the one in force, as it was observed; empty if nobody has looked.
	Policy cpupolicy.Policy `json:"policy,omitempty"`
	// CPUManager is the label cpumanager; nil if there is none.
	CPUManager *bool `json:"cpumanager,omitempty"`
	// State is how far the last request is, and Requested the policy that it is for; empty if there
	// was none.
	State     cpupolicy.State  `json:"status,omitempty"`
	Requested cpupolicy.Policy `json:"requested,omitempty"`
	Message   string           `json:"message,omitempty"`
	Since     time.Time        `json:"since,omitzero"`
}

func (s *server) show(from *corev1.Node) node {
	shown := node{Name: from.Name, Policy: s.InForce(from)}
	shown.Ready = slices.ContainsFunc(from.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if label := from.Labels[cpupolicy.Label]; label == "true" || label == "false" {
		static := label == "true"
		shown.CPUManager = &static
	}
	status, _, err := cpupolicy.ReadStatus(from.Annotations)
	if err != nil {
		shown.Message = err.Error()
		return shown
	}
	shown.State, shown.Requested, shown.Message, shown.Since = status.State, status.Policy, status.Message, status.Since
	return shown
}

// underWay says what a node is busy with; empty if it is not.
func (n node) underWay() string {
	if status := (cpupolicy.Status{State: n.State}); !status.UnderWay() {
		return ""
	}
	return fmt.Sprintf("The policy %s is %s.", n.Requested, n.State)
}

// next is the action that makes sense for a node: the label decides, and where there is none what
// was observed; empty if neither is known.
func (n node) next() action {
	switch {
	case n.CPUManager != nil && *n.CPUManager:
		return disable
	case n.CPUManager != nil:
		return enable
	case n.Policy == cpupolicy.Static:
		return disable
	case n.Policy == cpupolicy.None:
		return enable
	}
	return ""
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list,roleName=cpupolicy-webhooks

// eachNode returns a page of the nodes that a user may list, and where the next one begins.
func (s *server) eachNode(ctx context.Context, user authenticationv1.UserInfo, from string) (list []node, next string, err error) {
	if err := s.may(ctx, user, nodeAccess("list", "")); err != nil {
		return nil, "", err
	}
	return s.nodesFrom(ctx, from)
}

func (s *server) nodesFrom(ctx context.Context, from string) (list []node, next string, err error) {
	var read corev1.NodeList
	if err := s.client.List(ctx, &read, client.Limit(s.pageSize), client.Continue(from)); err != nil {
		return nil, "", err
	}
	for i := range read.Items {
		list = append(list, s.show(&read.Items[i]))
	}
	return list, read.Continue, nil
}

// getNode returns a node that a user may get.
func (s *server) getNode(ctx context.Context, user authenticationv1.UserInfo, name string) (*corev1.Node, error) {
	if err := s.may(ctx, user, nodeAccess("get", name)); err != nil {
		return nil, err
	}
	if problems := content.IsPathSegmentName(name); problems != nil {
		return nil, apierrors.NewNotFound(nodes, name)
	}
	var found corev1.Node
	return &found, s.client.Get(ctx, client.ObjectKey{Name: name}, &found)
}

// act asks for a policy on behalf of a user who may update the node. An error for the user has a
// Status of the API.
func (s *server) act(ctx context.Context, user authenticationv1.UserInfo, name string, do action) error {
	if !slices.Contains(actions, do) {
		return apierrors.NewBadRequest(fmt.Sprintf("action %q is not one of %q", do, actions))
	}
	if err := s.may(ctx, user, nodeAccess("update", name)); err != nil {
		return err
	}
	if problems := content.IsPathSegmentName(name); problems != nil {
		return apierrors.NewNotFound(nodes, name)
	}
	// What is written to the Node does not say who asked.
	logger := klog.FromContext(ctx).WithValues("user", user.Username, "node", name, "policy", do.policy())
	if err := s.Requester.Request(ctx, name, do.policy()); err != nil {
		logger.Info("Refused a policy that a user has asked for", "reason", err.Error())
		return err
	}
	logger.Info("A user has asked for a policy")
	return nil
}
