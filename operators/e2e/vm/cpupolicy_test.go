// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/operators/e2e/internal/rig"
)

func TestNodesWithSystemdSwitchTheirCPUManagerPolicy(t *testing.T) {
	runRows(t, "cpupolicy", []row{
		{"a Guaranteed pod gets CPUs of its own, and gives them back", stories},
		{"what would keep the kubelet down is refused", refusals},
		{"a kubelet that exits under the new policy is rolled back", rollBack},
		{"the agent is killed at each step", killedAtEachStep},
		{"the agent is killed at random instants", killedAtRandom},
		{"the power fails", powerFails},
		{"jobs, controllers and annotations come and go", disorder},
		{"a person switches in a browser", inBrowser},
		{"rke2 runs the kubelet", rke2},
		{"of two nodes of the control plane one switches at a time", controlPlane},
		{"pods move to a second static node", secondNode},
	})
}

// Seed stories 1 and 2, and meanwhile a partitioned container, which never leaves its pool.
func stories(t *testing.T, s *site) {
	n := s.first()
	partitioned := n.StartPod(t, rig.Pod("partitioned", rig.Partitioned, "cpu=100m memory=16Mi", ""))
	ordinary := n.StartPod(t, rig.Pod("ordinary", nil, "memory=16Mi", ""))
	ended := n.trace(t, "partitioned")

	n.Change(t, "static")
	exclusive := n.StartPod(t, rig.Pod("exclusive", nil, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi"))
	own := n.CPUsOf(t, exclusive)
	if own.Size() != 2 || !own.IsSubsetOf(shared) {
		t.Errorf("the pod has CPUs %s, want two of %s", own, shared)
	}
	n.WaitFor(t, n.Limit, "the ordinary pod has the rest", func() error { return n.Has(t, ordinary, shared.Difference(own)) })
	if err := n.Request(t.Context(), "none"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), rig.PodNamespace+"/exclusive") {
		t.Errorf("the request gives %v, want a conflict that names the pod", err)
	}
	n.RemovePod(t, "exclusive")
	n.Change(t, "none")
	if err := n.Has(t, ordinary, shared); err != nil {
		t.Error(err)
	}

	if err := n.Has(t, partitioned, pool); err != nil {
		t.Error(err)
	}
	inside, outside := ended()
	t.Logf("during both switches the partitioned container began to run %d times on its pool and %d times elsewhere", inside, outside)
	if inside == 0 || outside != 0 {
		t.Error("it must never run elsewhere")
	}
	n.RemovePod(t, "partitioned")
	n.RemovePod(t, "ordinary")
}

// trace has the kernel note each time that a process of a name begins to run. What it returns gives how
// often that was on the pool and elsewhere.
func (n *node) trace(t *testing.T, process string) (ended func() (inside, outside int)) {
	t.Helper()
	n.Run(t, fmt.Sprintf(`mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
for instance in inside:1 outside:e; do
  cd /sys/kernel/tracing; mkdir instances/${instance%%:*}; cd instances/${instance%%:*}
  echo ${instance#*:} > tracing_cpumask
  echo 'next_comm == "%s"' > events/sched/sched_switch/filter
  echo 1 > events/sched/sched_switch/enable
done`, process))
	return func() (inside, outside int) {
		t.Helper()
		output := n.Run(t, `for instance in inside outside; do
  cd /sys/kernel/tracing/instances/$instance; echo 0 > tracing_on; grep -vc '^#' trace
  cd ..; rmdir $instance
done; true`)
		if _, err := fmt.Sscan(output, &inside, &outside); err != nil {
			t.Fatalf("%q: %v", output, err)
		}
		return inside, outside
	}
}

func refusals(t *testing.T, s *site) {
	n := s.first()
	n.Change(t, "static")
	t.Run("options beside none", func(t *testing.T) {
		n.write(t, dropIns+"/50-options.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n")
		before, message := n.kubelet(t), ""
		if err := n.Request(t.Context(), "none"); err != nil {
			message = err.Error()
		} else {
			message = n.AwaitStatus(t, "failed").Message
		}
		if want := dropIns + "/50-options.conf:3"; !strings.Contains(message, want) {
			t.Errorf("it is refused with %q, want %q in it", message, want)
		}
		if after := n.kubelet(t); after != before {
			t.Errorf("the kubelet was process %s and is %s: it was stopped", before, after)
		}
		n.Run(t, "rm "+dropIns+"/50-options.conf")
	})
	if err := n.Request(t.Context(), "none"); err != nil && !strings.Contains(err.Error(), "has the node observed again") {
		t.Errorf("the refusal %q does not say when the node is observed again", err)
	}
	n.WaitFor(t, n.Limit, "who has repaired the node may ask", func() error { return n.Request(t.Context(), "none") })
	n.AwaitStatus(t, "complete")
	n.InForce(t, "none")
	t.Run("the policy as a flag", func(t *testing.T) {
		const unit = "/etc/systemd/system/kubelet.service.d/zz-flag.conf"
		n.Run(t, `{ printf '[Service]\nExecStart=\n'; sed -n 's/^ExecStart=\(..*\)/ExecStart=\1 --cpu-manager-policy=none/p' /etc/systemd/system/kubelet.service.d/99-partition-agent-config-dir.conf; } > `+unit)
		n.restart(t)
		if observed := n.observe(t); !strings.Contains(observed, unit+":") || !strings.Contains(observed, "--cpu-manager-policy=none overrides every drop-in") {
			t.Errorf("it is observed as %s, want a refusal with %s", observed, unit)
		}
		n.Run(t, "rm "+unit)
		n.restart(t)
	})
	n.AwaitReady(t)
}

// A failure that nobody can foresee: a reservation appears when the kubelet starts. It is of memory, since that of
// CPU is the pool.
func rollBack(t *testing.T, s *site) {
	n := s.first()
	const unit = "/etc/systemd/system/kubelet.service.d/20-breaks.conf"
	n.write(t, "/usr/local/sbin/breaks", `#!/bin/sh
cd `+dropIns+`
rm -f 50-breaks.conf
grep -q 'cpuManagerPolicy: static' `+rig.DropIn+` || exit 0
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nkubeReserved: {memory: 64Ti}\n' > 50-breaks.conf
`)
	n.Run(t, `chmod 700 /usr/local/sbin/breaks; printf '[Service]\nExecStartPre=/usr/local/sbin/breaks\n' > `+unit+`; systemctl daemon-reload`)
	n.MustRequest(t, "static")
	begin := time.Now()
	ended := n.AwaitStatus(t, "failed")
	t.Logf("from the request to the end of a roll-back: %s: %s", time.Since(begin).Round(time.Second), ended.Message)
	for _, part := range []string{"rolled back, the policy in force is none", "reserv"} {
		if !strings.Contains(ended.Message, part) {
			t.Errorf("the message is %q, want one with %q", ended.Message, part)
		}
	}
	n.InForce(t, "none")
	n.Run(t, "rm "+unit+"; systemctl daemon-reload")
}

// result is the agent's.
type result struct{ Outcome, Step, Policy, Message string }

// switchAlone has the agent switch the policy, without a controller, while something else happens to it.
func (n *node) switchAlone(t *testing.T, policy, meanwhile string) (r result) {
	t.Helper()
	request := fmt.Sprintf(`{"id":"test-%d","policy":"%s","driver":"kubelet"}`, time.Now().UnixNano(), policy)
	begin := time.Now()
	output := n.Run(t, "{ "+meanwhile+"\n} > /tmp/meanwhile 2>&1 &\n"+agent+"run --request='"+request+"' --termination-log=/tmp/result >/tmp/run 2>&1; wait; cat /tmp/meanwhile >&2; cat /tmp/result")
	if err := json.Unmarshal([]byte(output), &r); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Logf("%s for %s: %+v; %s", time.Since(begin).Round(time.Second), policy, r, n.Run(t, "cat /tmp/meanwhile"))
	if r.Outcome == "failed" {
		t.Errorf("the result is %+v", r)
	}
	if left := n.Run(t, "ls -d /etc/systemd/system/partition-agent-* /etc/systemd/system/kubelet.service.wants/* 2>/dev/null || true"); left != "" {
		t.Errorf("the host unit is still there: %s", left)
	}
	n.Run(t, `grep -q '"policyName":"`+r.Policy+`"' `+n.KubeletDir+`/cpu_manager_state`)
	return r
}

// Forward and back: none of the steps is one in which an agent may not die.
func killedAtEachStep(t *testing.T, s *site) {
	n := s.first()
	for _, steps := range [][]string{{"stop"}, {"configure", "restore"}, {"checkpoint", "stopAgain"}, {"start", "startAgain"}, {"healthy", "healthyAgain"}, {"verify"}} {
		t.Run(strings.Join(steps, " and "), func(t *testing.T) {
			var kills []string
			for _, step := range steps {
				kills = append(kills, "/payload/vm.test "+asKiller+" "+step)
			}
			if r := n.switchAlone(t, "static", strings.Join(kills, "; ")); r.Outcome == "succeeded" {
				// It was over before the kill.
				t.Error("nothing was killed in time")
			}
		})
	}
	t.Run("widen", func(t *testing.T) {
		n.switchAlone(t, "static", "true")
		if r := n.switchAlone(t, "none", "/payload/vm.test "+asKiller+" widen"); r.Outcome != "succeeded" {
			t.Errorf("a switch that was verified is not finished: %+v", r)
		}
	})
	n.AwaitReady(t)
}

func killedAtRandom(t *testing.T, s *site) {
	n := s.first()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// A whole switch says when there is something to kill.
	begin := time.Now()
	n.switchAlone(t, "static", "true")
	whole, policy, killed := time.Since(begin).Seconds(), "static", 0
	for range 4 {
		next := map[string]string{"none": "static", "static": "none"}[policy]
		meanwhile := fmt.Sprintf("sleep %.2f; echo 1 > /sys/fs/cgroup/system.slice/partition-agent-cpu-policy.service/cgroup.kill && echo killed", whole*random.Float64())
		if r := n.switchAlone(t, next, meanwhile); r.Outcome == "succeeded" {
			policy = next
		}
		if strings.HasSuffix(n.Run(t, "cat /tmp/meanwhile"), "killed") {
			killed++
		}
	}
	if killed == 0 {
		t.Errorf("in %.0f seconds, which a whole switch takes, no agent was there that could be killed", whole)
	}
	if policy == "static" {
		n.switchAlone(t, "none", "true")
	}
	n.AwaitReady(t)
}

// The power is cut while the new kubelet starts. After the boot the operation is ended before a kubelet
// starts, and the controller learns how.
func powerFails(t *testing.T, s *site) {
	n := s.first()
	n.MustRequest(t, "static")
	n.AwaitStep(t, "healthy")
	n.reset(t)
	ended := n.AwaitEnd(t)
	t.Logf("after the boot it has ended with %+v", ended)
	log := n.Run(t, "journalctl --boot --output=cat --unit=partition-agent-cpu-policy.service --unit=kubelet.service _PID=1")
	agent, kubelet := strings.Index(log, "Started partition-agent-cpu-policy"), strings.Index(log, "Started kubelet")
	if agent < 0 || kubelet < agent {
		t.Errorf("the kubelet did not wait for the agent: %s", log)
	}
	switch {
	case ended.Status == "complete":
		n.InForce(t, "static")
		n.Change(t, "none")
	case strings.Contains(ended.Message, "rolled back, the policy in force is none"):
		n.InForce(t, "none")
	default:
		t.Errorf("it is neither done nor undone: %+v", ended)
	}
}

// Nothing that people do meanwhile disturbs an operation, and an operation disturbs no other update
// of its node.
func disorder(t *testing.T, s *site) {
	n := s.first()
	agents := rig.Namespace + "-agent"
	n.MustRequest(t, "static")
	n.WaitFor(t, n.SwitchLimit, "the operation is under way", func() error {
		if u := n.Status(t); u.Status != "running" {
			return fmt.Errorf("it is %+v", u)
		}
		return nil
	})
	if err := n.Request(t.Context(), "none"); !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
		t.Errorf("another request meanwhile gives %v, want a refusal", err)
	}
	n.Call(t, "delete", "jobs", "--namespace="+agents, "--all", "--wait=false")
	n.Call(t, "delete", "pods", "--namespace="+rig.Namespace, "--selector=app=partition-controller", "--force", "--grace-period=0")
	if _, err := n.Client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/meanwhile":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another update of the node: %v", err)
	}
	if ended := n.AwaitStatus(t, "complete"); ended.Policy != "static" {
		t.Errorf("it has ended with %+v", ended)
	}
	n.InForce(t, "static")
	for _, value := range []string{"nonsense", `{"status":"complete","policy":"none"}`, `{"status":"requested","policy":"dynamic"}`} {
		if err := n.Annotate(t.Context(), value); err == nil {
			t.Errorf("annotation %s is accepted", value)
		}
	}
	n.Change(t, "none")
}

