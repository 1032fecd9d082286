// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestTimeOnTheCPUIsNamedByItsCauser(t *testing.T) {
	at := func(milliseconds int) time.Duration { return time.Duration(milliseconds) * time.Millisecond }
	causers := Causers{}
	causers.Add([]Switch{
		{at(100), 7, "meter"}, // how long it ran is not known
		{at(103), 20, "kubelet"},
		{at(110), 7, "meter"},
		{at(111), 30, "kworker/1:2"},
		{at(112), 31, "kworker/1:0H"},
		{at(114), 32, "kworker/u8:3"},
		{at(115), 0, "swapper/1"},
		{at(116), 33, "ksoftirqd/1"},
		{at(118), 34, "kcompactd0"},
		{at(119), 20, "kubelet"},
		{at(120), 21, "kubelet"},
		{at(121), 40, "runc:[2:INIT]"},
		{at(122), 41, "a/7"},
	}, "meter", func(task int) Kind {
		switch {
		case task == 20:
			return Host
		case task >= 30 && task < 35:
			return Floats
		}
		return Unknown
	})
	want := Causers{
		"kubelet":       {"kubelet", Host, at(5), 3},
		"kworker/1":     {"kworker/1", Thread, at(2), 2},
		"kworker/u8":    {"kworker/u8", Worker, at(2), 1},
		"ksoftirqd/1":   {"ksoftirqd/1", Thread, at(1), 1},
		"kcompactd0":    {"kcompactd0", Floats, at(2), 1},
		"runc:[2:INIT]": {"runc:[2:INIT]", Unknown, at(1), 1},
		"a/7":           {"a/7", Unknown, at(1), 1},
	}
	if !maps.Equal(causers, want) {
		t.Errorf("they are\n%+v\nwant\n%+v", causers, want)
	}
	causers.Merge(Causers{"runc:[2:INIT]": {"runc:[2:INIT]", Pod, at(9), 1}})
	if got := causers["runc:[2:INIT]"]; got != (Causer{"runc:[2:INIT]", Pod, at(10), 2}) {
		t.Errorf("after another turn it is %+v", got)
	}
	lines := strings.Split(causers.String(time.Second), "\n")
	if !strings.HasPrefix(lines[0], "runc:[2:INIT]  10ms  1.000 %  2 times  task of a pod") || !strings.HasPrefix(lines[1], "kubelet ") {
		t.Errorf("the table is\n%s", strings.Join(lines, "\n"))
	}
}

func TestCountsAreThoseOfOneCPU(t *testing.T) {
	// CPU1 is offline.
	const before = `           CPU0       CPU2       
 24:          1          5  IO-APIC   5-edge      ACPI:Ged
LOC:    3455648    3249974   Local timer interrupts
TLB:          4          9   TLB shootdowns
ERR:          0
`
	after := strings.NewReplacer("3249974", "3252474", "IO-APIC   5-edge", "IO-APIC   6-edge", " 5  IO", "15  IO").Replace(before)
	one, err := Counts(before, 2)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Counts(after, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := PerSecond(Sum(Since(one, other), Since(one, other)), 20*time.Second), "LOC (Local timer interrupts) 250.0, 24 (ACPI:Ged) 1.0"; got != want {
		t.Errorf("the interrupts are %q, want %q", got, want)
	}
	soft, err := Counts("                    CPU0       CPU1       \n          HI:          0          3\n     HRTIMER:         78        631\n", 1)
	if want := map[string]uint64{"HI": 3, "HRTIMER": 631}; err != nil || !maps.Equal(soft, want) {
		t.Errorf("the soft interrupts are %v (%v), want %v", soft, err, want)
	}
	if _, err := Counts(before, 1); err == nil || !strings.Contains(err.Error(), "none is CPU1") {
		t.Errorf("of a CPU that is offline, the error is %v", err)
	}
	if _, err := Counts("CPU0\nLOC: many\n", 0); err == nil || !strings.Contains(err.Error(), "LOC: many") {
		t.Errorf("of a row without a number, the error is %v", err)
	}
}
