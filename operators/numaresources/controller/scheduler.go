// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/nodegroup"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/operand"
)

// schedulerReconciler has the scheduler of the NUMAResourcesScheduler run.
type schedulerReconciler struct{ *reconciler }

// scheduler is the name of the scheduler's objects, of its ServiceAccount, which the manifests make, and of its Lease.
const scheduler = "topo-aware-scheduler"

// schedulerDeployment is the scheduler's, but for what the NUMAResourcesScheduler and the settings say.
//
//go:embed scheduler.yaml
var schedulerDeployment []byte

// configAnnotation of the scheduler's pods has the hash of its configuration, which it reads only at its start.
const configAnnotation = "nodetopology.openshift.io/configuration"

// schedulerKinds are what the scheduler has, in the order in which it is made.
var schedulerKinds = []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("Deployment")}

// The reasons of conditions that only the scheduler has.
const (
	reasonNoWorkers    = "NoWorkers"
	reasonNoImage      = "NoImage"
	reasonNotAvailable = "NotAvailable"
)

// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesschedulers,verbs=list;watch
// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesschedulers/status,verbs=update
// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesschedulers/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,namespace=scheduler,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,namespace=scheduler,verbs=list;watch;create;patch;delete

// Reconcile makes everything as the spec says. There is one object, so the request says nothing.
func (r *schedulerReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	owner := &nodetopologyv1.NUMAResourcesScheduler{}
	err := r.client.Get(ctx, client.ObjectKey{Name: nodetopologyv1.NUMAResourcesSchedulerName}, owner)
	if apierrors.IsNotFound(err) || err == nil && owner.DeletionTimestamp != nil {
		return r.again(false, r.operand.Apply(ctx))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	before := owner.DeepCopy()
	owner.Status.ObservedGeneration = owner.Generation
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		setCondition(&owner.Status.Conditions, owner.Generation, kind, status, reason, message)
	}
	if nodegroup.Paused(owner) {
		set(nodetopologyv1.ConditionPaused, metav1.ConditionTrue, reasonPaused, "the object has the annotation "+nodegroup.PausedAnnotation)
		return r.again(false, r.updateStatus(ctx, before, owner))
	}
	set(nodetopologyv1.ConditionPaused, metav1.ConditionFalse, reasonAsExpected, "")
	wrong, err := r.act(ctx, owner)
	switch {
	case err != nil:
		set(nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, reasonFailed, short([]string{err.Error()}))
	case wrong != nil:
		set(nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, wrong.reason, wrong.message)
	default:
		set(nodetopologyv1.ConditionDegraded, metav1.ConditionFalse, reasonAsExpected, "")
	}
	unavailable, progress, observeErr := r.observe(ctx, owner)
	if unavailable == "" {
		set(nodetopologyv1.ConditionAvailable, metav1.ConditionTrue, reasonAsExpected, "")
	} else {
		set(nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, reasonNotAvailable, unavailable)
	}
	if progress.Done {
		set(nodetopologyv1.ConditionProgressing, metav1.ConditionFalse, reasonAsExpected, "")
	} else {
		set(nodetopologyv1.ConditionProgressing, metav1.ConditionTrue, progress.Reason, progress.Message)
	}
	return r.again(false, errors.Join(err, observeErr, r.updateStatus(ctx, before, owner)))
}

// act makes the scheduler as the spec says. The problem is what keeps it from that; then nothing that runs is touched.
func (r *schedulerReconciler) act(ctx context.Context, owner *nodetopologyv1.NUMAResourcesScheduler) (*problem, error) {
	if r.settings.SchedulerImage == "" {
		return &problem{reasonNoImage, "the companion's configuration has no settings.schedulerImage"}, nil
	}
	replicas := owner.Spec.Replicas
	if replicas == nil {
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes); err != nil {
			return nil, err
		}
		workers := 0
		for i := range nodes.Items {
			if numaresources.IsWorker(&nodes.Items[i]) {
				workers++
			}
		}
		number, err := numaresources.SchedulerReplicas(workers)
		if err != nil {
			return &problem{reasonNoWorkers, err.Error()}, nil
		}
		replicas = &number
	}
	objects, err := r.objects(owner, *replicas)
	if err != nil {
		return nil, err
	}
	return nil, r.operand.Apply(ctx, objects...)
}

