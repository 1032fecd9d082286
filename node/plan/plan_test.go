// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// cpus reads a CPU list.
func cpus(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := partition.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// pool is a pinning file with a pool of the type management; "-" means that there is no file.
func pool(list string) File {
	if list == "-" {
		return Absent()
	}
	return There(fmt.Appendf(nil, `{"management": {"cpuset": %q}}`, list))
}

// created is when the oldest pod of a test was created; each later one is a minute younger.
var created = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// pod returns a running pod of the namespace n, with the UID uid-NAME.
func pod(name, request string, change ...func(*v1.Pod)) v1.Pod {
	requests := ""
	if request != "" {
		requests = "memory=16Mi cpu=" + request
	}
	p := podtest.Pod(map[string]string{}, podtest.Container("c", requests, ""))
	p.Namespace, p.Name, p.UID, p.Spec.NodeName = "n", name, types.UID("uid-"+name), "worker-1"
	p.Status = v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	for _, c := range change {
		c(p)
	}
	return *p
}

// partitioned makes a pod a partitioned one.
func partitioned(p *v1.Pod) {
	p.Annotations[partition.TargetAnnotation("management")] = ""
	partition.Mutate(partition.V1(p), partition.Policy{Gate: partition.AnyType})
}

// running gives a pod the status that it has under a kubelet without the file.
func running(request string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.ContainerStatuses[0].Resources = &v1.ResourceRequirements{Requests: podtest.List("cpu=" + request)}
	}
}

// skipped makes a pod one that asked before its type was active.
func skipped(p *v1.Pod) {
	p.Annotations[partition.TargetAnnotation("management")] = ""
	partition.Mutate(partition.V1(p), partition.Policy{Gate: partition.Always(partition.ReasonTypeInactive)})
}

// static makes a pod the mirror of a static one.
func static(p *v1.Pod) {
	p.Annotations[v1.MirrorPodAnnotationKey] = "uid-" + p.Name
	p.UID = types.UID("mirror-" + p.Name)
}

// constrained makes a pod the mirror of a partitioned static one in a namespace that refuses pods without cpu.
func constrained(p *v1.Pod) {
	partitioned(p)
	static(p)
	partition.RestoreCPU(partition.V1(p))
}

// guaranteed makes a pod one that may hold exclusive CPUs.
func guaranteed(p *v1.Pod) {
	p.Status.QOSClass = v1.PodQOSGuaranteed
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
}

// critical makes a pod one for which upstream makes room.
func critical(p *v1.Pod) {
	priority := int32(2_000_000_000)
	p.Spec.Priority = &priority
}

// requires gives a pod a nodeSelector.
func requires(label, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{label: value} }
}

// object has the API know the Node, with a label. Its pool is 0.
func object(label string) func(*Node) {
	return func(n *Node) {
		n.Object = &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.2" + patched},
			Capacity: podtest.List("cpu=4 memory=8Gi pods=110 " + cores + "=4000"), Allocatable: podtest.List("cpu=3 memory=8Gi pods=110 " + cores + "=4000")}}
		if key, value, found := strings.Cut(label, "="); found {
			n.Object.Labels = map[string]string{key: value}
		}
	}
}

// inPhase sets the phase of a pod none of whose containers runs.
func inPhase(phase v1.PodPhase) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = phase, nil }
}

const (
	staticConfig = "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n"
	noneConfig   = "kubeReserved: {cpu: 500m}\n"
)

// state is a node's.
type state struct {
	// online is 0-3 if it is empty.
	online, isolated string
	// present is the pool of the present file; "-" means that there is none.
	present string
	// recorded are the pools of the record; "-" means that there is none. Empty means those of
	// the present file.
	recorded string
	// config is that of the kubelet; staticConfig if it is empty.
	config string
	// shared and held are what the checkpoint has: shared CPUs, and assignments by pod. Without
	// any there is no checkpoint.
	shared string
	held   map[string]string
	pods   []v1.Pod
	change func(*Node)
}

// node returns the node with that state.
func (s state) node(t *testing.T) Node {
	t.Helper()
	if s.online == "" {
		s.online = "0-3"
	}
	if s.config == "" {
		s.config = staticConfig
	}
	n := Node{Name: "worker-1", Online: cpus(t, s.online), Isolated: cpus(t, s.isolated), Present: pool(s.present), Checkpoint: &kubeletstate.Checkpoint{}}
	var err error
	if n.Configuration, err = ParseConfiguration([]byte(s.config)); err != nil {
		t.Fatal(err)
	}
	recorded := s.recorded
	if recorded == "" {
		recorded = s.present
	}
	if recorded != "-" {
		n.Record = &partition.Record{ReservedCPUs: recorded}
	}
	if s.shared != "" || len(s.held) > 0 {
		n.Checkpoint.Policy, n.Checkpoint.Shared = partition.StaticPolicy, cpus(t, s.shared)
		for pod, list := range s.held {
			n.Checkpoint.Assignments = append(n.Checkpoint.Assignments, partition.Assignment{Pod: "uid-" + pod, Container: "c", CPUs: cpus(t, list)})
		}
		partition.SortAssignments(n.Checkpoint.Assignments)
	}
	n.Pods = []v1.Pod{}
	for i, p := range s.pods {
		p.CreationTimestamp = metav1.NewTime(created.Add(time.Duration(i) * time.Minute))
		n.Pods = append(n.Pods, p)
	}
	if s.change != nil {
		s.change(&n)
	}
	return n
}

