// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
)

// ClaimAnnotation on a Node says who acts on it.
const ClaimAnnotation = "nodegroup.workload.openshift.io/claim"

// Claim keeps others from acting on a node: other companions, and other operations of the same one.
// The zero value means that nobody does.
//
// It does not expire by time. Its owner adopts it after a restart and goes on, or releases it; if the
// owner is gone for good, a person does. Somebody who waits for a claim to expire would act on a node
// on which an operation hangs.
//
// A node that is cordoned and not claimed was cordoned by a person, or by a program that knows no
// claims. So a program that cordons with a claim does so after the claim was taken, and uncordons before it
// is released.
type Claim struct {
	// Owner is the companion, and Operation the id of what it does.
	Owner     string `json:"owner"`
	Operation string `json:"operation"`
	// Since is when it was taken, in seconds.
	Since time.Time `json:"since"`
}

// ParseClaim reads a value of the annotation. Unknown further keys are left alone.
func ParseClaim(value string) (Claim, error) {
	var c Claim
	if err := decode(value, &c); err != nil {
		return Claim{}, fmt.Errorf("annotation %s: %q is no claim: %w", ClaimAnnotation, value, err)
	}
	if c.Owner == "" || c.Operation == "" {
		return Claim{}, fmt.Errorf("annotation %s: %q lacks an owner or an operation", ClaimAnnotation, value)
	}
	// It becomes part of names.
	if problems := validation.IsDNS1123Label(c.Operation); problems != nil {
		return Claim{}, fmt.Errorf("annotation %s: operation %q: %s", ClaimAnnotation, c.Operation, strings.Join(problems, "; "))
	}
	if err := checkYear(c.Since); err != nil {
		return Claim{}, fmt.Errorf("annotation %s: %q: %w", ClaimAnnotation, value, err)
	}
	return c, nil
}

// decode reads JSON, in which no key may occur twice.
func decode(value string, into any) error {
	strict, err := kjson.UnmarshalStrict([]byte(value), into, kjson.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}

// checkYear refuses times that cannot be written again.
func checkYear(t time.Time) error {
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("since %s is out of range", t)
	}
	return nil
}

// encode returns JSON in one line. The values of this package can all be encoded.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// String returns the value of the annotation.
func (c Claim) String() string {
	c.Since = c.Since.UTC().Truncate(time.Second)
	return encode(c)
}

// ClaimOf returns the claim on a node; the zero value if there is none. One that cannot be read is an
// error, and nobody may take its place.
func ClaimOf(node *corev1.Node) (Claim, error) {
	value, has := node.Annotations[ClaimAnnotation]
	if !has {
		return Claim{}, nil
	}
	c, err := ParseClaim(value)
	if err != nil {
		return Claim{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return c, nil
}

// HeldError says that a node is claimed.
type HeldError struct {
	Node string
	By   Claim
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("node %s is claimed by %s for its operation %s since %s", e.Node, e.By.Owner, e.By.Operation, e.By.Since.UTC().Format(time.RFC3339))
}

// CordonedError says that a node is cordoned and not claimed.
type CordonedError struct{ Node string }

func (e *CordonedError) Error() string {
	return fmt.Sprintf("node %s is cordoned by somebody who has not claimed it", e.Node)
}

// Check returns an error if the claim must not be put on a node that is claimed and cordoned so: a
// HeldError or a CordonedError. For the operation that has the node there is none. A companion
// respects the cordon of others; despite means that a person asked for this very node.
func (c Claim) Check(node string, held Claim, cordoned, despite bool) error {
	switch {
	case held.Owner == c.Owner && held.Operation == c.Operation:
		return nil
	case held != Claim{}:
		return &HeldError{node, held}
	case cordoned && !despite:
		return &CordonedError{node}
	}
	return nil
}

// Put writes a claim into a node; the zero value removes the one that is there. It is up to the
// caller to check that, and to write the node.
func Put(node *corev1.Node, c Claim) {
	if c == (Claim{}) {
		delete(node.Annotations, ClaimAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, ClaimAnnotation, c.String())
}

// IsReady reports whether a node is Ready.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
