// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// tree is a node made of files, in the formats of the kernel.
type tree struct {
	t       *testing.T
	v1      bool
	systemd bool
	dir     string
	runtime *fakeRuntime
	online  string
	nextPID int
}

func newTree(t *testing.T, v1, systemd bool, online, pinning string) *tree {
	t.Helper()
	if os.Getuid() != 0 {
		load = loadCopy
	}
	n := &tree{t: t, v1: v1, systemd: systemd, dir: t.TempDir(), runtime: &fakeRuntime{pids: map[string]int{}}, online: online, nextPID: 1000}
	n.write("sys/devices/system/cpu/online", online)
	n.write("sys/devices/virtual/workqueue/cpumask", "1")
	n.write("sys/block/vda/queue/rq_affinity", "2")
	if pinning != "" {
		n.pin(pinning)
		pools, err := partition.Parse([]byte(pinning), cpus(t, online))
		if err == nil {
			n.record(pools)
		}
	}
	if v1 {
		n.write("sys/fs/cgroup/cpuset/cpuset.cpus", online)
	} else {
		n.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
	}
	n.process(1, "systemd", online)
	n.link("proc/1/ns/mnt", "mnt:[4026531841]")
	for _, class := range []string{"", "burstable", "besteffort"} {
		n.cgroup(n.class(class), online, map[string]string{"weight": "262144"})
	}
	return n
}

