// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// Code is the kind of a finding. Codes do not change, so that others can rely on them.
type Code string

// The findings, by which a node is not clean.
const (
	CodePinningFile    Code = "pinning-file"
	CodeNotInForce     Code = "not-in-force"
	CodeTypeOff        Code = "type-off"
	CodeNotAllowed     Code = "not-allowed"
	CodeReservedCPUs   Code = "reserved-cpus"
	CodeStrict         Code = "strict-reservation"
	CodeCRIO           Code = "crio"
	CodeCheckpoint     Code = "checkpoint"
	CodeOffPool        Code = "off-pool"
	CodeOnPool         Code = "on-pool"
	CodeOnHost         Code = "on-host"
	CodeOffExclusive   Code = "off-exclusive"
	CodeTaskOffSet     Code = "task-off-set"
	CodeMoved          Code = "process-moved"
	CodeNoCgroup       Code = "no-cgroup"
	CodeWeight         Code = "weight"
	CodeQuota          Code = "quota"
	CodeClassWeight    Code = "class-weight"
	CodeExclusiveQuota Code = "exclusive-quota"
)

// The notes, which leave a node clean: what else runs on CPUs outside the pools.
const (
	NoteNarrow      Code = "narrow"
	NoteSandboxes   Code = "sandboxes"
	NoteMonitors    Code = "runtime-monitors"
	NoteProcesses   Code = "host-processes"
	NoteKernel      Code = "kernel-threads"
	NoteInterrupts  Code = "interrupts"
	NoteWorkqueues  Code = "workqueues"
	NoteDisks       Code = "disks"
	NoteSlices      Code = "slices"
	NotePinning     Code = "pinning-file-note"
	NotePermissions Code = "permissions"
	NoteIsolated    Code = "isolated"
)

// isNote reports whether a code is that of a note.
func isNote(code Code) bool {
	return slices.Contains([]Code{NoteNarrow, NoteSandboxes, NoteMonitors, NoteProcesses, NoteKernel, NoteInterrupts, NoteWorkqueues, NoteDisks, NoteSlices, NotePinning, NotePermissions, NoteIsolated}, code)
}

// remedies says for each code what to do.
var remedies = map[Code]string{
	CodePinningFile:    "correct the file, then restart the kubelet; it does not start with this one",
	CodeNotInForce:     "restart the kubelet: it reads the file when it starts",
	CodeTypeOff:        "add the type to the pinning file and restart the kubelet, or delete the pod",
	CodeNotAllowed:     "delete the pod, or let its namespace allow the type (" + partition.AllowedAnnotation + "); kubectl partition status lists all such pods of the cluster",
	CodeReservedCPUs:   "make reservedSystemCPUs contain the pools, or leave it out",
	CodeStrict:         `set the option to "true", or leave it out`,
	CodeCRIO:           "write CRI-O's drop-in again from the pinning file (kubectl partition render), then restart CRI-O",
	CodeCheckpoint:     "delete the pod that holds the CPUs, or restart the kubelet, which brings the checkpoint up to date",
	CodeOffPool:        "restart the kubelet, which repairs the cpuset; if it is wrong again, look for another tool that writes it (an NRI plugin, TuneD)",
	CodeOnPool:         "restart the kubelet, which moves containers off the pools; if it is there again, look for another tool that writes the cpuset (an NRI plugin, a DRA driver)",
	CodeOnHost:         "wait for the CPU manager, which looks at each container every ten seconds; if it stays, look for another tool that writes the cpuset (an NRI plugin, TuneD)",
	CodeOffExclusive:   "wait for the CPU manager, which looks at each container every ten seconds; if it stays, look for another tool that writes the cpuset",
	CodeTaskOffSet:     "find what set the task's affinity, and update the runtime (runc 1.2.7 or 1.3.1, crun 1.25)",
	CodeMoved:          "delete the pod; then find what moved the process",
	CodeNoCgroup:       "check that the runtime keeps containers in cgroups of the host; nothing is proved for this one",
	CodeWeight:         "restart the kubelet, which repairs weights once after each start",
	CodeQuota:          "restart the kubelet, which repairs the quotas of containers with a CPU limit",
	CodeClassWeight:    "wait a minute: the kubelet writes the weight of the class again",
	CodeExclusiveQuota: "update the runtime (crun 1.22), and delete the pod",
	NoteNarrow:         "restart the container if it should use all of its CPUs: processes keep the affinity that they got when they started",
	NoteSandboxes:      "none needed: a sandbox sleeps; with CRI-O, kubectl partition render writes infra_ctr_cpuset",
	NoteMonitors:       "kubectl partition render --host writes CPUAffinity for the runtime's unit, and AllowedCPUs for its slice",
	NoteProcesses:      "kubectl partition render --host writes CPUAffinity for systemd, and AllowedCPUs for its slices",
	NoteKernel:         "taskset -pc POOL PID moves one until the next boot. kubectl partition render --host=kthreads,kernel-arguments writes a service that moves all, and rcu_nocbs",
	NoteInterrupts:     "echo POOL >/proc/irq/NUMBER/smp_affinity_list moves one until the next boot, unless the kernel manages it. kubectl partition render --host=irqbalance,kernel-arguments writes irqbalance's banned CPUs, and irqaffinity",
	NoteWorkqueues:     "kubectl partition render --host=workqueue writes their mask",
	NoteDisks:          "echo 2 >/sys/block/DISK/queue/rq_affinity until the next boot. kubectl partition render --host=disks writes a rule of udev for all",
	NoteSlices:         "kubectl partition render --host writes AllowedCPUs for this slice",
	NotePinning:        "read docs/user/pinning-file.md",
	NotePermissions:    "give a kubeconfig that may get namespaces, or use kubectl partition status",
	NoteIsolated:       "take the CPUs out of isolcpus, or give the pool others, and restart the kubelet",
}

