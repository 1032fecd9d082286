// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/operators/e2e/internal/rig"
)

const (
	msgmnb = "/proc/sys/kernel/msgmnb"
	// statInterval is 1 by default, and 10 with a PerformanceProfile.
	statInterval = "/proc/sys/vm/stat_interval"
	// configured is a file that a MachineConfig of the pool brings.
	configured = "/etc/of-the-pool"
)

// aTuned has a section of a profile for all nodes. A PerformanceProfile wins over it.
func aTuned(name, sections string) string {
	return "apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata: {name: " + name + "}\nspec:\n  profile:\n  - name: " + name + "\n    data: |\n      " +
		strings.ReplaceAll(sections, "\n", "\n      ") + "\n  recommend: [{profile: " + name + ", priority: 30}]\n"
}

// The configurations of the pool.
var (
	nothing    = configuration{name: "nothing", profile: "openshift-node"}
	withSysctl = configuration{name: "a-sysctl", profile: "a-sysctl", tuned: aTuned("a-sysctl", "[sysctl]\nkernel.msgmnb=65536")}
	// The second argument is computed, by a function that TuneD has built in.
	withArguments = configuration{name: "arguments", profile: "arguments", tuned: aTuned("arguments", "[sysctl]\nkernel.msgmnb=70000\n[bootloader]\ncmdline=skew_tick=1 nohz_full=${f:cpulist_online:1,3}")}
	partitioned   = configuration{name: "a-performance-profile", profile: "openshift-node-performance-edge", tuned: withArguments.tuned, performance: `apiVersion: performance.openshift.io/v2
kind: PerformanceProfile
metadata: {name: edge}
spec:
  cpu: {reserved: 0-1, isolated: 2-3}
`, config: `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: a-file}
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - {path: ` + configured + `, mode: 420, contents: {source: "data:,as%20configured"}}
`}
	otherwise = configuration{name: "another-performance-profile", profile: partitioned.profile, tuned: withArguments.tuned, config: partitioned.config,
		performance: strings.Replace(partitioned.performance, "reserved: 0-1, isolated: 2-3", "reserved: \"0\", isolated: 1-3", 1)}
	// One that is the same on each machine.
	ofAnotherPool = configuration{name: "of-another-pool", profile: "of-another-pool", tuned: aTuned("of-another-pool", "[bootloader]\ncmdline=workqueue.power_efficient=1")}
	deferred      = configuration{name: "later", profile: "later",
		tuned: strings.Replace(aTuned("later", "[sysctl]\nkernel.msgmnb=80000"), "{name: later}", "{name: later, annotations: {tuned.openshift.io/deferred: always}}", 1)}
)

// link has the flags of the network interface by which a VM reaches its API server. They are 0x1002 once it is down.
const link = "/sys/class/net/eth1/flags"

// cutsOff cuts the node off from its API server. The tests reach both another way.
var cutsOff = configuration{name: "cut-off", profile: "cut-off", tuned: aTuned("cut-off", "[sysfs]\n"+link+"=0x1002")}

// The whole way from a NodePool to the kernel of a real machine, whose boots are counted by their IDs.
func TestAPoolsChangeCostsAMachineAtMostOneBoot(t *testing.T) {
	var l *lab
	tried := false
	with := func(run func(*testing.T, *lab)) func(*testing.T, *site) {
		return func(t *testing.T, s *site) {
			if tried && l == nil {
				t.Fatal("there is no pool, for the reason that the first row gives")
			}
			if !tried {
				tried = true
				l = newLab(s)
			}
			run(t, l)
		}
	}
	runRows(t, "tuning", []row{
		{"a sysctl changes and nothing boots", with(sysctl)},
		{"kernel arguments come with one boot", with(kernelArguments)},
		{"a machine that is new to the pool has the arguments at its first boot", with(newMachine)},
		{"another image of the operand boots nothing", with(upgrade)},
		{"a PerformanceProfile makes a partitioned node with one boot", with(performanceProfile)},
		{"another PerformanceProfile makes the node another one with one boot", with(changedProfile)},
		{"what is removed goes with one boot", with(removed)},
		{"a deferred profile waits for the next boot", with(deferral)},
		{"a profile that cuts the node off is left out at the next boot", with(cutOff)},
		{"TuneD is killed and its profile is removed", with(tunedKilled)},
		{"without a configuration TuneD's profile openshift-node is in force", with(defaults)},
		{"machines that compute different arguments boot once they are in pools of their own", with(twoMachines)},
	})
}

