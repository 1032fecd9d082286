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
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/cpupolicy"
)

// TokenSource returns a token for the console's audience.
type TokenSource func(context.Context) (string, error)

// lifetime is how long a token lasts that is made for the console, in seconds: as long as one is
// signed in there.
const lifetime = 3600

// OfServiceAccount returns tokens of a ServiceAccount, for the console alone. The user needs the right
// to create serviceaccounts/token.
func OfServiceAccount(client kubernetes.Interface, namespace, name string) TokenSource {
	return func(ctx context.Context) (string, error) {
		made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{cpupolicy.Group}, ExpirationSeconds: ptr.To[int64](lifetime)},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
		}
		return made.Status.Token, nil
	}
}

// OfConfig returns the token with which a configuration signs requests, if it is for the console's
// audience and no other. One that kube-apiserver takes as well would open the whole cluster, and is
// shown to nobody. So the configuration must have a client certificate besides.
func OfConfig(config *rest.Config) TokenSource {
	return func(ctx context.Context) (string, error) {
		token, err := tokenOf(ctx, config)
		if err != nil {
			return "", err
		}
		if has := claimsOf(token).Audience; token == "" || !slices.Equal(has, audience{cpupolicy.Group}) {
			return "", fmt.Errorf("the kubeconfig has no token for the audience %s alone (its audiences are %q); name a ServiceAccount that may update nodes with --as-service-account=NAMESPACE/NAME", cpupolicy.Group, []string(has))
		}
		return token, nil
	}
}

// tokenOf returns the bearer token of a configuration, from wherever it has it: a field, a file or a
// program. Empty means that there is none.
func tokenOf(ctx context.Context, config *rest.Config) (token string, err error) {
	seen := errors.New("the request was seen, and not sent")
	signed, err := rest.HTTPWrappersForConfig(config, roundTripper(func(request *http.Request) (*http.Response, error) {
		token, _ = strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
		return nil, seen
	}))
	if err != nil {
		return "", err
	}
	// A token is not added to what is not encrypted.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost", nil)
	if err != nil {
		return "", err
	}
	if _, err := signed.RoundTrip(request); !errors.Is(err, seen) {
		return "", err
	}
	return token, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// claims are what a token says of itself (RFC 7519). Nobody has checked them.
type claims struct {
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
}

// audience is a list, or one text.
type audience []string

func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// claimsOf returns the claims of a token; the zero value if it has none that can be read.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}
	}
	return c
}
