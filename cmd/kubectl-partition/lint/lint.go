// SPDX-License-Identifier: Apache-2.0

// Package lint finds in manifests what keeps pods out of the partition that they ask for, and
// what does not work with partitioned pods.
//
// What becomes of a pod, package simulate knows; lint knows where it stands in a file. Which
// kinds have pods, and which annotations a user may have meant, is decided here. It prints
// nothing and makes no request.
package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"
	kjson "sigs.k8s.io/json"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/node/topology"
)

// Options say what is known of the cluster, and what is wanted.
type Options struct {
	// Require is the type that workloads must ask for; empty if they need not ask.
	Require string
	// Selector selects the namespaces in which they must, by their labels. Nil selects all. A
	// namespace that is not in the input has the label kubernetes.io/metadata.name only.
	Selector labels.Selector
	// Types says which types are active; nil if that is not known.
	Types simulate.Types
	// Nodes says the same about nodes by their names, whose kubelets partition static pods by
	// their own pools. For others, Types decides.
	Nodes map[string]simulate.Types
	// WithoutPlugin is the address of the cluster's kube-apiserver if that has no admission plugin. No API pod is
	// partitioned then.
	WithoutPlugin string
	// Namespace is that of objects which name none; empty if that is not known.
	Namespace string
	// PoolCPUs are the sizes of pools, in CPUs by their type; of others nothing is known.
	PoolCPUs map[string]int
	// Pools are the CPUs of all pools, which a DRA driver for CPUs must reserve; empty if they are not known.
	Pools cpuset.CPUSet
	// Host is what the hosts of the nodes are like; nil if that is not known.
	Host *topology.Topology
	// StaticPods: the pods of files are static pods.
	StaticPods bool
	// Ignore has the findings that are accepted; it may be nil.
	Ignore *Ignore
}

