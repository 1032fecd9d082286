// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
)

// A Tuned isolates CPUs 1 to 3 by a variable of the profile that it includes.
const tuned = `
apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata: {name: edge, namespace: openshift-cluster-node-tuning-operator}
spec:
  profile:
  - name: base
    data: |
      [main]
      summary=base
      [variables]
      isolated_cores=1-3
  - name: edge
    data: |
      [main]
      include=base
      [bootloader]
      # cmdline_old=isolcpus=0-1
      cmdline_edge=+nosmt isolcpus=${isolated_cores}
`

// configMap is one of a NodePool, whose manifest begins in its sixth line.
func configMap(key, style, manifest string) string {
	return "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: clusters}\ndata:\n  " + key + ": " + style + "\n    " + strings.ReplaceAll(strings.TrimSpace(manifest), "\n", "\n    ") + "\n"
}

func TestKernelArgumentsThatIsolateAPool(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a Tuned":                                {tuned, []string{"14 pool_isolated warning"}},
		"a Tuned that isolates others":           {strings.Replace(tuned, "=1-3", "=2-3", 1), nil},
		"a Tuned that takes the argument away":   {strings.Replace(tuned, "=+nosmt ", "=-", 1), nil},
		"a Tuned whose CPUs the node computes":   {strings.Replace(tuned, "=1-3", "=${f:calc_isolated_cores:1}", 1), nil},
		"a Tuned of a NodePool":                  {configMap("tuning", "|", tuned), []string{"19 pool_isolated warning"}},
		"a Tuned of a NodePool, in other quotes": {configMap("tuning", ">-", strings.ReplaceAll(tuned, "\n", "\n\n")), []string{"6 pool_isolated warning"}},
		"a Tuned in another key":                 {configMap("other", "|", strings.Replace(tuned, "${isolated_cores}", "1-3", 1)), []string{"6 pool_isolated warning"}},
		"a MachineConfig of a NodePool":          {configMap("config", "|", machineConfig("isolcpus=1-3")), []string{"12 pool_isolated warning"}},
		"a PerformanceProfile of a NodePool":     {configMap("tuning", "|", performanceProfile("{isolated: 1-3, reserved: '0', balanceIsolated: false}")), []string{"11 pool_isolated warning"}},
		"the second manifest of a NodePool":      {configMap("config", "|", machineConfig("nosmt")+"---\n"+machineConfig("isolcpus=1-3")), []string{"19 pool_isolated warning"}},
		"a key of a NodePool with no manifest":   {configMap("config", "|", "a: ["), nil},
		"a workload in a ConfigMap":              {configMap("config", "|", pod("", burstable)), nil},
		"an argument of a PerformanceProfile":    {"\napiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: a}\nspec:\n  additionalKernelArgs:\n  - nosmt\n  - isolcpus=1-3\n", []string{"8 pool_isolated warning"}},
		"Talos":                                  {"version: v1alpha1\nmachine:\n  install:\n    extraKernelArgs:\n    - nosmt\n    - isolcpus=1-3\n", []string{"6 pool_isolated warning"}},
		"Talos, which takes it away":             {"version: v1alpha1\nmachine:\n  install:\n    extraKernelArgs: [-isolcpus=1-3]\n", nil},
		"Butane":                                 {"variant: fcos\nversion: 1.5.0\nkernel_arguments:\n  should_exist:\n  - isolcpus=domain,managed_irq,0-3\n", []string{"5 pool_isolated warning"}},
		"Butane, which takes it away":            {"variant: fcos\nversion: 1.5.0\nkernel_arguments:\n  should_not_exist:\n  - isolcpus=0-3\n", nil},
		"Butane, which keeps interrupts away":    {"variant: fcos\nversion: 1.5.0\nkernel_arguments:\n  should_exist:\n  - isolcpus=managed_irq,0-3\n", nil},
		"Ignition":                               {`{"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["isolcpus=0-3"], "shouldNotExist": ["isolcpus=0-5"]}}`, []string{"1 pool_isolated warning"}},
		"Ignition in a MachineConfig":            {"\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: a}\nspec:\n  config:\n    kernelArguments:\n      shouldExist: [isolcpus=0-3]\n", []string{"8 pool_isolated warning"}},
		"a command of cloud-init":                {"#cloud-config\nruncmd:\n- grubby --update-kernel=ALL --args=\"isolcpus=0-3 nosmt\"\n- grubby --update-kernel=ALL --remove-args=\"isolcpus=0-1\"\n", []string{"3 pool_isolated warning"}},
		"a file of the boot loader":              {"#cloud-config\nwrite_files:\n- path: /etc/default/grub.d/a.cfg\n  content: |\n    # isolcpus=0 would do\n    GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus=0-3\"\n", []string{"4 pool_isolated warning"}},
		"a command before kubeadm":               {"\napiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: KubeadmConfigTemplate\nmetadata: {name: a, annotations: {a: isolcpus=0-3}}\nspec:\n  template:\n    spec:\n      preKubeadmCommands:\n      - rpm-ostree kargs --append=isolcpus=0-3 --delete=isolcpus=0-5\n", []string{"9 pool_isolated warning"}},
		"a MachineConfig inside a Template":      {"\napiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects:\n- " + strings.ReplaceAll(machineConfig("isolcpus=1-3"), "\n", "\n  "), []string{"11 pool_isolated warning"}},
		"an argument of a container":             {deployment(asks, burstable+"\n        args: [isolcpus=0-3]"), nil},
		"what is not a list of CPUs":             {"version: v1alpha1\nmachine: {install: {extraKernelArgs: [isolcpus=nohz]}}\n", nil},
		"what has nothing to do with hosts":      {"replicas: 3\nimage: {tag: a}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := lintText(test.text, Options{Pools: cpuset.New(0, 1)})
			if got := briefly(r); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 || len(r.Problems) > 0 {
				t.Errorf("got %q, want %q; problems: %v", got, test.want, r.Problems)
			}
		})
	}
}