// rke2 runs the kubelet: a unit rke2-agent that starts it with the arguments of its configuration.
func rke2(t *testing.T, s *site) {
	n := s.first()
	n.write(t, "/usr/local/bin/rke2-agent", `#!/bin/bash
# As rke2 does: arguments for the kubelet from the configuration and its drop-ins, in their order. A key with a plus adds
# to them, and one without replaces them (k3s, pkg/configfilearg, parser.go).
shopt -s nullglob
args=$(awk '
/^[a-z]/ {ours = /^kubelet-arg[+]?:/}
/^kubelet-arg:/ {count = 0}
ours && sub(/^ *- *"?/, "") {sub(/"$/, ""); args[count++] = "--" $0}
END {for (i = 0; i < count; i++) print args[i]}' /etc/rancher/rke2/config.yaml /etc/rancher/rke2/config.yaml.d/*.yaml)
trap 'kill $kubelet; wait $kubelet; exit' TERM
mkdir -p /var/lib/rancher/rke2/agent/logs
"$@" $args >>/var/lib/rancher/rke2/agent/logs/kubelet.log 2>&1 & kubelet=$!
wait $kubelet
`)
	n.write(t, "/etc/rancher/rke2/config.yaml", "kubelet-arg:\n- \"v=2\"\n- \"max-pods=77\"\n")
	n.write(t, "/etc/rancher/rke2/config.yaml.d/50-own.yaml", "kubelet-arg:\n- \"v=3\"\n")
	n.Run(t, `chmod 755 /usr/local/bin/rke2-agent
command=$(sed -n 's/^ExecStart=\(..*\)/\1/p' /etc/systemd/system/kubelet.service)
printf '[Unit]\nAfter=containerd.service\n[Service]\nExecStart=/usr/local/bin/rke2-agent %s\nRestart=always\nKillMode=mixed\nDelegate=yes\n' "$command" > /etc/systemd/system/rke2-agent.service
systemctl daemon-reload; systemctl stop kubelet; systemctl start rke2-agent`)
	n.Install(t, "../..", "rke2")
	const dropIn = "/etc/rancher/rke2/config.yaml.d/99-z01-harvester-cpu-manager.yaml"
	for _, policy := range []string{"static", "none"} {
		n.MustRequest(t, policy)
		n.AwaitStatus(t, "complete")
		if content := n.Run(t, "cat "+dropIn); !strings.Contains(content, "cpu-manager-policy="+policy) {
			t.Errorf("the drop-in is %q, want the policy %s", content, policy)
		}
		n.Run(t, `grep -q '"policyName":"`+policy+`"' `+n.KubeletDir+`/cpu_manager_state`)
		// The administrator's drop-in replaces the configuration, and the companion's takes nothing from it.
		flags := strings.Split(n.Run(t, `tr '\0' '\n' </proc/$(pidof -s kubelet)/cmdline`), "\n")
		if !slices.Contains(flags, "--v=3") || slices.Contains(flags, "--max-pods=77") || !slices.Contains(flags, "--cpu-manager-policy="+policy) {
			t.Errorf("rke2's kubelet has the flags %q, want v=3, the policy %s, and no max-pods", flags, policy)
		}
	}
	n.Run(t, "systemctl stop rke2-agent; rm -r /etc/systemd/system/rke2-agent.service /etc/rancher; systemctl daemon-reload; systemctl start kubelet")
	n.Install(t, "../..", "kubelet")
	n.AwaitReady(t)
}

