package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// onCPUs is who was on some CPUs for how long.
type onCPUs struct {
	// pods are tasks in cgroups of pods, by cgroup and command.
	pods map[string]time.Duration
	// host is everything else but idling.
	host time.Duration
}

// watchCPUs has the kernel trace who runs on some CPUs, until the function that it returns is
// called: one instance of its tracer has the switches of tasks on these CPUs, and another one
// which task is in which cgroup, whatever CPU tells of it.
func watchCPUs(t *testing.T, on cpuset.CPUSet) func() onCPUs {
	t.Helper()
	root := "/sys/kernel/tracing"
	if _, err := os.Stat(filepath.Join(root, "instances")); err != nil {
		if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
			t.Skip("the host has no tracefs: ", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	}
	instance := func(name string, set func(write func(file, value string))) string {
		directory := filepath.Join(root, "instances", "workload-partitioning-"+name)
		_ = os.Remove(directory) // of a test that was killed
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(file, value string) {
			if err := os.WriteFile(filepath.Join(directory, file), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			write("tracing_on", "0")
			write("events/enable", "0")
			for range 50 {
				if err := os.Remove(directory); err == nil || errors.Is(err, fs.ErrNotExist) {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("%s cannot be removed", directory)
		})
		write("trace_clock", "mono")
		set(write)
		return directory
	}
	groups := instance("groups", func(write func(file, value string)) {
		write("buffer_size_kb", "4096")
		write("events/cgroup/cgroup_attach_task/enable", "1")
		write("events/sched/sched_process_fork/enable", "1")
	})
	mask := new(big.Int)
	for _, cpu := range on.List() {
		mask.SetBit(mask, cpu, 1)
	}
	switches := instance("switches", func(write func(file, value string)) {
		write("tracing_cpumask", mask.Text(16))
		for _, cpu := range on.List() {
			write(fmt.Sprintf("per_cpu/cpu%d/buffer_size_kb", cpu), "49152")
		}
		write("events/sched/sched_switch/enable", "1")
	})
	tasks := cgroupsOfTasks(t)
	return func() onCPUs {
		t.Helper()
		for _, directory := range []string{switches, groups} {
			if err := os.WriteFile(filepath.Join(directory, "tracing_on"), []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		events := slices.Concat(readTrace(t, switches), readTrace(t, groups))
		slices.SortStableFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.at, b.at) })
		return sumUp(events, tasks)
	}
}

// cgroupsOfTasks returns the cgroup of each task that is in one of pods.
func cgroupsOfTasks(t *testing.T) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	tasks := map[int]string{}
	for _, file := range files {
		data, _ := os.ReadFile(file) // it may have ended
		for line := range strings.Lines(string(data)) {
			if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && strings.Contains(fields[2], "kubepods") {
				task, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				tasks[task] = fields[2]
			}
		}
	}
	return tasks
}

type traceEvent struct {
	at        time.Duration
	cpu       int
	name      string
	from, to  int
	comm, dst string
}

var (
	traceLine   = regexp.MustCompile(`\[(\d+)\] \S+ +(\d+)\.(\d{6}): (\w+): (.*)$`)
	switchEvent = regexp.MustCompile(`^prev_comm=(.*) prev_pid=(\d+) prev_prio=.* ==> next_comm=.* next_pid=(\d+) next_prio=`)
	forkEvent   = regexp.MustCompile(` pid=(\d+) child_comm=.* child_pid=(\d+)$`)
	attachEvent = regexp.MustCompile(`dst_path=(\S+) pid=(\d+) comm=(.*)$`)
)

func readTrace(t *testing.T, directory string) (events []traceEvent) {
	t.Helper()
	lost, err := filepath.Glob(filepath.Join(directory, "per_cpu/cpu*/stats"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lost {
		if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "overrun: 0\n") {
			t.Errorf("%s: the trace has lost events (%v): %s", file, err, data)
		}
	}
	file, err := os.Open(filepath.Join(directory, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := traceLine.FindStringSubmatch(scanner.Text())
		if line == nil {
			continue
		}
		event := traceEvent{cpu: number(line[1]), name: line[4], at: time.Duration(number(line[2]))*time.Second + time.Duration(number(line[3]))*time.Microsecond}
		switch rest := line[5]; event.name {
		case "sched_switch":
			if fields := switchEvent.FindStringSubmatch(rest); fields != nil {
				event.comm, event.from, event.to = fields[1], number(fields[2]), number(fields[3])
			}
		case "sched_process_fork":
			if fields := forkEvent.FindStringSubmatch(rest); fields != nil {
				event.from, event.to = number(fields[1]), number(fields[2])
			}
		case "cgroup_attach_task":
			if fields := attachEvent.FindStringSubmatch(rest); fields != nil {
				event.dst, event.to = fields[1], number(fields[2])
			}
		}
		events = append(events, event)
	}
	return events
}

// sumUp follows which task is in which cgroup, and adds up the time of each. A task is where
// its parent was when it was forked, until it is attached elsewhere.
func sumUp(events []traceEvent, tasks map[int]string) onCPUs {
	seen := onCPUs{pods: map[string]time.Duration{}}
	since := map[int]time.Duration{}
	for _, event := range events {
		switch event.name {
		case "sched_process_fork":
			if cgroup, inPod := tasks[event.from]; inPod {
				tasks[event.to] = cgroup
			} else {
				delete(tasks, event.to)
			}
		case "cgroup_attach_task":
			if strings.Contains(event.dst, "kubepods") {
				tasks[event.to] = event.dst
			}
		case "sched_switch":
			begin, known := since[event.cpu]
			since[event.cpu] = event.at
			switch cgroup, inPod := tasks[event.from]; {
			case !known || event.from == 0:
			case inPod:
				seen.pods[cgroup+" ("+event.comm+")"] += event.at - begin
			default:
				seen.host += event.at - begin
			}
		}
	}
	return seen
}
