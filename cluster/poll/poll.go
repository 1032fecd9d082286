// Package poll waits for what nobody announces. It knows time, and must not know what is
// waited for.
package poll

import (
	"context"
	"time"
)

// Until calls the condition until it returns nil, with a pause after each call, and at least
// once. When the limit is over or the context ends, it returns what the condition returned last.
// The condition's context ends then, too.
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
