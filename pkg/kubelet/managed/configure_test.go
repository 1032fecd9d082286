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
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestConfigureFitsTheConfigurationToThePools(t *testing.T) {
	pools := func(cpus ...int) partition.Pools { return partition.Pools{"management": cpuset.New(cpus...)} }
	static := func(change func(*kubeletconfig.KubeletConfiguration)) kubeletconfig.KubeletConfiguration {
		config := kubeletconfig.KubeletConfiguration{CPUManagerPolicy: "static"}
		if change != nil {
			change(&config)
		}
		return config
	}
	strict := func(value string) kubeletconfig.KubeletConfiguration {
		return static(func(c *kubeletconfig.KubeletConfiguration) {
			c.CPUManagerPolicyOptions = map[string]string{partition.StrictReservation: value}
		})
	}
	for name, test := range map[string]struct {
		config       kubeletconfig.KubeletConfiguration
		pools        partition.Pools
		wantReserved string
		wantStrict   string
		wantEvent    string
		wantError    string
	}{
		"pools become reserved CPUs":                       {pools: pools(0, 1), wantReserved: "0-1"},
		"reserved CPUs may contain more than the pools":    {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0-2"}, pools: pools(0, 1), wantReserved: "0-2"},
		"reserved CPUs and pools are united":               {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0,3"}, pools: pools(0, 1), wantReserved: "0-1,3", wantEvent: `ReservedCPUsDiffer reservedSystemCPUs "0,3" does not contain CPU 1`},
		"reserved CPUs must be a list":                     {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "x"}, pools: pools(0), wantError: `reservedSystemCPUs "x"`},
		"the static policy becomes strict":                 {config: static(nil), pools: pools(0), wantReserved: "0", wantStrict: "true"},
		"any value that upstream reads as true stays":      {config: strict("1"), pools: pools(0), wantReserved: "0", wantStrict: "1"},
		"a policy that shares the pools is an error":       {config: strict("false"), pools: pools(0), wantError: partition.StrictReservation},
		"a value that is not a boolean is an error":        {config: strict("yes"), pools: pools(0), wantError: partition.StrictReservation + ` is "yes"`},
		"empty pools need a reservation":                   {config: static(nil), pools: pools(), wantError: "add reservedSystemCPUs, or cpu to kubeReserved or systemReserved"},
		"a reservation of zero CPUs is none":               {config: static(func(c *kubeletconfig.KubeletConfiguration) { c.KubeReserved = map[string]string{"cpu": "0"} }), pools: pools(), wantError: "add reservedSystemCPUs"},
		"with a reservation empty pools change nothing":    {config: static(func(c *kubeletconfig.KubeletConfiguration) { c.SystemReserved = map[string]string{"cpu": "500m"} }), pools: pools()},
		"under the policy none empty pools change nothing": {pools: pools()},
		"without a file the error is left to upstream":     {config: static(nil)},
		"reserved cgroups are dropped, and an Event says so": {config: kubeletconfig.KubeletConfiguration{SystemReservedCgroup: "/system.slice",
			EnforceNodeAllocatable: []string{"pods", "system-reserved-compressible"}}, pools: pools(0), wantReserved: "0",
			wantEvent: "dropped: systemReservedCgroup=/system.slice, enforceNodeAllocatable: system-reserved-compressible"},
		"reserved cgroups with explicit reserved CPUs are left to upstream": {config: kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: "0", SystemReservedCgroup: "/system.slice",
			EnforceNodeAllocatable: []string{"pods", "system-reserved"}}, pools: pools(0), wantReserved: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := recordEvents(t)
			explicit := test.config.ReservedSystemCPUs != ""
			err := reservePools(&test.config, test.pools)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("the error is %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil || test.config.ReservedSystemCPUs != test.wantReserved || test.config.CPUManagerPolicyOptions[partition.StrictReservation] != test.wantStrict {
				t.Errorf("got %v, reserved %q, options %v", err, test.config.ReservedSystemCPUs, test.config.CPUManagerPolicyOptions)
			}
			expectEvent(t, recorder, test.wantEvent)
			if forbidden := test.config.SystemReservedCgroup != "" || len(test.config.EnforceNodeAllocatable) > 1; forbidden && !explicit {
				t.Errorf("with the reserved CPUs there still are %q and %q", test.config.SystemReservedCgroup, test.config.EnforceNodeAllocatable)
			}
		})
	}
}
