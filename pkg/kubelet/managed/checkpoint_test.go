package managed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// startedIn is for tests that need what Start finds; they may change it.
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
	for name, test := range map[string]struct {
		last      string // the record of the last pools; "-" is none
		pools     string // "-" is no file
		shared    string
		exclusive string
		want      string
		wantError string
		// wantSkip is that upstream's start, which would fail, is left out.
		wantSkip bool
	}{
		"file added":                           {last: "-", pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
		"pool grown":                           {last: "0", pools: "0-1", shared: "1-2", exclusive: "3", want: "2"},
		"pool shrunk":                          {last: "0-1", pools: "0", shared: "2", exclusive: "3", want: "1-2"},
		"pool moved":                           {last: "0", pools: "1", shared: "1-2", exclusive: "3", want: "0,2"},
		"file removed":                         {last: "0", pools: "-", shared: "1-2", exclusive: "3", want: "0-2"},
		"nothing changed":                      {last: "0", pools: "0", shared: "1-2", exclusive: "3", want: "1-2"},
		"an exclusive CPU in the new pool":     {last: "0", pools: "0,3", shared: "1-2", exclusive: "3", want: "1-2", wantError: "container c of pod default/app (UID uid) exclusively holds CPU 3"},
		"a CPU that the pools do not explain":  {last: "0", pools: "0", shared: "1", exclusive: "3", want: "1"},
		"a new checkpoint is upstream's":       {last: "0", pools: "0", shared: "", want: ""},
		"without a file ever it is upstream's": {last: "-", pools: "-", shared: "1", exclusive: "3", want: "1"},
		"nothing is left to share":             {last: "0", pools: "0", shared: "", exclusive: "1-3", want: "", wantSkip: true},
		"the pool takes what was shared":       {last: "0", pools: "0-1", shared: "1", exclusive: "2-3", want: "", wantSkip: true},
		"and gives it back":                    {last: "0-1", pools: "0", shared: "", exclusive: "2-3", want: "1"},
		"and all of it":                        {last: "0-1", pools: "-", shared: "", exclusive: "2-3", want: "0-1"},
		"a record that can not be read":        {last: "x", pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			startedIn(t, t.TempDir())
			host.podLogs = t.TempDir()
			if err := os.Mkdir(filepath.Join(host.podLogs, "default_app_uid"), 0o755); err != nil {
				t.Fatal(err)
			}
			host.log, host.static, host.strict, host.wasOn = logger, true, test.pools != "-", test.last != "-"
			switch test.last {
			case "-":
			case "x":
				if err := os.WriteFile(recordPath, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			default:
				if err := writeRecord(parse(test.last)); err != nil {
					t.Fatal(err)
				}
			}
			reserved := cpuset.New()
			if test.pools != "-" {
				reserved = parse(test.pools)
				on(t, partition.Pools{"management": reserved})
			}
			s := newMemoryState(logger)
			s.SetDefaultCPUSet(parse(test.shared))
			if test.exclusive != "" {
				s.SetCPUSet("uid", "c", parse(test.exclusive))
			}
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
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an error with %q", err, test.wantError)
				}
				if last, _ := readRecord(); last.String() != test.last {
					t.Errorf("the record is %s, want %s", last, test.last)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			last, known := readRecord()
			if known != (test.pools != "-") || !last.Equals(reserved) {
				t.Errorf("the record is %s (%v), want %s", last, known, test.pools)
			}
			if left, _ := filepath.Glob(filepath.Dir(recordPath) + "/*.new"); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}
