// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Object names an object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the kind and the name, with the namespace where there is one.
func (o Object) String() string {
	name := cmp.Or(o.Name, "(no name)")
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return o.Kind + " " + name
}

// object is an object of a document. A list has several.
type object struct {
	Object
	group    string
	metadata metav1.ObjectMeta
	document *document
	// json is the object's, which kind says how to read.
	json json.RawMessage
	// path leads to the object in its document.
	path []string
	// pods says where in the object the pods are; nil if it has none.
	pods *podPath
}

// podPath says where an object has its pods.
type podPath struct {
	// template leads to a pod template, and metadata to the metadata of the pods.
	template, metadata []string
	// main is the container that the resources of the object are for, of a kind that has no template but only the pods'
	// metadata.
	main string
	// further: an earlier template of the same object has told what is about the object.
	further bool
}

// templateAt is where a pod template is.
func templateAt(path []string) *podPath {
	return &podPath{template: path, metadata: append(path[:len(path):len(path)], "metadata")}
}

// annotation returns the path of an annotation of the object's pods.
func (o *object) annotation(key string) []string {
	return append(o.pods.metadata[:len(o.pods.metadata):len(o.pods.metadata)], "annotations", key)
}

// inTemplate returns the path of what is in the object's pod template.
func (o *object) inTemplate(path ...string) []string {
	return append(o.pods.template[:len(o.pods.template):len(o.pods.template)], path...)
}