// Finding is something that is not as its author wants it.
type Finding struct {
	// Rule is the ID of a [Rule].
	Rule  string `json:"rule"`
	Level Level  `json:"level"`
	// File and Line are where; empty and zero for an object of a cluster.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Object is what it is about.
	Object Object `json:"object"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Fixable: [Report.Fix] can correct it.
	Fixable bool `json:"fixable,omitempty"`

	fixes []change
}

// Clean reports whether nothing was found but notes.
func (r *Report) Clean() bool { return r.Notes() == len(r.Findings) }

// Notes returns how many findings are notes.
func (r *Report) Notes() (notes int) {
	for _, f := range r.Findings {
		if f.Level == Note {
			notes++
		}
	}
	return notes
}

// Report is all that was found. Findings and problems are in the order of the input.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Findings        []Finding `json:"findings"`
	// Problems are what could not be read. Everything else was linted all the same.
	Problems []Problem `json:"problems,omitempty"`
	// Workloads is the number of pods and pod templates, and Asking how many ask for a type.
	Workloads int `json:"workloads"`
	Asking    int `json:"asking"`
	// Ignored is the number of findings that the ignore file accepts.
	Ignored int `json:"ignored,omitempty"`
	// UnknownNamespaces are those with workloads that ask which the input does not have, so
	// of which it is unknown whether they allow it.
	UnknownNamespaces []string `json:"unknownNamespaces,omitempty"`
}

// Lint lints sources together: namespaces, LimitRanges and quotas of one decide about
// workloads of another.
func Lint(sources []Source, options Options) *Report {
	l := &linter{
		Options:    options,
		report:     &Report{TypeMeta: output.TypeMeta("LintReport"), Findings: []Finding{}},
		namespaces: map[string]*namespace{},
		workloads:  map[Object][]*workload{},
		uids:       sets.New[types.UID](),
		files:      map[string]*Source{},
	}
	var objects []*object
	for i := range sources {
		if sources[i].Name != "" {
			l.files[sources[i].Name] = &sources[i]
		}
		objects = append(objects, l.objects(&sources[i])...)
	}
	// Whatever decides about workloads comes first, and what is about workloads last.
	for _, kinds := range [][]func(*object) error{
		{l.namespace, forKind("LimitRange", l.limitRange), forKind("ResourceQuota", l.quota), l.driverFile, l.isolated, l.policy},
		{l.workload, l.driver, l.pools},
		{forKind("ResourceQuota", l.unbounded), l.allowedUnbounded, forKind("HorizontalPodAutoscaler", l.horizontal), forKind("ScaledObject", l.scaledObject), forKind("VerticalPodAutoscaler", l.vertical)},
	} {
		for _, o := range objects {
			for _, lint := range kinds {
				l.problem(lint(o))
			}
		}
	}
	l.report.finish(sources, options.Ignore)
	return l.report
}

// forKind reads the objects of a kind for a function that lints them.
func forKind[T any](kind string, lint func(*object, *T)) func(*object) error {
	return func(o *object) error {
		if o.Kind != kind {
			return nil
		}
		var value T
		if err := o.read(&value); err != nil {
			return err
		}
		lint(o, &value)
		return nil
	}
}

// objects returns the objects of a source. Of a template that is not rendered yet there is none: what of it
// happens to be YAML is not what will be applied.
func (l *linter) objects(source *Source) (objects []*object) {
	for _, document := range split(source) {
		found, err := document.objects()
		if err != nil {
			if l.problem(err); templateLine(source.Data) > 0 {
				return nil
			}
			continue
		}
		if len(found) > 0 {
			document.locate()
		}
		objects = append(objects, found...)
	}
	usable := objects[:0]
	for _, o := range objects {
		is, err := l.identify(o)
		if l.problem(err); is {
			usable = append(usable, o)
		}
	}
	return usable
}

type linter struct {
	Options
	report     *Report
	namespaces map[string]*namespace
	workloads  map[Object][]*workload
	// uids are those of all objects.
	uids sets.Set[types.UID]
	// policyKnown: a configuration of a kubelet names the policy of the CPU manager. reserved are the reserved CPUs of each that
	// has the policy static.
	policyKnown bool
	reserved    []cpuset.CPUSet
	// files are the sources that have a name, by that.
	files map[string]*Source
}

// namespace is what the input has of a namespace.
type namespace struct {
	simulate.Namespace
	labels labels.Set
	// object is nil if the input has the namespace's objects but not the namespace.
	object *object
}

// of returns a namespace, which need not be in the input.
func (l *linter) of(name string) *namespace {
	n, ok := l.namespaces[name]
	if !ok {
		n = &namespace{labels: labels.Set{}}
		if name != "" {
			// kube-apiserver sets it (pkg/apis/core/v1, SetDefaults_Namespace).
			n.labels[v1.LabelMetadataName] = name
		}
		l.namespaces[name] = n
	}
	return n
}

func (l *linter) problem(err error) {
	var problem Problem
	switch {
	case err == nil:
	case errors.As(err, &problem):
		// Whatever is wrong in a template, its values are none yet: once a file is enough.
		if file := l.files[problem.File]; file != nil {
			if line := templateLine(file.Data); line > 0 {
				problem.Line, problem.Message = line, notRendered
			}
		}
		if slices.Contains(l.report.Problems, problem) {
			return
		}
		l.report.Problems = append(l.report.Problems, problem)
	default:
		l.report.Problems = append(l.report.Problems, Problem{Message: err.Error()})
	}
}

// identify reads the metadata of an object. A finding or an error says that the object, as it
// is, can be of no use.
func (l *linter) identify(o *object) (usable bool, err error) {
	if o.isFile() {
		return true, nil
	}
	var named struct {
		Metadata struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
			Namespace    string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := o.read(&named); err != nil {
		return false, err
	}
	o.Name = cmp.Or(named.Metadata.Name, named.Metadata.GenerateName)
	if o.Kind != "Namespace" {
		o.Namespace = cmp.Or(named.Metadata.Namespace, l.Options.Namespace)
	}
	usable = l.hasStrings(o, o.json, annotationPath)
	if usable && o.isWorkload() && len(o.pods.metadata) > 1 {
		usable = l.hasStrings(o, o.templateJSON(), o.annotation)
	}
	if !usable {
		return false, nil
	}
	var whole struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	err = o.read(&whole)
	o.metadata = whole.Metadata
	l.uids.Insert(o.metadata.UID)
	return err == nil, err
}

// hasStrings reports whether the annotations of ours are strings. An object in braces is the
// usual mistake, and kube-apiserver's error names no line.
func (l *linter) hasStrings(o *object, data json.RawMessage, path func(key string) []string) bool {
	var loose struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &loose) != nil {
		return true // its reader reports what is wrong
	}
	ok := true
	for _, key := range slices.Sorted(maps.Keys(loose.Metadata.Annotations)) {
		if value := loose.Metadata.Annotations[key]; inDomain(key) && value[0] != '"' && string(value) != "null" {
			ok = false
			l.find(o, notAString, Error, fmt.Sprintf("the value of the annotation %s is %s, but must be a string: put it in quotes", key, abbreviate(string(value))), nil, path(key)...)
		}
	}
	return ok
}

// annotationPath returns the path of an annotation of an object itself.
func annotationPath(key string) []string { return []string{"metadata", "annotations", key} }

// find adds a finding at a path in an object.
func (l *linter) find(o *object, rule string, level Level, message string, fixes []change, path ...string) {
	f := Finding{Rule: rule, Level: level, Object: o.Object, Message: message, Fixable: len(fixes) > 0, fixes: fixes}
	f.File, f.Line = o.at(path...)
	l.report.Findings = append(l.report.Findings, f)
}

// abbreviate shortens a value that a message quotes.
func abbreviate(value string) string {
	const most = 80
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

// finish sorts what was found, and takes out what is accepted.
func (r *Report) finish(sources []Source, ignore *Ignore) {
	if ignore != nil {
		r.Findings, r.Ignored = ignore.apply(r.Findings)
	}
	order := map[string]int{}
	for i := range sources {
		order[sources[i].Name] = i
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	slices.Sort(r.UnknownNamespaces)
	r.UnknownNamespaces = slices.Compact(r.UnknownNamespaces)
}
