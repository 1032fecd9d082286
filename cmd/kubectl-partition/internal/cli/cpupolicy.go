// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// companion is what the commands have in common that are about the companion cpupolicy.
type companion struct {
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	// client is made by connect, or by a test.
	client   kubernetes.Interface
	warnings warnings
}

func newCompanion(streams genericiooptions.IOStreams) *companion {
	c := &companion{streams: streams, config: genericclioptions.NewConfigFlags(true)}
	*c.config.Namespace = policyclient.Namespace
	return c
}

// flags adds the flags of the cluster. The namespace is the companion's, whatever the kubeconfig has.
func (c *companion) flags(command *cobra.Command) {
	c.config.AddFlags(command.Flags())
	command.Flags().Lookup("namespace").Usage = "the namespace of the companion cpupolicy"
}

// connect returns what asks the cluster.
func (c *companion) connect() (policyclient.Client, error) {
	if c.client == nil {
		config, err := c.config.ToRESTConfig()
		if err != nil {
			return policyclient.Client{}, err
		}
		config.WarningHandler = &c.warnings
		if c.client, err = kubernetes.NewForConfig(config); err != nil {
			return policyclient.Client{}, err
		}
	}
	return policyclient.Client{Kube: c.client, Namespace: *c.config.Namespace}, nil
}

// warnings are what kube-apiserver has warned of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const warning = 299 // RFC 7234, 5.5.7
	if code == warning && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

// take returns the warnings since it was called before.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// confirm returns an error unless a person says yes.
func (c *companion) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(c.streams.ErrOut, "%s Type yes to continue: ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.streams.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.streams.ErrOut)
		return errors.New("nothing was changed")
	case said := <-answer:
		if said != "yes" {
			return fmt.Errorf("nothing was changed: the answer was %q, not yes (--yes skips the question)", said)
		}
		return nil
	}
}

type policyOptions struct {
	arguments
	*companion
	format       output.Format
	wait, dryRun bool
	allowEvicted bool
	timeout      time.Duration
}

func newCPUPolicy(streams genericiooptions.IOStreams) *cobra.Command {
	p := &policyOptions{companion: newCompanion(streams)}
	command := &cobra.Command{
		Use:   "cpu-policy [NODE [static|none]]",
		Short: "Switch the CPU manager policy of a node, or show those of nodes",
		Long: `Ask the companion cpupolicy to switch the CPU manager policy of a node, or show which
policies are in force and what became of requests.

With a policy, the command writes an annotation to the node with your own credentials: you
need the rights to get and patch it, and to watch nodes for --wait. If the node cannot be
switched, the reasons are printed, one per line. --dry-run checks everything and writes nothing.

Without a policy, it prints what was observed on the node, and its last request. Without a
node, it lists all nodes.

Exit codes:
  0  the policy is requested (with --wait: it is in force); with --dry-run: it would be;
     or no request has failed on the nodes that are shown
  1  the request was refused, or it has failed
  2  the cluster cannot be asked, or --timeout expired during --wait`,
		Example: `  # Could the node be switched?
  kubectl partition cpu-policy worker-1 static --dry-run

  # Switch, and wait for the end
  kubectl partition cpu-policy worker-1 static --wait

  # What is in force on all nodes?
  kubectl partition cpu-policy`,
		Args: cobra.MaximumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{string(operation.None), string(operation.Static)}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: steps(p),
	}
	flags := command.Flags()
	flags.BoolVar(&p.wait, "wait", false, "wait until the request is complete or has failed")
	flags.DurationVar(&p.timeout, "timeout", time.Hour, "how long to --wait")
	flags.BoolVar(&p.dryRun, "dry-run", false, "let the cluster check everything, and write nothing")
	flags.BoolVar(&p.allowEvicted, "allow-evicted", false, "accept that pods that no longer fit are ended")
	command.MarkFlagsMutuallyExclusive("wait", "dry-run")
	p.format.Flag(command)
	p.flags(command)
	command.AddCommand(newGroupPlan(p.streams), newUnlock(p.streams))
	return command
}

func (p *policyOptions) Validate() error {
	if len(p.args) < 2 && (p.wait || p.dryRun || p.allowEvicted) {
		return errors.New("--wait, --dry-run and --allow-evicted are about a request; name a node and a policy")
	}
	return nil
}

func (p *policyOptions) Run(ctx context.Context) error {
	client, err := p.connect()
	if err != nil {
		return err
	}
	switch len(p.args) {
	case 0:
		return p.list(ctx, client)
	case 1:
		return p.show(ctx, client, p.args[0])
	}
	return p.ask(ctx, client, policyclient.Request{Node: p.args[0], Policy: operation.Policy(p.args[1]), AllowEvicted: p.allowEvicted, DryRun: p.dryRun})
}

// shownNode is what -o json prints of a node.
type shownNode struct {
	metav1.TypeMeta   `json:",inline"`
	policyclient.Node `json:",inline"`
}

func (p *policyOptions) list(ctx context.Context, client policyclient.Client) error {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	return verdict(foundOn(nodes...), p.format, p.streams.Out, list[policyclient.Node]{output.TypeMeta("CPUPolicyNodes"), nodes}, func(w io.Writer, wide bool) error {
		return printPolicies(w, nodes, wide)
	})
}

