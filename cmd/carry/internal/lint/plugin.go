// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// PluginFindings are those of the series of the plugin's module for a release, or if that is empty, of the common one. Its patches fit the module to another Kubernetes, so what a hook
// may be says nothing of them: they change Go source that is neither a test nor generated, and keep to their own budget.
func PluginFindings(c project.Checkout, release string) ([]Finding, error) {
	patches, err := series.ReadPlugin(c, release)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, p := range patches {
		findings = append(findings, checkMessage(p)...)
		for _, file := range p.Files {
			findings = append(findings, checkKind(p, file)...)
		}
	}
	path := filepath.Join(project.PluginPatches, "budget")
	data, err := os.ReadFile(c.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return findings, nil
	}
	return append(findings, compareBudget(path, data, series.SizeOfAll(patches).Budget(), map[string]string{})...), err
}
