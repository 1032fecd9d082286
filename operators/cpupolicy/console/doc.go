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

// Package console lets people and tools switch the CPU manager policy of nodes over HTTP: by the
// actions that tools of Harvester know, and by pages for a browser. Both read Nodes, and ask for a
// policy through [Requester].
//
// Nobody gets more than kube-apiserver allows: it reviews each token, for the audience [Audience],
// and each list, page and action. It knows no rule of a switch, and does not know how a node is
// changed.
package console
