// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
)

// samplesOf returns the samples of some lifetimes of a process, each of which begins at a level of
// its own, fills its caches, and then grows by so much in a round.
func samplesOf(lifetimes int, perRound, noise float64) (samples []Sample) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range lifetimes {
		level := 1000 * r.Float64()
		for round := range EpochLength - Disturbed + 1 {
			value := level + perRound*float64(round) + noise*r.NormFloat64()
			if round < warmUp {
				value -= 500
			}
			samples = append(samples, Sample{Process: "kubelet", Lifetime: fmt.Sprint(i), Round: i*EpochLength + round, Values: map[string]float64{"heap": value}})
		}
	}
	return samples
}

func TestGrowthIsFoundBeyondItsBoundAndNotBelow(t *testing.T) {
	bounds := []Bound{{Name: "heap", PerRound: 64}}
	for _, test := range []struct {
		perRound, noise float64
		beyond          bool
	}{{0, 30, false}, {40, 30, false}, {200, 30, true}, {200, 5000, false}} {
		found := GrowthOf(samplesOf(4, test.perRound, test.noise), bounds)
		if len(found) != 1 || found[0].Beyond() != test.beyond {
			t.Errorf("of growth by %v with a noise of %v it says %v, want %v", test.perRound, test.noise, found, test.beyond)
		}
	}
}

func TestGrowthIsThatOfAllLifetimesTogether(t *testing.T) {
	g := GrowthOf(samplesOf(5, 7, 0), []Bound{{Name: "heap", PerRound: 1}})[0]
	if math.Abs(g.Slope-7) > 1e-9 || g.StandardError > 1e-6 || g.Samples != 5*(EpochLength-Disturbed+1-warmUp) {
		t.Errorf("it is %+v, want 7 in a round", g)
	}
	if text := g.String(); !strings.Contains(text, "GROWS") || !strings.Contains(text, "kubelet, heap") {
		t.Errorf("it reads %q", text)
	}
}

// held is what this package has allocated, for the next test.
var held [][]byte

func TestWhatOurCodeHasAllocatedIsCounted(t *testing.T) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	heap := func() float64 {
		runtime.GC()
		var data bytes.Buffer
		if err := pprof.WriteHeapProfile(&data); err != nil {
			t.Fatal(err)
		}
		size, err := OursIn(data.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	before := heap()
	for range 100 {
		held = append(held, make([]byte, 10<<10))
	}
	if grown := heap() - before; grown < 1000 || grown > 1200 {
		t.Errorf("of 1,000 KiB it has found %v", grown)
	}
	held = nil
	if left := heap() - before; left > 100 {
		t.Errorf("of what is not held any longer there are %v KiB left", left)
	}
	if size, err := OursIn([]byte("x")); err == nil {
		t.Errorf("of what is not a profile it has found %v KiB", size)
	}
}

func TestFewSamplesShowNoGrowth(t *testing.T) {
	g := GrowthOf(samplesOf(1, 1e6, 0)[:warmUp+8], Bounds)
	for _, g := range g {
		if g.Beyond() || !strings.Contains(g.String(), "too few") {
			t.Errorf("of one lifetime it says %s", g)
		}
	}
}

func TestMemoryIsThatOfTheEndsOfLifetimes(t *testing.T) {
	samples := samplesOf(3, 0, 0)
	for i := range samples {
		samples[i].Values["resident"] = 1024 * float64(100+samples[i].Round)
	}
	samples = append(samples, Sample{Process: "kubelet", Lifetime: "short", Round: 99, Values: map[string]float64{"resident": 1}})
	first := EpochLength - Disturbed
	last := first + 2*EpochLength
	want := []string{fmt.Sprintf("kubelet, resident memory at the end of a lifetime: %d.0 MiB in round %d, the first; %d.0 MiB in round %d, the last; %[3]d.0 MiB at most", 100+first, first, 100+last, last)}
	if got := memoryOf(samples); !slices.Equal(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}
