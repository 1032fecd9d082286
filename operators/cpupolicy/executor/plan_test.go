// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition"
)

const kubeletHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// refusal is a host, and why a switch on it is refused.
type refusal struct {
	policy  operation.Policy
	prepare func(*testHost)
	// args are further flags of the kubelet, and units files that may have them.
	args, units []string
	// want are parts of the error, and none if the switch is not refused.
	want []string
}

func write(path, content string) func(*testHost) {
	return func(h *testHost) { h.write(path, content) }
}

// both has what goes wrong with every driver.
var both = map[string]refusal{
	"a switch to static":                     {policy: operation.Static},
	"a policy that is in force":              {policy: operation.None, want: []string{"the policy is none already", testState}},
	"no reservation":                         {policy: operation.Static, prepare: write(testConfig, kubeletHeader), want: []string{"needs a reservation", "partition-agent cpu-policy reserve"}},
	"a reservation of zero":                  {policy: operation.Static, prepare: write(testConfig, kubeletHeader+"kubeReserved: {cpu: \"0\", memory: 1Gi}\n"), want: []string{"needs a reservation"}},
	"a reservation of CPUs":                  {policy: operation.Static, prepare: write(testConfig, kubeletHeader+"reservedSystemCPUs: '0'\n")},
	"a reservation by a flag":                {policy: operation.Static, prepare: write(testConfig, kubeletHeader), args: []string{"--system_reserved", "memory=1Gi,cpu=100m"}},
	"a reservation by one of several flags":  {policy: operation.Static, prepare: write(testConfig, kubeletHeader), args: []string{"--kube-reserved=cpu=100m", "--kube-reserved=memory=1Gi"}},
	"a flag that takes the reservation away": {policy: operation.Static, args: []string{"--kube-reserved=memory=1Gi"}, want: []string{"needs a reservation"}},
	"a pinning file with a pool": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader)
		h.write(partition.PinningFilePath, `{"management":{"cpuset":"0"}}`)
	}},
	"a pinning file without CPUs": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader)
		h.write(partition.PinningFilePath, "")
	}, want: []string{"needs a reservation"}},
	"a pinning file that is none":  {policy: operation.Static, prepare: write(partition.PinningFilePath, `{"management":{"cpuset":"9"}}`), want: []string{partition.PinningFilePath, `cpuset "9"`}},
	"a checkpoint that is damaged": {policy: operation.Static, prepare: write(testState, "{"), want: []string{testState, "damaged"}},
	"a checkpoint that is a link": {policy: operation.Static, prepare: func(h *testHost) {
		h.link("/etc/shadow", testState)
	}, want: []string{testState, "not a regular file"}},
	"a host of another operator":                       {policy: operation.Static, prepare: write("/etc/machine-config-daemon/currentconfig", "{}"), want: []string{"/etc/machine-config-daemon/currentconfig", "Machine Config Operator"}},
	"a directory of the kubelet that others can write": {policy: operation.Static, prepare: func(h *testHost) { h.chmod(testRootDir, 0o777) }, want: []string{testState, "0777"}},
	"no health": {policy: operation.Static, prepare: write(testConfig, kubeletHeader+"kubeReserved: {cpu: '1'}\nhealthzPort: 0\n"), want: []string{"healthzPort is 0"}},
	"options beside none": {policy: operation.None, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader+"\ncpuManagerPolicyOptions:\n  full-pcpus-only: 'true'\n")
		h.write(testState, `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`)
	}, want: []string{testConfig + ":4:", "cpuManagerPolicyOptions"}},
	"options beside static": {policy: operation.Static, prepare: write(testConfig, kubeletHeader+"cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\nkubeReserved: {cpu: '1'}\n")},
}

