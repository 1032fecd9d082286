// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/partition"
)

func TestACleanNodeHasNoFindings(t *testing.T) {
	check := func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		result, err := Audit(t.Context(), n.options())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Findings {
			t.Errorf("%s %s: %s", f.Code, f.Object, f.Message)
		}
		if want := 4 + 4 + 4; len(result.Containers) != want {
			t.Errorf("there are %d rows, want %d: for each pod itself, its sandbox and its container", len(result.Containers), want)
		}
	}
	eachKind(t, check)
	t.Run("cgroup v2, cgroupfs", func(t *testing.T) { check(t, false, false) })
}

// A planted pod is where its annotations say. Only its namespace tells that it has no right to be there.
func TestPodsWithoutARightAreFound(t *testing.T) {
	namespaces := map[string]map[string]string{
		"allowed": {"workload.openshift.io/allowed": "infra,management"}, "other": {"workload.openshift.io/allowed": "infra"}, "tenant": {}, "gone": nil,
	}
	all := func(_ context.Context, name string) (map[string]string, error) { return namespaces[name], nil }
	refused := func(_ context.Context, name string) (map[string]string, error) {
		return nil, fmt.Errorf("%s is forbidden", name)
	}
	for name, test := range map[string]struct {
		namespace, source string
		allowed           func(context.Context, string) (map[string]string, error)
		want, note        string
	}{
		"the namespace allows the type":                {"allowed", "api", all, "", ""},
		"the namespace allows another":                 {"other", "api", all, "not-allowed pod other/operator", ""},
		"the namespace is not annotated":               {"tenant", "api", all, "not-allowed pod tenant/operator", ""},
		"the namespace is gone, and the pod ends":      {"gone", "api", all, "", ""},
		"a static pod needs no right":                  {"tenant", "file", all, "", ""},
		"nor does one from a URL":                      {"tenant", "http", all, "", ""},
		"without a cluster nothing is known":           {"tenant", "api", nil, "", "no kubeconfig is given"},
		"without the right to ask nothing is known":    {"tenant", "api", refused, "", "namespace tenant: tenant is forbidden"},
		"without a cluster, where all pods are static": {"tenant", "file", nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, false, true)
			for _, sandbox := range n.runtime.sandboxes {
				sandbox.Annotations["kubernetes.io/config.source"] = "file"
				if sandbox.Metadata.Name == "operator" {
					sandbox.Metadata.Namespace, sandbox.Annotations["kubernetes.io/config.source"] = test.namespace, test.source
				}
			}
			options := n.options()
			options.Allowed = test.allowed
			result, err := Audit(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(codes(result.Findings), ","); got != test.want {
				t.Errorf("the findings are %q, want %q", got, test.want)
			}
			said := ""
			for _, note := range result.Notes {
				if note.Code == NotePermissions {
					said = note.Message
				}
			}
			if (said != "") != (test.note != "") || !strings.Contains(said, test.note) {
				t.Errorf("the note is %q, want one with %q", said, test.note)
			}
		})
	}
}

// On such CPUs the kernel balances no load (Documentation/admin-guide/kernel-parameters.txt, isolcpus).
func TestAPoolOnIsolatedCPUsIsNoted(t *testing.T) {
	for name, test := range map[string]struct {
		pinning, isolated string
		want              bool
	}{
		"others are isolated":       {`{"management": {"cpuset": "0-1"}}`, "2-3", false},
		"both are":                  {`{"management": {"cpuset": "0-1"}}`, "0-1", true},
		"one of two is":             {`{"management": {"cpuset": "0-1"}}`, "1-3", true},
		"the only one is":           {`{"management": {"cpuset": "0"}}`, "0-1", false},
		"none is":                   {`{"management": {"cpuset": "0-1"}}`, "", false},
		"the kernel does not say":   {`{"management": {"cpuset": "0-1"}}`, "-", false},
		"the type is not confined":  {`{"management": {"cpuset": ""}}`, "0-1", false},
		"the pools hold every CPU":  {`{"management": {"cpuset": "0-3"}}`, "0-1", false},
		"another type's pool is on": {`{"management": {"cpuset": "0-1"}, "infra": {"cpuset": "2"}}`, "2-3", false},
	} {
		n := newTree(t, false, true, "0-3", test.pinning)
		if test.isolated != "-" {
			n.write("sys/devices/system/cpu/isolated", test.isolated)
		}
		result, err := Audit(t.Context(), n.options())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		noted := slices.ContainsFunc(result.Notes, func(f Finding) bool { return f.Code == NoteIsolated && f.Object == "pool of management" })
		if noted != test.want {
			t.Errorf("%s: noted is %v, notes %+v", name, noted, result.Notes)
		}
	}
}

