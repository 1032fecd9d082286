// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/render"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/kubernetes/node/topology"
)

type renderOptions struct {
	genericiooptions.IOStreams
	types, cpusets, roles, host []string
	file, cpusOfHost, policy    string
	systemCPUs, topology        string
	fromNode                    fromNode
	force                       bool
	cpus                        int
	target, to, image, variant  string
	// changed reports whether a flag is given.
	changed func(flag string) bool
}

func newRender(streams genericiooptions.IOStreams) *cobra.Command {
	c := &renderOptions{IOStreams: streams, fromNode: fromNode{sysfs: topology.Sysfs}}
	return c.command()
}

func (c *renderOptions) command() *cobra.Command {
	command := &cobra.Command{
		Use:   "render (--type TYPE --cpuset LIST)... | --file FILE | --from-node",
		Short: "Write the configuration of partitioned nodes",
		Long: `Write the configuration of partitioned nodes: the pinning file, CRI-O's drop-in, a fragment of the
kubelet's configuration, and kube-apiserver's admission configuration. --host adds what keeps the
rest of the host on the pools.

It is an error if the kubelet would refuse the configuration. What it accepts, but a careful operator
would avoid, is a warning, which does not change the exit code.

Exit codes:
  0  everything was rendered
  2  the input is wrong, or a file cannot be written`,
		Example: `  # The files of a node with 56 CPUs, in their directories
  kubectl partition render --type management --cpuset 0-1,28-29 --cpus-of-host 0-55 --to out

  # Let this host's topology choose 4 CPUs, and keep the rest of the host on them
  kubectl partition render --from-node --cpus 4 --host --to out

  # MachineConfigs for the machine pools of OpenShift's installer
  kubectl partition render --file install-config.yaml --target machineconfig --to manifests

  # User data for cloud-init, with slices and irqbalance of what --host has
  kubectl partition render --cpuset 0-1 --host=slices,irqbalance --target cloud-init`,
		RunE: steps(c),
	}
	targets := slices.Sorted(maps.Keys(render.Targets))
	about := make([]string, len(targets))
	completions := make([]cobra.Completion, len(targets))
	for i, target := range targets {
		about[i] = fmt.Sprintf("\n%s: %s", target, render.Targets[target].Summary)
		completions[i] = cobra.CompletionWithDesc(string(target), render.Targets[target].Summary)
	}
	parts := make([]string, len(nodefiles.HostParts))
	for i, part := range nodefiles.HostParts {
		parts[i] = string(part)
	}
	flags := command.Flags()
	flags.StringArrayVar(&c.types, "type", nil, "workload type of a pool; management if there is one --cpuset and no type")
	flags.StringArrayVar(&c.cpusets, "cpuset", nil, `CPU list of the pool of the type in the same place, such as 0-1,52-53; "" switches the type on without confining it`)
	flags.StringVarP(&c.file, "file", "f", "", "read "+render.Kind+" documents, or the workload.partitions in OpenShift's install-config.yaml; - is standard input")
	flags.BoolVar(&c.fromNode.given, "from-node", false, "take CPUs, physical cores and NUMA nodes of this host; without --cpuset and --file, choose the pool from them")
	flags.IntVar(&c.cpus, "cpus", render.DefaultCPUs, "how many CPUs --from-node chooses, rounded up to whole physical cores")
	flags.StringVar(&c.cpusOfHost, "cpus-of-host", "", "CPU list of the nodes' hosts, such as 0-55")
	flags.StringArrayVar(&c.roles, "role", nil, "role of the nodes, master by default; nodes of the roles master and control-plane have a control plane")
	flags.StringVar(&c.policy, "cpu-manager-policy", "", "the kubelet's policy, static or none; by default it is left as it is")
	flags.StringVar(&c.topology, "topology-manager-policy", "", "the kubelet's policy: none, best-effort, restricted or single-numa-node; by default it is left as it is")
	flags.StringVar(&c.systemCPUs, "system-cpus", "", "CPU list, in no pool, that no pod gets: the host's own packet processing has it, such as Open vSwitch with DPDK")
	flags.StringSliceVar(&c.host, "host", nil, "keep the rest of the host on the pools; --host alone means all of "+strings.Join(parts, ","))
	flags.Lookup("host").NoOptDefVal = strings.Join(parts, ",")
	flags.StringVar(&c.target, "target", string(render.Tree), "what to make:"+strings.Join(about, ""))
	flags.StringVar(&c.to, "to", "", "directory to write to; without it, a single file is printed")
	flags.BoolVar(&c.force, "force", false, "overwrite files")
	flags.StringVar(&c.image, "kube-apiserver-image", "", "the patched image, for the target kubeadm")
	flags.StringVar(&c.variant, "butane-variant", "openshift", "openshift or fcos, for the target butane")
	for flag, values := range map[string][]cobra.Completion{
		"target":                  completions,
		"host":                    parts,
		"cpu-manager-policy":      {"none", "static"},
		"topology-manager-policy": nodefiles.TopologyManagerPolicies,
		"system-cpus":             nil,
		"butane-variant":          slices.Sorted(maps.Keys(render.Variants)),
		"type":                    {"management"},
		"role":                    {"control-plane", "master", "worker"},
		"cpuset":                  nil,
		"cpus":                    nil,
		"cpus-of-host":            nil,
	} {
		utilruntime.Must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	utilruntime.Must(command.MarkFlagDirname("to"))
	command.MarkFlagsMutuallyExclusive("file", "cpuset")
	command.MarkFlagsMutuallyExclusive("file", "type")
	command.MarkFlagsMutuallyExclusive("file", "role")
	command.MarkFlagsMutuallyExclusive("file", "cpus")
	command.MarkFlagsMutuallyExclusive("cpuset", "cpus")
	return command
}

func (c *renderOptions) Complete(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is not a flag; a value of --host needs an equals sign, as in --host=affinity", args[0])
	}
	c.changed = command.Flags().Changed
	return nil
}