func (p *policyOptions) show(ctx context.Context, client policyclient.Client, name string) error {
	object, err := client.Node(ctx, name)
	if err != nil {
		return err
	}
	node := policyclient.NodeOf(object)
	return verdict(foundOn(node), p.format, p.streams.Out, shownNode{output.TypeMeta("CPUPolicyNode"), node}, func(w io.Writer, _ bool) error {
		printPolicy(w, node)
		return nil
	})
}

// foundOn reports whether a request has failed on one of the nodes, or cannot be read.
func foundOn(nodes ...policyclient.Node) bool {
	return slices.ContainsFunc(nodes, func(n policyclient.Node) bool { return n.State == nodestatus.Failed || len(n.Unreadable) > 0 })
}

// answer is what -o json prints of a request.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Node            string           `json:"node"`
	Policy          operation.Policy `json:"policy"`
	DryRun          bool             `json:"dryRun,omitempty"`
	// Refused are the reasons for which it was refused.
	Refused  []string `json:"refused,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// State is that of the request as it was seen last, and Message says more of it.
	State   nodestatus.State `json:"status,omitempty"`
	Message string           `json:"message,omitempty"`
}

func (p *policyOptions) ask(ctx context.Context, client policyclient.Client, request policyclient.Request) error {
	result := answer{TypeMeta: output.TypeMeta("CPUPolicyRequest"), Node: request.Node, Policy: request.Policy, DryRun: request.DryRun}
	object, err := client.Ask(ctx, request)
	result.Warnings = p.warnings.take()
	var refused *policyclient.RefusedError
	switch {
	case errors.As(err, &refused):
		result.Refused = refused.Texts()
	case err != nil:
		return err
	case !request.DryRun:
		result.State = nodestatus.Requested
	}
	var failed error
	if p.wait && object != nil {
		var node policyclient.Node
		node, failed = p.follow(ctx, client, request, object)
		result.State, result.Message = node.State, node.Message
	}
	if err := p.format.Print(p.streams.Out, result, func(w io.Writer, _ bool) error {
		printAnswer(w, result)
		return nil
	}); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return failed
	case refused != nil, result.State == nodestatus.Failed:
		return errFound
	}
	return nil
}

// follow shows how far a request is, until it has ended or the time is over.
func (p *policyOptions) follow(ctx context.Context, client policyclient.Client, request policyclient.Request, object *corev1.Node) (policyclient.Node, error) {
	timed, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	last := ""
	node, err := client.Follow(timed, object, func(n policyclient.Node) {
		if text := progress(n); text != last {
			fmt.Fprintf(p.streams.ErrOut, "%s\n", output.Printable(text))
			last = text
		}
	})
	if timed.Err() == nil {
		return node, err
	}
	after := "after " + p.timeout.String()
	if ctx.Err() != nil {
		after = "when you stopped waiting"
	}
	return node, fmt.Errorf("node %s: policy %s was %s %s; it continues: kubectl partition cpu-policy %[1]s shows its progress", request.Node, request.Policy, cmp.Or(node.State, nodestatus.Requested), after)
}

// progress says in one line how far a request is.
func progress(n policyclient.Node) string {
	text := fmt.Sprintf("node %s: policy %s is %s", n.Name, n.Requested, n.State)
	if !n.Since.IsZero() {
		text += " since " + sinceOf(n.Since)
	}
	if n.Job != "" {
		text += ", Job " + n.Job
	}
	if n.UnderWay() && n.Message != "" {
		text += ": " + oneLine(n.Message)
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func printAnswer(w io.Writer, a answer) {
	for _, text := range a.Warnings {
		fmt.Fprintf(w, "warning: %s\n", output.Printable(text))
	}
	for _, text := range a.Refused {
		fmt.Fprintf(w, "refused: %s\n", output.Printable(text))
	}
	about := output.Printable(fmt.Sprintf("node %s: policy %s", a.Node, a.Policy))
	switch {
	case len(a.Refused) > 0:
		fmt.Fprintf(w, "%s is refused; nothing was written\n", about)
	case a.DryRun:
		fmt.Fprintf(w, "%s would be requested; nothing was written\n", about)
	case a.State == nodestatus.Complete:
		fmt.Fprintf(w, "%s is in force\n", about)
	default:
		fmt.Fprintf(w, "%s is %s\n", about, a.State)
	}
	for _, line := range policyclient.Lines(a.Message) {
		fmt.Fprintln(w, output.Printable(line))
	}
}

// mostMessage is how much of a message a table shows, in characters, unless it is wide.
const mostMessage = 60

func printPolicies(out io.Writer, nodes []policyclient.Node, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header := []any{"NODE", "POLICY", "STATUS", "REQUESTED", "SINCE", "MESSAGE"}
	if wide {
		header = slices.Insert(header, 5, any("OPERATION"), any("JOB"), any("GROUP"), any("CLAIM"))
	}
	output.Row(w, header...)
	for _, n := range nodes {
		message := []rune(oneLine(strings.Join(append(slices.Clone(n.Unreadable), n.Message), " ")))
		if len(message) > mostMessage && !wide {
			message = append(message[:mostMessage-3], []rune("...")...)
		}
		row := []any{n.Name, cmp.Or(n.Policy, "unknown"), cmp.Or(n.State, "-"), cmp.Or(n.Requested, "-"), sinceOf(n.Since), cmp.Or(string(message), "-")}
		if wide {
			claim := ""
			if n.Claim != nil {
				claim = n.Claim.Owner + "/" + n.Claim.Operation
			}
			row = slices.Insert(row, 5, any(cmp.Or(n.Operation, "-")), any(cmp.Or(n.Job, "-")), any(cmp.Or(n.Group, "-")), any(cmp.Or(claim, "-")))
		}
		output.Row(w, row...)
	}
	return w.Flush()
}

func sinceOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func printPolicy(w io.Writer, n policyclient.Node) {
	line := func(heading, format string, args ...any) {
		fmt.Fprintf(w, "  %-11s%s\n", heading+":", output.Printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(w, "Node %s\n", output.Printable(n.Name))
	if n.Policy == "" {
		line("In force", "unknown: not observed since the node booted")
	} else {
		line("In force", "%s, as observed %s", n.Policy, sinceOf(n.ObservedAt))
	}
	if n.State != "" {
		since := ""
		if !n.Since.IsZero() {
			since = ", since " + sinceOf(n.Since)
		}
		line("Status", "%s, for the policy %s%s", n.State, n.Requested, since)
	}
	for _, text := range policyclient.Lines(n.Message) {
		line("Message", "%s", text)
	}
	if n.Overdue {
		line("Overdue", nodestatus.StaysClaimed)
	}
	for _, each := range []struct{ heading, text string }{{"Operation", n.Operation}, {"Job", n.Job}, {"Group", n.Group}} {
		if each.text != "" {
			line(each.heading, "%s", each.text)
		}
	}
	if n.Claim != nil {
		line("Claim", "%s, for its operation %s, since %s", n.Claim.Owner, n.Claim.Operation, sinceOf(n.Claim.Since))
	}
	for _, text := range n.Unreadable {
		line("Unreadable", "%s", text)
	}
}

// force has the options of commands that take something away from a node.
type force struct {
	arguments
	*companion
	yes bool
}

// flags adds those of the companion, and --yes.
func (f *force) flags(command *cobra.Command) {
	command.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	f.companion.flags(command)
}

// unlockOptions are about the node that loses the lock.
type unlockOptions struct{ force }

func newUnlock(streams genericiooptions.IOStreams) *cobra.Command {
	c := &unlockOptions{force{companion: newCompanion(streams)}}
	command := &cobra.Command{
		Use:   "unlock NODE",
		Short: "Take the lock of the control plane away from a node, by force",
		Long: `Take the lock of the control plane away from a node. Only one node of the control plane is
