// SPDX-License-Identifier: Apache-2.0

// Package performance makes of a PerformanceProfile, from one validated value, all that the nodes of a pool need: pinning file,
// CRI-O's drop-in, the kubelet's configuration, a TuneD profile and kernel arguments. So the CPU sets of partitioning, tuning and
// NUMA cannot disagree. Files are those of kubectl partition render.
//
// It knows no companion, no client and no host.
package performance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/node/nodefiles"
	v2 "workload.openshift.io/operators/api/performance/v2"
	"workload.openshift.io/partition"
)

// Rendered is what a valid PerformanceProfile becomes.
type Rendered struct {
	// Name is the PerformanceProfile's.
	Name string
	// Files are those that a boot must find: the pinning file and CRI-O's drop-in.
	Files []nodefiles.File
	// Kubelet are the fields of the kubelet's configuration, and KubeletDropIn is the file with them.
	Kubelet       *kubeletv1beta1.KubeletConfiguration
	KubeletDropIn nodefiles.File
	// Arguments are the kernel's, all literal.
	Arguments []string
	// Tuned is the name of the TuneD profile, and TunedText its tuned.conf.
	Tuned, TunedText string
}

// TunedPrefix begins the name of each TuneD profile that is made here.
const TunedPrefix = "openshift-node-performance-"

// Priority is that of the recommendation of the TuneD profile for all nodes of the pool.
const Priority = 20

// maxName is how long a PerformanceProfile's name may be: names of objects and a TuneD profile are made of it.
const maxName = 200

// management is the workload type of the reserved CPUs.
const management = "management"

// Render validates a PerformanceProfile and renders it. Errors name the field and the value.
func Render(p v2.PerformanceProfile) (Rendered, field.ErrorList) {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	name := field.NewPath("metadata", "name")
	for _, text := range validation.IsDNS1123Subdomain(p.Metadata.Name) {
		errs = append(errs, field.Invalid(name, p.Metadata.Name, text))
	}
	if len(p.Metadata.Name) > maxName {
		errs = append(errs, field.TooLong(name, p.Metadata.Name, maxName))
	}
	cpus := spec.Child("cpu")
	reserved, more := setOf(cpus.Child("reserved"), p.Spec.CPU.Reserved, true)
	errs = append(errs, more...)
	isolated, more := setOf(cpus.Child("isolated"), p.Spec.CPU.Isolated, true)
	errs = append(errs, more...)
	system, more := setOf(cpus.Child("ovsDpdk"), p.Spec.CPU.OVSDPDK, false)
	errs = append(errs, more...)
	for _, pair := range []struct {
		name, value, other string
		a, b               cpuset.CPUSet
	}{
		{"isolated", p.Spec.CPU.Isolated, "reserved", isolated, reserved},
		{"ovsDpdk", p.Spec.CPU.OVSDPDK, "reserved", system, reserved},
		{"ovsDpdk", p.Spec.CPU.OVSDPDK, "isolated", system, isolated},
	} {
		if shared := pair.a.Intersection(pair.b); !shared.IsEmpty() {
			errs = append(errs, field.Invalid(cpus.Child(pair.name), pair.value, fmt.Sprintf("CPU %s is in %s, too", shared, pair.other)))
		}
	}
	all := reserved.Union(isolated).Union(system)
	if len(errs) == 0 {
		list := all.List()
		if missing := upTo(list[len(list)-1]).Difference(all); !missing.IsEmpty() {
			errs = append(errs, field.Invalid(cpus, all.String(), fmt.Sprintf("CPU %s is missing: reserved, isolated and ovsDpdk are all CPUs of a node", missing)))
		}
	}
	policy := ""
	if p.Spec.NUMA != nil {
		policy = p.Spec.NUMA.TopologyPolicy
		if policy != "" && !slices.Contains(nodefiles.TopologyManagerPolicies, policy) {
			errs = append(errs, field.NotSupported(spec.Child("numa", "topologyPolicy"), policy, nodefiles.TopologyManagerPolicies))
		}
	}
	hints := ptr.Deref(p.Spec.WorkloadHints, v2.WorkloadHints{})
	realTime, awake, perPod := ptr.Deref(hints.RealTime, true), ptr.Deref(hints.HighPowerConsumption, false), ptr.Deref(hints.PerPodPowerManagement, false)
	if awake && perPod {
		errs = append(errs, field.Invalid(spec.Child("workloadHints", "perPodPowerManagement"), perPod, "CPUs that never sleep cannot save power: set it or highPowerConsumption"))
	}
	pages, more := hugePages(spec.Child("hugepages"), p.Spec.HugePages)
	errs = append(errs, more...)
	for i, argument := range p.Spec.AdditionalKernelArgs {
		if !plainArgument.MatchString(argument) {
			errs = append(errs, field.Invalid(spec.Child("additionalKernelArgs").Index(i), argument, "must be one argument, of letters, digits and the characters , . : ; _ / @ + = * -, and not begin with - or +"))
		}
	}
	if len(errs) > 0 {
		return Rendered{}, errs
	}
	nodes, _, err := nodefiles.Validate(nodefiles.NodeConfiguration{
		Roles:                 []string{"worker"},
		CPUs:                  all.String(),
		Partitions:            []nodefiles.Partition{{Type: management, CPUSet: ptr.To(reserved.String())}},
		SystemCPUs:            system.String(),
		CPUManagerPolicy:      "static",
		TopologyManagerPolicy: policy,
		Host:                  []nodefiles.HostPart{nodefiles.KernelArguments},
	}, nil)
	if err != nil {
		return Rendered{}, field.ErrorList{field.Invalid(cpus, p.Spec.CPU.Reserved, err.Error())}
	}
	node := nodes[0]
	r := Rendered{Name: p.Metadata.Name, Tuned: TunedPrefix + p.Metadata.Name, Kubelet: node.KubeletConfiguration()}
	var files [3]nodefiles.File
	for i, render := range []func() (nodefiles.File, error){node.PinningFile, node.CRIODropIn, node.KubeletDropIn} {
		if files[i], err = render(); err != nil {
			return Rendered{}, field.ErrorList{field.InternalError(cpus, err)}
		}
	}
	r.Files, r.KubeletDropIn = files[:2:2], files[2]
	r.Arguments = node.KernelArguments()
	if realTime {
		r.Arguments = append(r.Arguments, "nohz_full="+node.Rest().String(), "nosoftlockup", "tsc=reliable")
	}
	if awake {
		r.Arguments = append(r.Arguments, "processor.max_cstate=1", "intel_idle.max_cstate=0")
	}
	if perPod {
		r.Arguments = append(r.Arguments, "intel_pstate=passive")
	}
	r.Arguments = slices.Concat(r.Arguments, pages, p.Spec.AdditionalKernelArgs)
	r.TunedText = tunedText(p.Metadata.Name, realTime, r.Arguments)
	return r, nil
}

