// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/lint"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// The formats that only lint has.
const (
	sarifFormat  output.Format = "sarif"
	githubFormat output.Format = "github"
)

type lintOptions struct {
	args        []string
	streams     genericiooptions.IOStreams
	config      *genericclioptions.ConfigFlags
	format      output.Format
	options     lint.Options
	selector    string
	active      []string
	pools       string
	ignoreFile  string
	live        bool
	allowFix    bool
	listOfRules bool
	fromNode    fromNode
}

func newLint(streams genericiooptions.IOStreams) *cobra.Command {
	l := &lintOptions{streams: streams, config: genericclioptions.NewConfigFlags(true), fromNode: fromNode{sysfs: topology.Sysfs}}
	return l.command()
}

func (l *lintOptions) command() *cobra.Command {
	command := &cobra.Command{
		Use:   "lint (PATH... | - | --live)",
		Short: "Find manifests whose pods will not be partitioned, or that do not work with partitioned pods",
		Long: `Find manifests whose pods will not be partitioned, and what does not work with partitioned pods.

PATH is a file, or a directory in which all .yaml, .yml, .json, .bu, .ign and pinning files are
read; - is standard input. Namespaces, LimitRanges and ResourceQuotas in the same input decide about its pods.
A namespace that is not there counts as allowing every type. With --live a cluster is read.

Kinds with pods are Pod, Deployment, DaemonSet, StatefulSet, ReplicaSet, Job, CronJob,
ReplicationController and PodTemplate. HorizontalPodAutoscalers, VerticalPodAutoscalers and
KEDA's ScaledObjects of these are checked. What configures hosts is checked against --pools and
--from-node: kernel arguments, pinning files, PerformanceProfiles, and configurations of the
kubelet. All else passes. A template of Helm is not read: lint what it renders.

Exit codes:
  0  nothing was found, but for notes
  1  something was found
  2  something could not be read; the rest was linted`,
		Example: `  # Lint the manifests below a directory
  kubectl partition lint manifests/

  # Lint what kustomize makes, as it would be applied to a namespace
  kubectl kustomize overlays/edge | kubectl partition lint - -n my-operator

  # Require that all workloads ask for the type management, in namespaces of the platform
  kubectl partition lint manifests/ --require management --namespace-selector platform=true

  # Write what is missing into the files
  kubectl partition lint manifests/ --require management --fix

  # Lint what a chart renders
  helm template my-chart | kubectl partition lint -

  # Lint what was rendered for nodes like this one
  kubectl partition lint out --from-node

  # Lint a cluster
  kubectl partition lint --live

  # Annotate a pull request in a GitHub workflow
  kubectl partition lint manifests/ -o github`,
		RunE: steps(l),
	}
	flags := command.Flags()
	l.format.Flag(command, sarifFormat, githubFormat)
	flags.StringVar(&l.options.Require, "require", "", "the workload `type` that all workloads must ask for")
	flags.StringVar(&l.selector, "namespace-selector", "", "require it only in namespaces whose labels match this `selector`; the label kubernetes.io/metadata.name is always there")
	flags.StringSliceVar(&l.active, "active-types", nil, "the workload `types` that are active in the cluster; without this flag all are, and --live asks the cluster")
	flags.StringVar(&l.ignoreFile, "ignore-file", "", "a `file` with findings that are accepted, each with a reason")
	flags.StringToIntVar(&l.options.PoolCPUs, "pool-cpus", nil, "how many CPUs the smallest pool of a `type` has, as in management=4: pods that request more are found")
	flags.StringVar(&l.pools, "pools", "", "the `CPUs` of all pools, as in 0-3: the DRA driver for CPUs must reserve these, and isolcpus must not have them")
	flags.BoolVar(&l.fromNode.given, "from-node", false, "the nodes are like this host: judge their pools by its physical cores, sockets and isolated CPUs")
	flags.BoolVar(&l.options.StaticPods, "static-pods", false, "pods are static pods, as all below etc/kubernetes/manifests are")
	flags.BoolVar(&l.live, "live", false, "lint a cluster instead of files")
	flags.BoolVar(&l.allowFix, "fix", false, "write missing and stale annotations into the files")
	flags.BoolVar(&l.listOfRules, "list-rules", false, "print all rules")
	l.config.AddFlags(flags)
	return command
}

