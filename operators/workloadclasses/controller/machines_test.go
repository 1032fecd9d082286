// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"k8s.io/utils/ptr"
	"workload.openshift.io/operators/workloadclasses"
)

func TestTheMinimumOfAClass(t *testing.T) {
	f := &fleet{
		byNode: map[string]*workloadclasses.Machine{"a1": {Set: "a"}, "a2": {Set: "a"}, "b1": {Set: "b"}, "zero1": {Set: "zero"}, "c1": {Set: "c"}, "none": {}},
		sets: map[string]*workloadclasses.Set{
			"a": {Name: "a", Minimum: ptr.To[int32](2)}, "b": {Name: "b", Minimum: ptr.To[int32](3)}, "zero": {Name: "zero", Minimum: ptr.To[int32](0)}, "c": {Name: "c"},
		},
	}
	for name, test := range map[string]struct {
		nodes []string
		want  int
	}{
		"that of its set":                         {[]string{"a1", "a2"}, 2},
		"the sum of those of its sets":            {[]string{"a1", "a2", "b1"}, 5},
		"zero, where the autoscaler may go there": {[]string{"zero1"}, 0},
		"one, where no autoscaler is known":       {[]string{"c1", "none", "unknown"}, 1},
	} {
		if got := f.minimum(test.nodes); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
