// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/cpupolicy/agentpod"
	"workload.openshift.io/operators/nodejob"
)

// What a Job does.
const (
	switches = "switch"
	observes = "observe"
)

// +kubebuilder:rbac:groups=batch,resources=jobs,namespace=agent,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// jobsIn returns the Jobs of this companion.
func jobsIn(reader client.Reader, writer client.Writer, namespace string) nodejob.Jobs {
	return nodejob.Jobs{Reader: reader, Writer: writer, Namespace: namespace, Group: v1alpha1.GroupVersion.Group, Container: agentpod.Container}
}

// jobName returns the name of the Job of an operation on a node.
func jobName(node, operation string) string { return nodejob.Name("cpu-policy", node, operation) }

// unknownJobName returns the name of the Job that settles what the status of a node does not name. A node has one, whatever
// it claims.
func unknownJobName(node string) string { return jobName(node, "unknown") }

// observingJobName returns the name of the Job that looks at a node for a reason: what was asked
// for, or the boot of the node. For one reason there is one Job.
func observingJobName(node *corev1.Node, reason string) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%q/%q/%q", node.UID, node.Status.NodeInfo.BootID, reason))
	return fmt.Sprintf("observe-%x", hash[:16])
}

// isGone reports whether an error says that a node no longer exists.
func isGone(err error) bool { return apierrors.IsNotFound(err) }
