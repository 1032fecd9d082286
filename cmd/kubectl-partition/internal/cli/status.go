// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/partition"
)

// errIncomplete ends a command that has printed all that it could find out.
var errIncomplete = errors.New("nothing wrong was found, but the status is incomplete; the missing information is named above")

type statusOptions struct {
	flagsAlone
	status.Options
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	format  output.Format
}

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	o := &statusOptions{streams: streams, config: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the state of partitioning in a cluster",
		Long: `Show the state of workload partitioning in a cluster: which kube-apiservers have the
admission plugin, which types are active, what partitioned pods request on each node,
which pods were skipped and why, which have no right to their partition, and which
autoscalers cannot work.

The command only reads. The ClusterRole status.workload.openshift.io in the documentation
has the rights that it needs. If a right is missing, the command names it and prints the rest.

The size of a pool is known to its node's kubelet, but not to the API. --pools asks all
kubelets, through kube-apiserver. This needs the right to get nodes/proxy, which allows far
more than reading.

Exit codes:
  0  nothing is wrong
  1  something is: a kube-apiserver without the plugin, kube-apiservers that disagree,
     types that cannot be latched, nodes without a type, pods that were skipped or on which
     nothing has decided, pods whose namespace does not allow their type, pods that request
     more than their pool has, or autoscalers that cannot work
  2  nothing wrong was found, but some information is missing`,
		Example: `  # At a glance
  kubectl partition status

  # The pods that have no right to their partition, before the first node has a pool
  kubectl partition status -o json | jq -r '.notAllowed[] | [.namespace, .name, .node, .type] | @tsv'

  # All nodes, with the sizes of their pools
  kubectl partition status --pools -o wide

  # The kube-apiservers without the admission plugin
  kubectl partition status -o json | jq -r '.servers[] | select(.plugin == "absent").url'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(o),
	}
	o.format.Flag(command)
	command.Flags().BoolVar(&o.Pools, "pools", false, "ask each kubelet for the sizes of its pools; needs the right to get nodes/proxy")
	o.config.Namespace = nil // the status is that of the whole cluster
	o.config.AddFlags(command.Flags())
	return command
}

func (o *statusOptions) Run(ctx context.Context) error {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return err
	}
	s, err := status.Read(ctx, config, o.Options)
	if err != nil {
		return err
	}
	if err := o.format.Print(o.streams.Out, s, func(w io.Writer, wide bool) error { return printStatus(w, s, wide) }); err != nil {
		return err
	}
	switch {
	case s.Found():
		return errFound
	case s.Incomplete():
		return errIncomplete
	}
	return nil
}

// mostRows is how many rows of a long table, or names of a list, are printed without -o wide.
const mostRows = 10

// printStatus prints the status as tables, and then what is wrong and what is not known.
func printStatus(out io.Writer, s *status.Status, wide bool) error {
	most := mostRows
	if wide {
		most = math.MaxInt
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printServers(w, s.Servers)
	if len(s.Types) > 0 {
		printTypes(w, s)
	}
	if len(s.Nodes) > 0 {
		printNodes(w, s, most)
	}
	if len(s.Skipped) > 0 {
		printSkipped(w, s.Skipped, most)
	}
	if len(s.NotAllowed) > 0 {
		printNotAllowed(w, s.NotAllowed, most)
	}
	printSentences(w, "FOUND", statusFindings(s, most))
	printSentences(w, "NOTES", statusNotes(s, most))
	printSentences(w, "NOT KNOWN", statusUnknown(s))
	return w.Flush()
}

func printServers(w io.Writer, servers []status.Server) {
	output.Row(w, "KUBE-APISERVER", "PLUGIN", "ACTIVE TYPES")
	for _, server := range servers {
		url, active := server.URL, "-"
		if server.Configured {
			url += " (configured)"
		}
		var types []string
		for _, name := range slices.Sorted(maps.Keys(server.Types)) {
			if server.Types[name].Active {
				types = append(types, name)
			}
		}
		if len(types) > 0 {
			active = strings.Join(types, ",")
		}
		output.Row(w, url, server.Plugin, active)
	}
}

// unless prints a value, or a question mark if it is not known.
func unless(unknown bool, value any) any {
	if unknown {
		return "?"
	}
	return value
}

func printTypes(w io.Writer, s *status.Status) {
	fmt.Fprintln(w)
	output.Row(w, "TYPE", "ACTIVE", "SINCE", "NODES", "WITHOUT", "PODS", "PENDING", "REQUESTED", "CORES")
	nodes, pods := s.NodesUnknown, s.PodsUnknown
	for _, t := range s.Types {
		active, since := "unknown", "-"
		switch {
		case t.Disagree:
			active = "differs"
		case t.Active != nil && *t.Active:
			active = "yes"
		case t.Active != nil:
			active = "no"
		}
		if t.Since != nil {
			since = t.Since.UTC().Format(time.RFC3339)
		}
		output.Row(w, t.Name, active, since, unless(nodes, t.NodesReporting), unless(nodes, len(t.Missing)),
			unless(pods, t.Pods), unless(pods, t.Unscheduled), unless(pods, millicores(t.RequestedMillicores)), unless(nodes, millicores(t.CoresMillicores)))
	}
}

func printNodes(w io.Writer, s *status.Status, most int) {
	nodes := s.Nodes
	fmt.Fprintln(w)
	output.Row(w, "NODE", "TYPE", "PODS", "REQUESTED", "CORES", "OF CORES", "RESERVED CPU", "POOL", "OF POOL")
	pools := false
	for _, node := range nodes[:min(len(nodes), most)] {
		pool, ofCores, ofPool := "?", "-", "-"
		if node.PoolCPUs != nil {
			pools = true
			if pool = millicores(int64(1000 * *node.PoolCPUs)); *node.PoolCPUs == 0 {
				pool = "not confined"
			}
		}
		switch {
		case s.NodesUnknown || s.PodsUnknown:
			ofCores, ofPool = "?", "?"
		case node.CoresMillicores > 0:
			ofCores = inPercent(float64(node.RequestedMillicores) / float64(node.CoresMillicores))
		}
		if share, least := node.Overcommitment(); share > 0 && !s.PodsUnknown {
			if ofPool = inPercent(share); least {
				ofPool = ">=" + ofPool
			}
		}
		output.Row(w, node.Name, node.Type, unless(s.PodsUnknown, node.Pods), unless(s.PodsUnknown, millicores(node.RequestedMillicores)),
			unless(s.NodesUnknown, millicores(node.CoresMillicores)), ofCores, unless(s.NodesUnknown, millicores(node.ReservedMillicores)), pool, ofPool)
	}
	if rest := len(nodes) - most; rest > 0 {
		fmt.Fprintf(w, "... and %d more; -o wide prints all\n", rest)
	}
	if !pools {
		fmt.Fprintln(w, "The API does not know the sizes of pools. They are a part of RESERVED CPU, unless the type is not confined; --pools asks the kubelets.")
	}
}

func printSkipped(w io.Writer, skipped []status.Skipped, most int) {
	fmt.Fprintln(w)
	output.Row(w, "SKIPPED", "TYPE", "REASON", "NEWEST", "CREATED")
	for _, group := range skipped {
		for i, pod := range group.Newest {
			count, workloadType, reason := any(group.Count), cmp.Or(group.Type, "-"), group.Reason
			if i > 0 {
				count, workloadType, reason = "", "", ""
			}
			if i > 0 && most == mostRows {
				break
			}
			output.Row(w, count, workloadType, reason, pod.Namespace+"/"+pod.Name, pod.Created.UTC().Format(time.RFC3339))
		}
	}
}

func printNotAllowed(w io.Writer, notAllowed []status.PodNotAllowed, most int) {
	fmt.Fprintln(w)
	output.Row(w, "NOT ALLOWED", "NODE", "TYPE", "RUNS AS")
	for _, pod := range notAllowed[:min(len(notAllowed), most)] {
		runs := "ordinary"
		if pod.Partitioned {
			runs = "partitioned"
		}
		output.Row(w, pod.Namespace+"/"+pod.Name, cmp.Or(pod.Node, "-"), pod.Type, runs)
	}
	if rest := len(notAllowed) - most; rest > 0 {
		fmt.Fprintf(w, "... and %d more; -o wide prints all\n", rest)
	}
}

func printSentences(w io.Writer, heading string, sentences []string) {
	if len(sentences) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", heading)
	for _, sentence := range sentences {
		fmt.Fprintf(w, "- %s\n", output.Printable(sentence))
	}
}

// statusFindings says in sentences what is wrong. Each sentence names at most this many objects.
func statusFindings(s *status.Status, most int) (sentences []string) {
	say := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	for _, server := range s.Servers {
		if server.Plugin == status.Absent {
			say("%s does not have the admission plugin: anyone who uses it can forge a partitioned pod. Upgrade it, or switch the plugin on", server.URL)
		}
		for _, name := range slices.Sorted(maps.Keys(server.Types)) {
			if server.Types[name].Unlatched {
				say("%s cannot write type %s to the annotation %s of kube-system: the type stops being active as soon as a node without it joins", server.URL, name, partition.EnabledAnnotation)
			}
		}
	}
	for _, t := range s.Types {
		switch {
		case t.Disagree:
			say("kube-apiservers disagree on whether type %s is active: they must have the same version and configuration", t.Name)
		case len(t.Missing) > 0 && t.Active != nil && *t.Active:
			say("type %s is active, and its pods do not run on %s without it: %s", t.Name, counted(len(t.Missing), "node"), listed(t.Missing, most))
		case len(t.Missing) > 0 && t.Active != nil:
			keep := "keep"
			if len(t.Missing) == 1 {
				keep = "keeps"
			}
			say("type %s is not active; if the nodes decide, %s without it %s it so: %s", t.Name, counted(len(t.Missing), "node"), keep, listed(t.Missing, most))
		}
	}
	for _, group := range s.Skipped {
		if !group.Intended() {
			sentences = append(sentences, skipped(group))
		}
	}
	if s.Undecided != nil {
		pods := make([]string, len(s.Undecided.Newest))
		for i, pod := range s.Undecided.Newest {
			pods[i] = pod.Namespace + "/" + pod.Name
		}
		say("%s with a target annotation or cores, and neither partitioned nor skipped: %s. A kube-apiserver without the plugin created them, or a kubelet without a pinning file runs them as static pods",
			counted(s.Undecided.Count, "pod"), strings.Join(pods, ", "))
	}
	var partitioned, ordinary int
	for _, pod := range s.NotAllowed {
		if pod.Partitioned {
			partitioned++
		} else {
			ordinary++
		}
	}
	if partitioned > 0 {
		say("%s of a namespace that does not allow the type: a kubelet with the type runs them in its pool, with the weight that they ask for. They are older than the admission plugin, or got past it, or the namespace allowed the type once. "+
			"Delete each (kubectl delete pod --namespace NAMESPACE NAME), or let its namespace allow the type (kubectl annotate namespace NAMESPACE %s=TYPE)", counted(partitioned, "partitioned pod"), partition.AllowedAnnotation)
	}
	if ordinary > 0 {
		say("%s with a target annotation or cores in a namespace that does not allow the type: they run as ordinary pods, and their cores count on their nodes. Delete each, or let its namespace allow the type and create it again", counted(ordinary, "pod"))
	}
	sentences = append(sentences, exceeding(s.Nodes, most, true, func(node status.Node) string {
		return fmt.Sprintf("the pool of type %s on node %s has %s, and pod %s/%s requests %s: the other pods there get less than they ask for. Let it request less", node.Type, node.Name, millicores(int64(1000**node.PoolCPUs)), node.Largest.Namespace, node.Largest.Name, millicores(node.Largest.Millicores))
	})...)
	for _, a := range s.Autoscalers {
		say("%s %s/%s of %s: %s", a.Kind, a.Namespace, a.Name, a.Target, a.Problem)
	}
	return sentences
}

// skipped says why pods were skipped.
func skipped(group status.Skipped) string {
	who, were, newest := counted(group.Count, "pod"), "were", group.Newest[0]
	if group.Type != "" { // an invalid target names none
		who += " of type " + group.Type
	}
	if group.Count == 1 {
		were = "was"
	}
	why := group.Text + newest.Detail
	if group.Count > 1 && newest.Detail != "" {
		why = fmt.Sprintf("%s; the newest, %s/%s: %s", strings.TrimSuffix(group.Text, ": "), newest.Namespace, newest.Name, newest.Detail)
	}
	return fmt.Sprintf("%s %s skipped (%s): %s", who, were, group.Reason, why)
}

// statusNotes says in sentences what an operator may want, and should know.
func statusNotes(s *status.Status, most int) (sentences []string) {
	sentences = exceeding(s.Nodes, most, false, func(node status.Node) string {
		return fmt.Sprintf("node %s reserves %s, and pod %s/%s of type %s requests %s: if the type is confined there, that is more than its pool has; --pools asks the kubelet", node.Name, millicores(node.ReservedMillicores), node.Largest.Namespace, node.Largest.Name, node.Type, millicores(node.Largest.Millicores))
	})
	for _, group := range s.Skipped {
		if group.Intended() {
			sentences = append(sentences, skipped(group))
		}
	}
	byType := map[string][]string{}
	for _, of := range s.Unbounded {
		byType[of.Type] = append(byType[of.Type], of.Namespace)
	}
	for _, workloadType := range slices.Sorted(maps.Keys(byType)) {
		namespaces := byType[workloadType]
		sentences = append(sentences, fmt.Sprintf("%s with a right to type %s and without a quota on %s: %s. The pods there may request all cores of a node, and thereby as much weight in its pool", counted(len(namespaces), "namespace"), workloadType, status.QuotaOnCores(workloadType), listed(namespaces, most)))
	}
	return sentences
}

// exceeding says a sentence for each pool of which a pod requests more than it has, and how many more there are.
func exceeding(nodes []status.Node, most int, known bool, say func(status.Node) string) (sentences []string) {
	found := 0
	for _, node := range nodes {
		if exceeds, certain := node.Exceeds(); !exceeds || certain != known {
			continue
		}
		if found++; found <= most {
			sentences = append(sentences, say(node))
		}
	}
	if found > most {
		sentences = append(sentences, fmt.Sprintf("the same of %d pools more", found-most))
	}
	return sentences
}

func statusUnknown(s *status.Status) (sentences []string) {
	for _, server := range s.Servers {
		if server.Plugin == status.Unreachable {
			sentences = append(sentences, fmt.Sprintf("whether %s has the admission plugin: %s", server.URL, server.Error))
		}
	}
	return append(sentences, missingRights(s.Unknown)...)
}

func listed(of []string, most int) string {
	if rest := len(of) - most; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(of[:most], ", "), rest)
	}
	return strings.Join(of, ", ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func millicores(n int64) string      { return strconv.FormatInt(n, 10) + "m" }
func inPercent(share float64) string { return strconv.Itoa(int(math.Round(100*share))) + "%" }