func cpus(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (n *tree) host() Host {
	return Host{Root: n.dir, Proc: filepath.Join(n.dir, "proc"), Sys: filepath.Join(n.dir, "sys"), KubeletRoot: "/var/lib/kubelet"}
}

func (n *tree) options() Options {
	return Options{Host: n.host(), Runtime: n.runtime, Settle: time.Nanosecond}
}

func (n *tree) write(path, content string) {
	n.t.Helper()
	path = filepath.Join(n.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if !strings.HasSuffix(content, "\x00") { // only command lines do
		content += "\n"
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) remove(path string) {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) link(path, target string) {
	n.t.Helper()
	n.write(path+".d/x", "")
	n.remove(path + ".d")
	n.remove(path)
	if err := os.Symlink(target, filepath.Join(n.dir, path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) pin(content string) { n.write(partition.PinningFilePath, content) }

func (n *tree) record(pools partition.Pools) {
	sets := []string{}
	for _, workloadType := range pools.Types() {
		sets = append(sets, pools[workloadType].String())
	}
	data, _ := json.Marshal(map[string]any{"reservedCPUs": pools.Union().String(), "sets": sets})
	n.write("var/lib/kubelet/workload_partitioning_state", string(data))
}

func (n *tree) class(class string) string {
	switch {
	case !n.systemd:
		return filepath.Join("/kubepods", class)
	case class == "":
		return "/kubepods.slice"
	}
	return "/kubepods.slice/kubepods-" + class + ".slice"
}

// files returns the path of a cgroup's file, below the tree.
func (n *tree) file(cgroup, controller, name string) string {
	if n.v1 {
		return filepath.Join("sys/fs/cgroup", controller, cgroup, name)
	}
	return filepath.Join("sys/fs/cgroup", cgroup, name)
}

// cgroup writes a cgroup. values may have weight, quota (in microseconds of a period of 100 ms),
// used, tasks, throttled and pressure.
func (n *tree) cgroup(cgroup, effective string, values map[string]string) {
	get := func(key, otherwise string) string {
		if value, has := values[key]; has {
			return value
		}
		return otherwise
	}
	if n.v1 {
		n.write(n.file(cgroup, "cpuset", "cpuset.cpus"), effective)
		n.write(n.file(cgroup, "cpuset", "cpuset.effective_cpus"), effective)
		n.write(n.file(cgroup, "cpuset", "tasks"), strings.ReplaceAll(get("tasks", ""), " ", "\n"))
		n.write(n.file(cgroup, "cpu", "cpu.shares"), get("weight", "1024"))
		n.write(n.file(cgroup, "cpu", "cpu.cfs_quota_us"), get("quota", "-1"))
		n.write(n.file(cgroup, "cpu", "cpu.cfs_period_us"), "100000")
		n.write(n.file(cgroup, "cpu", "cpu.stat"), "nr_periods 10\nnr_throttled 2\nthrottled_time "+get("throttled", "0"))
		n.write(n.file(cgroup, "cpuacct", "cpuacct.usage_percpu"), get("used", "0 0 0 0 "))
		return
	}
	n.write(n.file(cgroup, "", "cpuset.cpus"), effective)
	n.write(n.file(cgroup, "", "cpuset.cpus.effective"), effective)
	n.write(n.file(cgroup, "", "cgroup.threads"), strings.ReplaceAll(get("tasks", ""), " ", "\n"))
	n.write(n.file(cgroup, "", "cpu.weight"), get("weight", "100"))
	n.write(n.file(cgroup, "", "cpu.max"), get("quota", "max")+" 100000")
	n.write(n.file(cgroup, "", "cpu.stat"), "usage_usec "+get("used", "0")+"\nuser_usec 0\nsystem_usec 0\nnr_periods 10\nnr_throttled 2\nthrottled_usec "+get("throttled", "0"))
	n.write(n.file(cgroup, "", "cpu.pressure"), "some avg10=0.00 avg60=0.00 avg300=0.00 total="+get("pressure", "0")+"\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0")
}

// process writes a process, with the lines of its status that are read.
func (n *tree) process(pid int, comm, allowed string) {
	n.write(fmt.Sprintf("proc/%d/status", pid), fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%[2]d\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCpus_allowed_list:\t%[3]s", strings.ReplaceAll(comm, "\n", `\n`), pid, allowed))
	n.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) S 1 %[1]d %[1]d 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %[3]d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0", pid, comm, 100+pid))
	n.write(fmt.Sprintf("proc/%d/schedstat", pid), "1000 0 1")
	n.write(fmt.Sprintf("proc/%d/cgroup", pid), "0::/")
	n.link(fmt.Sprintf("proc/%d/ns/mnt", pid), fmt.Sprintf("mnt:[%d]", 4026532000+pid))
}

// onHost writes a process of the host, in a unit.
func (n *tree) onHost(pid int, comm, allowed, unit string) {
	n.process(pid, comm, allowed)
	n.write(fmt.Sprintf("proc/%d/cgroup", pid), "0::/system.slice/"+unit)
	n.link(fmt.Sprintf("proc/%d/ns/mnt", pid), "mnt:[4026531841]")
}

// testPod is a pod of a tree.
type testPod struct {
	name string
	// workloadType makes it a partitioned pod, if it is not empty.
	workloadType string
	class        string
	// cpus are those of the pod's cgroup and of its sandbox.
	cpus       string
	weight     string
	quota      string
	containers []testContainer
}

type testContainer struct {
	name string
	// cpus are those of its cgroup; allowed those of its task, which are the same if empty.
	cpus, allowed string
	weight, quota string
	// asks are the request and limit in millicores.
	request, limit int64
}

func id(pod, container string) string { return fmt.Sprintf("%064x", pod+"/"+container)[:64] }

func uid(pod string) string { return fmt.Sprintf("%x-1111-2222-3333", pod) }

func (n *tree) podCgroup(p testPod) string {
	if n.systemd {
		above := strings.TrimSuffix(filepath.Base(n.class(p.class)), ".slice")
		return filepath.Join(n.class(p.class), above+"-pod"+strings.ReplaceAll(uid(p.name), "-", "_")+".slice")
	}
	return filepath.Join(n.class(p.class), "pod"+uid(p.name))
}

func (n *tree) containerCgroup(p testPod, container string) string {
	name := id(p.name, container)
	if n.systemd {
		name = "cri-containerd-" + name + ".scope"
	}
	return filepath.Join(n.podCgroup(p), name)
}

// weightOf returns what the kernel shows for shares in the tree's version.
func (n *tree) weightOf(millicores int64) string {
	shares := partition.SharesOf(millicores)
	if n.v1 {
		return fmt.Sprint(shares)
	}
	return fmt.Sprint(partition.WeightOf(shares))
}

// add writes a pod that is as it asked to be, unless it says otherwise.
func (n *tree) add(p testPod) {
	annotations := map[string]string{}
	var total int64
	if p.workloadType != "" {
		annotations[partition.TargetAnnotation(p.workloadType)] = `{"effect":"PreferredDuringScheduling"}`
		for _, c := range p.containers {
			total += c.request
			annotations[partition.ResourcesAnnotation(c.name)] = partition.ContainerResources{CPUShares: max(c.request, 2), CPULimit: c.limit}.String()
		}
	}
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	values := map[string]string{"weight": or(p.weight, n.weightOf(total))}
	if p.quota != "" {
		values["quota"] = p.quota
	}
	n.cgroup(n.podCgroup(p), p.cpus, values)
	n.nextPID++
	n.process(n.nextPID, "pause", p.cpus)
	n.cgroup(n.containerCgroup(p, ""), p.cpus, map[string]string{"tasks": fmt.Sprint(n.nextPID)})
	n.runtime.sandboxes = append(n.runtime.sandboxes, &runtimeapi.PodSandbox{
		Id: id(p.name, ""), State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: annotations,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "ns", Name: p.name, Uid: uid(p.name)},
	})
	for _, c := range p.containers {
		n.nextPID++
		n.process(n.nextPID, c.name, or(c.allowed, c.cpus))
		values := map[string]string{"weight": or(c.weight, n.weightOf(c.request)), "tasks": fmt.Sprint(n.nextPID)}
		if c.limit > 0 {
			values["quota"] = fmt.Sprint(c.limit * 100)
		}
		if c.quota != "" {
			values["quota"] = c.quota
		}
		n.cgroup(n.containerCgroup(p, c.name), c.cpus, values)
		n.runtime.containers = append(n.runtime.containers, &runtimeapi.Container{
			Id: id(p.name, c.name), PodSandboxId: id(p.name, ""), State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Metadata: &runtimeapi.ContainerMetadata{Name: c.name}, Labels: map[string]string{"io.kubernetes.container.name": c.name},
		})
		n.runtime.pids[id(p.name, c.name)] = n.nextPID
	}
}

// pid returns the first process of a container.
func (n *tree) pid(pod, container string) int { return n.runtime.pids[id(pod, container)] }

// fakeRuntime answers like a runtime.
type fakeRuntime struct {
	// name is containerd if it is empty.
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	pids       map[string]int
	// env are further variables of all containers, and asked the CPUs that the runtime was asked to give them; empty
	// means that it does not say.
	env, asked string
	// before is called before each listing of sandboxes; it may be nil.
	before func()
	err    error
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: cmp.Or(f.name, "containerd"), RuntimeVersion: "v2.4.2"}, f.err
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	if f.before != nil {
		f.before()
	}
	return &runtimeapi.ListPodSandboxResponse{Items: f.sandboxes}, nil
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: f.containers}, nil
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": fmt.Sprintf(`{"pid": %d, "runtimeSpec": {"process": {"env": ["PASSWORD=secret", %q]}, "linux": {"resources": {"cpu": {"cpus": %q}}}}}`,
		f.pids[in.ContainerId], f.env, f.asked)}}, nil
}

