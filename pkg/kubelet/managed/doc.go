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

// Package managed is what the kubelet's hooks call: a shim between the kubelet and the core. A
// hook is one or a few lines in an upstream file; what they do is defined here.
//
// Without a pinning file, and without a record of a previous one, every function returns what
// upstream would have without it. With a record only, the kubelet takes back what a previous
// kubelet set: RunningContainerCPUs and RepairPodCgroup free containers and pods,
// ConfineClasses frees the QoS classes, SetCores removes cores, and StartPolicy and
// MoveContainers remove the record.
//
// The package knows the kubelet's types, and nothing of API clients or admission. Its state
// belongs to the process: a kubelet has one pinning file and reads it once.
package managed
