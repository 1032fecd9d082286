// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/tuning"
)

// profilesReconciler gives each node of the hosted cluster its Profile.
type profilesReconciler struct {
	hosted   client.Client
	live     client.Reader
	settings Settings
	pools    *pools
	// ordinary is true where all nodes are of wholeCluster.
	ordinary bool
}

// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=profiles,roleName=tuning-hosted,verbs=list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=nodes,roleName=tuning-hosted,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,roleName=tuning-hosted,verbs=list

func addProfilesReconciler(clusters companion.Clusters, settings Settings, pools *pools) error {
	hosted := nodesOf(clusters)
	r := &profilesReconciler{hosted.GetClient(), hosted.GetAPIReader(), settings, pools, clusters.Hosted == nil}
	return ctrl.NewControllerManagedBy(clusters.Home).Named("profiles").
		WatchesRawSource(source.Kind(hosted.GetCache(), &corev1.Node{}, handler.TypedEnqueueRequestsFromMapFunc(named[*corev1.Node]))).
		WatchesRawSource(source.Kind(hosted.GetCache(), &tunedv1.Profile{}, handler.TypedEnqueueRequestsFromMapFunc(named[*tunedv1.Profile]))).
		WatchesRawSource(source.Func(r.follow)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: companion.Retries()}).
		Complete(r)
}

func named[T client.Object](_ context.Context, object T) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetName()}}}
}

// once is one request at the start.
func once() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(everything)
		return nil
	})
}

// follow asks for the nodes of each pool that has changed.
func (r *profilesReconciler) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case pool := <-r.pools.changed:
				var nodes corev1.NodeList
				var options []client.ListOption
				if pool != "" {
					options = append(options, client.MatchingLabels{tunedv1.NodePoolLabel: pool})
				}
				if err := r.hosted.List(ctx, &nodes, options...); err != nil {
					ctrl.LoggerFrom(ctx).Error(err, "Listing nodes failed")
					continue
				}
				for _, node := range nodes.Items {
					queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node.Name}})
				}
			}
		}
	}()
	return nil
}

// Reconcile looks at one node.
func (r *profilesReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node, profile := &corev1.Node{}, &tunedv1.Profile{}
	key := client.ObjectKey{Namespace: tunedv1.Namespace, Name: request.Name}
	hasProfile, err := found(r.hosted.Get(ctx, key, profile))
	if err != nil {
		return reconcile.Result{}, err
	}
	hasNode, err := found(r.hosted.Get(ctx, client.ObjectKey{Name: request.Name}, node))
	if err != nil {
		return reconcile.Result{}, err
	}
	if !hasNode {
		if !hasProfile {
			return reconcile.Result{}, nil
		}
		// The cache may be behind: a node whose Profile goes loses its tuning.
		if hasNode, err := found(r.live.Get(ctx, client.ObjectKey{Name: request.Name}, node)); hasNode || err != nil {
			return reconcile.Result{RequeueAfter: time.Second}, err
		}
		return reconcile.Result{}, client.IgnoreNotFound(r.hosted.Delete(ctx, profile, client.Preconditions{UID: &profile.UID}))
	}
	if nodegroup.Paused(node) {
		return reconcile.Result{}, nil
	}
	subject := tuning.Node{Name: node.Name, Labels: node.Labels, ProviderID: node.Spec.ProviderID}
	pool := subject.Pool()
	if r.ordinary {
		pool = wholeCluster
		state, err := cachedState(ctx, r.hosted)
		switch {
		case err != nil || state == tunedv1.Unmanaged:
			return reconcile.Result{}, err
		case state == tunedv1.Removed && hasProfile:
			return reconcile.Result{}, client.IgnoreNotFound(r.hosted.Delete(ctx, profile, client.Preconditions{UID: &profile.UID}))
		case state == tunedv1.Removed:
			return reconcile.Result{}, nil
		}
	}
	tuneds, input, known := r.pools.of(pool)
	if !known {
		return reconcile.Result{}, nil // it stays as it is
	}
	again := r.settings.Resync.Duration
	if tuning.MatchesPods(tuneds) {
		again = r.settings.PodPeriod.Duration
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.live.List(ctx, pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node.Name)}); err != nil {
			return reconcile.Result{}, err
		}
		for _, pod := range pods.Items {
			subject.Pods = append(subject.Pods, pod.Labels)
		}
	}
	choice, ok := tuning.Choose(subject, tuneds)
	if !ok {
		return reconcile.Result{RequeueAfter: again}, nil // the default matches every node
	}
	return reconcile.Result{RequeueAfter: again}, conflicts(r.write(ctx, profile, hasProfile, key, choice, input, tuning.ProfileOf(subject, choice, tuneds)))
}

// write makes the Profile what it is to be.
func (r *profilesReconciler) write(ctx context.Context, profile *tunedv1.Profile, has bool, key client.ObjectKey, choice tuning.Choice, input string, spec tunedv1.ProfileSpec) error {
	next := profile.DeepCopy()
	next.Namespace, next.Name = key.Namespace, key.Name
	next.Spec = spec
	metav1.SetMetaDataLabel(&next.ObjectMeta, companion.OwnerLabel, Name)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, tuning.TunedAnnotation, choice.Tuned)
	if next.Annotations[tuning.TieAnnotation] = choice.Tie; choice.Tie == "" {
		delete(next.Annotations, tuning.TieAnnotation)
	}
	if next.Annotations[tunedv1.DeferredAnnotation] = choice.Deferred; choice.Deferred == "" {
		delete(next.Annotations, tunedv1.DeferredAnnotation)
	}
	if next.Annotations[v1beta1.InputAnnotation] = input; input == "" {
		delete(next.Annotations, v1beta1.InputAnnotation)
	}
	same := profile.Annotations[specHash] == hashOf(spec) && maps.Equal(next.Labels, profile.Labels) && maps.Equal(next.Annotations, profile.Annotations)
	delete(next.Annotations, specHash)
	log := ctrl.LoggerFrom(ctx)
	switch {
	case has && same:
		return nil
	case has:
		log.Info("Updating the Profile of a node", "node", key.Name, "profile", spec.Config.TunedProfile, "tuned", choice.Tuned)
		return r.hosted.Update(ctx, next)
	}
	log.Info("Creating the Profile of a node", "node", key.Name, "profile", spec.Config.TunedProfile, "tuned", choice.Tuned)
	return r.hosted.Create(ctx, next)
}

// found sorts out the error of a read.
func found(err error) (bool, error) {
	return err == nil, client.IgnoreNotFound(err)
}
