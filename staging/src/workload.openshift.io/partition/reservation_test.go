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

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

func TestReserveMakesPoolsReservedCPUs(t *testing.T) {
	management := Pools{"management": cpuset.New(0, 1)}
	for name, test := range map[string]struct {
		settings KubeletSettings
		pools    Pools
		// wantMillicores are those that allocatable lacks.
		want                                     string
		wantMillicores                           int64
		wantReplaced, wantDropped, wantEnforcing []string
		wantDiffers, wantUnstartable, wantError  string
	}{
		"amounts are replaced": {settings: KubeletSettings{KubeReserved: map[string]string{"cpu": "500m"}, SystemReserved: map[string]string{"memory": "1Gi"}},
			pools: management, want: "0-1", wantMillicores: 2000, wantReplaced: []string{"kubeReserved cpu=500m"}},
		"without a pool amounts count": {settings: KubeletSettings{KubeReserved: map[string]string{"cpu": "500m"}, SystemReserved: map[string]string{"cpu": "1"}},
			pools: Pools{"management": cpuset.New()}, wantMillicores: 1500},
		"reserved cgroups are dropped": {settings: KubeletSettings{KubeReservedCgroup: "/kube", SystemReservedCgroup: "/system.slice", EnforceNodeAllocatable: []string{"pods", "kube-reserved", "system-reserved-compressible"}},
			pools: management, want: "0-1", wantMillicores: 2000, wantEnforcing: []string{"pods"},
			wantDropped: []string{"kubeReservedCgroup=/kube", "enforceNodeAllocatable: kube-reserved", "systemReservedCgroup=/system.slice", "enforceNodeAllocatable: system-reserved-compressible"}},
		"reserved CPUs of one's own are united with the pools": {settings: KubeletSettings{ReservedSystemCPUs: "1-2", KubeReservedCgroup: "/kube"},
			pools: management, want: "0-2", wantMillicores: 3000, wantDiffers: `reservedSystemCPUs "1-2" does not contain CPU 0, which ` + PinningFilePath + " gives to a pool"},
		"upstream's system partition may have the CPUs of the pools": {settings: KubeletSettings{SystemPartitionCPUs: "0,1"}, pools: management, want: "0-1", wantMillicores: 2000},
		"upstream's system partition with other CPUs is an error": {settings: KubeletSettings{SystemPartitionCPUs: "0-2"}, pools: management,
			wantError: "systemPartition.cpuset of the kubelet's configuration has the CPUs 0-2, and the pools of " + PinningFilePath + " have 0-1"},
		"upstream's system partition must be a list":                   {settings: KubeletSettings{SystemPartitionCPUs: "x"}, pools: management, wantError: `systemPartition.cpuset "x"`},
		"without a pool upstream's system partition is left alone":     {settings: KubeletSettings{SystemPartitionCPUs: "0-2"}, pools: Pools{"management": cpuset.New()}},
		"an amount that is none is an error":                           {settings: KubeletSettings{KubeReserved: map[string]string{"cpu": "x"}}, wantError: `kubeReserved cpu "x"`},
		"a list that is none is an error":                              {settings: KubeletSettings{ReservedSystemCPUs: "x"}, pools: management, wantError: `reservedSystemCPUs "x"`},
		"the static policy without a reservation cannot lose its pool": {settings: KubeletSettings{CPUManagerPolicy: StaticPolicy}, pools: Pools{}, wantError: "add reservedSystemCPUs"},
		"nor its file, which upstream says":                            {settings: KubeletSettings{CPUManagerPolicy: StaticPolicy}, wantUnstartable: "add reservedSystemCPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := test.pools.Reserve(&test.settings, "1.37")
			var millicores int64
			if err == nil {
				millicores, err = test.settings.ReservedMillicores()
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("the error is %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil || test.settings.ReservedSystemCPUs != test.want || millicores != test.wantMillicores {
				t.Errorf("reserved are the CPUs %q, %dm (%v)", test.settings.ReservedSystemCPUs, millicores, err)
			}
			if !slices.Equal(found.Replaced, test.wantReplaced) || !slices.Equal(found.Dropped, test.wantDropped) || !slices.Equal(test.settings.EnforceNodeAllocatable, test.wantEnforcing) {
				t.Errorf("replaced %q, dropped %q, enforced are %q", found.Replaced, found.Dropped, test.settings.EnforceNodeAllocatable)
			}
			if !strings.HasPrefix(found.Differs, test.wantDiffers) || !strings.Contains(found.Unstartable, test.wantUnstartable) || (found.Unstartable == "") != (test.wantUnstartable == "") {
				t.Errorf("it differs: %q, unstartable: %q", found.Differs, found.Unstartable)
			}
		})
	}
}

func TestReserveKeepsTheOptionsOfThePolicy(t *testing.T) {
	before := map[string]string{"full-pcpus-only": "true"}
	settings := KubeletSettings{CPUManagerPolicy: StaticPolicy, CPUManagerPolicyOptions: before}
	if _, err := (Pools{"management": cpuset.New(0)}).Reserve(&settings, "1.37"); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"full-pcpus-only": "true", StrictReservation: "true"}; !maps.Equal(settings.CPUManagerPolicyOptions, want) || !settings.Strict() {
		t.Errorf("the options are %v, want %v", settings.CPUManagerPolicyOptions, want)
	}
	if len(before) != 1 {
		t.Errorf("the caller's map has become %v", before)
	}
}

func TestStrictReservationNeedsAGateUpToV134(t *testing.T) {
	off := map[string]bool{betaOptions: false}
	for name, test := range map[string]struct {
		release, policy string
		gates           map[string]bool
		pool            cpuset.CPUSet
		want            string
	}{
		"v1.34 without the gate":                       {release: "1.34", policy: StaticPolicy, pool: cpuset.New(0), gates: off, want: "featureGates: CPUManagerPolicyBetaOptions is false"},
		"v1.34 without any beta feature":               {release: "1.34", policy: StaticPolicy, pool: cpuset.New(0), gates: map[string]bool{"AllBeta": false}, want: "featureGates: AllBeta is false"},
		"v1.34 without any other beta feature":         {release: "1.34", policy: StaticPolicy, pool: cpuset.New(0), gates: map[string]bool{"AllBeta": false, betaOptions: true}},
		"v1.34 with what is the default":               {release: "1.34", policy: StaticPolicy, pool: cpuset.New(0)},
		"v1.35 without the gate":                       {release: "1.35", policy: StaticPolicy, pool: cpuset.New(0), gates: off},
		"v1.34 without the gate, under policy none":    {release: "1.34", policy: "none", pool: cpuset.New(0), gates: off},
		"v1.34 without the gate, and there is no pool": {release: "1.34", policy: StaticPolicy, gates: off},
	} {
		t.Run(name, func(t *testing.T) {
			settings := KubeletSettings{CPUManagerPolicy: test.policy, KubeReserved: map[string]string{"cpu": "500m"}, FeatureGates: test.gates}
			_, err := Pools{"management": test.pool}.Reserve(&settings, test.release)
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}
