// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A container that makes a cgroup below its own, as Docker in Docker does, moves with what runs there.
// On cgroup v1 the kernel refuses to narrow a cgroup whose children have more, and the runtime does
// not look at these.
func TestContainersThatRunContainersAreMoved(t *testing.T) {
	in(t, core, vm)
	if !host.CgroupV1() {
		t.Skip("on cgroup v2 the kernel intersects")
	}
	underEachPolicy(t, innerCgroupsFollow, core)
}

func innerCgroupsFollow(t *testing.T, c *host.Cluster) {
	t.Cleanup(func() {
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	namespace := fixture.Namespace(t, c.Client, "management")
	// It prints the cpuset of the inner cgroup, and that of a process in it.
	const script = `trap exit TERM
cd /sys/fs/cgroup/cpuset
mkdir docker
for file in cpuset.mems cpuset.cpus; do cat $file >docker/$file; done
echo $$ >docker/cgroup.procs
while :; do echo $(cat docker/cpuset.cpus; grep Cpus_allowed_list /proc/self/status); sleep 0.2; done`
	nesting := func(name string, annotations map[string]string) *v1.Pod {
		p := fixture.Pod(name, annotations, fixture.Container("c", script, "cpu=50m memory=16Mi", ""))
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)}
		return p
	}
	pods := start(t, c, namespace, nesting("ordinary", nil), nesting("partitioned", asks))
	expect := func(t *testing.T, p *v1.Pod, want string) {
		t.Helper()
		waitFor(t, 30*time.Second, "the container of pod "+p.Name+" and what it runs have the CPUs "+want, func() error {
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err != nil {
				return err
			}
			// A kubelet that has just started may not serve logs yet.
			last, err := c.Client.CoreV1().Pods(namespace).GetLogs(p.Name, &v1.PodLogOptions{TailLines: ptr.To[int64](1)}).DoRaw(t.Context())
			if err == nil && (usage.CPUs != want || strings.TrimSpace(string(last)) != want+" Cpus_allowed_list: "+want) {
				err = fmt.Errorf("it has the CPUs %s, and what it runs %q", usage.CPUs, last)
			}
			return err
		})
	}
	for _, step := range []struct{ name, file, ordinary, partitioned string }{
		{"the file goes", "", allCPUs(t), allCPUs(t)},
		{"the file comes back", pinning, otherCPUs(t), "0"},
		{"the pool moves", `{"management": {"cpuset": "1"}}`, fixture.CPUs(t, allCPUs(t)).Difference(fixture.CPUs(t, "1")).String(), "1"},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, allCPUs(t), allCPUs(t)},
		{"the pool comes back", pinning, otherCPUs(t), "0"},
		{"the file goes again", "", allCPUs(t), allCPUs(t)},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			expect(t, pods[0], step.ordinary)
			expect(t, pods[1], step.partitioned)
		})
	}
	restart(t, c, pinning)
}
