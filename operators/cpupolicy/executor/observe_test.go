// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition"
)

// places are those of a test's host, as JSON.
const places = `"places":[{"socket":0,"numaNode":0,"cores":["0,2","1,3"]}]`

func TestObservedIsHowAKubeletWouldStartAgain(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testHost)
		// args are further flags of the kubelet.
		args []string
		want string
	}{
		"a kubelet of upstream's defaults": {write(testConfig, kubeletHeader), nil, `{` + places + `}`},
		"a configuration": {write(testConfig, kubeletHeader+`
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: '1'}
cpuManagerPolicyOptions: {full-pcpus-only: 'true'}
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}
memoryManagerPolicy: Static
`), nil, `{"cpuManagerPolicyOptions":{"full-pcpus-only":"true"},"reserved":"1500m","topologyManagerPolicy":"restricted","topologyManagerScope":"pod","topologyManagerPolicyOptions":{"prefer-closest-numa-nodes":"true"},"memoryManagerPolicy":"Static",` + places + `}`},
		"flags before the configuration": {write(testConfig, kubeletHeader+`
kubeReserved: {cpu: 500m}
systemReserved: {cpu: '1'}
reservedSystemCPUs: '0'
cpuManagerPolicyOptions: {full-pcpus-only: 'true'}
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}
memoryManagerPolicy: Static
`), []string{"--kube-reserved=memory=1Gi,cpu=250m", "--reserved-cpus=1-2", "--cpu-manager-policy-options=align-by-socket=true", "--cpu-manager-policy-options=full-pcpus-only=false", "--topology-manager-policy", "best-effort", "--topology-manager-scope=container", "--topology-manager-policy-options=max-allowable-numa-nodes=9", "--memory-manager-policy=None"},
			`{"cpuManagerPolicyOptions":{"align-by-socket":"true","full-pcpus-only":"false"},"reserved":"1250m","reservedCPUs":"1-2","topologyManagerPolicy":"best-effort","topologyManagerScope":"container","topologyManagerPolicyOptions":{"max-allowable-numa-nodes":"9"},"memoryManagerPolicy":"None",` + places + `}`},
		"a flag several times": {write(testConfig, kubeletHeader+"kubeReserved: {cpu: 500m}\n"),
			[]string{"--kube-reserved=cpu=250m", "--kube-reserved=memory=1Gi", "--system-reserved=cpu=1", "--system-reserved=cpu=2,pid=100", "--topology-manager-policy-options=a=b", "--topology-manager-policy-options=c=d,e=f"},
			`{"reserved":"2250m","topologyManagerPolicyOptions":{"a":"b","c":"d","e":"f"},` + places + `}`},
		"a flag without a value": {write(testConfig, kubeletHeader+"kubeReserved: {cpu: 500m}\n"), []string{"--kube-reserved="}, `{` + places + `}`},
		"drop-ins over a file": {func(h *testHost) {
			h.write(testConfig, kubeletHeader+"kubeReserved: {cpu: 500m}\ntopologyManagerPolicy: restricted\n")
			h.write(testConfigDir+"/50.conf", kubeletHeader+"kubeReserved: {cpu: 600m}\n")
		}, nil, `{"reserved":"600m","topologyManagerPolicy":"restricted",` + places + `}`},
		"pools and reserved CPUs": {func(h *testHost) {
			h.write(testConfig, kubeletHeader+"reservedSystemCPUs: '0'\n")
			h.write(partition.PinningFilePath, `{"management":{"cpuset":"2"},"infra":{"cpuset":"3"}}`)
		}, nil, `{"reservedCPUs":"0,2-3",` + places + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			test.prepare(h)
			pid := h.cmdline(kubeletArgs(test.args...)...)
			host := h.open()
			k, err := host.kubeletOf(pid, nil, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			observed, err := host.observe(k)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(observed); err != nil || string(got) != test.want {
				t.Errorf("it is %s, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestObservedIsHowRKE2WouldStartAKubelet(t *testing.T) {
	h := newTestHost(t)
	h.write(testConfig, kubeletHeader+"kubeReserved: {cpu: 500m}\n")
	h.write(rke2Config, "kubelet-arg:\n- kube-reserved=cpu=1\n- topology-manager-policy=restricted\n")
	h.write(rke2Config+".d/90.yaml", "kubelet-arg+:\n- kube-reserved=cpu=2\n- kube-reserved=memory=1Gi\n- system-reserved=memory=1Gi\n")
	// The flags are those of an earlier configuration.
	pid := h.cmdline(kubeletArgs("--kube-reserved=cpu=1", "--system-reserved=cpu=100m", "--cpu-manager-policy-options=full-pcpus-only=true")...)
	host := h.open()
	k, err := host.kubeletOf(pid, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	args, err := readRKE2(host.disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.configure(k, effective(args)); err != nil {
		t.Fatal(err)
	}
	observed, err := host.observe(k)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(observed.Reserved.String(), observed.TopologyManagerPolicy, observed.CPUManagerPolicyOptions), "2restrictedmap[]"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}

// Nobody knows the value of a variable before the unit starts.
func TestObservedIsHowAUnitWouldStartAKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		unit []string
		want string
	}{
		"no kubelet":    {[]string{"/bin/sh", "-c", "exec kubelet"}, "100m"},
		"other amounts": {[]string{"/usr/bin/kubelet", "--system-reserved=memory=1Gi", "--kube-reserved=cpu=1", "--kube-reserved=pid=100"}, "1"},
		"a variable":    {[]string{"/usr/bin/kubelet", "--system-reserved=${RESERVED}", "--kube-reserved", "$RESERVED", "$MORE"}, "100m"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			h.write(testConfig, kubeletHeader)
			host := h.open()
			k, err := host.kubeletOf(h.cmdline(kubeletArgs("--system-reserved=cpu=100m")...), test.unit, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			if observed, err := host.observe(k); err != nil || observed.Reserved.String() != test.want {
				t.Errorf("it is %+v, %v, want %s", observed, err, test.want)
			}
		})
	}
}

func TestWhatCannotBeReadOfAKubeletIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testHost)
		args    []string
		want    string
		// kubelet means that the rest of it is there.
		kubelet bool
	}{
		"an amount that is none":      {write(testConfig, kubeletHeader+"kubeReserved: {cpu: lots}\n"), nil, `the kubelet's kubeReserved: cpu "lots"`, false},
		"a CPU list that is none":     {write(testConfig, kubeletHeader+"reservedSystemCPUs: a-b\n"), nil, "the kubelet's reservedSystemCPUs: ", false},
		"options that are none":       {nil, []string{"--cpu-manager-policy-options=full"}, `the kubelet's --cpu-manager-policy-options "full"`, false},
		"a pinning file that is none": {write(partition.PinningFilePath, "{"), nil, partition.PinningFilePath, false},
		"CPUs that sysfs has nothing about": {func(h *testHost) {
			if err := os.RemoveAll(h.at("/sys/devices/system/cpu/cpu1")); err != nil {
				h.t.Fatal(err)
			}
		}, nil, "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list: no such file or directory", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			if test.prepare != nil {
				test.prepare(h)
			}
			host := h.open()
			k, err := host.kubeletOf(h.cmdline(kubeletArgs(test.args...)...), nil, nil, "")
			var observed *operation.Kubelet
			if err == nil {
				observed, err = host.observe(k)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || (observed != nil) != test.kubelet {
				t.Errorf("it is %+v, %v, want %q", observed, err, test.want)
			}
		})
	}
}

func TestOfflineCPUsAreInNoPlace(t *testing.T) {
	h := newTestHost(t)
	if err := os.RemoveAll(h.at("sys")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(h.at("sys"), os.DirFS(topologytest.Sysfs(t, topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 2, Offline: "3,5"}))); err != nil {
		t.Fatal(err)
	}
	places, err := h.open().places()
	if got, want := fmt.Sprint(places), "[{0 0 [0,4 1]} {1 1 [2,6 7]}]"; err != nil || got != want {
		t.Errorf("the places are %s, %v, want %s", got, err, want)
	}
}

// TestAPodObservesWithoutACommand has the driver command, whose commands a pod that only observes
// cannot run.
func TestAPodObservesWithoutACommand(t *testing.T) {
	settings, err := yaml.Marshal(Settings{Command: &CommandSettings{
		Start: []string{"/nowhere"}, Stop: []string{"/nowhere"}, IsActive: []string{"/nowhere"}, DropInDirectory: testConfigDir,
	}})
	if err != nil {
		t.Fatal(err)
	}
	process := func(pid int, args ...string) func(*testHost) {
		return func(h *testHost) {
			dir := fmt.Sprintf("/proc/%d/", pid)
			h.write(dir+"cmdline", strings.Join(args, "\x00")+"\x00")
			h.write(dir+"stat", fmt.Sprintf("%d (%s) S 1"+strings.Repeat(" 0", 48)+"\n", pid, filepath.Base(args[0])))
		}
	}
	kubelet := func(args ...string) []string { return append([]string{"/usr/bin/kubelet"}, args...) }
	for name, test := range map[string]struct {
		processes []func(*testHost)
		want      string
	}{
		"a journal that is damaged": {[]func(*testHost){
			process(77, kubelet(kubeletArgs()...)...), func(h *testHost) { h.write(journalFile, "{") },
		}, "journal.json: unexpected end of JSON input"},
		"a kubelet and other processes": {[]func(*testHost){
			process(1, "/sbin/init"), process(70, kubelet("--config=/other", "--config-dir=/other.d")...), process(77, kubelet(kubeletArgs()...)...), process(78, "/usr/bin/vi", "--config-dir="+testConfigDir),
		}, ""},
		"no kubelet with that directory": {[]func(*testHost){process(1, "/sbin/init"), process(77, kubelet("--config="+testConfig)...)}, "and is that of the processes []"},
		"two of them":                    {[]func(*testHost){process(77, kubelet(kubeletArgs()...)...), process(78, kubelet(kubeletArgs()...)...)}, "and is that of the processes [77 78]"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			h.write(SettingsFile, string(settings))
			if err := os.Remove(h.at("proc")); err != nil {
				t.Fatal(err)
			}
			for _, write := range test.processes {
				write(h)
			}
			host, err := OpenHost(h.root) // as a pod does
			if err != nil {
				t.Fatal(err)
			}
			host.volatile = survives
			observed, err := host.Observe(quiet(t), operation.DriverCommand, Configz{})
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("the error is %v, want %q", err, test.want)
			}
			if test.want != "" {
				for _, policy := range operation.Policies() {
					if !strings.Contains(observed.Refused[policy].String(), test.want) {
						t.Errorf("what is observed is %+v", observed)
					}
				}
				return
			}
			if observed.Kubelet == nil || observed.Kubelet.Reserved.String() != "500m" || observed.Policy != operation.None || len(observed.Refused[operation.Static]) > 0 {
				t.Errorf("what is observed is %+v", observed)
			}
		})
	}
}

