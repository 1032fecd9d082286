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

package managed

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
)

// cgroupFiles makes cgroups with the given cpusets, by their paths below kubepods, for the time of a
// test. They are ordinary files, so no kernel refuses a write.
func cgroupFiles(t *testing.T, v1 bool, sets map[string]string) {
	t.Helper()
	before := cgroupRoot
	cgroupRoot = t.TempDir()
	t.Cleanup(func() { cgroupRoot = before })
	if v1 {
		if err := os.Mkdir(filepath.Join(cgroupRoot, "cpuset"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, cpus := range sets {
		directory := filepath.Join(hierarchy().root, "kubepods", path)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			if err := os.WriteFile(filepath.Join(directory, file), []byte(cpus+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func expectSets(t *testing.T, want map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if has, err := hierarchy().cpus(filepath.Join("kubepods", path)); err != nil || has.String() != want[path] {
			t.Errorf("cgroup %s has the CPUs %q (%v), want %q", path, has, err, want[path])
		}
	}
}

// onlineFile sets the CPUs that the host has, online and possible, for the time of a test.
func onlineFile(t *testing.T, cpus string) {
	t.Helper()
	online, possible := onlineCPUsFile, possibleCPUsFile
	onlineCPUsFile = filepath.Join(t.TempDir(), "online")
	possibleCPUsFile = onlineCPUsFile
	t.Cleanup(func() { onlineCPUsFile, possibleCPUsFile = online, possible })
	if err := os.WriteFile(onlineCPUsFile, []byte(cpus+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// On cgroup v1 the kernel refuses a cpuset that is not within the parent's, and one that does not
// hold the children's. Here the real kernel decides, on a tree of cgroups like the kubelet's.
func TestKernelRefusesNoCpuset(t *testing.T) {
	sets := hierarchy()
	all, err := sets.effective("/")
	if !sets.v1 || err != nil || all.Size() < 2 {
		t.Skip("needs cgroup v1, and two CPUs")
	}
	top := fmt.Sprintf("/workload-partitioning-test-%d", os.Getpid())
	var made []string
	t.Cleanup(func() {
		shim.classes.narrowed = nil
		for _, path := range slices.Backward(made) {
			if err := os.Remove(filepath.Join(sets.root, path)); err != nil {
				t.Error(err)
			}
		}
	})
	add := func(path string) string {
		if err := os.Mkdir(filepath.Join(sets.root, path), 0o755); err != nil {
			t.Skip("needs to be root: ", err)
		}
		made = append(made, path)
		if err := sets.set(path, all); err != nil {
			t.Fatal(err)
		}
		return path
	}
	add(top)
	class := add(top + "/class")
	var pods []string
	for i := range 3 {
		pod := add(fmt.Sprintf("%s/pod%d", class, i))
		pods = append(pods, pod)
		for _, name := range []string{"sandbox", "c", "d", "c/docker", "c/docker/a", "c/docker/b"} {
			add(pod + "/" + name)
		}
	}
	random := newRandom(t)
	some := func(of cpuset.CPUSet) cpuset.CPUSet {
		list := of.List()
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return cpuset.New(list[:1+random.Intn(len(list))]...)
	}
	for round := range 200 {
		cpus := some(all)
		if err := sets.fit(class, cpus, some(cpus), 2); err != nil {
			t.Fatalf("round %d, class on %s: %v", round, cpus, err)
		}
		pod := pods[random.Intn(len(pods))]
		switch random.Intn(5) {
		case 0: // a partitioned pod whose pool moves
			pool := some(all)
			if err := errors.Join(sets.widen(class, pool), sets.fit(pod, pool, some(pool), 1)); err != nil {
				t.Fatalf("round %d, %s on %s: %v", round, pod, pool, err)
			}
		case 1: // shared CPUs come back
			back := some(all)
			if err := errors.Join(sets.widen(class, back), sets.widenToParent(pod, func(child string, _, _ cpuset.CPUSet) bool { return filepath.Base(child) == "sandbox" }), sets.fit(pod+"/c", back, back, 0)); err != nil {
				t.Fatalf("round %d, %s back on %s: %v", round, pod, back, err)
			}
		case 2: // a container moves
			above, err := sets.cpus(pod)
			if err != nil {
				t.Fatal(err)
			}
			to := some(above)
			if err := sets.fit(pod+"/c", to, to, 0); err != nil {
				t.Fatalf("round %d, container of %s on %s: %v", round, pod, to, err)
			}
		case 3: // a runtime in the container writes a cpuset
			above, err := sets.cpus(pod + "/c/docker")
			if err != nil {
				t.Fatal(err)
			}
			if err := sets.set(pod+"/c/docker/a", some(above)); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range made {
			if has, err := sets.cpus(path); err != nil || has.IsEmpty() {
				t.Fatalf("round %d: %s is left with %q (%v)", round, path, has, err)
			}
		}
	}
}

// In a container of three cgroups: c, docker in it, and a in docker.
func TestCgroupsBelowAContainerComeBack(t *testing.T) {
	type step struct{ container, docker, a string }
	for name, steps := range map[string][]step{
		"what inherited the container's CPUs follows them":              {{"0-3", "0-3", "0-3"}, {"0-2", "0-2", "0-2"}, {"0-3", "0-3", "0-3"}},
		"it follows them elsewhere":                                     {{"1-3", "1-3", "1-3"}, {"0,2-3", "0,2-3", "0,2-3"}, {"1", "1", "1"}, {"0-3", "0-3", "0-3"}},
		"what has some of them gets no others":                          {{"0-3", "0-3", "0-1"}, {"0-2", "0-2", "0-1"}, {"0-3", "0-3", "0-1"}},
		"what had some of them gets these back":                         {{"0-3", "0-3", "2-3"}, {"0-2", "0-2", "2"}, {"1-2", "1-2", "2"}, {"0-3", "0-3", "2-3"}},
		"what is left with the container's last CPUs gets its own back": {{"0-3", "0-3", "2-3"}, {"2", "2", "2"}, {"0-3", "0-3", "2-3"}},
		"what had none of those that are left gets its own back":        {{"0-3", "0-3", "3"}, {"0-1", "0-1", "0-1"}, {"0-3", "0-3", "3"}},
		"what is given back in two steps":                               {{"0-3", "0-3", "1-3"}, {"0-1", "0-1", "1"}, {"0-2", "0-2", "1-2"}, {"0-3", "0-3", "1-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			start := steps[0]
			cgroupFiles(t, true, map[string]string{"c": start.container, "c/docker": start.docker, "c/docker/a": start.a})
			t.Cleanup(func() { shim.classes.narrowed = nil })
			for _, step := range steps[1:] {
				if err := hierarchy().fit("kubepods/c", parse(t, step.container), parse(t, step.container), 0); err != nil {
					t.Fatal(err)
				}
				expectSets(t, map[string]string{"c": step.container, "c/docker": step.docker, "c/docker/a": step.a})
			}
			if len(shim.classes.narrowed) > 0 {
				t.Errorf("in the end, %v are narrowed", shim.classes.narrowed)
			}
		})
	}
}

func TestWhatARuntimeInAContainerWritesStays(t *testing.T) {
	cgroupFiles(t, true, map[string]string{"c": "0-3", "c/docker": "2-3"})
	t.Cleanup(func() { shim.classes.narrowed = nil })
	sets := hierarchy()
	for _, to := range []string{"0-2", "0-3"} {
		if err := sets.fit("kubepods/c", parse(t, to), parse(t, to), 0); err != nil {
			t.Fatal(err)
		}
		if to == "0-2" { // docker update --cpuset-cpus
			expectSets(t, map[string]string{"c/docker": "2"})
			if err := sets.set("kubepods/c/docker", cpuset.New(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectSets(t, map[string]string{"c": "0-3", "c/docker": "1"})
}

// newRandom logs its seed, so that a failure can be reproduced.
func newRandom(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	return rand.New(rand.NewSource(seed))
}