// Finding is one thing that an audit has found.
type Finding struct {
	Code Code `json:"code"`
	// Object names what is wrong: a container, a pod, a file.
	Object string `json:"object"`
	// Type is the workload type of the pod; "-" for an ordinary one, empty where there is no pod.
	Type string `json:"type,omitempty"`
	// Cgroup is the path below each controller.
	Cgroup string `json:"cgroup,omitempty"`
	// Message says what was observed, and what was expected.
	Message string `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`

	// identity distinguishes findings of the same code and object: tasks.
	identity string
	// task is the number of a task that was moved.
	task int
	// offSet means that something of a pod may run where it must not.
	offSet bool
}

// key is the same for the same finding of another walk.
func (f Finding) key() string {
	return strings.Join([]string{string(f.Code), f.Object, f.Cgroup, f.identity}, "\x00")
}

// judge returns what is wrong on the node. Pods that started or ended during the walk make it
// report what is not so; see [Audit].
func (n *node) judge() (findings []Finding) {
	defer func() {
		for i := range findings {
			findings[i].Remedy = remedies[findings[i].Code]
		}
	}()
	if n.poolsErr != nil {
		return append(findings, Finding{Code: CodePinningFile, Object: partition.PinningFilePath,
			Message: n.poolsErr.Error() + "; no container was judged"})
	}
	findings = append(findings, n.agreement()...)
	if n.pools == nil && !slices.ContainsFunc(n.pods, func(p *pod) bool { return p.workloadType != "" }) {
		return findings // an unpartitioned node
	}
	for _, g := range n.groups {
		findings = append(findings, n.judgePlacement(g)...)
		findings = append(findings, n.judgeWeight(g)...)
	}
	for _, p := range n.pods {
		if _, on := n.pools[p.workloadType]; p.workloadType != "" && !on {
			findings = append(findings, Finding{Code: CodeTypeOff, Object: "pod " + p.String(), Type: p.workloadType,
				Message: fmt.Sprintf("it is partitioned as %s, and the pinning file does not name that type", p.workloadType)})
		}
		if reason := n.reasonAgainst(p); reason != partition.NoReason {
			rule, _ := partition.RuleOf(reason)
			findings = append(findings, Finding{Code: CodeNotAllowed, Object: "pod " + p.String(), Type: p.workloadType,
				Message: fmt.Sprintf("it is partitioned as %s, and has no right to be: %s. Admission would not have let it in: it is older, or got past it, or the namespace allowed the type once", p.workloadType, rule.Text)})
		}
	}
	findings = append(findings, n.judgeClasses()...)
	findings = append(findings, n.withoutCgroup()...)
	return append(findings, n.moved()...)
}

