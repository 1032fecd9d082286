// SPDX-License-Identifier: Apache-2.0

// Package noise measures how an application is disturbed: it builds the meter, a small static
// program that spins, and reads what that prints.
package noise

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed meter/meter.c
var source []byte

// Build compiles the meter into a directory, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	c, program := filepath.Join(dir, "meter.c"), filepath.Join(dir, "meter")
	if err := os.WriteFile(c, source, 0o644); err != nil {
		return "", err
	}
	if output, err := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-o", program, c).CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, output)
	}
	return program, nil
}

// Reading is what the meter has printed.
type Reading struct {
	// Gaps are those of more than 10 µs, by classes of an eighth of a power of two, the
	// shortest first.
	Gaps []Gaps
	// Largest is the longest of them, Lost all of them together, and Spun how long the meter
	// has measured.
	Largest, Lost, Spun time.Duration
	// Involuntary counts the meter's involuntary context switches.
	Involuntary int64
	// CPU is where it ran last.
	CPU int
}

// Gaps is a class of gaps.
type Gaps struct {
	// Bound is that from above.
	Bound time.Duration
	Count int64
}

// Parse reads what the meter has printed.
func Parse(text string) (r Reading, err error) {
	numbers := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var name string
		var value, count int64
		switch n, err := fmt.Sscan(lines.Text(), &name, &value, &count); {
		case name == "gap" && n == 3:
			r.Gaps = append(r.Gaps, Gaps{time.Duration(value), count})
		case name != "gap" && n == 2:
			numbers[name] = value
		default:
			return r, fmt.Errorf("the meter has printed %q: %w", lines.Text(), err)
		}
	}
	for _, name := range []string{"largest", "lost", "spun", "involuntary", "cpu"} {
		if _, is := numbers[name]; !is {
			return r, fmt.Errorf("the meter has not printed %q, but %q", name, text)
		}
	}
	r.Largest, r.Lost, r.Spun = time.Duration(numbers["largest"]), time.Duration(numbers["lost"]), time.Duration(numbers["spun"])
	r.Involuntary, r.CPU = numbers["involuntary"], int(numbers["cpu"])
	return r, nil
}

// PerMinute returns the involuntary context switches of a minute.
func (r Reading) PerMinute() float64 { return float64(r.Involuntary) / r.Spun.Minutes() }

// Share returns the part of the time that was lost to gaps.
func (r Reading) Share() float64 { return float64(r.Lost) / float64(r.Spun) }

// Quantile returns a bound that this part of the gaps does not exceed; zero if there were none.
func (r Reading) Quantile(part float64) time.Duration {
	var all, seen int64
	for _, g := range r.Gaps {
		all += g.Count
	}
	for _, g := range r.Gaps {
		if seen += g.Count; float64(seen) >= part*float64(all) {
			return min(g.Bound, r.Largest)
		}
	}
	return 0
}

// Longer returns how many gaps had at least this length, to within a class of gaps.
func (r Reading) Longer(than time.Duration) (count int64) {
	for _, g := range r.Gaps {
		if g.Bound > than {
			count += g.Count
		}
	}
	return count
}

// Spread is a number that several turns have: in the middle, at least and at most.
type Spread struct{ Median, Least, Most float64 }

// SpreadOf returns the spread of some numbers; zero of none. Of an even number of them the median is the mean of both in the middle.
func SpreadOf(numbers []float64) Spread {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	if n == 0 {
		return Spread{}
	}
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// String prints all three with two decimals, and from 100 on as whole numbers.
func (s Spread) String() string {
	digits := 2
	if s.Most >= 100 {
		digits = 0
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.Median, digits, s.Least, digits, s.Most)
}

// Add returns both readings as one.
func (r Reading) Add(other Reading) Reading {
	counts := map[time.Duration]int64{}
	var sum Reading
	for _, g := range slices.Concat(r.Gaps, other.Gaps) {
		if _, is := counts[g.Bound]; !is {
			sum.Gaps = append(sum.Gaps, Gaps{Bound: g.Bound})
		}
		counts[g.Bound] += g.Count
	}
	slices.SortFunc(sum.Gaps, func(a, b Gaps) int { return cmp.Compare(a.Bound, b.Bound) })
	for i := range sum.Gaps {
		sum.Gaps[i].Count = counts[sum.Gaps[i].Bound]
	}
	sum.Largest, sum.Lost, sum.Spun = max(r.Largest, other.Largest), r.Lost+other.Lost, r.Spun+other.Spun
	sum.Involuntary, sum.CPU = r.Involuntary+other.Involuntary, other.CPU
	return sum
}
