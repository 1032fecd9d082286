// SPDX-License-Identifier: Apache-2.0

package action

import (
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/transport"
)

func TestNothingIsDoneInTheNameOf(t *testing.T) {
	s := &server{Options: Options{Namespaces: []string{"renamed", "renamed-agent"}}}
	for name, test := range map[string]struct {
		user authenticationv1.UserInfo
		// want is part of why; empty is that it is done.
		want string
	}{
		"a person":                              {authenticationv1.UserInfo{Username: "anna", Groups: []string{"tenants", "system:authenticated"}}, ""},
		"a tool":                                {authenticationv1.UserInfo{Username: "system:serviceaccount:tools:a", Groups: []string{"system:serviceaccounts"}}, ""},
		"nobody":                                {authenticationv1.UserInfo{}, "no name"},
		"an administrator of last resort":       {authenticationv1.UserInfo{Username: "root", Groups: []string{"a", "system:masters"}}, "group system:masters"},
		"a node":                                {authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}, "part of Kubernetes"},
		"a node with another name":              {authenticationv1.UserInfo{Username: "n1", Groups: []string{"system:nodes"}}, "group system:nodes"},
		"a node that joins":                     {authenticationv1.UserInfo{Username: "n1", Groups: []string{"system:bootstrappers:kubeadm:default-node-token"}}, "group system:bootstrappers"},
		"a controller of Kubernetes":            {authenticationv1.UserInfo{Username: "system:kube-controller-manager"}, "part of Kubernetes"},
		"somebody unknown":                      {authenticationv1.UserInfo{Username: "system:anonymous"}, "part of Kubernetes"},
		"the companion itself":                  {authenticationv1.UserInfo{Username: "system:serviceaccount:renamed:partition-controller"}, "of a companion"},
		"its agent":                             {authenticationv1.UserInfo{Username: "system:serviceaccount:renamed-agent:partition-agent"}, "of a companion"},
		"another companion":                     {authenticationv1.UserInfo{Username: "system:serviceaccount:partition-tuning:partition-controller"}, "of a companion"},
		"a name that a header would make anna":  {authenticationv1.UserInfo{Username: "anna "}, "space"},
		"a group that a header would make one":  {authenticationv1.UserInfo{Username: "anna", Groups: []string{"\ttenants"}}, "space"},
		"a value that a header would make less": {authenticationv1.UserInfo{Username: "anna", Extra: map[string]authenticationv1.ExtraValue{"example.com/a": {"b "}}}, "space"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.never(test.user); (got != "") != (test.want != "") || !strings.Contains(got, test.want) {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

func TestKubeAPIServerIsToldWhoAsks(t *testing.T) {
	for name, test := range map[string]struct {
		user authenticationv1.UserInfo
		want transport.ImpersonationConfig
	}{
		"a person, with all that is known": {
			authenticationv1.UserInfo{Username: "anna", UID: "1", Groups: []string{"tenants", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"example.com/scopes": {"a", "b"}}},
			transport.ImpersonationConfig{UserName: "anna", UID: "1", Groups: []string{"tenants"}, Extra: map[string][]string{"example.com/scopes": {"a", "b"}}},
		},
		"a ServiceAccount, by its name": {
			authenticationv1.UserInfo{Username: "system:serviceaccount:tools:a", UID: "1", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:tools", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=1"}}},
			transport.ImpersonationConfig{UserName: "system:serviceaccount:tools:a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := impersonation(test.user); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTheActionsAreOnAllReplicasAndCanBeSwitchedOff(t *testing.T) {
	s := New(Options{BindAddress: "0"})
	if s.(*server).NeedLeaderElection() {
		t.Error("only the leader has them")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
}
