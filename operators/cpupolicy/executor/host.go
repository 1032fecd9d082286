// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition"
)

// SettingsFile has a host's [Settings]. Only the driver command needs it.
const SettingsFile = "/etc/partition-agent/cpu-policy.yaml"

// Settings say what differs from usual on a host. They are a file of the host, which only root can
// write: no command comes from the cluster.
type Settings struct {
	// Unit is the kubelet's unit for the driver kubelet; kubelet.service if empty.
	Unit string `json:"unit,omitempty"`
	// Healthz is the URL of the kubelet's health; if empty, the kubelet's configuration says it.
	Healthz string `json:"healthz,omitempty"`
	// Command is for the driver command.
	Command *CommandSettings `json:"command,omitempty"`
}

// CommandSettings are the commands of the driver command, each a program and its arguments.
type CommandSettings struct {
	// Start lets the kubelet start; what it prints is not kept. Stop returns once the kubelet has
	// ended. Kill ends one that does not stop; without it such a switch fails.
	Start []string `json:"start"`
	Stop  []string `json:"stop"`
	Kill  []string `json:"kill,omitempty"`
	// IsActive prints the kubelet's process and ends with 0; any other code means that the
	// kubelet does not run.
	IsActive []string `json:"isActive"`
	// DropInDirectory is the kubelet's --config-dir.
	DropInDirectory string `json:"dropInDirectory"`
	// Log is the path of the kubelet's log, for its own error; it may be empty.
	Log string `json:"log,omitempty"`
}

// readSettings reads the settings. Without a file they are the zero value.
func readSettings(d hostDisk) (Settings, error) {
	var s Settings
	file, err := d.read(SettingsFile)
	if err != nil || file == nil {
		return s, err
	}
	if err := d.checkDirectory(filepath.Dir(SettingsFile)); err != nil {
		return s, err
	}
	if err := yaml.UnmarshalStrict(file.Content, &s); err != nil {
		return s, fmt.Errorf("%s: %w", SettingsFile, err)
	}
	if s.Unit != "" && !validUnit.MatchString(s.Unit) {
		return s, fmt.Errorf("%s: unit: %q is not the name of a service", SettingsFile, s.Unit)
	}
	return s, nil
}

// host is what is the same for all drivers.
type host struct {
	disk     hostDisk
	settings Settings
	// chroot means that the host's commands need the host's root: this process is in a pod. looks
	// means that it runs none: a pod that observes has no right to change its root.
	chroot, looks bool
	// volatile is [hostDisk.volatile].
	volatile func(dir string) (fileSystem string, err error)
	// interval and stable are those of [Executor].
	interval, stable time.Duration
}

// errNotRunning means that there is no kubelet whose command line could be read.
var errNotRunning = errors.New("the kubelet does not run, so that nobody knows its command line; start it first")

// kubelet is what is known about a kubelet that runs.
type kubelet struct {
	pid int
	// flags are those of its command line.
	flags  flags
	config *configuration
	// files may have the kubelet's flags: its unit, say.
	files []string
}

// kubeletOf reads the command line and the configuration of a process. next is the command line with
// which it will be started, as far as that is known; what it says goes first.
func (h host) kubeletOf(pid int, next, files []string, configDir string) (*kubelet, error) {
	if pid == 0 {
		return nil, errNotRunning
	}
	data, err := os.ReadFile(h.disk.at(fmt.Sprintf("/proc/%d/cmdline", pid)))
	if err == nil && len(data) == 0 || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil, errNotRunning // it has just been executed, or has ended
	}
	if err != nil {
		return nil, fmt.Errorf("command line of the kubelet: %w", err)
	}
	k := &kubelet{pid: pid, files: files}
	err = k.flags.parse(strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")[1:])
	if err == nil && len(next) > 0 && filepath.Base(next[0]) == "kubelet" {
		err = k.flags.parse(next[1:])
	}
	if err != nil {
		return nil, err
	}
	if k.flags.configDir = cmp.Or(configDir, k.flags.configDir); k.flags.configDir != "" {
		k.flags.configDir = filepath.Clean(k.flags.configDir)
	}
	for name, path := range map[string]string{"config": k.flags.config, "config-dir": k.flags.configDir, "root-dir": k.flags.rootDir} {
		if path != "" && !filepath.IsAbs(path) {
			return nil, fmt.Errorf("the kubelet's --%s %q is not an absolute path", name, path)
		}
	}
	k.config, err = readConfiguration(h.disk, k.flags.config, k.flags.configDir)
	return k, err
}

// flagPlace says where a flag of the kubelet's is from.
func (h host) flagPlace(k *kubelet, name string) string {
	if at, found := findFlag(h.disk, k.files, name); found {
		return at.String()
	}
	return fmt.Sprintf("the command line of process %d", k.pid)
}

