// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"os/signal"
	"time"
)

// Ending knows whether this process is being ended. The cluster is removed then, while a round goes
// on for a moment, so what that round says is not a finding.
type Ending struct {
	signals chan os.Signal
	limit   time.Time
	why     string
}

// WatchEnding begins to watch for these signals, in addition to other receivers. From the limit on the
// process is being ended, too, unless the limit is zero.
func WatchEnding(limit time.Time, signals ...os.Signal) *Ending {
	e := &Ending{signals: make(chan os.Signal, 1), limit: limit}
	signal.Notify(e.signals, signals...)
	return e
}

// Stop ends the look-out.
func (e *Ending) Stop() { signal.Stop(e.signals) }

// Why returns why the process is being ended. It is empty if it is not.
func (e *Ending) Why() string {
	select {
	case s := <-e.signals:
		e.why = fmt.Sprintf("interrupted by %s", s)
	default:
		if e.why == "" && !e.limit.IsZero() && !time.Now().Before(e.limit) {
			e.why = "the time limit of the tests has come"
		}
	}
	return e.why
}