// setOf reads a CPU list.
func setOf(path *field.Path, list string, required bool) (cpuset.CPUSet, field.ErrorList) {
	if list == "" && required {
		return cpuset.New(), field.ErrorList{field.Required(path, "a CPU list, such as 0-1")}
	}
	cpus, err := partition.ParseCPUs(list)
	if err != nil {
		return cpuset.New(), field.ErrorList{field.Invalid(path, list, err.Error())}
	}
	return cpus, nil
}

func upTo(last int) cpuset.CPUSet {
	all := make([]int, last+1)
	for i := range all {
		all[i] = i
	}
	return cpuset.New(all...)
}

// plainArgument is an argument without blanks, quotes, and what TuneD expands or takes for an operator (the first character).
var plainArgument = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9,.:;_/@+=*-]*$`)

// pageSize is a size of huge pages as the kernel reads it.
var pageSize = regexp.MustCompile(`^[1-9][0-9]{0,5}[KMG]$`)

// hugePages returns the arguments that set pages aside. Pages on a NUMA node need Linux 5.16.
func hugePages(path *field.Path, h *v2.HugePages) (arguments []string, errs field.ErrorList) {
	if h == nil {
		return nil, nil
	}
	if h.DefaultHugePagesSize != "" {
		if !pageSize.MatchString(h.DefaultHugePagesSize) {
			errs = append(errs, field.Invalid(path.Child("defaultHugepagesSize"), h.DefaultHugePagesSize, "must be a size such as 2M or 1G"))
		}
		arguments = append(arguments, "default_hugepagesz="+h.DefaultHugePagesSize)
	}
	counts := map[string][]string{}
	var sizes []string
	anywhere := map[string]bool{}
	nodes := map[string]bool{}
	for i, page := range h.Pages {
		path := path.Child("pages").Index(i)
		if !pageSize.MatchString(page.Size) {
			errs = append(errs, field.Invalid(path.Child("size"), page.Size, "must be a size such as 2M or 1G"))
		}
		if page.Count < 1 {
			errs = append(errs, field.Invalid(path.Child("count"), page.Count, "must be at least 1"))
		}
		if counts[page.Size] == nil {
			sizes = append(sizes, page.Size)
		}
		if page.Node == nil {
			if counts[page.Size] != nil {
				errs = append(errs, field.Invalid(path.Child("size"), page.Size, "pages of this size are set aside already: give each entry another NUMA node, or make them one"))
			}
			anywhere[page.Size] = true
			counts[page.Size] = append(counts[page.Size], fmt.Sprint(page.Count))
			continue
		}
		on := fmt.Sprintf("%s on %d", page.Size, *page.Node)
		switch {
		case *page.Node < 0:
			errs = append(errs, field.Invalid(path.Child("node"), *page.Node, "must be the number of a NUMA node"))
		case anywhere[page.Size] || nodes[on]:
			errs = append(errs, field.Invalid(path.Child("size"), page.Size, "pages of this size are set aside there already"))
		}
		nodes[on] = true
		counts[page.Size] = append(counts[page.Size], fmt.Sprintf("%d:%d", *page.Node, page.Count))
	}
	for _, size := range sizes {
		arguments = append(arguments, "hugepagesz="+size, "hugepages="+strings.Join(counts[size], ","))
	}
	return arguments, errs
}

// tunedText is the profile that TuneD applies. Its arguments are literal, so that what a node reports can be compared.
func tunedText(name string, realTime bool, arguments []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "[main]\nsummary=PerformanceProfile %s\ninclude=openshift-node\n\n", name)
	if realTime {
		// The kernel's own statistics and timers wake isolated CPUs (Linux, Documentation/admin-guide/kernel-per-CPU-kthreads.rst).
		text.WriteString("[sysctl]\nvm.stat_interval=10\nkernel.timer_migration=0\n\n")
	}
	// The MachineConfig writes the boot loader's configuration.
	fmt.Fprintf(&text, "[bootloader]\nskip_grub_config=true\ncmdline_performance=+%s\n", strings.Join(arguments, " "))
	return text.String()
}
