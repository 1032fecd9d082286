// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/result"
)

// joining is the CPU time off its set that a container may have for each look on cgroup v1, where a
// process joins one hierarchy after another when a runtime starts it (the bound of test/e2e,
// TestStorm, for a process).
const joining = 250 * time.Microsecond

// Change is another cpuset that a container has got.
type Change struct {
	Time metav1.Time `json:"time"`
	From string      `json:"from"`
	To   string      `json:"to"`
}

// Watched is what was seen of a container over time.
type Watched struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Name is that of the container, or "(sandbox)".
	Name string `json:"name"`
	Type string `json:"type"`
	// Expected is the CPU list on which it must run.
	Expected string `json:"expected"`
	// OffSet is how long it has run on other CPUs, in nanoseconds; on cgroup v1 only.
	OffSet time.Duration `json:"offSet"`
	// LooksOff counts the looks at which it, or a task in it, could run or had run elsewhere.
	LooksOff int `json:"looksOff"`
	// Changes are those of the CPUs that it may use.
	Changes []Change `json:"changes,omitempty"`

	looks int
}

// leaked reports whether the container was off its set, for longer than a runtime needs to start
// processes in it.
func (w Watched) leaked() bool { return w.LooksOff > 0 || w.OffSet > time.Duration(w.looks)*joining }

// Seen is what was wrong at some of the looks.
type Seen struct {
	// Finding is that of the first of them.
	Finding `json:",inline"`
	Looks   int `json:"looks"`

	// last is the number of the last of them.
	last int
}

// WatchResult is what Watch has counted.
type WatchResult struct {
	metav1.TypeMeta `json:",inline"`
	CgroupVersion   int `json:"cgroupVersion"`
	// Method and Resolution say how leaks were counted, and what was too short to be seen.
	Method     string        `json:"method"`
	Resolution string        `json:"resolution"`
	Duration   time.Duration `json:"duration"`
	Looks      int           `json:"looks"`
	// Containers are those that ran at any look, ended ones included.
	Containers []Watched `json:"containers"`
	// Findings are those of an audit at any look, leaks included.
	Findings []Seen `json:"findings"`
}

// Leaks returns how many containers were off their sets.
func (r *WatchResult) Leaks() (leaks int) {
	for _, c := range r.Containers {
		if c.leaked() {
			leaks++
		}
	}
	return leaks
}

// Clean reports whether nothing was wrong at any look, and no container was off its set between two.
func (r *WatchResult) Clean() bool { return r.Leaks() == 0 && len(r.Findings) == 0 }

// look counts a look. findings are what is wrong at it. All tasks of a cgroup that are wrong in the same way count as one, since
// a container may start any number of them.
func (r *WatchResult) look(findings []Finding) {
	r.Looks++
	for _, f := range findings {
		i := slices.IndexFunc(r.Findings, func(s Seen) bool {
			return s.Code == f.Code && s.Object == f.Object && s.Cgroup == f.Cgroup && (s.Cgroup != "" || s.Message == f.Message)
		})
		if i < 0 {
			i, r.Findings = len(r.Findings), append(r.Findings, Seen{Finding: f})
		}
		if s := &r.Findings[i]; s.last != r.Looks {
			s.last, s.Looks = r.Looks, s.Looks+1
		}
	}
}

// Watch looks at the node again and again until the context ends, and counts what is wrong, and what
// runs off its set between two looks. The first look is the beginning: what was before does not count.
func Watch(ctx context.Context, options Options, interval time.Duration) (*WatchResult, error) {
	look, end, err := options.looker()
	if err != nil {
		return nil, err
	}
	defer end()
	began := time.Now()
	r := &WatchResult{TypeMeta: result.TypeMeta("AuditWatch"), Containers: []Watched{}, Findings: []Seen{}}
	t := newTracker()
	for {
		n, findings, err := confirmed(ctx, look, options.settle())
		if ctx.Err() != nil && r.Looks > 0 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("look %d: %w", r.Looks+1, err)
		}
		if n.poolsErr == nil { // otherwise it is not known where containers must run
			t.look(n, findings)
		}
		r.look(findings)
		r.CgroupVersion, r.Method, r.Resolution = n.cgroups.version(), method(n, interval), resolution(n, interval)
		if err := sleep(ctx, interval); err != nil {
			break
		}
	}
	r.Duration = time.Since(began)
	for _, w := range t.watched {
		r.Containers = append(r.Containers, w.Watched)
	}
	slices.SortFunc(r.Containers, func(a, b Watched) int {
		return strings.Compare(a.Namespace+"/"+a.Pod+"/"+a.Name, b.Namespace+"/"+b.Pod+"/"+b.Name)
	})
	return r, nil
}

// confirmed looks once, and a second time if something is wrong. It returns what is wrong both
// times.
func confirmed(ctx context.Context, look func(context.Context) (*node, error), after time.Duration) (*node, []Finding, error) {
	n, err := look(ctx)
	if err != nil {
		return nil, nil, err
	}
	findings := n.judge()
	if len(findings) == 0 {
		return n, nil, nil
	}
	if err := sleep(ctx, after); err != nil {
		return nil, nil, err
	}
	if n, err = look(ctx); err != nil {
		return nil, nil, err
	}
	return n, both(findings, n.judge()), nil
}

