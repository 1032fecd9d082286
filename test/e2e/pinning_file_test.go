// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A kubelet does not start with a mistake in the pinning file, and says in one line which file
// and what is wrong. These kubelets end before they touch anything, so the node's own runs on
// with them.
func TestMistakesInThePinningFileKeepTheKubeletFromStarting(t *testing.T) {
	in(t)
	c := partitioned(t)
	for name, test := range map[string]struct{ file, want string }{
		"not JSON":                   {`management: {cpuset: "0"}`, "not a pinning file"},
		"cut off":                    {`{"management": {"cpuset": "0"`, "not a pinning file"},
		"trailing data":              {`{"management": {"cpuset": "0"}} x`, "not a pinning file"},
		"a list":                     {`[]`, "not a pinning file"},
		"null":                       {`null`, "not a pinning file"},
		"a type without an object":   {`{"management": "0"}`, `workload type "management": "0" is not an object`},
		"a type that is null":        {`{"management": null}`, `workload type "management": null is not an object`},
		"no cpuset":                  {`{"management": {}}`, `workload type "management": cpuset is missing`},
		"cpuset is null":             {`{"management": {"cpuset": null}}`, `workload type "management": cpuset is missing`},
		"cpuset is a number":         {`{"management": {"cpuset": 0}}`, `workload type "management": cpuset 0 is not a string`},
		"an unknown field":           {`{"management": {"cpuset": "0", "memset": "0"}}`, `workload type "management": unknown field "memset"`},
		"a field in other letters":   {`{"management": {"cpuset": "0", "CPUSet": "1"}}`, `workload type "management": unknown field "CPUSet"`},
		"two unknown fields":         {`{"management": {"cpuset": "0", "a": 1, "b": 2}}`, `workload type "management": unknown field "a"`},
		"a field twice":              {`{"management": {"cpuset": "0", "cpuset": "1"}}`, `duplicate field "management.cpuset"`},
		"a type twice":               {`{"management": {"cpuset": "0"}, "management": {"cpuset": "1"}}`, `duplicate field "management"`},
		"an empty type":              {`{"": {"cpuset": "0"}}`, `workload type ""`},
		"a type in capitals":         {`{"Management": {"cpuset": "0"}}`, `workload type "Management"`},
		"a type with a dot":          {`{"a.b": {"cpuset": "0"}}`, `workload type "a.b"`},
		"a type of 64 letters":       {`{"` + strings.Repeat("a", 64) + `": {"cpuset": "0"}}`, `workload type "aaaa`},
		"a type that quotas use":     {`{"requests": {"cpuset": "0"}}`, `workload type "requests"`},
		"not a CPU list":             {`{"management": {"cpuset": "zero"}}`, `workload type "management": cpuset "zero"`},
		"a blank in the CPU list":    {`{"management": {"cpuset": " 0"}}`, `workload type "management": cpuset " 0"`},
		"a negative CPU":             {`{"management": {"cpuset": "-1"}}`, `workload type "management": cpuset "-1"`},
		"an open range":              {`{"management": {"cpuset": "0-"}}`, `workload type "management": cpuset "0-"`},
		"a range that runs backward": {`{"management": {"cpuset": "1-0"}}`, `workload type "management": cpuset "1-0"`},
		"an empty part":              {`{"management": {"cpuset": "0,"}}`, `workload type "management": cpuset "0,"`},
		"a bit mask":                 {`{"management": {"cpuset": "0x1"}}`, `workload type "management": cpuset "0x1"`},
		"a CPU the host lacks":       {`{"management": {"cpuset": "0,4000"}}`, `cpuset "0,4000": the host has no CPU 4000`},
		"a CPU beyond 64 bits":       {`{"management": {"cpuset": "0-99999999999999999999"}}`, `cpuset "0-99999999999999999999"`},
		"a very large range":         {`{"management": {"cpuset": "0-2000000000"}}`, `cpuset "0-2000000000"`},
		"pools that overlap":         {`{"a": {"cpuset": "0"}, "b": {"cpuset": "0"}}`, `workload type "b": cpuset "0": CPU 0 is in the pool of "a" too`},
		"a file of two mebibytes":    {`{"management": {"cpuset": "0"}}` + strings.Repeat(" ", 2<<20), "is larger than"},
		"a line break in a value":    {`{"management": {"cpuset": "0\n"}}`, `workload type "management": cpuset "0\\n"`},
	} {
		t.Run(name, func(t *testing.T) {
			writePinningFile(t, test.file, 0o600)
			expectRefusal(t, c, partition.PinningFilePath, test.want)
		})
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		t.Run(fmt.Sprintf("mode %#o", mode), func(t *testing.T) {
			writePinningFile(t, pinning, mode)
			expectRefusal(t, c, partition.PinningFilePath, fmt.Sprintf("mode %#o lets users other than its owner write it", mode))
		})
	}
	t.Run("a directory in place of the file", func(t *testing.T) {
		writePinningFile(t, "", 0o600)
		if err := os.Remove(partition.PinningFilePath); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(partition.PinningFilePath, 0o700); err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, c, partition.PinningFilePath, "not a regular file")
	})
	t.Run("a file that is not root's", func(t *testing.T) {
		writePinningFile(t, pinning, 0o600)
		if err := os.Chown(partition.PinningFilePath, 65534, -1); err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, c, partition.PinningFilePath, "belongs to user 65534, who is not root; run: chown root "+partition.PinningFilePath)
	})
	t.Run("a file in a directory that others can write", func(t *testing.T) {
		directory := filepath.Dir(partition.PinningFilePath)
		changeDirectory(t, directory, 0o777, 0)
		expectRefusal(t, c, partition.PinningFilePath, "directory "+directory+" lets users other than its owner replace the files in it; run: chmod go-w "+directory)
	})
	t.Run("reserved cgroups with explicit reserved CPUs", func(t *testing.T) {
		expectRefusal(t, c, "invalid configuration", "can't use reservedSystemCPUs", "--reserved-cpus=0", "--system-reserved-cgroup=/system.slice")
	})
	t.Run("a static policy without strict reservation", func(t *testing.T) {
		writePinningFile(t, pinning, 0o600)
		expectRefusal(t, c, "cpuManagerPolicyOptions", `strict-cpu-reservation is \"false\"`, "--cpu-manager-policy-options=strict-cpu-reservation=false")
	})
}

