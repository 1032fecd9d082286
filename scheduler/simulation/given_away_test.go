// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	cputopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// threads are the numbers of threads of each physical core, by socket. CPUs are numbered in this order.
type threads [][]int

// groups returns the CPUs of each core and of each socket.
func (h threads) groups() (cores, sockets []cpuset.CPUSet) {
	next := 0
	for _, socket := range h {
		all := cpuset.New()
		for _, n := range socket {
			core := cpuset.New()
			for range n {
				core = core.Union(cpuset.New(next))
				next++
			}
			cores, all = append(cores, core), all.Union(core)
		}
		sockets = append(sockets, all)
	}
	return cores, sockets
}

// givenAway has upstream's static policy give containers exclusive CPUs, so many to one after another, and returns which of them
// are reserved.
func (h threads) givenAway(t *testing.T, reserved cpuset.CPUSet, requests ...int) cpuset.CPUSet {
	t.Helper()
	logger := klog.Background()
	info := &cadvisorapi.MachineInfo{NumSockets: len(h)}
	next, id := 0, 0
	for socket, cores := range h {
		node := cadvisorapi.Node{Id: socket}
		for _, n := range cores {
			core := cadvisorapi.Core{Id: id, SocketID: socket}
			for range n {
				core.Threads = append(core.Threads, next)
				next++
			}
			id++
			node.Cores = append(node.Cores, core)
		}
		info.Topology = append(info.Topology, node)
	}
	info.NumCores = next
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	manager, err := topologymanager.NewManager(logger, info.Topology, "none", "container", nil)
	must(err)
	host, err := cputopology.Discover(logger, info)
	must(err)
	policy, err := cpumanager.NewStaticPolicy(logger, host, reserved.Size(), reserved, manager, nil)
	must(err)
	state, given := cpustate.NewMemoryState(logger), cpuset.New()
	must(policy.Start(logger, state))
	for i, n := range requests {
		list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Mi")}
		c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i))}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
		pod.Status.QOSClass = corev1.PodQOSGuaranteed
		if policy.Allocate(logger, state, pod, &c, lifecycle.AddOperation) != nil {
			continue // there are too few
		}
		set, _ := state.GetCPUSet(string(pod.UID), "c")
		if set.Size() != n {
			t.Fatalf("a container that asks for %d CPUs has %q", n, set)
		}
		given = given.Union(set.Intersection(reserved))
	}
	return given
}

// On a host with two kinds of cores upstream's static policy may give a reserved CPU to an exclusive container
// (kubernetes/kubernetes issue 140495). What render, plan and the kubelet warn of is what it really does.
func TestTheStaticPolicyGivesAwayWhatIsForetold(t *testing.T) {
	gives := partition.GivesReservedAway(version.DefaultKubeBinaryVersion)
	desktop := threads{{2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}
	for name, test := range map[string]struct {
		host threads
		pool cpuset.CPUSet
		asks []int
		want string
	}{
		"28 CPUs of 20 cores, and the pool has one thread of a core": {desktop, cpuset.New(0), []int{2}, "0"},
		"28 CPUs of 20 cores, and the pool has a whole core":         {desktop, cpuset.New(0, 1), []int{2, 4, 8, 12}, ""},
		"cores that are alike, and the pool has one thread":          {threads{{2, 2, 2, 2}}, cpuset.New(0), []int{2, 2, 2, 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if !gives {
				want = ""
			}
			if got := test.host.givenAway(t, test.pool, test.asks...); got.String() != want {
				t.Errorf("upstream gives %q away, want %q", got, want)
			}
			cores, sockets := test.host.groups()
			if got := (partition.Pools{"management": test.pool}).GivenAway(test.pool, cores, sockets); got.String() != test.want {
				t.Errorf("foretold is %q, want %q", got, test.want)
			}
		})
	}
	random, some := rand.New(rand.NewPCG(61, 2)), 0
	for range 2000 {
		var host threads
		cpus := 0
		for range 1 + random.IntN(2) {
			var socket []int
			for range 1 + random.IntN(6) {
				n := 1 + random.IntN(2)
				socket, cpus = append(socket, n), cpus+n
			}
			host = append(host, socket)
		}
		if cpus < 2 {
			continue
		}
		pool := cpuset.New(random.Perm(cpus)[:1+random.IntN(min(4, cpus-1))]...)
		var asks []int
		for range 1 + random.IntN(4) {
			asks = append(asks, 1+random.IntN(cpus))
		}
		cores, sockets := host.groups()
		foretold, given := partition.Pools{"management": pool}.GivenAway(pool, cores, sockets), host.givenAway(t, pool, asks...)
		if !given.IsSubsetOf(foretold) || !gives && !given.IsEmpty() {
			t.Errorf("threads %v, pool %q, requests %v: upstream gives %q away, and foretold is %q", host, pool, asks, given, foretold)
		}
		if !given.IsEmpty() {
			some++
		}
	}
	if gives != (some > 0) {
		t.Errorf("upstream of v%s gave CPUs of a pool away on %d hosts", version.DefaultKubeBinaryVersion, some)
	}
}