func (l *lintOptions) Validate() error {
	switch {
	case l.listOfRules:
	case l.live && len(l.args) > 0:
		return fmt.Errorf("--live reads a cluster, and %q is a file; give one of them", l.args[0])
	case !l.live && len(l.args) == 0:
		return fmt.Errorf("give files, directories, - for standard input, or --live")
	case l.live && l.fromNode.given:
		return errors.New("--live reads a cluster, and --from-node is about files for this host; give one of them")
	case l.live && l.allowFix:
		return fmt.Errorf("--fix writes files, and --live reads a cluster; give one of them")
	case l.allowFix && slices.Contains(l.args, lint.Stdin):
		return fmt.Errorf("--fix writes files, and cannot write standard input")
	}
	return l.fromNode.validate("lint")
}

func (l *lintOptions) Run(ctx context.Context) error {
	if l.listOfRules {
		return l.printRules()
	}
	var sources []lint.Source
	var problems []lint.Problem
	var err error
	if l.options.Host, err = l.fromNode.read(); err != nil {
		return err
	}
	if l.live {
		sources, problems, err = l.readCluster(ctx)
	} else {
		sources, err = lint.Read(l.args, l.streams.In)
	}
	if err != nil {
		return err
	}
	report := lint.Lint(sources, l.options)
	if l.allowFix {
		fixed, unfixed := report.Fix()
		if sources, err = l.write(sources, fixed); err != nil {
			return err
		}
		report = lint.Lint(sources, l.options)
		problems = append(problems, unfixed...)
	}
	report.Problems = append(report.Problems, problems...)
	if err := l.print(report); err != nil {
		return err
	}
	switch {
	case len(report.Problems) > 0:
		return fmt.Errorf("not everything was linted; could not be read or written: %d", len(report.Problems))
	case !report.Clean():
		return errFound
	}
	return nil
}

func (l *lintOptions) Complete(_ *cobra.Command, args []string) error {
	l.args = args
	var err error
	if l.options.Pools, err = partition.ParseCPUs(l.pools); err != nil {
		return fmt.Errorf("--pools %q: %w", l.pools, err)
	}
	named := append(slices.Clone(l.active), l.options.Require)
	for _, workloadType := range slices.Sorted(maps.Keys(l.options.PoolCPUs)) {
		if cpus := l.options.PoolCPUs[workloadType]; cpus < 1 {
			return fmt.Errorf("--pool-cpus %s=%d: a pool has at least one CPU", workloadType, cpus)
		}
		named = append(named, workloadType)
	}
	for _, workloadType := range named {
		if workloadType == "" {
			continue
		}
		if err := partition.ValidateType(workloadType); err != nil {
			return err
		}
	}
	if l.active != nil {
		l.options.Types = simulate.Active(l.active...)
	}
	if l.config.Namespace != nil {
		l.options.Namespace = *l.config.Namespace
	}
	if l.selector != "" {
		var err error
		if l.options.Selector, err = labels.Parse(l.selector); err != nil {
			return fmt.Errorf("--namespace-selector %q: %w", l.selector, err)
		}
		if l.options.Require == "" {
			return fmt.Errorf("--namespace-selector %q says where --require holds; give both", l.selector)
		}
	}
	if l.ignoreFile != "" {
		data, err := os.ReadFile(l.ignoreFile)
		if err != nil {
			return err
		}
		if l.options.Ignore, err = lint.ParseIgnore(l.ignoreFile, data); err != nil {
			return err
		}
	}
	return nil
}

// write writes what is fixed, and returns all sources as they are now.
func (l *lintOptions) write(sources []lint.Source, fixed []lint.Fixed) ([]lint.Source, error) {
	sources = slices.Clone(sources)
	for _, f := range fixed {
		// A link stays one.
		name, err := filepath.EvalSymlinks(f.Source.Name)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		err = replaceFile(name, f.Source.Data, info.Mode().Perm(), info)
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
			// The file is a mount, perhaps in a read-only image, or its directory is not to be written.
			err = os.WriteFile(name, f.Source.Data, info.Mode().Perm())
		}
		if err != nil {
			return nil, err
		}
		for i := range sources {
			if sources[i].Name == f.Source.Name {
				sources[i] = f.Source
			}
		}
		for _, finding := range f.Findings {
			fmt.Fprintf(l.streams.ErrOut, "fixed %s:%d: %s (%s)\n", output.Printable(finding.File), finding.Line, output.Printable(finding.Object.String()), finding.Rule)
		}
	}
	return sources, nil
}

