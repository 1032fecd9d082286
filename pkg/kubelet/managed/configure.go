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

package managed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

const (
	staticPolicy         = "static"
	strictReservation    = "strict-cpu-reservation"
	reservedCPUsSetting  = "reservedSystemCPUs"
	policyOptionsSetting = "cpuManagerPolicyOptions"
)

// Tests change these.
var (
	onlineCPUsFile   = "/sys/devices/system/cpu/online"
	isolatedCPUsFile = "/sys/devices/system/cpu/isolated"
	possibleCPUsFile = "/sys/devices/system/cpu/possible"
)

// readCPUs is readList for a file about the host's CPUs.
func readCPUs(file string) (cpuset.CPUSet, error) {
	cpus, err := readList(file)
	if err != nil {
		return cpus, fmt.Errorf("CPUs of the host: %w", err)
	}
	return cpus, nil
}

// onlineCPUs returns the CPUs that are online now. If that cannot be read, it returns those
// that were online when the kubelet started.
func onlineCPUs() cpuset.CPUSet {
	if online, err := readCPUs(onlineCPUsFile); err == nil {
		return online
	}
	return host.online
}

// readList reads a list of CPUs from a file of the kernel.
func readList(file string) (cpuset.CPUSet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	cpus, err := cpuset.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("%s: %w", file, err)
	}
	return cpus, nil
}

// Configure reads the pinning file and fits the kubelet's configuration to it (design,
// section 6, start-up). It runs before anything else uses CPUs, and before upstream validates
// the configuration. An error names the file or the setting, and keeps the kubelet from
// starting.
func Configure(ctx context.Context, rootDirectory string, config *kubeletconfig.KubeletConfiguration) error {
	setRecordPath(rootDirectory)
	host.log = klog.FromContext(ctx)
	online, err := readCPUs(onlineCPUsFile)
	if err != nil {
		if _, statErr := os.Stat(partition.PinningFilePath); os.IsNotExist(statErr) {
			return nil
		}
		return err
	}
	host.online = online
	if host.previous, err = readRecord(); err != nil {
		host.log.Error(err, "Cannot read the record of the previous pools; assuming that every container's cpuset comes from them")
	}
	pools, notes, err := partition.Load(partition.PinningFilePath, online)
	if err != nil {
		return err
	}
	if pools == nil && !host.previous.confined {
		return nil
	}
	for _, note := range notes {
		host.log.Error(nil, note)
		nodeEvent(v1.EventTypeWarning, eventDirectoryOwner, "%s", note)
	}
	if pools == nil {
		const message = "The pinning file is gone: the containers that it confined are freed, and the node no longer reports cores"
		host.log.Error(nil, message, "path", partition.PinningFilePath)
		nodeEvent(v1.EventTypeWarning, eventFileMissing, message+"; its path is %s", partition.PinningFilePath)
	}
	if union := pools.Union(); !union.IsEmpty() && online.IsSubsetOf(union) {
		const message = "The pools hold every CPU of the host, so they confine nothing and reserve nothing"
		host.log.Error(nil, message, "pools", pools, "online", online.String())
		nodeEvent(v1.EventTypeWarning, eventEveryCPU, message+": %s lists %s", partition.PinningFilePath, online)
		for workloadType := range pools {
			pools[workloadType] = cpuset.New()
		}
	}
	if err := reservePools(config, pools); err != nil {
		return err
	}
	host.isolated, _ = readCPUs(isolatedCPUsFile) // older kernels lack it
	host.podLogs = config.PodLogsDir
	host.static = config.CPUManagerPolicy == staticPolicy
	host.strict, _ = strconv.ParseBool(config.CPUManagerPolicyOptions[strictReservation])
	if host.podCgroups = config.CgroupsPerQOS; !host.podCgroups {
		host.log.Info("Pods have no cgroups of their own, so only their containers are confined, not their sandboxes or anything else that the runtime starts", "cgroupsPerQOS", false)
	}
	if config.CPUCFSQuota {
		host.quotaPeriod = config.CPUCFSQuotaPeriod.Duration
	}
	if pools == nil {
		return nil
	}
	reserved, err := cpuset.Parse(config.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("%s %q: %w", reservedCPUsSetting, config.ReservedSystemCPUs, err)
	}
	n := newNode(pools, online, host.isolated, reserved)
	if n.before = host.previous.pooled; n.before.Equals(n.pooled) {
		n.before = host.previous.before
	}
	n.known = knownPods(rootDirectory)
	n.warnOfPods(rootDirectory, int64(online.Size()-reserved.Size())*1000)
	current.Store(n)
	registerMetrics()
	for _, workloadType := range pools.Types() {
		host.log.Info("Workload partitioning is on", "workloadType", workloadType, "pool", pools[workloadType].String(), "reservedSystemCPUs", config.ReservedSystemCPUs)
	}
	return nil
}

// without returns the CPUs that are not isolated; all of them if every one is isolated.
func without(cpus, isolated cpuset.CPUSet) cpuset.CPUSet {
	if left := cpus.Difference(isolated); !left.IsEmpty() {
		return left
	}
	return cpus
}

