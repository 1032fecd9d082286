// SPDX-License-Identifier: Apache-2.0

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

// onCPUs says how long tasks ran on some CPUs.
type onCPUs struct {
	// pods are tasks of pods, by cgroup and command.
	pods map[string]time.Duration
	// host is the time of all other tasks, by CPU.
	host map[int]time.Duration
}

// allOfHost returns the time of these tasks on all CPUs.
func (seen onCPUs) allOfHost() (all time.Duration) {
	for _, time := range seen.host {
		all += time
	}
	return all
}

// tracefs has the kernel's tracer, and tracers begins the names of our instances of it.
const (
	tracefs = "/sys/kernel/tracing"
	tracers = "instances/workload-partitioning-"
)

var mountedTracefs bool

// removeTracers removes what watchCPUs leaves if its test is interrupted or killed. A mount of a test that was killed
// stays.
func removeTracers() error {
	left, err := filepath.Glob(filepath.Join(tracefs, tracers+"*"))
	for _, directory := range left {
		err = errors.Join(err, os.WriteFile(filepath.Join(directory, "events/enable"), []byte("0"), 0o600), os.Remove(directory))
	}
	if mountedTracefs {
		err = errors.Join(err, unix.Unmount(tracefs, unix.MNT_DETACH))
	}
	return err
}

// watchCPUs has the kernel trace which tasks run on some CPUs, until the function that it
// returns is called. The account begins when a task runs there whose cgroup has begins in its
// name.
//
// One instance of the tracer records when these CPUs switch tasks. Another one records, on all
// CPUs, which task is in which cgroup.
func watchCPUs(t *testing.T, on cpuset.CPUSet) func(begins string) onCPUs {
	t.Helper()
	if _, err := os.Stat(filepath.Join(tracefs, "instances")); err != nil {
		if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
			t.Skip("the host has no tracefs: ", err)
		}
		mountedTracefs = true
		t.Cleanup(func() {
			mountedTracefs = false
			_ = unix.Unmount(tracefs, unix.MNT_DETACH)
		})
	}
	instance := func(name string, set func(write func(file, value string))) string {
		directory := filepath.Join(tracefs, tracers+name)
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
			waitFor(t, 5*time.Second, directory+" is removed", func() error {
				if err := os.Remove(directory); !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				return nil
			})
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
	return func(begins string) onCPUs {
		t.Helper()
		for _, directory := range []string{switches, groups} {
			if err := os.WriteFile(filepath.Join(directory, "tracing_on"), []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		events := slices.Concat(readTrace(t, switches), readTrace(t, groups))
		slices.SortStableFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.at, b.at) })
		seen, begun := sumUp(events, tasks, begins)
		if !begun {
			t.Errorf("the tracer has seen no task on CPUs %s whose cgroup has %q in its name", on, begins)
		}
		return seen
	}
}

// cgroupsOfTasks returns the cgroups of the tasks of pods.
func cgroupsOfTasks(t *testing.T) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	tasks := map[int]string{}
	for _, file := range files {
		data, _ := os.ReadFile(file) // the task may have ended
		for line := range strings.Lines(string(data)) {
			if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && strings.Contains(fields[2], "kubepods") {
				task, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				tasks[task] = fields[2]
			}
		}
	}
	return tasks
}

// traceEvent is a line of a trace.
type traceEvent struct {
	at   time.Duration
	cpu  int
	name string
	// from is the previous task or the parent, and to the next task, the child, or the task
	// that is attached.
	from, to int
	// comm is the command of the previous task, and dst the cgroup to which a task is attached.
	comm, dst string
}

var (
	forkEvent   = regexp.MustCompile(` pid=(\d+) child_comm=.* child_pid=(\d+)$`)
	attachEvent = regexp.MustCompile(`dst_path=(\S+) pid=(\d+) comm=(.*)$`)
)

