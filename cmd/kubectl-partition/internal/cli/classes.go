// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/inspect"
)

// classesOptions are those of the commands of the companion workloadclasses.
type classesOptions struct {
	flagsAlone
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	// kube is made by connect, or by a test.
	kube   kubernetes.Interface
	format output.Format
	rules  string
}

func newClasses(streams genericiooptions.IOStreams) *cobra.Command {
	c := &classesOptions{streams: streams}
	command := &cobra.Command{
		Use:   "classes",
		Short: "Show workload classes and their nodes, and test or verify their rules",
		Long: `Show the workload classes of the cluster, their nodes by how new pods avoid them, and why each
node was not removed yet. You need the rights to list nodes and pods, and to get the ConfigMap rules.

Exit codes: 0, or 2 if the cluster cannot be asked.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(c),
	}
	c.flags(command)
	command.Flags().StringVarP(&c.rules, "filename", "f", "", "rules file; by default the companion's ConfigMap")
	command.AddCommand(newClassesTest(streams), newClassesVerify(streams))
	return command
}

// flags adds the flags of the cluster. The namespace is the companion's, whatever the kubeconfig has.
func (c *classesOptions) flags(command *cobra.Command) {
	c.config = genericclioptions.NewConfigFlags(true)
	*c.config.Namespace = inspect.Namespace
	c.config.AddFlags(command.Flags())
	command.Flags().Lookup("namespace").Usage = "the namespace of the companion workloadclasses"
	c.format.Flag(command)
}

func (c *classesOptions) connect() (inspect.Client, error) {
	if c.kube == nil {
		config, err := c.config.ToRESTConfig()
		if err != nil {
			return inspect.Client{}, err
		}
		if c.kube, err = kubernetes.NewForConfig(config); err != nil {
			return inspect.Client{}, err
		}
	}
	return inspect.Client{Kube: c.kube, Namespace: *c.config.Namespace}, nil
}

func (c *classesOptions) Run(ctx context.Context) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	var config *workloadclasses.Config
	if c.rules != "" {
		config, err = readRules(c.rules)
	} else {
		config, err = client.Rules(ctx)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	all, err := client.Classes(ctx, config, now)
	if err != nil {
		return err
	}
	return c.format.Print(c.streams.Out, list[inspect.Class]{output.TypeMeta("WorkloadClassList"), all}, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		output.Row(table, "CLASS", "NODES", "NONE", "PREFERNOSCHEDULE", "NOSCHEDULE", "LEAVING", "WAITING", "MISSED")
		for i := range all {
			class := &all[i]
			output.Row(table, class.Name, len(class.Nodes), class.Count("None"), class.Count("PreferNoSchedule"), class.Count("NoSchedule"), class.Count(inspect.Leaving), class.Waiting, class.Missed)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
		output.Row(table, "NODE", "CLASS", "STATE", "SINCE", "PODS", "HELD SINCE", "WHY NOT REMOVED")
		for _, class := range all {
			for _, node := range class.Nodes {
				state := node.State
				if node.Precluded {
					state += " (precluded)"
				}
				output.Row(table, node.Name, class.Name, state, agoOf(node.Since, now), node.Pods, agoOf(node.HeldSince, now), node.Why)
			}
		}
		return table.Flush()
	})
}

// agoOf returns how long ago a time was, and a hyphen for the zero one.
func agoOf(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return now.Sub(t).Round(time.Second).String()
}

func readRules(name string) (*workloadclasses.Config, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	config, err := workloadclasses.ReadConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return config, nil
}

type classesTestOptions struct {
	arguments
	streams                     genericiooptions.IOStreams
	format                      output.Format
	rules, namespace, precluded string
}

func newClassesTest(streams genericiooptions.IOStreams) *cobra.Command {
	o := &classesTestOptions{streams: streams}
	command := &cobra.Command{
		Use:   "test -f RULES POD...",
		Short: "Say which rule matches pods, and what the webhook would write into them",
		Long: `Say which rule of a rules file matches pods, and what the webhook would write into them, as a
JSON patch. It asks no cluster, and assumes that each RuntimeClass in the rules exists.

Exit codes:
  0  all pods get a class
  1  at least one pod gets none
  2  a file cannot be read`,
		Example: `  kubectl partition classes test -f rules.yaml pod.yaml
  kubectl create job a --image=b --dry-run=client -o yaml | yq .spec.template | kubectl partition classes test -f rules.yaml -n ci-op-x -`,
		Args: cobra.MinimumNArgs(1),
		RunE: steps(o),
	}
	o.format.Flag(command)
	command.Flags().StringVarP(&o.rules, "filename", "f", "", "rules file")
	command.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace of pods that name none; by default the namespace default")
	command.Flags().StringVar(&o.precluded, "preclude", "", "node that is currently precluded for the class")
	utilruntime.Must(command.MarkFlagRequired("filename"))
	return command
}

func (o *classesTestOptions) Run(context.Context) error {
	config, err := readRules(o.rules)
	if err != nil {
		return err
	}
	var tested []testedPod
	for _, name := range o.args {
		pods, err := readPods(name, o.streams.In)
		if err != nil {
			return err
		}
		for i := range pods {
			one, err := testPod(config, &pods[i], o.namespace, o.precluded)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			tested = append(tested, one)
		}
	}
	found := slices.ContainsFunc(tested, func(one testedPod) bool { return one.Class == "" })
	return verdict(found, o.format, o.streams.Out, list[testedPod]{output.TypeMeta("ClassifiedPodList"), tested}, func(w io.Writer, _ bool) error { return printTested(w, tested) })
}

// testedPod is what becomes of a pod.
type testedPod struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Rule      string                 `json:"rule,omitempty"`
	Class     string                 `json:"class,omitempty"`
	Reason    workloadclasses.Reason `json:"reason,omitempty"`
	Warnings  []string               `json:"warnings,omitempty"`
	Patch     []any                  `json:"patch,omitempty"`
}

// maxManifest is how much of a file of pods is read, in bytes.
const maxManifest = 16 << 20

// readPods reads the pods of a file; "-" is the standard input.
func readPods(name string, in io.Reader) (pods []corev1.Pod, err error) {
	file, err := openFile(name, in)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(io.LimitReader(file, maxManifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			if len(pods) == 0 {
				return nil, fmt.Errorf("%s: no pod found", name)
			}
			return pods, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		var pod corev1.Pod
		text, err := yaml.YAMLToJSONStrict(document)
		if err == nil {
			var strict []error
			strict, err = kjson.UnmarshalStrict(text, &pod)
			err = errors.Join(append(strict, err)...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(err.Error()), " "))
		}
		// A template of pods has no kind.
		if pod.Kind != "" && pod.Kind != "Pod" {
			return nil, fmt.Errorf("%s: kind is %q, not Pod", name, pod.Kind)
		}
		pods = append(pods, pod)
	}
}

func testPod(config *workloadclasses.Config, pod *corev1.Pod, namespace, precluded string) (testedPod, error) {
	one := testedPod{Namespace: cmp.Or(pod.Namespace, namespace, metav1.NamespaceDefault), Name: cmp.Or(pod.Name, pod.GenerateName)}
	before := pod.DeepCopy()
	outcome := config.Mutate(pod, one.Namespace, workloadclasses.Cluster{Precluded: func(string) string { return precluded }})
	one.Rule, one.Reason, one.Warnings = outcome.Rule, outcome.Reason, outcome.Warnings
	if outcome.Class == nil {
		return one, nil
	}
	one.Class = outcome.Class.Name
	patch, err := workloadclasses.Patch(before, pod)
	for _, operation := range patch {
		one.Patch = append(one.Patch, operation)
	}
	return one, err
}

func printTested(w io.Writer, tested []testedPod) error {
	for i, one := range tested {
		if i > 0 {
			fmt.Fprintln(w)
		}
		pod := output.Printable(one.Namespace + "/" + one.Name)
		switch {
		case one.Class != "":
			fmt.Fprintf(w, "pod %s: rule %s, class %s\n", pod, one.Rule, one.Class)
		case one.Rule != "":
			fmt.Fprintf(w, "pod %s: rule %s, left as it is: %s\n", pod, one.Rule, one.Reason)
		default:
			fmt.Fprintf(w, "pod %s: left as it is: %s\n", pod, one.Reason)
		}
		for _, warning := range one.Warnings {
			fmt.Fprintln(w, "warning:", output.Printable(warning))
		}
		if len(one.Patch) > 0 {
			text, err := yaml.Marshal(one.Patch)
			if err != nil {
				return err
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
	}
	return nil
}

func newClassesVerify(streams genericiooptions.IOStreams) *cobra.Command {
	c := &classesVerifyOptions{classesOptions{streams: streams}}
	command := &cobra.Command{
		Use:   "verify",
		Short: "Check that the webhook can be installed",
		Long: `Check the preconditions of applying webhook.yaml: the Deployments are available, the webhook can
be called, the rules can be read, and each class has its RuntimeClass and a node.

Exit codes:
  0  all preconditions hold
  1  at least one does not
  2  the cluster cannot be asked`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(c),
	}
	c.flags(command)
	return command
}

// classesVerifyOptions are those of the command verify.
type classesVerifyOptions struct{ classesOptions }

func (c *classesVerifyOptions) Run(ctx context.Context) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	checks, err := client.Verify(ctx)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(checks, func(check inspect.Check) bool { return !check.OK })
	return verdict(found, c.format, c.streams.Out, list[inspect.Check]{output.TypeMeta("ClassesCheckList"), checks}, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		output.Row(table, "CHECK", "OBJECT", "OK", "DETAIL")
		for _, check := range checks {
			output.Row(table, check.Name, check.Object, check.OK, check.Detail)
		}
		return table.Flush()
	})
}