func sysctl(t *testing.T, l *lab) {
	l.have(t, nothing)
	l.change(t, withSysctl, 0)
	l.await(t, msgmnb, "65536")
}

func kernelArguments(t *testing.T, l *lab) {
	l.have(t, withSysctl)
	if got := l.arguments(t); slices.Contains(got, "skew_tick=1") {
		t.Fatalf("the kernel has the arguments %q before", got)
	}
	l.change(t, withArguments, 1)
	l.tunedBeforePods(t)
	got := l.arguments(t)
	for _, want := range []string{"skew_tick=1", "nohz_full=1,3"} {
		if !slices.Contains(got, want) {
			t.Errorf("the kernel has the arguments %q, want %s", got, want)
		}
	}
	if list := l.read(t, "/sys/devices/system/cpu/nohz_full"); list != "1,3" {
		t.Errorf("the kernel's list nohz_full is %q, want 1,3", list)
	}
	l.await(t, msgmnb, "70000")
}

// The pool's configuration stays as it is, and nothing boots again.
func newMachine(t *testing.T, l *lab) {
	l.have(t, withArguments)
	pool, err := l.rendered(t)
	if err != nil {
		t.Fatal(err)
	}
	l.renew(t)
	if got := l.arguments(t); !slices.Equal(got, l.bare) {
		t.Fatalf("a machine of no pool has the kernel arguments %q, want %q", got, l.bare)
	}
	before := l.boots(t)
	if err := l.provider.Join(t.Context(), l.Name, l.pool); err != nil {
		t.Fatal(err)
	}
	l.settle(t)
	if after := l.boots(t); len(after) != len(before)+1 {
		t.Errorf("the boots were %q, and are %q, want one more", before, after)
	}
	if got := l.arguments(t); !slices.Contains(got, "skew_tick=1") || !slices.Contains(got, "nohz_full=1,3") {
		t.Errorf("the kernel has the arguments %q", got)
	}
	l.await(t, msgmnb, "70000")
	if now, err := l.rendered(t); err != nil || now.Annotations[target] != pool.Annotations[target] {
		t.Errorf("the pool's configuration is %s (%v), and was %s", now.Annotations[target], err, pool.Annotations[target])
	}
}

// What is generated for the pool is not written again.
func upgrade(t *testing.T, l *lab) {
	l.have(t, withArguments)
	pool, err := l.rendered(t)
	if err != nil {
		t.Fatal(err)
	}
	generated := func() string {
		return l.home.Call(t, "get", "configmap", "--namespace=clusters-hosted", "nto-mc-"+l.pool, "--output=jsonpath={.metadata.uid} {.metadata.resourceVersion}")
	}
	boots, stands := l.boots(t), generated()
	daemonSet := []string{"get", "daemonset", "--namespace=openshift-cluster-node-tuning-operator", "--output=jsonpath={.items[0].spec.template.spec.containers[0].image}"}
	before := l.Call(t, daemonSet...)
	next := before + "-next"
	l.Run(t, "/payload/tools/ctr --address=/run/workload-partitioning/containerd.sock --namespace=k8s.io images tag "+before+" "+next)
	for _, change := range [][2]string{{before, next}, {next, before}} {
		began := time.Now()
		l.reconfigure(t, "tuning", change[0], change[1])
		l.WaitFor(t, l.Limit, "the operand runs from "+change[1], func() error {
			got, err := l.Try(t, "", "get", "pods", "--namespace=openshift-cluster-node-tuning-operator", "--selector=openshift-app=tuned", "--field-selector=status.phase=Running", "--output=jsonpath={.items[*].spec.containers[0].image}")
			if err == nil && got != change[1] {
				err = fmt.Errorf("it runs from %s", got)
			}
			return err
		})
		l.settle(t)
		t.Logf("the operand runs from %s after %s", change[1], time.Since(began).Round(time.Second))
	}
	if after := l.boots(t); !slices.Equal(after, boots) {
		t.Errorf("the boots were %q, and are %q", boots, after)
	}
	if now := generated(); now != stands {
		t.Errorf("what is generated was %s, and is %s", stands, now)
	}
	if now, err := l.rendered(t); err != nil || now.Annotations[target] != pool.Annotations[target] {
		t.Errorf("the pool's configuration is %s (%v), and was %s", now.Annotations[target], err, pool.Annotations[target])
	}
}

