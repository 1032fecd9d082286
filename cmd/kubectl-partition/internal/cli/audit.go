// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/audit"
)

type auditOptions struct {
	streams                genericiooptions.IOStreams
	options                audit.Options
	format                 output.Format
	node, record, serve    string
	from                   string
	tlsCertificate, tlsKey string
	watch, notes           bool
	interval, duration     time.Duration
	config                 *genericclioptions.ConfigFlags
}

func newAudit(streams genericiooptions.IOStreams) *cobra.Command {
	f := &auditOptions{streams: streams, config: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "audit",
		Short: "Prove on a node that containers stay on their CPUs",
		Long: `Prove or disprove on a node, as root, that workload partitioning holds there.

It reads cgroups, procfs and the runtime's socket, and changes nothing. It looks twice at
what seems wrong, so that a container that starts or ends is not a finding.

Findings are what is wrong: a container, process, sandbox or pod off its pool, or on another's;
a pod whose namespace does not allow its type,
if a kubeconfig names the cluster to ask; a weight or quota other than the pod asked for; a kubelet,
CPU manager or CRI-O that disagrees with the pinning file. Notes name what else may run on CPUs
outside the pools.

Exit codes:
  0  the node is clean; it may have notes
  1  there are findings, or --watch counted leaks
  2  the node could not be audited`,
		Example: `  # Audit this node
  sudo kubectl-partition audit

  # Where each container may run, and has run
  sudo kubectl-partition audit -o wide

  # Count for ten minutes what is wrong, and what runs off its CPUs
  sudo kubectl-partition audit --watch --for 10m

  # Write what a bug report needs
  sudo kubectl-partition audit --record /tmp/audit.tar.gz

  # Audit a node that somebody else has recorded
  kubectl partition audit --from gathered/nodes/worker-1

  # Compare with the configuration of the running kubelet, not with its files
  sudo kubectl-partition audit --node worker-1 --kubeconfig /etc/kubernetes/admin.conf

  # Export metrics on this host
  sudo kubectl-partition audit --serve 127.0.0.1:9808`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(f),
	}
	flags := command.Flags()
	f.format.Flag(command)
	flags.StringVar(&f.options.Root, "root", "", "directory below which the host's /etc, /var, /run and /sys/fs/cgroup are, as in a pod")
	flags.StringVar(&f.options.RuntimeEndpoint, "runtime-endpoint", "", "socket of the runtime; the kubelet's by default")
	flags.StringVar(&f.options.KubeletConfig, "kubelet-config", "", "the kubelet's configuration file; by default the one that its command line names")
	flags.StringVar(&f.options.KubeletConfigDir, "kubelet-config-dir", "", "directory of the kubelet's drop-ins; by default the one that its command line names")
	flags.StringVar(&f.options.KubeletRoot, "kubelet-root", "", "the kubelet's root directory; by default the one that its command line names")
	flags.StringVar(&f.node, "node", "", "name of this node: ask its kubelet, through kube-apiserver, for the configuration with which it runs")
	flags.DurationVar(&f.options.Settle, "settle", time.Second, "time after which to look again at what seems wrong")
	flags.BoolVar(&f.notes, "notes", true, "also list what else runs on CPUs outside the pools: host processes, interrupts, kernel threads")
	flags.StringVar(&f.record, "record", "", "also write what a bug report needs to this file (.tar.gz) or new directory; with -, write nothing else, and that as text to standard output")
	flags.StringVar(&f.from, "from", "", "audit the node of a record in place of this one: a directory with its file node.txtar, or this file")
	flags.BoolVar(&f.watch, "watch", false, "keep looking, and count what is wrong and what runs off its CPUs")
	flags.DurationVar(&f.duration, "for", 0, "how long to watch; by default until interrupted")
	flags.DurationVar(&f.interval, "interval", 5*time.Second, "time between two looks, with --watch and --serve")
	flags.StringVar(&f.serve, "serve", "", "keep looking, and export metrics at this address")
	flags.StringVar(&f.tlsCertificate, "tls-cert-file", "", "certificate for --serve; a self-signed one by default")
	flags.StringVar(&f.tlsKey, "tls-private-key-file", "", "key of the certificate for --serve")
	f.config.Namespace = nil // pods of all namespaces are on the node
	f.config.AddFlags(flags)
	command.MarkFlagsMutuallyExclusive("watch", "serve", "record", "from")
	command.MarkFlagsMutuallyExclusive("root", "from")
	command.MarkFlagsMutuallyExclusive("node", "from")
	command.MarkFlagsMutuallyExclusive("watch", "notes")
	command.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	for _, name := range []string{"root", "kubelet-config-dir", "kubelet-root"} {
		utilruntime.Must(command.MarkFlagDirname(name))
	}
	return command
}

