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

// Package partition is the core of workload partitioning: the vocabulary that
// pods, namespaces and nodes share, the node's pinning file, and the one
// function that rewrites a pod, [Mutate].
//
// It knows what a partitioned pod looks like and nothing else: no client, no
// informer, no kubelet, no kube-apiserver. The kubelet (for static pods) and the
// admission plugin (for API pods) call it, each through its own shim and on the
// API representation that it holds. So the two cannot drift apart. The package
// imports apimachinery, api and utils, and nothing heavier.
//
// Each rule that keeps a pod from being partitioned has a file, rule_*.go. [Rules]
// is the table of them.
//
// Comments cite sections of the project's design, docs/dev/design.md. "The source
// document" is OpenShift's enhancement proposal management-workload-partitioning.
package partition
