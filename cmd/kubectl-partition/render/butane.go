// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_2/types"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// butaneConfig is the part of Butane's variants openshift and fcos that is used here. Butane's
// own types are not published as a module, so the result is checked against Ignition's.
type butaneConfig struct {
	Variant  string                `json:"variant"`
	Version  string                `json:"version"`
	Metadata *nodefiles.ObjectMeta `json:"metadata,omitempty"`
	Storage  struct {
		Files []butaneFile `json:"files"`
	} `json:"storage"`
	// OpenShift is for the variant of that name, and KernelArguments for fcos.
	OpenShift       *openShiftFields `json:"openshift,omitempty"`
	KernelArguments *shouldExist     `json:"kernel_arguments,omitempty"`
}

type openShiftFields struct {
	KernelArguments []string `json:"kernel_arguments"`
}

type shouldExist struct {
	ShouldExist []string `json:"should_exist"`
}

type butaneFile struct {
	Path string `json:"path"`
	// Mode is decimal in YAML.
	Mode      int  `json:"mode"`
	Overwrite bool `json:"overwrite"`
	Contents  struct {
		Inline string `json:"inline"`
	} `json:"contents"`
	User struct {
		Name string `json:"name"`
	} `json:"user"`
}

// Variants are those of Butane that can be rendered, and the version of each that is used: for
// openshift the one that makes Ignition 3.2.0, for fcos the first with kernel arguments.
var Variants = map[string]string{"openshift": "4.8.0", "fcos": "1.4.0"}

func renderButane(nodes []nodefiles.Node, o Options) (r Rendered, err error) {
	o.Variant = cmp.Or(o.Variant, "openshift")
	version, known := Variants[o.Variant]
	if !known {
		return Rendered{}, fmt.Errorf("variant %q of Butane: want openshift or fcos", o.Variant)
	}
	for _, node := range nodes {
		files, err := filesOf(node, typesOf(nodes))
		if err != nil {
			return Rendered{}, err
		}
		b := butaneConfig{Variant: o.Variant, Version: version}
		arguments := node.KernelArguments()
		content := slices.Concat(files.basic, files.host)
		if o.Variant == "openshift" {
			b.Metadata = &nodefiles.ObjectMeta{Name: machineConfigName(node.Role), Labels: map[string]string{roleLabel: node.Role}}
			if len(arguments) > 0 {
				b.OpenShift = &openShiftFields{arguments}
			}
			r.note([]string{openShiftNote})
			if node.KubeletConfiguration() != nil {
				r.note([]string{"Butane cannot say what the kubelet's configuration needs: take the KubeletConfig of the target machineconfig."})
			}
		} else {
			content = slices.Concat(files.basic, files.kubelet, files.admission, files.host)
			if len(arguments) > 0 {
				b.KernelArguments = &shouldExist{arguments}
			}
			files.grub = nil // Ignition does that
			r.note(files.notes(node))
		}
		for _, file := range content {
			f := butaneFile{Path: file.Path, Mode: int(file.Mode), Overwrite: true}
			f.Contents.Inline, f.User.Name = string(file.Content), "root"
			b.Storage.Files = append(b.Storage.Files, f)
		}
		file, err := nodefiles.YAML(machineConfigName(node.Role)+".bu", 0o644, "", b)
		if err != nil {
			return Rendered{}, err
		}
		var again butaneConfig
		if err := file.DecodeYAML(&again); err != nil {
			return Rendered{}, err
		}
		if err := nodefiles.CheckIgnition(file.Path, again.ignition(), content); err != nil {
			return Rendered{}, err
		}
		r.Files = append(r.Files, file)
	}
	return r, nil
}

// ignition returns what Butane makes of the files.
func (b butaneConfig) ignition() types.Config {
	var files []nodefiles.File
	for _, f := range b.Storage.Files {
		files = append(files, nodefiles.File{Path: f.Path, Mode: fs.FileMode(f.Mode), Content: []byte(f.Contents.Inline)})
	}
	return nodefiles.Ignition(files)
}