func controlPlane(t *testing.T, s *site) {
	second := s.second()
	nodes := []*node{s.first(), second}
	var errs [2]error
	var both sync.WaitGroup
	for i, n := range nodes {
		both.Go(func() { errs[i] = n.Request(t.Context(), "static") })
	}
	both.Wait()
	// A webhook that sees the holder refuses the request. If none did, the controller lets one of the two fail.
	const lock = "the lock of the control plane"
	var won, lost []*node
	for i, n := range nodes {
		if errs[i] != nil {
			if !apierrors.IsConflict(errs[i]) || !strings.Contains(errs[i].Error(), lock) {
				t.Fatalf("the request gives %v, want a refusal for %s", errs[i], lock)
			}
			lost = append(lost, n)
			continue
		}
		switch ended := n.AwaitEnd(t); {
		case ended.Status == "complete":
			won = append(won, n)
		case strings.Contains(ended.Message, lock):
			lost = append(lost, n)
		default:
			t.Fatalf("node %s has ended with %+v, want static, or a failure for %s", n.Name, ended, lock)
		}
	}
	if len(won) != 1 || len(lost) != 1 {
		t.Fatalf("%d of two nodes were switched at once: the requests gave %v", len(won), errs)
	}
	lost[0].Change(t, "static")
	for _, n := range nodes {
		n.Change(t, "none")
	}
}

