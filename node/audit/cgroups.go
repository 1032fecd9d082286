// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/cpuset"
)

// hierarchy is the host's hierarchy of cgroups that has cpusets.
type hierarchy struct {
	// root is where all controllers are mounted; on v1 each has a directory there.
	root string
	v1   bool
}

// hierarchy finds out which version the host has. v1's cpuset controller decides: a host that
// has it lacks v2's, even if it mounts both versions.
func (h Host) hierarchy() (hierarchy, error) {
	if info, err := os.Stat(filepath.Join(h.Cgroups, "cpuset")); err == nil && info.IsDir() {
		return hierarchy{h.Cgroups, true}, nil
	}
	controllers, err := readText(filepath.Join(h.Cgroups, "cgroup.controllers"))
	if err != nil {
		return hierarchy{}, fmt.Errorf("%s has no cgroups of either version: %w", h.Cgroups, err)
	}
	if !slices.Contains(strings.Fields(controllers), "cpuset") {
		return hierarchy{}, fmt.Errorf("the host's cgroups at %s have no cpuset controller, only %q", h.Cgroups, controllers)
	}
	return hierarchy{h.Cgroups, false}, nil
}

// dir returns the directory of a cgroup, on v1 below a controller.
func (h hierarchy) dir(controller, cgroup string) string {
	if h.v1 {
		return filepath.Join(h.root, controller, cgroup)
	}
	return filepath.Join(h.root, cgroup)
}

// version returns 1 or 2.
func (h hierarchy) version() int {
	if h.v1 {
		return 1
	}
	return 2
}

// Usage is what the kernel says about a cgroup.
type Usage struct {
	// Cgroup is the path below each controller.
	Cgroup string `json:"cgroup"`
	// CPUs is the CPU list on which it can run.
	CPUs string `json:"cpus"`
	// Tasks are the CPU lists that its tasks may use, each list once.
	Tasks []string `json:"tasks,omitempty"`
	// Used is the time spent on each CPU, in nanoseconds. Cgroup v2 does not count each CPU on its
	// own: there Used has one number, for all of them.
	Used []time.Duration `json:"used"`
	// Weight is cpu.shares on cgroup v1, cpu.weight on v2.
	Weight int64 `json:"weight"`
	// Quota is the CPU time allowed, in millicores; zero means no limit.
	Quota float64 `json:"quota,omitempty"`
	// Throttling since the cgroup was made; Throttled is in nanoseconds.
	Periods          int64         `json:"periods,omitempty"`
	ThrottledPeriods int64         `json:"throttledPeriods,omitempty"`
	Throttled        time.Duration `json:"throttled,omitempty"`
	// Pressure is how long some task has waited for a CPU, in nanoseconds; nil on cgroup v1, which
	// does not count it.
	Pressure *time.Duration `json:"pressure,omitempty"`

	effective cpuset.CPUSet
}

// usage reads a cgroup. A cgroup that has gone is an error for which gone returns true.
func (h hierarchy) usage(cgroup string) (u Usage, err error) {
	u.Cgroup = cgroup
	r := reader{}
	if h.v1 {
		h.usageV1(&r, &u)
	} else {
		h.usageV2(&r, &u)
	}
	u.CPUs = u.effective.String()
	return u, r.err
}

func (h hierarchy) usageV1(r *reader, u *Usage) {
	cpusets, cpu := h.dir("cpuset", u.Cgroup), h.dir("cpu", u.Cgroup)
	u.effective = r.cpus(cpusets, "cpuset.effective_cpus")
	u.Weight = r.number(cpu, "cpu.shares")
	if quota, period := r.number(cpu, "cpu.cfs_quota_us"), r.number(cpu, "cpu.cfs_period_us"); quota > 0 && period > 0 {
		u.Quota = 1000 * float64(quota) / float64(period)
	}
	for field := range strings.FieldsSeq(r.text(h.dir("cpuacct", u.Cgroup), "cpuacct.usage_percpu")) {
		u.Used = append(u.Used, time.Duration(r.parse(field)))
	}
	stat := r.keys(cpu, "cpu.stat")
	u.Periods, u.ThrottledPeriods, u.Throttled = stat["nr_periods"], stat["nr_throttled"], time.Duration(stat["throttled_time"])
}

