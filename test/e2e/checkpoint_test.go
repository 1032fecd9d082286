// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// The shared CPUs in the CPU manager's checkpoint are derived when the kubelet starts, so a write
// that was cut in two, and CPUs that came or went, do not keep it from starting.
func TestCheckpointIsDerived(t *testing.T) {
	in(t, vm)
	needsCPUs(t, 4)
	c := partitioned(t)
	quietNode(t, c)
	namespace := fixture.Namespace(t, c.Client, "management")
	pods := start(t, c, namespace, fixture.Pod("shared", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")),
		fixture.Exclusive("exclusive", 1))
	t.Cleanup(func() { releaseExclusive(t, c, pods[1]) })
	path := filepath.Join(c.KubeletDir(), "cpu_manager_state")
	// The oldest format, which every release reads, and for which zero is a valid checksum.
	type checkpoint struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries"`
		Checksum      int                          `json:"checksum"`
	}
	all, exclusive := fixture.CPUs(t, allCPUs(t)), fixture.CPUs(t, containerUsage(t, pods[1], 0).CPUs)
	last := slices.Max(all.List())
	shared := all.Difference(cpuset.New(0)).Difference(exclusive)
	for _, test := range []struct {
		name   string
		shared cpuset.CPUSet
		// gone is what a pod that has ended holds.
		gone string
	}{
		{name: "a freed CPU has yet to be shared, or a CPU came", shared: shared.Difference(cpuset.New(shared.List()[0]))},
		{name: "an exclusive CPU is still shared", shared: shared.Union(exclusive)},
		{name: "a CPU went", shared: shared.Union(cpuset.New(last + 1))},
		{name: "a CPU of the pool is shared", shared: all},
		{name: "a pod that has ended holds a CPU of the pool", shared: shared, gone: "0"},
		{name: "a pod that has ended holds a CPU that went", shared: shared, gone: fmt.Sprint(last + 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := c.StopKubelet(); err != nil {
				t.Fatal(err)
			}
			cut := checkpoint{PolicyName: "static", DefaultCPUSet: test.shared.String(), Entries: map[string]map[string]string{string(pods[1].UID): {"c": exclusive.String()}}}
			if test.gone != "" {
				cut.Entries["00000000-0000-0000-0000-000000000000"] = map[string]string{"c": test.gone}
			}
			data, err := json.Marshal(cut)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			restart(t, c, pinning)
			waitFor(t, time.Minute, "the checkpoint is right", func() error {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				var now checkpoint
				if err := json.Unmarshal(data, &now); err != nil || now.DefaultCPUSet != shared.String() || len(now.Entries) != 1 {
					return fmt.Errorf("it is %s (%v)", data, err)
				}
				return nil
			})
			expectPlaced(t, pods[0], shared)
			expectPlaced(t, pods[1], exclusive)
		})
	}
}
