// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestASignalEndsTheProcess(t *testing.T) {
	e := WatchEnding(time.Now().Add(time.Hour), syscall.SIGUSR1)
	defer e.Stop()
	if why := e.Why(); why != "" {
		t.Errorf("without a signal, the process is being ended: %s", why)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); e.Why() == "" && time.Since(began) < 10*time.Second; {
		time.Sleep(time.Millisecond)
	}
	for range 2 { // it stays so
		if why := e.Why(); !strings.Contains(why, "interrupted by user defined signal 1") {
			t.Errorf("after the signal, the process is being ended for the reason %q", why)
		}
	}
}

func TestALimitEndsTheProcess(t *testing.T) {
	for name, test := range map[string]struct {
		limit time.Time
		want  string
	}{
		"no limit":                {time.Time{}, ""},
		"a limit that has come":   {time.Now(), "the time limit of the tests has come"},
		"a limit that is to come": {time.Now().Add(time.Hour), ""},
	} {
		e := WatchEnding(test.limit, syscall.SIGUSR2)
		if why := e.Why(); why != test.want {
			t.Errorf("%s: the reason is %q, want %q", name, why, test.want)
		}
		e.Stop()
	}
}