// What a migration of a virtual machine means for the kubelets: a Guaranteed pod is re-created on another
// static node.
func secondNode(t *testing.T, s *site) {
	second, first := s.second(), s.first()
	for _, n := range []*node{first, second} {
		n.Change(t, "static")
	}
	source := first.StartPod(t, guaranteed("source", first))
	before := first.CPUsOf(t, source)
	target := second.StartPod(t, guaranteed("target", second))
	if own := second.CPUsOf(t, target); own.Size() != 2 || !own.IsSubsetOf(shared) {
		t.Errorf("the target has CPUs %s, want two of %s", own, shared)
	}
	pods := first.Client.CoreV1().Pods(rig.PodNamespace)
	if _, err := pods.Create(t.Context(), guaranteed("full", second), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first.WaitFor(t, first.Limit, "the pod without a place is Pending", func() error {
		pod, err := pods.Get(t.Context(), "full", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Reason == "Unschedulable" {
				return nil
			}
		}
		return fmt.Errorf("it is %s on %q, with %v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
	})
	if err := first.Has(t, source, before); err != nil {
		t.Error(err)
	}
	// The source ends, and another one takes its place.
	first.RemovePod(t, "source")
	if own := first.CPUsOf(t, first.StartPod(t, guaranteed("again", first))); own.Size() != 2 || !own.IsSubsetOf(shared) {
		t.Errorf("the pod that was created again has CPUs %s, want two of %s", own, shared)
	}
	for _, name := range []string{"again", "full", "target"} {
		first.RemovePod(t, name)
	}
	for _, n := range []*node{first, second} {
		n.Change(t, "none")
	}
}

// guaranteed returns a pod for a node that gets two CPUs of its own.
func guaranteed(name string, on *node) *corev1.Pod {
	pod := rig.Pod(name, nil, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: on.Name}
	return pod
}
