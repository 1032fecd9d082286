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

// Package v1alpha1 holds the configuration files of the operators' programs: their kinds, their
// defaults, and what is wrong with one. A file is read strictly, and an error names the file, the
// field and the value.
//
// It knows what can be chosen, and not what follows from a choice: it imports no client and nothing
// else of this module.
//
// +kubebuilder:object:generate=true
// +groupName=config.workload.openshift.io
package v1alpha1
