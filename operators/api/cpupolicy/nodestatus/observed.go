// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/untrusted"
)

// Observed is the value of ObservedAnnotation.
type Observed struct {
	operation.Observation `json:",inline"`
	// At is when this was written down, in seconds of the controller's clock.
	At time.Time `json:"at"`
	// BootID is the node's at that time: what was observed before a reboot may be wrong after it.
	BootID string `json:"bootID,omitempty"`
	// For is why somebody looked: the id of an operation, the boot, or the time of the observation before.
	For string `json:"for,omitempty"`
}

// MaxObserved is the largest size of the annotation that is read, in bytes. An observation has at most
// [operation.MaxSize], and a byte of it may become six when it is written again.
const MaxObserved = 8 * operation.MaxSize

// ReadObserved returns what was observed of a node; nil if there is no observation. The error names the annotation.
func ReadObserved(node *corev1.Node) (*Observed, error) {
	value, ok := node.Annotations[ObservedAnnotation]
	if !ok {
		return nil, nil
	}
	var o Observed
	err := operation.Decode([]byte(value), MaxObserved, &o)
	if err == nil {
		err = o.Validate().ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %q cannot be read: %w", ObservedAnnotation, untrusted.Abbreviate(value, 200), err)
	}
	return &o, nil
}

// ObservedOf is ReadObserved where what cannot be read counts as none.
func ObservedOf(node *corev1.Node) *Observed {
	o, _ := ReadObserved(node)
	return o
}

// Put writes what was observed into a node.
func (o *Observed) Put(node *corev1.Node) {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it has plain values alone
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, ObservedAnnotation, string(text))
}

// InForce returns the policy that was observed on a node in its present boot; empty if no agent has
// looked.
func InForce(node *corev1.Node) operation.Policy {
	if o := ObservedOf(node); o != nil && o.BootID == node.Status.NodeInfo.BootID {
		return o.Policy
	}
	return ""
}