// agreement compares the pinning file with what the kubelet, the CPU manager and CRI-O have.
func (n *node) agreement() (findings []Finding) {
	add := func(code Code, object, format string, args ...any) {
		findings = append(findings, Finding{Code: code, Object: object, Message: fmt.Sprintf(format, args...)})
	}
	pooled := n.pools.Union()
	recordPath := filepath.Join(n.kubelet.Root, partition.RecordName)
	switch {
	case n.pools == nil && n.record != nil:
		add(CodeNotInForce, partition.PinningFilePath, "the file is gone, and the kubelet's record %s still has the pools %s", recordPath, n.record.ReservedCPUs)
	case n.record != nil && n.record.ReservedCPUs != pooled.String():
		add(CodeNotInForce, partition.PinningFilePath, "the file has pools of the CPUs %q, and the kubelet started with %q (%s)", pooled, n.record.ReservedCPUs, recordPath)
	case pooled.IsEmpty():
	case n.record == nil:
		add(CodeNotInForce, partition.PinningFilePath, "the file has the pools %s, and there is no record %s of a kubelet that started with it", pooled, recordPath)
	case len(n.record.Sets) > 0: // an earlier version wrote none
		for _, workloadType := range n.pools.Types() {
			if pool := n.pools[workloadType]; !pool.IsEmpty() && !slices.Contains(n.record.Sets, pool.String()) {
				add(CodeNotInForce, partition.PinningFilePath, "the file has the pool %s for workload type %s, and the kubelet started without such a pool (%s)", pool, workloadType, recordPath)
			}
		}
	}
	if pooled.IsEmpty() {
		return append(findings, n.crio.disagreements(n.written)...)
	}
	if list := n.kubelet.reservedCPUs(); list != "" {
		reserved, err := partition.ParseCPUs(list)
		if missing := pooled.Difference(reserved); err != nil || !missing.IsEmpty() {
			add(CodeReservedCPUs, "kubelet configuration "+n.kubelet.Source, "reservedSystemCPUs is %q, and lacks CPU %s of the pools", list, missing)
		}
	}
	if value, off := n.kubelet.sharesReservedCPUs(); off {
		add(CodeStrict, "kubelet configuration "+n.kubelet.Source, "cpuManagerPolicyOptions has %s: %q, and the pools must not be shared", strictReservation, value)
	}
	path := filepath.Join(n.kubelet.Root, kubeletstate.CheckpointName)
	if shared := n.checkpoint.Shared.Intersection(pooled); n.checkpoint.Policy == partition.StaticPolicy && !shared.IsEmpty() {
		add(CodeCheckpoint, path, "the shared CPUs %s contain CPU %s of a pool", n.checkpoint.Shared, shared)
	}
	for _, a := range n.checkpoint.Assignments {
		if held := a.CPUs.Intersection(pooled); !held.IsEmpty() {
			add(CodeCheckpoint, path, "%s holds CPU %s of a pool exclusively", n.holder(a), held)
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return append(findings, n.crio.disagreements(n.written)...)
}

// holder names who holds exclusive CPUs.
func (n *node) holder(a partition.Assignment) string {
	name := "with UID " + a.Pod
	if i := slices.IndexFunc(n.pods, func(p *pod) bool { return p.uid == a.Pod }); i >= 0 {
		name = n.pods[i].String()
	}
	return a.Holder(name)
}

// judgePlacement compares where a cgroup and its tasks may run with where they must.
//
// Ordinary pods keep the cgroups and sandboxes that upstream gives them, which may use every CPU
// (design, section 6, the pod's cgroup); see [node.sandboxes]. In virtual machines these count.
func (n *node) judgePlacement(g *group) (findings []Finding) {
	cpus, why := n.may(g.pod, g.container.name)
	_, confined := n.confined(g.pod)
	pooled, code := n.pools.Union(), CodeOnPool
	switch {
	case confined:
		code = CodeOffPool
		if n.cgroups.v1 && g.kind != ofContainer {
			// A sandbox may have the union of the pools, and its pod's cgroup must hold that.
			cpus, why = pooled, "the pools"
		}
	case g.kind != ofContainer && !n.holdsAll(g):
		return nil
	case g.kind != ofContainer || !g.usage.effective.Intersection(pooled).IsEmpty():
		cpus, why = n.online.Difference(pooled), "the CPUs in no pool" // even where it holds one of a pool exclusively
	case !g.usage.effective.Intersection(n.hostAlone()).IsEmpty():
		code = CodeOnHost
	case !cpus.Equals(n.unpooled()):
		code = CodeOffExclusive
	}
	finding := Finding{Code: code, Object: g.object(), Type: g.pod.typeOrDash(), Cgroup: g.usage.Cgroup}
	if !g.usage.effective.IsSubsetOf(cpus) {
		finding.Message = fmt.Sprintf("it may use CPU %s, and must stay on %s, %s%s", g.usage.effective, why, cpus, g.whoGave(cpus))
		finding.offSet = true
		return append(findings, finding)
	}
	for _, id := range g.tasks {
		t, runs := n.tasks[id]
		// An affinity that was never narrowed has all CPUs that the host may ever have.
		if runs && !t.allowed.Intersection(n.online).IsSubsetOf(cpus) {
			task := finding
			task.Code, task.identity, task.offSet = CodeTaskOffSet, t.identity(), true
			task.Message = fmt.Sprintf("%s may use CPU %s, and must stay on %s, %s", t, t.allowed, why, cpus)
			findings = append(findings, task)
		}
	}
	return findings
}

// whoGave ends the message about a container that may use CPUs outside of these, if it is known who gave them. To an NRI
// plugin the runtime listens as to the kubelet: it has what it was asked for on record.
func (g *group) whoGave(cpus cpuset.CPUSet) string {
	switch c := g.container; {
	case !c.given.IsEmpty() && !c.given.IsSubsetOf(cpus):
		return fmt.Sprintf("; by its environment, a DRA driver gave it CPU %s: the driver's reserved CPUs must be those of the pools", c.given)
	case c.recorded.IsEmpty():
		return ""
	case c.recorded.IsSubsetOf(cpus):
		return fmt.Sprintf("; the runtime was asked for CPU %s, so someone has written the cgroup itself", c.recorded)
	default:
		return fmt.Sprintf("; the runtime was asked for CPU %s, by the kubelet or by an NRI plugin such as that of a DRA driver", c.recorded)
	}
}

// holdsAll reports whether a pod's cgroup or sandbox has tasks, and the cgroups of the pod's
// containers have none: a runtime with virtual machines keeps all there.
func (n *node) holdsAll(g *group) bool {
	return g.kind != helper && g.pod.handler != "" && len(g.tasks) > 0 && len(g.pod.containers) > 0 &&
		!slices.ContainsFunc(n.groups, func(other *group) bool {
			return other.pod == g.pod && other.kind == ofContainer && len(other.tasks) > 0
		})
}

func (t task) String() string {
	return fmt.Sprintf("task %d (%q) of process %d", t.id, t.comm, t.process)
}

func (t task) identity() string { return fmt.Sprintf("%d@%d", t.id, t.started) }

// withoutCgroup returns the running containers that have no cgroup on this host, so that nothing
// is proved about them. A runtime with virtual machines may keep all of a pod in its sandbox's
// or pod's cgroup.
func (n *node) withoutCgroup() (findings []Finding) {
	has := map[string]bool{}
	for _, g := range n.groups {
		has[g.container.id] = true
		if g.kind == wholePod && g.pod.handler != "" {
			for _, c := range g.pod.containers {
				has[c.id] = true
			}
		}
	}
	for _, p := range n.pods {
		for _, c := range p.containers {
			if !has[c.id] {
				findings = append(findings, Finding{Code: CodeNoCgroup, Object: fmt.Sprintf("container %s of pod %s", c.name, p), Type: p.typeOrDash(), identity: c.id,
					Message: fmt.Sprintf("the runtime says that it runs, and no cgroup below %s has its ID %s", n.cgroups.root, c.id)})
			}
		}
	}
	return findings
}

// moved returns the processes of containers that are in another cgroup. Those are the first
// process of each container, which the runtime knows, and all that are in its mount namespace:
// every container has its own. A thread may also be there alone.
func (n *node) moved() (findings []Finding) {
	hosts := n.host.hostNamespace()
	byNamespace := map[string]*group{}
	report := func(g *group, t task) {
		if _, partitioned := n.confined(g.pod); !partitioned && t.allowed.Intersection(n.pools.Union()).IsEmpty() {
			return // no pool is affected
		}
		findings = append(findings, Finding{Code: CodeMoved, Object: g.object(), Type: g.pod.typeOrDash(), Cgroup: g.usage.Cgroup, identity: t.identity(), task: t.id, offSet: true,
			Message: fmt.Sprintf("%s belongs to it, is in another cgroup, and may use CPU %s", t, t.allowed)})
	}
	inOwn := map[int]*group{}
	for _, g := range n.groups {
		for _, id := range g.tasks {
			inOwn[id] = g
		}
	}
	reported := map[int]bool{}
	for _, g := range n.groups {
		if g.kind != ofContainer || g.container.pid == 0 {
			continue
		}
		if namespace := n.host.mountNamespace(g.container.pid); namespace != "" && namespace != hosts {
			byNamespace[namespace] = g
		}
		// Its first process may be that of a virtual machine, in the sandbox.
		t, runs := n.tasks[g.container.pid]
		if in := inOwn[t.id]; runs && in != g && (g.pod.handler == "" || in == nil || in.pod != g.pod) {
			reported[t.id] = true
			report(g, t)
		}
	}
	for id, t := range n.tasks {
		if reported[id] {
			continue
		}
		if t.process != id { // a thread alone
			if g := inOwn[t.process]; g != nil && g.kind == ofContainer && inOwn[id] == nil {
				report(g, t)
			}
			continue
		}
		g, known := byNamespace[n.host.mountNamespace(id)]
		if !known || inOwn[id] == g {
			continue
		}
		// A runtime starts commands and helpers of a pod in cgroups of that pod.
		if in := inOwn[id]; in != nil && in.pod == g.pod {
			continue
		}
		report(g, t)
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.key(), b.key()) })
	return findings
}

