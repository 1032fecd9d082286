// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// Kubelet and runtime share a pool of two CPUs with the control plane and fifty partitioned pods,
// and thirty of these become busy. With the weight of all pods together, which kubectl partition
// render gives these daemons, the node stays Ready, no probe fails, and the control plane runs on.
func TestHostDaemonsOnThePool(t *testing.T) {
	// With pools the kubelet drops this, which would have given the daemons a weight.
	const reserved = "systemReserved: {cpu: 100m}\nsystemReservedCgroup: /system.slice\nenforceNodeAllocatable: [pods, system-reserved-compressible]\n"
	// With eight CPUs, an emulated VM would take a third longer to start the pods.
	topology := vm.Topology{Sockets: 1, Cores: 2, Threads: 2}
	n := bootNode(t, `{"management": {"cpuset": "0-1"}}`, vm.Config{Topology: topology}, host.Config{KubeletConfiguration: reserved})
	namespace := fixture.Namespace(t, n.client, "management")
	controlPlane, ready := n.controlPlane(t), n.ready(t)
	// Pods together weigh what they do on a host of 56 CPUs: systemd's own weight is a twentieth of that.
	const weight = "2031"
	n.run(t, "systemctl set-property --runtime kubepods.slice CPUWeight="+weight+"; systemctl set-property --runtime system.slice AllowedCPUs=0-1 CPUWeight="+weight)
	for _, daemon := range []string{"kubelet", "containerd"} {
		if list := n.run(t, "awk '$1 == \"Cpus_allowed_list:\" {print $2}' /proc/$(pidof -s "+daemon+")/status"); list != "0-1" {
			t.Fatalf("%s may use the CPUs %q, want 0-1", daemon, list)
		}
	}
	// An emulated CPU does a tenth of the work. With the weight of 100m, which each of the control
	// plane's pods requests, kube-apiserver could not answer in the kubelet's five seconds, so they get
	// that of 1000m. It is one among pods: the daemons' weight is that of all of them, as before.
	n.run(t, "for pod in $(cd /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice && echo *-pod*.slice); do systemctl set-property --runtime $pod CPUWeight=39; done")
	const all, busy, probed = 50, 30, 3
	// They become busy together: with busy ones, an emulated VM starts a pod in minutes. Until
	// then they wait until the other end of a pipe is opened.
	const directory = "/run/e2e-daemons"
	n.run(t, "mkdir -p "+directory+" && mkfifo "+directory+"/begin")
	waiting := func(ctx context.Context, want int) error {
		count, err := n.Run(ctx, "{ grep -sl wait_for_partner /proc/[0-9]*/wchan || true; } | wc -l")
		if err == nil && count != strconv.Itoa(want) {
			err = fmt.Errorf("%s processes wait at a pipe, want %d", count, want)
		}
		return err
	}
	begin := time.Now()
	for i := range all {
		name, script, requests := "idle-"+strconv.Itoa(i), "exec sleep 1000000", "cpu=10m memory=4Mi"
		switch {
		case i < busy:
			name, script = "busy-"+strconv.Itoa(i), "read line </signal/begin; "+fixture.Busy
		case i < busy+probed:
			name, requests = "probed-"+strconv.Itoa(i), "cpu=100m memory=4Mi" // what the probe itself needs under emulation
		}
		c := fixture.Container("c", script, requests, "")
		c.VolumeMounts = []v1.VolumeMount{{Name: "signal", MountPath: "/signal"}}
		if strings.HasPrefix(name, "probed-") {
			// The kubelet's own default is a second. An emulated VM needs some even when it is idle.
			c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 10, TimeoutSeconds: 10, FailureThreshold: 3}
		}
		p := fixture.Pod(name, asks, c)
		p.Spec.Volumes = []v1.Volume{{Name: "signal", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: directory}}}}
		n.create(t, namespace, p)
		// All at once are too many for an emulated VM: containerd would take longer for each
		// than the kubelet waits, and begin again.
		if i%10 == 9 {
			n.awaitRunning(t, 3*time.Minute)
		}
	}
	t.Logf("all of them run after %s", time.Since(begin).Round(time.Second))
	n.expectPlaced(t)
	waitFor(t, time.Minute, "the busy ones wait", func(ctx context.Context) error { return waiting(ctx, busy) })
	n.run(t, ": >"+directory+"/begin")
	waitFor(t, time.Minute, "all of them are busy", func(ctx context.Context) error { return waiting(ctx, 0) })
	const period = 4 * time.Minute
	before := n.probes(t)
	time.Sleep(period) // the period in which all of it must hold
	after := n.probes(t)
	count, failed := after.count-before.count, after.failed-before.failed
	t.Logf("%.0f probes, %.0f of them failed; %.2f s each; pressure on the daemons: %s", count, failed, (after.seconds-before.seconds)/count,
		n.run(t, "cat /sys/fs/cgroup/system.slice/cpu.pressure 2>&1 || true"))
	n.expectReadySince(t, ready)
	if got := n.run(t, "cd /sys/fs/cgroup && cat kubepods.slice/cpu.weight system.slice/cpu.weight"); got != weight+"\n"+weight {
		t.Errorf("the weights of kubepods.slice and system.slice were %s, and are %q", weight, got)
	}
	if failed > 0 || count < period.Seconds()/10*probed/2 {
		t.Errorf("%.0f probes failed of %.0f, want none, and one for each pod in ten seconds", failed, count)
	}
	if now := n.controlPlane(t); fmt.Sprint(now) != fmt.Sprint(controlPlane) {
		t.Errorf("the containers of the control plane were %q, and are %q", controlPlane, now)
	}
	for _, p := range n.awaitRunning(t, time.Minute) {
		if p.Namespace == namespace && p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s was restarted", p.Name)
		}
	}
	n.expectPlaced(t)
}

type probes struct{ count, seconds, failed float64 }

// probes returns what the kubelet counts of liveness probes of pods named probed-*.
func (n *node) probes(t *testing.T) (sum probes) {
	t.Helper()
	var data []byte
	// kube-apiserver shares the pool with the busy pods, so a connection to it may time out.
	waitFor(t, time.Minute, "the kubelet's metrics can be read", func(ctx context.Context) (err error) {
		data, err = n.client.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Name()).SubResource("proxy").Suffix("metrics/probes").DoRaw(ctx)
		return err
	})
	for _, series := range regexp.MustCompile(`(?m)^(prober_probe_[a-z_]+)\{(.*pod="probed-.*)\} (\S+)$`).FindAllStringSubmatch(string(data), -1) {
		value, err := strconv.ParseFloat(series[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case series[1] == "prober_probe_duration_seconds_count":
			sum.count += value
		case series[1] == "prober_probe_duration_seconds_sum":
			sum.seconds += value
		case series[1] == "prober_probe_total" && strings.Contains(series[2], `result="failed"`):
			sum.failed += value
		}
	}
	return sum
}
