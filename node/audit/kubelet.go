// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// kubelet is what is known about the node's kubelet.
type kubelet struct {
	// PID is zero if no kubelet was found.
	PID int
	// Root is its root directory.
	Root string
	// Source says where Config is from.
	Source string
	// Config is its configuration.
	Config v1beta1.KubeletConfiguration
	// flags are those of its command line that override the configuration.
	flags kubeletFlags
}

type kubeletFlags struct {
	config, configDir, rootDir, endpoint, reservedCPUs, cgroupDriver string
	// changing are those that are set of the flags that change what the configuration says about
	// pools, with their dashes.
	changing []string
}

// changing are these flags.
var changing = []string{"cpu-manager-policy", "cpu-manager-policy-options", "enforce-node-allocatable", "feature-gates",
	"kube-reserved", "kube-reserved-cgroup", "reserved-cpus", "system-reserved", "system-reserved-cgroup"}

// parse reads a kubelet's command line, and skips the flags that are of no interest here.
func (f *kubeletFlags) parse(args []string) {
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	for name, value := range map[string]*string{
		"config": &f.config, "config-dir": &f.configDir, "root-dir": &f.rootDir, "container-runtime-endpoint": &f.endpoint,
		"reserved-cpus": &f.reservedCPUs, "cgroup-driver": &f.cgroupDriver,
	} {
		flags.StringVar(value, name, "", "")
	}
	for _, name := range changing {
		if flags.Lookup(name) == nil {
			flags.String(name, "", "")
		}
	}
	_ = flags.Parse(args) // a kubelet that runs has accepted them
	for _, name := range changing {
		if flags.Changed(name) {
			f.changing = append(f.changing, "--"+name)
		}
	}
}

// The defaults of upstream (cmd/kubelet/app/options).
const (
	defaultKubeletRoot   = "/var/lib/kubelet"
	defaultKubeletConfig = "/var/lib/kubelet/config.yaml" // kubeadm's
)

// kubelet finds the node's kubelet and its configuration. A configuration that cannot be read is an
// error.
func (h Host) kubelet() (*kubelet, error) {
	k := &kubelet{Root: defaultKubeletRoot}
	k.PID, k.flags = h.findKubelet()
	k.Root = cmp.Or(h.KubeletRoot, k.flags.rootDir, k.Root)
	file, dir := cmp.Or(h.KubeletConfig, k.flags.config), cmp.Or(h.KubeletConfigDir, k.flags.configDir)
	if _, err := os.Stat(h.at(defaultKubeletConfig)); file == "" && k.PID == 0 && err == nil {
		file = defaultKubeletConfig
	}
	return k, k.read(h, file, dir)
}

// CommandLine is what the command line of a host's kubelet says.
type CommandLine struct {
	// Root is its root directory, Configuration its configuration file, and ConfigurationDir the
	// directory of its drop-ins, which may be empty. What the command line does not name, or where
	// no kubelet runs, is as kubeadm has it. With drop-ins alone, there is no file.
	Root, Configuration, ConfigurationDir string
	// Endpoint is the runtime's, with or without a scheme; empty if the configuration says it.
	Endpoint string
	// Changing are the flags by which the kubelet has other settings about pools than Configuration
	// says: "--reserved-cpus", say.
	Changing []string
}

// FindKubelet returns what the command line of the kubelet says that runs on the host, for programs
// that audit nothing.
func (h Host) FindKubelet() CommandLine {
	_, flags := h.withDefaults().findKubelet()
	line := CommandLine{
		Root: cmp.Or(flags.rootDir, defaultKubeletRoot), Configuration: flags.config, ConfigurationDir: flags.configDir,
		Endpoint: flags.endpoint, Changing: flags.changing,
	}
	if line.Configuration == "" && line.ConfigurationDir == "" {
		line.Configuration = defaultKubeletConfig
	}
	return line
}

// findKubelet returns the process of the kubelet and its flags: one of root's whose program or
// first argument is called kubelet. Any user can name a process so; it must be in the host's mount namespace.
func (h Host) findKubelet() (pid int, flags kubeletFlags) {
	procs, err := h.procfs()
	if err != nil {
		return 0, flags
	}
	all, err := procs.AllProcs()
	if err != nil {
		return 0, flags
	}
	for _, process := range all {
		args, err := process.CmdLine()
		if err != nil || len(args) == 0 || filepath.Base(args[0]) != "kubelet" {
			continue
		}
		if status, err := process.NewStatus(); err != nil || status.UIDs[0] != 0 || !h.isHosts(process) {
			continue
		}
		if pid == 0 || process.PID < pid {
			pid, flags = process.PID, kubeletFlags{}
			flags.parse(args[1:])
		}
	}
	return pid, flags
}

// ofPods finds a cgroup of pods in a path. From a pod that has a cgroup namespace, the path of
// another may lack all that is above the pod's own.
var ofPods = regexp.MustCompile(`(^|/)(kubepods|pod[0-9a-f])|-pod[0-9a-f]`)