// readTrace returns what an instance of the tracer has recorded, and fails the test if it has
// lost events.
func readTrace(t *testing.T, directory string) (events []traceEvent) {
	t.Helper()
	lost, err := filepath.Glob(filepath.Join(directory, "per_cpu/cpu*/stats"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lost {
		if err := lostEvents(file); err != nil {
			t.Error(err)
		}
	}
	file, err := os.Open(filepath.Join(directory, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		event, ok, err := readEvent(scanner.Text())
		if err != nil {
			t.Fatalf("%s: %v", directory, err)
		}
		if ok {
			events = append(events, event)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Error(err)
	}
	return events
}

// lostEvents returns an error if the tracer has lost events of the CPU that has these statistics.
func lostEvents(stats string) error {
	data, err := os.ReadFile(stats)
	if err != nil {
		return err
	}
	// A line "commit overrun" comes after it.
	if !strings.Contains(string(data), "\noverrun: 0\n") {
		return fmt.Errorf("%s: the trace has lost events: %s", stats, data)
	}
	return nil
}

// readEvent reads a line of a trace. Comments, and lines without text, are not events.
func readEvent(line string) (event traceEvent, is bool, err error) {
	if line == "" || strings.HasPrefix(line, "#") {
		return traceEvent{}, false, nil
	}
	if event, is = parseTrace(line); !is {
		return traceEvent{}, false, fmt.Errorf("the line %q of the trace cannot be read", line)
	}
	return event, true, nil
}

// parseTrace reads an event of the form "comm-pid [cpu] flags seconds: event: fields". The most
// frequent event comes in hundreds of thousands of lines, so it is read without a regular
// expression.
func parseTrace(line string) (event traceEvent, ok bool) {
	// A command may have a colon in its name, and brackets.
	var head, rest string
	for _, name := range []string{"sched_switch", "sched_process_fork", "cgroup_attach_task"} {
		var found bool
		if head, rest, found = strings.Cut(line, ": "+name+": "); found {
			event.name = name
			break
		}
	}
	from, to := strings.LastIndex(head, "["), strings.LastIndex(head, "]")
	if event.name == "" || from < 0 || to < from {
		return event, false
	}
	seconds, err := strconv.ParseFloat(head[strings.LastIndex(head, " ")+1:], 64)
	if err != nil {
		return event, false
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		ok = ok && err == nil
		return n
	}
	ok = true
	event.at, event.cpu = time.Duration(seconds*1e6)*time.Microsecond, number(head[from+1:to])
	switch event.name {
	case "sched_switch":
		previous, next, _ := strings.Cut(rest, " ==> ")
		event.comm, previous, _ = strings.Cut(strings.TrimPrefix(previous, "prev_comm="), " prev_pid=")
		previous, _, _ = strings.Cut(previous, " ")
		_, next, _ = strings.Cut(next, " next_pid=")
		next, _, _ = strings.Cut(next, " ")
		event.from, event.to = number(previous), number(next)
	case "sched_process_fork":
		fields := forkEvent.FindStringSubmatch(rest)
		if fields == nil {
			return event, false
		}
		event.from, event.to = number(fields[1]), number(fields[2])
	case "cgroup_attach_task":
		fields := attachEvent.FindStringSubmatch(rest)
		if fields == nil {
			return event, false
		}
		event.dst, event.to = fields[1], number(fields[2])
	}
	return event, ok
}

// The tracer's lines are read as Linux 6.18 writes them.
func TestParseTrace(t *testing.T) {
	in(t)
	for line, want := range map[string]traceEvent{
		"          <idle>-0       [001] d..2.  3645.123456: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=runc:[1:CHILD] next_pid=812 next_prio=120": {at: 3645123456 * time.Microsecond, cpu: 1, name: "sched_switch", comm: "swapper/1", to: 812},
		"    tmux: server-7       [001] d..2.  3645.123500: sched_switch: prev_comm=tmux: server prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120":     {at: 3645123500 * time.Microsecond, cpu: 1, name: "sched_switch", comm: "tmux: server", from: 7},
		"   runc:[1:CHILD]-812     [001] d..2.  3645.123999: sched_switch: prev_comm=runc:[1:CHILD] prev_pid=812 prev_prio=120 prev_state=S ==> next_comm=a b next_pid=9 next_prio=120":      {at: 3645123999 * time.Microsecond, cpu: 1, name: "sched_switch", comm: "runc:[1:CHILD]", from: 812, to: 9},
		"            runc-811     [000] .....  3645.000001: sched_process_fork: comm=runc pid=811 child_comm=runc child_pid=812":                                                             {at: 3645000001 * time.Microsecond, name: "sched_process_fork", from: 811, to: 812},
		"            runc-811     [000] .....  3645.000002: cgroup_attach_task: dst_root=5 dst_id=77 dst_level=3 dst_path=/kubepods/burstable/pod1/c pid=812 comm=runc:[0:PARENT]":           {at: 3645000002 * time.Microsecond, name: "cgroup_attach_task", dst: "/kubepods/burstable/pod1/c", to: 812},
	} {
		if got, ok := parseTrace(line); !ok || got != want {
			t.Errorf("%s\nis read as %+v (%v), want %+v", line, got, ok, want)
		}
	}
	if got, is, err := readEvent("# tracer: nop"); is || err != nil {
		t.Errorf("a comment is read as %+v (%v)", got, err)
	}
	if got, _, err := readEvent("CPU:1 [LOST 20 EVENTS]"); err == nil {
		t.Errorf("a gap is read as %+v", got)
	}
}

// sumUp follows tasks through cgroups, and adds up how long each runs. A task begins in the
// cgroup of its parent, and stays there until it is attached to another. Without any switch of
// tasks the account has not begun.
func sumUp(events []traceEvent, tasks map[int]string, begins string) (seen onCPUs, begun bool) {
	seen = onCPUs{pods: map[string]time.Duration{}, host: map[int]time.Duration{}}
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
			if !begun {
				begun = strings.Contains(tasks[event.to], begins) // everything contains the empty string
				continue
			}
			switch cgroup, inPod := tasks[event.from]; {
			case !known || event.from == 0:
			case inPod:
				seen.pods[cgroup+" ("+event.comm+")"] += event.at - begin
			default:
				seen.host[event.cpu] += event.at - begin
			}
		}
	}
	return seen, begun
}
