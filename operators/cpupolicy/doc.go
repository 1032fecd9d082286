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

// Package cpupolicy has the rules of a switch of one node's CPU manager policy, as functions of
// plain values: what the annotation says and who may write it, what must be true before a switch,
// which pods a restarted kubelet would reject, what a virtual machine with dedicated CPUs must look
// like. It knows no client, no file and no process (docs/dev/operators.md).
//
// A VM in these files is one of KubeVirt's: a VirtualMachine or its VirtualMachineInstance.
package cpupolicy
