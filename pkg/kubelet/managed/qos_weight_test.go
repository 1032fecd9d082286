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

package managed

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestBurstableKeepsItsWeightOverARestart(t *testing.T) {
	for name, test := range map[string]struct {
		directory string
		// weight is the file in which the class has its weight, and the weight.
		weight     string
		off, ready bool
		wantKept   bool
	}{
		"v1: pods ran before":                                 {directory: "cpu/kubepods/burstable/pod1", wantKept: true},
		"v2: pods ran before":                                 {directory: "kubepods/burstable/pod1", wantKept: true},
		"v1: a larger weight is written":                      {directory: "cpu/kubepods/burstable/pod1", weight: "cpu/kubepods/burstable/cpu.shares=101"},
		"v1: the same weight is not written":                  {directory: "cpu/kubepods/burstable/pod1", weight: "cpu/kubepods/burstable/cpu.shares=102", wantKept: true},
		"v2: a larger weight is written":                      {directory: "kubepods/burstable/pod1", weight: "kubepods/burstable/cpu.weight=3"},
		"v2: the same weight is not written":                  {directory: "kubepods/burstable/pod1", weight: "kubepods/burstable/cpu.weight=4", wantKept: true},
		"v1: the host has booted":                             {directory: "cpu/kubepods/burstable"},
		"v2: the host has booted":                             {directory: "kubepods/burstable"},
		"the class has no cgroup":                             {directory: "x"},
		"the kubelet knows all pods":                          {directory: "cpu/kubepods/burstable/pod1", ready: true},
		"the feature is off, so upstream's weight is written": {directory: "cpu/kubepods/burstable/pod1", off: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := cgroupRoot
			cgroupRoot = t.TempDir()
			t.Cleanup(func() {
				cgroupRoot = before
				shim.weighedBefore.decide, shim.weighedBefore.yes = sync.Once{}, false
			})
			if err := os.MkdirAll(filepath.Join(cgroupRoot, test.directory), 0o755); err != nil {
				t.Fatal(err)
			}
			if !test.off {
				on(t, management)
				FollowPods(nil, func() bool { return test.ready }, nil, nil, none{}, nil)
				t.Cleanup(func() { shim.observed = observation{} })
			}
			if file, weight, found := strings.Cut(test.weight, "="); found {
				if err := os.WriteFile(filepath.Join(cgroupRoot, file), []byte(weight+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			computed := uint64(102)
			shares := &computed
			KeepBurstableWeight("/kubepods/burstable", &shares)
			if kept := shares == nil; kept != test.wantKept {
				t.Errorf("the weight was kept: %v, want %v", kept, test.wantKept)
			}
		})
	}
}
