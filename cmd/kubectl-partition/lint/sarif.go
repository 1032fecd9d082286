// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"path/filepath"

	"github.com/owenrumney/go-sarif/v3/pkg/report"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
)

// SARIF returns the report in the Static Analysis Results Interchange Format, version 2.1.0.
// Problems are notifications of the tool, since the input was not all linted.
func (r *Report) SARIF() *sarif.Report {
	run := sarif.NewRun().WithTool(sarif.NewTool().WithDriver(sarif.NewToolComponent().WithName("kubectl-partition")))
	for _, rule := range Rules() {
		descriptor := run.AddRule(rule.ID).WithDescription(rule.Condition)
		if rule.Remedy != "" {
			descriptor.WithMarkdownHelp(rule.Remedy)
		}
	}
	for _, f := range r.Findings {
		run.CreateResultForRule(f.Rule).WithLevel(string(f.Level)).WithMessage(sarif.NewTextMessage(f.Message)).AddLocation(location(f.File, f.Line, f.Object.String()))
	}
	invocation := sarif.NewInvocation().WithExecutionSuccessful(len(r.Problems) == 0)
	for _, p := range r.Problems {
		invocation.AddToolExecutionNotification(sarif.NewNotification().WithLevel(string(Error)).WithMessage(sarif.NewTextMessage(p.Message)).AddLocation(location(p.File, p.Line, "")))
	}
	run.AddInvocation(invocation)
	return report.NewV210Report().AddRun(run)
}

func location(file string, line int, object string) *sarif.Location {
	at := sarif.NewLocation()
	if file != "" {
		at.WithPhysicalLocation(sarif.NewPhysicalLocation().
			WithArtifactLocation(sarif.NewSimpleArtifactLocation(filepath.ToSlash(file))).
			WithRegion(sarif.NewSimpleRegion(line, line)))
	}
	if object != "" {
		at.AddLogicalLocation(sarif.NewLogicalLocation().WithFullyQualifiedName(object).WithKind("object"))
	}
	return at
}
