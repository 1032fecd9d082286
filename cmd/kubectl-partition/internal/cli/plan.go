// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/nodes"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/plan"
	"workload.openshift.io/partition"
)

type planOptions struct {
	arguments
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	format  output.Format
	// What is wanted.
	file           string
	types, cpusets []string
	remove         bool
	// What is there.
	selector, state, root string
	onHost                bool
	files                 plan.Files
	online                string
}

func newPlan(streams genericiooptions.IOStreams) *cobra.Command {
	o := &planOptions{streams: streams, config: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "plan [NODE...] (--file FILE | --type TYPE --cpuset CPUS | --remove)",
		Short: "Show what a change of pools would do to a node",
		Long: `Show what a kubelet would do at its next start with another pinning file: whether it
starts at all, which exclusive pods hold the CPUs, which pods move, which no longer
fit, and in which order to act. Nothing is changed.

What is known of the node comes from one or more of these. The later ones in this
list override the earlier ones:
  NODE... or --selector  the API: pods, the Node, the kubelet's configuration. The
                         API shows neither the present pools nor which containers hold
                         which exclusive CPUs
  --on-host              the files of this host, which is the node. Run as root, and
                         name the node as well: no file has its pods and labels
  --state DIR            copies of a node's files in a directory, under their names:
                         ` + kubeletstate.CheckpointName + `, ` + partition.RecordName + `,
                         ` + kubeletstate.AllocatedName + `, openshift-workload-pinning, and
                         config.yaml (the kubelet's) and config.d (its drop-ins),
                         online and isolated (of /sys/devices/system/cpu), pods.json
                         and node.json
  single files           --present-file, --kubelet-config, --checkpoint, --pods ...

Exit codes:
  0  the change is safe: the kubelet starts, and no pod falls out or loses
     exclusive CPUs
  1  the change is not safe
  2  the input is wrong, or too little is known to tell`,
		Example: `  # Two CPUs more for management, on the node itself and with its pods
  kubectl partition plan --on-host --type management --cpuset 0-3,52-53 worker-1

  # The same for all nodes of a group, as far as the API knows
  kubectl partition plan -l node-role.kubernetes.io/edge --online 0-55 --file new-pinning-file

  # Offline, from copies of a node's files
  kubectl partition plan --state ./worker-1 --file new-pinning-file -o yaml

  # What if the file goes?
  kubectl partition plan --on-host --remove worker-1`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(o),
	}
	flags := command.Flags()
	flags.StringVarP(&o.file, "file", "f", "", "the wanted pinning file; - is standard input")
	flags.StringArrayVar(&o.types, "type", nil, "a workload type that is wanted, with the --cpuset that follows; may be repeated")
	flags.StringArrayVar(&o.cpusets, "cpuset", nil, "the pool of the --type before it, as a CPU list; empty switches the type on without confining it")
	flags.BoolVar(&o.remove, "remove", false, "plan for a node without a pinning file")
	flags.StringVarP(&o.selector, "selector", "l", "", "read the nodes with these labels through the API")
	flags.BoolVar(&o.onHost, "on-host", false, "read the files of this host")
	flags.StringVar(&o.root, "root-dir", "", "with --on-host: the kubelet's root directory; by default the one that its command line names")
	flags.StringVar(&o.state, "state", "", "read copies of a node's files from this directory")
	flags.StringVar(&o.files.Present, "present-file", "", "the pinning file that the node has")
	flags.StringVar(&o.files.Configuration, "kubelet-config", "", "the kubelet's configuration; with --on-host by default the file and the drop-ins that the kubelet's command line names")
	flags.StringVar(&o.files.Checkpoint, "checkpoint", "", "the CPU manager's checkpoint, "+kubeletstate.CheckpointName)
	flags.StringVar(&o.files.Record, "record", "", "the kubelet's record, "+partition.RecordName)
	flags.StringVar(&o.files.Pods, "pods", "", "pods of the node, as kubectl get pods -o json prints them")
	flags.StringVar(&o.online, "online", "", "the CPUs of the host, as a CPU list; with several nodes, those of each")
	for _, of := range []string{"type", "cpuset", "online", "selector"} {
		utilruntime.Must(command.RegisterFlagCompletionFunc(of, cobra.NoFileCompletions))
	}
	for _, of := range []string{"state", "root-dir"} {
		utilruntime.Must(command.MarkFlagDirname(of))
	}
	command.MarkFlagsMutuallyExclusive("file", "type", "remove")
	command.MarkFlagsMutuallyExclusive("file", "cpuset", "remove")
	command.MarkFlagsOneRequired("file", "type", "remove")
	command.MarkFlagsRequiredTogether("type", "cpuset")
	command.MarkFlagsMutuallyExclusive("on-host", "state", "selector")
	o.format.Flag(command)
	o.config.Namespace = nil // pods of all namespaces are on a node
	o.config.AddFlags(flags)
	return command
}