// expect compares a plan with its verdict, and with its actions and problems in short, in any
// order.
func expect(t *testing.T, p NodePlan, verdict Verdict, actions, problems []string) {
	t.Helper()
	var acted, found []string
	for _, a := range p.Actions {
		if a.Kind == Reserve || a.Kind == Replace || a.Kind == Derive {
			continue // the states say that, too
		}
		acted = append(acted, strings.TrimSpace(fmt.Sprintf("%s %s %s>%s %s", a.Kind, a.Object, a.From, a.To, strings.Join(a.Pods, ","))))
	}
	for _, problem := range p.Problems {
		found = append(found, strings.TrimSpace(fmt.Sprintf("%s %s %s", problem.Severity, problem.Code, problem.Object)))
	}
	slices.Sort(actions)
	slices.Sort(acted)
	slices.Sort(problems)
	slices.Sort(found)
	if p.Verdict != verdict || !slices.Equal(acted, actions) || !slices.Equal(found, problems) {
		t.Errorf("the plan is %s, want %s\nactions\n  %s\nwant\n  %s\nproblems\n  %s\nwant\n  %s\nall: %+v", p.Verdict, verdict,
			strings.Join(acted, "\n  "), strings.Join(actions, "\n  "), strings.Join(found, "\n  "), strings.Join(problems, "\n  "), p)
	}
}

const cores = "management.workload.openshift.io/cores"