func method(n *node, interval time.Duration) string {
	if n.cgroups.v1 {
		return fmt.Sprintf("differences of cpuacct.usage_percpu of each container, every %s, and its cpuset", interval)
	}
	return fmt.Sprintf("samples, every %s, of each container's cpuset, of what its tasks may use, and of the CPU on which each ran last", interval)
}

func resolution(n *node, interval time.Duration) string {
	if n.cgroups.v1 {
		return fmt.Sprintf("a nanosecond; up to %s per look is a starting process joining one hierarchy after another, not a leak; a container that starts and ends between two looks is not seen", joining)
	}
	return fmt.Sprintf("%s; cgroup v2 has no account of each CPU, so what begins and ends between two looks is not seen", interval)
}

// tracker compares each look with the one before.
type tracker struct {
	watched map[string]*tracked
	tasks   map[string]task
	// shared are the CPUs on which containers with none of their own had to run at the look before, by
	// workload type; nil before the first look.
	shared map[string]cpuset.CPUSet
	// grown is what each container has added since the look before, by the same keys as watched.
	grown map[string]growth
}

type tracked struct {
	Watched
	last Usage
	// may are the CPUs on which it had to run at that look.
	may cpuset.CPUSet
}

// growth is by how much the counters of a container have grown.
type growth struct {
	workloadType              string
	used, offSet, throttled   time.Duration
	periods, throttledPeriods int64
	pressure                  *time.Duration
}

func newTracker() *tracker { return &tracker{watched: map[string]*tracked{}} }

// look compares a look with the one before. findings are what is wrong at this one.
func (t *tracker) look(n *node, findings []Finding) {
	off := map[string]bool{}
	for _, f := range findings {
		if f.offSet {
			off[f.Cgroup] = true
		}
	}
	tasks := map[string]task{}
	t.grown = map[string]growth{}
	shared := map[string]cpuset.CPUSet{}
	for _, g := range n.groups {
		if _, confined := n.confined(g.pod); g.kind != ofContainer && (g.kind != sandbox || !confined) {
			continue
		}
		may, _ := n.may(g.pod, g.container.name)
		if n.cgroups.v1 && g.kind == sandbox {
			may = n.pools.Union()
		}
		_, _, exclusive := n.checkpoint.Exclusive(g.pod.uid, g.container.name)
		w, known := t.watched[g.usage.Cgroup]
		if !known {
			w = &tracked{Watched: Watched{Namespace: g.pod.namespace, Pod: g.pod.name, Name: g.container.name, Type: g.pod.typeOrDash()}, last: g.usage}
			if t.shared != nil {
				w.last = Usage{CPUs: g.usage.CPUs} // all that it has used is since the look before
			}
			if !exclusive {
				w.may = t.shared[w.Type]
			}
			if g.kind == sandbox {
				w.Name = "(sandbox)"
			}
			t.watched[g.usage.Cgroup] = w
		}
		if !exclusive {
			shared[w.Type] = may
		}
		// What it did before its CPUs changed was right.
		since := may.Union(w.may)
		w.Expected, w.may = may.String(), may
		w.looks++
		grown := growth{workloadType: w.Type}
		for cpu, used := range g.usage.Used {
			more := max(used-at(w.last.Used, cpu), 0)
			grown.used += more
			if n.cgroups.v1 && !since.Contains(cpu) {
				grown.offSet += more
			}
		}
		grown.throttled, grown.periods, grown.throttledPeriods = max(g.usage.Throttled-w.last.Throttled, 0), max(g.usage.Periods-w.last.Periods, 0), max(g.usage.ThrottledPeriods-w.last.ThrottledPeriods, 0)
		if g.usage.Pressure != nil && w.last.Pressure != nil {
			waited := max(*g.usage.Pressure-*w.last.Pressure, 0)
			grown.pressure = &waited
		}
		w.OffSet += grown.offSet
		isOff := off[g.usage.Cgroup]
		for _, id := range g.tasks {
			now, runs := n.tasks[id]
			if !runs {
				continue
			}
			key := g.usage.Cgroup + " " + now.identity()
			// It has run since the look before, the last time on this CPU.
			if before, seen := t.tasks[key]; seen && now.ran > before.ran && !since.Contains(now.processor) {
				isOff = true
			}
			tasks[key] = now
		}
		if isOff {
			w.LooksOff++
		}
		if g.usage.CPUs != w.last.CPUs {
			w.Changes = append(w.Changes, Change{metav1.Now(), w.last.CPUs, g.usage.CPUs})
		}
		t.grown[g.usage.Cgroup] = grown
		w.last = g.usage
	}
	t.tasks, t.shared = tasks, shared
}

// at returns an element of a list; zero for one that it does not have.
func at(list []time.Duration, index int) time.Duration {
	if index < len(list) {
		return list[index]
	}
	return 0
}