// TestLinksAreTheHosts has a host below a directory, where an absolute link must not lead to the files
// of the pod.
func TestLinksAreTheHosts(t *testing.T) {
	h := newTestHost(t)
	h.write("/data/conf/kubelet.yaml", kubeletHeader+"kubeReserved: {cpu: 700m}\n")
	h.link("/data/conf/kubelet.yaml", testConfig)
	h.write("/data/kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`)
	if err := os.RemoveAll(h.at(testRootDir)); err != nil {
		t.Fatal(err)
	}
	h.link("/data/kubelet", testRootDir)
	h.write("/data/50.conf", kubeletHeader+"systemReserved: {cpu: 100m}\n")
	h.link("/data/50.conf", testConfigDir+"/50.conf")
	h.write("/usr/lib/kubelet.service", "[Service]\nExecStart=kubelet --v=2\n")
	h.link("/usr/lib/kubelet.service", "/etc/systemd/system/kubelet.service")

	host := h.open()
	k, err := host.kubeletOf(h.cmdline(kubeletArgs()...), nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	observed, err := host.observe(k)
	if err != nil || observed.Reserved.String() != "800m" {
		t.Errorf("the kubelet is %+v, %v", observed, err)
	}
	if _, err := host.planDropIn(t.Context(), k, operation.Static, "", ""); err == nil || !strings.Contains(err.Error(), "the policy is static already") {
		t.Errorf("the error is %v", err)
	}
	if at, found := findFlag(host.disk, []string{"/etc/systemd/system/kubelet.service"}, "v"); !found || at.line != 2 {
		t.Errorf("the flag is at %v, %v", at, found)
	}
	if got := h.open().disk.at("/var/lib/kubelet/x/../../../../../etc/passwd"); !strings.HasPrefix(got, h.root+"/") {
		t.Errorf("a path leads out of the host, to %s", got)
	}
}
