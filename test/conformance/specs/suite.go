// SPDX-License-Identifier: Apache-2.0

// Package specs runs chosen specs of upstream's end-to-end tests in several processes, and keeps
// what became of each. It must know neither the cluster nor what its results mean.
package specs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// Suite is upstream's compiled tests, and how they run.
type Suite struct {
	// Program runs them.
	Program Program
	// Args are its arguments in a run, besides those of ginkgo.
	Args []string
	// Logs is a directory: each process has a log there.
	Logs string
	// Batch is how many specs run in one process; zero means 4, or fewer where there are few. A process
	// takes some seconds to begin, and an interrupt loses what its specs have done so far.
	Batch int
	// Limit is how long a process may take; zero means 40 minutes. The slowest spec of conformance takes
	// some minutes, and one that fails waits for as long. LimitEach is how much longer for each spec.
	Limit, LimitEach time.Duration
	// SetUps is how often the suite is set up for a process, if that fails; zero means once.
	SetUps int
	// Say is called with what a process did not do, and what follows from that; it may be nil.
	Say func(format string, args ...any)
	// Lost is the error of a run that ends because what it runs on does, which says nothing about the specs.
	// Nil means that there is none.
	Lost error
}

// Program runs compiled tests somewhere.
type Program interface {
	// Run runs them with arguments, until the context ends, and writes what they print to a log. It
	// returns what they write with --ginkgo.json-report. There may be a report next to
	// an error, which is also that of a spec that fails.
	Run(ctx context.Context, log io.Writer, args ...string) (report []byte, err error)
	// String is the program's name, for messages.
	String() string
}

// Spec is one of them.
type Spec struct {
	// Name is the texts of its containers and its own, as -ginkgo.focus sees them.
	Name string
	// Serial means that no other may run at the same time.
	Serial bool
}

// serial is upstream's label of specs that run alone (test/e2e/framework, WithSerial).
const serial = "Serial"

// List returns the specs whose names match one regular expression and not another, in their order. If
// that other is empty, no name matches it. List needs no cluster.
func (s *Suite) List(ctx context.Context, focus, skip string) ([]Spec, error) {
	const name = "list"
	args := []string{"--ginkgo.dry-run", "--ginkgo.focus=" + focus}
	if _, err := regexp.Compile(focus); err != nil {
		return nil, fmt.Errorf("focus %q is not a regular expression: %w", focus, err)
	}
	if skip != "" {
		if _, err := regexp.Compile(skip); err != nil {
			return nil, fmt.Errorf("skip %q is not a regular expression: %w", skip, err)
		}
		args = append(args, "--ginkgo.skip="+skip)
	}
	reports, err := s.execute(ctx, name, args...)
	if err != nil {
		return nil, fmt.Errorf("%s lists no specs: %w: %s", s.Program, err, tail(s.log(name)))
	}
	var specs []Spec
	for _, report := range reports {
		if report.LeafNodeType.Is(types.NodeTypeIt) && report.State != types.SpecStateSkipped && report.State != types.SpecStatePending {
			specs = append(specs, Spec{Name: report.FullText(), Serial: report.IsSerial || slices.Contains(report.Labels(), serial)})
		}
	}
	return specs, nil
}

// run runs specs in one process, one after another, and returns the reports of those that ran to their
// end. why says why others did not; name is that of the log. The error means that no spec could run,
// since the suite cannot be set up on this cluster.
func (s *Suite) run(ctx context.Context, name string, specs []Spec) (ended []types.SpecReport, why, err error) {
	// A focus matches a part of the suite's description and of the spec's name after it.
	focus := make([]string, len(specs))
	for i, spec := range specs {
		focus[i] = " " + regexp.QuoteMeta(spec.Name) + "$"
	}
	// A process that hangs outside of its specs does not end by ginkgo's limit.
	limit := cmp.Or(s.Limit, 40*time.Minute) + time.Duration(len(specs))*s.LimitEach
	within, cancel := context.WithTimeout(ctx, limit+5*time.Minute)
	defer cancel()
	reports, why := s.execute(within, name, append(slices.Clone(s.Args),
		"--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout="+limit.String(), "--ginkgo.focus="+strings.Join(focus, "|"))...)
	for _, report := range reports {
		wanted := slices.ContainsFunc(specs, func(spec Spec) bool { return spec.Name == report.FullText() })
		if wanted && report.LeafNodeType.Is(types.NodeTypeIt) && final(report) {
			ended = append(ended, report)
		}
		if !report.LeafNodeType.Is(types.NodeTypeIt) && report.Failed() {
			err = fmt.Errorf("%s failed: %s; the log is %s", report.LeafNodeType, firstLine(report.Failure.Message), s.log(name))
		}
	}
	if reports == nil && ctx.Err() == nil && !s.lost(why) {
		if log, _ := os.ReadFile(s.log(name)); !bytes.Contains(log, []byte(running)) {
			return nil, nil, fmt.Errorf("%s did not start: %w: %s", s.Program, why, tail(s.log(name)))
		}
	}
	if len(ended) > 0 {
		err = nil // what failed is about the end of the suite
	}
	if len(ended) == len(specs) {
		return ended, nil, err // a spec that failed makes the process fail, too
	}
	if why == nil {
		why = errors.New("the process succeeded without running it")
	}
	return ended, fmt.Errorf("%w; the log is %s", why, s.log(name)), err
}

// lost reports whether a process ended because what it ran on did.
func (s *Suite) lost(why error) bool { return s.Lost != nil && errors.Is(why, s.Lost) }

func (s *Suite) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(format, args...)
	}
}

// final reports whether a spec has run to its end. One that ginkgo ends or skips, since the time of the
// process is up, has not.
func final(report types.SpecReport) bool {
	switch report.State {
	case types.SpecStatePassed, types.SpecStateFailed, types.SpecStatePanicked:
		return true
	case types.SpecStateTimedout:
		return !strings.Contains(report.Failure.Message, suiteTimeout)
	case types.SpecStateSkipped:
		return report.Failure.Message != "" && !strings.HasPrefix(report.Failure.Message, setUpFailed)
	}
	return false
}

// running is what ginkgo prints before the first spec.
const running = "Running Suite: "

// suiteTimeout is what ginkgo says of a spec that runs when the time of the process is up
// (internal/suite.go).
const suiteTimeout = "A suite timeout occurred"

// setUpFailed is how ginkgo begins to say that it skips a spec since what sets up its container has failed, or was
// skipped (internal/group.go).
const setUpFailed = "Spec skipped because "

func (s *Suite) log(name string) string { return filepath.Join(s.Logs, name+".log") }

// execute runs the program, and returns its reports.
func (s *Suite) execute(ctx context.Context, name string, args ...string) (types.SpecReports, error) {
	if err := os.MkdirAll(s.Logs, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(s.log(name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	report, runErr := s.Program.Run(ctx, log, args...)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s was killed: %w", s.Program, ctx.Err())
	}
	if report == nil {
		return nil, runErr
	}
	var suites []types.Report
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, fmt.Errorf("the report of %s: %w", s.Program, err)
	}
	var reports types.SpecReports
	for _, suite := range suites {
		reports = append(reports, suite.SpecReports...)
	}
	return reports, runErr
}

// tail returns the last lines of a log.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