// runtime returns the endpoint of the container runtime, with upstream's default.
func (k *kubelet) runtime() string {
	return cmp.Or(k.flags.runtime, k.config.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
}

// reconciled returns how long the CPU manager takes at most until it has looked at all containers again: its period, with
// upstream's default (pkg/kubelet/apis/config/v1beta1, SetDefaults_KubeletConfiguration), and five seconds for the look.
// Nobody waits for more than a minute.
func (k *kubelet) reconciled() time.Duration {
	byFlag, _ := time.ParseDuration(k.flags.reconcilePeriod) // a kubelet that runs has accepted it
	return min(cmp.Or(byFlag, k.config.CPUManagerReconcilePeriod.Duration, 10*time.Second)+5*time.Second, time.Minute)
}

// owner is somebody who writes a host's kubelet configuration, and whose file proves it.
var owners = []struct{ file, name, remedy string }{
	{"/etc/machine-config-daemon/currentconfig", "OpenShift's Machine Config Operator", "set cpuManagerPolicy in a KubeletConfig or PerformanceProfile"},
}

// draft is a plan, and what speaks against it.
type draft struct {
	Plan
	// ours reports whether a file in the place of the drop-in has nothing but what the driver
	// writes.
	ours func(content []byte) bool
	// reserved means that the kubelet reserves CPU.
	reserved bool
	// next is the policy that the kubelet's configuration gives it at its next start, without the
	// switch, and nextFrom says where that is from.
	next, nextFrom string
	problems       []error
}

func (d *draft) refuse(err error) {
	if err != nil {
		d.problems = append(d.problems, err)
	}
}

// finish completes a driver's draft with what is the same for all of them.
func (h host) finish(ctx context.Context, k *kubelet, policy operation.Policy, d draft) (*Plan, error) {
	for _, owner := range owners {
		if _, err := os.Stat(h.disk.follow(owner.file)); err == nil {
			d.refuse(fmt.Errorf("%s: %s owns the configuration of this kubelet; %s", owner.file, owner.name, owner.remedy))
		}
	}
	d.Checkpoint = filepath.Join(cmp.Or(k.flags.rootDir, "/var/lib/kubelet"), kubeletstate.CheckpointName)
	for _, path := range []string{d.DropIn, d.Checkpoint} {
		d.refuse(h.checkWay(path))
	}
	kept := []string{Directory, filepath.Dir(d.DropIn)}
	if d.Unit != "" {
		kept = append(kept, unitDirectory)
	}
	for _, dir := range kept {
		d.refuse(h.checkKept(dir))
	}
	file, err := h.disk.read(d.DropIn)
	if err == nil && file != nil && !d.ours(file.Content) {
		err = fmt.Errorf("%s has more than the CPU manager policy, so that somebody else wrote it; give it another name that sorts before this one", d.DropIn)
	}
	d.refuse(err)
	if d.Healthz = h.settings.Healthz; d.Healthz == "" {
		d.Healthz, err = healthz(k.flags, k.config)
		d.refuse(err)
	}
	d.Runtime, d.Reconciled = k.runtime(), k.reconciled()
	d.Kubeconfig, d.NodeName = k.flags.kubeconfig, k.flags.nodeName
	d.refuse(h.checkCPUs(ctx, policy, &d))
	return &d.Plan, errors.Join(d.problems...)
}

// checkKept returns an error for a directory that a reboot empties. What is there goes on with a switch, or undoes it,
// after a reboot in the middle, and the drop-in must agree with the checkpoint after each one.
func (h host) checkKept(dir string) error {
	fileSystem, err := h.volatile(dir)
	if err == nil && fileSystem != "" {
		err = fmt.Errorf("%s is on %s, which a reboot empties, so that nobody could finish or undo a switch after one; have the host keep this directory on a disk", dir, fileSystem)
	}
	return err
}

// holdersError is about containers that have CPUs exclusively, or may have some.
type holdersError struct{ error }

// refusalsOf returns what an error says, each of those that it joins by itself.
func refusalsOf(err error) (refusals operation.Refusals) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			refusals = append(refusals, refusalsOf(each)...)
		}
		return refusals
	}
	refusal := operation.Refusal{Text: err.Error()}
	if _, ok := errors.AsType[holdersError](err); ok {
		refusal.Code = operation.ContainersHoldCPUs
	}
	return operation.Refusals{refusal}
}

// checkCPUs checks the checkpoint and the pools, and completes the draft with the CPUs.
func (h host) checkCPUs(ctx context.Context, policy operation.Policy, d *draft) error {
	checkpoint, err := readCheckpoint(h.disk, d.Checkpoint)
	if err != nil {
		return err
	}
	if checkpoint != nil && checkpoint.Policy == string(policy) {
		d.refuse(fmt.Errorf("the policy is %s already, as %s says", policy, d.Checkpoint))
	} else if checkpoint != nil && checkpoint.Policy != d.next {
		// A roll-back would bring back a kubelet that does not start.
		d.refuse(fmt.Errorf("%s has the policy %s, and the kubelet's configuration %s (%s): it would not start as it is; make them agree first", d.Checkpoint, checkpoint.Policy, d.next, d.nextFrom))
	}
	if policy == operation.None && checkpoint != nil && len(checkpoint.Assignments) > 0 {
		holders, err := h.exclusiveHolders(ctx, d.Runtime, checkpoint)
		if err != nil {
			return holdersError{fmt.Errorf("%s has exclusive CPUs, and it is not known whether their containers run: %w", d.Checkpoint, err)}
		}
		for _, holder := range holders {
			d.refuse(holdersError{fmt.Errorf("%s; migrate or stop it first", holder)})
		}
	}
	online, err := h.online()
	if err != nil {
		return err
	}
	pools, err := h.pools(online)
	if err != nil {
		return err
	}
	d.CPUs = online.Difference(pools.Union()).String()
	if policy == operation.Static && pools.Union().IsEmpty() && !d.reserved {
		return errors.New("the policy static needs a reservation of CPU, which the kubelet does not have, and there is no pinning file with a pool; run: partition-agent cpu-policy reserve")
	}
	return nil
}

// pools returns the host's pools; nil if it has no pinning file.
func (h host) pools(online cpuset.CPUSet) (partition.Pools, error) {
	file, err := h.disk.read(partition.PinningFilePath)
	if err != nil || file == nil {
		return nil, err
	}
	pools, err := partition.Parse(file.Content, online)
	if err != nil {
		return nil, fmt.Errorf("pinning file %s: %w", partition.PinningFilePath, err)
	}
	return pools, nil
}

// online returns the host's CPUs that the kernel uses.
func (h host) online() (cpuset.CPUSet, error) {
	return topology.Online(h.disk.at(topology.Sysfs))
}