var ofDropIns = map[string]refusal{
	"no --config-dir":                        {policy: operation.Static, args: []string{"--config-dir="}, want: []string{"no --config-dir", "partition-agent cpu-policy prepare"}},
	"a --config-dir with a slash at its end": {policy: operation.None, args: []string{"--config-dir=" + testConfigDir + "/", "--cpu-manager-policy-options=full-pcpus-only=true"}, want: []string{"--cpu-manager-policy-options=full-pcpus-only=true"}},
	"a --config-dir that is not absolute":    {policy: operation.Static, args: []string{"--config-dir=conf.d"}, want: []string{`--config-dir "conf.d"`}},
	"the policy as a flag":                   {policy: operation.Static, args: []string{"--cpu-manager-policy", "none"}, want: []string{"the command line of process ", "--cpu-manager-policy=none"}},
	"the policy as a flag of a unit": {policy: operation.Static, args: []string{"--cpu_manager_policy=none"}, units: []string{"/etc/unit.service"},
		prepare: write("/etc/unit.service", "[Service]\n# --cpu-manager-policy=static\nEnvironment=\"X=--cpu_manager_policy=none\"\n"), want: []string{"/etc/unit.service:3: the flag --cpu-manager-policy=none"}},
	"the options as a flag":                      {policy: operation.None, args: []string{"--cpu-manager-policy-options=full-pcpus-only=true"}, want: []string{"the command line of process ", "--cpu-manager-policy-options=full-pcpus-only=true"}},
	"a later drop-in with a policy":              {policy: operation.Static, prepare: write(testConfigDir+"/99-zz.conf", kubeletHeader+"# x\ncpuManagerPolicy: none\n"), want: []string{testConfigDir + "/99-zz.conf:4:", "after"}},
	"a later directory of drop-ins":              {policy: operation.Static, prepare: write(testConfigDir+"/99-z02/00.conf", kubeletHeader+"cpuManagerPolicy: none\n"), want: []string{testConfigDir + "/99-z02/00.conf:3:"}},
	"a later drop-in with the options of static": {policy: operation.None, prepare: write(testConfigDir+"/zz.conf", kubeletHeader+"cpuManagerPolicyOptions: {a: b}\n"), want: []string{testConfigDir + "/zz.conf:3:"}},
	"a policy in the file, whose name sorts after the drop-ins": {policy: operation.Static, args: []string{"--config=/etc/zz.yaml"},
		prepare: write("/etc/zz.yaml", kubeletHeader+"cpuManagerPolicy: none\nkubeReserved: {cpu: '1'}\n")},
	"an earlier drop-in with a policy":               {policy: operation.Static, prepare: write(testConfigDir+"/00.conf", kubeletHeader+"cpuManagerPolicy: none\n")},
	"an earlier directory with a policy":             {policy: operation.Static, prepare: write(testConfigDir+"/00/zz.conf", kubeletHeader+"cpuManagerPolicy: none\n")},
	"what is no drop-in":                             {policy: operation.Static, prepare: write(testConfigDir+"/zz.yaml", "cpuManagerPolicy: none\n")},
	"a drop-in that takes the reservation away":      {policy: operation.Static, prepare: write(testConfigDir+"/20.conf", kubeletHeader+"kubeReserved: null\n"), want: []string{"needs a reservation"}},
	"a drop-in that is no YAML":                      {policy: operation.Static, prepare: write(testConfigDir+"/20.conf", "a: [\n"), want: []string{testConfigDir + "/20.conf"}},
	"a drop-in that is no object":                    {policy: operation.Static, prepare: write(testConfigDir+"/20.conf", "- a\n"), want: []string{testConfigDir + "/20.conf:1: is not an object"}},
	"a drop-in without its kind":                     {policy: operation.Static, prepare: write(testConfigDir+"/20.conf", "kubeReserved: {cpu: 600m}\n"), want: []string{testConfigDir + "/20.conf: apiVersion \"\" and kind \"\": the kubelet does not start"}},
	"a policy with which the kubelet does not start": {policy: operation.Static, prepare: write(testConfigDir+"/00.conf", kubeletHeader+"cpuManagerPolicy: static\n"), want: []string{testState + " has the policy none, and the kubelet's configuration static (" + testConfigDir + "/00.conf:3): it would not start as it is"}},
	"a drop-in that has gone":                        {policy: operation.None, prepare: write(testState, `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`), want: []string{testState + " has the policy static, and the kubelet's configuration none (by default)"}},
	"our drop-in of another policy":                  {policy: operation.Static, prepare: write(testDropIn, kubeletDropIn(operation.None))},
	"a drop-in of our name with more":                {policy: operation.Static, prepare: write(testDropIn, kubeletDropIn(operation.None)+"maxPods: 5\n"), want: []string{testDropIn, "somebody else"}},
	"a drop-in of our name that is a link":           {policy: operation.Static, prepare: func(h *testHost) { h.link("../kubelet.yaml", testDropIn) }, want: []string{testDropIn, "not a regular file"}},
	"a drop-in of our name that others can write": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testDropIn, kubeletDropIn(operation.None))
		h.chmod(testDropIn, 0o666)
	}, want: []string{testDropIn, "0666"}},
	"a directory of drop-ins that others can write": {policy: operation.Static, prepare: func(h *testHost) { h.chmod(testConfigDir, 0o777) }, want: []string{testDropIn, "0777"}},
}

