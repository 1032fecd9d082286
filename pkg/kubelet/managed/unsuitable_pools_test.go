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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestPoolsThatDoNotSuitTheHostAreReported(t *testing.T) {
	const unlike, alike = "0-1 2-3 4 5", "0-1 2-3 4-5"
	for name, test := range map[string]struct {
		policy, release, cores, isolated string
		pool                             cpuset.CPUSet
		wantEvent                        string
	}{
		"the pool has a part of a core of two kinds": {policy: "static", release: "1.37", cores: unlike, pool: cpuset.New(0), wantEvent: "Warning PoolSplitsCore A pool has CPU 0 without the rest of its physical core or socket"},
		"it has whole cores":                         {policy: "static", release: "1.37", cores: unlike, pool: cpuset.New(0, 1, 4)},
		"all cores are alike":                        {policy: "static", release: "1.37", cores: alike, pool: cpuset.New(0)},
		"the policy none gives nothing away":         {policy: "none", release: "1.37", cores: unlike, pool: cpuset.New(0)},
		"v1.38 looks at each core":                   {policy: "static", release: "1.38", cores: unlike, pool: cpuset.New(0)},
		"the kernel shows no cores":                  {policy: "static", release: "1.37", pool: cpuset.New(0)},
		"the pool is isolated":                       {policy: "none", release: "1.37", cores: alike, isolated: "0-3", pool: cpuset.New(0, 1), wantEvent: `Warning PoolOnIsolatedCPUs The pool of workload type management has CPU 0-1, which the kernel argument isolcpus names`},
		"the pool is not isolated, and others are":   {policy: "none", release: "1.37", cores: alike, isolated: "2-3", pool: cpuset.New(0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			startedIn(t, t.TempDir())
			shim.host.log, _ = ktesting.NewTestContext(t)
			shim.host.online, shim.host.static, shim.host.isolated = cpuset.New(0, 1, 2, 3, 4, 5), test.policy == "static", parse(t, test.isolated)
			before, of := release, cpuTopology
			release, cpuTopology = test.release, t.TempDir()
			t.Cleanup(func() { release, cpuTopology = before, of })
			for _, core := range strings.Fields(test.cores) {
				for _, cpu := range parse(t, core).List() {
					directory := filepath.Join(cpuTopology, fmt.Sprint("cpu", cpu), "topology")
					if err := os.MkdirAll(directory, 0o755); err != nil {
						t.Fatal(err)
					}
					for file, text := range map[string]string{"thread_siblings_list": core, "physical_package_id": "0"} {
						if err := os.WriteFile(filepath.Join(directory, file), []byte(text+"\n"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			recorder := recordEvents(t)
			newNode(partition.Pools{"management": test.pool}, shim.host.online, shim.host.isolated, test.pool).reportUnsuitablePools()
			expectEvent(t, recorder, test.wantEvent)
			expectEvent(t, recorder, "")
		})
	}
}
