// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Retries returns how long a controller waits after each failure in a row: a minute at most. controller-runtime's own waits grow to 17
// minutes, so a change during an outage of a hosted cluster's API would wait for as long again, and what is due at a time would wait for
// what does not heal by itself.
func Retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}
