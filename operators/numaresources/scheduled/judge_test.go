// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"
)

// judge returns how many containers of these pods the machine has had, and the [machine.faults].
func (m *machine) judge(pods map[string]*corev1.Pod) (judged int, faults []string) {
	given := slices.DeleteFunc(m.runtime.given(), func(g *given) bool { return pods[g.pod] == nil })
	return len(given), m.faults(pods, given)
}

// faults are what a machine's kubelet did that its policies do not allow. It judges by what pods ask for and what the runtime was told.
func (m *machine) faults(pods map[string]*corev1.Pod, given []*given) (faults []string) {
	fault := func(format string, arguments ...any) { faults = append(faults, fmt.Sprintf(format, arguments...)) }
	zones := map[string]cpuset.CPUSet{} // by pod
	for i, g := range given {
		pod := pods[g.pod]
		if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
			continue
		}
		requests := requestsOf(pod, g.name)
		has := g.mems
		if has.IsEmpty() {
			fault("%s may use the memory of any NUMA node", g)
		}
		if whole(requests) {
			for _, cpu := range g.cpus.List() {
				has = has.Union(cpuset.New(cpu / m.cpus))
			}
			if want := requests.Cpu().Value(); int64(g.cpus.Size()) != want || g.cpus.Contains(reservedCPU) {
				fault("%s asks for %d CPUs of its own, and CPU %d is reserved", g, want, reservedCPU)
			}
			for _, other := range given[:i] {
				if o := pods[other.pod]; o.Status.QOSClass == corev1.PodQOSGuaranteed && whole(requestsOf(o, other.name)) && g.meets(other) && !g.cpus.Intersection(other.cpus).IsEmpty() {
					fault("%s has CPUs of %s", g, other)
				}
			}
		}
		if m.scope == "pod" {
			requests = resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			has = has.Union(zones[g.pod])
			zones[g.pod] = has
		}
		// restricted promises the fewest NUMA nodes that an empty machine could do with.
		fitsOne := requests.Cpu().Value() <= int64(m.cpus) && requests.Memory().Value() <= int64(m.memory)<<30-reservedMemory<<20
		if one := m.policy == "single-numa-node" || m.policy == "restricted" && fitsOne; one && has.Size() > 1 {
			fault("%s: its %s is on the NUMA nodes %s", g, m.scope, has)
		}
	}
	return faults
}

func requestsOf(pod *corev1.Pod, container string) corev1.ResourceList {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return c.Resources.Requests
		}
	}
	return nil
}

// whole reports whether the container of a Guaranteed pod has CPUs of its own.
func whole(requests corev1.ResourceList) bool {
	return requests.Cpu().Sign() > 0 && requests.Cpu().MilliValue()%1000 == 0
}

// meets reports whether two containers lived at the same time.
func (g *given) meets(other *given) bool {
	return (other.to.IsZero() || g.from.Before(other.to)) && (g.to.IsZero() || other.from.Before(g.to))
}

func (g *given) String() string {
	return fmt.Sprintf("container %s of pod %s, with CPUs %s and memory of NUMA nodes %s", g.name, g.pod, g.cpus, g.mems)
}

func TestTheJudgeOfKubelets(t *testing.T) {
	at := time.Unix(1_000, 0)
	pod := func(class corev1.PodQOSClass, cpus ...string) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{QOSClass: class}}
		for i, cpu := range cpus {
			requests := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("app-%d", i), Resources: corev1.ResourceRequirements{Requests: requests}})
		}
		return p
	}
	pods := map[string]*corev1.Pod{
		"two": pod(corev1.PodQOSGuaranteed, "2"), "more": pod(corev1.PodQOSGuaranteed, "2"), "five": pod(corev1.PodQOSGuaranteed, "5"), "part": pod(corev1.PodQOSGuaranteed, "500m"),
		"pair": pod(corev1.PodQOSGuaranteed, "1", "1"), "burstable": pod(corev1.PodQOSBurstable, "2"),
	}
	has := func(pod, container, cpus, mems string, from, to int) *given {
		g := &given{pod: pod, name: container, from: at.Add(time.Duration(from) * time.Second)}
		if to > 0 {
			g.to = at.Add(time.Duration(to) * time.Second)
		}
		g.cpus, _ = cpuset.Parse(cpus)
		g.mems, _ = cpuset.Parse(mems)
		return g
	}
	for name, test := range map[string]struct {
		policy, scope string
		given         []*given
		want          string
	}{
		"all is on one NUMA node":                                    {"single-numa-node", "container", []*given{has("two", "app-0", "4-5", "1", 0, 0)}, ""},
		"CPUs are on two":                                            {"single-numa-node", "container", []*given{has("two", "app-0", "3-4", "1", 0, 0)}, "its container is on the NUMA nodes 0-1"},
		"memory is on another than the CPUs":                         {"single-numa-node", "container", []*given{has("two", "app-0", "4-5", "0", 0, 0)}, "its container is on the NUMA nodes 0-1"},
		"restricted keeps together what fits one NUMA node":          {"restricted", "container", []*given{has("two", "app-0", "3-4", "1", 0, 0)}, "its container is on the NUMA nodes 0-1"},
		"restricted gives two to what fits none":                     {"restricted", "container", []*given{has("five", "app-0", "1-5", "0-1", 0, 0)}, ""},
		"best-effort promises nothing":                               {"best-effort", "container", []*given{has("two", "app-0", "3-4", "1", 0, 0)}, ""},
		"containers of a pod are apart":                              {"single-numa-node", "container", []*given{has("pair", "app-0", "1", "0", 0, 0), has("pair", "app-1", "4", "1", 0, 0)}, ""},
		"the scope pod keeps them together":                          {"single-numa-node", "pod", []*given{has("pair", "app-0", "1", "0", 0, 0), has("pair", "app-1", "4", "1", 0, 0)}, "its pod is on the NUMA nodes 0-1"},
		"two have the same CPU":                                      {"best-effort", "container", []*given{has("two", "app-0", "1-2", "0", 0, 9), has("more", "app-0", "2-3", "0", 5, 0)}, "has CPUs of container app-0 of pod two"},
		"one has the CPUs of another that has ended":                 {"best-effort", "container", []*given{has("two", "app-0", "1-2", "0", 0, 5), has("more", "app-0", "1-2", "0", 5, 0)}, ""},
		"a container has too few CPUs":                               {"best-effort", "container", []*given{has("two", "app-0", "1", "0", 0, 0)}, "asks for 2 CPUs of its own"},
		"a container has the reserved one":                           {"best-effort", "container", []*given{has("two", "app-0", "0-1", "0", 0, 0)}, "CPU 0 is reserved"},
		"a container without CPUs of its own has memory of one node": {"single-numa-node", "container", []*given{has("part", "app-0", "0-7", "1", 0, 0)}, ""},
		"memory is not bound":                                        {"best-effort", "container", []*given{has("part", "app-0", "0-7", "", 0, 0)}, "may use the memory of any NUMA node"},
		"a Burstable pod is promised nothing":                        {"single-numa-node", "pod", []*given{has("burstable", "app-0", "0-7", "", 0, 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{zones: 2, cpus: 4, memory: 4, policy: test.policy, scope: test.scope}
			got := strings.Join(m.faults(pods, test.given), "; ")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("the faults are %q, want %q", got, test.want)
			}
		})
	}
}
