/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/cpuset"
)

// KubeletSettings are the settings of a kubelet that have to do with the pools, under the names
// of its configuration (k8s.io/kubelet/config/v1beta1, KubeletConfiguration).
type KubeletSettings struct {
	CPUManagerPolicy                         string
	CPUManagerPolicyOptions                  map[string]string
	ReservedSystemCPUs                       string
	KubeReserved, SystemReserved             map[string]string
	KubeReservedCgroup, SystemReservedCgroup string
	EnforceNodeAllocatable                   []string
	FeatureGates                             map[string]bool
	// SystemPartitionCPUs are those of upstream's own partition for system pods, systemPartition.cpuset (KEP-5894). It is
	// empty if there is none, as on all releases that lack the gate NodeSystemPartition.
	SystemPartitionCPUs string
}

const (
	// StaticPolicy is the policy of the CPU manager that gives containers exclusive CPUs.
	StaticPolicy = "static"
	// StrictReservation is the option of that policy that keeps reserved CPUs from being shared.
	StrictReservation = "strict-cpu-reservation"

	reservedCPUsSetting  = "reservedSystemCPUs"
	policyOptionsSetting = "cpuManagerPolicyOptions"
	systemPartitionField = "systemPartition.cpuset"
	// betaOptions is the feature gate of options that are beta.
	betaOptions = "CPUManagerPolicyBetaOptions"
)

// Reservation is what [Pools.Reserve] found to report about the settings of a kubelet.
type Reservation struct {
	// Differs says that ReservedSystemCPUs did not contain the pools. It is empty if it did.
	Differs string
	// Missing are the CPUs that it did not contain.
	Missing cpuset.CPUSet
	// Replaced are the reserved amounts of CPU that no longer count, such as "kubeReserved
	// cpu=500m".
	Replaced []string
	// Dropped are the settings that upstream forbids together with reserved CPUs, such as
	// "systemReservedCgroup=/system.slice".
	Dropped []string
	// Unstartable says why upstream will not start, although the file, which has gone, is not to
	// blame. It is empty if upstream will.
	Unstartable string
}

// Reserve makes the pools reserved CPUs, and has the static policy of the CPU manager keep
// reserved CPUs out of the shared CPUs (design, section 6, start-up). Pools without a CPU
// change nothing, nor do nil pools, which mean that there is no file. release is the kubelet's
// minor version, such as "1.37".
//
// Reserve replaces maps and slices and never changes their elements. An error names the setting,
// and keeps the kubelet from starting.
func (p Pools) Reserve(settings *KubeletSettings, release string) (Reservation, error) {
	var found Reservation
	pooled := p.Union()
	if pooled.IsEmpty() {
		if settings.lackReservation() {
			const message = "the static policy of the CPU manager needs a reserved CPU, and " + PinningFilePath + " reserves none: add " + reservedCPUsSetting + ", or cpu to kubeReserved or systemReserved"
			if p != nil {
				return found, errors.New(message)
			}
			found.Unstartable = message
		}
		return found, nil
	}
	if err := settings.sameSystemPartition(pooled); err != nil {
		return found, err
	}
	if settings.ReservedSystemCPUs == "" {
		settings.ReservedSystemCPUs = pooled.String()
		settings.replaceReservations(&found)
	}
	reserved, err := cpuset.Parse(settings.ReservedSystemCPUs)
	if err != nil {
		return found, fmt.Errorf("%s %q: %w", reservedCPUsSetting, settings.ReservedSystemCPUs, err)
	}
	if found.Missing = pooled.Difference(reserved); !found.Missing.IsEmpty() {
		// Start all the same. An operator that changes both writes one after the other, and the
		// pod that would write the second needs a kubelet.
		found.Differs = fmt.Sprintf("%s %q does not contain CPU %s, which %s gives to a pool; both are reserved now; write the same CPUs to both, or leave %[1]s unset",
			reservedCPUsSetting, settings.ReservedSystemCPUs, found.Missing, PinningFilePath)
		settings.ReservedSystemCPUs = reserved.Union(pooled).String()
	}
	if settings.CPUManagerPolicy != StaticPolicy {
		return found, nil
	}
	if err := strictReservationAvailable(settings.FeatureGates, release); err != nil {
		return found, err
	}
	if value, set := settings.CPUManagerPolicyOptions[StrictReservation]; set {
		if !settings.Strict() {
			return found, fmt.Errorf("%s: %s is %q, but the pools of %s must not be shared; set it to \"true\", or leave it unset", policyOptionsSetting, StrictReservation, value, PinningFilePath)
		}
		return found, nil
	}
	options := map[string]string{StrictReservation: "true"}
	maps.Copy(options, settings.CPUManagerPolicyOptions)
	settings.CPUManagerPolicyOptions = options
	return found, nil
}

