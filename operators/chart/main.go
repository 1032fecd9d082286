// SPDX-License-Identifier: Apache-2.0

// Command chart writes the companions' Helm chart. Its templates are what kustomize renders of the manifests in
// deploy, with a value in each place that a user chooses, and its schema is that of the configuration's Go types: so
// there is no second copy of either.
//
// The chart names no version and no image. Command images adds both when it packs the chart.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/alerts"
)

// Names that begin with an underscore belong to it.
//
//go:embed all:static
var static embed.FS

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart OPERATORS DIRECTORY")
		os.Exit(2)
	}
	files, err := generate(os.Args[1])
	if err == nil {
		err = write(files, os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write replaces a directory by these files.
func write(files map[string][]byte, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files of the chart, by name. Operators is the directory of the module operators.
func generate(operators string) (map[string][]byte, error) {
	files := map[string][]byte{}
	below, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	if err := fs.WalkDir(below, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[path], err = fs.ReadFile(below, path)
		}
		return err
	}); err != nil {
		return nil, err
	}
	parts, err := partsOf(filepath.Join(operators, "deploy"))
	if err != nil {
		return nil, err
	}
	common := map[string]any{}
	for _, p := range parts {
		text, err := p.template(common)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		files["templates/"+p.file()+".yaml"] = text
	}
	configs, err := configurations(operators)
	if err != nil {
		return nil, err
	}
	values, err := yaml.Marshal(valuesOf(parts, common))
	if err != nil {
		return nil, err
	}
	var images bytes.Buffer
	for _, name := range imagesOf(parts) {
		fmt.Fprintf(&images, "  %s: \"\"\n", name)
	}
	files["values.yaml"] = slices.Concat(bytes.Replace(files["values.yaml"], []byte("  IMAGES\n"), images.Bytes(), 1), values)
	schema, err := schemaOf(parts, common, configs)
	if err != nil {
		return nil, err
	}
	if files["values.schema.json"], err = json.MarshalIndent(schema, "", " "); err != nil {
		return nil, err
	}
	return files, monitoring(files)
}

// monitoring adds what the plugin's alerts renders.
func monitoring(files map[string][]byte) error {
	rules, err := alerts.Rules(alerts.Defaults())
	if err != nil {
		return err
	}
	dashboard, err := alerts.NewDashboard(alerts.Defaults())
	if err != nil {
		return err
	}
	for name, content := range map[string]any{"rules": rules, "dashboard": dashboard} {
		// Templates read them as files, since Prometheus' own templates look like Helm's.
		if files["files/"+name+".json"], err = json.MarshalIndent(content, "", " "); err != nil {
			return err
		}
	}
	return nil
}
