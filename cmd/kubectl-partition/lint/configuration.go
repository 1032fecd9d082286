// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/partition"
)

// The kinds that configure hosts, besides those in which an argument of the kernel or a pinning file is found.
var (
	machineConfigKind = schema.GroupKind{Group: "machineconfiguration.openshift.io", Kind: "MachineConfig"}
	kubeletConfigKind = schema.GroupKind{Group: "machineconfiguration.openshift.io", Kind: "KubeletConfig"}
	profileKind       = schema.GroupKind{Group: "performance.openshift.io", Kind: "PerformanceProfile"}
	tunedKind         = schema.GroupKind{Group: "tuned.openshift.io", Kind: "Tuned"}
	kubeletKind       = schema.GroupKind{Group: "kubelet.config.k8s.io", Kind: "KubeletConfiguration"}
	configMapKind     = schema.GroupKind{Kind: "ConfigMap"}
	// pinningFileKind and fileKind are no kinds of an API: a pinning file by itself, and what else has none, such as the
	// machine configuration of Talos, Butane, Ignition and the user data of cloud-init.
	pinningFileKind = schema.GroupKind{Group: "file", Kind: "PinningFile"}
	fileKind        = schema.GroupKind{Group: "file", Kind: "File"}
)

func (o *object) is(kind schema.GroupKind) bool { return o.group == kind.Group && o.Kind == kind.Kind }

// isFile reports whether an object is none of an API, so that it has no metadata.
func (o *object) isFile() bool { return o.group == fileKind.Group }

var pinningFileName = filepath.Base(partition.PinningFilePath)

// file returns what a document without a kind is, if it matters.
func (d *document) file(o *object) []*object {
	kind := fileKind
	switch {
	case len(o.path) == 0 && filepath.Base(d.source.Name) == pinningFileName:
		kind = pinningFileKind
	case !mayConfigureHosts(o.json):
		return nil
	}
	o.group, o.Kind, o.Name = kind.Group, kind.Kind, filepath.Base(d.source.Name)
	return []*object{o}
}

// mayConfigureHosts reports whether an object of some kind has what is looked for in objects that configure hosts.
func mayConfigureHosts(data []byte) bool {
	return bytes.Contains(data, []byte("isolcpus=")) || bytes.Contains(data, []byte(pinningFileName))
}

// configuresHosts reports whether an object is looked at for what configures hosts: it is none of Kubernetes' own with pods, nor
// another pod template of the same object.
func (o *object) configuresHosts() bool {
	return !o.isWorkload() || !o.pods.further && !isWorkload(o.group, o.Kind)
}

// visit calls a function with all that is in an object and may configure hosts, and with the path there. It leaves out pod templates,
// objects inside of the object, and the manifests of a ConfigMap: these are looked at by themselves. If the function returns
// false, it leaves out what is further down.
func (o *object) visit(see func(value any, path []string) (further bool)) {
	var whole any
	if json.Unmarshal(o.json, &whole) != nil {
		return
	}
	walk(whole, nil, func(value any, path []string) bool {
		fields, ok := value.(map[string]any)
		if ok && len(path) > 0 && (isObject(fields) || isTemplate(fields)) {
			return false
		}
		if len(path) == 2 && o.is(configMapKind) && slices.Contains(manifestKeys, path[1]) {
			return false
		}
		return see(value, path)
	})
}

// manifestKeys are the keys under which a ConfigMap of a NodePool has manifests.
var manifestKeys = []string{v1beta1.ConfigKey, v1beta1.TuningKey}

// manifests returns the objects in a NodePool's ConfigMap that configure hosts.
func (d *document) manifests(o *object) (objects []*object) {
	for _, key := range manifestKeys {
		var text string
		if json.Unmarshal(below(o.json, []string{"data", key}), &text) != nil {
			continue
		}
		d.locate()
		line, literal := d.line, false
		if d.root != nil {
			name, value, _ := lookup(d.root, append(slices.Clone(o.path), "data", key)...)
			line += name.Line
			literal = value.Style&yaml.LiteralStyle != 0
		}
		for _, inner := range split(&Source{Name: d.source.Name, Data: []byte(text)}) {
			inner.line += line
			found, err := inner.objects()
			if err != nil {
				continue // who reads the ConfigMap says so
			}
			if literal {
				inner.locate()
			} else {
				inner.line = max(line-1, 0) // another style has other lines
			}
			for _, o := range found {
				if o.is(machineConfigKind) || o.is(kubeletConfigKind) || o.is(profileKind) || o.is(tunedKind) {
					objects = append(objects, o)
				}
			}
		}
	}
	return objects
}