// isHosts reports whether a process belongs to no container: it is in no cgroup of pods, and in the
// host's mount namespace. A service of systemd may have its own mount namespace, as
// OpenShift's kubelet has.
func (h Host) isHosts(process procfs.Proc) bool {
	groups, err := process.Cgroups()
	if err != nil || len(groups) == 0 {
		return false
	}
	service := false
	for _, group := range groups {
		if ofPods.MatchString(group.Path) {
			return false
		}
		service = service || strings.HasSuffix(group.Path, ".service")
	}
	namespace := h.mountNamespace(process.PID)
	return service || namespace == "" || namespace == h.hostNamespace()
}

// read reads the configuration, with the drop-ins of a directory.
func (k *kubelet) read(h Host, file, dir string) error {
	if file == "" && dir == "" {
		return nil // all is in flags
	}
	at := func(path string) string {
		if path == "" {
			return ""
		}
		return h.at(path)
	}
	merged, dropIns, err := kubeletstate.Configuration(at(file), at(dir))
	if err != nil {
		return fmt.Errorf("kubelet configuration: %w", err)
	}
	var sources []string
	if file != "" {
		sources = append(sources, file)
	}
	for _, path := range dropIns {
		sources = append(sources, filepath.Join(dir, strings.TrimPrefix(path, at(dir))))
	}
	k.Source = strings.Join(sources, ", ")
	if err := json.Unmarshal(merged, &k.Config); err != nil {
		return fmt.Errorf("kubelet configuration %s: %w", k.Source, err)
	}
	return nil
}

// useConfigz replaces the configuration by that of the running kubelet: the answer of its
// endpoint /configz.
func (k *kubelet) useConfigz(answer []byte) error {
	var configz struct {
		Config *v1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(answer, &configz); err != nil {
		return fmt.Errorf("kubelet's /configz: %w", err)
	}
	if configz.Config == nil {
		return errors.New("kubelet's /configz: the answer has no kubeletconfig")
	}
	k.Source, k.Config = "/configz", *configz.Config
	return nil
}

// endpoint returns the runtime endpoint that the kubelet uses; empty means unknown.
func (k *kubelet) endpoint() string {
	if k.flags.endpoint != "" {
		return k.flags.endpoint
	}
	return k.Config.ContainerRuntimeEndpoint
}

func (k *kubelet) cgroupDriver() string {
	switch {
	case k.Config.CgroupDriver != "":
		return k.Config.CgroupDriver
	case k.flags.cgroupDriver != "":
		return k.flags.cgroupDriver
	}
	return "cgroupfs"
}

// reservedCPUs returns reservedSystemCPUs; empty means that it is not set.
func (k *kubelet) reservedCPUs() string {
	if k.flags.reservedCPUs != "" && k.Source != "/configz" {
		return k.flags.reservedCPUs
	}
	return k.Config.ReservedSystemCPUs
}

// strictReservation is the option of the static policy that keeps reserved CPUs from being shared.
const strictReservation = "strict-cpu-reservation"

// sharesReservedCPUs reports whether the configuration has strict reservation switched off, and
// the value.
func (k *kubelet) sharesReservedCPUs() (value string, off bool) {
	value, set := k.Config.CPUManagerPolicyOptions[strictReservation]
	strict, err := strconv.ParseBool(value)
	return value, set && k.Config.CPUManagerPolicy == "static" && (err != nil || !strict)
}

// checkpoint reads the CPU manager's checkpoint; the zero value means that there is none.
func (h Host) checkpoint(k *kubelet) (*kubeletstate.Checkpoint, error) {
	path := h.at(filepath.Join(k.Root, kubeletstate.CheckpointName))
	data, err := kubeletstate.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &kubeletstate.Checkpoint{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("CPU manager's checkpoint: %w", err)
	}
	c := kubeletstate.ParseCheckpoint(data)
	if c.Damaged != "" {
		return nil, fmt.Errorf("CPU manager's checkpoint %s: %s", path, c.Damaged)
	}
	return c, nil
}

// record reads what the kubelet wrote down of the pools with which it started; nil means that
// there is none.
func (h Host) record(k *kubelet) (*partition.Record, error) {
	path := h.at(filepath.Join(k.Root, partition.RecordName))
	data, err := kubeletstate.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var record *partition.Record
	if err == nil {
		record, err = kubeletstate.ParseRecord(data)
	}
	if err != nil {
		return nil, fmt.Errorf("kubelet's record %s: %w", path, err)
	}
	return record, nil
}

// recorded returns the configuration with what flags override, and without the headers and passwords by which the
// kubelet fetches static pods.
func (k *kubelet) recorded() v1beta1.KubeletConfiguration {
	config := *k.Config.DeepCopy()
	config.ReservedSystemCPUs, config.CgroupDriver = k.reservedCPUs(), k.cgroupDriver()
	for name := range config.StaticPodURLHeader {
		config.StaticPodURLHeader[name] = []string{"REMOVED"}
	}
	if scheme, rest, found := strings.Cut(config.StaticPodURL, "://"); found {
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			config.StaticPodURL = scheme + "://REMOVED@" + rest[at+1:]
		}
		if path, _, query := strings.Cut(config.StaticPodURL, "?"); query {
			config.StaticPodURL = path + "?REMOVED"
		}
	}
	return config
}
