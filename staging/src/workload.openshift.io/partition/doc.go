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
// informer, no kubelet, no kube-apiserver. Both hosts of the mutation, the
// kubelet (static pods) and the admission plugin (API pods), call it through
// shims of their own, on the API representation that they hold, so that the two
// cannot drift apart. It imports apimachinery, api and utils, and nothing
// heavier.
//
// What keeps a pod from being partitioned stands in one file a rule, rule_*.go, and
// [Rules] is the table of them.
//
// Section numbers in comments are those of the project's design document; "the
// source document" is OpenShift's enhancement proposal
// management-workload-partitioning.
package partition