func (c *renderOptions) Validate() error {
	targets := map[string]render.Target{"kube-apiserver-image": render.Kubeadm, "butane-variant": render.Butane}
	for _, flag := range slices.Sorted(maps.Keys(targets)) {
		if c.changed(flag) && c.target != string(targets[flag]) {
			return fmt.Errorf("--%s is for the target %s, and --target is %s", flag, targets[flag], c.target)
		}
	}
	if !c.fromNode.given && c.changed("cpus") {
		return errors.New("--cpus needs --from-node, which chooses them")
	}
	return c.fromNode.validate("render")
}

func (c *renderOptions) Run(context.Context) error {
	host, err := c.fromNode.read()
	if err != nil {
		return err
	}
	configurations, err := c.configurations(host)
	if err != nil {
		return err
	}
	var nodes []nodefiles.Node
	for _, configuration := range configurations {
		more, warnings, err := nodefiles.Validate(configuration, host)
		if err != nil {
			if len(configurations) > 1 {
				return fmt.Errorf("roles %q: %w", configuration.Roles, err)
			}
			return err
		}
		prefix := ""
		if len(configurations) > 1 {
			prefix = "role " + strings.Join(configuration.Roles, ", ") + ": "
		}
		c.say("warning: "+prefix, warnings)
		nodes = append(nodes, more...)
	}
	rendered, err := render.Render(render.Target(c.target), nodes, render.Options{KubeAPIServerImage: c.image, Variant: c.variant})
	if err != nil {
		return err
	}
	c.say("warning: ", rendered.Warnings)
	if c.to == "" {
		err = c.print(rendered.Files)
	} else {
		err = c.write(rendered.Files)
	}
	if err != nil {
		return err
	}
	c.say("note: ", rendered.Notes)
	return nil
}

func (c *renderOptions) say(prefix string, sentences []string) {
	for _, sentence := range sentences {
		fmt.Fprintf(c.ErrOut, "%s%s\n", prefix, sentence)
	}
}

