// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// In an outage of an hour, a look fails dozens of times.
func TestALongOutageDelaysNothingForLong(t *testing.T) {
	retries := Retries()
	for range 50 {
		if wait := retries.When(reconcile.Request{}); wait > time.Minute {
			t.Fatalf("the next look is in %s", wait)
		}
	}
}
