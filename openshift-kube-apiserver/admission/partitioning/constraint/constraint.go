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

// Package constraint knows what the LimitRanges and ResourceQuotas of a namespace require of a
// pod's cpu (design, section 4.1). Upstream's own code reads them and judges pods by them,
// so this package needs k8s.io/kubernetes.
//
// It knows nothing of workload types that are active, nor what a partitioned pod looks like:
// it asks the core for one, and upstream whether that would pass.
package constraint

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/clock"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// Source knows the constraints of all namespaces. Make one with [New], and set a client and
// informers before it is asked.
type Source struct {
	// limitRanger is used for its cache, which looks up live what it does not know.
	limitRanger *limitranger.LimitRanger
	quotas      corev1listers.ResourceQuotaLister
	// seen report whether the caches are filled.
	seen []cache.InformerSynced
}

// New returns a source without client and informers.
func New() *Source {
	// It has no error to return.
	limitRanger, _ := limitranger.NewLimitRanger(nil)
	return &Source{limitRanger: limitRanger}
}

// SetClient gives the client that reads LimitRanges which the cache may be behind of.
func (s *Source) SetClient(client kubernetes.Interface) {
	s.limitRanger.SetExternalKubeClientSet(client)
}

// SetInformers follows LimitRanges and ResourceQuotas.
func (s *Source) SetInformers(factory informers.SharedInformerFactory) {
	s.limitRanger.SetExternalKubeInformerFactory(factory)
	limitRanges, quotas := factory.Core().V1().LimitRanges(), factory.Core().V1().ResourceQuotas()
	s.quotas = quotas.Lister()
	s.seen = []cache.InformerSynced{limitRanges.Informer().HasSynced, quotas.Informer().HasSynced}
}

// Validate returns an error if the source lacks a client or informers.
func (s *Source) Validate() error { return s.limitRanger.ValidateInitialization() }

// Synced reports whether all LimitRanges and ResourceQuotas have been seen.
func (s *Source) Synced() bool {
	for _, synced := range s.seen {
		if !synced() {
			return false
		}
	}
	return true
}

// Constraints are those of one namespace.
type Constraints struct {
	limitRanges []*v1.LimitRange
	quotas      []*v1.ResourceQuota
}

// evaluator is asked about pods that it is given, so it needs no lister.
var evaluator = quotacore.NewPodEvaluator(nil, clock.RealClock{})

// Given returns the constraints of a namespace that has these objects. A quota counts with what
// its status says.
func Given(limitRanges []*v1.LimitRange, quotas []*v1.ResourceQuota) Constraints {
	return Constraints{limitRanges, quotas}
}

// Of returns the constraints of the request's namespace.
func (s *Source) Of(a admission.Attributes) (Constraints, error) {
	limitRanges, err := s.limitRanger.GetLimitRanges(a)
	if err != nil {
		return Constraints{}, err
	}
	quotas, err := s.quotas.ResourceQuotas(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return Constraints{}, err
	}
	return Given(limitRanges, quotas), nil
}

// IsDefault reports whether a LimitRange gives containers the amount of a resource in their requests or
// limits if they do not ask for any.
func (d Constraints) IsDefault(what string, name core.ResourceName, amount resource.Quantity) bool {
	for _, limitRange := range d.limitRanges {
		for _, item := range limitRange.Spec.Limits {
			defaults := item.DefaultRequest
			if what == "limits" {
				defaults = item.Default
			}
			if value, has := defaults[v1.ResourceName(name)]; has && item.Type == v1.LimitTypeContainer && value.Cmp(amount) == 0 {
				return true
			}
		}
	}
	return false
}

// GivesCores reports whether a LimitRange gives cores to containers that do not ask for any.
func (d Constraints) GivesCores() bool {
	for _, limitRange := range d.limitRanges {
		for _, item := range limitRange.Spec.Limits {
			if item.Type == v1.LimitTypeContainer && (partition.CarriesCores(item.Default) || partition.CarriesCores(item.DefaultRequest)) {
				return true
			}
		}
	}
	return false
}

// DropDefaultCores takes those cores out of a pod that LimitRanger gave it from a LimitRange: no one asked
// for them. They are as many as a default, in a pod in which LimitRanger says that it has set something. (What
// it says has only the last of several LimitRanges, and may be of an earlier request.) Before is the pod as an
// earlier run left it, or as it is stored: cores that it had stay. Nil means that this is not known. Then those stay that
// the container's resources annotation confirms, and that have no cpu next to them from which others follow.
func (d Constraints) DropDefaultCores(pod, before *core.Pod) {
	if _, has := pod.Annotations[limitRangerAnnotation]; !has {
		return
	}
	var requestedBefore map[string]core.ResourceList
	if before != nil {
		requestedBefore = map[string]core.ResourceList{}
		for _, was := range internalpod.View(before).Containers {
			requestedBefore[was.Name] = *was.Requests
		}
	}
	isOwn := func(c internalpod.Container, name core.ResourceName) bool {
		if before != nil {
			now, then := (*c.Requests)[name], requestedBefore[c.Name][name]
			return !then.IsZero() && now.Cmp(then) == 0
		}
		return d.isConfirmed(c, name, pod.Annotations)
	}
	for _, c := range internalpod.View(pod).Containers {
		for _, name := range coresOf(c) {
			if d.areDefaults(c, name) && !isOwn(c, name) {
				delete(*c.Requests, name)
				delete(*c.Limits, name)
			}
		}
	}
}

