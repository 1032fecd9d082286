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
