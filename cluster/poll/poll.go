// SPDX-License-Identifier: Apache-2.0

// Package poll waits for what nothing announces. It knows time, and must not know what it waits
// for.
package poll

import (
	"context"
	"time"
)

// Until calls the condition until it returns nil, at least once and with a pause after each call.
// When the limit has passed or the context ends, it returns the condition's last error. The
// context that it gives the condition ends then, too.
func Until(ctx context.Context, pause, limit time.Duration, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
