/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package activation

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"workload.openshift.io/partition"
)

const (
	// eventNodeMissing is the reason of an Event on the Node (design, section 4.5).
	eventNodeMissing = "NodeMissingPartition"
	// eventActivated is that of an Event on the namespace kube-system: the latch may close
	// because the last node without the type was removed, which no other Event says.
	eventActivated = "WorkloadTypeActivated"
	// eventNotAllowed is that of an Event there on pods which were perhaps stored before the plugin was there (design,
	// section 4.3).
	eventNotAllowed = "PodsNotAllowed"
)

// SetPods gives what names the pods of a type's partition whose namespaces do not allow the type. It may block until that
// is known. An Event on kube-system names them when this server latches the type.
func (t *Tracker) SetPods(notAllowed func(ctx context.Context, workloadType string) []string) {
	t.notAllowed = notAllowed
}

// record sends Events from now on. A broadcaster never blocks.
func (t *Tracker) record() {
	t.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.client.CoreV1().Events("")})
	recorder := t.events.NewRecorder(scheme.Scheme, v1.EventSource{Component: "workload-partitioning"})
	t.missing = func(node *v1.Node, workloadType string) {
		// As the kubelet refers to its node, so that kubectl describe shows it.
		reference := &v1.ObjectReference{Kind: "Node", Name: node.Name, UID: types.UID(node.Name)}
		recorder.Eventf(reference, v1.EventTypeWarning, eventNodeMissing,
			"The node does not report %s, though the workload type %s is active: its pods cannot run here until the node has a pinning file with that type",
			partition.CoresResource(workloadType), workloadType)
	}
	t.latchedNow = func(ctx context.Context, workloadTypes []string) {
		reference := &v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem, Namespace: metav1.NamespaceSystem}
		recorder.Eventf(reference, v1.EventTypeNormal, eventActivated,
			"All nodes that count report the cores of %s: pods that ask are partitioned from now on, whichever nodes join. To undo this, remove the type from the annotation %s of this namespace",
			strings.Join(workloadTypes, ", "), partition.EnabledAnnotation)
		if t.notAllowed == nil {
			return
		}
		const named = 3 // of pods there may be thousands
		for _, workloadType := range workloadTypes {
			if pods := t.notAllowed(ctx, workloadType); len(pods) > 0 {
				recorder.Eventf(reference, v1.EventTypeWarning, eventNotAllowed,
					"The partition %s has pods whose namespaces do not allow it: %d, the first of them %s. They may have been stored before kube-apiserver had its plugin. Delete them, or annotate their namespaces; kubectl partition status lists all",
					workloadType, len(pods), strings.Join(pods[:min(named, len(pods))], ", "))
			}
		}
	}
}