// changeDirectory gives a directory another mode and owner until the test ends.
func changeDirectory(t *testing.T, directory string, mode os.FileMode, owner int) {
	t.Helper()
	info, err := os.Stat(directory)
	if err != nil {
		t.Fatal(err)
	}
	change := func(mode os.FileMode, owner int) error {
		return errors.Join(os.Chmod(directory, mode), os.Chown(directory, owner, -1))
	}
	undoAtEnd(t, func() error { return change(info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid)) })
	if err := change(mode, owner); err != nil {
		t.Fatal(err)
	}
}

// The kubelet starts with what installers leave on a node, and sends an Event about what is
// unusual.
func TestKubeletStartsOnWhatInstallersLeave(t *testing.T) {
	in(t)
	c := partitioned(t)
	t.Cleanup(func() { restart(t, c, pinning) })
	coresOf := func(t *testing.T) (found []string) {
		t.Helper()
		for name := range getNode(t, c).Status.Capacity {
			if workloadType, is := partition.TypeOfCores(string(name)); is {
				found = append(found, workloadType)
			}
		}
		return found
	}
	for _, test := range []struct {
		name, file, event string
		want              []string
	}{
		{"a file of white space", "\n", "", []string{"management"}},
		{"no type", "{}", "", nil},
		{"an empty cpuset, and line breaks", "\n{\"management\": {\"cpuset\": \"\"}}", "", []string{"management"}},
		{"a pool of all CPUs", `{"management": {"cpuset": "` + allCPUs(t) + `"}}`, "PoolsHoldEveryCPU", []string{"management"}},
		{"pools that together have all CPUs", `{"management": {"cpuset": "0"}, "infra": {"cpuset": "` + otherCPUs(t) + `"}}`, "PoolsHoldEveryCPU", []string{"infra", "management"}},
		{"no file where there was one", "", "PinningFileMissing", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.event != "" {
				fixture.ForgetEvents(t, c.Client, test.event)
			}
			restart(t, c, test.file)
			got := coresOf(t)
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("the node reports cores of %q, want %q", got, test.want)
			}
			if reserved := int64(runtime.NumCPU())*1000 - getNode(t, c).Status.Allocatable.Cpu().MilliValue(); reserved != 500 {
				t.Errorf("%dm are reserved, want only kubeReserved's 500m", reserved)
			}
			if test.event != "" {
				fixture.AwaitEvent(t, c.Client, eventLimit, test.event, "")
			}
		})
	}
	reconfigure := func(configuration string, without bool) {
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		c.Config.KubeletConfiguration, c.Config.WithoutReservation = configuration, without
	}
	t.Cleanup(func() { reconfigure("", false) })
	t.Run("a reserved cgroup", func(t *testing.T) {
		reconfigure("systemReserved: {cpu: 100m}\nsystemReservedCgroup: /system.slice\nenforceNodeAllocatable: [pods, system-reserved-compressible]\n", false)
		restart(t, c, pinning)
		fixture.AwaitEvent(t, c.Client, eventLimit, "ReservedCgroupDropped", "dropped: systemReservedCgroup=/system.slice, enforceNodeAllocatable: system-reserved-compressible")
		log, err := os.ReadFile(c.Kubelet.Log())
		if err != nil || !strings.Contains(string(log), `replaced=["kubeReserved cpu=500m","systemReserved cpu=100m"]`) {
			t.Errorf("the log does not say which amounts the pools replace (%v)", err)
		}
	})
	t.Run("a directory that is not root's", func(t *testing.T) {
		changeDirectory(t, filepath.Dir(partition.PinningFilePath), 0o755, 65534)
		restart(t, c, pinning)
		fixture.AwaitEvent(t, c.Client, eventLimit, "PinningFileDirectoryOwner", filepath.Dir(partition.PinningFilePath)+" on the way to "+partition.PinningFilePath+" belongs to user 65534")
	})
	t.Run("no other reservation than the pools", func(t *testing.T) {
		reconfigure("", true)
		restart(t, c, pinning)
		// The static policy needs a reservation, and there is none once the pools are empty or
		// gone.
		expectNoStart(t, c, `{"management": {"cpuset": ""}}`, "add reservedSystemCPUs, or cpu to kubeReserved or systemReserved")
		restart(t, c, pinning)
		expectNoStart(t, c, "", "kubelet ended")
		log, err := os.ReadFile(c.Kubelet.Log())
		for _, line := range []string{"The kubelet will not start: the static policy of the CPU manager needs a reserved CPU", "unable to determine reserved CPU resources for static policy"} {
			if err != nil || !strings.Contains(string(log), line) {
				t.Errorf("the log has no line %q (%v)", line, err)
			}
		}
	})
}