// A machine of two CPUs computes other arguments than one of four, and neither boots.
func twoMachines(t *testing.T, l *lab) {
	l.have(t, nothing)
	l.forgetPools(t)
	other := l.second(t)
	first, second := l.boots(t), other.boots(t)
	l.configure(t, withArguments)
	const disagree = "False NodesDisagree node node-2 computes skew_tick=1 nohz_full=1, and others compute skew_tick=1 nohz_full=1,3; different kernel arguments need different NodePools"
	l.home.WaitFor(t, l.Limit, "the pool says that its nodes disagree", func() error {
		got, err := l.home.Try(t, "", "get", "nodepool", "--namespace=clusters", l.pool, `--output=jsonpath={range .status.conditions[?(@.type=="KernelArgumentsAgree")]}{.status} {.reason} {.message}{end}`)
		if err == nil && got != disagree {
			err = fmt.Errorf("it says %s", got)
		}
		return err
	})
	if done, err := l.provider.Step(t.Context()); err != nil || done {
		t.Errorf("the provider has something to do (%v)", err)
	}
	for _, each := range []*lab{l, other} {
		each.await(t, msgmnb, "70000") // needs no boot
	}
	if now := [][]string{l.boots(t), other.boots(t)}; !reflect.DeepEqual(now, [][]string{first, second}) {
		t.Errorf("the boots were %q and %q, and are %q", first, second, now)
	}

	// In a pool of its own each of them boots once.
	delete(l.provider.Machines, other.Name)
	if _, err := l.provider.Step(t.Context()); err != nil { // says that the machine is none of the first pool any more
		t.Fatal(err)
	}
	other.pool = "pool-b"
	if output, err := l.home.Try(t, `{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": {"name": "pool-b", "namespace": "clusters"},
		"spec": {"clusterName": "hosted", "management": {"upgradeType": "InPlace"}}}`, "apply", "--filename=-"); err != nil {
		t.Fatal(output, err)
	}
	other.configure(t, ofAnotherPool)
	l.home.WaitFor(t, l.Limit, "the second pool has a configuration to boot with", func() error {
		_, err := other.rendered(t)
		return err
	})
	if err := l.provider.Join(t.Context(), other.Name, other.pool); err != nil {
		t.Fatal(err)
	}
	l.settle(t)
	other.settle(t)
	for _, machine := range []struct {
		*lab
		boots    []string
		has, not string
	}{{l, first, "skew_tick=1 nohz_full=1,3", "workqueue"}, {other, second, "workqueue.power_efficient=1", "skew_tick"}} {
		if after := machine.lab.boots(t); len(after) != len(machine.boots)+1 {
			t.Errorf("the boots of %s were %q, and are %q, want one more", machine.Name, machine.boots, after)
		}
		if got := strings.Join(machine.arguments(t), " "); !strings.Contains(got, machine.has) || strings.Contains(got, machine.not) {
			t.Errorf("%s has the kernel arguments %s, want %s", machine.Name, got, machine.has)
		}
	}
	if got := other.read(t, "/sys/module/workqueue/parameters/power_efficient"); got != "Y" {
		t.Errorf("the second machine's work queues save power: %s", got)
	}
}