// quotaSlack is by how much systemd may round a quota up, in millicores: it keeps them in steps of
// a hundredth of a CPU (opencontainers/cgroups, systemd/common.go, addCPUQuota).
const quotaSlack = 10

// judgeWeight compares the weight and quota of a partitioned container or pod with what it asked
// for. Of an exclusive container it looks at the quota alone.
func (n *node) judgeWeight(g *group) (findings []Finding) {
	add := func(code Code, format string, args ...any) {
		findings = append(findings, Finding{Code: code, Object: g.object(), Type: g.pod.typeOrDash(), Cgroup: g.usage.Cgroup, Message: fmt.Sprintf(format, args...)})
	}
	partitioned := g.pod.workloadType != ""
	switch {
	case g.kind == ofContainer && !partitioned:
		if held, whole, exclusively := n.checkpoint.Exclusive(g.pod.uid, g.container.name); exclusively && !whole && g.usage.Quota > 0 && g.usage.Quota < float64(held.Size()*1000) {
			add(CodeExclusiveQuota, "it has CPU %s exclusively, and a quota of %gm", held, g.usage.Quota)
		}
	case g.kind == ofContainer && g.container.asked != nil:
		asked := *g.container.asked
		weights := n.containerWeights(asked)
		if !slices.Contains(weights, g.usage.Weight) {
			add(CodeWeight, "its weight is %d; it asked for %dm, which makes %s", g.usage.Weight, asked.CPUShares, anyOf(weights))
		}
		n.judgeQuota(g, asked.CPULimit, asked.CPULimit, add)
	case g.kind == wholePod && partitioned:
		n.judgePod(g, add)
	}
	return findings
}

