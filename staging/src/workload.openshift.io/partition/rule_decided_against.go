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

// ReasonDecidedAgainst: OpenShift's Infrastructure object decides on the type, and has
// decided against it. Its owner knows that, and payloads ask on every cluster: a warning for
// each of their pods would teach people to read none (design, section 4.1). It has to do with
// no namespace, so it is found before any reason that has.
const ReasonDecidedAgainst Reason = "decided_against"

var decidedAgainstRule = Rule{
	Reason:     ReasonDecidedAgainst,
	Condition:  "the object `Infrastructure` decides on the type, and its `status.cpuPartitioning` is not `AllNodes`",
	StaticPods: "never",
	Text:       "the cluster's Infrastructure object has decided against it (status.cpuPartitioning is not AllNodes)",
	Soft:       Silence,
	Hard:       Forbidden,
}