// forgetPools does what docs/user/switch-off.md says for a cluster in which no node will have a pool again. Pods that ask for one
// then run on nodes that join without it.
func (l *lab) forgetPools(t *testing.T) {
	t.Helper()
	l.WaitFor(t, l.Limit, "no node reports cores", func() error {
		capacity, err := l.Try(t, "", "get", "nodes", "--output=jsonpath={.items[*].status.capacity}")
		if err == nil && regexp.MustCompile(`workload\.openshift\.io/cores":"[1-9]`).MatchString(capacity) {
			err = fmt.Errorf("a node has %s", capacity)
		}
		return err
	})
	if output, err := l.Try(t, "", "annotate", "namespace", "kube-system", "workload.openshift.io/enabled-"); err != nil {
		t.Fatal(output, err)
	}
}

// tunedBeforePods checks that the unit of the host has applied a profile before this boot's kubelet started.
func (l *lab) tunedBeforePods(t *testing.T) {
	t.Helper()
	log := l.Run(t, "journalctl --boot --output=short-monotonic --no-hostname --no-pager --unit=partition-tuned.service --unit=kubelet.service _PID=1; journalctl --boot --output=short-monotonic --no-hostname --no-pager --unit=partition-tuned.service --grep='applied the profile'")
	tuned, kubelet := strings.Index(log, "Finished partition-tuned.service"), strings.Index(log, "Started kubelet")
	if tuned < 0 || kubelet < tuned || !strings.Contains(log, "TuneD has applied the profile") {
		t.Errorf("TuneD's profile was not applied before the kubelet started: %s; the unit says %s", log, l.Run(t, "journalctl --boot --output=cat --no-pager --unit=partition-tuned.service"))
		return
	}
	t.Logf("before pods: %s", log)
}

const (
	pinningFile = "/etc/kubernetes/openshift-workload-pinning"
	crioDropIn  = "/etc/crio/crio.conf.d/01-workload-partitioning"
	kubeletFile = dropIns + "/01-workload-partitioning.conf"
)

