// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"os/exec"
	"testing"
	"time"
)

func TestTheMeterSeesThatItWasStopped(t *testing.T) {
	meter, err := Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", meter+` 1 & sleep 0.3; kill -STOP $!; sleep 0.2; kill -CONT $!; wait $!`)
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(string(out))
	if err != nil {
		t.Fatal(err)
	}
	if r.Spun < time.Second || r.Largest < 150*time.Millisecond || r.Lost < r.Largest || r.Quantile(1) != r.Largest {
		t.Errorf("the reading is %+v, want a gap of 200 ms in a second", r)
	}
}

func TestReadingsAreAddedUp(t *testing.T) {
	a, err := Parse("gap 12000 98\ngap 20000 1\nlargest 19000\nlost 1000000\nspun 60000000000\ninvoluntary 6\ncpu 1\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("gap 11000 0\ngap 20000 1\nlargest 18000\nlost 200000\nspun 60000000000\ninvoluntary 0\ncpu 1\n")
	if err != nil {
		t.Fatal(err)
	}
	sum := a.Add(b)
	if sum.PerMinute() != 3 || sum.Quantile(0.98) != 12*time.Microsecond || sum.Quantile(0.9999) != 19*time.Microsecond || sum.Share() != 0.00001 {
		t.Errorf("the sum is %+v: %g a minute, %s, %s, %g", sum, sum.PerMinute(), sum.Quantile(0.98), sum.Quantile(0.9999), sum.Share())
	}
}

func TestGapsOfALengthAreCounted(t *testing.T) {
	r, err := Parse("gap 12000 98\ngap 1048576 2\ngap 2097152 1\nlargest 1900000\nlost 1000000\nspun 60000000000\ninvoluntary 6\ncpu 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if all, long := r.Longer(0), r.Longer(time.Millisecond); all != 101 || long != 3 {
		t.Errorf("there are %d gaps, %d of a millisecond, want 101 and 3", all, long)
	}
}

func TestASpreadHasTheMedianAndBothEnds(t *testing.T) {
	for text, numbers := range map[string][]float64{
		"0.00 (0.00 to 0.00)": nil, "7.00 (7.00 to 7.00)": {7}, "2.00 (1.00 to 9.00)": {9, 1, 2}, "2.50 (1.00 to 9.00)": {9, 2, 1, 3}, "376 (3 to 1003)": {376, 3, 1003},
	} {
		if spread := SpreadOf(numbers); spread.String() != text {
			t.Errorf("the spread of %v is %s, want %s", numbers, spread, text)
		}
	}
}

func TestAReadingThatIsCutIsAnError(t *testing.T) {
	for _, text := range []string{"", "gap 1", "lost 1\nspun 2\n", "lost many"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is a reading", text)
		}
	}
}