func (l *lintOptions) print(report *lint.Report) error {
	switch l.format {
	case sarifFormat:
		return report.SARIF().PrettyWrite(l.streams.Out)
	case githubFormat:
		return printGitHub(l.streams.Out, report)
	}
	return l.format.Print(l.streams.Out, report, func(w io.Writer, wide bool) error { return printFindings(w, report, wide) })
}

// printFindings prints a finding a line, as compilers do. Notes are counted, and only printed if wide.
func printFindings(w io.Writer, report *lint.Report, wide bool) error {
	remedies := map[string]string{}
	for _, rule := range lint.Rules() {
		remedies[rule.ID] = rule.Remedy
	}
	for _, p := range report.Problems {
		fmt.Fprintf(w, "%serror: %s\n", place(p.File, p.Line), output.Printable(p.Message))
	}
	for _, f := range report.Findings {
		if f.Level == lint.Note && !wide {
			continue // most repositories have one for each namespace
		}
		fmt.Fprintf(w, "%s%s: %s: %s (%s)\n", place(f.File, f.Line), f.Level, output.Printable(f.Object.String()), output.Printable(f.Message), f.Rule)
		if remedy := remedies[f.Rule]; wide && remedy != "" {
			fmt.Fprintf(w, "\t%s\n", remedy)
		}
	}
	if len(report.UnknownNamespaces) > 0 && wide {
		fmt.Fprintf(w, "The input does not have these namespaces, which must allow what their pods ask for: %s\n", output.Printable(strings.Join(report.UnknownNamespaces, ", ")))
	}
	_, err := fmt.Fprintln(w, summary(report))
	return err
}

// summary returns what was counted, in one line.
func summary(report *lint.Report) string {
	text := fmt.Sprintf("findings: %d, workloads: %d, of which ask for a type: %d", len(report.Findings)-report.Notes(), report.Workloads, report.Asking)
	for _, more := range []struct {
		what string
		n    int
	}{{"notes (-o wide)", report.Notes()}, {"accepted by the ignore file", report.Ignored}, {"namespaces that are not in the input", len(report.UnknownNamespaces)}, {"could not be read", len(report.Problems)}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %s: %d", more.what, more.n)
		}
	}
	return text
}

// printGitHub prints workflow commands, which GitHub shows next to the lines of a pull request.
func printGitHub(w io.Writer, report *lint.Report) error {
	annotate := func(level, file string, line int, title, message string) {
		property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
		at := "title=" + property.Replace(output.Printable(title))
		if file != "" {
			at = fmt.Sprintf("file=%s,line=%d,%s", property.Replace(output.Printable(file)), line, at)
		}
		data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
		fmt.Fprintf(w, "::%s %s::%s\n", level, at, data.Replace(output.Printable(message)))
	}
	for _, p := range report.Problems {
		annotate(string(lint.Error), p.File, p.Line, "unreadable", p.Message)
	}
	for _, f := range report.Findings {
		level := string(f.Level)
		if f.Level == lint.Note {
			level = "notice"
		}
		annotate(level, f.File, f.Line, f.Rule, f.Object.String()+": "+f.Message)
	}
	_, err := fmt.Fprintln(w, summary(report))
	return err
}

// ruleList is the result of --list-rules.
type ruleList struct {
	metav1.TypeMeta `json:",inline"`
	Rules           []lint.Rule `json:"rules"`
}

func (l *lintOptions) printRules() error {
	rules := lint.Rules()
	return l.format.Print(l.streams.Out, ruleList{output.TypeMeta("LintRules"), rules}, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		fmt.Fprintln(table, "RULE\tFIXABLE\tCONDITION")
		for _, rule := range rules {
			fmt.Fprintf(table, "%s\t%t\t%s\n", rule.ID, rule.Fixable, rule.Condition)
		}
		return table.Flush()
	})
}

func place(file string, line int) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", output.Printable(file), line)
}
