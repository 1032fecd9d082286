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

package partitioning

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// isMirror reports whether the pod is the mirror of a static pod, sent by the node on which
// that runs. Any user can write the annotation, and a pod that is exempt holds what cores it
// likes; a node that lies holds its own.
func (p *plugin) isMirror(a admission.Attributes, pod *core.Pod) bool {
	if _, annotated := pod.Annotations[core.MirrorPodAnnotationKey]; !annotated {
		return false
	}
	node, isNode := p.nodes.NodeIdentity(a.GetUserInfo())
	return isNode && node != "" && node == pod.Spec.NodeName
}

// mirror leaves what the kubelet wrote, and takes out what LimitRanger has added to it,
// so that a static pod is not counted twice (design, section 4.1). Where the namespace
// would refuse it then, its cores become cpu, with the default limit that LimitRanger gives
// the ordinary pod of that manifest: a control plane must be seen, and is counted once that
// way, too.
func (p *plugin) mirror(a admission.Attributes, pod *core.Pod, again bool) error {
	constraints, err := p.constraints.Of(a)
	if err != nil {
		return err
	}
	constraints.DropDefaultCores(pod, nil)
	ordinary := constraints.Ordinary(pod)
	partition.DropDefaultCPU(internalpod.View(pod), again || constraints.CountsCPU(pod))
	if constraints.Refusal(pod, ordinary) != "" {
		*pod = *ordinary
	}
	return nil
}