func (f *auditOptions) Complete(*cobra.Command, []string) error {
	if f.from != "" {
		return nil // the cluster at hand is another
	}
	if f.node != "" {
		config, err := f.config.ToRESTConfig()
		if err != nil {
			return err
		}
		f.options.Configz = configz(config, f.node)
	}
	return f.useCluster()
}

func (f *auditOptions) Validate() error {
	switch {
	case f.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval is %s, and must be at least 100ms", f.interval)
	case f.duration != 0 && !f.watch:
		return errors.New("--for needs --watch")
	}
	return needsNode("audit")
}

func (f *auditOptions) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	switch {
	case f.serve != "":
		return f.runServe(ctx)
	case f.watch:
		return f.runWatch(ctx)
	}
	if f.record == "-" {
		return audit.RecordText(ctx, f.options, f.streams.Out)
	}
	var result *audit.Result
	var err error
	if f.from != "" {
		dir, err := os.MkdirTemp("", "kubectl-partition-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if f.options, err = audit.Recorded(f.from, dir); err != nil {
			return err
		}
	}
	if f.record != "" {
		var contents []string
		if result, contents, err = audit.Record(ctx, f.options, f.record); err == nil {
			fmt.Fprintf(f.streams.ErrOut, "%s has:\n  %s\n", f.record, strings.Join(contents, "\n  "))
		}
	} else {
		result, err = audit.Audit(ctx, f.options)
	}
	if err != nil {
		return err
	}
	if !f.notes {
		result.Notes = []audit.Finding{}
	}
	return verdict(!result.Clean(), f.format, f.streams.Out, result, func(w io.Writer, wide bool) error { return printAudit(w, result, wide) })
}

// useCluster lets the audit ask what namespaces allow, if there is a cluster to ask: a kubeconfig that
// names one, or the ServiceAccount of a pod.
func (f *auditOptions) useCluster() error {
	raw, err := f.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return err
	}
	_, notInPod := rest.InClusterConfig()
	if len(raw.Clusters) == 0 && notInPod != nil && (f.config.APIServer == nil || *f.config.APIServer == "") {
		return nil
	}
	config, err := f.config.ToRESTConfig()
	if err != nil {
		return err
	}
	config.Timeout = askTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	f.options.Allowed = allowed(client.CoreV1().Namespaces(), time.Now)
	return nil
}

// askTimeout is how long a request about a namespace may take, and answerAge how long its answer counts:
// --serve looks every few seconds.
const (
	askTimeout = 5 * time.Second
	answerAge  = time.Minute
)

// allowed asks for the annotations of namespaces, each at most once in a while.
func allowed(namespaces corev1client.NamespaceInterface, now func() time.Time) func(context.Context, string) (map[string]string, error) {
	type answer struct {
		at          time.Time
		annotations map[string]string
	}
	answers := map[string]answer{}
	return func(ctx context.Context, name string) (map[string]string, error) {
		maps.DeleteFunc(answers, func(_ string, a answer) bool { return now().Sub(a.at) > answerAge })
		if a, known := answers[name]; known {
			return a.annotations, nil
		}
		namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		a := answer{at: now()}
		if err == nil {
			a.annotations = map[string]string{}
			maps.Copy(a.annotations, namespace.Annotations)
		}
		answers[name] = a
		return a.annotations, nil
	}
}

// configz asks a node's kubelet for its configuration, through kube-apiserver.
func configz(config *rest.Config, node string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		config := rest.CopyConfig(config)
		config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &coreV1, codecs
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, err
		}
		data, err := client.Get().Resource("nodes").Name(node).SubResource("proxy", "configz").Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("configuration of the running kubelet of node %s: %w; without --node its files are read", node, err)
		}
		return data, nil
	}
}

func (f *auditOptions) runWatch(ctx context.Context) error {
	if f.duration != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	result, err := audit.Watch(ctx, f.options, f.interval)
	if err != nil {
		return err
	}
	return verdict(!result.Clean(), f.format, f.streams.Out, result, func(w io.Writer, wide bool) error { return printWatch(w, result, wide) })
}

