// SPDX-License-Identifier: Apache-2.0

package poll

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	errNotYet := errors.New("not yet")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx   context.Context
		limit time.Duration
		// succeeds is the number of the call that returns nil; zero is none.
		succeeds, calls int
		want            error
	}{
		"the first call succeeds":                  {t.Context(), time.Minute, 1, 1, nil},
		"a later call succeeds":                    {t.Context(), time.Minute, 3, 3, nil},
		"no call succeeds within the limit":        {t.Context(), 0, 0, 1, errNotYet},
		"the context has ended":                    {ended, time.Minute, 0, 1, errNotYet},
		"the context has ended, and one succeeds":  {ended, time.Minute, 1, 1, nil},
		"the limit is over, and the call succeeds": {t.Context(), 0, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			pause := time.Millisecond
			if test.succeeds == 0 {
				pause = time.Hour
			}
			err := Until(test.ctx, pause, test.limit, func(context.Context) error {
				if calls++; calls == test.succeeds {
					return nil
				}
				return errNotYet
			})
			if !errors.Is(err, test.want) || calls != test.calls {
				t.Errorf("Until returns %v after %d calls, want %v after %d", err, calls, test.want, test.calls)
			}
		})
	}
}
