package managed

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// startedIn is for tests that need what Configure finds; they may change it.
func startedIn(t *testing.T, rootDirectory string) {
	t.Helper()
	before := host
	setRecordPath(rootDirectory)
	t.Cleanup(func() { recordPath, host = "", before })
}

func TestStartPolicyFitsTheCheckpoint(t *testing.T) {
	online := cpuset.New(0, 1, 2, 3)
	parse := func(list string) cpuset.CPUSet {
		cpus, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		return cpus
	}
	running, exited := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, test := range map[string]struct {
		wasOn     bool
		pools     string // "-" is no file
		shared    string
		exclusive string
		// podLevel are CPUs of another pod as a whole.
		podLevel string
		// containers are those of the pod in the runtime; nil is one that runs.
		containers []runtimeapi.ContainerState
		asked      error
		want       string
		// wantDropped is that the pod has lost its CPUs.
		wantDropped bool
		wantError   string
		// wantSkip is that upstream's start, which would fail, is left out.
		wantSkip bool
	}{
		"file added":                                   {pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
		"pool grown":                                   {wasOn: true, pools: "0-1", shared: "1-2", exclusive: "3", want: "2"},
		"pool shrunk":                                  {wasOn: true, pools: "0", shared: "2", exclusive: "3", want: "1-2"},
		"pool moved":                                   {wasOn: true, pools: "1", shared: "1-2", exclusive: "3", want: "0,2"},
		"file removed":                                 {wasOn: true, pools: "-", shared: "1-2", exclusive: "3", want: "0-2"},
		"nothing changed":                              {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", want: "1-2"},
		"an exclusive CPU in the new pool":             {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", want: "1-2", wantError: "container c of pod default/app (UID uid) exclusively holds CPU 3"},
		"of a pod that has ended":                      {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{exited}, want: "1-2", wantDropped: true},
		"of a pod that the host has forgotten":         {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{}, want: "1-2", wantDropped: true},
		"of a pod of which one container runs":         {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{exited, running}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"of a pod that starts":                         {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_CREATED}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"of a pod in an unknown state":                 {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_UNKNOWN}, want: "1-2", wantError: "exclusively holds CPU 3"},
		"and the runtime cannot be asked":              {wasOn: true, pools: "0,3", shared: "1-2", exclusive: "3", asked: errors.New("no runtime"), want: "1-2", wantError: "exclusively holds CPU 3"},
		"an exclusive CPU in no pool is not looked at": {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", containers: []runtimeapi.ContainerState{}, want: "1-2"},
		"a write was cut in two":                       {wasOn: true, pools: "0", shared: "1", exclusive: "3", want: "1-2"},
		"the other write was":                          {wasOn: true, pools: "0", shared: "1-3", exclusive: "3", want: "1-2"},
		"a CPU has come":                               {wasOn: true, pools: "0", shared: "1", exclusive: "2", want: "1,3"},
		"a shared CPU has gone":                        {wasOn: true, pools: "0", shared: "1-2,4", exclusive: "3", want: "1-2"},
		"of a pod that has ended, whose other CPU it loses too": {wasOn: true, pools: "0-1", shared: "", exclusive: "1-3", containers: []runtimeapi.ContainerState{exited}, want: "2-3", wantDropped: true},
		"an exclusive CPU has gone, of a pod that has ended":    {wasOn: true, pools: "0", shared: "1-3", exclusive: "4", containers: []runtimeapi.ContainerState{exited}, want: "1-3", wantDropped: true},
		"an exclusive CPU has gone":                             {wasOn: true, pools: "0", shared: "1-3", exclusive: "4", want: "1-3", wantSkip: true},
		"a new checkpoint is upstream's":                        {wasOn: true, pools: "0", shared: "", want: ""},
		"without a file ever it is upstream's":                  {pools: "-", shared: "1", exclusive: "3", want: "1"},
		"nothing is left to share":                              {wasOn: true, pools: "0", shared: "", exclusive: "1-3", want: "", wantSkip: true},
		"the pool takes what was shared":                        {wasOn: true, pools: "0-1", shared: "1", exclusive: "2-3", want: "", wantSkip: true},
		"and gives it back":                                     {wasOn: true, pools: "0", shared: "", exclusive: "2-3", want: "1"},
		"and all of it":                                         {wasOn: true, pools: "-", shared: "", exclusive: "2-3", want: "0-1"},
		"CPUs of a pod as a whole are not shared":               {wasOn: true, pools: "0", shared: "1-2", exclusive: "3", podLevel: "2", want: "1"},
		"a pod as a whole holds a CPU of the pool":              {wasOn: true, pools: "0,2", shared: "1", exclusive: "3", podLevel: "2", want: "1", wantError: "pod other exclusively holds CPU 2"},
		"a pod as a whole has ended, and held a CPU":            {wasOn: true, pools: "0,2", shared: "1", podLevel: "2", containers: []runtimeapi.ContainerState{exited}, want: "1,3", wantDropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			startedIn(t, t.TempDir())
			host.podLogs = t.TempDir()
			if err := os.Mkdir(filepath.Join(host.podLogs, "default_app_uid"), 0o755); err != nil {
				t.Fatal(err)
			}
			host.log, host.static, host.strict, host.previous.confined = logger, true, test.pools != "-", test.wasOn
			if test.containers == nil {
				test.containers = []runtimeapi.ContainerState{running}
			}
			observed.runtime = &fakeRuntime{states: test.containers, err: test.asked}
			t.Cleanup(func() { observed = observation{} })
			reserved := cpuset.New()
			if test.pools != "-" {
				reserved = parse(test.pools)
				on(t, partition.Pools{"management": reserved})
			}
			if test.wasOn {
				newNode(partition.Pools{"management": cpuset.New(0)}, online, cpuset.New(), cpuset.New()).writeRecord(nil)
			}
			s := newMemoryState(logger)
			s.SetDefaultCPUSet(parse(test.shared))
			if test.exclusive != "" {
				s.SetCPUSet("uid", "c", parse(test.exclusive))
			}
			if test.podLevel != "" {
				setPodAssignment(t, s, "other", parse(test.podLevel))
			}
			before := len(assignmentsOf(s))
			skipped := true
			err := StartPolicy(func(klog.Logger, state.State) error {
				skipped = false
				return nil
			}, s, online, online.Difference(reserved))
			if skipped != (test.wantSkip || test.wantError != "") {
				t.Errorf("upstream's start was left out: %v", skipped)
			}
			if got := s.GetDefaultCPUSet().String(); got != test.want {
				t.Errorf("the shared pool is %q, want %q", got, test.want)
			}
			if dropped := len(assignmentsOf(s)) < before; dropped != test.wantDropped {
				t.Errorf("an assignment was dropped: %v, want %v", dropped, test.wantDropped)
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an error with %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 500 {
				if record, _ := readRecord(); record.confined == (test.pools != "-") {
					return
				}
				time.Sleep(10 * time.Millisecond) // it is removed beside the start
			}
			t.Error("there is a record, and should be none, or the other way round")
		})
	}
}

func TestRecord(t *testing.T) {
	directory := t.TempDir()
	startedIn(t, directory)
	host.online = cpuset.New(0, 1, 2, 3)
	if record, _ := readRecord(); record.confined {
		t.Error("there is a record before one was written")
	}
	n := newNode(partition.Pools{"management": cpuset.New(0), "infra": cpuset.New(1), "free": cpuset.New()}, host.online, cpuset.New(3), cpuset.New())
	n.writeRecord([]cpuset.CPUSet{cpuset.New(0, 1), cpuset.New(2)})
	expect := func(want ...string) {
		t.Helper()
		record, err := readRecord()
		if err != nil {
			t.Error(err)
		}
		for _, list := range want {
			if !slices.ContainsFunc(record.sets, func(set cpuset.CPUSet) bool { return set.String() == list }) {
				t.Errorf("the record has no %s, only %v", list, record.sets)
			}
		}
		if !record.confined || len(record.sets) != len(want) {
			t.Errorf("the record has %v, want %s", record.sets, want)
		}
	}
	// Pools, what is left for others, with isolated CPUs and without, and the union.
	expect("0", "1", "2-3", "2", "0-1", "0-1")
	if err := os.WriteFile(recordPath, []byte(`{"reservedCPUs":"0-1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("0-1", "2-3") // an earlier version's
	if err := os.WriteFile(recordPath, []byte(`{"reservedCPUs":"0-1","sets":["2-3","0-1"]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("0-1", "2-3", "0-1") // a later one's, without a checksum
	n.writeRecord(nil)
	// What those versions read of the present one's: they know no checksum.
	var before struct {
		ReservedCPUs string   `json:"reservedCPUs"`
		Sets         []string `json:"sets,omitempty"`
	}
	if data, err := os.ReadFile(recordPath); err != nil || json.Unmarshal(data, &before) != nil || before.ReservedCPUs != "0-1" || len(before.Sets) != 4 {
		t.Errorf("an earlier version reads %+v (%v)", before, err)
	}
	if data, err := os.ReadFile(recordPath); err != nil || os.WriteFile(recordPath, bytes.Replace(data, []byte(`"0-1"`), []byte(`"0-2"`), 1), 0o600) != nil {
		t.Fatal(err)
	}
	if record, err := readRecord(); !record.unreadable || err == nil {
		t.Errorf("a record that somebody has edited gave %+v, %v", record, err)
	}
	if err := os.WriteFile(recordPath, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if record, err := readRecord(); !record.confined || !record.unreadable || err == nil {
		t.Errorf("a record of nonsense gave %+v, %v", record, err)
	}
	removeRecord()
	if record, _ := readRecord(); record.confined {
		t.Error("the record has not been removed")
	}
	removeRecord()

	// A folder that is none: nothing is written, which is told, and nothing fails.
	recorder := recordEvents(t)
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setRecordPath(file)
	n.writeRecord(nil)
	expectEvent(t, recorder, "Warning PoolsNotRecorded")
}
