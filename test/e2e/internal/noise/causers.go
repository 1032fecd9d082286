// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Kind is what a task belongs to.
type Kind string

// The kinds, with what keeps such tasks off the application's CPU. The words in quotes are parts of
// kubectl partition render --host.
const (
	Host    Kind = "host process; 'affinity' or 'slices' keeps it off"
	Worker  Kind = "kernel's unbound worker; 'workqueue' keeps it off"
	Thread  Kind = "kernel's thread of this CPU; it belongs there"
	Floats  Kind = "kernel's thread of no CPU; 'kthreads' keeps it off"
	Pod     Kind = "task of a pod; its cpuset keeps it off"
	Unknown Kind = "has ended; a process of the host, or of a pod that starts"
)

// Switch is what the kernel's tracer has recorded of a CPU: when a task left it.
type Switch struct {
	At time.Duration
	// Task is the number of the task; zero is the idle one.
	Task int
	// Command is the task's name.
	Command string
}

// Causer is who else was on the application's CPU.
type Causer struct {
	Name string
	Kind Kind
	Time time.Duration
	// Times is how often it came.
	Times int
}

// Causers are all who were, by their names.
type Causers map[string]Causer

// Add adds what was recorded in the order of time. The application is known by its command, and kind
// says what other tasks belong to.
func (c Causers) Add(switches []Switch, application string, kind func(task int) Kind) {
	kinds := map[int]Kind{}
	for i, s := range switches {
		// When the first one came is not known.
		if i == 0 || s.Task == 0 || s.Command == application {
			continue
		}
		if _, is := kinds[s.Task]; !is {
			kinds[s.Task] = kind(s.Task)
		}
		c.add(Causer{Name: nameOf(s.Command), Kind: kindOf(s.Command, kinds[s.Task]), Time: s.At - switches[i-1].At, Times: 1})
	}
}

// Merge adds what another turn has seen.
func (c Causers) Merge(other Causers) {
	for _, causer := range other {
		c.add(causer)
	}
}

func (c Causers) add(causer Causer) {
	sum, is := c[causer.Name]
	if is {
		causer.Time, causer.Times = causer.Time+sum.Time, causer.Times+sum.Times
		if causer.Kind == Unknown {
			causer.Kind = sum.Kind
		}
	}
	c[causer.Name] = causer
}

// nameOf returns the name by which tasks are added up. Workers of the kernel have a number after the
// CPU, or the pool of unbound ones, that they belong to.
func nameOf(command string) string {
	if strings.HasPrefix(command, "kworker/") {
		command, _, _ = strings.Cut(command, ":")
	}
	return command
}

// kindOf corrects a kind by the command: threads of the kernel do not say where they are bound, and
// workers end.
func kindOf(command string, kind Kind) Kind {
	switch _, of, has := strings.Cut(command, "/"); {
	case strings.HasPrefix(command, "kworker/u"):
		return Worker
	case strings.HasPrefix(command, "kworker/"):
		return Thread
	case kind == Floats && has && of != "" && strings.Trim(of, "0123456789") == "":
		return Thread
	}
	return kind
}

// String returns a table of those who were there longest, for a share of the period for which the
// tracer has recorded.
func (c Causers) String(period time.Duration) string {
	const most = 20
	all := slices.SortedFunc(maps.Values(c), func(a, b Causer) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name)) })
	rest := Causer{Name: fmt.Sprintf("%d others", max(0, len(all)-most))}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(causer Causer) {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.3f %%\t%d times\t%s\n", causer.Name, causer.Time, 100*causer.Time.Seconds()/period.Seconds(), causer.Times, causer.Kind)
	}
	for i, causer := range all {
		if i < most {
			row(causer)
			continue
		}
		rest.Time, rest.Times = rest.Time+causer.Time, rest.Times+causer.Times
	}
	if rest.Times > 0 {
		row(rest)
	}
	_ = table.Flush()
	return text.String()
}

// Counts reads a table such as /proc/interrupts or /proc/softirqs, and returns the counts of a CPU by
// the names of the rows.
func Counts(text string, cpu int) (map[string]uint64, error) {
	head, rows, _ := strings.Cut(text, "\n")
	columns := strings.Fields(head)
	at := slices.Index(columns, "CPU"+strconv.Itoa(cpu))
	if at < 0 {
		return nil, fmt.Errorf("the columns are %q, and none is CPU%d", columns, cpu)
	}
	counts := map[string]uint64{}
	for row := range strings.Lines(rows) {
		name, rest, _ := strings.Cut(strings.TrimSpace(row), ":")
		fields := strings.Fields(rest)
		if len(fields) < len(columns) {
			continue // ERR and MIS count all CPUs together
		}
		count, err := strconv.ParseUint(fields[at], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the row %q: %w", row, err)
		}
		if what := fields[len(columns):]; len(what) > 0 {
			if _, err := strconv.Atoi(name); err == nil {
				what = what[len(what)-1:] // the device, after its chip and line
			}
			name += " (" + strings.Join(what, " ") + ")"
		}
		counts[name] = count
	}
	return counts, nil
}

// Since returns how much more there is than before, by the names of the rows.
func Since(before, after map[string]uint64) map[string]uint64 {
	more := map[string]uint64{}
	for name, count := range after {
		if count > before[name] {
			more[name] = count - before[name]
		}
	}
	return more
}

// Sum returns two counts as one.
func Sum(one, other map[string]uint64) map[string]uint64 {
	sum := map[string]uint64{}
	for _, counts := range []map[string]uint64{one, other} {
		for name, count := range counts {
			sum[name] += count
		}
	}
	return sum
}

// PerSecond says how often something came in a second, the most frequent first.
func PerSecond(counts map[string]uint64, period time.Duration) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var texts []string
	for _, name := range names {
		texts = append(texts, fmt.Sprintf("%s %.1f", name, float64(counts[name])/period.Seconds()))
	}
	return strings.Join(texts, ", ")
}