// templates says where kinds have their pod template, and which groups these kinds are in.
// Their versions do not matter: it has always been there.
var templates = map[string]struct {
	groups []string
	path   []string
}{
	"Pod":                   {[]string{""}, nil},
	"PodTemplate":           {[]string{""}, []string{"template"}},
	"ReplicationController": {[]string{""}, []string{"spec", "template"}},
	"Deployment":            {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"DaemonSet":             {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"ReplicaSet":            {[]string{"apps", "extensions"}, []string{"spec", "template"}},
	"StatefulSet":           {[]string{"apps"}, []string{"spec", "template"}},
	"Job":                   {[]string{"batch"}, []string{"spec", "template"}},
	"CronJob":               {[]string{"batch"}, []string{"spec", "jobTemplate", "spec", "template"}},
}

// others are the kinds, besides workloads, that decide what becomes of pods or do not work with
// partitioned ones.
var others = map[schema.GroupKind]bool{
	{Kind: "Namespace"}:     true,
	{Kind: "LimitRange"}:    true,
	{Kind: "ResourceQuota"}: true,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:      true,
	{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}: true,
	{Group: "keda.sh", Kind: "ScaledObject"}:                     true,

	machineConfigKind: true,
	kubeletConfigKind: true,
	kubeletKind:       true,
	profileKind:       true,
	tunedKind:         true,
}

// head is what all objects and lists have.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// objects returns the objects of a document that concern us, in their order. Whatever else
// there is passes. The error is the document's.
func (d *document) objects() ([]*object, error) {
	if err := d.parse(); err != nil {
		return nil, err
	}
	return d.collect(d.json, nil, head{})
}

// collect adds what is in a list: a list of a kind, as kube-apiserver writes it, need not
// repeat that in its elements.
func (d *document) collect(data json.RawMessage, path []string, of head) ([]*object, error) {
	var h head
	if trimmed := strings.TrimSpace(string(data[:min(len(data), 1)])); trimmed != "{" {
		return nil, nil // neither an object nor a list of the API
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &h); err != nil {
		// Whatever it is, it is nothing that kube-apiserver reads.
		return nil, nil
	}
	h.APIVersion, h.Kind = cmp.Or(h.APIVersion, of.APIVersion), cmp.Or(h.Kind, of.Kind)
	if kind, isList := strings.CutSuffix(h.Kind, "List"); isList && h.Items != nil {
		element := head{Kind: kind}
		if kind != "" {
			element.APIVersion = h.APIVersion
		}
		var objects []*object
		for i, item := range h.Items {
			found, err := d.collect(item, append(path[:len(path):len(path)], "items", strconv.Itoa(i)), element)
			if err != nil {
				return nil, err
			}
			objects = append(objects, found...)
		}
		return objects, nil
	}
	group, _ := schema.ParseGroupVersion(h.APIVersion)
	o := &object{Object: Object{Kind: h.Kind}, group: group.Group, document: d, json: data, path: path}
	switch {
	case isWorkload(o.group, o.Kind):
		o.pods = templateAt(templates[o.Kind].path)
	case others[schema.GroupKind{Group: o.group, Kind: o.Kind}]:
	case o.is(configMapKind):
		return append([]*object{o}, d.manifests(o)...), nil
	case o.Kind == "" || h.APIVersion == "":
		return d.file(o), nil
	default:
		return d.foreign(o)
	}
	return []*object{o}, nil
}

func (o *object) isWorkload() bool { return o.pods != nil }

func isWorkload(group, kind string) bool {
	return slices.Contains(templates[kind].groups, group)
}

// read reads the object into a struct that has what matters of it.
func (o *object) read(into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.json, into); err != nil {
		file, line := o.at()
		return Problem{File: file, Line: line, Message: fmt.Sprintf("%s: %v", o.Object, err)}
	}
	return nil
}

// templateJSON returns the workload's pod template, and what is empty if it has none. A pod is
// its own.
func (o *object) templateJSON() json.RawMessage {
	if o.pods == nil {
		return o.json
	}
	if o.pods.main != "" {
		return o.podsJSON()
	}
	return below(o.json, o.pods.template)
}

// below returns what a path leads to, and what is empty if there is nothing.
func below(data json.RawMessage, path []string) json.RawMessage {
	for _, key := range path {
		var fields map[string]json.RawMessage
		var elements []json.RawMessage
		if i, err := strconv.Atoi(key); err == nil && json.Unmarshal(data, &elements) == nil && i < len(elements) {
			data = elements[i]
		} else if json.Unmarshal(data, &fields) == nil && fields[key] != nil {
			data = fields[key]
		} else {
			return json.RawMessage("{}")
		}
	}
	return data
}

// template reads the workload's pod template.
func (o *object) template() (*v1.PodTemplateSpec, error) {
	part := *o
	part.json = o.templateJSON()
	var template v1.PodTemplateSpec
	err := part.read(&template)
	if err != nil {
		if better := o.badQuantity(part.json); better != nil {
			err = better
		}
	}
	return &template, err
}

// badQuantity returns the error of the first malformed quantity in the resources of a template.
// The decoder's does not say where it is.
func (o *object) badQuantity(template json.RawMessage) error {
	type container struct {
		Resources map[string]map[string]any `json:"resources"`
	}
	var loose struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(template, &loose) != nil {
		return nil
	}
	for _, field := range []string{"initContainers", "containers"} {
		var containers []container
		if kjson.UnmarshalCaseSensitivePreserveInts(loose.Spec[field], &containers) != nil {
			continue
		}
		for i, c := range containers {
			for _, list := range []string{"requests", "limits"} {
				for _, name := range slices.Sorted(maps.Keys(c.Resources[list])) {
					value := fmt.Sprint(c.Resources[list][name])
					if _, err := resource.ParseQuantity(value); err != nil {
						path := o.inTemplate("spec", field, strconv.Itoa(i), "resources", list, name)
						file, line := o.at(path...)
						return Problem{File: file, Line: line, Message: fmt.Sprintf("%s: %s: %q is not a quantity: %v", o.Object, strings.Join(path, "."), value, err)}
					}
				}
			}
		}
	}
	return nil
}

// at returns the file and the line of the deepest node that a path in the object leads to.
// Without a file both are zero.
func (o *object) at(path ...string) (file string, line int) {
	if o.document.source.Name == "" {
		return "", 0
	}
	line = o.document.line + 1
	if o.document.root != nil {
		key, _, _ := lookup(o.document.root, append(o.path[:len(o.path):len(o.path)], path...)...)
		line = o.document.line + key.Line
	}
	return o.document.source.Name, line
}
