package managed

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestKeepWeight(t *testing.T) {
	for name, test := range map[string]struct {
		folder     string
		off, ready bool
		wantKept   bool
	}{
		"pods ran before":                          {folder: "cpu/kubepods/burstable/pod1", wantKept: true},
		"pods ran before, with cgroup v2":          {folder: "kubepods/burstable/pod1", wantKept: true},
		"the host has booted":                      {folder: "cpu/kubepods/burstable"},
		"the host has booted, with cgroup v2":      {folder: "kubepods/burstable"},
		"the class has no cgroup":                  {folder: "x"},
		"the kubelet knows all pods":               {folder: "cpu/kubepods/burstable/pod1", ready: true},
		"the feature is off, so upstream's bug is": {folder: "cpu/kubepods/burstable/pod1", off: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := cgroupRoot
			cgroupRoot = t.TempDir()
			t.Cleanup(func() {
				cgroupRoot = before
				weighedBefore.decide, weighedBefore.yes = sync.Once{}, false
			})
			if err := os.MkdirAll(filepath.Join(cgroupRoot, test.folder), 0o755); err != nil {
				t.Fatal(err)
			}
			if !test.off {
				on(t, management)
				Pods(nil, func() bool { return test.ready }, nil)
				t.Cleanup(func() { Pods(nil, nil, nil) })
			}
			computed := uint64(2)
			shares := &computed
			KeepWeight("/kubepods/burstable", &shares)
			if kept := shares == nil; kept != test.wantKept {
				t.Errorf("the weight was kept: %v, want %v", kept, test.wantKept)
			}
		})
	}
}
