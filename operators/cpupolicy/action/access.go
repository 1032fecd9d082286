// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/transport"
)

// Audience is what a token must be for. One that kube-apiserver takes for itself is refused, so that
// nobody shows the endpoint what would open the whole cluster.
const Audience = "cpupolicy.workload.openshift.io"

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=cpupolicy-webhooks

// review returns whose token it is. The error is Unauthorized if kube-apiserver does not know, and
// Forbidden if nothing is done for that user.
func (s *server) review(ctx context.Context, token string) (user authenticationv1.UserInfo, err error) {
	if token == "" {
		return user, apierrors.NewUnauthorized("there is no token; send one that is for the audience " + Audience)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	if review, err = s.kube.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil {
		return user, fmt.Errorf("review of a token: %w", hide(err))
	}
	// Without audiences in the answer the token is one for kube-apiserver (TokenReviewStatus).
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, Audience) {
		why := ""
		if review.Status.Error != "" {
			why = ": " + review.Status.Error
		}
		return user, apierrors.NewUnauthorized(fmt.Sprintf("the token is not valid for the audience %s%s", Audience, why))
	}
	// It may be for both. Without audiences, kube-apiserver is asked whether it is for itself.
	own := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if own, err = s.kube.AuthenticationV1().TokenReviews().Create(ctx, own, metav1.CreateOptions{}); err != nil {
		return user, fmt.Errorf("review of a token: %w", hide(err))
	}
	if own.Status.Authenticated {
		return user, apierrors.NewUnauthorized("the token is one for kube-apiserver as well, and would open the whole cluster; send one for the audience " + Audience + " alone")
	}
	user = review.Status.User
	if why := s.never(user); why != "" {
		return user, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("nothing is done in the name of the user %q: %s", user.Username, why))
	}
	return user, nil
}

// never says why nothing is done in the name of a user; empty if it is. These are identities that no
// person has and no tool needs, and whose rights are more than those to a node.
func (s *server) never(user authenticationv1.UserInfo) string {
	namespace, _, err := serviceaccount.SplitUsername(user.Username)
	isAccount := err == nil
	switch {
	case user.Username == "":
		return "it has no name"
	case isAccount && (slices.Contains(s.Namespaces, namespace) || strings.HasPrefix(namespace, "partition-")):
		return "it is a ServiceAccount of a companion"
	case !isAccount && strings.HasPrefix(user.Username, "system:"):
		return "it is a part of Kubernetes"
	}
	for _, group := range user.Groups {
		if group == "system:masters" || group == "system:nodes" || strings.HasPrefix(group, "system:bootstrappers") {
			return "it has the group " + group
		}
	}
	// HTTP drops spaces around the value of a header, so the name would be somebody else's.
	texts := append([]string{user.Username, user.UID}, user.Groups...)
	for _, values := range user.Extra {
		texts = append(texts, values...)
	}
	for _, text := range texts {
		if strings.TrimSpace(text) != text {
			return fmt.Sprintf("%q has a space at its end", text)
		}
	}
	return ""
}

// may returns nil if kube-apiserver allows something to be done to a node. The error is Forbidden, with the reason, if not.
func (s *server) may(ctx context.Context, user authenticationv1.UserInfo, verb, name string) error {
	what := &authorizationv1.ResourceAttributes{Verb: verb, Version: nodeResource.Version, Resource: nodeResource.Resource, Name: name}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{}, ResourceAttributes: what,
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review of access: %w", hide(err))
	}
	if review.Status.Allowed {
		return nil
	}
	// As kube-apiserver says it (k8s.io/apiserver, pkg/endpoints/handlers/responsewriters, forbiddenMessage).
	why := fmt.Sprintf("User %q cannot %s resource %q in API group \"\" at the cluster scope", user.Username, verb, nodeResource.Resource)
	for _, reason := range []string{review.Status.Reason, review.Status.EvaluationError} {
		if reason != "" {
			why += ": " + reason
		}
	}
	return apierrors.NewForbidden(nodeResource.GroupResource(), name, errors.New(why))
}

// hide makes of an error that has a Status of the API one that has none: it is about the companion's
// own rights, not the user's.
func hide(err error) error { return errors.New(err.Error()) }

// With these rights, constrained impersonation (KEP-5284, on by default from v1.36 on) lets the companion
// update Nodes as somebody else, and do nothing else: never as a node, nor in the group system:masters.
// Without it only the right impersonate would do, which no role of RBAC can bound to a request, so that
// is not here.
// +kubebuilder:rbac:groups="",resources=nodes,verbs="impersonate-on:user-info:update";"impersonate-on:serviceaccount:update",roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=users;groups;uids;userextras/authentication.kubernetes.io/credential-id,verbs="impersonate:user-info",roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=serviceaccounts,verbs="impersonate:serviceaccount",roleName=cpupolicy-webhooks

// impersonation is what kube-apiserver is told of a user. Of a ServiceAccount that is the name, from
// which it knows the groups: constrained impersonation takes no more.
func impersonation(user authenticationv1.UserInfo) transport.ImpersonationConfig {
	if _, _, err := serviceaccount.SplitUsername(user.Username); err == nil {
		return transport.ImpersonationConfig{UserName: user.Username}
	}
	config := transport.ImpersonationConfig{UserName: user.Username, UID: user.UID, Extra: map[string][]string{}}
	for _, group := range user.Groups {
		if group != "system:authenticated" { // everybody gets it
			config.Groups = append(config.Groups, group)
		}
	}
	for key, values := range user.Extra {
		config.Extra[key] = values
	}
	return config
}
