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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Audience is what a token must be for. One that kube-apiserver takes for itself is refused, so that
// nobody shows the console what would open the whole cluster.
const Audience = "cpupolicy.workload.openshift.io"

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=cpupolicy-webhooks

// review returns whose token it is. The error is Unauthorized if kube-apiserver does not know.
func (s *server) review(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	if token == "" {
		return review.Status.User, apierrors.NewUnauthorized("there is no token; send one that is for the audience " + Audience)
	}
	if err := s.client.Create(ctx, review); err != nil {
		return review.Status.User, fmt.Errorf("review of a token: %w", hide(err))
	}
	// Without audiences in the answer the token is one for kube-apiserver (TokenReviewStatus).
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, Audience) {
		why := ""
		if review.Status.Error != "" {
			why = ": " + review.Status.Error
		}
		return review.Status.User, apierrors.NewUnauthorized(fmt.Sprintf("the token is not valid for the audience %s%s", Audience, why))
	}
	// It may be for both. Without audiences, kube-apiserver is asked whether it is for itself.
	own := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := s.client.Create(ctx, own); err != nil {
		return review.Status.User, fmt.Errorf("review of a token: %w", hide(err))
	}
	if own.Status.Authenticated {
		return review.Status.User, apierrors.NewUnauthorized("the token is one for kube-apiserver as well, and would open the whole cluster; send one for the audience " + Audience + " alone")
	}
	return review.Status.User, nil
}

// expiry returns when a token ends that kube-apiserver has found valid; false if the token does not
// say (RFC 7519, exp).
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Expires *float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires == nil {
		return time.Time{}, false
	}
	return time.Unix(int64(*claims.Expires), 0), true
}

// may returns nil if kube-apiserver allows it. The error is Forbidden, with the reason, if not.
func (s *server) may(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user.Username,
		UID:                user.UID,
		Groups:             user.Groups,
		Extra:              map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &what,
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := s.client.Create(ctx, review); err != nil {
		return fmt.Errorf("review of access: %w", hide(err))
	}
	if review.Status.Allowed {
		return nil
	}
	// As kube-apiserver says it (k8s.io/apiserver, pkg/endpoints/handlers/responsewriters, forbiddenMessage).
	where := "at the cluster scope"
	if what.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", what.Namespace)
	}
	why := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user.Username, what.Verb, what.Resource, what.Group, where)
	for _, reason := range []string{review.Status.Reason, review.Status.EvaluationError} {
		if reason != "" {
			why += ": " + reason
		}
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: what.Group, Resource: what.Resource}, what.Name, errors.New(why))
}

// mayEach returns a function that says whether the user may do something to each of many objects.
// Who may do it to all of them is asked about once for each namespace.
func (s *server) mayEach(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) func(namespace, name string) error {
	all := map[string]error{}
	return func(namespace, name string) error {
		each := what
		each.Namespace = namespace
		if _, known := all[namespace]; !known {
			all[namespace] = s.may(ctx, user, each)
		}
		if all[namespace] == nil {
			return nil
		}
		each.Name = name
		return s.may(ctx, user, each)
	}
}

// hide makes of an error that has a Status of the API one that has none: it is about the console's
// own rights, not the user's.
func hide(err error) error { return errors.New(err.Error()) }