// containerWeights returns the weights that a container may have which asked for a CPU request in
// millicores: a runtime that is configured for the annotations writes their number as shares
// (design, section 7), and on cgroup v2 runtimes convert in an older way or a newer one.
func (n *node) containerWeights(asked partition.ContainerResources) (weights []int64) {
	for _, shares := range []int64{partition.SharesOf(asked.CPUShares), asked.CPUShares} {
		if n.cgroups.v1 {
			weights = append(weights, shares)
		} else {
			weights = append(weights, partition.WeightOf(shares), newerWeight(shares))
		}
	}
	slices.Sort(weights)
	return slices.Compact(weights)
}

func anyOf(weights []int64) string {
	texts := make([]string, len(weights))
	for i, weight := range weights {
		texts[i] = fmt.Sprint(weight)
	}
	return strings.Join(texts, " or ")
}

// judgePod checks the weight and quota of a pod's cgroup. Upstream computes them from the spec,
// which the runtime does not know: what the running containers asked for is the least, and what all
// containers did, ended init containers included, is the most.
func (n *node) judgePod(g *group, add func(Code, string, ...any)) {
	requests, limits, exact := bounds(g.pod)
	if g.pod.handler != "" {
		return // its RuntimeClass may add an overhead
	}
	least, most := n.podWeight(requests.least), n.podWeight(requests.most)
	if g.usage.Weight < least || g.usage.Weight > most {
		add(CodeWeight, "its weight is %d; its containers asked for %dm, which makes %s", g.usage.Weight, requests.most, span(least, most))
	}
	if exact {
		n.judgeQuota(g, limits.least, limits.most, add)
	}
}

