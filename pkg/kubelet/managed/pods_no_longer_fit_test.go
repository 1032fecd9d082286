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
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// synced makes what kubelets leave of pods: directories, and a checkpoint with the cpu of two
// containers each, by UID.
func synced(t *testing.T, directories []string, cpu map[types.UID]string) (rootDirectory string) {
	t.Helper()
	rootDirectory = t.TempDir()
	for _, uid := range directories {
		if err := os.MkdirAll(filepath.Join(rootDirectory, "pods", uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	entries := state.PodResourceInfoMap{}
	for uid, quantity := range cpu {
		resources := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}}
		entries[uid] = state.PodResourceInfo{ContainerResources: map[string]v1.ResourceRequirements{"c": resources, "d": resources}}
	}
	data, err := json.Marshal(state.PodResourceCheckpointInfo{Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := &state.Checkpoint{Data: string(data), Checksum: checksum.New(string(data))}
	manager, err := checkpointmanager.NewCheckpointManager(rootDirectory)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.CreateCheckpoint("allocated_pods_state", checkpoint); err != nil {
		t.Fatal(err)
	}
	return rootDirectory
}

func TestLogSaysBeforehandThatPodsDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		directories []string
		cpu         map[types.UID]string
		pools       partition.Pools // nil means management
		previous    cpuset.CPUSet
		damaged     bool
		want        []string // parts of the log; none means that it is empty
	}{
		"the pods fit":               {directories: []string{"a", "b"}, cpu: map[types.UID]string{"a": "500m", "b": "500m"}},
		"the pods do not fit":        {directories: []string{"a", "b", "c"}, cpu: map[types.UID]string{"a": "500m", "b": "501m"}, want: []string{"allocatableMillicores=2000", "requestedMillicores=2002", "default/app (UID a): 1000m", "b: 1002m"}},
		"one of the pods has gone":   {directories: []string{"a"}, cpu: map[types.UID]string{"a": "500m", "b": "501m"}},
		"the pools are as they were": {directories: []string{"a"}, cpu: map[types.UID]string{"a": "3"}, previous: management.Union()},
		"there is no pool":           {directories: []string{"a"}, cpu: map[types.UID]string{"a": "3"}, pools: partition.Pools{"management": cpuset.New()}},
		"there is no checkpoint":     {directories: []string{"a"}},
		"the checkpoint is damaged":  {directories: []string{"a"}, cpu: map[types.UID]string{"a": "3"}, damaged: true, want: []string{"Cannot read the pods' allocated CPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			rootDirectory := synced(t, test.directories, test.cpu)
			startedIn(t, rootDirectory)
			checkpoint := filepath.Join(rootDirectory, "allocated_pods_state")
			if test.damaged {
				if err := os.WriteFile(checkpoint, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.cpu == nil {
				if err := os.Remove(checkpoint); err != nil {
					t.Fatal(err)
				}
			}
			shim.host.podLogs = t.TempDir()
			if err := os.Mkdir(filepath.Join(shim.host.podLogs, "default_app_a"), 0o755); err != nil {
				t.Fatal(err)
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			shim.host.log = logger
			shim.host.previous.pooled = test.previous
			pools := management
			if test.pools != nil {
				pools = test.pools
			}
			n := newNode(pools, cpuset.New(0, 1, 2, 3), cpuset.New(), cpuset.New())
			n.known = knownPods(rootDirectory)
			n.warnOfPods(rootDirectory, 2000)
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if len(test.want) == 0 && log != "" {
				t.Errorf("the log is\n%s", log)
			}
			for _, want := range test.want {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
			}
		})
	}
}

// changingStatuses are statuses of which each look sees the next.
type changingStatuses struct {
	looks []statuses
}

func (c *changingStatuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, known := c.looks[0][uid]
	if uid == "last" && len(c.looks) > 1 { // it is asked about last
		c.looks = c.looks[1:]
	}
	return status, known
}

func TestPodsThatNoLongerFitAreReportedOnce(t *testing.T) {
	on(t, management)
	restarted(t, &fakeRuntime{})
	recorder := recordEvents(t)
	n := shim.current.Load()
	n.before, n.known = cpuset.New(0), []types.UID{"a", "b", "failed-before", "out-of-memory", "running", "gone", "last"}
	rejected := v1.PodStatus{Phase: v1.PodFailed, Reason: outOfCPU}
	outOfMemory, before := rejected, rejected
	outOfMemory.Reason = "OutOfmemory"
	before.ContainerStatuses = []v1.ContainerStatus{{Name: "c"}}
	running, ended := v1.PodStatus{Phase: v1.PodRunning}, v1.PodStatus{Phase: v1.PodSucceeded}
	all := changingStatuses{[]statuses{
		{"a": rejected, "b": running, "out-of-memory": outOfMemory, "failed-before": before, "running": running, "new": rejected, "last": running},
		{"a": ended, "b": rejected, "running": running, "last": running},
		{"a": ended, "b": ended, "running": running, "last": running},
	}}
	asked := 0
	ready := func() bool {
		asked++
		return asked > 2
	}
	n.reportRejected(ready, &all, 5, 0)
	expectEvent(t, recorder, `Warning PodsNoLongerFit The pools went from the CPUs "0" to "0-1" and leave too little cpu. Rejected when the kubelet started (OutOfcpu): a, b.`)
	expectEvent(t, recorder, "")
	if asked != 7 {
		t.Errorf("it asked %d times whether the pods are known, want 7", asked)
	}
}

func TestRecordHasThePoolsBeforeTheLastChange(t *testing.T) {
	startedIn(t, t.TempDir())
	n := newNode(management, cpuset.New(0, 1, 2, 3), cpuset.New(), cpuset.New())
	n.before = cpuset.New(0)
	n.writeRecord(nil)
	previous, err := readRecord()
	if err != nil || !previous.pooled.Equals(n.Pooled) || !previous.before.Equals(n.before) {
		t.Errorf("read the pools %q, and %q before (%v)", previous.pooled, previous.before, err)
	}
	// A version that does not know the field finds the same checksum.
	with, without := poolRecord{Record: partition.Record{ReservedCPUs: "0-1", Before: "0"}}, poolRecord{Record: partition.Record{ReservedCPUs: "0-1"}}
	if a, err := with.sum(); err != nil {
		t.Error(err)
	} else if b, err := without.sum(); err != nil || a != b {
		t.Errorf("the checksum is %d with it and %d without it (%v)", a, b, err)
	}
}