// sameSystemPartition returns an error if upstream's partition for system pods has other CPUs than the pools: one
// management pod would be confined to one set of CPUs, and the next to another.
func (s *KubeletSettings) sameSystemPartition(pooled cpuset.CPUSet) error {
	if s.SystemPartitionCPUs == "" {
		return nil
	}
	system, err := cpuset.Parse(s.SystemPartitionCPUs)
	if err != nil {
		return fmt.Errorf("%s %q: %w", systemPartitionField, s.SystemPartitionCPUs, err)
	}
	if !system.Equals(pooled) {
		return fmt.Errorf("%s of the kubelet's configuration has the CPUs %s, and the pools of %s have %s: write the same CPUs to both, or remove one of them", systemPartitionField, system, PinningFilePath, pooled)
	}
	return nil
}

// Strict reports whether reserved CPUs are kept out of the shared CPUs. It parses the option as
// upstream does, and takes a value that is none for false.
func (s *KubeletSettings) Strict() bool {
	strict, err := strconv.ParseBool(s.CPUManagerPolicyOptions[StrictReservation])
	return err == nil && strict
}

// ReservedMillicores returns the CPU that allocatable lacks, in millicores: that of the reserved
// CPUs or, if there are none, of the reserved amounts. An error names the setting.
func (s *KubeletSettings) ReservedMillicores() (int64, error) {
	if s.ReservedSystemCPUs != "" {
		reserved, err := cpuset.Parse(s.ReservedSystemCPUs)
		if err != nil {
			return 0, fmt.Errorf("%s %q: %w", reservedCPUsSetting, s.ReservedSystemCPUs, err)
		}
		return int64(reserved.Size()) * 1000, nil
	}
	var sum int64
	for _, of := range s.reservations() {
		amount, has := of.reserved["cpu"]
		if !has {
			continue
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return 0, fmt.Errorf("%sReserved cpu %q: %w", of.name, amount, err)
		}
		sum += quantity.MilliValue()
	}
	return sum, nil
}

// lackReservation reports whether the static policy, which needs a reserved CPU, has none.
func (s *KubeletSettings) lackReservation() bool {
	if s.CPUManagerPolicy != StaticPolicy || s.ReservedSystemCPUs != "" {
		return false
	}
	return !slices.ContainsFunc(s.reservations(), func(of reservation) bool {
		cpu, err := resource.ParseQuantity(of.reserved["cpu"])
		return err == nil && cpu.Sign() > 0
	})
}

// reservation is one of the two that upstream knows besides reserved CPUs.
type reservation struct {
	name     string
	reserved map[string]string
	cgroup   *string
}

func (s *KubeletSettings) reservations() []reservation {
	return []reservation{
		{"kube", s.KubeReserved, &s.KubeReservedCgroup},
		{"system", s.SystemReserved, &s.SystemReservedCgroup},
	}
}

// replaceReservations drops the settings that upstream forbids together with reservedSystemCPUs, and
// reports what they protected (pkg/kubelet/apis/config/validation,
// ValidateKubeletConfiguration). Upstream itself drops reserved amounts of cpu
// (cmd/kubelet/app, run).
func (s *KubeletSettings) replaceReservations(found *Reservation) {
	for _, of := range s.reservations() {
		if amount, has := of.reserved["cpu"]; has {
			found.Replaced = append(found.Replaced, of.name+"Reserved cpu="+amount)
		}
		if *of.cgroup == "" {
			continue
		}
		found.Dropped = append(found.Dropped, of.name+"ReservedCgroup="+*of.cgroup)
		*of.cgroup = ""
		s.EnforceNodeAllocatable = slices.DeleteFunc(slices.Clone(s.EnforceNodeAllocatable), func(entry string) bool {
			needsCgroup := strings.TrimSuffix(entry, "-compressible") == of.name+"-reserved"
			if needsCgroup {
				found.Dropped = append(found.Dropped, "enforceNodeAllocatable: "+entry)
			}
			return needsCgroup
		})
	}
}

// DroppedMessage says what it means that settings were dropped.
const DroppedMessage = reservedCPUsSetting + " reserves the pools, and upstream forbids reserved cgroups beside it: the kubelet no longer gives host processes a limit or a weight of their own"

// strictReservationAvailable returns an error if upstream would refuse the option of the static
// policy that keeps the pools out of the shared CPUs. Up to v1.34 that option is beta, and needs
// a feature gate (pkg/kubelet/cm/cpumanager/policy_options.go, CheckPolicyOptionAvailable).
// Upstream's own error names neither the pools nor the gate.
func strictReservationAvailable(gates map[string]bool, release string) error {
	if !version.MustParse(release).LessThan(version.MustParse("1.35")) {
		return nil
	}
	for _, gate := range []string{betaOptions, "AllBeta"} {
		if on, set := gates[gate]; on {
			return nil
		} else if set {
			return fmt.Errorf("featureGates: %s is false, but v%s needs it for the CPU manager's beta option %s, without which the pools of %s would be shared; set %s to true",
				gate, release, StrictReservation, PinningFilePath, betaOptions)
		}
	}
	return nil
}
