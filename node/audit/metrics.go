// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Exporter looks at the node from time to time, and is a Prometheus collector of what it sees.
// The label type is the workload type: "-" for ordinary pods, and "other" for types that the
// pinning file does not name. Times are in seconds.
type Exporter struct {
	options Options

	mutex   sync.Mutex
	tracker *tracker
	// result and busy are of the last walk; result is nil before the first.
	result *Result
	busy   map[string]float64
	totals map[string]*totals
	walks  map[string]float64
	took   time.Duration
	v1     bool
}

// totals are what the containers of a type, ended ones included, have added since the start.
type totals struct{ used, offSet, throttled, periods, throttledPeriods, pressure float64 }

// NewExporter returns an exporter that has not looked yet.
func NewExporter(options Options) *Exporter {
	return &Exporter{options: options, tracker: newTracker(), totals: map[string]*totals{}, walks: map[string]float64{"success": 0, "error": 0}}
}

// Run looks at the node every interval until the context ends. failed is called with what went
// wrong with a look; the next one may succeed.
func (e *Exporter) Run(ctx context.Context, interval time.Duration, failed func(error)) error {
	for {
		if err := e.look(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		if sleep(ctx, interval) != nil {
			return nil
		}
	}
}

func (e *Exporter) look(ctx context.Context) error {
	began := time.Now()
	result, n, err := audit(ctx, e.options)
	var busy map[string]float64
	if err == nil {
		busy, err = n.busy()
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.took = time.Since(began)
	if err != nil {
		e.walks["error"]++
		return err
	}
	e.walks["success"]++
	e.result, e.busy, e.v1 = result, busy, n.cgroups.v1
	e.tracker.look(n, result.Findings)
	for _, grown := range e.tracker.grown {
		t := e.of(grown.workloadType)
		t.used += grown.used.Seconds()
		t.offSet += grown.offSet.Seconds()
		t.throttled += grown.throttled.Seconds()
		t.periods += float64(grown.periods)
		t.throttledPeriods += float64(grown.throttledPeriods)
		if grown.pressure != nil {
			t.pressure += grown.pressure.Seconds()
		}
	}
	// Containers that have ended are counted, and need not be remembered.
	maps.DeleteFunc(e.tracker.watched, func(cgroup string, _ *tracked) bool { _, runs := e.tracker.grown[cgroup]; return !runs })
	return nil
}

// label bounds the label type: a user may write any annotation. The caller holds the lock.
func (e *Exporter) label(workloadType string) string {
	if workloadType == "-" || slices.ContainsFunc(e.result.Pools, func(p Pool) bool { return p.Type == workloadType }) {
		return workloadType
	}
	return "other"
}

func (e *Exporter) of(workloadType string) *totals {
	label := e.label(workloadType)
	if e.totals[label] == nil {
		e.totals[label] = &totals{}
	}
	return e.totals[label]
}

// busy returns how long the CPUs of each pool have been busy since the host started, in seconds.
func (n *node) busy() (map[string]float64, error) {
	procs, err := n.host.procfs()
	if err != nil {
		return nil, err
	}
	stat, err := procs.Stat()
	if err != nil {
		return nil, err
	}
	busy := map[string]float64{}
	for workloadType, pool := range n.pools {
		busy[workloadType] = 0
		for _, cpu := range pool.List() {
			c := stat.CPU[int64(cpu)]
			busy[workloadType] += c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
		}
	}
	return busy, nil
}

const prefix = "workload_partitioning_audit_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	containersDesc       = describe("containers", "Running containers, by workload type.", "workload_type")
	offSetDesc           = describe("containers_off_set", "Containers, sandboxes and pods that may run, or have a task that may run, on CPUs where they must not, by workload type.", "workload_type")
	findingsDesc         = describe("findings", "Findings of the last walk, by code.", "code")
	poolCPUsDesc         = describe("pool_cpus", "CPUs of the pool of a workload type.", "workload_type")
	poolBusyDesc         = describe("pool_busy_seconds_total", "Time that the CPUs of a pool were busy, with whatever ran there, since the host started.", "workload_type")
	usedDesc             = describe("cpu_usage_seconds_total", "CPU time of containers since this program started, by workload type.", "workload_type")
	offSetSecondsDesc    = describe("off_set_seconds_total", "CPU time of containers on CPUs where they must not run; on cgroup v1 only.", "workload_type")
	periodsDesc          = describe("throttling_periods_total", "Periods in which a container with a CPU quota ran.", "workload_type")
	throttledPeriodsDesc = describe("throttled_periods_total", "Periods in which a container had used up its CPU quota.", "workload_type")
	throttledDesc        = describe("throttled_seconds_total", "Time for which containers had used up their CPU quotas.", "workload_type")
	pressureDesc         = describe("cpu_pressure_waiting_seconds_total", "Time for which some task of a container waited for a CPU, added up over containers (PSI, some); on cgroup v2 only.", "workload_type")
	walksDesc            = describe("walks_total", "Walks over the node, by result: success or error.", "result")
	successDesc          = describe("last_success_timestamp_seconds", "Time of the last walk that succeeded, since the epoch.")
	tookDesc             = describe("walk_duration_seconds", "Duration of the last walk.")
)

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{containersDesc, offSetDesc, findingsDesc, poolCPUsDesc, poolBusyDesc, usedDesc, offSetSecondsDesc, periodsDesc, throttledPeriodsDesc,
		throttledDesc, pressureDesc, walksDesc, successDesc, tookDesc} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector. Before the first walk has succeeded there are only
// the metrics of walks.
func (e *Exporter) Collect(metrics chan<- prometheus.Metric) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	for result, walks := range e.walks {
		counter(walksDesc, walks, result)
	}
	gauge(tookDesc, e.took.Seconds())
	if e.result == nil {
		return
	}
	gauge(successDesc, float64(e.result.Time.Unix()))
	byType, offByType, byCode := map[string]float64{"-": 0}, map[string]float64{"-": 0}, map[Code]float64{}
	for _, p := range e.result.Pools {
		byType[p.Type], offByType[p.Type] = 0, 0
		gauge(poolCPUsDesc, float64(size(p.CPUs)), p.Type)
		counter(poolBusyDesc, e.busy[p.Type], p.Type)
	}
	for _, c := range e.result.Containers {
		if c.Kind == kinds[ofContainer] {
			byType[e.label(c.Type)]++
		}
	}
	for code := range remedies {
		if !isNote(code) {
			byCode[code] = 0
		}
	}
	off := map[string]bool{}
	for _, f := range e.result.Findings {
		byCode[f.Code]++
		if f.offSet && !off[f.Object] {
			off[f.Object] = true
			offByType[e.label(f.Type)]++
		}
	}
	for workloadType, containers := range byType {
		gauge(containersDesc, containers, workloadType)
	}
	for workloadType, containers := range offByType {
		gauge(offSetDesc, containers, workloadType)
	}
	for code, findings := range byCode {
		gauge(findingsDesc, findings, string(code))
	}
	for workloadType, t := range e.totals {
		counter(usedDesc, t.used, workloadType)
		counter(periodsDesc, t.periods, workloadType)
		counter(throttledPeriodsDesc, t.throttledPeriods, workloadType)
		counter(throttledDesc, t.throttled, workloadType)
		if e.v1 {
			counter(offSetSecondsDesc, t.offSet, workloadType)
		} else {
			counter(pressureDesc, t.pressure, workloadType)
		}
	}
}
