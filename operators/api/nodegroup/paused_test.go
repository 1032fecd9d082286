// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnObjectIsPausedByAnAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"without annotations":     {nil, false},
		"with another annotation": {map[string]string{"example.com/paused": ""}, false},
		"without a value":         {map[string]string{PausedAnnotation: ""}, true},
		"true":                    {map[string]string{PausedAnnotation: "true"}, true},
		"a reason":                {map[string]string{PausedAnnotation: "until Monday"}, true},
		"false":                   {map[string]string{PausedAnnotation: "false"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Paused(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}); got != test.want {
				t.Errorf("it is paused: %t", got)
			}
		})
	}
}
