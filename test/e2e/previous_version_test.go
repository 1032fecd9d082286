// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A node goes from this project's previous version to this one, back, and up again, in the order of
// docs/user/upgrade.md. All pods run on, and no version misreads what the other one has written.
func TestPodsRunOnAcrossProjectVersions(t *testing.T) {
	in(t, long, previousBinaries)
	kubelet, server := filepath.Join(previousBin, "kubelet"), filepath.Join(previousBin, "kube-apiserver")
	with := config
	with.Pinning, with.Kubelet, with.APIServer = pinning, kubelet, server
	c := alone(t, with)
	latched := func() error {
		if latch := fixture.Latched(t, c.Client); !partition.ListsType(latch, "management") {
			return fmt.Errorf("the latch is %q", latch)
		}
		return nil
	}
	waitFor(t, 20*time.Second, "the type is latched", latched)
	s := survive(t, c).withStatic(t).withExclusive(t)
	checkpoint, err := readCheckpoint(c)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(t *testing.T) {
		t.Helper()
		s.expectPlaced(t)
		s.expectNew(t)
		s.expect(t)
		if err := latched(); err != nil {
			t.Error(err)
		}
		if now, err := readCheckpoint(c); err != nil || !reflect.DeepEqual(now, checkpoint) {
			t.Errorf("the checkpoint was %+v, and is %+v (%v)", checkpoint, now, err)
		}
		var record partition.Record
		data, err := os.ReadFile(filepath.Join(c.KubeletDir(), partition.RecordName))
		if err == nil {
			err = json.Unmarshal(data, &record)
		}
		if err != nil || record.ReservedCPUs != "0" || !slices.Contains(record.Sets, "0") || !slices.Contains(record.Sets, otherCPUs(t)) {
			t.Errorf("the record is %s (%v), want one of the pool 0 and of what it leaves", data, err)
		}
		if log := readFile(t, c.Kubelet.Log()); strings.Contains(log, "Cannot read the record of the previous pools") {
			t.Error("a kubelet could not read the record of the other version")
		}
	}
	useKubelet := func(t *testing.T, path string) {
		t.Helper()
		c.UseKubelet(path)
		restart(t, c, pinning)
		expectRuns(t, c.Kubelet, cmp.Or(path, filepath.Join(config.Bin, "kubelet")))
		// The period in which no static pod must restart: the kubelet reads manifests every two
		// seconds here, and syncs pods every ten.
		time.Sleep(12 * time.Second)
	}
	useServer := func(t *testing.T, path string) {
		t.Helper()
		useAPIServer(t, c, path)
		expectRuns(t, c.APIServer, cmp.Or(path, filepath.Join(config.Bin, "kube-apiserver")))
	}
	expectRuns(t, c.Kubelet, kubelet)
	expectRuns(t, c.APIServer, server)
	expect(t)
	for _, step := range []struct {
		name string
		do   func(t *testing.T, path string)
		path string
	}{
		{"kube-apiserver goes up", useServer, ""},
		{"the kubelet goes up", useKubelet, ""},
		{"the kubelet goes down", useKubelet, kubelet},
		{"kube-apiserver goes down", useServer, server},
		{"kube-apiserver goes up again", useServer, ""},
		{"the kubelet goes up again", useKubelet, ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do(t, step.path)
			expect(t)
		})
	}
}

// expectRuns checks that a component is this program. Its version would not say: two versions of this
// project may give binaries the same one.
func expectRuns(t *testing.T, component host.Component, path string) {
	t.Helper()
	want, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", component.PID())); err != nil || got != want {
		t.Fatalf("%s is the program %s (%v), want %s", component.Name(), got, err, want)
	}
}
