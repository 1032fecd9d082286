package managed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestFitCheckpoint(t *testing.T) {
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
	}{
		"file added":                           {last: "-", pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
		"pool grown":                           {last: "0", pools: "0-1", shared: "1-2", exclusive: "3", want: "2"},
		"pool shrunk":                          {last: "0-1", pools: "0", shared: "2", exclusive: "3", want: "1-2"},
		"pool moved":                           {last: "0", pools: "1", shared: "1-2", exclusive: "3", want: "0,2"},
		"file removed":                         {last: "0", pools: "-", shared: "1-2", exclusive: "3", want: "0-2"},
		"nothing changed":                      {last: "0", pools: "0", shared: "1-2", exclusive: "3", want: "1-2"},
		"an exclusive CPU in the new pool":     {last: "0", pools: "0,3", shared: "1-2", exclusive: "3", want: "1-2", wantError: "container c of pod uid exclusively holds CPU 3"},
		"a CPU that the pools do not explain":  {last: "0", pools: "0", shared: "1", exclusive: "3", want: "1"},
		"a new checkpoint is upstream's":       {last: "0", pools: "0", shared: "", want: ""},
		"without a file ever it is upstream's": {last: "-", pools: "-", shared: "1", exclusive: "3", want: "1"},
		"a record that can not be read":        {last: "x", pools: "0", shared: "0-2", exclusive: "3", want: "1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			setRecordPath(t.TempDir())
			t.Cleanup(func() { recordPath = "" })
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
			s := state.NewMemoryState(logger)
			s.SetDefaultCPUSet(parse(test.shared))
			if test.exclusive != "" {
				s.SetCPUSet("uid", "c", parse(test.exclusive))
			}
			err := FitCheckpoint(logger, s, online, reserved, test.pools != "-")
			if got := s.GetDefaultCPUSet().String(); got != test.want {
				t.Errorf("the shared pool is %q, want %q", got, test.want)
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an error with %q", err, test.wantError)
				}
				if last, _ := readRecord(logger); last.String() != test.last {
					t.Errorf("the record is %s, want %s", last, test.last)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			last, known := readRecord(logger)
			if known != (test.pools != "-") || !last.Equals(reserved) {
				t.Errorf("the record is %s (%v), want %s", last, known, test.pools)
			}
			if left, _ := filepath.Glob(filepath.Dir(recordPath) + "/*.new"); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}
