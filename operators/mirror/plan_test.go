// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// configMap is written as NAME, or NAME=VALUE, and has options after a blank: immutable, and bare for one without the
// mirror's label.
func configMap(text string) *unstructured.Unstructured {
	words := strings.Fields(text)
	name, value, _ := strings.Cut(words[0], "=")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": value}}}
	object.SetNamespace("target")
	object.SetName(name)
	if !slices.Contains(words, "bare") {
		object.SetLabels(map[string]string{"mirror": "test"})
	}
	if slices.Contains(words, "immutable") {
		object.Object[immutableField] = true
	}
	return object
}

func configMaps(texts []string) (objects []*unstructured.Unstructured) {
	for _, text := range texts {
		object := configMap(text)
		object.SetUID(types.UID("uid-" + object.GetName()))
		objects = append(objects, object)
	}
	return objects
}

func TestPlan(t *testing.T) {
	now := time.Unix(1000, 0)
	certain := func(copied *unstructured.Unstructured) bool { return strings.HasPrefix(copied.GetName(), "surely-") }
	for name, test := range map[string]struct {
		there, copies, keep []string
		patience            time.Duration
		since               map[string]time.Duration // how long ago a look first did not want a copy
		want                []string                 // actions
		again               time.Duration
		problem             string
	}{
		"what is wanted and not there is created":                 {copies: []string{"a=1"}, want: []string{"Create a=1"}},
		"what is right is left alone":                             {there: []string{"a=1"}, copies: []string{"a=1"}},
		"what differs is updated":                                 {there: []string{"a=1"}, copies: []string{"a=2"}, want: []string{"Update a=2"}},
		"what lacks the label is taken over":                      {there: []string{"a=1 bare"}, copies: []string{"a=1"}, want: []string{"Update a=1"}},
		"an immutable copy that differs is made again":            {there: []string{"a=1 immutable"}, copies: []string{"a=2"}, want: []string{"Recreate a=2"}},
		"an immutable copy that is right is left alone":           {there: []string{"a=1 immutable"}, copies: []string{"a=1"}},
		"an immutable copy that lacks the label alone is updated": {there: []string{"a=1 bare immutable"}, copies: []string{"a=1"}, want: []string{"Update a=1"}},
		"what is to be kept stays":                                {there: []string{"a=1"}, keep: []string{"a"}, patience: time.Second},
		"what is to be kept and not there is not created":         {keep: []string{"a"}},
		"what is certainly unwanted goes":                         {there: []string{"surely-a=1"}, want: []string{"Delete surely-a=1"}},
		"what one look does not want stays":                       {there: []string{"a=1"}, patience: 10 * time.Second, again: 10 * time.Second},
		"and goes if another look does not want it either":        {there: []string{"a=1"}, patience: 10 * time.Second, since: map[string]time.Duration{"a": 10 * time.Second}, want: []string{"Delete a=1"}},
		"but not before its time":                                 {there: []string{"a=1"}, patience: 10 * time.Second, since: map[string]time.Duration{"a": 4 * time.Second}, again: 6 * time.Second},
		"without patience it stays for good":                      {there: []string{"a=1"}, since: map[string]time.Duration{"a": time.Hour}},
		"a successor is there before its predecessor goes":        {there: []string{"surely-a=1"}, copies: []string{"b=1"}, want: []string{"Create b=1", "Delete surely-a=1"}},
		"two sources of one copy change nothing":                  {there: []string{"a=1"}, copies: []string{"a=2", "a=3", "b=1"}, want: []string{"Create b=1"}, problem: "ConfigMap target/a: two sources"},
		"two sources of the same copy are no problem":             {copies: []string{"a=2", "a=2"}, want: []string{"Create a=2"}},
		"what stands there and is nobody's copy stays":            {there: []string{"theirs=1 bare"}, copies: []string{"theirs=2", "b=1"}, want: []string{"Create b=1"}, problem: "ConfigMap target/theirs is somebody else's"},
		"three sources of one copy are told once":                 {copies: []string{"a=1", "a=2", "a=3"}, problem: "ConfigMap target/a: two sources"},
	} {
		t.Run(name, func(t *testing.T) {
			unwanted := Unwanted{}
			for name, ago := range test.since {
				unwanted[types.UID("uid-"+name)] = now.Add(-ago)
			}
			want := Want{Certain: certain, Patience: test.patience, Takes: func(_, standing *unstructured.Unstructured) bool { return standing.GetName() != "theirs" }}
			for _, text := range test.copies {
				want.Copies = append(want.Copies, configMap(text))
			}
			for _, name := range test.keep {
				want.Keep = append(want.Keep, types.NamespacedName{Namespace: "target", Name: name})
			}
			planned := Plan(configMaps(test.there), want, unwanted, now)
			var got []string
			for _, a := range planned.Actions {
				value, _, _ := unstructured.NestedString(a.Object.Object, "data", "key")
				got = append(got, fmt.Sprintf("%s %s=%s", a.Kind, a.Object.GetName(), value))
				if a.Kind != Delete && a.Object.GetLabels()["mirror"] != "test" {
					t.Errorf("%s lacks the label: %v", a.Kind, a.Object.GetLabels())
				}
				if uid := a.Object.GetUID(); (uid == "") != (a.Kind == Create) {
					t.Errorf("%s has the UID %q", a.Kind, uid)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.again == 0 != planned.Again.IsZero() || test.again != 0 && !planned.Again.Equal(now.Add(test.again)) {
				t.Errorf("it looks again at %v, want %v after %v", planned.Again, test.again, now)
			}
			if test.problem == "" && len(planned.Problems) > 0 || test.problem != "" && (len(planned.Problems) != 1 || !strings.Contains(planned.Problems[0].Error(), test.problem)) {
				t.Errorf("the problems are %v, want %q", planned.Problems, test.problem)
			}
		})
	}
}

// Others put labels and annotations on what they see, and a controller its status. A copy keeps them.
func TestACopyKeepsWhatOthersAdd(t *testing.T) {
	there := configMap("a=1")
	there.SetLabels(map[string]string{"mirror": "test", "theirs": "x"})
	there.SetAnnotations(map[string]string{"theirs": "x"})
	there.Object["status"] = map[string]any{"ready": true}
	there.Object["binaryData"] = map[string]any{"added": "eA=="}
	planned := Plan([]*unstructured.Unstructured{there}, Want{Copies: []*unstructured.Unstructured{configMap("a=1")}}, nil, time.Now())
	if len(planned.Actions) != 1 || planned.Actions[0].Kind != Update {
		t.Fatalf("got %v, want an update that takes the added data out", planned.Actions)
	}
	next := planned.Actions[0].Object
	if next.GetLabels()["theirs"] != "x" || next.GetAnnotations()["theirs"] != "x" || next.Object["status"] == nil || next.Object["binaryData"] != nil {
		t.Errorf("got %v", next)
	}
	if again := Plan([]*unstructured.Unstructured{next}, Want{Copies: []*unstructured.Unstructured{configMap("a=1")}}, nil, time.Now()); len(again.Actions) > 0 {
		t.Errorf("then it does %v", again.Actions)
	}
}
