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

func TestStrictReservationNeedsAGateUpToV134(t *testing.T) {
	off := map[string]bool{betaOptions: false}
	for name, test := range map[string]struct {
		release, policy string
		gates           map[string]bool
		pool            cpuset.CPUSet
		want            string
	}{
		"v1.34 without the gate":                       {release: "1.34", policy: staticPolicy, pool: cpuset.New(0), gates: off, want: "featureGates: CPUManagerPolicyBetaOptions is false"},
		"v1.34 without any beta feature":               {release: "1.34", policy: staticPolicy, pool: cpuset.New(0), gates: map[string]bool{"AllBeta": false}, want: "featureGates: AllBeta is false"},
		"v1.34 without any other beta feature":         {release: "1.34", policy: staticPolicy, pool: cpuset.New(0), gates: map[string]bool{"AllBeta": false, betaOptions: true}},
		"v1.34 with what is the default":               {release: "1.34", policy: staticPolicy, pool: cpuset.New(0)},
		"v1.35 without the gate":                       {release: "1.35", policy: staticPolicy, pool: cpuset.New(0), gates: off},
		"v1.34 without the gate, under policy none":    {release: "1.34", policy: "none", pool: cpuset.New(0), gates: off},
		"v1.34 without the gate, and there is no pool": {release: "1.34", policy: staticPolicy, gates: off},
	} {
		t.Run(name, func(t *testing.T) {
			before := release
			release = test.release
			t.Cleanup(func() { release = before })
			config := &kubeletconfig.KubeletConfiguration{CPUManagerPolicy: test.policy, KubeReserved: map[string]string{"cpu": "500m"}, FeatureGates: test.gates}
			err := reservePools(config, partition.Pools{"management": test.pool})
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}