// The states are those of docs/user/upgrade.md and of the end-to-end tests of which the comments
// name the files: the plan must say what these tests see.
func TestPlanSaysWhatTheKubeletDoes(t *testing.T) {
	ordinary, asks, exclusive := pod("ordinary", "100m"), pod("partitioned", "400m", partitioned), pod("exclusive", "1", guaranteed)
	for name, test := range map[string]struct {
		state
		wanted             string
		verdict            Verdict
		actions, problems  []string
		shared, reserved   string
		allocatable        int64
		wantText, wantStep string
	}{
		// pools_test.go, under both policies
		"the pool moves": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{asks, ordinary}}, wanted: "1", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>0,2-3 n/ordinary", "Move pods of type management 0>1 n/partitioned"}, shared: "0,2-3", reserved: "1", allocatable: 3000},
		"the pool moves, under the policy none": {state: state{present: "0", config: noneConfig, pods: []v1.Pod{asks, ordinary}}, wanted: "1", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>0,2-3 n/ordinary", "Move pods of type management 0>1 n/partitioned"}, shared: "0,2-3", reserved: "1", allocatable: 3000},
		"the type loses its CPUs": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{asks, ordinary}}, wanted: "", verdict: Safe,
			actions: []string{"Free ordinary pods 1-3>0-3 n/ordinary", "Free pods of type management 0>0-3 n/partitioned"}, shared: "0-3", allocatable: 3500},
		"the file goes": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{asks, ordinary}}, wanted: "-", verdict: Safe,
			actions:  []string{"Free ordinary pods 1-3>0-3 n/ordinary", "Free pods of type management 0>0-3 n/partitioned", "Report " + cores + " 4000>"},
			problems: []string{"Warning PinningFileMissing"}, shared: "0-3", allocatable: 3500},
		"the file goes from a full node": {state: state{present: "0-1", shared: "2-3", pods: []v1.Pod{pod("large", "1900m"), pod("s", "700m", partitioned, static)}}, wanted: "-", verdict: Unknown,
			actions:  []string{"Free ordinary pods 2-3>0-3 n/large", "Report " + cores + " 4000>", "Restart static pods > n/s"},
			problems: []string{"Info StaticPodsRestart", "Unknown PodFallsOut n/large", "Warning PinningFileMissing"}, wantText: "at the kubelet's first start after the change", shared: "0-3", allocatable: 3500},
		"nothing changes for a mirror that shows cpu": {state: state{present: "0-1", shared: "2-3", pods: []v1.Pod{pod("s", "700m", constrained)}}, wanted: "0-1", verdict: Safe,
			shared: "2-3", reserved: "0-1", allocatable: 2000},
		"the pool of a mirror that shows cpu shrinks": {state: state{present: "0-1", shared: "2-3", pods: []v1.Pod{pod("s", "700m", constrained)}}, wanted: "0", verdict: Safe,
			actions: []string{"Move pods of type management 0-1>0 n/s"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"the file goes from a full node, and a mirror shows cpu": {state: state{present: "0-1", shared: "2-3", pods: []v1.Pod{pod("large", "1900m"), pod("s", "700m", constrained)}}, wanted: "-", verdict: Unknown,
			actions:  []string{"Free ordinary pods 2-3>0-3 n/large", "Report " + cores + " 4000>", "Restart static pods > n/s"},
			problems: []string{"Info StaticPodsRestart", "Unknown PodFallsOut n/large", "Warning PinningFileMissing"}, wantText: "at the kubelet's first start after the change", shared: "0-3", allocatable: 3500},
		"the file comes": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{asks, ordinary}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/ordinary", "Move pods of type management 0-3>0 n/partitioned", "Report " + cores + " >4000"},
			shared:  "1-3", reserved: "0", allocatable: 3000},
		"ordinary pods get no isolated CPU": {state: state{present: "-", isolated: "3", config: noneConfig, pods: []v1.Pod{ordinary}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-2>1-2 n/ordinary", "Report " + cores + " >4000"}, shared: "1-2", reserved: "0", allocatable: 3000},
		"the pods are not known, and the pool shrinks": {state: state{present: "0-1", shared: "2-3", change: func(n *Node) { n.Pods = nil }}, wanted: "0", verdict: Unknown,
			actions: []string{"Move ordinary pods 2-3>1-3", "Move pods of type management 0-1>0"}, problems: []string{"Unknown PodsUnknown"}, shared: "1-3", reserved: "0", allocatable: 3000,
			wantText: "any restart of the kubelet ends those whose required node affinity no longer fits"},

		// exclusive_cpus_test.go
		"an exclusive container keeps its CPU": {state: state{present: "-", shared: "0,2-3", held: map[string]string{"exclusive": "1"}, pods: []v1.Pod{exclusive, ordinary}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0,2-3>2-3 n/ordinary", "Report " + cores + " >4000"}, shared: "2-3", reserved: "0", allocatable: 3000},
		"a pool with the exclusive CPU keeps the kubelet from starting": {state: state{present: "0", shared: "2-3", held: map[string]string{"exclusive": "1"}, pods: []v1.Pod{exclusive}}, wanted: "1", verdict: Unsafe,
			problems: []string{"Error ExclusiveCPUsTaken n/exclusive", "Error KubeletDoesNotStart"}, reserved: "1", allocatable: 3000,
			wantText: "container c of pod n/exclusive exclusively holds CPU 1, which /etc/kubernetes/openshift-workload-pinning gives to a pool, and may be running", wantStep: "kubectl cordon worker-1, so that no pod gets these CPUs again. Then delete the pods that hold them exclusively, or drain the node: n/exclusive"},
		"it is unknown whether the holder runs": {state: state{present: "0", shared: "2-3", held: map[string]string{"gone": "1"}}, wanted: "1", verdict: Unknown,
			problems: []string{"Unknown ExclusiveCPUsTaken uid-gone"}, reserved: "1", allocatable: 3000},
		"the holder has ended": {state: state{present: "0", shared: "2-3", held: map[string]string{"done": "1"}, pods: []v1.Pod{pod("done", "1", guaranteed, inPhase(v1.PodSucceeded))}}, wanted: "1", verdict: Safe,
			actions: []string{"Drop container c of pod n/done 1>"}, shared: "0,2-3", reserved: "1", allocatable: 3000},
		"the runtime says that the holder does not run, and it will come again": {state: state{present: "0", shared: "2-3", held: map[string]string{"exclusive": "1"}, pods: []v1.Pod{exclusive},
			change: func(n *Node) { n.Runs = func(string) Answer { return No } }}, wanted: "1", verdict: Unsafe,
			actions: []string{"Drop container c of pod n/exclusive 1>"}, problems: []string{"Error ExclusiveCPUsTaken n/exclusive"}, shared: "0,2-3", reserved: "1", allocatable: 3000},
		"the runtime says that the holder does not run, and the pods are unknown": {state: state{present: "0", shared: "2-3", held: map[string]string{"exclusive": "1"},
			change: func(n *Node) { n.Pods, n.Runs = nil, func(string) Answer { return No } }}, wanted: "1", verdict: Unknown,
			actions: []string{"Drop container c of pod uid-exclusive 1>", "Move ordinary pods 2-3>0,2-3", "Move pods of type management 0>1"}, problems: []string{"Unknown ExclusiveCPUsTaken uid-exclusive", "Unknown PodsUnknown"}, shared: "0,2-3", reserved: "1", allocatable: 3000},
		"a checkpoint that cannot be read": {state: state{present: "0", change: func(n *Node) { n.Checkpoint = kubeletstate.ParseCheckpoint([]byte("{")) }}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart cpu_manager_state"}, reserved: "0", allocatable: 3000, wantText: "could not restore state from checkpoint"},
		"a checkpoint of another policy": {state: state{present: "0", config: noneConfig, shared: "1-3"}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart cpu_manager_state"}, reserved: "0", allocatable: 3000, wantText: `configured policy "none" differs from state checkpoint policy "static"`},
		"the last shared CPU goes": {state: state{present: "0", shared: "1", held: map[string]string{"exclusive": "2-3"}, pods: []v1.Pod{pod("exclusive", "2", guaranteed), ordinary}}, wanted: "0-1", verdict: Unsafe,
			actions: []string{"Move ordinary pods 1>3 n/ordinary"}, problems: []string{"Warning NoSharedCPUs", "Error PodFallsOut n/ordinary"}, shared: "3", reserved: "0-1", allocatable: 2000},

		// checkpoint_test.go: the file stays, and the checkpoint was cut
		"an exclusive CPU is still shared": {state: state{present: "0", shared: "1-3", held: map[string]string{"exclusive": "3"}, pods: []v1.Pod{exclusive, ordinary}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>1-2 n/ordinary"}, shared: "1-2", reserved: "0", allocatable: 3000},
		"a CPU of the pool is shared": {state: state{present: "0", shared: "0-3", pods: []v1.Pod{ordinary}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/ordinary"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a pod that has ended holds a CPU that went": {state: state{present: "0", shared: "1-3", held: map[string]string{"gone": "4"}, change: func(n *Node) { n.Runs = func(string) Answer { return No } }}, wanted: "0", verdict: Safe,
			actions: []string{"Drop container c of pod uid-gone 4>"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a pod that runs holds a CPU that went": {state: state{present: "0", shared: "1-3", held: map[string]string{"exclusive": "4"}, pods: []v1.Pod{exclusive}}, wanted: "0", verdict: Safe,
			problems: []string{"Warning WorkloadPartitioningCPUOffline n/exclusive"}, shared: "1-3", reserved: "0", allocatable: 3000},

		// installers_test.go
		"a pool and a reserved cgroup": {state: state{present: "-", config: staticConfig + "systemReserved: {cpu: 100m}\nsystemReservedCgroup: /system.slice\nenforceNodeAllocatable: [pods, system-reserved-compressible]\n"}, wanted: "0", verdict: Safe,
			actions:  []string{"Report " + cores + " >4000"},
			problems: []string{"Warning ReservedCgroupDropped systemReservedCgroup=/system.slice", "Warning ReservedCgroupDropped enforceNodeAllocatable: system-reserved-compressible"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a pool of all CPUs": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{ordinary}}, wanted: "0-3", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning PoolsHoldEveryCPU"}, shared: "0-3", allocatable: 3500},
		"a pool that is larger than the reserved CPUs": {state: state{present: "-", shared: "0-3", config: staticConfig + "reservedSystemCPUs: \"0\"\n"}, wanted: "0-1", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning ReservedCPUsDiffer"}, shared: "2-3", reserved: "0-1", allocatable: 2000},
		"a container holds a CPU of the difference": {state: state{present: "0", recorded: "0", shared: "1-2", config: staticConfig + "reservedSystemCPUs: \"0,3\"\n", held: map[string]string{"exclusive": "3"}, pods: []v1.Pod{exclusive},
			change: func(n *Node) { n.Present = File{} }}, wanted: "0", verdict: Safe,
			actions: []string{"Keep container c of pod n/exclusive 3>3 n/exclusive"}, shared: "1-2", reserved: "0,3", allocatable: 2000},
		"no other reservation than the pools, which go": {state: state{present: "0", shared: "1-3", config: "cpuManagerPolicy: static\n"}, wanted: "", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, wantText: "add reservedSystemCPUs, or cpu to kubeReserved or systemReserved"},
		"no other reservation than the file, which goes": {state: state{present: "0", shared: "1-3", config: "cpuManagerPolicy: static\n"}, wanted: "-", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, wantText: "the static policy of the CPU manager needs a reserved CPU"},
		"a policy that shares the pools": {state: state{present: "-", config: staticConfig + "cpuManagerPolicyOptions: {strict-cpu-reservation: \"false\"}\n"}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, reserved: "0", wantText: `cpuManagerPolicyOptions: strict-cpu-reservation is "false"`},
		"v1.34 without the gate": {state: state{present: "-", config: staticConfig + "featureGates: {CPUManagerPolicyBetaOptions: false}\n", change: func(n *Node) {
			n.Object = &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.34.4+wp.1234567"}}}
		}}, wanted: "0", verdict: Unsafe, problems: []string{"Error KubeletDoesNotStart"}, reserved: "0", wantText: "CPUManagerPolicyBetaOptions is false, but v1.34 needs it for the CPU manager's beta option"},
		"a kubelet of unknown version without the gate": {state: state{present: "-", config: staticConfig + "featureGates: {CPUManagerPolicyBetaOptions: false}\n"}, wanted: "0", verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown NodeUnknown"}, shared: "1-3", reserved: "0", allocatable: 3000,
			wantText: "the kubelet's version is not known, and an older one does not start: featureGates: CPUManagerPolicyBetaOptions is false"},
		"a mistake in the file": {state: state{present: "0", shared: "1-3"}, wanted: "0,9", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, wantText: `pinning file /etc/kubernetes/openshift-workload-pinning: workload type "management": cpuset "0,9": the host has no CPU 9; it has 0-3`},
		"reserved cgroups with explicit reserved CPUs": {state: state{present: "-", config: staticConfig + "reservedSystemCPUs: \"0\"\nsystemReservedCgroup: /system.slice\n"}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, reserved: "0", wantText: "can't use reservedSystemCPUs"},
		"reserved CPUs that the host lacks": {state: state{present: "-", config: staticConfig + "reservedSystemCPUs: \"0,7\"\n"}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, reserved: "0,7", wantText: "reserved-cpus: 0,7 is not a subset of online-cpus: 0-3"},
		"others can write the directory": {state: state{present: "0", shared: "1-3", change: func(n *Node) { n.Access = fmt.Errorf("mode 0777") }}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart"}, shared: "1-3", reserved: "0", allocatable: 3000},

		// The file goes, and upstream would have to share what a container holds.
		"a container holds the CPU that upstream reserves next": {state: state{present: "3", shared: "1-2", held: map[string]string{"exclusive": "0"}, pods: []v1.Pod{exclusive}}, wanted: "-", verdict: Unsafe,
			problems: []string{"Error KubeletDoesNotStart cpu_manager_state"}, allocatable: 3500, wantText: "please drain node and remove policy state file"},
		"a container holds that CPU, and another one that is offline, so that upstream is not asked": {state: state{present: "3", shared: "1-2", held: map[string]string{"exclusive": "0", "other": "4"}, pods: []v1.Pod{exclusive, pod("other", "1", guaranteed)}}, wanted: "-", verdict: Safe,
			actions: []string{"Report " + cores + " 4000>"}, problems: []string{"Warning WorkloadPartitioningCPUOffline n/other", "Warning PinningFileMissing"}, shared: "1-3", allocatable: 3500},
		"it is unknown which CPUs upstream reserves next": {state: state{present: "3", shared: "1-2", config: "cpuManagerPolicy: static\nkubeReserved: {cpu: 1500m}\n", held: map[string]string{"exclusive": "0"}, pods: []v1.Pod{exclusive}}, wanted: "-", verdict: Unknown,
			actions: []string{"Report " + cores + " 4000>"}, problems: []string{"Unknown ReservedCPUsUnknown", "Warning PinningFileMissing"}, shared: "1-3", allocatable: 2500},

		// pods_no_longer_fit_test.go
		"the youngest pod falls out": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("first", "1700m"), pod("last", "1700m")}}, wanted: "0", verdict: Unsafe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/first,n/last", "Report " + cores + " >4000"}, problems: []string{"Error PodFallsOut n/last"}, shared: "1-3", reserved: "0", allocatable: 3000,
			wantText: "asks for 1700m of cpu, and older pods have 1700m of 3: the kubelet rejects it (OutOfcpu)", wantStep: "kubectl drain worker-1"},
		"a pod that has ended does not count": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("done", "1700m", inPhase(v1.PodFailed)), pod("last", "1700m")}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/last", "Report " + cores + " >4000"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"static pods come first": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("first", "1700m"), pod("control-plane", "1700m", static)}}, wanted: "0", verdict: Unsafe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/first,n/control-plane", "Report " + cores + " >4000"}, problems: []string{"Error PodFallsOut n/first"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a critical pod displaces another": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("small", "1"), pod("large", "1700m"), pod("last", "1", critical)}}, wanted: "0", verdict: Unsafe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/small,n/large,n/last", "Report " + cores + " >4000"}, problems: []string{"Error PodPreempted n/small"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a pod that asked is partitioned first": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("first", "1500m"), pod("asked", "1500m", skipped)}}, wanted: "0-1", verdict: Unsafe,
			actions: []string{"Move ordinary pods 1-3>2-3 n/first,n/asked"}, problems: []string{"Error PodFallsOut n/asked"}, shared: "2-3", reserved: "0-1", allocatable: 2000,
			wantText: "it asked for the type management", wantStep: "Partition first: create these pods again, so that they ask for cores in place of cpu: n/asked"},
		"partitioned pods ask for no cpu": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("first", "1900m"), pod("other", "1900m", partitioned)}}, wanted: "0-1", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>2-3 n/first", "Move pods of type management 0>0-1 n/other"}, shared: "2-3", reserved: "0-1", allocatable: 2000},
		"the cpu in the status of a partitioned pod does not count": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("first", "1900m"), pod("other", "1900m", partitioned, running("1900m"))}}, wanted: "0-1", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>2-3 n/first", "Move pods of type management 0>0-1 n/other"}, shared: "2-3", reserved: "0-1", allocatable: 2000},
		"only what is allocated is known, and fits": {state: state{present: "0", shared: "1-3", change: func(n *Node) { n.Pods, n.Allocated = nil, map[string]int64{"a": 900, "b": 1100} }}, wanted: "0-1", verdict: Unknown,
			actions: []string{"Move ordinary pods 1-3>2-3", "Move pods of type management 0>0-1"}, problems: []string{"Unknown PodsUnknown"}, wantText: "ask for 2000m of cpu together, and 2000m are left; what else their pods ask for is not known", shared: "2-3", reserved: "0-1", allocatable: 2000},
		"only what is allocated is known, and does not fit": {state: state{present: "0", shared: "1-3", change: func(n *Node) {
			n.Pods, n.Allocated, n.Names = nil, map[string]int64{"a": 900, "b": 1101}, map[string]string{"a": "n/a"}
		}}, wanted: "0-1", verdict: Unknown, actions: []string{"Move ordinary pods 1-3>2-3", "Move pods of type management 0>0-1"}, problems: []string{"Unknown PodFallsOut"}, shared: "2-3", reserved: "0-1", allocatable: 2000,
			wantText: "ask for 2001m of cpu together, and 2000m are left: those created last fall out (OutOfcpu), unless they have ended, or are static and become partitioned: n/a: 900m, b: 1101m"},
		"nothing is known of pods": {state: state{present: "0", shared: "1-3", change: func(n *Node) { n.Pods, n.PodsDenied = nil, "forbidden" }}, wanted: "0-1", verdict: Unknown,
			actions: []string{"Move ordinary pods 1-3>2-3", "Move pods of type management 0>0-1"}, problems: []string{"Unknown PodsUnknown"}, shared: "2-3", reserved: "0-1", allocatable: 2000, wantText: "(forbidden)"},

		"the Node is another host's": {state: state{present: "0", shared: "1-3", change: func(n *Node) {
			n.Boot, n.Object = "b1", &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, NodeInfo: v1.NodeSystemInfo{BootID: "b2", KubeletVersion: "v1.37.2" + patched}}}
		}}, wanted: "0", verdict: Unknown, problems: []string{"Unknown NodeOfAnotherHost"}, shared: "1-3", reserved: "0", allocatable: 3000, wantText: "this host has the boot ID b1, and the Node b2"},
		"the Node is this host's": {state: state{present: "0", shared: "1-3", change: func(n *Node) {
			n.Boot, n.Object = "b1", &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, NodeInfo: v1.NodeSystemInfo{BootID: "b1", KubeletVersion: "v1.37.2" + patched}}}
		}}, wanted: "0", verdict: Safe, shared: "1-3", reserved: "0", allocatable: 3000},

		// node_differs_test.go: each restart has the kubelet judge its pods by the Node that there is now.
		"the Node has what a pod requires": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("picky", "10m", requires("a", "b"))}, change: object("a=b")}, wanted: "0", verdict: Safe, shared: "1-3", reserved: "0", allocatable: 3000},
		"the Node has lost what a pod requires": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("picky", "10m", requires("a", "b")), ordinary}, change: object("")}, wanted: "0", verdict: Unsafe,
			problems: []string{"Error NodeNoLongerMatches n/picky"}, shared: "1-3", reserved: "0", allocatable: 3000,
			wantText: "requires of its node a=b, which has no label a: the kubelet rejects it (NodeAffinity) at any restart, even if it runs, whatever the pools are", wantStep: "Give the Node back what these pods require of its labels, and take the taint off that they do not tolerate, or run them elsewhere: n/picky"},
		"a pod that has ended requires nothing": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("picky", "10m", requires("a", "b"), inPhase(v1.PodSucceeded))}, change: object("")}, wanted: "0", verdict: Safe, shared: "1-3", reserved: "0", allocatable: 3000},
		"a taint has come that a pod does not tolerate": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{ordinary, pod("api", "100m", static)}, change: func(n *Node) {
			object("")(n)
			n.Object.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}
		}}, wanted: "0", verdict: Unsafe, problems: []string{"Error NodeNoLongerMatches n/ordinary"}, shared: "1-3", reserved: "0", allocatable: 3000, wantText: "does not tolerate the taint k=v:NoExecute: the kubelet rejects it (TaintToleration)"},
		"it is unknown what the Node has": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("picky", "10m", requires("a", "b")), ordinary}}, wanted: "0", verdict: Unknown,
			problems: []string{"Unknown NodeUnknown"}, shared: "1-3", reserved: "0", allocatable: 3000, wantText: "no longer fits them: n/picky"},
		"memory no longer suffices": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{ordinary, pod("last", "10m")}, change: func(n *Node) {
			object("")(n)
			n.Object.Status.Allocatable[v1.ResourceMemory] = resource.MustParse("20Mi")
		}}, wanted: "0", verdict: Unsafe, problems: []string{"Error PodFallsOut n/last"}, shared: "1-3", reserved: "0", allocatable: 3000, wantText: "OutOfmemory"},
		"a Guaranteed pod finds no exclusive CPUs besides those that are held": {state: state{present: "0", shared: "2-3", held: map[string]string{"exclusive": "1-2"}, pods: []v1.Pod{pod("exclusive", "2", guaranteed), pod("more", "1", guaranteed)}}, wanted: "0,3", verdict: Unsafe,
			actions: []string{"Move ordinary pods 2-3>2 n/more"}, problems: []string{"Error PodFallsOut n/more", "Warning NoSharedCPUs"}, shared: "2", reserved: "0,3", allocatable: 2000, wantText: "UnexpectedAdmissionError"},

		// upgrade.md: static pods restart when the file comes or goes.
		"a static pod that asks is partitioned": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("api", "3500m", static, func(p *v1.Pod) { p.Annotations[partition.TargetAnnotation("management")] = "" })}}, wanted: "0", verdict: Safe,
			actions: []string{"Restart static pods > n/api", "Report " + cores + " >4000"}, problems: []string{"Info StaticPodsRestart"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a static pod that the file lacked": {state: state{present: "-", shared: "0-3", pods: []v1.Pod{pod("api", "3500m", static, skipped)},
			change: func(n *Node) { n.Present, n.Record = There([]byte("{}")), &partition.Record{} }}, wanted: "0", verdict: Safe,
			actions: []string{"Restart static pods > n/api", "Report " + cores + " >4000"}, problems: []string{"Info StaticPodsRestart"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"a partitioned static pod becomes ordinary": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("api", "500m", static, partitioned)}}, wanted: "-", verdict: Safe,
			actions: []string{"Restart static pods > n/api", "Report " + cores + " 4000>"}, problems: []string{"Info StaticPodsRestart", "Warning PinningFileMissing"}, shared: "0-3", allocatable: 3500},
		"a static pod that asks for cpu again no longer fits": {state: state{present: "0", shared: "1-3", pods: []v1.Pod{pod("api", "2", static, partitioned), pod("first", "2")}}, wanted: "-", verdict: Unsafe,
			actions:  []string{"Restart static pods > n/api", "Report " + cores + " 4000>", "Free ordinary pods 1-3>0-3 n/first"},
			problems: []string{"Info StaticPodsRestart", "Warning PinningFileMissing", "Error PodFallsOut n/first"}, shared: "0-3", allocatable: 3500, wantStep: "Remove /etc/kubernetes/openshift-workload-pinning, and restart"},
		"the file goes, and nothing is known of pods": {state: state{present: "0", shared: "1-3", change: func(n *Node) { n.Pods, n.Allocated = nil, map[string]int64{"first": 2000} }}, wanted: "-", verdict: Unknown,
			actions:  []string{"Report " + cores + " 4000>", "Free ordinary pods 1-3>0-3", "Free pods of type management 0>0-3"},
			problems: []string{"Warning PinningFileMissing", "Unknown PodsUnknown"}, shared: "0-3", allocatable: 3500, wantText: "static pods that are partitioned now will ask for cpu"},
		"the kubelet has not read the present file": {state: state{present: "0-1", recorded: "0", shared: "1-3", pods: []v1.Pod{ordinary}}, wanted: "0-1", verdict: Safe,
			actions: []string{"Move ordinary pods 1-3>2-3 n/ordinary"}, problems: []string{"Warning PresentFileNotInEffect"}, shared: "2-3", reserved: "0-1", allocatable: 2000},
		"the kubelet has not read the present file, and nothing is known of pods": {state: state{present: "0-1", recorded: "0", shared: "1-3", change: func(n *Node) { n.Pods = nil }}, wanted: "0-1", verdict: Unknown,
			actions: []string{"Move ordinary pods 1-3>2-3", "Move pods of type management >0-1"}, problems: []string{"Warning PresentFileNotInEffect", "Unknown PodsUnknown"}, shared: "2-3", reserved: "0-1", allocatable: 2000},
		"flags change what the configuration says": {state: state{present: "0", shared: "1-3", change: func(n *Node) { n.Changing = "--reserved-cpus" }}, wanted: "0", verdict: Unknown,
			problems: []string{"Unknown KubeletConfigurationUnknown"}, shared: "1-3", reserved: "0", allocatable: 3000, wantText: "--reserved-cpus"},
		"no kubelet has read the present file": {state: state{present: "0", recorded: "-", shared: "0-3", change: func(n *Node) { n.Pods, n.NoRecord = nil, true }}, wanted: "0", verdict: Unknown,
			actions: []string{"Move ordinary pods 0-3>1-3", "Move pods of type management >0"}, problems: []string{"Warning PresentFileNotInEffect", "Unknown PodsUnknown"}, shared: "1-3", reserved: "0", allocatable: 3000},
		"no kubelet has read the present file, and what is allocated does not fit": {state: state{present: "0", recorded: "-", shared: "0-3", change: func(n *Node) {
			n.Pods, n.NoRecord, n.Allocated = nil, true, map[string]int64{"a": 3001}
		}}, wanted: "0", verdict: Unknown, actions: []string{"Move ordinary pods 0-3>1-3", "Move pods of type management >0"}, problems: []string{"Warning PresentFileNotInEffect", "Unknown PodFallsOut"}, shared: "1-3", reserved: "0", allocatable: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.node(t).Plan(pool(test.wanted))
			expect(t, p, test.verdict, test.actions, test.problems)
			if p.After.SharedCPUs != test.shared || p.After.ReservedCPUs != test.reserved {
				t.Errorf("afterwards the CPUs %q are shared and %q reserved, want %q and %q", p.After.SharedCPUs, p.After.ReservedCPUs, test.shared, test.reserved)
			}
			if got := p.After.AllocatableMillicores; (got == nil) != (test.allocatable == 0) || (got != nil && *got != test.allocatable) {
				t.Errorf("afterwards %dm are allocatable, want %dm", ptr.Deref(got, 0), test.allocatable)
			}
			if !slices.ContainsFunc(p.Problems, func(problem Problem) bool { return strings.Contains(problem.Text+problem.Remedy, test.wantText) }) && test.wantText != "" {
				t.Errorf("no problem has the text %q: %+v", test.wantText, p.Problems)
			}
			if !slices.ContainsFunc(p.Steps, func(step string) bool { return strings.Contains(step, test.wantStep) }) && test.wantStep != "" {
				t.Errorf("no step has the text %q: %q", test.wantStep, p.Steps)
			}
		})
	}
}

