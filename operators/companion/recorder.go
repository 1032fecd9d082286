// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"workload.openshift.io/operators/api/untrusted"
)

// Recorder returns what writes a companion's Events. It abbreviates notes that kube-apiserver would refuse.
func Recorder(provider recorder.Provider, name string) events.EventRecorder {
	return abbreviating{provider.GetEventRecorder(FieldOwner(name))}
}

type abbreviating struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (a abbreviating) Eventf(regarding, related runtime.Object, kind, reason, action, note string, arguments ...any) {
	a.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", untrusted.Note(fmt.Sprintf(note, arguments...)))
}