switched at a time: it holds the lock, a Lease, until its operation has ended. The lock does
not expire.

Use this for a lock whose holder will not return it. The command shows the holder, and asks you
first. If the operation still runs, another node of the control plane may be switched meanwhile.

You need the rights to get and patch the Lease, and to get the node.

Exit codes: 0, or 2 if nothing was changed.`,
		Example: `  kubectl partition cpu-policy unlock cp-1`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: steps(c),
	}
	c.flags(command)
	return command
}

func (c *unlockOptions) Run(ctx context.Context) error {
	node := c.args[0]
	client, err := c.connect()
	if err != nil {
		return err
	}
	lock, err := client.Lock(ctx)
	if err != nil {
		return err
	}
	lease := nodegroup.ControlPlaneLock.String()
	if len(lock.Holders) == 0 {
		return fmt.Errorf("node %s does not hold the lock of the control plane, Lease %s: it is free", node, lease)
	}
	fmt.Fprintf(c.streams.Out, "The lock of the control plane, Lease %s, is held by:\n", output.Printable(lease))
	w := tabwriter.NewWriter(c.streams.Out, 0, 0, 2, ' ', 0)
	output.Row(w, "NODE", "OWNER", "OPERATION", "SINCE")
	for _, h := range lock.Holders {
		output.Row(w, h.Node, cmp.Or(h.Owner, "-"), h.Operation, sinceOf(h.Since))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(lock.Of(node)) == 0 {
		return fmt.Errorf("node %s does not hold the lock of the control plane", node)
	}
	if object, err := client.Node(ctx, node); err != nil {
		fmt.Fprintln(c.streams.Out, output.Printable(err.Error()))
	} else {
		printPolicy(c.streams.Out, policyclient.NodeOf(object))
	}
	if !c.yes {
		if err := c.confirm(ctx, fmt.Sprintf("If its operation still runs, another node of the control plane may be switched meanwhile. Unlock %s?", output.Printable(node))); err != nil {
			return err
		}
	}
	if err := client.Unlock(ctx, lock, node); err != nil {
		return err
	}
	fmt.Fprintf(c.streams.Out, "node %s: unlocked\n", output.Printable(node))
	return nil
}
