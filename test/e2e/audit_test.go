// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// kubectl partition audit finds nothing on a node with pods of every kind. It finds and names
// each violation that is planted, and nothing once that is repaired.
func TestAuditFindsEachViolation(t *testing.T) {
	in(t, vm, long)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	static := staticPod("audit-static", asks, fixture.Awake, "cpu=200m memory=16Mi", "")
	writeStaticPods(t, c, static)
	pods := start(t, c, namespace,
		fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=32Mi")),
		// One of its processes is moved. systemd removes a container's cgroup that has none left.
		fixture.Pod("besteffort", asks, fixture.Container("c", "sleep 3600 & "+fixture.Awake, "", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")),
		fixture.Exclusive("exclusive", 1))
	awaitRunning(t, c, static.Namespace, static.Name+"-"+host.NodeName)
	object := func(p *v1.Pod) string { return "container c of pod " + p.Namespace + "/" + p.Name }

	// Shared containers have a moment in which they leave exclusive CPUs.
	expectClean(t)
	rows := 0
	for _, row := range auditNode(t).Containers {
		if row.Kind == "container" && (row.Namespace == namespace || strings.HasPrefix(row.Pod, static.Name)) {
			rows++
		}
	}
	if want := len(pods) + 1; rows != want {
		t.Errorf("the audit has seen %d containers, want %d: those of the pods, and the static one", rows, want)
	}

	for _, violation := range []struct {
		name, code, object string
		// plant does it, and returns what undoes it.
		plant func(t *testing.T) (repair func() error)
	}{
		{"an ordinary container may use the pool", "on-pool", object(pods[2]), func(t *testing.T) func() error {
			return widen(t, rowOf(t, pods[2], "container"))
		}},
		{"a partitioned container may use every CPU", "off-pool", object(pods[0]), func(t *testing.T) func() error {
			// On cgroup v1 a child's cpuset lies within its parent's, and v2 intersects them.
			narrowPod := widen(t, rowOf(t, pods[0], "pod"))
			narrow := widen(t, rowOf(t, pods[0], "container"))
			return func() error {
				if err := narrow(); err != nil {
					return err
				}
				return narrowPod()
			}
		}},
		{"a weight is another", "weight", object(pods[0]), func(t *testing.T) func() error {
			file := "cpu.weight"
			if host.CgroupV1() {
				file = "cpu.shares"
			}
			return changeCgroup(t, rowOf(t, pods[0], "container"), "cpu", file, "5000")
		}},
		{"a process was moved", "process-moved", object(pods[1]), func(t *testing.T) func() error {
			procs := cgroupFile("cpuset", rowOf(t, pods[1], "container").Cgroup, "cgroup.procs")
			first := slices.MinFunc(strings.Fields(readFile(t, procs)), func(a, b string) int {
				return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // as numbers
			})
			if err := os.WriteFile(cgroupFile("cpuset", "/", "cgroup.procs"), []byte(first), 0); err != nil {
				t.Fatal(err)
			}
			return func() error { return os.WriteFile(procs, []byte(first), 0) }
		}},
		{"the pinning file has other CPUs", "not-in-force", partition.PinningFilePath, func(t *testing.T) func() error {
			before := readFile(t, partition.PinningFilePath)
			if err := os.WriteFile(partition.PinningFilePath, []byte(`{"management": {"cpuset": "1"}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() error { return os.WriteFile(partition.PinningFilePath, []byte(before), 0o600) }
		}},
	} {
		t.Run(violation.name, func(t *testing.T) {
			repair := violation.plant(t)
			result := auditNode(t)
			if err := repair(); err != nil {
				t.Fatalf("the node cannot be repaired: %v", err)
			}
			if !slices.ContainsFunc(result.Findings, func(f audit.Finding) bool {
				return string(f.Code) == violation.code && f.Object == violation.object
			}) {
				t.Errorf("the findings lack %s of %s:\n%s", violation.code, violation.object, listFindings(result))
			}
			expectClean(t)
		})
	}

	t.Run("a record and a watch", func(t *testing.T) {
		in(t) // a VM needs seconds for each look
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		watched, err := audit.Watch(ctx, audit.Options{}, time.Second)
		if err != nil || !watched.Clean() || watched.Looks < 2 {
			t.Errorf("after %+v (%v), want some looks and no leak", watched, err)
		}
		record := filepath.Join(t.TempDir(), "record.tar.gz")
		if _, _, err := audit.Record(t.Context(), audit.Options{}, record); err != nil {
			t.Error(err)
		}
	})
}

func auditNode(t *testing.T) *audit.Result {
	t.Helper()
	result, err := audit.Audit(t.Context(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// expectClean waits until an audit finds nothing.
func expectClean(t *testing.T) {
	t.Helper()
	waitFor(t, time.Minute, "the audit is clean", func() error {
		result, err := audit.Audit(t.Context(), audit.Options{})
		if err == nil && !result.Clean() {
			err = fmt.Errorf("there are findings:\n%s", listFindings(result))
		}
		return err
	})
}

func listFindings(result *audit.Result) string {
	var lines []string
	for _, f := range result.Findings {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Code, f.Object, f.Message))
	}
	return strings.Join(lines, "\n")
}

// rowOf returns what an audit says about a pod, or its container.
func rowOf(t *testing.T, p *v1.Pod, kind string) audit.Container {
	t.Helper()
	rows := auditNode(t).Containers
	i := slices.IndexFunc(rows, func(row audit.Container) bool {
		return row.Kind == kind && row.Namespace == p.Namespace && row.Pod == p.Name
	})
	if i < 0 {
		t.Fatalf("the audit has no %s of pod %s", kind, p.Name)
	}
	return rows[i]
}

func cgroupFile(controller, cgroup, file string) string {
	if host.CgroupV1() {
		return filepath.Join("/sys/fs/cgroup", controller, cgroup, file)
	}
	return filepath.Join("/sys/fs/cgroup", cgroup, file)
}

// changeCgroup writes a file of a cgroup, and returns what writes the value before.
func changeCgroup(t *testing.T, row audit.Container, controller, file, value string) (restore func() error) {
	t.Helper()
	path := cgroupFile(controller, row.Cgroup, file)
	before := readFile(t, path)
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	return func() error { return os.WriteFile(path, []byte(before), 0) }
}

// widen gives a cgroup the CPUs of the one above, and returns what takes them back.
func widen(t *testing.T, row audit.Container) (narrow func() error) {
	t.Helper()
	file := "cpuset.cpus.effective"
	if host.CgroupV1() {
		file = "cpuset.effective_cpus"
	}
	return changeCgroup(t, row, "cpuset", "cpuset.cpus", readFile(t, cgroupFile("cpuset", filepath.Dir(row.Cgroup), file)))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