func (o *planOptions) Validate() error {
	if len(o.args) > 0 && o.selector != "" {
		return errors.New("name the nodes or select them with --selector, not both")
	}
	if o.onHost {
		return needsNode("plan --on-host")
	}
	return nil
}

func (o *planOptions) Run(ctx context.Context) error {
	wanted, err := o.wanted()
	if err != nil {
		return err
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	var plans []plan.NodePlan
	for _, node := range nodes {
		plans = append(plans, node.Plan(wanted))
	}
	result := plan.New(plans)
	if err := o.format.Print(o.streams.Out, result, func(w io.Writer, wide bool) error { return printPlan(w, result, wide) }); err != nil {
		return err
	}
	switch result.Verdict {
	case plan.Unsafe:
		return errFound
	case plan.Unknown:
		return errors.New("too little is known to tell whether the change is safe; the problems say what is missing")
	}
	return nil
}

// wanted returns the wanted pinning file.
func (o *planOptions) wanted() (plan.File, error) {
	switch {
	case o.remove:
		return plan.Absent(), nil
	case o.file != "":
		data, err := readFile(o.file, io.LimitReader(o.streams.In, maxWanted))
		return plan.There(data), err
	case len(o.types) != len(o.cpusets):
		return plan.File{}, fmt.Errorf("there are %d --type and %d --cpuset; give one --cpuset for each --type", len(o.types), len(o.cpusets))
	}
	file := map[string]map[string]string{}
	for i, workloadType := range o.types {
		if _, twice := file[workloadType]; twice {
			return plan.File{}, fmt.Errorf("--type %s is given twice", workloadType)
		}
		file[workloadType] = map[string]string{"cpuset": o.cpusets[i]}
	}
	data, err := json.Marshal(file)
	return plan.There(data), err
}

// maxWanted is the most that is read from standard input, in bytes: the kubelet reads a
// pinning file of up to 1 MiB.
const maxWanted = 1<<20 + 1

// nodes returns what is known of the nodes.
func (o *planOptions) nodes(ctx context.Context) ([]plan.Node, error) {
	nodes := []plan.Node{{}}
	if len(o.args) > 0 || o.selector != "" {
		var err error
		if nodes, err = o.live(ctx); err != nil {
			return nil, err
		}
	}
	sources, err := o.sources()
	if err != nil {
		return nil, err
	}
	if len(nodes) > 1 && len(sources) > 0 {
		return nil, fmt.Errorf("the files are those of one node, and there are %d nodes", len(nodes))
	}
	for _, files := range sources {
		if err := files.Read(&nodes[0]); err != nil {
			return nil, err
		}
	}
	if o.online != "" {
		online, err := partition.ParseCPUs(o.online)
		if err != nil {
			return nil, fmt.Errorf("--online: %w", err)
		}
		for i := range nodes {
			if capacity := nodes[i].Online.Size(); nodes[i].OnlineCounted && online.Size() != capacity {
				return nil, fmt.Errorf("--online %s has %d CPUs, and node %s has %d", o.online, online.Size(), nodes[i].Name, capacity)
			}
			nodes[i].Online, nodes[i].OnlineCounted = online, false
		}
	}
	for _, node := range nodes {
		if node.Online.IsEmpty() {
			return nil, errors.New("nothing says which CPUs the node has: name a node, or give --on-host, --state with a file online, or --online")
		}
	}
	return nodes, nil
}

// sources returns the files to read, of which the later count.
func (o *planOptions) sources() (sources []plan.Files, err error) {
	if o.onHost {
		kubelet := audit.Host{}.FindKubelet()
		host := plan.OnHost(cmp.Or(o.root, kubelet.Root), cmp.Or(o.files.Configuration, kubelet.Configuration))
		host.Endpoint, host.Changing = kubelet.Endpoint, strings.Join(kubelet.Changing, ", ")
		if o.files.Configuration == "" {
			host.ConfigurationDir = kubelet.ConfigurationDir
		}
		sources = append(sources, host)
	}
	if o.state != "" {
		if info, err := os.Stat(o.state); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--state %s is not a directory (%v)", o.state, err)
		}
		sources = append(sources, plan.InDirectory(o.state))
	}
	if o.files != (plan.Files{}) {
		for _, path := range []string{o.files.Present, o.files.Checkpoint, o.files.Record} {
			if path == "" {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				return nil, err // a file that is named must be there
			}
		}
		sources = append(sources, o.files)
	}
	return sources, nil
}

