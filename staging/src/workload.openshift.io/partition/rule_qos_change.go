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

package partition

// ReasonQoSChange: a pod whose only request is cpu would become BestEffort. The QoS class
// decides about eviction and about the pod's cgroup, so [Mutate] never changes it (design,
// section 5).
const ReasonQoSChange Reason = "qos_change"

var qosChangeRule = Rule{
	Reason:    ReasonQoSChange,
	Condition: "without `cpu` the QoS class would change: give a container a memory request",
	Text:      "without its CPU request the pod would become BestEffort; give a container a memory request to have it partitioned",
	Soft:      Warning,
	Hard:      Forbidden,
}

func (p Pod[L, N]) changesQoS(found findings) bool { return found.class != p.qos(nil) }
