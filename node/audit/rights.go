// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"

	"workload.openshift.io/partition"
)

// sourceAnnotation says from where the kubelet has a pod. The kubelet writes it over whatever the pod's
// author wrote (upstream, pkg/kubelet/config/config.go). fromAPI is its value for a pod that
// kube-apiserver admitted; all others are static pods.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	fromAPI          = "api"
)

// needsRight reports whether a pod may only be partitioned where its namespace allows it. A static pod
// belongs to the node's administrator.
func (p *pod) needsRight() bool {
	return p.workloadType != "" && p.annotations[sourceAnnotation] == fromAPI
}

// errNoAPI is why rights are not known without a cluster.
var errNoAPI = errors.New("no kubeconfig is given")

// readRights asks what the namespaces of partitioned pods allow. A cluster that does not answer leaves the
// rest of the audit as it is.
func (n *node) readRights(ctx context.Context, allowed func(context.Context, string) (map[string]string, error)) {
	n.rights = map[string]map[string]string{}
	for _, p := range n.pods {
		if _, known := n.rights[p.namespace]; known || n.rightsErr != nil || !p.needsRight() {
			continue
		}
		if allowed == nil {
			n.rightsErr = errNoAPI
			return
		}
		annotations, err := allowed(ctx, p.namespace)
		if err != nil {
			n.rightsErr = fmt.Errorf("namespace %s: %w", p.namespace, err)
			return
		}
		n.rights[p.namespace] = annotations
	}
}

// reasonAgainst returns why a pod must not be partitioned. What is not known is no reason.
func (n *node) reasonAgainst(p *pod) partition.Reason {
	annotations, known := n.rights[p.namespace]
	if !known || annotations == nil || !p.needsRight() {
		return partition.NoReason
	}
	return partition.NamespaceReason(annotations, p.workloadType)
}
