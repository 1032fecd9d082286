package managed

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestKeepBurstableWeight(t *testing.T) {
	for name, test := range map[string]struct {
		directory string
		// weight is what the class has, in the file of its version of cgroups.
		weight     string
		off, ready bool
		wantKept   bool
	}{
		"pods ran before":                          {directory: "cpu/kubepods/burstable/pod1", wantKept: true},
		"pods ran before, with cgroup v2":          {directory: "kubepods/burstable/pod1", wantKept: true},
		"a weight that is larger is set":           {directory: "cpu/kubepods/burstable/pod1", weight: "cpu/kubepods/burstable/cpu.shares=101"},
		"and one that is not is kept":              {directory: "cpu/kubepods/burstable/pod1", weight: "cpu/kubepods/burstable/cpu.shares=102", wantKept: true},
		"it is larger with cgroup v2":              {directory: "kubepods/burstable/pod1", weight: "kubepods/burstable/cpu.weight=3"},
		"and is not":                               {directory: "kubepods/burstable/pod1", weight: "kubepods/burstable/cpu.weight=4", wantKept: true},
		"the host has booted":                      {directory: "cpu/kubepods/burstable"},
		"the host has booted, with cgroup v2":      {directory: "kubepods/burstable"},
		"the class has no cgroup":                  {directory: "x"},
		"the kubelet knows all pods":               {directory: "cpu/kubepods/burstable/pod1", ready: true},
		"the feature is off, so upstream's bug is": {directory: "cpu/kubepods/burstable/pod1", off: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := cgroupRoot
			cgroupRoot = t.TempDir()
			t.Cleanup(func() {
				cgroupRoot = before
				weighedBefore.decide, weighedBefore.yes = sync.Once{}, false
			})
			if err := os.MkdirAll(filepath.Join(cgroupRoot, test.directory), 0o755); err != nil {
				t.Fatal(err)
			}
			if !test.off {
				on(t, management)
				FollowPods(nil, func() bool { return test.ready }, nil, nil, none{}, nil)
				t.Cleanup(func() { observed = observation{} })
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
