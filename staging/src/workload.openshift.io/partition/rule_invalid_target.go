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

// ReasonInvalidTarget: it is unknown which type or effect the author meant, so there is nothing
// to fall back to (design, section 4.1). [ParseTarget] decides, and [Decision.Errors] say what
// is wrong.
const ReasonInvalidTarget Reason = "invalid_target"

var invalidTargetRule = Rule{
	Reason:    ReasonInvalidTarget,
	Condition: "two targets, an invalid type, or a value that is not a JSON object with a known effect",
	Text:      "workload type ignored: ",
	Whole:     true,
	Soft:      Unprocessable,
	Hard:      Unprocessable,
}
