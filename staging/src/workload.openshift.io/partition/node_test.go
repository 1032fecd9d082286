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

import "testing"

func TestNodesThatCanHaveAPoolCount(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"a node without labels":              {nil, true},
		"a Linux node":                       {map[string]string{"kubernetes.io/os": "linux"}, true},
		"a Windows node":                     {map[string]string{"kubernetes.io/os": "windows"}, false},
		"a virtual kubelet's node":           {map[string]string{"kubernetes.io/os": "linux", "type": "virtual-kubelet"}, false},
		"a node that its owner leaves out":   {map[string]string{"workload.openshift.io/partitioning": "ignore"}, false},
		"a node whose label says what is on": {map[string]string{"workload.openshift.io/partitioning": "management"}, true},
	} {
		if got := NodeCounts(test.labels); got != test.want {
			t.Errorf("%s counts: %v, want %v", name, got, test.want)
		}
	}
}
