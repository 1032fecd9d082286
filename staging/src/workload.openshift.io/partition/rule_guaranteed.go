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

// ReasonGuaranteed: a Guaranteed pod asks for its own CPUs, and pods share a pool (design,
// section 5).
const ReasonGuaranteed Reason = "guaranteed"

var guaranteedRule = Rule{
	Reason:    ReasonGuaranteed,
	Condition: "the QoS class is Guaranteed",
	Text:      "the pod has the QoS class Guaranteed, whose CPU is its own; give it requests below its limits to have it partitioned",
	Soft:      Warning,
	Hard:      Forbidden,
}

func (f findings) isGuaranteed() bool { return f.class == guaranteed }