// What the host has for itself is as render writes it.
func TestCPUsForTheHostAloneAreNamed(t *testing.T) {
	nodes, _, err := nodefiles.Validate(nodefiles.NodeConfiguration{
		CPUs: "0-7", Partitions: []nodefiles.Partition{{Type: "management", CPUSet: ptr.To("0-1")}}, SystemCPUs: "2-3", CPUManagerPolicy: "static",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pinning, err := nodes[0].PinningFile()
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := nodes[0].KubeletDropIn()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ shared, want string }{
		"no pod has them":            {"4-7", "2-3"},
		"the CPU manager shares one": {"3-7", ""},
		"nothing is left to share":   {"", ""},
	} {
		n := newTree(t, false, true, "0-7", string(pinning.Content))
		n.write("var/lib/kubelet/config.yaml", string(kubelet.Content))
		n.checkpoint(nil, test.shared)
		result, err := Audit(t.Context(), n.options())
		if err != nil || !result.Clean() || result.HostCPUs != test.want {
			t.Errorf("%s: for the host alone are %q, want %q; findings %v, %v", name, result.HostCPUs, test.want, codes(result.Findings), err)
		}
	}
}

// A CPU manager of another kind has an NRI plugin, to which the runtime listens as to the kubelet.
func TestAFindingSaysWhoGaveTheCPUs(t *testing.T) {
	const plugin, driver, other = "or by an NRI plugin such as that of a DRA driver", "a DRA driver gave it CPU 0", "someone has written the cgroup itself"
	operator, ordinary := testPod{name: "operator", class: "burstable"}, testPod{name: "ordinary", class: "burstable"}
	for name, test := range map[string]struct {
		pod              testPod
		cpus, asked, env string
		says, given      string
	}{
		"a driver moves a partitioned container":                 {operator, "1-2", "1-2", "", plugin, ""},
		"another tool does, past the runtime":                    {operator, "1-2", "0", "", other, ""},
		"the runtime does not say":                               {operator, "1-2", "", "", "", ""},
		"a driver gives a CPU of the pool":                       {ordinary, "0", "0", "DRA_CPUSET_1b4e28ba=0", driver, "0"},
		"it gives others, and another tool widens them":          {ordinary, "0-2", "1-2", "DRA_CPUSET_1b4e28ba=1-2", other, "1-2"},
		"the variable is none of the driver's":                   {ordinary, "0", "0", "DRA_CPUSETS=0", plugin, ""},
		"the variable has no CPUs, and the container wrote that": {ordinary, "0", "0", "DRA_CPUSET_1b4e28ba=0-", plugin, ""},
		"the variable has more CPUs than memory can hold":        {ordinary, "0", "0", "DRA_CPUSET_1b4e28ba=0-99999999999999", plugin, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, true, false)
			n.runtime.env, n.runtime.asked = test.env, test.asked
			n.write(n.file(n.containerCgroup(test.pod, "c"), "cpuset", "cpuset.effective_cpus"), test.cpus)
			result, err := Audit(t.Context(), n.options())
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Findings) != 1 {
				t.Fatalf("the findings are %+v", result.Findings)
			}
			message := result.Findings[0].Message
			for _, who := range []string{plugin, driver, other} {
				if strings.Contains(message, who) != (who == test.says) {
					t.Errorf("the message is %q, want one with %q", message, test.says)
				}
			}
			for _, c := range result.Containers {
				if c.Pod == test.pod.name && c.Kind == "container" && c.GivenByDRA != test.given {
					t.Errorf("a driver gave CPU %q, want %q", c.GivenByDRA, test.given)
				}
			}
		})
	}
}