// A kubelet that starts again with the file that it has does nothing that it has not done. So the
// plan of an unchanged file is empty, and safe, in every state that a kubelet leaves.
func TestPlanOfAnUnchangedFileIsEmpty(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Log("the seed of random numbers is", seed)
	random := rand.New(rand.NewSource(seed))
	some := func(of cpuset.CPUSet) cpuset.CPUSet {
		return cpuset.New(slices.DeleteFunc(of.List(), func(int) bool { return random.Intn(3) > 0 })...)
	}
	for range 300 {
		s := state{online: fmt.Sprintf("0-%d", 1+random.Intn(12)), present: "-"}
		online := cpus(t, s.online)
		if random.Intn(5) > 0 {
			s.present = some(online).String()
		}
		s.config = []string{staticConfig, noneConfig}[random.Intn(2)]
		if random.Intn(3) == 0 {
			s.config += fmt.Sprintf("reservedSystemCPUs: %q\n", cpuset.New(0).Union(some(online)).String())
		}
		n := s.node(t)
		started := n.start(n.Present)
		if started.refusal != "" {
			t.Fatalf("%+v: %s", s, started.refusal)
		}
		if pooled := started.division.Pooled; s.present != "-" {
			n.Record = &partition.Record{ReservedCPUs: pooled.String()} // as the kubelet writes it
		}
		left, used := int64(online.Size())*1000-started.millicores, int64(0)
		if started.static() {
			n.Checkpoint = &kubeletstate.Checkpoint{Policy: partition.StaticPolicy, Checkpoint: partition.Checkpoint{Shared: started.sharable(online)}}
			for i, cpu := range online.Difference(started.reserved).List() {
				if random.Intn(3) == 0 && started.reservedKnown && n.Checkpoint.Shared.Size() > 1 && used+1000 <= left {
					p := pod(fmt.Sprint("exclusive-", i), "1", guaranteed)
					n.Pods, used = append(n.Pods, p), used+1000
					n.Checkpoint.Shared = n.Checkpoint.Shared.Difference(cpuset.New(cpu))
					n.Checkpoint.Assignments = append(n.Checkpoint.Assignments, partition.Assignment{Pod: string(p.UID), Container: "c", CPUs: cpuset.New(cpu)})
				}
			}
			partition.SortAssignments(n.Checkpoint.Assignments)
		}
		for i := range random.Intn(5) {
			p := pod(fmt.Sprint("pod-", i), "100m")
			if random.Intn(2) == 0 && s.present != "-" {
				partitioned(&p)
			} else if used += 100; used > left {
				continue
			}
			if random.Intn(4) == 0 {
				static(&p)
			}
			n.Pods = append(n.Pods, p)
		}
		if random.Intn(4) == 0 {
			n.Pods = nil
		}
		if p := n.Plan(n.Present); n.Pods == nil {
			expect(t, p, Unknown, nil, []string{"Unknown PodsUnknown"})
		} else if p.Verdict != Safe || len(p.Actions)+len(p.Problems)+len(p.Exclusive)+len(p.Steps) > 0 {
			t.Fatalf("%+v with %d pods: the plan is %+v", s, len(n.Pods), p)
		}
	}
}