// writePinningFile replaces the node's pinning file until the test ends. The node's kubelet
// does not read it.
func writePinningFile(t *testing.T, content string, mode os.FileMode) {
	t.Helper()
	before, err := os.ReadFile(partition.PinningFilePath)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(partition.PinningFilePath); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(partition.PinningFilePath, before, 0o600); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(partition.PinningFilePath, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// WriteFile leaves out what the umask forbids.
	if err := os.Chmod(partition.PinningFilePath, mode); err != nil {
		t.Fatal(err)
	}
}

// expectRefusal checks that a kubelet with these flags does not start, and prints one line that
// has both texts.
func expectRefusal(t *testing.T, c *host.Cluster, names, says string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, c.Kubelet.Args()[0], append(c.Kubelet.Args()[1:], flags...)...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("the kubelet did not end by itself within 20 seconds, or ended without an error: %v. It printed\n%s", err, output)
	}
	var found []string
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "command failed") {
			found = append(found, line)
		}
	}
	// The log prints quotation marks with a backslash.
	says = strings.ReplaceAll(strings.ReplaceAll(says, `\"`, `"`), `"`, `\"`)
	if len(found) != 1 || !strings.Contains(found[0], names) || !strings.Contains(found[0], says) {
		t.Errorf("the kubelet printed %q, want one line with %s and %s", found, names, says)
	}
}