// Each violation is found and named, and nothing else is.
func TestEachViolationIsFound(t *testing.T) {
	operator, ordinary, exclusive := testPod{name: "operator", class: "burstable"}, testPod{name: "ordinary", class: "burstable"}, testPod{name: "exclusive"}
	setCPUs := func(n *tree, cgroup, cpus string) {
		file := map[bool]string{true: "cpuset.effective_cpus", false: "cpuset.cpus.effective"}[n.v1]
		n.write(n.file(cgroup, "cpuset", file), cpus)
	}
	// inVM makes a runtime with virtual machines keep all of a pod in its sandbox, with these CPUs.
	inVM := func(n *tree, p testPod, cpus string) {
		for _, sandbox := range n.runtime.sandboxes {
			if sandbox.Metadata.Name == p.name {
				sandbox.RuntimeHandler = "kata"
			}
		}
		n.write(n.file(n.containerCgroup(p, "c"), "cpuset", map[bool]string{true: "tasks", false: "cgroup.threads"}[n.v1]), "")
		n.cgroup(n.containerCgroup(p, ""), cpus, map[string]string{"tasks": fmt.Sprint(n.pid(p.name, "c"))})
		n.process(n.pid(p.name, "c"), "qemu", cpus)
	}
	setWeight := func(n *tree, cgroup, weight string) {
		n.write(n.file(cgroup, "cpu", map[bool]string{true: "cpu.shares", false: "cpu.weight"}[n.v1]), weight)
	}
	setQuota := func(n *tree, cgroup, quota string) {
		if n.v1 {
			n.write(n.file(cgroup, "cpu", "cpu.cfs_quota_us"), strings.Replace(quota, "max", "-1", 1))
		} else {
			n.write(n.file(cgroup, "cpu", "cpu.max"), quota+" 100000")
		}
	}
	for name, test := range map[string]struct {
		change func(n *tree)
		want   []string
	}{
		"a partitioned container is widened": {func(n *tree) { setCPUs(n, n.containerCgroup(operator, "c"), "0-1") },
			[]string{"off-pool container c of pod ns/operator"}},
		"its task is": {func(n *tree) { n.process(n.pid("operator", "c"), "c", "0-3") },
			[]string{"task-off-set container c of pod ns/operator"}},
		"its task has a CPU that is not online, too": {func(n *tree) { n.process(n.pid("operator", "c"), "c", "0,4-7") }, nil},
		"its pod's cgroup is": {func(n *tree) { setCPUs(n, n.podCgroup(operator), "0-3") },
			[]string{"off-pool pod ns/operator"}},
		"its sandbox is": {func(n *tree) { setCPUs(n, n.containerCgroup(operator, ""), "1") },
			[]string{"off-pool sandbox of pod ns/operator"}},
		"a container that the runtime has not listed yet is off the pool": {func(n *tree) {
			n.cgroup(filepath.Join(n.podCgroup(operator), "new"), "2", nil)
		}, []string{"off-pool cgroup new of pod ns/operator"}},
		"an ordinary container is on the pool": {func(n *tree) { setCPUs(n, n.containerCgroup(ordinary, "c"), "0-2") },
			[]string{"on-pool container c of pod ns/ordinary"}},
		"an exclusive container is off its CPUs": {func(n *tree) { setCPUs(n, n.containerCgroup(exclusive, "c"), "2") },
			[]string{"off-exclusive container c of pod ns/exclusive"}},
		"an ordinary pod in a virtual machine is on the pool": {func(n *tree) {
			inVM(n, ordinary, "0-2")
			for _, controller := range []string{"cpuset", "cpu", "cpuacct"} {
				n.remove(n.file(n.containerCgroup(ordinary, "c"), controller, ""))
			}
		}, []string{"on-pool sandbox of pod ns/ordinary"}},
		"an ordinary pod in a virtual machine is not": {func(n *tree) { inVM(n, ordinary, "1-2") }, nil},
		"a partitioned pod in a virtual machine":      {func(n *tree) { inVM(n, operator, "0") }, nil},
		"an ordinary container is on another's exclusive CPU": {func(n *tree) { setCPUs(n, n.containerCgroup(ordinary, "c"), "1-3") },
			[]string{"off-exclusive container c of pod ns/ordinary"}},
		"nothing is left to share": {func(n *tree) {
			n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "1-3"}}, "")
		}, nil},
		"a pod that has ended held a CPU": {func(n *tree) {
			n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}, uid("ended"): {"c": "2"}}, "1")
		}, nil},
		"an exclusive container is throttled": {func(n *tree) { setQuota(n, n.containerCgroup(exclusive, "c"), "1000") },
			[]string{"exclusive-quota container c of pod ns/exclusive"}},
		"a container's weight is another": {func(n *tree) { setWeight(n, n.containerCgroup(operator, "c"), "2") },
			[]string{"weight container c of pod ns/operator"}},
		"a pod's weight is another": {func(n *tree) { setWeight(n, n.podCgroup(operator), "9000") },
			[]string{"weight pod ns/operator"}},
		"its annotation has 1024 for one CPU": {func(n *tree) {
			n.add(testPod{name: "shares", workloadType: "management", class: "other", cpus: "0", weight: n.weightOf(8000),
				containers: []testContainer{{name: "c", cpus: "0", request: 8192, weight: n.weightOf(8000)}}})
			n.cgroup(n.class("other"), "0-3", map[string]string{"weight": n.weightOf(8000)})
		}, nil},
		"a container's quota is gone": {func(n *tree) { setQuota(n, n.containerCgroup(operator, "c"), "max") },
			[]string{"quota container c of pod ns/operator"}},
		"a pod's quota is another": {func(n *tree) { setQuota(n, n.podCgroup(operator), "70000") },
			[]string{"quota pod ns/operator"}},
		"systemd has rounded a quota": {func(n *tree) { setQuota(n, n.containerCgroup(operator, "c"), "50500") }, nil},
		"a class weighs less than its pods": {func(n *tree) { setWeight(n, n.class("burstable"), "2") },
			[]string{"class-weight QoS class " + "burstable"}},
		"a process was moved": {func(n *tree) {
			n.cgroup(n.containerCgroup(operator, "c"), "0", map[string]string{"weight": n.weightOf(400), "quota": "50000"})
			n.process(n.pid("operator", "c"), "c", "0-3")
		}, []string{"process-moved container c of pod ns/operator"}},
		"a child of a container was moved": {func(n *tree) {
			n.process(2000, "child", "0-3")
			n.link("proc/2000/ns/mnt", fmt.Sprintf("mnt:[%d]", 4026532000+n.pid("operator", "c")))
		}, []string{"process-moved container c of pod ns/operator"}},
		"a thread was moved": {func(n *tree) {
			process := n.pid("operator", "c")
			n.process(3000, "thread", "0-3")
			for _, file := range []string{"status", "stat", "schedstat"} {
				data, err := os.ReadFile(filepath.Join(n.dir, "proc/3000", file))
				if err != nil {
					n.t.Fatal(err)
				}
				n.write(fmt.Sprintf("proc/%d/task/3000/%s", process, file), strings.Replace(string(data), "Tgid:\t3000", fmt.Sprintf("Tgid:\t%d", process), 1))
			}
			n.remove("proc/3000") // the kernel does not list it
		}, []string{"process-moved container c of pod ns/operator"}},
		"a container has no cgroup": {func(n *tree) {
			for _, controller := range []string{"cpuset", "cpu", "cpuacct"} {
				n.remove(n.file(n.containerCgroup(ordinary, "c"), controller, ""))
			}
			n.remove(fmt.Sprintf("proc/%d", n.pid("ordinary", "c")))
		}, []string{"no-cgroup container c of pod ns/ordinary"}},
		"the pinning file has other CPUs": {func(n *tree) { n.pin(`{"management": {"cpuset": "0,3"}}`) }, []string{
			"checkpoint /var/lib/kubelet/cpu_manager_state", "not-in-force /etc/kubernetes/openshift-workload-pinning", "on-pool container c of pod ns/exclusive"}},
		"the pool is emptied": {func(n *tree) { n.pin(`{"management": {"cpuset": ""}}`) },
			[]string{"not-in-force /etc/kubernetes/openshift-workload-pinning"}},
		"the pinning file is wrong": {func(n *tree) { n.pin(`{"management": {"cpuset": "9"}}`) },
			[]string{"pinning-file /etc/kubernetes/openshift-workload-pinning"}},
		"the pinning file is gone": {func(n *tree) { n.remove("etc/kubernetes/openshift-workload-pinning") }, []string{
			"not-in-force /etc/kubernetes/openshift-workload-pinning", "type-off pod ns/agent", "type-off pod ns/operator"}},
		"no kubelet has started with the pinning file": {func(n *tree) { n.remove("var/lib/kubelet/workload_partitioning_state") },
			[]string{"not-in-force /etc/kubernetes/openshift-workload-pinning"}},
		"shared CPUs are in a pool": {func(n *tree) { n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}}, "0-2") },
			[]string{"checkpoint /var/lib/kubelet/cpu_manager_state"}},
		"the kubelet's reserved CPUs lack the pool": {func(n *tree) {
			n.write("var/lib/kubelet/config.yaml", "reservedSystemCPUs: \"1\"")
		}, []string{"reserved-cpus kubelet configuration /var/lib/kubelet/config.yaml"}},
		"a flag of the kubelet reserves CPUs without the pool": {func(n *tree) {
			n.write("proc/77/cmdline", "kubelet\x00--config=/var/lib/kubelet/config.yaml\x00--reserved-cpus=1\x00")
			n.onHost(77, "kubelet", "0", "kubelet.service")
		}, []string{"reserved-cpus kubelet configuration /var/lib/kubelet/config.yaml"}},
		"others may write the pinning file": {func(n *tree) {
			was := load
			load = func(string, cpuset.CPUSet) (partition.Pools, []string, error) {
				return nil, nil, errors.New("its mode lets others write it")
			}
			n.t.Cleanup(func() { load = was })
		}, []string{"pinning-file /etc/kubernetes/openshift-workload-pinning"}},
		"an ordinary container may use a CPU for the host alone": {func(n *tree) {
			n.write("var/lib/kubelet/config.yaml", "{cpuManagerPolicy: static, reservedSystemCPUs: 0-1}")
			n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}}, "2")
		}, []string{"on-host container c of pod ns/ordinary"}},
		"an ordinary container may use reserved CPUs that the CPU manager shares": {func(n *tree) {
			n.write("var/lib/kubelet/config.yaml", "{cpuManagerPolicy: static, reservedSystemCPUs: 0-1}")
		}, nil},
		"an exclusive container may use a CPU for the host alone": {func(n *tree) {
			n.write("var/lib/kubelet/config.yaml", "{cpuManagerPolicy: static, reservedSystemCPUs: 0-1}")
			n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}}, "2")
			setCPUs(n, n.containerCgroup(ordinary, "c"), "2")
			n.process(n.pid("ordinary", "c"), "c", "2")
			setCPUs(n, n.containerCgroup(exclusive, "c"), "1,3")
		}, []string{"on-host container c of pod ns/exclusive"}},
		"a drop-in switches strict reservation off": {func(n *tree) {
			n.write("proc/77/cmdline", "/usr/bin/kubelet\x00--v\x002\x00--config=/var/lib/kubelet/config.yaml\x00--config-dir\x00/etc/kubelet.d\x00")
			n.onHost(77, "kubelet", "0", "kubelet.service")
			n.write("etc/kubelet.d/10.conf", "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, cpuManagerPolicyOptions: {strict-cpu-reservation: \"false\"}}")
			n.write("etc/kubelet.d/20.yaml", "cpuManagerPolicy: none")
		}, []string{"strict-reservation kubelet configuration /var/lib/kubelet/config.yaml, /etc/kubelet.d/10.conf"}},
		"CRI-O has a pool, and the file an empty one": {func(n *tree) {
			n.pin(`{"management": {"cpuset": ""}}`)
			n.write("var/lib/kubelet/workload_partitioning_state", `{"reservedCPUs":""}`)
			n.runtime.name = crioRuntime
			n.write("etc/crio/crio.conf.d/01-workload-partitioning", "[crio.runtime.workloads.management]\nactivation_annotation = \"target.workload.openshift.io/management\"\nresources = { \"cpushares\" = 0, \"cpuset\" = \"0-1\" }")
		}, []string{"crio FILE"}},
		"CRI-O has another pool, from a directory of drop-ins": {func(n *tree) {
			n.runtime.name = crioRuntime
			n.write("etc/crio/crio.conf.d/01-workload-partitioning/pools", "[crio.runtime]\ninfra_ctr_cpuset = \"1\"")
		}, []string{"crio FILE/pools"}},
		"CRI-O's configuration has another pool, and the runtime is containerd": {func(n *tree) {
			n.write("etc/crio/crio.conf", "[crio.runtime]\ninfra_ctr_cpuset = \"1\"")
		}, nil},
		"CRI-O has another pool": {func(n *tree) {
			n.runtime.name = crioRuntime
			n.write("etc/crio/crio.conf.d/01-workload-partitioning", "[crio.runtime]\ninfra_ctr_cpuset = \"0\"\n[crio.runtime.workloads.management]\nactivation_annotation = \"target.workload.openshift.io/management\"\nresources = { \"cpushares\" = 0, \"cpuset\" = \"0-1\" }")
		}, []string{"crio FILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, v1, systemd bool) {
				n := sample(t, v1, systemd)
				test.change(n)
				result, err := Audit(t.Context(), n.options())
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for _, text := range test.want {
					text = strings.Replace(text, "QoS class burstable", "QoS class "+filepath.Base(n.class("burstable")), 1)
					want = append(want, strings.Replace(text, "crio FILE", "crio "+filepath.Join(n.dir, "etc/crio/crio.conf.d/01-workload-partitioning"), 1))
				}
				if got := codes(result.Findings); !slices.Equal(got, want) {
					t.Errorf("the findings are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					for _, f := range result.Findings {
						t.Log(f.Message)
					}
				}
				for _, f := range result.Findings {
					if f.Message == "" || f.Remedy == "" {
						t.Errorf("%s has the message %q and the remedy %q", f.Code, f.Message, f.Remedy)
					}
				}
				// Files have other names in a record.
				of := func(result *Result) (codes []Code) {
					for _, f := range result.Findings {
						codes = append(codes, f.Code)
					}
					slices.Sort(codes)
					return codes
				}
				if got, want := of(again(t, n)), of(result); !slices.Equal(got, want) {
					t.Errorf("an audit of the record finds %q, want %q", got, want)
				}
			})
		})
	}
}

