// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCheckNumbers(t *testing.T) {
	for name, test := range map[string]struct {
		raw     string
		refused bool
	}{
		"an ordinary quantity":                   {`{"spec":{"cpu":"100m","memory":"1e9"}}`, false},
		"the largest exponent":                   {`{"cpu":"1e999"}`, false},
		"one that takes seconds":                 {`{"cpu":"1e9999999"}`, true},
		"one without a digit before it":          {`{"cpu":"e9999999"}`, true},
		"a number, and no text":                  {`{"cpu":1e9999999}`, true},
		"behind an escape":                       {`{"cpu":"\u0031e9999999"}`, true},
		"with space":                             {`{"cpu":" 1e9999999"}`, true},
		"in the first of two equal keys":         {`{"cpu":"1e9999999","cpu":"1"}`, true},
		"in an array":                            {`[{"a":["1e9999999"]}]`, true},
		"after a label":                          {`{"metadata":{"labels":{"a":"b"}},"cpu":"1e9999999"}`, true},
		"in a label that is a commit":            {`{"metadata":{"labels":{"commit":"12e3456"}}}`, false},
		"in an annotation of a template":         {`{"spec":{"template":{"metadata":{"annotations":{"commit":"e1234567"}}}}}`, false},
		"in a resource with the name of a label": {`{"limits":{"labels":"1e9999999"}}`, true},
		"as a key":                               {`{"1e9999999":"1"}`, false},
		"in what is no JSON":                     {`{"cpu":"1e9999999`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckNumbers([]byte(test.raw)); (err != nil) != test.refused {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// FuzzCheckNumbers has each Quantity that passes compared in no time.
func FuzzCheckNumbers(f *testing.F) {
	f.Add("1e9999999")
	f.Add("e12345")
	f.Add("0.1E-999")
	f.Fuzz(func(t *testing.T, value string) {
		if len(value) > 20 {
			return
		}
		raw, err := json.Marshal(map[string]any{"limits": map[string]string{"cpu": value}})
		if err != nil || CheckNumbers(raw) != nil {
			return
		}
		begun := time.Now()
		var limits corev1.ResourceRequirements
		if json.Unmarshal(raw, &limits) == nil {
			limits.Limits.Cpu().Cmp(resource.MustParse("1"))
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%q takes %s", value, took)
		}
	})
}
