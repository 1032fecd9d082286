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

package managed

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// PartitionStaticPod partitions a static pod, or makes it an ordinary one (design, sections 3
// and 5). It never refuses a pod: there is no client to answer, and a control plane must always
// start.
func PartitionStaticPod(pod *core.Pod) {
	n := shim.current.Load()
	if n == nil {
		return
	}
	delete(pod.Annotations, partition.WarningAnnotation)
	decision := partition.Mutate(internalpod.View(pod), partition.Policy{Gate: n.pools.Gate, NeverRefuse: true})
	distinguish(pod, decision)
	message := decision.Message()
	if firstTime(pod, message) {
		shim.host.log.Error(nil, "Static pod runs as an ordinary pod", "pod", klog.KObj(pod), "reason", decision.Reason, "message", message)
		staticPodsSkipped.WithLabelValues(string(decision.Reason)).Inc()
		// The kubelet has not set the default namespace yet.
		nodeEvent(v1.EventTypeWarning, partition.EventStaticPodNotPartitioned, "Static pod %s/%s: %s", cmp.Or(pod.Namespace, v1.NamespaceDefault), pod.Name, message)
	}
}

// maxSkipped is how many static pods are remembered before all are forgotten, since manifests
// come and go.
const maxSkipped = 1000

// firstTime reports whether a message about a static pod is new. The empty message forgets
// the pod.
func firstTime(pod *core.Pod, message string) bool {
	shim.observed.Lock()
	defer shim.observed.Unlock()
	key := pod.Namespace + "/" + pod.Name
	if message == "" {
		delete(shim.observed.skipped, key)
		return false
	}
	if shim.observed.skipped[key] == message {
		return false
	}
	if shim.observed.skipped == nil || len(shim.observed.skipped) >= maxSkipped {
		shim.observed.skipped = map[string]string{}
	}
	shim.observed.skipped[key] = message
	return true
}