// What has gone at the second look was a race, and is not reported.
func TestRacesAreNotReported(t *testing.T) {
	n := sample(t, true, false)
	operator := testPod{name: "operator", class: "burstable"}
	file := n.file(n.containerCgroup(operator, "c"), "cpuset", "cpuset.effective_cpus")
	n.write(file, "0-3") // as created, before the runtime writes its cpuset
	looks := 0
	n.runtime.before = func() {
		if looks++; looks == 2 {
			n.write(file, "0")
		}
	}
	result, err := Audit(t.Context(), n.options())
	if err != nil || !result.Clean() || looks != 2 {
		t.Errorf("after %d looks the findings are %v (%v), want none after 2", looks, codes(result.Findings), err)
	}
}

// For random sets of CPUs an audit reports exactly the containers that are off theirs.
func TestExactlyTheContainersOffTheirSetAreReported(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		for seed := range int64(20) {
			random := rand.New(rand.NewSource(seed))
			subset := func(of cpuset.CPUSet) cpuset.CPUSet {
				for {
					var some []int
					for _, cpu := range of.List() {
						if random.Intn(2) == 0 {
							some = append(some, cpu)
						}
					}
					if len(some) > 0 {
						return cpuset.New(some...)
					}
				}
			}
			all := cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)
			pools := map[string]cpuset.CPUSet{"a": subset(cpuset.New(0, 1)), "b": subset(cpuset.New(2, 3, 4))}
			pooled := pools["a"].Union(pools["b"])
			n := newTree(t, v1, systemd, "0-7", fmt.Sprintf(`{"a": {"cpuset": %q}, "b": {"cpuset": %q}}`, pools["a"], pools["b"]))
			entries := map[string]map[string]string{}
			want := []string{}
			shared := all.Difference(pooled)
			pods := make([]testPod, 12)
			for i := range pods {
				pods[i] = testPod{name: fmt.Sprintf("pod-%02d", i), class: []string{"burstable", "besteffort"}[random.Intn(2)], cpus: "0-7"}
				switch random.Intn(8) {
				case 0, 1, 2, 3:
					pods[i].workloadType = []string{"a", "b"}[random.Intn(2)]
				case 4:
					held := subset(all.Difference(pooled))
					entries[uid(pods[i].name)] = map[string]string{"c": held.String()}
					shared = shared.Difference(held)
				}
			}
			n.checkpoint(entries, shared.String())
			if shared.IsEmpty() {
				shared = all.Difference(pooled)
			}
			for _, p := range pods {
				may, code := shared, CodeOffExclusive
				if entry, holds := entries[uid(p.name)]; holds {
					may = cpus(t, entry["c"])
				} else if p.workloadType != "" {
					may, code = pools[p.workloadType], CodeOffPool
					p.cpus = may.String()
				}
				has := subset(may)
				if random.Intn(3) == 0 {
					has = subset(all)
				}
				if p.workloadType == "" && !has.Intersection(pooled).IsEmpty() {
					code = CodeOnPool
				}
				if !has.IsSubsetOf(may) {
					want = append(want, fmt.Sprintf("%s container c of pod ns/%s", code, p.name))
				}
				p.containers = []testContainer{{name: "c", cpus: has.String()}}
				n.add(p)
			}
			result, err := Audit(t.Context(), n.options())
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(want)
			if got := codes(result.Findings); !slices.Equal(got, want) {
				t.Errorf("seed %d: the findings are\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}

func TestNotesNameWhatElseRunsOutsideThePools(t *testing.T) {
	n := sample(t, false, true)
	n.onHost(50, "sshd", "0-3", "ssh.service")
	n.onHost(51, "containerd-shim", "0-3", "containerd.service")
	n.onHost(52, "kubelet", "0", "kubelet.service")
	n.onHost(53, "evil\x1b[31m\nname", "1", "evil.service")
	n.write("proc/irq/24/smp_affinity_list", "0-3")
	n.write("proc/irq/24/virtio0-config/x", "")
	n.write("proc/irq/25/smp_affinity_list", "0")
	n.write("sys/devices/virtual/workqueue/cpumask", "f")
	n.write("sys/block/vda/queue/rq_affinity", "1")
	n.cgroup("/system.slice", "0-3", nil)
	n.cgroup("/init.scope", "0", nil)
	result, err := Audit(t.Context(), n.options())
	if err != nil || !result.Clean() {
		t.Fatalf("the findings are %v (%v), want none: these are notes", codes(result.Findings), err)
	}
	want := []string{"disks host", "host-processes evil.service", "host-processes host", "host-processes ssh.service", "interrupts host", "runtime-monitors containerd.service",
		"sandboxes ordinary pods", "slices system.slice", "workqueues unbound workqueues"}
	if got := codes(result.Notes); !slices.Equal(got, want) {
		t.Errorf("the notes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, note := range result.Notes {
		if strings.ContainsAny(note.Message, "\x1b\n") {
			t.Errorf("the note %q has a control character of a process's name", note.Message)
		}
		if note.Code == NoteInterrupts && !strings.Contains(note.Message, "24 virtio0-config") {
			t.Errorf("the note on interrupts is %q, want it to name the interrupt and its handler", note.Message)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		change func(n *tree)
		want   string
	}{
		"no cgroups":                  {func(n *tree) { n.remove("sys/fs/cgroup") }, "has no cgroups of either version"},
		"no cpusets":                  {func(n *tree) { n.write("sys/fs/cgroup/cgroup.controllers", "cpu memory") }, `no cpuset controller, only "cpu memory"`},
		"the runtime does not answer": {func(n *tree) { n.runtime.err = os.ErrDeadlineExceeded }, "runtime: i/o timeout"},
		"processes of others cannot be looked at": {func(n *tree) {
			process := fmt.Sprintf("proc/%d/ns/mnt", n.pid("operator", "c"))
			n.remove(process)
			n.write(process, "")
		}, "run as root, with the capability SYS_PTRACE"},
		"the kubelet's file is wrong": {func(n *tree) { n.write("var/lib/kubelet/config.yaml", "cpuManagerPolicy: [") }, "kubelet configuration: "},
		"the checkpoint is cut":       {func(n *tree) { n.write("var/lib/kubelet/cpu_manager_state", `{"policyName": "sta`) }, "CPU manager's checkpoint "},
		"the record is cut":           {func(n *tree) { n.write("var/lib/kubelet/workload_partitioning_state", `{`) }, "kubelet's record "},
		"the kubelet's file is a pipe": {func(n *tree) {
			n.remove("var/lib/kubelet/config.yaml")
			if err := syscall.Mkfifo(filepath.Join(n.dir, "var/lib/kubelet/config.yaml"), 0o600); err != nil {
				n.t.Fatal(err)
			}
		}, "is not a regular file of at most 10485760 bytes"},
		"the record has no end": {func(n *tree) {
			if err := os.Truncate(filepath.Join(n.dir, "var/lib/kubelet/workload_partitioning_state"), kubeletstate.MaxFile+1); err != nil {
				n.t.Fatal(err)
			}
		}, "is not a regular file of at most 10485760 bytes"},
		"CRI-O's configuration is not TOML": {func(n *tree) {
			n.runtime.name = crioRuntime
			n.write("etc/crio/crio.conf", "[")
		}, "CRI-O's configuration "},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, false, true)
			test.change(n)
			if _, err := Audit(t.Context(), n.options()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// server answers on a socket what a fake runtime says.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*fakeRuntime
}

func (s server) Version(ctx context.Context, in *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.fakeRuntime.Version(ctx, in)
}

func (s server) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return s.fakeRuntime.ListPodSandbox(ctx, in)
}

func (s server) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return s.fakeRuntime.ListContainers(ctx, in)
}

func (s server) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.fakeRuntime.ContainerStatus(ctx, in)
}

// The runtime is asked at the endpoint of the kubelet's configuration, or where one listens.
func TestTheRuntimeIsFound(t *testing.T) {
	for name, test := range map[string]struct{ socket, config string }{
		"from the kubelet's configuration": {"run/own.sock", "containerRuntimeEndpoint: unix:///run/own.sock"},
		"at the place that kubeadm writes": {"run/containerd/containerd.sock", "containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock"},
		"without a scheme":                 {"run/own.sock", "containerRuntimeEndpoint: /run/own.sock"},
		"in the usual place":               {"run/crio/crio.sock", "cpuManagerPolicy: static"},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, true, false)
			n.write("var/lib/kubelet/config.yaml", test.config)
			// A socket's path has at most 107 bytes, and that of a test's directory may have more.
			root, err := os.MkdirTemp("", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(root) }) // a temporary directory
			short := filepath.Join(root, "n")
			if err := os.Rename(n.dir, short); err != nil {
				t.Fatal(err)
			}
			n.dir = short
			if err := os.MkdirAll(filepath.Join(short, filepath.Dir(test.socket)), 0o755); err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("unix", filepath.Join(short, test.socket))
			if err != nil {
				t.Fatal(err)
			}
			running := grpc.NewServer()
			runtimeapi.RegisterRuntimeServiceServer(running, server{fakeRuntime: n.runtime})
			go func() { _ = running.Serve(listener) }() // until it is stopped
			t.Cleanup(running.Stop)
			result, err := Audit(t.Context(), Options{Host: n.host()})
			if err != nil || !result.Clean() || len(result.Containers) != 12 || result.Runtime != "containerd v2.4.2" {
				t.Errorf("the result is %+v (%v), want 12 rows and no finding", result, err)
			}
		})
	}
}