// configurations returns what flags, file or topology say. host is nil without --from-node.
func (c *renderOptions) configurations(host *topology.Topology) (all []nodefiles.NodeConfiguration, err error) {
	switch {
	case c.file != "":
		all, err = c.read()
	case len(c.cpusets) > 0 || len(c.types) > 0 && host == nil:
		all, err = c.pairs()
	case host != nil:
		all, err = c.propose(host)
	default:
		err = errors.New("nothing says which pools there are: give --type and --cpuset, --file, or --from-node")
	}
	for i := range all {
		if c.cpusOfHost != "" {
			all[i].CPUs = c.cpusOfHost
		}
		if c.policy != "" {
			all[i].CPUManagerPolicy = c.policy
		}
		if c.topology != "" {
			all[i].TopologyManagerPolicy = c.topology
		}
		if c.systemCPUs != "" {
			all[i].SystemCPUs = c.systemCPUs
		}
		if len(c.host) > 0 {
			all[i].Host = nil
			for _, part := range c.host {
				all[i].Host = append(all[i].Host, nodefiles.HostPart(part))
			}
		}
	}
	return all, err
}

func (c *renderOptions) read() ([]nodefiles.NodeConfiguration, error) {
	file, err := openFile(c.file, c.In)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := render.Read(file)
	switch {
	case err != nil && c.file == "-":
		err = fmt.Errorf("standard input: %w", err)
	case err != nil:
		err = fmt.Errorf("%s: %w", c.file, err)
	}
	return all, err
}

// fromFlags returns a configuration with what flags say about all pools.
func (c *renderOptions) fromFlags(partitions []nodefiles.Partition) []nodefiles.NodeConfiguration {
	return []nodefiles.NodeConfiguration{{TypeMeta: output.TypeMeta(render.Kind), Roles: c.roles, Partitions: partitions}}
}

func (c *renderOptions) pairs() ([]nodefiles.NodeConfiguration, error) {
	types := c.types
	if len(types) == 0 && len(c.cpusets) == 1 {
		types = []string{defaultType}
	}
	if len(types) != len(c.cpusets) {
		return nil, fmt.Errorf("each --type needs one --cpuset: there are types %q and cpusets %q", types, c.cpusets)
	}
	var partitions []nodefiles.Partition
	for i := range types {
		partitions = append(partitions, nodefiles.Partition{Type: types[i], CPUSet: &c.cpusets[i]})
	}
	return c.fromFlags(partitions), nil
}

// defaultType is the one that most clusters have.
const defaultType = "management"

func (c *renderOptions) propose(host *topology.Topology) ([]nodefiles.NodeConfiguration, error) {
	types := c.types
	if len(types) == 0 {
		types = []string{defaultType}
	}
	if len(types) > 1 {
		return nil, fmt.Errorf("--from-node chooses one pool, and there are types %q: give each a --cpuset", types)
	}
	proposal, err := render.Propose(host, c.cpus)
	if err != nil {
		return nil, err
	}
	c.say("", proposal.Reasons)
	list := proposal.Pool.String()
	return c.fromFlags([]nodefiles.Partition{{Type: types[0], CPUSet: &list}}), nil
}

// print prints what is one file, or several documents of YAML.
func (c *renderOptions) print(files []nodefiles.File) error {
	target := render.Target(c.target)
	if target == render.Tree || target == render.Kubeadm || len(files) > 1 && target != render.MachineConfig {
		return fmt.Errorf("the target %s makes %d files; give a directory for them with --to", target, len(files))
	}
	for i, file := range files {
		if i > 0 {
			fmt.Fprintln(c.Out, "---")
		}
		if _, err := c.Out.Write(file.Content); err != nil {
			return err
		}
	}
	return nil
}

// write writes the files below --to, and prints their names. Unless --force is given, it
// writes none if one of them exists.
func (c *renderOptions) write(files []nodefiles.File) error {
	if !c.force {
		var existing []string
		for _, file := range files {
			name := filepath.Join(c.to, file.Path)
			if _, err := os.Lstat(name); err == nil {
				existing = append(existing, name)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if len(existing) > 0 {
			return fmt.Errorf("nothing was written, because these exist; --force overwrites them: %s", strings.Join(existing, ", "))
		}
	}
	for _, file := range files {
		name := filepath.Join(c.to, file.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := replaceFile(name, file.Content, file.Mode, nil); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, name)
	}
	if target := render.Target(c.target); (target == render.Tree || target == render.Kubeadm) && os.Geteuid() != 0 {
		c.say("note: ", []string{"These files belong to you. On the node they must belong to root, or the kubelet does not start: chown -R root:root etc."})
	}
	return nil
}
