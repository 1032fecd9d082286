// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cluster/atomicfile"
)

// Setup is what all parts must have in common: rounds follow from it, and what they find is true of
// it alone.
type Setup struct {
	Seed uint64
	// Content is a hash of the node's programs, of their configuration and of the rounds, and CPUs the number of
	// the host's.
	Content string
	CPUs    int
}

// State is what all parts have done together. Each part goes on with the round after the last one
// that ended.
type State struct {
	Setup
	// Parts counts those that have begun, and Next is the number of the next round.
	Parts, Next int
	Elapsed     time.Duration
	// Pods counts those that were created, and Events those that took place, by their actions and
	// components.
	Pods     int
	Events   map[string]int
	Samples  []Sample
	Findings []Finding
}

// Finding is a round that failed.
type Finding struct {
	Round int
	Text  string
}

// Load reads the state in a directory. Without one it begins with the setup. With one, the setup
// must be the same; the seed may also be zero.
func Load(dir string, setup Setup) (*State, error) {
	path := file(dir)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &State{Setup: setup, Events: map[string]int{}}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to begin again", path, err)
	}
	const remedy = "go on with the same, or begin in another directory: make soak SOAK_STATE=DIRECTORY"
	switch {
	case setup.Seed != 0 && setup.Seed != s.Seed:
		return nil, fmt.Errorf("%s: field Seed is %d, and the seed of this part is %d; %s", path, s.Seed, setup.Seed, remedy)
	case setup.Content != s.Content:
		return nil, fmt.Errorf("%s: field Content is %q, and this part is made of %q; %s", path, s.Content, setup.Content, remedy)
	case setup.CPUs != s.CPUs:
		return nil, fmt.Errorf("%s: field CPUs is %d, and this host has %d; %s", path, s.CPUs, setup.CPUs, remedy)
	}
	return s, nil
}

// EndRound keeps in a directory what a round has done that took so long, and said what was wrong if
// it failed. The next round is the one after it.
//
// A round that failed while the process was being ended, for the reason ending, is not kept: its
// cluster was removed below it. The state in the directory then stays as it was before the round,
// so that the next part begins with that round again.
func (s *State) EndRound(dir string, took time.Duration, failed bool, said []string, ending string) error {
	if failed && ending != "" {
		return fmt.Errorf("%s: round %d counts for nothing, and the next part begins with it", ending, s.Next)
	}
	if failed {
		s.Findings = append(s.Findings, Finding{Round: s.Next, Text: strings.Join(said, "; ")})
	}
	s.Elapsed += took
	s.Next++
	return s.Save(dir)
}

// Add adds a sample, and keeps in a directory the profile of the heap of its process: those of
// the first sample and of the last after the caches of its lifetime have filled. What has grown is in
// their difference.
func (s *State) Add(dir string, sample Sample, heap []byte) error {
	s.Samples = append(s.Samples, sample)
	count := 0
	for _, other := range s.Samples {
		if other.Process == sample.Process && other.Lifetime == sample.Lifetime {
			count++
		}
	}
	if count <= warmUp {
		return nil
	}
	first, last := heapFiles(dir, sample.Process)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if count == warmUp+1 {
		return errors.Join(atomicfile.Write(first, heap, 0o644), atomicfile.Write(last, heap, 0o644))
	}
	return atomicfile.Write(last, heap, 0o644)
}

// heapFiles are where the profiles of a process are.
func heapFiles(dir, process string) (first, last string) {
	return filepath.Join(dir, process+"-heap-first.pb.gz"), filepath.Join(dir, process+"-heap-last.pb.gz")
}

// CompareHeaps is the command that shows which part of a process' heap has grown.
func CompareHeaps(dir, process string) string {
	first, last := heapFiles(dir, process)
	return fmt.Sprintf("go tool pprof -sample_index=inuse_space -top -base %s %s", first, last)
}

func file(dir string) string { return filepath.Join(dir, "state.json") }

// Save writes the state into a directory, whole or not at all.
func (s *State) Save(dir string) error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(file(dir), data, 0o644)
}

// Report says what all parts have done and found.
func (s *State) Report() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, content %s, %d CPUs: %d rounds in %.2f hours and %d parts, with %d pods\n", s.Seed, s.Content, s.CPUs, s.Next, s.Elapsed.Hours(), s.Parts, s.Pods)
	for _, event := range slices.Sorted(maps.Keys(s.Events)) {
		fmt.Fprintf(&text, "%5d times %s\n", s.Events[event], event)
	}
	for _, growth := range GrowthOf(s.Samples, Bounds) {
		fmt.Fprintln(&text, growth)
	}
	for _, memory := range memoryOf(s.Samples) {
		fmt.Fprintln(&text, memory)
	}
	fmt.Fprintf(&text, "rounds that failed: %d\n", len(s.Findings))
	for _, finding := range s.Findings {
		fmt.Fprintf(&text, "round %d (%s): %s\n", finding.Round, Again(s.Seed, finding.Round), finding.Text)
	}
	return text.String()
}

// Again is the command that runs one round again.
func Again(seed uint64, round int) string {
	return fmt.Sprintf("make soak SEED=%d ROUND=%d", seed, round)
}
