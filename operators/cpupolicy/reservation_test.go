// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import "testing"

func TestReservation(t *testing.T) {
	for _, test := range []struct {
		cpus, maxPods int
		want          string
	}{
		{1, 110, "60m"},
		{2, 110, "70m"},
		{3, 110, "75m"},
		{4, 110, "80m"},
		{8, 110, "90m"},
		{5, 110, "83m"}, // 82.5m, rounded up
		{104, 110, "330m"},
		{1, 200, "460m"},
		{2, 200, "470m"},
		{4, 200, "480m"},
		{8, 200, "490m"},
		{8, 111, "490m"},
		{8, 0, "90m"},
		{0, 200, "0"},
		{-1, 110, "0"},
	} {
		got := Reservation(test.cpus, test.maxPods)
		if got.String() != test.want {
			t.Errorf("Reservation(%d, %d) = %s, want %s", test.cpus, test.maxPods, got.String(), test.want)
		}
	}
}
