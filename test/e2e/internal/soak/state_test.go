/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package soak

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStateOutlivesAnInterruption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "soak")
	s, err := Load(dir, 42)
	if err != nil {
		t.Fatal(err)
	}
	s.Parts, s.Next, s.Elapsed, s.Pods = 1, 3, time.Hour, 120
	s.Events["kill etcd"]++
	s.Samples = samplesOf(1, 0, 0)
	s.Findings = []Finding{{Round: 2, Text: "it leaked"}}
	if err := s.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{0, 42} {
		again, err := Load(dir, seed)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("with the seed %d it is read as\n%+v (%v), and was\n%+v", seed, again, err, s)
		}
	}
	report := s.Report()
	for _, want := range []string{"seed 42", "3 rounds in 1.00 hours", "1 times kill etcd", "make soak SEED=42 ROUND=2", "it leaked", "kubelet, heap"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report is\n%s\nwant that it has %q", report, want)
		}
	}
}

func TestAnotherSeedAndABrokenStateAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := (&State{Seed: 1}).Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, 2); err == nil || !strings.Contains(err.Error(), "state.json: field Seed is 1, and the seed of this part is 2") {
		t.Errorf("another seed gives the error %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, 1); err == nil || !strings.Contains(err.Error(), "state.json: ") {
		t.Errorf("a broken state gives the error %v", err)
	}
}
