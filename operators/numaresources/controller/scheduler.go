// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodegroup"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/operand"
)

// schedulerReconciler has the scheduler of the NUMAResourcesScheduler run.
type schedulerReconciler struct{ *reconciler }

// scheduler is the name of the scheduler's objects, of its ServiceAccount, which the manifests make, and of its Lease.
const scheduler = "topo-aware-scheduler"

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
	objects, err := unstructuredOf(r.objects(owner, *replicas)...)
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
func (r *schedulerReconciler) objects(owner *nodetopologyv1.NUMAResourcesScheduler, replicas int32) []any {
	labels := map[string]string{"app": scheduler}
	meta := metav1.ObjectMeta{
		Namespace: r.settings.SchedulerNamespace, Name: scheduler,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, nodetopologyv1.GroupVersion.WithKind("NUMAResourcesScheduler"))},
	}
	text := r.schedulerConfiguration(&owner.Spec).String()
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{numaresources.SchedulerConfigKey: text}}
	const configured, port = "/etc/" + scheduler, "https"
	args := []string{"--config=" + path.Join(configured, numaresources.SchedulerConfigKey), "-v=" + cmp.Or(verbosity[owner.Spec.LogLevel], "2")}
	if owner.Spec.UnknownNodes == nodetopologyv1.UnknownNodesAllow {
		args = append(args, "--unknown-nodes=Allow")
	}
	probe := func(at string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: at, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTPS}},
			PeriodSeconds: 10, TimeoutSeconds: 5,
		}
	}
	return []any{config, &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{"app": scheduler, "app.kubernetes.io/name": numaresources.Name, "app.kubernetes.io/component": "scheduler"},
					Annotations: map[string]string{
						configAnnotation: numaresources.ConfigHash(text),
						"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`,
					},
				},
				Spec: corev1.PodSpec{
					ServiceAccountName: scheduler,
					PriorityClassName:  "system-cluster-critical",
					NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
					Tolerations:        []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name:            scheduler,
						Image:           r.settings.SchedulerImage,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Args:            args,
						Ports:           []corev1.ContainerPort{{Name: port, ContainerPort: 10259, Protocol: corev1.ProtocolTCP}},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
							// It holds the cluster's pods and nodes in memory. The limit is for what nobody has foreseen.
							Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
						},
						SecurityContext: unprivileged(),
						ReadinessProbe:  probe("/readyz"),
						LivenessProbe:   probe("/livez"),
						VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: configured, ReadOnly: true}},
					}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: scheduler}}}}},
				},
			},
		},
	}}
}
