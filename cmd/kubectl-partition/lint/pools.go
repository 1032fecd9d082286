// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/partition"
)

// cpuProfile is the part of a PerformanceProfile that is about pools.
type cpuProfile struct {
	Spec struct {
		CPU struct {
			Reserved        string `json:"reserved"`
			OVSDPDK         string `json:"ovsDpdk"`
			Isolated        string `json:"isolated"`
			BalanceIsolated *bool  `json:"balanceIsolated"`
		} `json:"cpu"`
	} `json:"spec"`
}

func (o *object) profile() (p cpuProfile, err error) {
	err = o.read(&p)
	return p, err
}

// kubeletSettings is the part of a kubelet's configuration that is about pools.
type kubeletSettings struct {
	CPUManagerPolicy   string `json:"cpuManagerPolicy"`
	ReservedSystemCPUs string `json:"reservedSystemCPUs"`
}

// static returns what is reserved with the policy static; ok is false with another policy, or if that cannot be read.
func (s kubeletSettings) static() (reserved cpuset.CPUSet, ok bool) {
	reserved, err := partition.ParseCPUs(s.ReservedSystemCPUs)
	return reserved, err == nil && s.CPUManagerPolicy == partition.StaticPolicy
}

// kubelets calls a function with each configuration of a kubelet in an object, and with the path there: the object itself, that in a
// KubeletConfig, and the files that an installer is to write.
func (o *object) kubelets(see func(settings kubeletSettings, at []string)) error {
	switch {
	case o.is(kubeletKind):
		var settings kubeletSettings
		if err := o.read(&settings); err != nil {
			return err
		}
		see(settings, nil)
	case o.is(kubeletConfigKind):
		var config struct {
			Spec struct {
				KubeletConfig kubeletSettings `json:"kubeletConfig"`
			} `json:"spec"`
		}
		if err := o.read(&config); err != nil {
			return err
		}
		see(config.Spec.KubeletConfig, []string{"spec", "kubeletConfig"})
	}
	o.files(func(_ string, content []byte, at []string) {
		if !bytes.Contains(content, []byte(kubeletKind.Kind)) {
			return
		}
		var file struct {
			Kind string `json:"kind"`
			kubeletSettings
		}
		if yaml.Unmarshal(content, &file) == nil && file.Kind == kubeletKind.Kind {
			see(file.kubeletSettings, at)
		}
	})
	return nil
}

// policy notes which policies of the CPU manager the input has, and what is reserved with the policy static.
func (l *linter) policy(o *object) error {
	if l.Host == nil || !o.configuresHosts() {
		return nil
	}
	return o.kubelets(func(settings kubeletSettings, _ []string) {
		l.policyKnown = l.policyKnown || settings.CPUManagerPolicy != ""
		if reserved, ok := settings.static(); ok {
			l.reserved = append(l.reserved, reserved)
		}
	})
}

// pools finds pools that do not suit the host.
func (l *linter) pools(o *object) error {
	if l.Host == nil || !o.configuresHosts() {
		return nil
	}
	switch {
	case o.is(pinningFileKind):
		return l.pinningFile(o, o.document.text)
	case o.is(profileKind):
		profile, err := o.profile()
		if err != nil {
			return err
		}
		pool, err := partition.ParseCPUs(profile.Spec.CPU.Reserved)
		system, systemErr := partition.ParseCPUs(profile.Spec.CPU.OVSDPDK)
		if err == nil && systemErr == nil { // the companion names what it refuses
			// The policy that comes with it is static.
			pools, at := partition.Pools{"management": pool}, []string{"spec", "cpu", "reserved"}
			l.splits(o, pools, []cpuset.CPUSet{system}, at...)
			l.onIsolated(o, pools, at...)
		}
	}
	o.files(func(path string, content []byte, at []string) {
		if path == partition.PinningFilePath {
			l.problem(l.pinningFile(o, content, at...))
		}
	})
	return o.kubelets(func(settings kubeletSettings, at []string) {
		reserved, ok := settings.static()
		if !ok {
			return
		}
		pools := partition.Pools{"": l.Pools}
		if l.Pools.IsEmpty() {
			pools[""] = reserved // the pools, as a rule
		}
		l.splits(o, pools, []cpuset.CPUSet{reserved}, append(at[:len(at):len(at)], "reservedSystemCPUs")...)
	})
}

// files calls a function with each file in an object that an installer is to write: where, what, and the path in the object.
func (o *object) files(see func(path string, content []byte, at []string)) {
	o.visit(func(value any, at []string) bool {
		if fields, ok := value.(map[string]any); ok {
			path, _ := fields["path"].(string)
			if content, ok := contentOf(fields); ok && path != "" {
				see(path, content, at)
			}
		}
		return true
	})
}

// contentOf returns what an installer is to write: cloud-init, kubeadm's bootstrap provider and kOps have it in a field, Butane and
// Ignition, also that of a MachineConfig, in a mapping. It returns false for what is packed or fetched.
func contentOf(file map[string]any) ([]byte, bool) {
	contents, _ := file["contents"].(map[string]any)
	if source, ok := contents["source"].(string); ok {
		url, err := dataurl.DecodeString(source)
		if packed, _ := contents["compression"].(string); err != nil || packed != "" {
			return nil, false
		}
		return url.Data, true
	}
	for _, content := range []any{contents["inline"], file["content"], file["contents"]} {
		if text, ok := content.(string); ok {
			encoding, _ := file["encoding"].(string)
			return []byte(text), encoding == "" || encoding == "text/plain"
		}
	}
	return nil, false
}

// pinningFile judges a pinning file at a path in an object. The error is why the kubelet would refuse it.
func (l *linter) pinningFile(o *object, data []byte, at ...string) error {
	pools, err := partition.Parse(data, l.Host.Online)
	if err != nil {
		file, line := o.at(at...)
		return Problem{File: file, Line: line, Message: fmt.Sprintf("%s: the kubelet of this host refuses the pinning file: %v", o.Object, err)}
	}
	reserved := l.reserved
	if !l.policyKnown {
		reserved = []cpuset.CPUSet{cpuset.New()}
	}
	l.splits(o, pools, reserved, at...)
	l.onIsolated(o, pools, at...)
	return nil
}

// splits reports CPUs of pools that the static policy of the CPU manager may give away, whichever of several CPU lists is reserved
// besides the pools: which of them goes with the pools is not known. Without a list there is no such policy.
func (l *linter) splits(o *object, pools partition.Pools, reserved []cpuset.CPUSet, at ...string) {
	cores, sockets := l.Host.Groups()
	var given cpuset.CPUSet
	for i, list := range reserved {
		if more := pools.GivenAway(list, cores, sockets); i == 0 {
			given = more
		} else {
			given = given.Intersection(more)
		}
	}
	if !given.IsEmpty() {
		l.find(o, splitPool, Warning, partition.GivenAwayMessage(given), nil, at...)
	}
}

// onIsolated reports pools on CPUs between which the host balances no load.
func (l *linter) onIsolated(o *object, pools partition.Pools, at ...string) {
	found := pools.OnIsolated(l.Host.Isolated)
	for _, workloadType := range slices.Sorted(maps.Keys(found)) {
		l.find(o, isolatedPool, Warning, partition.OnIsolatedMessage(workloadType, pools[workloadType], found[workloadType]), nil, at...)
	}
}
