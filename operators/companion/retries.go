// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Retries says how long a controller waits after each failure in a row: a minute at most. By default controller-runtime waits for up to
// 17, so that what has changed while a hosted cluster's API was away would wait for as long again.
func Retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}
