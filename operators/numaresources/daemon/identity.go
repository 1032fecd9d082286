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
}

// NodeOf reads from a token of this pod which node the pod is on. kube-apiserver holds what is written against the same
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
			Node Node `json:"node"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return Node{}, fmt.Errorf("the token: %w", err)
	}
	if node := claims.Kubernetes.Node; node.Name != "" && node.UID != "" {
		return node, nil
	}
	return Node{}, errors.New("the token is bound to no node; take one that the kubelet gives to a pod")
}