func printAudit(w io.Writer, r *audit.Result, wide bool) error {
	fmt.Fprintf(w, "CPUs %s, cgroup v%d (%s), runtime %s, CPU manager policy %s\n", r.CPUs, r.CgroupVersion, output.Printable(r.CgroupDriver), output.Printable(r.Runtime), cmp.Or(output.Printable(r.CPUManagerPolicy), "-"))
	for _, pool := range r.Pools {
		fmt.Fprintf(w, "  pool %-12s %s\n", pool.Type, cmp.Or(pool.CPUs, "-"))
	}
	if len(r.Pools) == 0 {
		fmt.Fprintln(w, "  no pools: this node is not partitioned")
	}
	if r.HostCPUs != "" {
		fmt.Fprintf(w, "  %-17s %s\n", "host alone", r.HostCPUs)
	}
	fmt.Fprintln(w)
	if wide {
		if err := printContainers(w, r.Containers); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, f := range r.Findings {
		printFinding(w, f, "")
	}
	for _, f := range r.Notes {
		fmt.Fprintf(w, "NOTE %s: %s: %s\n", f.Code, output.Printable(f.Object), output.Printable(f.Message))
		if wide {
			fmt.Fprintf(w, "  -> %s\n", f.Remedy)
		}
	}
	containers := 0
	for _, c := range r.Containers {
		if c.Kind == "container" {
			containers++
		}
	}
	verdict := "Clean"
	if !r.Clean() {
		verdict = "Not clean"
	}
	_, err := fmt.Fprintf(w, "%s. Containers: %d. Findings: %d. Notes: %d.\n", verdict, containers, len(r.Findings), len(r.Notes))
	return err
}

func printContainers(w io.Writer, containers []audit.Container) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tCONTAINER\tTYPE\tMAY USE\tHAS USED\tWEIGHT\tQUOTA")
	for _, c := range containers {
		name := c.Name
		if c.Kind != "container" {
			name = map[string]string{"pod": "(whole pod)", "sandbox": "(sandbox)", "other": "(other)"}[c.Kind]
		}
		quota := "-"
		if c.Quota > 0 {
			quota = fmt.Sprintf("%gm", c.Quota)
		}
		may := "CPU " + c.CPUs
		if c.GivenByDRA != "" {
			may += ", by DRA " + c.GivenByDRA
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", output.Printable(c.Namespace), output.Printable(c.Pod), output.Printable(name), output.Printable(c.Type), may, used(c.Used), c.Weight, quota)
	}
	return table.Flush()
}

// used prints the time that was spent on each CPU.
func used(perCPU []time.Duration) string {
	if len(perCPU) == 1 {
		return perCPU[0].Round(time.Millisecond).String()
	}
	var parts []string
	for cpu, duration := range perCPU {
		if duration > 0 {
			parts = append(parts, fmt.Sprintf("CPU %d: %s", cpu, max(duration, time.Millisecond).Round(time.Millisecond)))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// printFinding prints a finding. when ends its sentence.
func printFinding(w io.Writer, f audit.Finding, when string) {
	fmt.Fprintf(w, "FINDING %s: %s: %s%s\n  -> %s\n", f.Code, output.Printable(f.Object), output.Printable(f.Message), when, f.Remedy)
}

func printWatch(w io.Writer, r *audit.WatchResult, wide bool) error {
	fmt.Fprintf(w, "Method: %s.\nResolution: %s.\nWatched for %s, with %d looks.\n\n", r.Method, r.Resolution, r.Duration.Round(time.Millisecond), r.Looks)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tCONTAINER\tTYPE\tMUST USE\tOFF ITS CPUS\tLOOKS OFF\tCHANGES")
	for _, c := range r.Containers {
		if !wide && c.OffSet == 0 && c.LooksOff == 0 && len(c.Changes) == 0 {
			continue
		}
		off := "-"
		if r.CgroupVersion == 1 {
			off = c.OffSet.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\tCPU %s\t%s\t%d\t%d\n", output.Printable(c.Namespace), output.Printable(c.Pod), output.Printable(c.Name), output.Printable(c.Type), c.Expected, off, c.LooksOff, len(c.Changes))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, f := range r.Findings {
		printFinding(w, f.Finding, fmt.Sprintf(" (at %d of %d looks)", f.Looks, r.Looks))
	}
	_, err := fmt.Fprintf(w, "Containers and sandboxes: %d. Leaked: %d. Findings: %d.\n", len(r.Containers), r.Leaks(), len(r.Findings))
	return err
}
