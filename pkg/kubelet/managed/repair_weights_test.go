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
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestWrongWeightsAndQuotasAreRepairedOnce(t *testing.T) {
	resources := func(shares, quota, period int64, cpus string) *runtimeapi.LinuxContainerResources {
		return &runtimeapi.LinuxContainerResources{CpuShares: shares, CpuQuota: quota, CpuPeriod: period, CpusetCpus: cpus}
	}
	for name, test := range map[string]struct {
		unlimited bool
		ordinary  bool
		has       *runtimeapi.LinuxContainerResources
		want      *runtimeapi.LinuxContainerResources
	}{
		"everything is right":                            {has: resources(409, 50000, 100000, "0-1")},
		"the runtime reads the annotations":              {has: resources(400, 50000, 100000, "0-1")},
		"the weight is wrong":                            {has: resources(2, 50000, 100000, "0-1"), want: resources(409, 0, 0, "0-1")},
		"the limit is missing":                           {has: resources(409, 0, 0, "0-1"), want: resources(0, 50000, 100000, "0-1")},
		"the limit has another period":                   {has: resources(409, 50000, 50000, "0-1"), want: resources(0, 50000, 100000, "0-1")},
		"everything is wrong: one update":                {has: resources(2, 0, 0, ""), want: resources(409, 50000, 100000, "0-1")},
		"the container has no limit, and asked for none": {unlimited: true, has: resources(409, 0, 0, "0-1")},
		"the container has a limit, and asked for none":  {unlimited: true, has: resources(409, 50000, 100000, "0-1")},
		"an ordinary container's weight is left alone":   {ordinary: true, has: resources(2, 0, 0, "2-3")},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, management)
			runtime := &fakeRuntime{linux: test.has}
			restarted(t, runtime)
			pod := partitionedPod()
			if test.unlimited {
				pod.Annotations[partition.ResourcesAnnotation("c")] = `{"cpushares":400}`
			}
			if test.ordinary {
				pod = ordinaryPod()
			}
			for range 3 {
				reconcile(pod, runtime, cpuset.New())
			}
			runtime.expectUpdate(t, test.want)
		})
	}
}
