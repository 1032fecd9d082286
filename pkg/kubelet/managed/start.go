package managed

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// node is what the kubelet knows of its partitions. It never changes after Start.
type node struct {
	pools partition.Pools
	// pooled are the CPUs of all pools, and others those of the host that are in none.
	pooled, others cpuset.CPUSet
}

// current is nil while the feature is off.
var current atomic.Pointer[node]

// host is what Start found, with the feature on or off.
var host struct {
	online cpuset.CPUSet
	// static and strict tell the CPU manager's policy, and whether that keeps
	// reserved CPUs out of its shared pool.
	static, strict bool
	// wasOn tells that an earlier kubelet has confined containers on this host.
	wasOn bool
	log   klog.Logger
	// podLogs is the folder in which each pod has one of its own, named after it.
	podLogs string
}

const (
	staticPolicy         = "static"
	strictReservation    = "strict-cpu-reservation"
	reservedCPUsSetting  = "reservedSystemCPUs"
	policyOptionsSetting = "cpuManagerPolicyOptions"
)

// onlineCPUsFile is changed by tests.
var onlineCPUsFile = "/sys/devices/system/cpu/online"

func onlineCPUs() (cpuset.CPUSet, error) {
	data, err := os.ReadFile(onlineCPUsFile)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("CPUs of the host: %w", err)
	}
	online, err := cpuset.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("CPUs of the host: %s: %w", onlineCPUsFile, err)
	}
	return online, nil
}

// Start reads the pinning file, before anything else uses CPUs, and fits the
// kubelet's configuration to it (design, section 6, start-up): the pools become
// reservedSystemCPUs where that is unset, and must be contained in it where it is
// set; and the static CPU manager keeps reserved CPUs out of its shared pool. Its
// errors name the file or the setting, and keep the kubelet from starting.
func Start(ctx context.Context, rootDirectory string, config *kubeletconfig.KubeletConfiguration) error {
	setRecordPath(rootDirectory)
	host.log = klog.FromContext(ctx)
	_, host.wasOn = readRecord()
	online, err := onlineCPUs()
	if err != nil {
		if _, statErr := os.Stat(partition.PinningFilePath); os.IsNotExist(statErr) {
			return nil
		}
		return err
	}
	pools, err := partition.Load(partition.PinningFilePath, online)
	if err != nil {
		return err
	}
	if pools != nil {
		if err := configure(config, pools.Union()); err != nil {
			return err
		}
		current.Store(newNode(pools, online))
		registerMetrics()
	}
	host.online = online
	host.podLogs = config.PodLogsDir
	host.static = config.CPUManagerPolicy == staticPolicy
	host.strict = config.CPUManagerPolicyOptions[strictReservation] == "true"
	for _, workloadType := range pools.Types() {
		host.log.Info("Workload partitioning is on", "workloadType", workloadType, "pool", pools[workloadType].String(), "reservedSystemCPUs", config.ReservedSystemCPUs)
	}
	return nil
}

func newNode(pools partition.Pools, online cpuset.CPUSet) *node {
	pooled := pools.Union()
	return &node{pools: pools, pooled: pooled, others: online.Difference(pooled)}
}

func configure(config *kubeletconfig.KubeletConfiguration, pooled cpuset.CPUSet) error {
	if pooled.IsEmpty() {
		return nil
	}
	if config.ReservedSystemCPUs == "" {
		config.ReservedSystemCPUs = pooled.String()
	}
	reserved, err := cpuset.Parse(config.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("%s %q: %w", reservedCPUsSetting, config.ReservedSystemCPUs, err)
	}
	if missing := pooled.Difference(reserved); !missing.IsEmpty() {
		return fmt.Errorf("%s %q does not contain CPU %s, which %s gives to a pool; add it, or leave %[1]s unset", reservedCPUsSetting, config.ReservedSystemCPUs, missing, partition.PinningFilePath)
	}
	if config.CPUManagerPolicy == staticPolicy {
		if value, set := config.CPUManagerPolicyOptions[strictReservation]; set && value != "true" {
			return fmt.Errorf("%s: %s is %q, but the pools of %s are not to be shared; set it to \"true\", or leave it unset", policyOptionsSetting, strictReservation, value, partition.PinningFilePath)
		}
		if config.CPUManagerPolicyOptions == nil {
			config.CPUManagerPolicyOptions = map[string]string{}
		}
		config.CPUManagerPolicyOptions[strictReservation] = "true"
	}
	return nil
}
