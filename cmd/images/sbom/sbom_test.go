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

package sbom

import (
	"runtime/debug"
	"testing"
)

func TestAModuleIsIdentifiedByWhatWasCompiled(t *testing.T) {
	for _, test := range []struct {
		name, path, version string
		module              debug.Module
	}{
		{"a module", "k8s.io/klog/v2", "v2.140.0", debug.Module{Path: "k8s.io/klog/v2", Version: "v2.140.0"}},
		{"one of the tree", "k8s.io/kubernetes", "v1.37.0+wp.1234567", debug.Module{Path: "k8s.io/kubernetes", Version: "(devel)"}},
		{"a staging module of the tree", "k8s.io/api", "v0.37.0", debug.Module{Path: "k8s.io/api", Version: "(devel)"}},
		{"a staging module replaced by a directory", "k8s.io/api", "v0.37.0", debug.Module{Path: "k8s.io/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./staging/src/k8s.io/api"}}},
		{"one replaced by a directory", "workload.openshift.io/partition", "v1.37.0+wp.1234567", debug.Module{Path: "workload.openshift.io/partition", Version: "v0.0.0", Replace: &debug.Module{Path: "../../staging/src/workload.openshift.io/partition"}}},
		{"one replaced by a fork", "example.com/fork", "v1.2.0", debug.Module{Path: "example.com/original", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.0"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if path, version := identify(&test.module, "v1.37.0+wp.1234567", "v1.37.0"); path != test.path || version != test.version {
				t.Errorf("it is %s@%s, want %s@%s", path, version, test.path, test.version)
			}
		})
	}
}
