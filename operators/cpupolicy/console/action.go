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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// nodesPath is Harvester's.
const nodesPath = "/v1/harvester/nodes"

// addActions adds the endpoint of tools:
//
//	GET  /v1/harvester/nodes
//	GET  /v1/harvester/nodes/{node}
//	POST /v1/harvester/nodes/{node}?action=enableCPUManager|disableCPUManager
//
// Each request has a bearer token. What goes wrong is a Status, as kube-apiserver's. Where there is
// nothing to say, the answer is 204, as Harvester's is.
func (s *server) addActions(mux *http.ServeMux) {
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, s.addressed(w, r))
	})
	mux.HandleFunc(nodesPath, s.tool([]string{http.MethodGet}, func(w http.ResponseWriter, r *http.Request, user authenticationv1.UserInfo) error {
		list, next, err := s.eachNode(r.Context(), user, "")
		for err == nil && next != "" {
			var more []node
			more, next, err = s.nodesFrom(r.Context(), next)
			list = append(list, more...)
		}
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, struct {
			Items []node `json:"items"`
		}{append([]node{}, list...)})
	}))
	mux.HandleFunc(nodesPath+"/{node}", s.tool([]string{http.MethodGet, http.MethodPost}, func(w http.ResponseWriter, r *http.Request, user authenticationv1.UserInfo) error {
		name := r.PathValue("node")
		if r.Method == http.MethodPost {
			if err := s.act(r.Context(), user, name, action(r.URL.Query().Get("action"))); err != nil {
				return err
			}
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		found, err := s.getNode(r.Context(), user, name)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, s.show(found))
	}))
}

// addressed says that there is nothing at a path, to whoever has a token.
func (s *server) addressed(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.bearer(w, r); err != nil {
		return err
	}
	return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path))
}

// refusal is an error that is shown as it is.
func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// bearer returns whose token a request has.
func (s *server) bearer(w http.ResponseWriter, r *http.Request) (authenticationv1.UserInfo, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	user, err := s.review(r.Context(), strings.TrimSpace(token))
	if apierrors.IsUnauthorized(err) {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	return user, err
}

// tool answers requests of the methods, from whoever has a token.
func (s *server) tool(methods []string, do func(http.ResponseWriter, *http.Request, authenticationv1.UserInfo) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, err := s.bearer(w, r)
		if err == nil {
			err = wrongMethod(w, r, methods)
		}
		if err == nil {
			err = do(w, r, user)
		}
		writeError(w, r, err)
	}
}

func wrongMethod(w http.ResponseWriter, r *http.Request, methods []string) error {
	for _, method := range methods {
		if r.Method == method {
			return nil
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return apierrors.NewMethodNotSupported(nodes, r.Method)
}

// statusOf returns what to tell of an error. Of one without a Status only the log says more.
func statusOf(r *http.Request, err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		klog.FromContext(r.Context()).Error(err, "Cannot answer a request", "method", r.Method, "path", r.URL.Path)
		known = apierrors.NewInternalError(errors.New("the log of partition-controller says more"))
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusInternalServerError
	}
	return status
}

// writeError answers with a Status. Nil writes nothing.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	status := statusOf(r, err)
	// If the other side has gone there is nobody to tell.
	_ = writeJSON(w, int(status.Code), status)
}

func writeJSON(w http.ResponseWriter, code int, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
	return nil
}