func (h *testHost) link(target, path string) {
	h.t.Helper()
	if err := os.Remove(h.at(path)); err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	if err := os.Symlink(target, h.at(path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHost) chmod(path string, mode os.FileMode) {
	h.t.Helper()
	if err := os.Chmod(h.at(path), mode); err != nil {
		h.t.Fatal(err)
	}
}

// cmdline makes the host have a process with this command line, and returns its number.
func (h *testHost) cmdline(args ...string) int {
	h.t.Helper()
	if err := os.Remove(h.at("proc")); err != nil {
		h.t.Fatal(err)
	}
	h.write("/proc/77/cmdline", strings.Join(append([]string{"/usr/bin/kubelet"}, args...), "\x00")+"\x00")
	return 77
}

func TestWhatWouldKeepTheKubeletDownIsRefused(t *testing.T) {
	for _, of := range []map[string]refusal{both, ofDropIns} {
		for name, test := range of {
			t.Run(name, func(t *testing.T) {
				h := newTestHost(t)
				if test.prepare != nil {
					test.prepare(h)
				}
				pid := h.cmdline(append([]string{"--v", "2", "--one-output"}, kubeletArgs(test.args...)...)...)
				host := h.open()
				k, err := host.kubeletOf(pid, nil, test.units, "")
				if err == nil {
					_, err = host.planDropIn(t.Context(), k, test.policy, "", "run: partition-agent cpu-policy prepare")
				}
				checkRefusal(t, test, err)
			})
		}
	}
}

// After a reboot nobody would undo what the switch had begun.
func TestADirectoryThatARebootEmptiesIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		empties, unit string
		want          []string
	}{
		"none":                             {"", defaultUnit, nil},
		"the agent's":                      {Directory, defaultUnit, []string{Directory + " is on tmpfs", "keep this directory"}},
		"that of the drop-in":              {testConfigDir, defaultUnit, []string{testConfigDir + " is on tmpfs"}},
		"that of the host unit":            {unitDirectory, defaultUnit, []string{unitDirectory + " is on tmpfs"}},
		"that of a host unit nobody needs": {unitDirectory, "", nil},
		"one that has nothing to do there": {"/run", defaultUnit, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			pid := h.cmdline(kubeletArgs()...)
			host := h.open()
			host.volatile = func(dir string) (string, error) {
				if dir == test.empties {
					return "tmpfs", nil
				}
				return "", nil
			}
			k, err := host.kubeletOf(pid, nil, nil, "")
			if err == nil {
				_, err = host.planDropIn(t.Context(), k, operation.Static, test.unit, "")
			}
			checkRefusal(t, refusal{want: test.want}, err)
		})
	}
}

