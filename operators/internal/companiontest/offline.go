// SPDX-License-Identifier: Apache-2.0

package companiontest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"workload.openshift.io/operators/internal/testenv"
)

// Offline is a cluster in this process, and the manager of what is added to it: for tests in a bubble of testing/synctest, where hours
// take no time. What controllers read from its cache comes from its objects, and its only events are those of Tell.
type Offline struct {
	manager.Manager // what no companion asks of it is nil
	// Away makes every read fail.
	Away atomic.Bool

	client client.Client
	cache  *toldCache
	added  []manager.Runnable
}

// NewOffline returns a cluster with objects.
func NewOffline(objects ...client.Object) *Offline {
	o := &Offline{cache: &toldCache{}}
	o.cache.Scheme = testenv.Scheme()
	answer := func(call func() error) error {
		if o.Away.Load() {
			return errors.New("connection refused")
		}
		return call()
	}
	o.client = fake.NewClientBuilder().WithScheme(o.cache.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return answer(func() error { return c.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return answer(func() error { return c.List(ctx, list, options...) })
		},
	}).Build()
	return o
}

// Tell tells the controllers of an object, as they see it.
func (o *Offline) Tell(t testing.TB, object client.Object) {
	t.Helper()
	informer, err := o.cache.GetInformer(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	informer.(*controllertest.FakeInformer).Add(object)
}

// Run runs what was added until the context ends.
func (o *Offline) Run(ctx context.Context) {
	for _, runnable := range o.added {
		go func() { _ = runnable.Start(ctx) }()
	}
}

// Add implements manager.Manager.
func (o *Offline) Add(runnable manager.Runnable) error {
	o.added = append(o.added, runnable)
	return nil
}

// GetControllerOptions implements manager.Manager.
func (o *Offline) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true)}
}

// GetClient implements cluster.Cluster.
func (o *Offline) GetClient() client.Client { return o.client }

// GetAPIReader implements cluster.Cluster.
func (o *Offline) GetAPIReader() client.Reader { return o.client }

// GetCache implements cluster.Cluster.
func (o *Offline) GetCache() cache.Cache { return o.cache }

// GetLogger implements manager.Manager.
func (o *Offline) GetLogger() logr.Logger { return logr.Discard() }

// GetEventRecorder implements cluster.Cluster.
func (o *Offline) GetEventRecorder(string) recorder.EventRecorder { return &events.FakeRecorder{} }

// toldCache takes the kind of metadata alone for that of the object, which informertest does not.
type toldCache struct {
	mutex sync.Mutex
	informertest.FakeInformers
}

// GetInformer implements cache.Cache.
func (c *toldCache) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind, err := apiutil.GVKForObject(object, c.Scheme)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.GetInformerForKind(ctx, kind)
}
