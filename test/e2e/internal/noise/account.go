// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"fmt"
	"slices"
	"time"
)

// tries is how often Account reads before it gives up.
const tries = 10_000

// Account returns what an application and all pods, the application included, have used of each CPU
// until the same moment.
//
// The kernel charges a task that spins when its clock ticks (every 4 ms with CONFIG_HZ=250), and
// then charges all cgroups above it at once. A tick between two readings would look like 4 ms of
// other pods. So the application's account is read before that of all pods and after it, until
// both say the same.
func Account(application, all func() ([]time.Duration, error)) (ofApplication, ofAll []time.Duration, err error) {
	var before []time.Duration
	for range tries {
		if before, err = application(); err != nil {
			return nil, nil, err
		}
		if ofAll, err = all(); err != nil {
			return nil, nil, err
		}
		if ofApplication, err = application(); err != nil {
			return nil, nil, err
		}
		if slices.Equal(before, ofApplication) {
			return ofApplication, ofAll, nil
		}
	}
	return nil, nil, fmt.Errorf("the application was charged during each of %d readings: its account was %v before the last one, and %v after it", tries, before, ofApplication)
}