// configz returns fields of the configuration with which the kubelet runs.
func (l *lab) configz(t *testing.T) (c struct {
	ReservedSystemCPUs, CPUManagerPolicy string
	CPUManagerPolicyOptions              map[string]string
}) {
	t.Helper()
	var answer struct{ KubeletConfig json.RawMessage }
	err := json.Unmarshal([]byte(l.Call(t, "get", "--raw=/api/v1/nodes/"+l.Name+"/proxy/configz")), &answer)
	if err == nil {
		err = json.Unmarshal(answer.KubeletConfig, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func performanceProfile(t *testing.T, l *lab) {
	l.have(t, withArguments)
	l.change(t, partitioned, 1)
	l.tunedBeforePods(t)
	if got := l.arguments(t); slices.Contains(got, "skew_tick=1") {
		t.Errorf("the kernel has the arguments %q, of a profile that is not the pool's any more", got)
	}
	if got := l.read(t, configured); got != "as configured" { // came with the same boot
		t.Errorf("%s is %q", configured, got)
	}
	l.agree(t, "0-1", "2-3", "3")
}

func changedProfile(t *testing.T, l *lab) {
	l.have(t, partitioned)
	l.change(t, otherwise, 1)
	l.agree(t, "0", "1-3", "1")
}

// agree checks that pinning file, CRI-O's drop-in, the kubelet, the kernel and TuneD have the same CPUs, as far as the machine itself
// says. mask has the reserved ones in hexadecimal.
func (l *lab) agree(t *testing.T, reserved, isolated, mask string) {
	t.Helper()
	got := l.arguments(t)
	for _, want := range []string{"irqaffinity=" + reserved, "isolcpus=managed_irq," + isolated, "rcu_nocbs=" + isolated, "nohz_full=" + isolated, "nosoftlockup", "tsc=reliable"} {
		if !slices.Contains(got, want) {
			t.Errorf("the kernel has the arguments %q, want %s", got, want)
		}
	}
	for path, want := range map[string]string{
		"/sys/devices/system/cpu/nohz_full": isolated,
		// isolcpus without domain keeps interrupts away, and leaves CPUs to the scheduler: containers share them.
		"/sys/devices/system/cpu/isolated": "",
		"/proc/irq/default_smp_affinity":   mask,
	} {
		if content := l.read(t, path); content != want {
			t.Errorf("%s is %q, want %q", path, content, want)
		}
	}
	quoted := strconv.Quote(reserved)
	for path, want := range map[string]string{pinningFile: `"cpuset": ` + quoted, crioDropIn: "infra_ctr_cpuset = " + quoted} {
		if content := l.read(t, path); !strings.Contains(content, want) {
			t.Errorf("%s is\n%s\nwithout %s", path, content, want)
		}
	}
	if c := l.configz(t); c.ReservedSystemCPUs != reserved || c.CPUManagerPolicy != "static" || c.CPUManagerPolicyOptions["strict-cpu-reservation"] != "true" {
		t.Errorf("the kubelet runs with %+v", c)
	}
	var checkpoint struct{ PolicyName, DefaultCPUSet string }
	if err := json.Unmarshal([]byte(l.read(t, l.KubeletDir+"/cpu_manager_state")), &checkpoint); err != nil || checkpoint.PolicyName != "static" || checkpoint.DefaultCPUSet != isolated {
		t.Errorf("the CPU manager's checkpoint has %+v (%v)", checkpoint, err)
	}
	pool, err := cpuset.Parse(reserved)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := cpuset.Parse(isolated)
	if err != nil {
		t.Fatal(err)
	}
	l.WaitFor(t, l.Limit, "pods may be partitioned", func() error { return l.Active(t) })
	object := l.Object(t)
	cores, cpus := object.Status.Capacity["management.workload.openshift.io/cores"], object.Status.Allocatable[corev1.ResourceCPU]
	if cores.Value() != 4000 || cpus.Value() != int64(rest.Size()) {
		t.Errorf("the node has %s cores for the pool's pods, and %s CPUs to allocate", cores.String(), cpus.String())
	}
	l.await(t, statInterval, "10")

	// What it is for: a partitioned pod runs on the pool, and one with a CPU of its own outside of it.
	inPool := l.StartPod(t, rig.Pod("partitioned", rig.Partitioned, "cpu=100m memory=16Mi", ""))
	own := l.CPUsOf(t, l.StartPod(t, rig.Pod("exclusive", nil, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")))
	if err := l.Has(t, inPool, pool); err != nil {
		t.Error(err)
	}
	if own.Size() != 1 || !own.IsSubsetOf(rest) {
		t.Errorf("the exclusive pod has CPUs %s, want one of %s", own, isolated)
	}
	for _, name := range []string{"partitioned", "exclusive"} {
		l.RemovePod(t, name)
	}
}

// The machine stays as it is until somebody boots it.
func deferral(t *testing.T, l *lab) {
	l.have(t, withSysctl)
	l.await(t, msgmnb, "65536")
	before := l.boots(t)
	// Until the operand has begun, the node still boots.
	l.await(t, "/run/partition-node/tuned/originals/boot-id", l.read(t, "/proc/sys/kernel/random/boot_id"))
	l.configure(t, deferred)
	l.WaitFor(t, l.Limit, "the profile waits", func() error {
		is, err := l.Try(t, "", "get", "profile", "--namespace=openshift-cluster-node-tuning-operator", l.Name, `--output=jsonpath={.spec.config.tunedProfile} {.status.conditions[?(@.type=="Applied")].reason}`)
		if err == nil && is != deferred.profile+" Deferred" {
			err = fmt.Errorf("it is %s", is)
		}
		return err
	})
	if value := l.read(t, msgmnb); value != "65536" {
		t.Errorf("%s is %s, and nothing has booted", msgmnb, value)
	}
	if after := l.boots(t); !slices.Equal(after, before) {
		t.Errorf("the boots were %q, and are %q", before, after)
	}
	machine := l.provider.Machines[l.Name]
	if _, err := l.boot(t.Context(), machine, machine); err != nil {
		t.Fatal(err)
	}
	l.settle(t)
	l.await(t, msgmnb, "80000")
}

// Each reset lets the node say why it was cut off, and take a profile that was corrected.
func cutOff(t *testing.T, l *lab) {
	l.have(t, withSysctl)
	l.await(t, msgmnb, "65536")
	l.configure(t, cutsOff)
	l.await(t, link, "0x1002")
	l.reset(t)
	l.WaitFor(t, l.Limit, "the node says what cut it off", func() error {
		is, err := l.Try(t, "", "get", "profile", "--namespace=openshift-cluster-node-tuning-operator", l.Name, `--output=jsonpath={.spec.config.tunedProfile} {.status.conditions[?(@.type=="Degraded")].reason}`)
		if err == nil && is != cutsOff.profile+" LeftOutAtBoot" {
			err = fmt.Errorf("it is %s", is)
		}
		return err
	})
	if log := l.Run(t, "journalctl --boot --output=cat --no-pager --unit=partition-tuned.service"); !strings.Contains(log, "the profile cut-off is left out at this boot") {
		t.Errorf("the unit says %s", log)
	}
	l.await(t, link, "0x1002")
	l.configure(t, withSysctl)
	l.reset(t)
	l.settle(t)
	l.await(t, msgmnb, "65536")
	if got := l.read(t, link); got != "0x1003" {
		t.Errorf("%s is %s", link, got)
	}
}

func removed(t *testing.T, l *lab) {
	if l.has != otherwise {
		l.have(t, partitioned)
	}
	l.change(t, withSysctl, 1)
	if got := l.arguments(t); !slices.Equal(got, l.bare) {
		t.Errorf("the kernel has the arguments %q, want %q as without a configuration", got, l.bare)
	}
	if left := l.Run(t, fmt.Sprintf("ls %s %s %s %s 2>/dev/null || true", pinningFile, crioDropIn, kubeletFile, configured)); left != "" {
		t.Errorf("there still are %s", left)
	}
	if c := l.configz(t); c.ReservedSystemCPUs != "" || c.CPUManagerPolicy != "none" {
		t.Errorf("the kubelet runs with %+v", c)
	}
	if list := l.read(t, "/sys/devices/system/cpu/nohz_full"); list != "" && list != "(null)" {
		t.Errorf("the kernel's list nohz_full is %q", list)
	}
	l.await(t, msgmnb, "65536")
	l.await(t, statInterval, "1")
}

// The next TuneD knows the original values, since they are kept outside of the one that is killed.
func tunedKilled(t *testing.T, l *lab) {
	l.have(t, nothing)
	original := l.read(t, msgmnb)
	l.have(t, withSysctl)
	l.await(t, msgmnb, "65536")
	l.Run(t, "kill -KILL $(cat /run/partition-node/tuned/originals/tuned.pid)")
	l.have(t, nothing)
	l.await(t, msgmnb, original)
}

func defaults(t *testing.T, l *lab) {
	l.have(t, nothing)
	// Those of openshift-node, of openshift, which it includes, and a setting that is no sysctl.
	for path, want := range map[string]string{
		"/proc/sys/net/ipv4/tcp_fastopen":              "3",
		"/proc/sys/fs/inotify/max_user_instances":      "8192",
		"/proc/sys/net/ipv4/neigh/default/gc_thresh3":  "65536",
		"/proc/sys/vm/max_map_count":                   "262144",
		"/proc/sys/net/ipv4/conf/all/arp_announce":     "2",
		"/proc/sys/net/netfilter/nf_conntrack_max":     "1048576",
		"/sys/module/nf_conntrack/parameters/hashsize": "1048576",
		"/proc/sys/net/ipv6/neigh/default/gc_thresh1":  "8192",
	} {
		if got, err := l.vm.Run(t.Context(), "cat '"+path+"'"); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %s", path, got, err, want)
		}
	}
}
