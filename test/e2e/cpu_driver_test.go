// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/cpudriver"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// withCPUDriver starts a node whose pool is CPU 0, and which has no exclusive CPUs of its own: those are for a DRA driver to
// give.
func withCPUDriver(t *testing.T) *host.Cluster {
	t.Helper()
	with := config
	with.Pinning, with.CPUManagerPolicy, with.NRI = pinning, "none", true
	return alone(t, with)
}

// startDriver starts a driver until the test ends. It may be started again before that.
func startDriver(t *testing.T, c *host.Cluster, driver *cpudriver.Driver) {
	t.Helper()
	t.Cleanup(func() { driver.Stop() })
	if err := driver.Start(context.Background(), c.NRISocket()); err != nil {
		t.Fatal(err)
	}
}

// given is a pod with CPUs that a driver gives it.
func given(name, cpus string) *v1.Pod {
	container := fixture.Container("c", fixture.Awake, "memory=16Mi", "")
	container.Env = append(container.Env, v1.EnvVar{Name: cpudriver.Variable + "claim", Value: cpus})
	return fixture.Pod(name, nil, container)
}

// A driver that leaves the containers of others alone and the kubelet's pools: neither takes back what the other gave.
func TestACPUDriverAndPoolsKeepWhatTheyGave(t *testing.T) {
	in(t, vm, long)
	c := withCPUDriver(t)
	driver := &cpudriver.Driver{}
	startDriver(t, c, driver)
	namespace := fixture.Namespace(t, c.Client, "management")
	own := cpuset.New(slices.Max(fixture.CPUs(t, otherCPUs(t)).List()))
	pods := start(t, c, namespace, given("application", own.String()),
		fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))
	again := func() error {
		driver.Stop()
		return driver.Start(context.Background(), c.NRISocket())
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"at first", func() error { return nil }},
		{"the kubelet starts again", func() error { restart(t, c, pinning); return nil }},
		{"the kubelet is killed and comes back", func() error {
			if err := c.Kubelet.Kill(); err != nil {
				return err
			}
			return c.StartKubelet(t.Context())
		}},
		{"the driver starts again", again},
		{"the runtime is killed and comes back, and the driver after it", func() error {
			if err := c.RestartContainerd(t.Context()); err != nil {
				return err
			}
			return again()
		}},
		{"the pools go and come again", func() error { restart(t, c, ""); restart(t, c, pinning); return nil }},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(reconciliations(3)) // the period in which neither must be moved
			expectPlaced(t, pods[0], own)
			expectPlaced(t, pods[1], cpuset.New(0))
			expectClean(t)
			if row := rowOf(t, pods[0], "container"); row.GivenByDRA != own.String() {
				t.Errorf("to the audit, a driver gave it CPU %q, want %s", row.GivenByDRA, own)
			}
		})
	}
}

// A driver whose reserved CPUs are not those of the pools gives one of theirs. The kubelet does not see it; the audit does.
func TestTheAuditNamesADriverThatGivesCPUsOfAPool(t *testing.T) {
	in(t, vm, long)
	c := withCPUDriver(t)
	startDriver(t, c, &cpudriver.Driver{})
	namespace := fixture.Namespace(t, c.Client, "management")
	p := start(t, c, namespace, given("application", "0"))[0]
	expectPlaced(t, p, cpuset.New(0))
	expectFinding(t, "on-pool", p, "a DRA driver gave it CPU 0: the driver's reserved CPUs must be those of the pools")
}

// dra-driver-cpu moves each container that has no claim to the CPUs that it has neither given nor reserved, partitioned ones
// as well. On cgroup v2 the pod's cgroup keeps these on their pool. On v1 the kernel refuses what the driver wants, and the
// container does not start.
func TestACPUDriverThatMovesContainersOfOthers(t *testing.T) {
	in(t, vm, long)
	c := withCPUDriver(t)
	driver := &cpudriver.Driver{Shared: fixture.CPUs(t, otherCPUs(t))}
	startDriver(t, c, driver)
	namespace := fixture.Namespace(t, c.Client, "management")
	p := fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))
	if host.CgroupV1() {
		if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "the container does not start", func() error {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, status := range p.Status.ContainerStatuses {
				for _, state := range []v1.ContainerState{status.State, status.LastTerminationState} {
					if (state.Waiting != nil && strings.Contains(state.Waiting.Message, "cpuset.cpus")) || (state.Terminated != nil && strings.Contains(state.Terminated.Message, "cpuset.cpus")) {
						return nil
					}
				}
			}
			return fmt.Errorf("its status is %v", p.Status.ContainerStatuses)
		})
		return
	}
	p = start(t, c, namespace, p)[0]
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"at first", func() error { return nil }},
		{"the driver starts again", func() error { driver.Stop(); return driver.Start(context.Background(), c.NRISocket()) }},
		{"the kubelet starts again", func() error { restart(t, c, pinning); return nil }},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(reconciliations(3)) // the period in which it must not be moved
			expectPlaced(t, p, cpuset.New(0))
			expectClean(t)
		})
	}
}

// expectFinding waits until an audit has a finding of a code about a pod's container, whose message has a text.
func expectFinding(t *testing.T, code string, p *v1.Pod, text string) {
	t.Helper()
	waitFor(t, time.Minute, "the audit has "+code, func() error {
		result := auditNode(t)
		for _, f := range result.Findings {
			if string(f.Code) == code && f.Object == "container c of pod "+p.Namespace+"/"+p.Name && strings.Contains(f.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("the findings are:\n%s", listFindings(result))
	})
}
