// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"workload.openshift.io/operators/api/untrusted"
)

// RefusalCode says what a refusal is about, to programs. Empty is anything but the codes below.
type RefusalCode string

// ContainersHoldCPUs: containers have CPUs exclusively, or may have some. A drain removes them first.
const ContainersHoldCPUs RefusalCode = "ContainersHoldCPUs"

// Refusal is one reason for which a node refuses a policy.
type Refusal struct {
	Code RefusalCode `json:"code,omitempty"`
	// Text is for people, in one line or several.
	Text string `json:"text"`
}

// Refusals are all reasons for which a node refuses a policy. It can be asked for if there are none.
type Refusals []Refusal

// Refuse returns a refusal without a code.
func Refuse(text string) Refusals { return Refusals{{Text: text}} }

// UnmarshalJSON reads a list, strictly. Before refusals had codes they were one text, which is read as one without a
// code: the next observation of the node replaces it.
func (r *Refusals) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*r = Refuse(text)
		return nil
	}
	type plain Refusals
	unknown, err := kjson.UnmarshalStrict(data, (*plain)(r))
	return errors.Join(append(unknown, err)...)
}

// String returns the texts, each in a line of its own.
func (r Refusals) String() string {
	var texts []string
	for _, refusal := range r {
		texts = append(texts, refusal.Text)
	}
	return strings.Join(texts, "\n")
}

// Without returns the refusals that have another code.
func (r Refusals) Without(code RefusalCode) Refusals {
	return slices.DeleteFunc(slices.Clone(r), func(refusal Refusal) bool { return refusal.Code == code })
}

// perRefusal is what a refusal takes besides its text, in bytes of JSON.
const perRefusal = 64

// shortened returns refusals with texts of at most so many bytes altogether. Those without a code come first, so that what
// is left out, and counted in a refusal of its own, has the code of its first.
func (r Refusals) shortened(most int) Refusals {
	count := max(1, most/(2*perRefusal))
	if len(r) > count {
		sorted := slices.Clone(r)
		slices.SortStableFunc(sorted, func(a, b Refusal) int { return strings.Compare(string(a.Code), string(b.Code)) })
		left, rest := sorted[:count], sorted[count:]
		r = append(slices.Clone(left), Refusal{Code: rest[0].Code, Text: fmt.Sprintf("and %d more reasons", len(rest))})
	}
	r = slices.Clone(r)
	for i := range r {
		r[i].Text = untrusted.Abbreviate(r[i].Text, most/len(r))
	}
	return r
}
