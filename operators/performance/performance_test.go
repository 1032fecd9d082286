// SPDX-License-Identifier: Apache-2.0

package performance

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	v2 "workload.openshift.io/operators/api/performance/v2"
)

// profile is a valid PerformanceProfile with a change.
func profile(change func(*v2.Spec)) v2.PerformanceProfile {
	p := v2.PerformanceProfile{Metadata: v2.Metadata{Name: "edge"}, Spec: v2.Spec{CPU: v2.CPU{Reserved: "0-1", Isolated: "2-7"}}}
	change(&p.Spec)
	return p
}

func TestPerformanceProfilesThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v2.Spec)
		want   string
	}{
		"without reserved CPUs":              {func(s *v2.Spec) { s.CPU.Reserved = "" }, "spec.cpu.reserved: Required value"},
		"without isolated CPUs":              {func(s *v2.Spec) { s.CPU.Isolated = "" }, "spec.cpu.isolated: Required value"},
		"with a malformed list":              {func(s *v2.Spec) { s.CPU.Reserved = "0 - 1" }, `spec.cpu.reserved: Invalid value: "0 - 1"`},
		"with a CPU in two lists":            {func(s *v2.Spec) { s.CPU.Isolated = "1-7" }, `spec.cpu.isolated: Invalid value: "1-7": CPU 1 is in reserved, too`},
		"with packet processing on a pod's":  {func(s *v2.Spec) { s.CPU.OVSDPDK = "7" }, `spec.cpu.ovsDpdk: Invalid value: "7": CPU 7 is in isolated, too`},
		"with packet processing on the pool": {func(s *v2.Spec) { s.CPU.OVSDPDK = "1" }, `spec.cpu.ovsDpdk: Invalid value: "1": CPU 1 is in reserved, too`},
		"with a gap":                         {func(s *v2.Spec) { s.CPU.Isolated = "4-7" }, `spec.cpu: Invalid value: "0-1,4-7": CPU 2-3 is missing`},
		"with an unknown topology policy":    {func(s *v2.Spec) { s.NUMA = &v2.NUMA{TopologyPolicy: "strict"} }, `spec.numa.topologyPolicy: Unsupported value: "strict"`},
		"with two hints that exclude another": {func(s *v2.Spec) {
			s.WorkloadHints = &v2.WorkloadHints{HighPowerConsumption: ptr.To(true), PerPodPowerManagement: ptr.To(true)}
		}, "spec.workloadHints.perPodPowerManagement"},
		"with a page size in other units": {func(s *v2.Spec) { s.HugePages = &v2.HugePages{DefaultHugePagesSize: "1Gi"} }, `spec.hugepages.defaultHugepagesSize: Invalid value: "1Gi"`},
		"with no page":                    {func(s *v2.Spec) { s.HugePages = &v2.HugePages{Pages: []v2.HugePage{{Size: "1G"}}} }, "spec.hugepages.pages[0].count: Invalid value: 0"},
		"with pages twice on a NUMA node": {func(s *v2.Spec) {
			s.HugePages = &v2.HugePages{Pages: []v2.HugePage{{Size: "1G", Count: 1, Node: ptr.To[int32](0)}, {Size: "1G", Count: 2, Node: ptr.To[int32](0)}}}
		}, "spec.hugepages.pages[1].size"},
		"with pages on a NUMA node and anywhere": {func(s *v2.Spec) {
			s.HugePages = &v2.HugePages{Pages: []v2.HugePage{{Size: "1G", Count: 1, Node: ptr.To[int32](0)}, {Size: "1G", Count: 2}}}
		}, "spec.hugepages.pages[1].size"},
		"with two arguments in one":       {func(s *v2.Spec) { s.AdditionalKernelArgs = []string{"a=1", "b=1 init=/bin/sh"} }, `spec.additionalKernelArgs[1]: Invalid value: "b=1 init=/bin/sh"`},
		"with an argument TuneD expands":  {func(s *v2.Spec) { s.AdditionalKernelArgs = []string{"a=${f:exec:id}"} }, "spec.additionalKernelArgs[0]"},
		"with a quote in an argument":     {func(s *v2.Spec) { s.AdditionalKernelArgs = []string{`a="1`} }, "spec.additionalKernelArgs[0]"},
		"with an argument of a next line": {func(s *v2.Spec) { s.AdditionalKernelArgs = []string{"a=1\n[sysctl]"} }, "spec.additionalKernelArgs[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := Render(profile(test.change))
			if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), test.want) {
				t.Errorf("got %v, want %s", errs, test.want)
			}
		})
	}
	p := profile(func(*v2.Spec) {})
	for name, bad := range map[string]string{"no name": "", "a name that leaves its place": "../etc", "a long name": strings.Repeat("a", 201)} {
		p.Metadata.Name = bad
		if _, errs := Render(p); len(errs) == 0 || errs[0].Field != "metadata.name" {
			t.Errorf("%s: got %v", name, errs)
		}
	}
}