const pool0 = `{"management": {"cpuset": "0"}}`

// sample is a clean node: a partitioned pod, an ordinary one, and an exclusive one.
func sample(t *testing.T, v1, systemd bool) *tree {
	n := newTree(t, v1, systemd, "0-3", pool0)
	n.add(testPod{name: "operator", workloadType: "management", class: "burstable", cpus: "0", quota: "50000",
		containers: []testContainer{{name: "c", cpus: "0", request: 400, limit: 500}}})
	n.add(testPod{name: "agent", workloadType: "management", class: "besteffort", cpus: "0", containers: []testContainer{{name: "c", cpus: "0"}}})
	n.add(testPod{name: "ordinary", class: "burstable", cpus: "0-3", containers: []testContainer{{name: "c", cpus: "1-2"}}})
	n.add(testPod{name: "exclusive", cpus: "0-3", containers: []testContainer{{name: "c", cpus: "3"}}})
	n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}}, "1-2")
	n.write("var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static")
	return n
}

func (n *tree) checkpoint(entries map[string]map[string]string, shared string) {
	data, _ := json.Marshal(map[string]any{"policyName": "static", "defaultCpuSet": shared, "entries": entries, "checksum": 1})
	n.write("var/lib/kubelet/cpu_manager_state", string(data))
}

// eachKind runs a test on a node of both cgroup versions.
func eachKind(t *testing.T, test func(t *testing.T, v1, systemd bool)) {
	for _, kind := range []struct {
		name        string
		v1, systemd bool
	}{{"cgroup v1, cgroupfs", true, false}, {"cgroup v2, systemd", false, true}} {
		t.Run(kind.name, func(t *testing.T) { test(t, kind.v1, kind.systemd) })
	}
}

// codes returns the findings as "code object", sorted.
func codes(findings []Finding) []string {
	found := map[string]bool{}
	for _, f := range findings {
		found[string(f.Code)+" "+f.Object] = true
	}
	return slices.Sorted(maps.Keys(found))
}
