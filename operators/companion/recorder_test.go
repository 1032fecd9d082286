// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// recording is a provider whose recorders are all one fake.
type recording struct {
	recorder.Provider
	fake *events.FakeRecorder
}

func (r recording) GetEventRecorder(string) recorder.EventRecorder { return r.fake }

// kube-apiserver refuses an Event whose note is longer than 1024 bytes.
func TestALongNoteIsAbbreviated(t *testing.T) {
	fake := events.NewFakeRecorder(1)
	for name, want := range map[string]string{
		"100 % of it":             "Node x: 100 % of it",
		strings.Repeat("ä", 1000): "Node x: " + strings.Repeat("ä", 506) + "…",
	} {
		Recorder(recording{fake: fake}, "x").Eventf(&corev1.Node{}, nil, corev1.EventTypeNormal, "Reason", "Action", "Node %s: %s", "x", name)
		if got := <-fake.Events; got != "Normal Reason "+want {
			t.Errorf("the Event is %q, with a note of %d bytes, want %q", got, len(got)-len("Normal Reason "), want)
		}
	}
}
