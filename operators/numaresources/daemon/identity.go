// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Node is the node that a token is bound to.
type Node struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Pod is the pod that it is bound to; empty if there is none.
	Pod types.NamespacedName `json:"-"`
}

// NodeOf reads from a token of this pod which node the pod is on, and its name. kube-apiserver holds what is written against the same
// claim, and no right to read Nodes is needed (KEP-4193).
func NodeOf(token string) (Node, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return Node{}, errors.New("the token is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Node{}, fmt.Errorf("the token: %w", err)
	}
	var claims struct {
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Node      Node   `json:"node"`
			Pod       struct {
				Name string `json:"name"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return Node{}, fmt.Errorf("the token: %w", err)
	}
	of := claims.Kubernetes
	if of.Pod.Name != "" {
		of.Node.Pod = types.NamespacedName{Namespace: of.Namespace, Name: of.Pod.Name}
	}
	if of.Node.Name != "" && of.Node.UID != "" {
		return of.Node, nil
	}
	return Node{}, errors.New("the token is bound to no node; take one that the kubelet gives to a pod")
}