// reservePools makes the pools reserved CPUs, and has the static policy of the CPU manager
// keep reserved CPUs out of the shared CPUs. Nil pools mean that the file has gone.
func reservePools(config *kubeletconfig.KubeletConfiguration, pools partition.Pools) error {
	pooled := pools.Union()
	if pooled.IsEmpty() {
		return needReservation(config, pools)
	}
	if config.ReservedSystemCPUs == "" {
		config.ReservedSystemCPUs = pooled.String()
		replaceReservations(config)
	}
	reserved, err := cpuset.Parse(config.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("%s %q: %w", reservedCPUsSetting, config.ReservedSystemCPUs, err)
	}
	if missing := pooled.Difference(reserved); !missing.IsEmpty() {
		// Start all the same. An operator that changes both writes one after the other, and the
		// pod that would write the second needs a kubelet.
		host.log.Error(nil, "The reserved CPUs do not contain the pools; both are reserved now", reservedCPUsSetting, config.ReservedSystemCPUs, "missing", missing.String())
		nodeEvent(v1.EventTypeWarning, eventReservedDiffer, "%s %q does not contain CPU %s, which %s gives to a pool; both are reserved now; write the same CPUs to both, or leave %[1]s unset",
			reservedCPUsSetting, config.ReservedSystemCPUs, missing, partition.PinningFilePath)
		config.ReservedSystemCPUs = reserved.Union(pooled).String()
	}
	if config.CPUManagerPolicy != staticPolicy {
		return nil
	}
	if err := strictReservationAvailable(config.FeatureGates); err != nil {
		return err
	}
	if value, set := config.CPUManagerPolicyOptions[strictReservation]; set {
		if strict, err := strconv.ParseBool(value); err != nil || !strict { // as upstream parses it
			return fmt.Errorf("%s: %s is %q, but the pools of %s must not be shared; set it to \"true\", or leave it unset", policyOptionsSetting, strictReservation, value, partition.PinningFilePath)
		}
		return nil
	}
	if config.CPUManagerPolicyOptions == nil {
		config.CPUManagerPolicyOptions = map[string]string{}
	}
	config.CPUManagerPolicyOptions[strictReservation] = "true"
	return nil
}

// needReservation returns an error if the pools are empty and the static policy has no
// reserved CPU without them. Upstream would not start, and the error names the setting to add.
// If the file has gone, needReservation only logs that: the error is then upstream's own.
func needReservation(config *kubeletconfig.KubeletConfiguration, pools partition.Pools) error {
	if config.CPUManagerPolicy != staticPolicy || config.ReservedSystemCPUs != "" || reservesCPU(config.KubeReserved) || reservesCPU(config.SystemReserved) {
		return nil
	}
	const message = "the static policy of the CPU manager needs a reserved CPU, and " + partition.PinningFilePath + " reserves none: add " + reservedCPUsSetting + ", or cpu to kubeReserved or systemReserved"
	if pools == nil {
		host.log.Error(nil, "The kubelet will not start: "+message)
		return nil
	}
	return errors.New(message)
}

func reservesCPU(reserved map[string]string) bool {
	cpu, err := resource.ParseQuantity(reserved["cpu"])
	return err == nil && cpu.Sign() > 0
}

// replaceReservations drops the settings that upstream forbids beside reservedSystemCPUs, and
// reports what they protected (pkg/kubelet/apis/config/validation,
// ValidateKubeletConfiguration). Upstream itself drops reserved amounts of cpu
// (cmd/kubelet/app, run).
func replaceReservations(config *kubeletconfig.KubeletConfiguration) {
	var replaced, dropped []string
	for _, of := range []struct {
		name     string
		reserved map[string]string
		cgroup   *string
	}{
		{"kube", config.KubeReserved, &config.KubeReservedCgroup},
		{"system", config.SystemReserved, &config.SystemReservedCgroup},
	} {
		if amount, has := of.reserved["cpu"]; has {
			replaced = append(replaced, of.name+"Reserved cpu="+amount)
		}
		if *of.cgroup == "" {
			continue
		}
		dropped = append(dropped, of.name+"ReservedCgroup="+*of.cgroup)
		*of.cgroup = ""
		config.EnforceNodeAllocatable = slices.DeleteFunc(slices.Clone(config.EnforceNodeAllocatable), func(entry string) bool {
			needsCgroup := strings.TrimSuffix(entry, "-compressible") == of.name+"-reserved"
			if needsCgroup {
				dropped = append(dropped, "enforceNodeAllocatable: "+entry)
			}
			return needsCgroup
		})
	}
	if len(replaced) > 0 {
		host.log.Info("The pools replace reserved amounts of CPU", reservedCPUsSetting, config.ReservedSystemCPUs, "replaced", replaced)
	}
	if len(dropped) > 0 {
		const message = reservedCPUsSetting + " reserves the pools, and upstream forbids reserved cgroups beside it: the kubelet no longer gives host processes a limit or a weight of their own"
		host.log.Error(nil, message, reservedCPUsSetting, config.ReservedSystemCPUs, "dropped", dropped)
		nodeEvent(v1.EventTypeWarning, eventReservationDropped, message+"; dropped: %s", strings.Join(dropped, ", "))
	}
}