// twoKinds is a host with two kinds of cores: the first two have two threads.
var twoKinds = topology.Topology{
	Online: cpuset.New(0, 1, 2, 3, 4, 5),
	Cores:  []topology.Core{{CPUs: cpuset.New(0, 1)}, {CPUs: cpuset.New(2, 3)}, {CPUs: cpuset.New(4)}, {CPUs: cpuset.New(5)}},
	Nodes:  []topology.Node{{CPUs: cpuset.New(0, 1, 2, 3, 4, 5)}},
}

const (
	splitFile = `{"management": {"cpuset": "0,4"}}`
	static    = "\napiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\nspec:\n  kubeletConfig:\n    cpuManagerPolicy: static\n    reservedSystemCPUs: 0,4\n"
	ordinary  = "\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: none\n"
)

func TestPoolsThatDoNotSuitTheHost(t *testing.T) {
	oneKind, isolating := twoKinds, twoKinds
	oneKind.Cores = []topology.Core{{CPUs: cpuset.New(0, 1)}, {CPUs: cpuset.New(2, 3)}, {CPUs: cpuset.New(4, 5)}}
	isolating.Isolated = cpuset.New(4, 5)
	url := "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(splitFile))
	const file = "openshift-workload-pinning"
	for name, test := range map[string]struct {
		file, text string
		host       *topology.Topology
		pools      cpuset.CPUSet
		want       []string
		message    string
		problem    string
	}{
		"a pinning file":                                                      {file: file, text: splitFile, host: &twoKinds, want: []string{"1 pool_splits_core warning"}, message: "A pool has CPU 0 without the rest of its physical core or socket"},
		"a pinning file with whole cores":                                     {file: file, text: `{"management": {"cpuset": "0-1,4"}}`, host: &twoKinds},
		"a pinning file, and cores of one kind":                               {file: file, text: splitFile, host: &oneKind},
		"a pinning file, and no known host":                                   {file: file, text: splitFile},
		"a pinning file, and the policy none":                                 {file: "a.yaml", text: documents(ordinary, machineConfigWith("/etc/kubernetes/"+file, url)), host: &twoKinds},
		"a pinning file on isolated CPUs":                                     {file: file, text: `{"management": {"cpuset": "4-5"}}`, host: &isolating, want: []string{"1 pool_isolated warning"}, message: "so all of the type's pods crowd onto one of them"},
		"a pinning file that the kubelet refuses":                             {file: file, text: `{"management": {"cpuset": "6"}}`, host: &twoKinds, problem: "the kubelet of this host refuses the pinning file"},
		"a file of another name and the same form":                            {file: "a.json", text: splitFile, host: &twoKinds},
		"a MachineConfig":                                                     {file: "a.yaml", text: machineConfigWith("/etc/kubernetes/"+file, url), host: &twoKinds, want: []string{"10 pool_splits_core warning"}},
		"a MachineConfig with another file":                                   {file: "a.yaml", text: machineConfigWith("/etc/kubernetes/other", url), host: &twoKinds},
		"a MachineConfig, and the policy static":                              {file: "a.yaml", text: documents(machineConfigWith("/etc/kubernetes/"+file, url), static), host: &twoKinds, want: []string{"10 pool_splits_core warning", "20 pool_splits_core warning"}},
		"a KubeletConfig":                                                     {file: "a.yaml", text: static, host: &twoKinds, want: []string{"8 pool_splits_core warning"}},
		"a KubeletConfig, and known pools":                                    {file: "a.yaml", text: static, host: &twoKinds, pools: cpuset.New(4)},
		"a KubeletConfig of a NodePool":                                       {file: "a.yaml", text: configMap("config", "|", static), host: &twoKinds, want: []string{"13 pool_splits_core warning"}},
		"a kubelet's configuration":                                           {file: "a.yaml", text: strings.Replace(ordinary, "none", "static\nreservedSystemCPUs: \"2\"", 1), host: &twoKinds, want: []string{"5 pool_splits_core warning"}},
		"a kubelet's configuration, policy none":                              {file: "a.yaml", text: strings.Replace(ordinary, "none", "none\nreservedSystemCPUs: \"2\"", 1), host: &twoKinds},
		"a PerformanceProfile":                                                {file: "a.yaml", text: performanceProfile("{reserved: '0,4', isolated: '1-3,5'}"), host: &twoKinds, want: []string{"5 pool_splits_core warning"}},
		"a PerformanceProfile on isolated CPUs":                               {file: "a.yaml", text: performanceProfile("{reserved: '0-1,4', isolated: '2-3,5'}"), host: &isolating, want: []string{"5 pool_isolated warning"}},
		"a PerformanceProfile whose packet processing has the rest of a core": {file: "a.yaml", text: performanceProfile("{reserved: '0,4', ovsDpdk: '1', isolated: '2-3,5'}"), host: &twoKinds},
		"a pinning file, and the kubelet reserves the rest of the core":       {file: "a.yaml", text: documents(strings.Replace(static, "0,4", "0-1,4", 1), machineConfigWith("/etc/kubernetes/"+file, url)), host: &twoKinds},
		"a pinning file, and a kubelet reserves other CPUs":                   {file: "a.yaml", text: documents(strings.Replace(static, "0,4", "0,2-4", 1), machineConfigWith("/etc/kubernetes/"+file, url)), host: &twoKinds, want: []string{"8 pool_splits_core warning", "18 pool_splits_core warning"}},
		"a PerformanceProfile with whole cores":                               {file: "a.yaml", text: performanceProfile("{reserved: 0-1, isolated: 2-5}"), host: &twoKinds},
		"a file of cloud-init":                                                {file: "a.yaml", text: "#cloud-config\nwrite_files:\n- path: /etc/kubernetes/" + file + "\n  content: |\n    " + splitFile + "\n", host: &twoKinds, want: []string{"3 pool_splits_core warning"}},
		"a file of cloud-init that is encoded":                                {file: "a.yaml", text: "#cloud-config\nwrite_files:\n- path: /etc/kubernetes/" + file + "\n  encoding: b64\n  content: e30=\n", host: &twoKinds},
		"a file of Butane, and a drop-in with the policy none":                {file: "a.bu", text: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/kubernetes/" + file + "\n    contents:\n      inline: '" + splitFile + "'\n  - path: /etc/kubernetes/kubelet.conf.d/a.conf\n    contents:\n      inline: |" + strings.ReplaceAll(ordinary, "\n", "\n        ") + "\n", host: &twoKinds},
		"a file of Butane":                                                    {file: "a.yaml", text: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/kubernetes/" + file + "\n    contents:\n      inline: '" + splitFile + "'\n", host: &twoKinds, want: []string{"5 pool_splits_core warning"}},
		"a file of kOps":                                                      {file: "a.yaml", text: "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nmetadata: {name: a}\nspec:\n  fileAssets:\n  - name: pinning\n    path: /etc/kubernetes/" + file + "\n    content: '" + splitFile + "'\n", host: &twoKinds, want: []string{"6 pool_splits_core warning"}},
		"a compressed file of Ignition":                                       {file: "a.json", text: `{"ignition": {"version": "3.3.0"}, "storage": {"files": [{"path": "/etc/kubernetes/` + file + `", "contents": {"compression": "gzip", "source": "` + url + `"}}]}}`, host: &twoKinds},
		"a file of Ignition":                                                  {file: "a.json", text: `{"ignition": {"version": "3.3.0"}, "storage": {"files": [{"path": "/etc/kubernetes/` + file + `", "contents": {"source": "` + url + `"}}]}}`, host: &twoKinds, want: []string{"1 pool_splits_core warning"}},
		"a file of Ignition that nothing can parse":                           {file: "a.json", text: `{"ignition": {"version": "3.3.0"}, "storage": {"files": [{"path": "/etc/kubernetes/` + file + `", "contents": {"source": "data:,%7B"}}]}}`, host: &twoKinds, problem: "refuses the pinning file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Lint([]Source{{Name: test.file, Data: []byte(test.text)}}, Options{Host: test.host, Pools: test.pools})
			if got := briefly(r); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %q, want %q", got, test.want)
			} else if len(got) > 0 && !strings.Contains(r.Findings[0].Message, test.message) {
				t.Errorf("the message is %q, want %q in it", r.Findings[0].Message, test.message)
			}
			if len(r.Problems) > 0 != (test.problem != "") || test.problem != "" && !strings.Contains(r.Problems[0].Message, test.problem) {
				t.Errorf("problems %v, want %q", r.Problems, test.problem)
			}
			for _, f := range r.Findings {
				if !knownRule(f.Rule) {
					t.Errorf("the catalogue lacks %s", f.Rule)
				}
			}
		})
	}
}

// machineConfigWith writes a file.
func machineConfigWith(path, url string) string {
	return "\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: a}\nspec:\n  config:\n    ignition: {version: 3.2.0}\n    storage:\n      files:\n      - path: " + path + "\n        contents:\n          source: " + url + "\n"
}

func TestDirectoriesMayHaveAPinningFile(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"openshift-workload-pinning", "other", "a.bu"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(splitFile), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sources, err := Read([]string{directory}, nil)
	if err != nil || len(sources) != 2 || filepath.Base(sources[1].Name) != "openshift-workload-pinning" {
		t.Errorf("read %v, %v", sources, err)
	}
}