func (o *planOptions) live(ctx context.Context) ([]plan.Node, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // a few nodes are read at the same time; client-go's 5 requests a second would take minutes for hundreds
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return nodes.Reader{Client: client, Config: config}.Nodes(ctx, o.args, o.selector)
}

// mostNames is how many names of pods a table has in one row, unless it is wide.
const mostNames = 4

// printPlan prints a plan for people: for each node a line with the verdict, what changes, who
// holds exclusive CPUs, what the kubelet does, the problems, and the steps.
func printPlan(out io.Writer, result plan.Plan, wide bool) error {
	var b strings.Builder
	for i, node := range result.Nodes {
		if i > 0 {
			b.WriteString("\n")
		}
		printNodePlan(&b, node, wide)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// verdicts are the verdicts in words.
var verdicts = map[plan.Verdict]string{
	plan.Safe:    "the change is safe",
	plan.Unsafe:  "the change is NOT safe",
	plan.Unknown: "it is NOT KNOWN whether the change is safe",
}

func printNodePlan(b *strings.Builder, node plan.NodePlan, wide bool) {
	name := "Node"
	if node.Node != "" {
		name += " " + node.Node
	}
	fmt.Fprintf(b, "%s: %s\n", output.Printable(name), verdicts[node.Verdict])
	table := func(header string, rows int, row func(i int) []string) {
		if rows == 0 {
			return
		}
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "\n%s\n", header)
		for i := range rows {
			cells := row(i)
			for j := range cells {
				cells[j] = output.Printable(cells[j])
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		w.Flush()
	}
	if len(node.Actions) == 0 && len(node.Problems) == 0 {
		b.WriteString("The kubelet starts, and changes nothing.\n")
		return
	}
	rows := [][]string{
		{"reserved CPUs", cmp.Or(node.Before.ReservedCPUs, "-"), cmp.Or(node.After.ReservedCPUs, "-")},
		{"cpu allocatable", amount(node.Before.AllocatableMillicores), amount(node.After.AllocatableMillicores)},
		{"shared CPUs", cmp.Or(node.Before.SharedCPUs, "-"), cmp.Or(node.After.SharedCPUs, "-")},
	}
	table("WHAT\tBEFORE\tAFTER", len(rows), func(i int) []string { return rows[i] })
	table("EXCLUSIVE\tCONTAINER\tCPUS\tTAKEN\tBY\tRUNS", len(node.Exclusive), func(i int) []string {
		e, by := node.Exclusive[i], "reserved CPUs"
		if e.InPool {
			by = "pool"
		}
		return []string{e.Pod, cmp.Or(e.Container, "-"), e.CPUs, e.Wanted, by, string(e.Runs)}
	})
	table("ACTION\tOBJECT\tFROM\tTO\tPODS", len(node.Actions), func(i int) []string {
		a := node.Actions[i]
		pods := strings.Join(a.Pods, ",")
		if more := len(a.Pods) - mostNames; more > 0 && !wide {
			pods = fmt.Sprintf("%s and %d more", strings.Join(a.Pods[:mostNames], ","), more)
		}
		return []string{string(a.Kind), a.Object, cmp.Or(a.From, "-"), cmp.Or(a.To, "-"), cmp.Or(pods, "-")}
	})
	if len(node.Problems) > 0 {
		b.WriteString("\n")
	}
	said := map[string]bool{}
	for _, p := range node.Problems {
		sentence := strings.TrimSpace(fmt.Sprintf("%s: %s %s", p.Severity, p.Code, p.Object)) + ": " + p.Text
		if p.Remedy != "" {
			sentence += ". To do: " + p.Remedy
		}
		if !said[sentence] {
			fmt.Fprintf(b, "%s.\n", output.Printable(sentence))
		}
		said[sentence] = true
	}
	if len(node.Steps) > 0 {
		b.WriteString("\nDo it in this order:\n")
	}
	for i, step := range node.Steps {
		fmt.Fprintf(b, "  %d. %s.\n", i+1, output.Printable(step))
	}
}

func amount(millicores *int64) string {
	if millicores == nil {
		return "-"
	}
	return fmt.Sprintf("%dm", *millicores)
}