// Any user can name a process kubelet: only one of the host's says where the runtime listens.
func TestAKubeletOfAContainerIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		cgroup, namespace string
		believed          bool
	}{
		"the host's":                       {"/system.slice/kubelet.service", "mnt:[4026531841]", true},
		"the host's, outside a unit":       {"/", "mnt:[4026531841]", true},
		"a service with its own namespace": {"/system.slice/kubelet.service", "mnt:[4026532999]", true},
		"in a pod":                         {"/kubepods/burstable/pod1234/" + id("evil", "c"), "mnt:[4026532999]", false},
		"in a pod's slice":                 {"/kubepods.slice/kubepods-pod1234.slice/cri-containerd-x.scope", "mnt:[4026531841]", false},
		"in a pod, seen from another one":  {"/../../pod1234/" + id("evil", "c"), "mnt:[4026531841]", false},
		"a service of a pod's":             {"/kubepods/pod1234/x/system.slice/kubelet.service", "mnt:[4026531841]", false},
		"in another container":             {"/docker/x", "mnt:[4026532999]", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, false, true)
			n.process(77, "kubelet", "0")
			n.write("proc/77/cmdline", "/usr/bin/kubelet\x00--container-runtime-endpoint=unix:///run/own.sock\x00")
			n.write("proc/77/cgroup", "0::"+test.cgroup)
			n.link("proc/77/ns/mnt", test.namespace)
			endpoint, _ := n.host().endpoint() // an error where nothing listens
			if believed := endpoint == "/run/own.sock"; believed != test.believed {
				t.Errorf("the endpoint is %q, believed %t, want %t", endpoint, believed, test.believed)
			}
		})
	}
}

func TestCommandLineOfTheKubeletIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		want CommandLine
	}{
		"of no kubelet": {"", CommandLine{Root: "/var/lib/kubelet", Configuration: "/var/lib/kubelet/config.yaml"}},
		"of one with all in its file": {"--v\x002\x00--config=/etc/kubelet.yaml\x00--root-dir=/data\x00",
			CommandLine{Root: "/data", Configuration: "/etc/kubelet.yaml"}},
		"of one with other flags": {"--reserved-cpus=0\x00--config-dir\x00/etc/kubelet.d\x00--container-runtime-endpoint=/run/own.sock\x00",
			CommandLine{Root: "/var/lib/kubelet", ConfigurationDir: "/etc/kubelet.d", Endpoint: "/run/own.sock", Changing: []string{"--reserved-cpus"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := sample(t, false, true)
			if test.args != "" {
				n.onHost(77, "kubelet", "0", "kubelet.service")
				n.write("proc/77/cmdline", "/usr/bin/kubelet\x00"+test.args)
			}
			if got := n.host().FindKubelet(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("it is %+v, want %+v", got, test.want)
			}
		})
	}
}
