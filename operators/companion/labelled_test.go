// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestLabelled(t *testing.T) {
	configMap := func(labels ...string) *corev1.ConfigMap {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for _, label := range labels {
			object.Labels[label] = ""
		}
		return object
	}
	p := Labelled[*corev1.ConfigMap]("a", "b")
	for name, test := range map[string]struct {
		before, now *corev1.ConfigMap
		want        bool
	}{
		"one of them":             {configMap("b"), configMap("b"), true},
		"none of them":            {configMap("c"), configMap("c"), false},
		"one that is taken away":  {configMap("a", "c"), configMap("c"), true},
		"one that is put on":      {configMap(), configMap("a"), true},
		"no labels at all, twice": {configMap(), configMap(), false},
	} {
		if got := p.Update(event.TypedUpdateEvent[*corev1.ConfigMap]{ObjectOld: test.before, ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: an update passes: %t", name, got)
		}
	}
	if !p.Create(event.TypedCreateEvent[*corev1.ConfigMap]{Object: configMap("a")}) || p.Create(event.TypedCreateEvent[*corev1.ConfigMap]{Object: configMap("c")}) ||
		!p.Delete(event.TypedDeleteEvent[*corev1.ConfigMap]{Object: configMap("a")}) || p.Delete(event.TypedDeleteEvent[*corev1.ConfigMap]{Object: configMap("c")}) {
		t.Error("an object that comes or goes passes by its own labels")
	}
}
