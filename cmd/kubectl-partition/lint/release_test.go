// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

func readRelease(t testing.TB) []Source {
	t.Helper()
	sources, err := Read([]string{"testdata/release"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) != 6 {
		t.Fatalf("got %d manifests, want 6", len(sources))
	}
	return sources
}

// What is there was counted by hand: four workloads, two with their namespace, which all ask.
func TestManifestsOfOpenShiftHaveNoFindings(t *testing.T) {
	sources := readRelease(t)
	options := Options{Require: "management"}
	r := Lint(sources, options)
	if !r.Clean() || len(r.Problems) > 0 || r.Workloads != 4 || r.Asking != 4 || len(r.UnknownNamespaces) > 0 {
		t.Errorf("got %+v", r)
	}
	for i := range sources {
		for _, annotation := range []string{"        target.workload.openshift.io/management: '{\"effect\": \"PreferredDuringScheduling\"}'\n", "    workload.openshift.io/allowed: \"management\"\n"} {
			changed := slices.Clone(sources)
			changed[i].Data = bytes.Replace(sources[i].Data, []byte(annotation), nil, 1)
			if len(changed[i].Data) == len(sources[i].Data) {
				continue
			}
			want := targetMissing
			if annotation[4] != ' ' {
				want = namespaceUnannotated
			}
			r := Lint(changed, options)
			if found := withoutNotes(r); len(found) != 1 || found[0].Rule != want {
				t.Errorf("%s without%s: got %v, want %s", sources[i].Name, annotation, briefly(r), want)
			}
			fixed, problems := r.Fix()
			if len(fixed) != 1 || len(problems) > 0 {
				t.Fatalf("%s: got %d sources, %v", sources[i].Name, len(fixed), problems)
			}
			for j := range changed {
				if changed[j].Name == fixed[0].Source.Name {
					changed[j] = fixed[0].Source
				}
			}
			if r := Lint(changed, options); !r.Clean() {
				t.Errorf("%s after the correction: got %v", sources[i].Name, briefly(r))
			}
		}
	}
}

func thousand(t testing.TB) (sources []Source) {
	release := readRelease(t)
	for i := range 1000 {
		source := release[i%len(release)]
		source.Name = fmt.Sprintf("%d/%s", i, source.Name)
		sources = append(sources, source)
	}
	return sources
}

// The documentation promises less than two seconds. On a busy host, look at the CPU time.
func BenchmarkThousandManifests(b *testing.B) {
	sources := thousand(b)
	begin := cpuTime(b)
	for b.Loop() {
		if r := Lint(sources, Options{Require: "management"}); !r.Clean() {
			b.Fatal(r.Findings)
		}
	}
	b.ReportMetric((cpuTime(b)-begin).Seconds()/float64(b.N), "cpu-s/op")
}

// cpuTime returns what the process has used so far, the garbage collector included.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
