// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/nodeclient"
)

// labels say on each node whether its policy is static. Where KubeVirt is, it writes them, from what
// its handler sees on the node; elsewhere this companion does.
type labels struct {
	nodes nodeclient.Client
}

// agree reports whether the label that KubeVirt writes says what the policy of a node is.
func (l labels) agree(ctx context.Context, name string, policy operation.Policy) (bool, error) {
	var node corev1.Node
	err := l.nodes.Reader.Get(ctx, client.ObjectKey{Name: name}, &node)
	// Where KubeVirt's handler does not run, nobody labels the node, and no VM comes there.
	_, handled := node.Labels[virtv1.NodeSchedulable]
	return !handled || node.Labels[cpupolicy.Label] == labelOf(policy), err
}

// setLabels makes a node's labels say what its policy is.
func setLabels(node *corev1.Node, policy operation.Policy) {
	for _, label := range []string{cpupolicy.Label, virtv1.CPUManager} {
		metav1.SetMetaDataLabel(&node.ObjectMeta, label, labelOf(policy))
	}
}

func labelOf(policy operation.Policy) string { return strconv.FormatBool(policy == operation.Static) }

// kubeVirt reports whether KubeVirt is on this cluster, and writes the labels.
func (l labels) kubeVirt(ctx context.Context) (bool, error) {
	var list virtv1.KubeVirtList
	err := l.nodes.Reader.List(ctx, &list)
	if isNoKind(err) {
		return false, nil
	}
	return len(list.Items) > 0, err
}