func TestVerdictOfAPlanIsTheWorstOfItsNodes(t *testing.T) {
	for _, test := range []struct {
		nodes []Verdict
		want  Verdict
	}{
		{nil, Safe}, {[]Verdict{Safe, Safe}, Safe}, {[]Verdict{Safe, Unknown}, Unknown}, {[]Verdict{Unknown, Unsafe, Safe}, Unsafe}, {[]Verdict{Unsafe, Unknown}, Unsafe},
	} {
		var nodes []NodePlan
		for _, verdict := range test.nodes {
			nodes = append(nodes, NodePlan{Verdict: verdict})
		}
		if got := New(nodes).Verdict; got != test.want {
			t.Errorf("of %v the verdict is %s, want %s", test.nodes, got, test.want)
		}
	}
}

// What render says of a pool before it is written, plan says of the node that gets it.
func TestPlanNamesPoolsThatDoNotSuitTheirHost(t *testing.T) {
	core := func(list string) topology.Core { return topology.Core{CPUs: cpus(t, list)} }
	unlike := &topology.Topology{Cores: []topology.Core{core("0-1"), core("2"), core("3")}}
	alike := &topology.Topology{Cores: []topology.Core{core("0-1"), core("2-3")}}
	release := func(version string) *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: version},
			Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}}
	}
	for name, test := range map[string]struct {
		state
		topology *topology.Topology
		version  string
		wanted   string
		want     []string
	}{
		"cores are unlike, and the pool splits one": {topology: unlike, wanted: "0", want: []string{partition.EventPoolSplitsCore}},
		"v1.38 has repaired it":                     {topology: unlike, wanted: "0", version: "v1.38.0+wp.1"},
		"v1.36 has not":                             {topology: unlike, wanted: "0", version: "v1.36.5+wp.1", want: []string{partition.EventPoolSplitsCore}},
		"the policy is none":                        {state: state{config: noneConfig}, topology: unlike, wanted: "0"},
		"cores are alike":                           {topology: alike, wanted: "0"},
		"the cores are not known":                   {wanted: "0"},
		"the pool splits it already":                {state: state{present: "0"}, topology: unlike, wanted: "0"},
		"the pool is on isolated CPUs":              {state: state{isolated: "1-2"}, wanted: "1-2", want: []string{partition.EventPoolOnIsolated}},
		"the pool is not":                           {state: state{isolated: "1-2"}, wanted: "0,3"},
		"the file goes":                             {state: state{present: "1-2", isolated: "1-2"}, wanted: "-"},
	} {
		n := test.node(t)
		if n.Topology = test.topology; test.version != "" {
			n.Object = release(test.version)
		}
		var got []string
		for _, problem := range n.Plan(pool(test.wanted)).Problems {
			if problem.Code == partition.EventPoolSplitsCore || problem.Code == partition.EventPoolOnIsolated {
				got = append(got, problem.Code)
				if problem.Severity != Warning {
					t.Errorf("%s: the severity is %s", name, problem.Severity)
				}
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the problems are %q, want %q", name, got, test.want)
		}
	}
}
