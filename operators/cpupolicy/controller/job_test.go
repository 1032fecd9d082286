// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
)

func TestWhatWasObservedIsReadStrictly(t *testing.T) {
	for _, test := range []struct {
		name, value string
		read        bool
	}{
		{"as the controller writes it", `{"policy":"none","kubelet":{"reserved":"500m"},"at":"2026-11-23T10:00:00Z","bootID":"b","for":"boot"}`, true},
		{"a number that takes minutes to read", `{"policy":"none","kubelet":{"reserved":"1e-9999999"},"at":"2026-11-23T10:00:00Z"}`, false},
		{"the same behind an escape", `{"policy":"none","kubelet":{"reserved":"\u0031e-9999999"},"at":"2026-11-23T10:00:00Z"}`, false},
		{"an unknown key", `{"policy":"none","at":"2026-11-23T10:00:00Z","x":1}`, false},
		{"a policy twice", `{"policy":"none","policy":"static","at":"2026-11-23T10:00:00Z"}`, false},
		{"more than an observation can be", `{"policy":"none","refused":{"none":"` + strings.Repeat("x", nodestatus.MaxObserved) + `"}}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodestatus.ObservedAnnotation: test.value}}}
			begun := time.Now()
			if seen := nodestatus.ObservedOf(node); (seen != nil) != test.read {
				t.Errorf("it is read as %+v", seen)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
