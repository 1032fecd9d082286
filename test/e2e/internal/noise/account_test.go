// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// kernel is one whose clock ticks when so many accounts have been read. A tick charges an
// application that spins, and with it all pods.
type kernel struct {
	ticks             map[int]bool
	reads             int
	application, pods time.Duration
}

func (k *kernel) read(account *time.Duration) func() ([]time.Duration, error) {
	return func() ([]time.Duration, error) {
		if k.reads++; k.ticks[k.reads] {
			k.application += 4 * time.Millisecond
			k.pods += 4 * time.Millisecond
		}
		return []time.Duration{0, *account}, nil
	}
}

func TestATickIsNoTimeOfOtherPods(t *testing.T) {
	for name, ticks := range map[string]map[int]bool{
		"no tick":                                 {},
		"one before the first reading":            {1: true},
		"one before all pods are read":            {2: true},
		"one after all pods are read":             {3: true},
		"some, one of them in the second attempt": {2: true, 5: true, 7: true},
	} {
		k := &kernel{ticks: ticks, application: time.Second, pods: time.Second + time.Millisecond}
		application, all, err := Account(k.read(&k.application), k.read(&k.pods))
		if err != nil {
			t.Fatal(err)
		}
		if others := all[1] - application[1]; others != time.Millisecond {
			t.Errorf("with %s, other pods have used %s, want 1ms", name, others)
		}
	}
}

func TestAnAccountThatCannotBeReadIsAnError(t *testing.T) {
	always := map[int]bool{}
	for i := range 3*tries + 1 {
		always[i] = true
	}
	k := &kernel{ticks: always}
	if _, _, err := Account(k.read(&k.application), k.read(&k.pods)); err == nil || !strings.Contains(err.Error(), "the application was charged during each of") {
		t.Errorf("with a tick at each reading, the error is %v", err)
	}
	gone := errors.New("it has gone")
	missing := func() ([]time.Duration, error) { return nil, gone }
	if _, _, err := Account(missing, k.read(&k.pods)); !errors.Is(err, gone) {
		t.Errorf("without the application, the error is %v", err)
	}
	still := &kernel{}
	if _, all, err := Account(still.read(&still.application), missing); !errors.Is(err, gone) || slices.ContainsFunc(all, func(d time.Duration) bool { return d != 0 }) {
		t.Errorf("without the account of all pods, it is %v with the error %v", all, err)
	}
}