func (h hierarchy) usageV2(r *reader, u *Usage) {
	dir := h.dir("", u.Cgroup)
	u.effective = r.cpus(dir, "cpuset.cpus.effective")
	u.Weight = r.number(dir, "cpu.weight")
	if fields := strings.Fields(r.text(dir, "cpu.max")); len(fields) == 2 && fields[0] != "max" {
		if quota, period := r.parse(fields[0]), r.parse(fields[1]); period > 0 {
			u.Quota = 1000 * float64(quota) / float64(period)
		}
	}
	stat := r.keys(dir, "cpu.stat")
	u.Used = []time.Duration{time.Duration(stat["usage_usec"]) * time.Microsecond}
	u.Periods, u.ThrottledPeriods, u.Throttled = stat["nr_periods"], stat["nr_throttled"], time.Duration(stat["throttled_usec"])*time.Microsecond
	u.Pressure = r.pressure(dir)
}

// tasks returns the numbers of the tasks in a cgroup, and not in those below.
func (h hierarchy) tasks(cgroup string) (ids []int, err error) {
	file := "cgroup.threads"
	if h.v1 {
		file = "tasks"
	}
	text, err := readText(filepath.Join(h.dir("cpuset", cgroup), file))
	if gone(err) || (err != nil && !h.v1 && !errors.Is(err, fs.ErrPermission)) {
		return nil, nil // on v2 the file cannot be read where there are only groups
	}
	for field := range strings.FieldsSeq(text) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("tasks of cgroup %s: %w", cgroup, err)
		}
		if id != 0 { // zero is a task in a PID namespace that we do not see
			ids = append(ids, id)
		}
	}
	return ids, err
}

// children returns the cgroups directly below a cgroup; none if it has gone.
func (h hierarchy) children(cgroup string) (children []string) {
	entries, _ := os.ReadDir(h.dir("cpuset", cgroup))
	for _, entry := range entries {
		if entry.IsDir() {
			children = append(children, filepath.Join(cgroup, entry.Name()))
		}
	}
	return children
}

// reader reads files of a cgroup; once one cannot be read it returns zero values.
type reader struct{ err error }

func (r *reader) text(dir, file string) (text string) {
	if r.err == nil {
		text, r.err = readText(filepath.Join(dir, file))
	}
	return text
}

func (r *reader) parse(text string) (number int64) {
	if r.err == nil {
		number, r.err = strconv.ParseInt(text, 10, 64)
	}
	return number
}

func (r *reader) number(dir, file string) int64 {
	text := r.text(dir, file)
	if number := r.parse(text); r.err == nil {
		return number
	}
	return 0
}

func (r *reader) cpus(dir, file string) (set cpuset.CPUSet) {
	text := r.text(dir, file)
	if r.err == nil {
		set, r.err = parseCPUs(filepath.Join(dir, file), text)
	}
	return set
}

// keys reads a file of lines that have a key and a number each.
func (r *reader) keys(dir, file string) map[string]int64 {
	values := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(r.text(dir, file)))
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), " "); found {
			values[key] = r.parse(value)
		}
	}
	return values
}

// pressure reads the total of the line "some" of cpu.pressure, in microseconds (Linux,
// Documentation/accounting/psi.rst). It returns nil where the kernel has it switched off.
func (r *reader) pressure(dir string) *time.Duration {
	if r.err != nil {
		return nil
	}
	text, err := readText(filepath.Join(dir, "cpu.pressure"))
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(text) {
		if total, found := strings.CutPrefix(field, "total="); found {
			waited := time.Duration(r.parse(total)) * time.Microsecond
			return &waited
		}
	}
	return nil
}
