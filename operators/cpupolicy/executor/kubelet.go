// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// flags are those of a kubelet's command line that matter here. Each takes precedence over the configuration
// (cmd/kubelet/app/server.go, kubeletConfigFlagPrecedence).
type flags struct {
	config, configDir, rootDir, runtime      string
	kubeconfig, nodeName                     string
	policy, reconcilePeriod, reservedCPUs    string
	topologyPolicy, topologyScope            string
	memoryPolicy                             string
	healthzBindAddress, healthzPort, maxPods string
	// These are nil without the flag. A command line may have it several times.
	options, topologyOptions, kubeReserved, systemReserved map[string]string
}

// parse reads a kubelet's command line without the program. A flag of it replaces what f had, and every other
// flag of the kubelet's is skipped. The error names the flag and the value.
func (f *flags) parse(args []string) error {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.ParseErrorsAllowlist.UnknownFlags = true
	set.Usage = func() {}
	for name, value := range map[string]*string{
		"config": &f.config, "config-dir": &f.configDir, "root-dir": &f.rootDir, "container-runtime-endpoint": &f.runtime,
		"kubeconfig": &f.kubeconfig, "hostname-override": &f.nodeName,
		policyFlag: &f.policy, "cpu-manager-reconcile-period": &f.reconcilePeriod, "reserved-cpus": &f.reservedCPUs,
		"topology-manager-policy": &f.topologyPolicy, "topology-manager-scope": &f.topologyScope, "memory-manager-policy": &f.memoryPolicy,
		"healthz-bind-address": &f.healthzBindAddress, "healthz-port": &f.healthzPort, "max-pods": &f.maxPods,
	} {
		set.StringVar(value, name, *value, "")
	}
	// The kubelet's own types (cmd/kubelet/app/options).
	set.Var(cliflag.NewMapStringStringNoSplit(&f.options), optionsFlag, "")
	set.Var(cliflag.NewMapStringString(&f.topologyOptions), "topology-manager-policy-options", "")
	set.Var(cliflag.NewMapStringString(&f.kubeReserved), "kube-reserved", "")
	set.Var(cliflag.NewMapStringString(&f.systemReserved), "system-reserved", "")
	return set.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if strings.Contains(value, "$") && flag.Value.Type() != "string" {
			return nil // a variable of a unit: what f had is its value, as far as that is known
		}
		if err := flag.Value.Set(value); err != nil {
			return fmt.Errorf("the kubelet's --%s %q: %w", flag.Name, value, err)
		}
		return nil
	})
}

// over returns what a flag says, or the configuration if there is no such flag: nothing of the two is merged.
func over(flag, config map[string]string) map[string]string {
	if flag != nil {
		return flag
	}
	return config
}

const (
	policyFlag  = "cpu-manager-policy"
	optionsFlag = "cpu-manager-policy-options"
)

// place is where a setting is written.
type place struct {
	file string
	// line counts from 1; zero means that it is the file as a whole.
	line int
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return p.file + ":" + strconv.Itoa(p.line)
}

// configuration is what a kubelet's files of that kind say.
type configuration struct {
	v1beta1.KubeletConfiguration
	// files are the file and the drop-ins in the order in which the kubelet reads them.
	files []configFile
	// places has the last place of each top-level field.
	places map[string]place
}

// policy returns the CPU manager policy of the configuration, and where it is from.
func (c *configuration) policy() (policy, from string) {
	if c.CPUManagerPolicy == "" {
		return string(operation.None), "by default"
	}
	return c.CPUManagerPolicy, c.places[policyField].String()
}

// configFile is the base file, or a drop-in.
type configFile struct {
	path   string
	base   bool
	fields map[string]place
}

const (
	policyField  = "cpuManagerPolicy"
	optionsField = "cpuManagerPolicyOptions"
)

