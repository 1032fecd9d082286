// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/partition"
)

// namespace reads what a namespace allows.
func (l *linter) namespace(o *object) error {
	if o.Kind != "Namespace" {
		return nil
	}
	n := l.of(o.Name)
	n.object = o
	// Nil would mean that they are not known.
	n.Annotations = map[string]string{}
	maps.Copy(n.Annotations, o.metadata.Annotations)
	maps.Copy(n.labels, o.metadata.Labels)
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		path := annotationPath(key)
		switch workloadType, stale := staleType(key, n.Annotations[key]); {
		case key == partition.AllowedAnnotation:
			for _, name := range partition.ParseTypes(n.Annotations[key]) {
				if err := partition.ValidateType(name); err != nil {
					l.find(o, invalidAllowed, Warning, fmt.Sprintf("the annotation %s lists what no pod can ask for: %v", key, err), nil, path...)
				}
			}
		case strings.HasPrefix(key, partition.TargetPrefix):
			l.find(o, misplacedAnnotation, Warning, fmt.Sprintf("the annotation %s does nothing on a namespace: pods ask with it, and a namespace allows types with %s", key, partition.AllowedAnnotation), nil, path...)
		case stale:
			l.find(o, staleAnnotation, Warning, fmt.Sprintf("the annotation %s is of an early draft and does nothing; a namespace allows the type with %s: %s", key, partition.AllowedAnnotation, workloadType), nil, path...)
		default:
			l.unknown(o, key, path)
		}
	}
	return nil
}

func (l *linter) limitRange(o *object, limitRange *v1.LimitRange) {
	n := l.of(o.Namespace)
	n.LimitRanges = append(n.LimitRanges, limitRange)
}

func (l *linter) quota(o *object, quota *v1.ResourceQuota) {
	n := l.of(o.Namespace)
	n.Quotas = append(n.Quotas, quota)
}

// unbounded finds quotas that bound cpu where a type is allowed, and its cores are not bounded,
// or pods cannot be partitioned at all. It needs all namespaces, with their quotas.
func (l *linter) unbounded(o *object, quota *v1.ResourceQuota) {
	var bounds v1.ResourceName
	for _, name := range []v1.ResourceName{v1.ResourceLimitsCPU, v1.ResourceCPU, v1.ResourceRequestsCPU} {
		if _, ok := quota.Spec.Hard[name]; ok {
			bounds = name
			break
		}
	}
	if bounds == "" {
		return
	}
	n := l.of(o.Namespace)
	for _, workloadType := range partition.ParseTypes(n.Annotations[partition.AllowedAnnotation]) {
		cores := v1.ResourceName(v1.DefaultResourceRequestsPrefix + partition.CoresResource(workloadType))
		switch {
		case bounds == v1.ResourceLimitsCPU:
			l.find(o, quotaWithoutCores, Warning, fmt.Sprintf("it bounds %s, and so pods of type %q that it matches are not partitioned (%s); bound %s instead", bounds, workloadType, partition.ReasonNamespaceConstrainsCPU, cores), nil, "spec", "hard", string(bounds))
		case !slices.ContainsFunc(n.Quotas, func(q *v1.ResourceQuota) bool { _, ok := q.Spec.Hard[cores]; return ok }):
			l.find(o, quotaWithoutCores, Warning, fmt.Sprintf("it bounds %s, which partitioned pods of type %q do not have; bound %s as well", bounds, workloadType, cores), nil, "spec", "hard", string(bounds))
		}
	}
}

// allowedUnbounded notes a namespace whose pods may request as many cores as they like. It needs all quotas.
func (l *linter) allowedUnbounded(o *object) error {
	if o.Kind != "Namespace" {
		return nil
	}
	n := l.of(o.Name)
	for _, workloadType := range partition.ParseTypes(n.Annotations[partition.AllowedAnnotation]) {
		cores := v1.ResourceName(v1.DefaultResourceRequestsPrefix + partition.CoresResource(workloadType))
		if partition.ValidateType(workloadType) == nil && !slices.ContainsFunc(n.Quotas, func(q *v1.ResourceQuota) bool { _, ok := q.Spec.Hard[cores]; return ok }) {
			l.find(o, allowedUnbounded, Note, fmt.Sprintf("it allows the type %q, and no quota here bounds %s", workloadType, cores), nil, annotationPath(partition.AllowedAnnotation)...)
		}
	}
	return nil
}

// drafts begin annotations of early drafts: of OpenShift before 4.8 (the pod's, without
// "target."), and of the source document, where it describes the installer. The type follows.
var drafts = []string{partition.Domain + "/", "cpu." + partition.Domain + "/"}

// draftResources begins CRI-O's example of a resources annotation in those drafts; the type
// follows.
const draftResources = "io.openshift.workload."

// staleType returns the type for which an annotation of an early draft was meant.
func staleType(key, value string) (workloadType string, ok bool) {
	for _, prefix := range drafts {
		workloadType, found := strings.CutPrefix(key, prefix)
		if !found || known(key) || partition.ValidateType(workloadType) != nil {
			continue
		}
		// Its value distinguishes it from a misspelt word.
		if value = strings.TrimSpace(value); value == "" || strings.HasPrefix(value, "{") || workloadType == "management" {
			return workloadType, true
		}
	}
	return "", false
}

// inDomain reports whether an annotation's name has the domain of workload partitioning, or
// one below it.
func inDomain(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == partition.Domain || strings.HasSuffix(domain, "."+partition.Domain)
}

// companions are the domains, below ours, of what companions read and write. They check it themselves.
var companions = []string{"cpupolicy", "nodegroup", "nodepool", "tuning", "workloadclasses"}

// known reports whether an annotation means something, on any object.
func known(key string) bool {
	domain, _, _ := strings.Cut(key, "."+partition.Domain+"/")
	return slices.Contains(companions, domain) || key == nodegroup.PausedAnnotation || partition.OwnsAnnotation(key) || key == partition.AllowedAnnotation || key == partition.EnabledAnnotation
}

// unknown finds an annotation of our domain that does not exist.
func (l *linter) unknown(o *object, key string, path []string) {
	if known(key) || (!inDomain(key) && !strings.HasPrefix(key, draftResources)) {
		return
	}
	l.find(o, unknownAnnotation, Warning, fmt.Sprintf("there is no annotation %s, so it does nothing", key), nil, path...)
}
