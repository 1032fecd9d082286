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
	"fmt"
	"os"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// release is the minor version of this kubelet. Tests change it.
var release = version.DefaultKubeBinaryVersion

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
	return shim.host.online
}

// readList reads a list of CPUs from a file of the kernel. The core does not know hosts, and
// no tree has the module node.
func readList(file string) (cpuset.CPUSet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return parseList(file, string(data))
}

// parseList reads what a file of the kernel's says. The error names the file.
func parseList(file, data string) (cpuset.CPUSet, error) {
	cpus, err := cpuset.Parse(strings.TrimSpace(data))
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
	shim.host.log = klog.FromContext(ctx)
	online, err := readCPUs(onlineCPUsFile)
	if err != nil {
		if _, statErr := os.Stat(partition.PinningFilePath); os.IsNotExist(statErr) {
			return nil
		}
		return err
	}
	shim.host.online = online
	if shim.host.previous, err = readRecord(); err != nil {
		shim.host.log.Error(err, "Cannot read the record of the previous pools; assuming that every container's cpuset comes from them")
	}
	pools, notes, err := partition.Load(partition.PinningFilePath, online)
	if err != nil {
		return err
	}
	if off(pools != nil) {
		return nil
	}
	for _, note := range notes {
		shim.host.log.Error(nil, note)
		nodeEvent(v1.EventTypeWarning, partition.EventDirectoryOwner, "%s", note)
	}
	if pools == nil {
		const message = "The pinning file is gone: the containers that it confined are freed, and the node no longer reports cores"
		shim.host.log.Error(nil, message, "path", partition.PinningFilePath)
		nodeEvent(v1.EventTypeWarning, partition.EventFileMissing, message+"; its path is %s", partition.PinningFilePath)
	}
	if pools.HoldEvery(online) {
		const message = "The pools hold every CPU of the host, so they confine nothing and reserve nothing"
		shim.host.log.Error(nil, message, "pools", pools, "online", online.String())
		nodeEvent(v1.EventTypeWarning, partition.EventEveryCPU, message+": %s lists %s", partition.PinningFilePath, online)
		pools = pools.Unconfined()
	}
	if err := reservePools(config, pools); err != nil {
		return err
	}
	shim.host.isolated, _ = readCPUs(isolatedCPUsFile) // older kernels lack it
	shim.host.podLogs = config.PodLogsDir
	shim.host.static = config.CPUManagerPolicy == partition.StaticPolicy
	shim.host.strict, _ = strconv.ParseBool(config.CPUManagerPolicyOptions[partition.StrictReservation])
	if shim.host.podCgroups = config.CgroupsPerQOS; !shim.host.podCgroups {
		shim.host.log.Info("Pods have no cgroups of their own, so only their containers are confined, not their sandboxes or anything else that the runtime starts", "cgroupsPerQOS", false)
	}
	if config.CPUCFSQuota {
		shim.host.quotaPeriod = config.CPUCFSQuotaPeriod.Duration
	}
	if pools == nil {
		return nil
	}
	reserved, err := cpuset.Parse(config.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs %q: %w", config.ReservedSystemCPUs, err)
	}
	n := newNode(pools, online, shim.host.isolated, reserved)
	if n.before = shim.host.previous.pooled; n.before.Equals(n.Pooled) {
		n.before = shim.host.previous.before
	}
	n.known = knownPods(rootDirectory)
	n.warnOfPods(rootDirectory, int64(online.Size()-reserved.Size())*1000)
	n.reportUnsuitablePools()
	shim.current.Store(n)
	registerMetrics()
	for _, workloadType := range pools.Types() {
		shim.host.log.Info("Workload partitioning is on", "workloadType", workloadType, "pool", pools[workloadType].String(), "reservedSystemCPUs", config.ReservedSystemCPUs)
	}
	return nil
}

// reservePools makes the pools reserved CPUs (partition.Pools.Reserve), and reports what that
// changed. Nil pools mean that the file has gone.
func reservePools(config *kubeletconfig.KubeletConfiguration, pools partition.Pools) error {
	settings := partition.KubeletSettings{
		CPUManagerPolicy: config.CPUManagerPolicy, CPUManagerPolicyOptions: config.CPUManagerPolicyOptions, ReservedSystemCPUs: config.ReservedSystemCPUs,
		KubeReserved: config.KubeReserved, SystemReserved: config.SystemReserved, KubeReservedCgroup: config.KubeReservedCgroup, SystemReservedCgroup: config.SystemReservedCgroup,
		EnforceNodeAllocatable: config.EnforceNodeAllocatable, FeatureGates: config.FeatureGates, SystemPartitionCPUs: systemPartitionCPUs(config),
	}
	// What it found says more about an error, too.
	found, err := pools.Reserve(&settings, release)
	configured := config.ReservedSystemCPUs
	config.CPUManagerPolicyOptions, config.ReservedSystemCPUs = settings.CPUManagerPolicyOptions, settings.ReservedSystemCPUs
	config.KubeReservedCgroup, config.SystemReservedCgroup, config.EnforceNodeAllocatable = settings.KubeReservedCgroup, settings.SystemReservedCgroup, settings.EnforceNodeAllocatable
	if found.Unstartable != "" {
		shim.host.log.Error(nil, "The kubelet will not start: "+found.Unstartable)
	}
	if found.Differs != "" {
		shim.host.log.Error(nil, "The reserved CPUs do not contain the pools; both are reserved now", "reservedSystemCPUs", configured, "missing", found.Missing.String())
		nodeEvent(v1.EventTypeWarning, partition.EventReservedDiffer, "%s", found.Differs)
	}
	if len(found.Replaced) > 0 {
		shim.host.log.Info("The pools replace reserved amounts of CPU", "reservedSystemCPUs", config.ReservedSystemCPUs, "replaced", found.Replaced)
	}
	if len(found.Dropped) > 0 {
		shim.host.log.Error(nil, partition.DroppedMessage, "reservedSystemCPUs", config.ReservedSystemCPUs, "dropped", found.Dropped)
		nodeEvent(v1.EventTypeWarning, partition.EventReservationDropped, partition.DroppedMessage+"; dropped: %s", strings.Join(found.Dropped, ", "))
	}
	return err
}
