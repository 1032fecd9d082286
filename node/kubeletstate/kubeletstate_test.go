// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"os"
	"strings"
	"testing"
)

func TestCheckpointsOfEveryFormatAreRead(t *testing.T) {
	v4, err := os.ReadFile("testdata/cpu_manager_state.v1.37") // a kubelet's state package wrote it
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data, policy, shared, held, damaged string
	}{
		"format 2":                         {data: `{"policyName":"static","defaultCpuSet":"1-2","entries":{"uid-a":{"c":"3"}},"checksum":1}`, policy: "static", shared: "1-2", held: "container c of pod uid-a: 3"},
		"format 3":                         {data: `{"policyName":"static","defaultCpuSet":"1","podEntries":{"uid-b":{"cpuSet":"4-5"}},"checksum":1}`, policy: "static", shared: "1", held: "pod uid-b: 4-5"},
		"format 4":                         {data: string(v4), policy: "static", shared: "1-2", held: "container c of pod uid-a: 3, pod uid-b: 4-5"},
		"under the policy none":            {data: `{"policyName":"none","defaultCpuSet":"","checksum":1}`, policy: "none"},
		"format 4, edited by hand":         {data: strings.Replace(string(v4), "4-5", "4-6", 1), damaged: "its checksum is 88768669, want"},
		"format 4 cut off":                 {data: string(v4[:len(v4)-20]), damaged: "unexpected end"},
		"nothing":                          {damaged: "unexpected end"},
		"shared CPUs that are none":        {data: `{"policyName":"static","defaultCpuSet":"x"}`, damaged: `defaultCpuSet "x"`},
		"exclusive CPUs without an end":    {data: `{"policyName":"static","defaultCpuSet":"1","entries":{"u":{"c":"0-2000000000"}}}`, damaged: `container "c" of pod "u"`},
		"a whole pod's CPUs that are none": {data: `{"policyName":"static","defaultCpuSet":"1","podEntries":{"u":{"cpuSet":"x"}}}`, damaged: `of pod "u"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := ParseCheckpoint([]byte(test.data))
			var held []string
			for _, a := range c.Assignments {
				held = append(held, a.Holder(a.Pod)+": "+a.CPUs.String())
			}
			if c.Policy != test.policy || c.Shared.String() != test.shared || strings.Join(held, ", ") != test.held {
				t.Errorf("the checkpoint is %+v", c)
			}
			if !strings.Contains(c.Damaged, test.damaged) || (c.Damaged == "") != (test.damaged == "") {
				t.Errorf("it is damaged: %q, want %q", c.Damaged, test.damaged)
			}
		})
	}
}