func TestWhatAPerformanceProfileBecomes(t *testing.T) {
	const plain = "irqaffinity=0-1 isolcpus=managed_irq,2-7 rcu_nocbs=2-7"
	realTime := plain + " nohz_full=2-7 nosoftlockup tsc=reliable"
	for name, test := range map[string]struct {
		change    func(*v2.Spec)
		arguments string
		reserved  string
	}{
		"CPUs alone":                     {func(*v2.Spec) {}, realTime, "0-1"},
		"no real time":                   {func(s *v2.Spec) { s.WorkloadHints = &v2.WorkloadHints{RealTime: ptr.To(false)} }, plain, "0-1"},
		"CPUs that stay awake":           {func(s *v2.Spec) { s.WorkloadHints = &v2.WorkloadHints{HighPowerConsumption: ptr.To(true)} }, realTime + " processor.max_cstate=1 intel_idle.max_cstate=0", "0-1"},
		"power by pods":                  {func(s *v2.Spec) { s.WorkloadHints = &v2.WorkloadHints{PerPodPowerManagement: ptr.To(true)} }, realTime + " intel_pstate=passive", "0-1"},
		"the host's packet processing":   {func(s *v2.Spec) { s.CPU.Isolated, s.CPU.OVSDPDK = "4-7", "2-3" }, realTime, "0-3"},
		"arguments of the user, at last": {func(s *v2.Spec) { s.AdditionalKernelArgs = []string{"audit=0", "mitigations=off"} }, realTime + " audit=0 mitigations=off", "0-1"},
		"huge pages": {func(s *v2.Spec) {
			s.HugePages = &v2.HugePages{DefaultHugePagesSize: "1G", Pages: []v2.HugePage{{Size: "1G", Count: 4}, {Size: "2M", Count: 128, Node: ptr.To[int32](0)}, {Size: "2M", Count: 64, Node: ptr.To[int32](1)}}}
		}, realTime + " default_hugepagesz=1G hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=0:128,1:64", "0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, errs := Render(profile(test.change))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := strings.Join(r.Arguments, " "); got != test.arguments {
				t.Errorf("the arguments are\n%s, want\n%s", got, test.arguments)
			}
			if want := "[bootloader]\nskip_grub_config=true\ncmdline_performance=+" + test.arguments + "\n"; !strings.HasSuffix(r.TunedText, want) {
				t.Errorf("the profile is\n%s", r.TunedText)
			}
			if r.Kubelet.ReservedSystemCPUs != test.reserved || r.Kubelet.CPUManagerPolicy != "static" || !strings.Contains(string(r.KubeletDropIn.Content), "reservedSystemCPUs: "+test.reserved+"\n") {
				t.Errorf("the kubelet gets %+v and\n%s", r.Kubelet, r.KubeletDropIn.Content)
			}
			if len(r.Files) != 2 || !strings.Contains(string(r.Files[0].Content), `"cpuset": "0-1"`) || !strings.Contains(string(r.Files[1].Content), `infra_ctr_cpuset = "0-1"`) {
				t.Errorf("the pool is not 0-1: %s", r.Files)
			}
		})
	}
}

// FuzzRender finds an answer to every list, and one that the kubelet accepts.
func FuzzRender(f *testing.F) {
	f.Add("0-1", "2-7", "", "single-numa-node", "audit=0")
	f.Add("0", "1", "2", "", "")
	f.Fuzz(func(t *testing.T, reserved, isolated, system, policy, argument string) {
		p := profile(func(s *v2.Spec) {
			s.CPU = v2.CPU{Reserved: reserved, Isolated: isolated, OVSDPDK: system}
			s.NUMA = &v2.NUMA{TopologyPolicy: policy}
			s.AdditionalKernelArgs = []string{argument}
		})
		r, errs := Render(p)
		if len(errs) > 0 {
			return
		}
		if strings.Count(r.TunedText, "\n[") != 2 {
			t.Errorf("the profile has other sections:\n%s", r.TunedText)
		}
	})
}
