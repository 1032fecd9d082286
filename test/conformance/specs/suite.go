/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package specs runs chosen specs of upstream's end-to-end tests in several processes, and keeps
// what became of each. It must know neither the cluster nor what its results mean.
package specs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// Suite is upstream's compiled end-to-end tests and the cluster that they test.
type Suite struct {
	// Binary is e2e.test, Kubectl the command that some specs run, and Tree the release's source tree.
	Binary, Kubectl, Tree string
	// Kubeconfig is that of an administrator.
	Kubeconfig string
	// Logs is a directory: each process has a log there.
	Logs string
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

// List returns the specs whose names match a regular expression, in their order. It needs no cluster.
func (s *Suite) List(ctx context.Context, focus string) ([]Spec, error) {
	if _, err := regexp.Compile(focus); err != nil {
		return nil, fmt.Errorf("focus %q is no regular expression: %w", focus, err)
	}
	reports, output, err := s.execute(ctx, "list", "-ginkgo.dry-run", "-ginkgo.focus="+focus)
	if err != nil {
		return nil, fmt.Errorf("%s lists no specs: %w: %s", s.Binary, err, output)
	}
	var specs []Spec
	for _, report := range reports {
		if report.LeafNodeType.Is(types.NodeTypeIt) && report.State != types.SpecStateSkipped && report.State != types.SpecStatePending {
			specs = append(specs, Spec{Name: report.FullText(), Serial: report.IsSerial || slices.Contains(report.Labels(), serial)})
		}
	}
	return specs, nil
}

// Images returns the references of all images that upstream's tests use.
func (s *Suite) Images(ctx context.Context) ([]string, error) {
	output, err := exec.CommandContext(ctx, s.Binary, "-list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("%s -list-images: %w", s.Binary, err)
	}
	return strings.Fields(string(output)), nil
}

// run runs specs in one process, one after another, and returns the reports of those that ran to an
// end. The error says why others did not; name is that of the log.
func (s *Suite) run(ctx context.Context, name string, specs []Spec, limit time.Duration) ([]types.SpecReport, error) {
	// Upstream's output before the specs has their names, too; a focus matches the whole name.
	focus := make([]string, len(specs))
	for i, spec := range specs {
		focus[i] = " " + regexp.QuoteMeta(spec.Name) + "$"
	}
	reports, _, err := s.execute(ctx, name,
		"-kubeconfig="+s.Kubeconfig, "-kubectl-path="+s.Kubectl, "-repo-root="+s.Tree, "-provider=local", "-disable-log-dump",
		"-ginkgo.v", "-ginkgo.no-color", "-ginkgo.timeout="+limit.String(), "-ginkgo.focus="+strings.Join(focus, "|"))
	var ended []types.SpecReport
	for _, report := range reports {
		wanted := slices.ContainsFunc(specs, func(spec Spec) bool { return spec.Name == report.FullText() })
		if wanted && report.LeafNodeType.Is(types.NodeTypeIt) && final(report) {
			ended = append(ended, report)
		}
	}
	if len(ended) == len(specs) {
		return ended, nil // a spec that failed gives the process a bad end, too
	}
	var broken []string
	for _, report := range reports {
		if !report.LeafNodeType.Is(types.NodeTypeIt) && report.Failed() {
			broken = append(broken, report.LeafNodeType.String()+": "+firstLine(report.Failure.Message))
		}
	}
	if len(broken) > 0 {
		err = errors.New(strings.Join(broken, "; "))
	}
	if err == nil {
		err = errors.New("the process ended well, without running it")
	}
	return ended, fmt.Errorf("%w; the log is %s", err, s.log(name))
}

// final reports whether a spec has run to an end. One that ginkgo skips since its time is up has not.
func final(report types.SpecReport) bool {
	switch report.State {
	case types.SpecStatePassed, types.SpecStateFailed, types.SpecStatePanicked, types.SpecStateTimedout:
		return true
	case types.SpecStateSkipped:
		return report.Failure.Message != ""
	}
	return false
}

func (s *Suite) log(name string) string { return filepath.Join(s.Logs, name+".log") }

// execute runs the binary in a process group of its own, which ends with the context.
func (s *Suite) execute(ctx context.Context, name string, args ...string) (types.SpecReports, string, error) {
	if err := os.MkdirAll(s.Logs, 0o755); err != nil {
		return nil, "", err
	}
	log, err := os.Create(s.log(name))
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	report := filepath.Join(s.Logs, name+".json")
	if err := os.Remove(report); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, s.Binary, append(args, "-ginkgo.json-report="+report)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.Logs
	// Upstream's tests start programs of their own, such as kubectl proxy.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if cmd.Process != nil {
		// What a spec that failed has left running.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, tail(s.log(name)), errors.Join(runErr, err)
	}
	var suites []types.Report
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, "", fmt.Errorf("%s: %w", report, err)
	}
	var reports types.SpecReports
	for _, suite := range suites {
		reports = append(reports, suite.SpecReports...)
	}
	return reports, tail(s.log(name)), errors.Join(runErr, os.Remove(report))
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