func span(least, most int64) string {
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// podWeight returns the weight that the kubelet gives a pod, or a QoS class, for a request.
func (n *node) podWeight(millicores int64) int64 {
	if shares := partition.SharesOf(millicores); !n.cgroups.v1 {
		return partition.WeightOf(shares)
	}
	return partition.SharesOf(millicores)
}

type atLeastAtMost struct{ least, most int64 }

// bounds returns what a pod asked for, in millicores. OpenShift's annotations have 1024 for one CPU,
// so that the least is taken for such. Its limits are zero if a container has none. exact is false
// if they cannot be known: OpenShift's kubelet annotates no container without a request.
func bounds(p *pod) (requests, limits atLeastAtMost, exact bool) {
	unlimited := false
	for _, asked := range p.annotated() {
		requests.most += asked.CPUShares
		limits.most += asked.CPULimit
		unlimited = unlimited || asked.CPULimit == 0
	}
	exact = true
	for _, c := range p.containers {
		if c.asked == nil {
			exact = false
			continue
		}
		if c.asked.CPUShares > partition.MinShares { // at the minimum it may not have asked at all
			requests.least += c.asked.CPUShares * 1000 / 1024
		}
		limits.least += c.asked.CPULimit
	}
	if unlimited {
		limits = atLeastAtMost{}
	}
	return requests, limits, exact
}

// judgeQuota checks that a quota is between those for two CPU limits, in millicores; zero means no
// limit.
func (n *node) judgeQuota(g *group, least, most int64, add func(Code, string, ...any)) {
	period := 100 * time.Millisecond
	if n.kubelet.Config.CPUCFSQuotaPeriod != nil {
		period = cmp.Or(n.kubelet.Config.CPUCFSQuotaPeriod.Duration, period)
	}
	if enforced := n.kubelet.Config.CPUCFSQuota; enforced != nil && !*enforced {
		least, most = 0, 0
	}
	millicores := func(limit int64) float64 {
		return 1000 * float64(partition.QuotaOf(limit, period)) / float64(period.Microseconds())
	}
	switch {
	case most == 0 && g.usage.Quota > 0:
		add(CodeQuota, "it has a quota of %gm, and asked for none", g.usage.Quota)
	case most > 0 && g.usage.Quota == 0:
		add(CodeQuota, "it has no quota, and its limit is %dm", most)
	case most > 0 && (g.usage.Quota < millicores(least)-1 || g.usage.Quota >= millicores(most)+quotaSlack):
		add(CodeQuota, "its quota is %gm, and its limit is %dm", g.usage.Quota, most)
	}
}

// judgeClasses checks that the cgroup of a QoS class weighs at least as much as the partitioned
// pods in it asked for; what ordinary pods asked for is not known here.
func (n *node) judgeClasses() (findings []Finding) {
	least := map[string]int64{}
	for _, g := range n.groups {
		if g.kind == wholePod && g.pod.workloadType != "" {
			requests, _, _ := bounds(g.pod)
			least[filepath.Dir(g.usage.Cgroup)] += requests.least
		}
	}
	for class, millicores := range least {
		usage, err := n.cgroups.usage(class)
		if err == nil && usage.Weight < n.podWeight(millicores) {
			findings = append(findings, Finding{Code: CodeClassWeight, Object: "QoS class " + filepath.Base(class), Cgroup: class,
				Message: fmt.Sprintf("its weight is %d, and the partitioned pods in it asked for %dm, which makes %d", usage.Weight, millicores, n.podWeight(millicores))})
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	return findings
}
