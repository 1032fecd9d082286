// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Later makes one request of all events within a time.
func Later[T client.Object](request reconcile.Request, within time.Duration) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(_ context.Context, _ event.TypedCreateEvent[T], queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.AddAfter(request, within)
		},
		UpdateFunc: func(_ context.Context, _ event.TypedUpdateEvent[T], queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.AddAfter(request, within)
		},
		DeleteFunc: func(_ context.Context, _ event.TypedDeleteEvent[T], queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.AddAfter(request, within)
		},
	}
}