// observe says what keeps the scheduler from being available, and how far it is.
func (r *schedulerReconciler) observe(ctx context.Context, owner *nodetopologyv1.NUMAResourcesScheduler) (unavailable string, progress operand.Progress, err error) {
	key := client.ObjectKey{Namespace: r.settings.SchedulerNamespace, Name: scheduler}
	owner.Status.Deployment = nodetopologyv1.NamespacedName{}
	owner.Status.SchedulerName = ""
	deployment := &appsv1.Deployment{}
	if err := r.client.Get(ctx, key, deployment); err != nil {
		message := fmt.Sprintf("Deployment %s is not there yet", key)
		return message, operand.Progress{Reason: operand.NotSeen, Message: message}, client.IgnoreNotFound(err)
	}
	owner.Status.Deployment = nodetopologyv1.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	owner.Status.SchedulerName = owner.Spec.SchedulerName
	if deployment.Status.AvailableReplicas == 0 {
		unavailable = fmt.Sprintf("Deployment %s has no pod that is available", key)
	}
	return unavailable, operand.OfDeployment(deployment), nil
}

// schedulerConfiguration is what the scheduler is told.
func (r *schedulerReconciler) schedulerConfiguration(spec *nodetopologyv1.NUMAResourcesSchedulerSpec) numaresources.SchedulerConfiguration {
	c := numaresources.SchedulerConfiguration{Name: spec.SchedulerName, Lease: scheduler, Namespace: r.settings.SchedulerNamespace}
	if strategy := spec.ScoringStrategy; strategy != nil {
		c.Match.ScoringStrategy = &numaresources.MatchScoring{Type: string(strategy.Type)}
		for _, scored := range strategy.Resources {
			c.Match.ScoringStrategy.Resources = append(c.Match.ScoringStrategy.Resources, numaresources.ScoredResource(scored))
		}
	}
	return c
}

// verbosity is the -v of a log level, as OpenShift's operators have it.
var verbosity = map[nodetopologyv1.LogLevel]string{nodetopologyv1.LogNormal: "2", nodetopologyv1.LogDebug: "4", nodetopologyv1.LogTrace: "6", nodetopologyv1.LogTraceAll: "8"}

// objects are the scheduler's.
func (r *schedulerReconciler) objects(owner *nodetopologyv1.NUMAResourcesScheduler, replicas int32) ([]*unstructured.Unstructured, error) {
	meta := metav1.ObjectMeta{
		Namespace: r.settings.SchedulerNamespace, Name: scheduler,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, nodetopologyv1.GroupVersion.WithKind("NUMAResourcesScheduler"))},
	}
	text := r.schedulerConfiguration(&owner.Spec).String()
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{numaresources.SchedulerConfigKey: text}}
	deployment := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(schedulerDeployment, deployment); err != nil {
		return nil, err
	}
	deployment.ObjectMeta = meta
	deployment.Spec.Replicas = &replicas
	metav1.SetMetaDataAnnotation(&deployment.Spec.Template.ObjectMeta, configAnnotation, numaresources.ConfigHash(text))
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Image = r.settings.SchedulerImage
	container.Args = append(container.Args, "-v="+cmp.Or(verbosity[owner.Spec.LogLevel], "2"))
	if owner.Spec.UnknownNodes == nodetopologyv1.UnknownNodesAllow {
		container.Args = append(container.Args, "--unknown-nodes=Allow")
	}
	return unstructuredOf(config, deployment)
}
