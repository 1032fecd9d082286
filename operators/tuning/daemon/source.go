// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// DaemonSet is the name of the one whose pods run this program.
const DaemonSet = "tuned"

// follow sends each version of the node's Profile that it sees, and nil while there is none. What was not taken yet is
// replaced by what is newer.
func (d *Daemon) follow(ctx context.Context) <-chan *tunedv1.Profile {
	latest := make(chan *tunedv1.Profile, 1)
	send := func(profile *tunedv1.Profile) {
		select {
		case <-latest:
		default:
		}
		latest <- profile
	}
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: tunedv1.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", d.Node), Raw: &o}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := &tunedv1.ProfileList{}
				return list, d.Client.List(ctx, list, options(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return d.Client.Watch(ctx, &tunedv1.ProfileList{}, options(o))
			},
		},
		ObjectType: &tunedv1.Profile{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { send(object.(*tunedv1.Profile)) },
			UpdateFunc: func(_, object any) { send(object.(*tunedv1.Profile)) },
			DeleteFunc: func(any) { send(nil) },
		},
	})
	go informer.RunWithContext(ctx)
	go func() {
		// The handler was called for what the first list had before it has synced.
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(store.List()) == 0 {
			select {
			case latest <- nil:
			default:
			}
		}
	}()
	return latest
}

// report writes the status, if it is another than before.
func (d *Daemon) report(ctx context.Context, profile *tunedv1.Profile, status tunedv1.ProfileStatus) error {
	if equality.Semantic.DeepEqual(profile.Status, status) {
		return nil
	}
	fieldsOf := map[string]any{
		"tunedProfile": status.TunedProfile, "bootcmdline": nil,
		"observedGeneration": status.ObservedGeneration, "conditions": status.Conditions,
	}
	if status.Bootcmdline != "" {
		fieldsOf["bootcmdline"] = status.Bootcmdline
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": profile.UID}, "status": fieldsOf})
	if err != nil {
		return err
	}
	object := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: profile.Namespace, Name: profile.Name}}
	return client.IgnoreNotFound(d.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)))
}

// uninstalled reports whether the DaemonSet is gone, or is going. If nobody answers, it is not.
func (d *Daemon) uninstalled(ctx context.Context) (bool, error) {
	set := &appsv1.DaemonSet{}
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: tunedv1.Namespace, Name: DaemonSet}, set)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && set.DeletionTimestamp != nil, err
}

// NewClient returns a client for what a Daemon reads and writes. It asks the API server for no list of kinds.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, tunedv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(tunedv1.GroupVersion.WithKind("Profile"), meta.RESTScopeNamespace)
	mapper.Add(tunedv1.GroupVersion.WithKind("ProfileList"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	return client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
}
