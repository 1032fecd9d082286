// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
	"workload.openshift.io/kubernetes/cluster/atomicfile"
)

// Results are what became of specs, in a file, so that a run that is interrupted goes on where it
// stopped.
type Results struct {
	// Subject identifies what was tested. Results of another subject are of no use.
	Subject string `json:"subject"`
	// Specs are the reports by the names of the specs.
	Specs map[string]types.SpecReport `json:"specs"`

	// Replaced is how many results of another subject the file has had. They go with the first that is kept.
	Replaced int `json:"-"`

	file string
	// settled is what mostly became of a spec that has run again, since its first result differed from
	// another side's. instead is a report of that.
	settled map[string]outcome
	instead map[string]types.SpecReport
}

// Open reads the results of a subject from a file. There are none if the file is missing, or has those
// of another subject.
func Open(file, subject string) (*Results, error) {
	r := &Results{}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		if err := json.Unmarshal(data, r); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it to begin again", file, err)
		}
	}
	if r.Subject != subject || r.Specs == nil {
		r.Replaced = len(r.Specs)
		r.Subject, r.Specs = subject, map[string]types.SpecReport{}
	}
	r.file = file
	return r, nil
}

// Has reports whether a spec has run.
func (r *Results) Has(name string) bool {
	_, has := r.Specs[name]
	return has
}

// Passed reports whether a spec has passed. One that skips itself has not.
func (r *Results) Passed(name string) bool { return r.Specs[name].State == types.SpecStatePassed }

// Skipped reports whether a spec has skipped itself.
func (r *Results) Skipped(name string) bool { return r.Specs[name].State == types.SpecStateSkipped }

// outcome is what became of a spec, such that two results of it can be compared.
type outcome string

const (
	notRun  outcome = "has not run"
	didPass outcome = "passed"
	didSkip outcome = "skipped itself"
	didFail outcome = "failed"
)

func (r *Results) outcome(name string) outcome {
	switch {
	case r.Settled(name):
		return r.settled[name]
	case !r.Has(name):
		return notRun
	case r.Passed(name):
		return didPass
	case r.Skipped(name):
		return didSkip
	}
	return didFail
}

// Settle lets specs that have run again count for what mostly became of them then, when these results are
// compared with those of one more side. What ended in another way each time differs from everything.
func (r *Results) Settle(specs []Spec, again []*Results) {
	if r.settled == nil {
		r.settled, r.instead = map[string]outcome{}, map[string]types.SpecReport{}
	}
	for _, spec := range specs {
		r.settled[spec.Name] = usual(spec, again)
		if r.settled[spec.Name] == unsettled {
			report := r.Specs[spec.Name]
			report.State, report.Failure = types.SpecStateFailed, types.Failure{Message: string(unsettled)}
			r.instead[spec.Name] = report
		}
		for _, one := range again {
			if one.outcome(spec.Name) == r.settled[spec.Name] {
				r.instead[spec.Name] = one.Specs[spec.Name]
				break
			}
		}
	}
}

// Settled reports whether a spec counts for what mostly became of it.
func (r *Results) Settled(name string) bool { return r.settled[name] != "" }

// Why returns the first line of what a spec says of its failure.
func (r *Results) Why(name string) string {
	report := r.Specs[name]
	return fmt.Sprintf("%s: %s", report.State, firstLine(report.Failure.Message))
}

// add keeps reports. The output of specs that passed is of no use.
func (r *Results) add(reports ...types.SpecReport) error {
	for _, report := range reports {
		if report.State == types.SpecStatePassed {
			report.CapturedGinkgoWriterOutput, report.CapturedStdOutErr = "", ""
			report.ReportEntries, report.SpecEvents, report.ProgressReports = nil, nil, nil
		}
		r.Specs[report.FullText()] = report
	}
	return r.write()
}

// ForgetFailures forgets what became of those of the specs that have not passed.
func (r *Results) ForgetFailures(specs []Spec) error {
	return r.Forget(slices.DeleteFunc(slices.Clone(specs), func(spec Spec) bool { return r.Passed(spec.Name) }))
}

// Forget forgets what became of specs.
func (r *Results) Forget(specs []Spec) error {
	for _, spec := range specs {
		delete(r.Specs, spec.Name)
	}
	return r.write()
}

func (r *Results) write() error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(r.file, data, 0o644)
}

// WriteJUnit writes what became of the specs for programs that read JUnit's XML, in the order of their names. One
// that has run again counts for what mostly became of it.
func (r *Results) WriteJUnit(specs []Spec, file, suite string) error {
	report := types.Report{SuiteDescription: suite, SuiteSucceeded: true}
	names := make([]string, 0, len(specs))
	for _, spec := range specs {
		if r.Has(spec.Name) {
			names = append(names, spec.Name)
		}
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		result := r.Specs[name]
		if instead, settled := r.instead[name]; settled {
			result = instead
		}
		report.SpecReports = append(report.SpecReports, result)
		report.RunTime += result.RunTime
		report.SuiteSucceeded = report.SuiteSucceeded && !result.Failed()
		if report.StartTime.IsZero() || result.StartTime.Before(report.StartTime) {
			report.StartTime = result.StartTime
		}
		if result.EndTime.After(report.EndTime) {
			report.EndTime = result.EndTime
		}
	}
	report.PreRunStats = types.PreRunStats{TotalSpecs: len(report.SpecReports), SpecsThatWillRun: len(report.SpecReports)}
	return reporters.GenerateJUnitReport(report, file)
}

// When returns when a spec ended, which tells one result of it from another. It is empty without one.
func (r *Results) When(name string) string {
	if !r.Has(name) {
		return ""
	}
	return r.Specs[name].EndTime.UTC().Format(time.RFC3339Nano)
}

// Count returns how many of the specs have passed, and which have run and not passed, in their order.
func (r *Results) Count(specs []Spec) (passed int, others []Spec) {
	for _, spec := range specs {
		switch {
		case r.outcome(spec.Name) == didPass:
			passed++
		case r.Has(spec.Name):
			others = append(others, spec)
		}
	}
	return passed, others
}

// Took returns how long the specs took that have run.
func (r *Results) Took(specs []Spec) (sum time.Duration) {
	for _, spec := range specs {
		sum += r.Specs[spec.Name].RunTime
	}
	return sum
}

// Missing returns the specs without a result.
func (r *Results) Missing(specs []Spec) []Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(spec Spec) bool { return r.Has(spec.Name) })
}
