// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Sample is what was read of a process at the end of a round, when it had no pods left to do with.
type Sample struct {
	Process string
	// Lifetime tells a process from the one before its restart, and from itself before something else
	// gave it another level, such as a larger cache.
	Lifetime string
	Round    int
	Values   map[string]float64
}

// Bound is how much something may grow in a round.
type Bound struct {
	Name, Unit string
	PerRound   float64
}

// Bounds are those of a kubelet and of a kube-apiserver. Whatever each round leaves behind, a
// goroutine or an open file, grows by one in a round, so half of one tells that from nothing. A
// round creates about 64 pods. Of the heap, 2 KiB for each of them is less than any of their objects
// takes. It is not less since upstream's histograms get more buckets for hours
// (k8s.io/component-base, NativeHistograms), which take 75 KiB in a round of a kube-apiserver. What
// this project's code has allocated is measured by itself, and 128 bytes for each pod is about an
// entry of a map.
var Bounds = []Bound{
	{Name: "goroutines", PerRound: 0.5},
	{Name: "files", PerRound: 0.5},
	{Name: "heap", Unit: " KiB", PerRound: 128},
	{Name: "heap of ours", Unit: " KiB", PerRound: 8},
}

// ours begins the names of this project's packages.
const ours = "workload.openshift.io/"

// OursIn returns how much of a heap, in KiB, this project's code has allocated, or what it has
// called, by a profile of the heap.
func OursIn(heap []byte) (float64, error) {
	parsed, err := profile.ParseData(heap)
	if err != nil {
		return 0, fmt.Errorf("profile of the heap: %w", err)
	}
	kind := slices.IndexFunc(parsed.SampleType, func(kind *profile.ValueType) bool { return kind.Type == "inuse_space" })
	if kind < 0 {
		return 0, errors.New("profile of the heap: no sample type is inuse_space")
	}
	isOurs := func(line profile.Line) bool {
		return line.Function != nil && strings.HasPrefix(line.Function.Name, ours)
	}
	var bytes int64
	for _, sample := range parsed.Sample {
		if slices.ContainsFunc(sample.Location, func(at *profile.Location) bool { return slices.ContainsFunc(at.Line, isOurs) }) {
			bytes += sample.Value[kind]
		}
	}
	return float64(bytes) / 1024, nil
}

// The first samples of a lifetime are left out: caches fill then. The last to be full are the
// kubelet's of 4,096 Events (k8s.io/client-go, tools/record, EventCorrelator); a round has some 300.
// Growth counts if it is beyond its bound by so many standard errors: by chance that happens once in
// a thousand times.
const (
	warmUp  = 16
	certain = 4
)

// Growth is how much something grows in a round.
type Growth struct {
	Process string
	Bound
	// Slope is the growth in a round, common to all lifetimes, by least squares, and
	// StandardError its error. Both are NaN if there are too few samples.
	Slope, StandardError float64
	// Samples counts those that were used.
	Samples int
}

// Beyond reports whether the growth is certainly larger than it may be.
func (g Growth) Beyond() bool { return g.Slope-certain*g.StandardError > g.PerRound }

// Detectable is the least growth in a round that these samples would have shown.
func (g Growth) Detectable() float64 { return g.PerRound + certain*g.StandardError }

func (g Growth) String() string {
	if math.IsNaN(g.Slope) {
		return fmt.Sprintf("%s, %s: %d samples, too few to tell", g.Process, g.Name, g.Samples)
	}
	verdict := "does not grow"
	if g.Beyond() {
		verdict = "GROWS"
	}
	return fmt.Sprintf("%s, %s: %s: %.2f%s ± %.2f in a round (%d samples); %.2f would have been found",
		g.Process, g.Name, verdict, g.Slope, g.Unit, g.StandardError, g.Samples, g.Detectable())
}

// GrowthOf returns the growth of everything that the samples have, in the order of their processes
// and of the bounds.
func GrowthOf(samples []Sample, bounds []Bound) (found []Growth) {
	for _, process := range processes(samples) {
		for _, bound := range bounds {
			found = append(found, growth(samples, process, bound))
		}
	}
	return found
}

// processes returns the names of the processes that were sampled.
func processes(samples []Sample) (names []string) {
	for _, sample := range samples {
		names = append(names, sample.Process)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// memoryOf says how much resident memory each process had when its lifetimes ended. It depends on
// when garbage was collected last, so nothing is concluded from it; but what the heap does not show
// can be seen there. Short lifetimes are left out, as for growth: young processes are small.
func memoryOf(samples []Sample) (texts []string) {
	for _, process := range processes(samples) {
		last, counts := map[string]Sample{}, map[string]int{}
		for _, sample := range samples {
			if _, has := sample.Values["resident"]; has && sample.Process == process {
				counts[sample.Lifetime]++
				if seen, is := last[sample.Lifetime]; !is || sample.Round > seen.Round {
					last[sample.Lifetime] = sample
				}
			}
		}
		maps.DeleteFunc(last, func(lifetime string, _ Sample) bool { return counts[lifetime] < warmUp+2 })
		ends := slices.SortedFunc(maps.Values(last), func(a, b Sample) int { return cmp.Compare(a.Round, b.Round) })
		if len(ends) == 0 {
			continue
		}
		mebibytes := func(sample Sample) float64 { return sample.Values["resident"] / 1024 }
		most := slices.MaxFunc(ends, func(a, b Sample) int { return cmp.Compare(mebibytes(a), mebibytes(b)) })
		first, end := ends[0], ends[len(ends)-1]
		texts = append(texts, fmt.Sprintf("%s, resident memory at the end of a lifetime: %.1f MiB in round %d, the first; %.1f MiB in round %d, the last; %.1f MiB at most",
			process, mebibytes(first), first.Round, mebibytes(end), end.Round, mebibytes(most)))
	}
	return texts
}

// growth fits one slope to the samples of all lifetimes of a process, each of which has a level of
// its own.
func growth(samples []Sample, process string, bound Bound) Growth {
	type point struct{ round, value float64 }
	lifetimes := map[string][]point{}
	samples = slices.SortedFunc(slices.Values(samples), func(a, b Sample) int { return cmp.Compare(a.Round, b.Round) })
	for _, sample := range samples {
		if value, has := sample.Values[bound.Name]; has && sample.Process == process {
			lifetimes[sample.Lifetime] = append(lifetimes[sample.Lifetime], point{float64(sample.Round), value})
		}
	}
	g := Growth{Process: process, Bound: bound}
	var xx, xy, yy float64
	levels := 0
	for _, points := range lifetimes {
		if len(points) < warmUp+2 {
			continue
		}
		points = points[warmUp:]
		levels++
		g.Samples += len(points)
		var meanRound, meanValue float64
		for _, p := range points {
			meanRound += p.round / float64(len(points))
			meanValue += p.value / float64(len(points))
		}
		for _, p := range points {
			x, y := p.round-meanRound, p.value-meanValue
			xx, xy, yy = xx+x*x, xy+x*y, yy+y*y
		}
	}
	const least = 8
	free := g.Samples - levels - 1
	if free < least {
		g.Slope, g.StandardError = math.NaN(), math.NaN()
		return g
	}
	g.Slope = xy / xx
	g.StandardError = math.Sqrt(max(0, yy-g.Slope*xy) / float64(free) / xx)
	return g
}
