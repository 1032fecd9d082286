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

// Package partitiontest has pods as users write them, and what must become of each. The core,
// the admission plugin, the kubelet and a real cluster are tested on the same pods.
//
// It knows pods, nodes, namespaces and outcomes, and not how a caller of the core is asked: it
// imports no client, and nothing of a caller.
package partitiontest
