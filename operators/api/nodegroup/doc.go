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

// Package nodegroup says which nodes belong together, and who may act on them: on one node by a
// claim, on several by a lock. It knows neither who acts nor what is done (docs/dev/operators.md).
//
// Whatever this package writes it writes with the resource version that it has read. A conflict is
// an error like any other: nothing was written, and the caller looks again.
package nodegroup
