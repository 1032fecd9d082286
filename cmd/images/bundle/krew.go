// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
)

// manifestFile is krew's manifest of the plugin. krew demands the plugin's name.
const manifestFile = "partition.yaml"

// manifest is what krew installs the plugin by (sigs.k8s.io/krew, pkg/index/types.go).
var manifest = template.Must(template.New(manifestFile).Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: partition
spec:
  version: {{.Version}}
  shortDescription: Set up, check and explain partitioned nodes
  description: |
    Finds manifests whose pods will not be partitioned, says of each pod what becomes of it and why, renders
    the configuration of nodes, foretells what a change of pools does, and shows the state of a cluster.
  caveats: |
    audit, plan --on-host and render --from-node read the node on which they run. Install the plugin there.
    For completion in your shell, put a command into a directory of your PATH:
      kubectl partition completion kubectl >kubectl_complete-partition && chmod +x kubectl_complete-partition
  platforms:
{{- range .Platforms}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Arch}}
    uri: {{printf "%q" .URI}}
    sha256: {{.SHA256}}
    bin: {{.Bin}}
{{- end}}
`))

// writeManifest writes krew's manifest of the tarballs in the directory.
func (o Options) writeManifest(dir string) error {
	type platform struct{ OS, Arch, URI, SHA256, Bin string }
	var platforms []platform
	for _, name := range slices.Sorted(maps.Keys(o.Plugin)) {
		archive := pluginArchive(name)
		sum, err := digest.File(filepath.Join(dir, archive))
		if err != nil {
			return err
		}
		system, architecture, _ := strings.Cut(name, "/")
		bin := pluginName
		if system == "windows" {
			bin += ".exe"
		}
		platforms = append(platforms, platform{system, architecture, strings.TrimSuffix(o.URL, "/") + "/" + archive, sum, bin})
	}
	file, err := os.Create(filepath.Join(dir, manifestFile))
	if err != nil {
		return err
	}
	return errors.Join(manifest.Execute(file, map[string]any{"Version": o.Version, "Platforms": platforms}), file.Close())
}