func checkRefusal(t *testing.T, test refusal, err error) {
	t.Helper()
	if len(test.want) == 0 && err != nil {
		t.Errorf("it is refused: %v", err)
	}
	for _, want := range test.want {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

const ourRKE2 = "/etc/rancher/rke2/config.yaml.d/99-z01-harvester-cpu-manager.yaml"

var ofRKE2 = map[string]refusal{
	"Harvester's files": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader)
		h.write("/etc/rancher/rke2/config.yaml.d/99-z00-harvester-reserved-resources.yaml", "kubelet-arg+:\n- \"system-reserved=cpu=490m\"\n- \"kube-reserved=cpu=490m\"\n")
		h.write(ourRKE2, "kubelet-arg+:\n- \"cpu-manager-policy=none\"\n")
	}},
	"no arguments": {policy: operation.Static, prepare: write(testConfig, kubeletHeader), want: []string{"needs a reservation"}},
	"no directory of rke2's": {policy: operation.Static, prepare: func(h *testHost) {
		if err := os.RemoveAll(h.at("/etc/rancher/rke2")); err != nil {
			h.t.Fatal(err)
		}
	}, want: []string{"/etc/rancher/rke2: no such file"}},
	"a reservation in one of several arguments": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader)
		h.write("/etc/rancher/rke2/config.yaml", "kubelet-arg:\n- kube-reserved=cpu=1\n- kube-reserved=memory=1Gi\n")
	}},
	"a reservation that is none": {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml", "kubelet-arg: [kube-reserved=1]\n"), want: []string{`--kube-reserved "1"`}},
	"a reservation that a later file drops": {policy: operation.Static, prepare: func(h *testHost) {
		h.write(testConfig, kubeletHeader)
		h.write("/etc/rancher/rke2/config.yaml", "kubelet-arg: [kube-reserved=cpu=1]\n")
		h.write("/etc/rancher/rke2/config.yaml.d/90.yaml", "kubelet-arg: max-pods=200\n")
	}, want: []string{"needs a reservation"}},
	"a later file that replaces": {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml.d/99-zz-max-pods.yaml", "node-label: []\nkubelet-arg:\n- max-pods=200\n"),
		want: []string{"/etc/rancher/rke2/config.yaml.d/99-zz-max-pods.yaml:2: kubelet-arg replaces", ourRKE2}},
	"a later file that adds the policy": {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml.d/zz.YML", "kubelet-arg+:\n- v=2\n- cpu-manager-policy=none\n"),
		want: []string{"/etc/rancher/rke2/config.yaml.d/zz.YML:3: sets cpu-manager-policy"}},
	"one that writes its name with underscores": {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml.d/zz.yaml", "kubelet-arg+:\n- cpu_manager_policy=none\n"),
		want: []string{"/etc/rancher/rke2/config.yaml.d/zz.yaml:2: sets cpu-manager-policy"}},
	"options with underscores beside none": {policy: operation.None, prepare: write("/etc/rancher/rke2/config.yaml", "kubelet-arg:\n- cpu_manager_policy_options=full-pcpus-only=true\n"),
		want: []string{"/etc/rancher/rke2/config.yaml:2:", "cpu-manager-policy-options"}},
	"an earlier file that replaces": {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml.d/99-max-pods.yaml", "kubelet-arg:\n- max-pods=200\n- cpu-manager-policy=none\n")},
	"options beside none": {policy: operation.None, prepare: write("/etc/rancher/rke2/config.yaml", "kubelet-arg:\n- cpu-manager-policy-options=full-pcpus-only=true\n"),
		want: []string{"/etc/rancher/rke2/config.yaml:2:", "cpu-manager-policy-options"}},
	"options of the unit beside none": {policy: operation.None, units: []string{"/etc/rke2.service"}, prepare: write("/etc/rke2.service", "ExecStart=rke2 agent --kubelet-arg=cpu-manager-policy-options=full-pcpus-only=true\n"),
		want: []string{"/etc/rke2.service:1:", "cpu-manager-policy-options"}},
	"the policy in the unit": {policy: operation.Static, units: []string{"/etc/rke2.service"}, prepare: write("/etc/rke2.service", "[Service]\nExecStart=rke2 agent --kubelet-arg=cpu-manager-policy=none\n"),
		want: []string{"/etc/rke2.service:2: cpu-manager-policy overrides"}},
	"a file of our name with more": {policy: operation.Static, prepare: write(ourRKE2, "kubelet-arg+:\n- \"cpu-manager-policy=none\"\n- v=4\n"), want: []string{ourRKE2, "somebody else"}},
	"a file that is no YAML":       {policy: operation.Static, prepare: write("/etc/rancher/rke2/config.yaml", "a: [\n"), want: []string{"/etc/rancher/rke2/config.yaml"}},
}

func TestWhatWouldKeepTheKubeletOfRKE2DownIsRefused(t *testing.T) {
	for _, of := range []map[string]refusal{both, ofRKE2} {
		for name, test := range of {
			t.Run(name, func(t *testing.T) {
				h := newTestHost(t)
				if err := os.MkdirAll(h.at(filepath.Dir(ourRKE2)), 0o755); err != nil {
					t.Fatal(err)
				}
				if test.prepare != nil {
					test.prepare(h)
				}
				// The kubelet has the policy as a flag: rke2 gives it so.
				pid := h.cmdline(kubeletArgs(append(test.args, "--cpu-manager-policy=none")...)...)
				host := h.open()
				k, err := host.kubeletOf(pid, nil, test.units, "")
				if err != nil {
					t.Fatal(err)
				}
				args, err := readRKE2(hostDisk(h.root))
				if err == nil {
					_, err = host.planRKE2(t.Context(), k, args, test.policy, "rke2-agent.service")
				}
				checkRefusal(t, test, err)
			})
		}
	}
}

func TestPlans(t *testing.T) {
	h := newTestHost(t)
	h.write(partition.PinningFilePath, `{"management":{"cpuset":"0"}}`)
	h.write(testConfig, kubeletHeader+"healthzPort: 1234\nhealthzBindAddress: 0.0.0.0\ncontainerRuntimeEndpoint: unix:///run/crio/crio.sock\n")
	pid := h.cmdline(kubeletArgs("--healthz-port=1235", "--root-dir=/data")...)
	if err := os.Mkdir(h.at("/data"), 0o755); err != nil {
		t.Fatal(err)
	}
	host := h.open()
	k, err := host.kubeletOf(pid, []string{"/usr/bin/kubelet", "$ARGS", "--config-dir=/etc/kubernetes/kubelet.conf.d"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{Unit: "kubelet.service", DropIn: testDropIn, Content: kubeletHeader + "cpuManagerPolicy: static\n", Checkpoint: "/data/cpu_manager_state",
		Healthz: "http://127.0.0.1:1235/healthz", Runtime: "unix:///run/crio/crio.sock", CPUs: "1-3", Reconciled: 15 * time.Second}
	if plan, err := host.planDropIn(t.Context(), k, operation.Static, "kubelet.service", ""); err != nil || *plan != want {
		t.Errorf("the plan is %+v, %v, want %+v", plan, err, want)
	}
	want.Unit, want.DropIn, want.Content = "rke2-server.service", ourRKE2, "kubelet-arg+:\n- \"cpu-manager-policy=static\"\n"
	if err := os.MkdirAll(h.at(filepath.Dir(ourRKE2)), 0o755); err != nil {
		t.Fatal(err)
	}
	if plan, err := host.planRKE2(t.Context(), k, nil, operation.Static, "rke2-server.service"); err != nil || *plan != want {
		t.Errorf("the plan of rke2 is %+v, %v, want %+v", plan, err, want)
	}
}

func TestTheTimeOfAReconciliationIsTheKubelets(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		args   []string
		want   time.Duration
	}{
		"upstream's default":     {"", nil, 15 * time.Second},
		"that of the file":       {"cpuManagerReconcilePeriod: 20s\n", nil, 25 * time.Second},
		"a flag before the file": {"cpuManagerReconcilePeriod: 20s\n", []string{"--cpu-manager-reconcile-period=3s"}, 8 * time.Second},
		"a minute at most":       {"cpuManagerReconcilePeriod: 1h\n", nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			h.write(testConfig, kubeletHeader+test.config)
			k, err := h.open().kubeletOf(h.cmdline(kubeletArgs(test.args...)...), nil, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := k.reconciled(); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}