// readConfiguration reads a kubelet's configuration as the kubelet does: the file, then each
// drop-in in the order of their paths, as a merge patch (cmd/kubelet/app/server.go,
// mergeKubeletConfigurations). Paths are those of the host.
func readConfiguration(disk hostDisk, file, dir string) (*configuration, error) {
	c := &configuration{places: map[string]place{}}
	paths := []string{}
	if file != "" {
		paths = append(paths, file)
	}
	if dir != "" {
		root := disk.at(dir)
		dropIns, err := kubeletstate.DropIns(root)
		if err != nil {
			return nil, err
		}
		for _, path := range dropIns {
			paths = append(paths, filepath.Join(dir, strings.TrimPrefix(path, root)))
		}
	}
	merged := []byte("{}")
	for _, path := range paths {
		data, err := os.ReadFile(disk.follow(path))
		if err != nil {
			return nil, err
		}
		fields, err := fieldsOf(path, data)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, configFile{path, path == file, fields})
		for name, at := range fields {
			c.places[name] = at
		}
		merged, err = kubeletstate.MergeDropIn(merged, data)
		if err == nil {
			c.KubeletConfiguration = v1beta1.KubeletConfiguration{}
			err = json.Unmarshal(merged, &c.KubeletConfiguration)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return c, nil
}

// fieldsOf returns the places of the top-level fields of a YAML or JSON object.
func fieldsOf(path string, data []byte) (map[string]place, error) {
	object, err := objectOf(path, data)
	if err != nil {
		return nil, err
	}
	fields := map[string]place{}
	for key := range slices.Chunk(object, 2) {
		fields[key[0].Value] = place{path, key[0].Line}
	}
	return fields, nil
}

// objectOf returns the keys and values of a file's object, one after the other.
func objectOf(path string, data []byte) ([]*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	if object := document.Content[0]; object.Kind == yaml.MappingNode {
		return object.Content, nil
	}
	return nil, fmt.Errorf("%s:%d: is not an object", path, document.Content[0].Line)
}

// before reports whether the kubelet reads a drop-in before another one of the same directory
// (path/filepath, WalkDir): directory by directory in the order of their names.
func before(path, other string) bool {
	return slices.Compare(strings.Split(path, "/"), strings.Split(other, "/")) < 0
}

// reservesCPU reports whether the kubelet reserves CPU. A list of CPUs takes precedence over amounts
// (cmd/kubelet/app/server.go, run).
func reservesCPU(f flags, c *configuration) bool {
	amount, err := reservedAmount(f, c)
	return reservedCPUs(f, c) != "" || (err == nil && amount.Sign() > 0)
}

// reservedCPUs is the CPU list that the kubelet reserves; it may be empty.
func reservedCPUs(f flags, c *configuration) string {
	return cmp.Or(f.reservedCPUs, c.ReservedSystemCPUs)
}

// reservedAmount is the cpu of both of the kubelet's reservations.
func reservedAmount(f flags, c *configuration) (resource.Quantity, error) {
	var sum resource.Quantity
	// In this order, so that the error of two wrong amounts is always the same.
	for _, of := range []struct {
		name    string
		amounts map[string]string
	}{{"kubeReserved", over(f.kubeReserved, c.KubeReserved)}, {"systemReserved", over(f.systemReserved, c.SystemReserved)}} {
		amount := of.amounts["cpu"]
		if amount == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return sum, fmt.Errorf("the kubelet's %s: cpu %q: %w", of.name, amount, err)
		}
		sum.Add(quantity)
	}
	return sum, nil
}

// healthz returns the URL of the kubelet's health, with upstream's defaults
// (pkg/kubelet/apis/config/v1beta1, SetDefaults_KubeletConfiguration).
func healthz(f flags, c *configuration) (string, error) {
	address, port := "127.0.0.1", "10248"
	if c.HealthzBindAddress != "" {
		address = c.HealthzBindAddress
	}
	if f.healthzBindAddress != "" {
		address = f.healthzBindAddress
	}
	if c.HealthzPort != nil {
		port = strconv.Itoa(int(*c.HealthzPort))
	}
	if f.healthzPort != "" {
		port = f.healthzPort
	}
	if port == "0" {
		return "", errors.New("the kubelet serves no healthz: healthzPort is 0")
	}
	switch address {
	case "0.0.0.0":
		address = "127.0.0.1"
	case "::":
		address = "::1"
	}
	return "http://" + net.JoinHostPort(address, port) + "/healthz", nil
}

// findFlag returns the first place where one of the files has a flag, comments aside. Units and
// the files of their environment are such files.
func findFlag(disk hostDisk, files []string, name string) (place, bool) {
	words := strings.ReplaceAll(name, "-", "[-_]")
	flag := regexp.MustCompile(`(^|[\s"'=])(--?)?` + words + `([\s"'=]|$)`)
	for _, file := range files {
		data, err := os.ReadFile(disk.follow(file))
		if err != nil {
			continue // an optional file
		}
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			if text := strings.TrimSpace(line); !strings.HasPrefix(text, "#") && !strings.HasPrefix(text, ";") && flag.MatchString(text) {
				return place{file, number}, true
			}
		}
	}
	return place{}, false
}