// limitRangerAnnotation is where LimitRanger says what it has set in a pod (plugin/pkg/admission/limitranger).
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// coresOf returns the names of the cores resources that the container asks for.
func coresOf(c internalpod.Container) []core.ResourceName {
	var names []core.ResourceName
	for _, list := range []core.ResourceList{*c.Requests, *c.Limits} {
		for name := range list {
			if _, ok := partition.TypeOfCores(string(name)); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// areDefaults reports whether the container asks for as much of the resource as a LimitRange gives by default.
func (d Constraints) areDefaults(c internalpod.Container, name core.ResourceName) bool {
	request, requested := (*c.Requests)[name]
	limit, limited := (*c.Limits)[name]
	return (!requested || d.IsDefault("requests", name, request)) && (!limited || d.IsDefault("limits", name, limit))
}

// isConfirmed reports whether the resources annotation says that the container has these cores, as that of a
// copied pod does. The smallest weight is also that of a container without cores, and confirms none.
func (d Constraints) isConfirmed(c internalpod.Container, name core.ResourceName, annotations map[string]string) bool {
	request := (*c.Requests)[name]
	said, ok := partition.ParseContainerResources(annotations[partition.ResourcesAnnotation(c.Name)])
	return ok && said.CPUShares > partition.MinShares && said.CPUShares == request.Value() && !d.NamesCPU(c)
}

// NamesCPU reports whether the container has cpu that is not as much as LimitRanger would have put there.
func (d Constraints) NamesCPU(c internalpod.Container) bool {
	request, limit := (*c.Requests)[core.ResourceCPU], (*c.Limits)[core.ResourceCPU]
	return !request.IsZero() && !d.IsDefault("requests", core.ResourceCPU, request) || !limit.IsZero() && !d.IsDefault("limits", core.ResourceCPU, limit)
}

// DropDefaultCPU takes the cpu out of a pod that LimitRanger gave it from a LimitRange.
func (d Constraints) DropDefaultCPU(pod *core.Pod) {
	for _, c := range internalpod.View(pod).Containers {
		for what, list := range map[string]core.ResourceList{"requests": *c.Requests, "limits": *c.Limits} {
			if amount, has := list[core.ResourceCPU]; has && d.IsDefault(what, core.ResourceCPU, amount) {
				delete(list, core.ResourceCPU)
			}
		}
	}
}

// Complete adds to the policy what depends on the constraints, and on whether an earlier run of
// the same request has partitioned the pod already.
func (d Constraints) Complete(pod *core.Pod, again bool, policy *partition.Policy) {
	policy.KeepZero = again || d.CountsCPU(pod)
	if len(d.limitRanges) == 0 && len(d.quotas) == 0 {
		return
	}
	trial := *policy
	policy.Constraint = func() string {
		partitioned := pod.DeepCopy()
		partition.Mutate(internalpod.View(partitioned), trial)
		return d.Refusal(partitioned, d.Ordinary(pod))
	}
}

// Ordinary returns a copy of the pod as the ordinary one that it was, with the cpu that LimitRanger gave it then.
func (d Constraints) Ordinary(pod *core.Pod) *core.Pod {
	ordinary := pod.DeepCopy()
	partition.RestoreCPU(internalpod.View(ordinary))
	d.GiveDefaultCPU(ordinary)
	return ordinary
}

// GiveDefaultCPU gives the containers of an ordinary pod that name no cpu in their requests or limits what LimitRanger
// gives them. It is for pods whose cores have become cpu again: LimitRanger has looked at them before that, and refuses
// those without a limit where a LimitRange has a maximum.
func (d Constraints) GiveDefaultCPU(pod *core.Pod) {
	given := pod.DeepCopy()
	for _, limitRange := range d.limitRanges {
		// It has no error to return.
		_ = limitranger.PodMutateLimitFunc(limitRange, given)
	}
	from, to := internalpod.View(given).Containers, internalpod.View(pod).Containers
	for i := range to {
		for _, lists := range [][2]*core.ResourceList{{to[i].Requests, from[i].Requests}, {to[i].Limits, from[i].Limits}} {
			if cpu, ok := (*lists[1])[core.ResourceCPU]; ok {
				if *lists[0] == nil {
					*lists[0] = core.ResourceList{}
				}
				(*lists[0])[core.ResourceCPU] = cpu
			}
		}
	}
}

// CountsCPU reports whether a ResourceQuota counts the pod's cpu requests, and so refuses
// containers without the key. A request of zero contents it.
func (d Constraints) CountsCPU(pod *core.Pod) bool {
	for _, q := range d.quotas {
		_, cpu := q.Status.Hard[v1.ResourceCPU]
		_, requests := q.Status.Hard[v1.ResourceRequestsCPU]
		if (cpu || requests) && d.matches(q, pod) {
			return true
		}
	}
	return false
}

// matches reports whether the quota's scopes match the pod.
func (d Constraints) matches(q *v1.ResourceQuota, pod *core.Pod) bool {
	matches, err := evaluator.Matches(q, pod)
	return err == nil && matches
}

// Refusal says which object would have the partitioned pod refused and not the same pod with
// the cpu of the ordinary one, and why. It is empty if none would: what other constraints the pod
// does not meet is no matter of cpu. A limit of zero next to cores, which any user can write, is none: it
// would content a maximum that the cores do not keep.
func (d Constraints) Refusal(partitioned, ordinary *core.Pod) string {
	withCPU, unlimited := ordinary.DeepCopy(), partitioned.DeepCopy()
	addCores(internalpod.View(withCPU), internalpod.View(partitioned))
	for _, c := range internalpod.View(unlimited).Containers {
		if partition.CarriesCores(*c.Limits) {
			delete(*c.Limits, core.ResourceCPU)
		}
	}
	refusal := func(validate func(*core.Pod) error) error {
		err := validate(unlimited)
		if err != nil && validate(withCPU) != nil && validate(partitioned) != nil {
			return nil // that object refuses it in any case
		}
		return err
	}
	for _, limitRange := range d.limitRanges {
		if err := refusal(func(pod *core.Pod) error { return ValidateLimits(limitRange, pod) }); err != nil {
			return fmt.Sprintf("LimitRange %q: %v", limitRange.Name, err)
		}
	}
	for _, q := range d.quotas {
		if !d.matches(q, partitioned) {
			continue
		}
		names := evaluator.MatchingResources(quota.ResourceNames(q.Status.Hard))
		if err := refusal(func(pod *core.Pod) error { return evaluator.Constraints(names, pod) }); err != nil {
			return fmt.Sprintf("ResourceQuota %q: %v", q.Name, err)
		}
	}
	return ""
}

// addCores adds the cores of one pod's containers to those of its copy.
func addCores(to, from internalpod.Pod) {
	for i := range to.Containers {
		for _, lists := range [][2]*core.ResourceList{{to.Containers[i].Requests, from.Containers[i].Requests}, {to.Containers[i].Limits, from.Containers[i].Limits}} {
			for name, quantity := range *lists[1] {
				if _, ok := partition.TypeOfCores(string(name)); !ok {
					continue
				}
				if *lists[0] == nil {
					*lists[0] = core.ResourceList{}
				}
				(*lists[0])[name] = quantity
			}
		}
	}
}

// SetDefaults makes of a template's pod what the plugin would decide on: API defaulting and LimitRanger's
// defaults come first, and cores that were not asked for go.
func (d Constraints) SetDefaults(pod *core.Pod) error {
	var external v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(pod, &external, nil); err != nil {
		return err
	}
	corev1.SetObjectDefaults_Pod(&external)
	if err := corev1.Convert_v1_Pod_To_core_Pod(&external, pod, nil); err != nil {
		return err
	}
	for _, limitRange := range d.limitRanges {
		if err := limitranger.PodMutateLimitFunc(limitRange, pod); err != nil {
			return err
		}
	}
	d.DropDefaultCores(pod, nil)
	return nil
}

// ValidateLimits says why LimitRanger would refuse a new pod; nil if it would not.
func ValidateLimits(limitRange *v1.LimitRange, pod *core.Pod) error {
	return callValidate(limitranger.PodValidateLimitFunc, limitRange, pod)
}

// podValidateLimit is PodValidateLimitFunc (plugin/pkg/admission/limitranger/admission.go). From v1.38 on it takes
// what the pod was before, to skip what has not changed; a new pod was nothing.
type podValidateLimit interface {
	func(*v1.LimitRange, *core.Pod) error | func(limitRange *v1.LimitRange, pod, before *core.Pod) error
}

func callValidate[F podValidateLimit](validate F, limitRange *v1.LimitRange, pod *core.Pod) error {
	if validate, ok := any(validate).(func(*v1.LimitRange, *core.Pod) error); ok {
		return validate(limitRange, pod)
	}
	return any(validate).(func(_ *v1.LimitRange, _, _ *core.Pod) error)(limitRange, pod, nil)
}
