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

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
)

// tuningCommand has the commands of the companion tuning. They ask a hosted cluster.
type tuningCommand struct {
	streams genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	// kube and objects are made by connect, or by a test.
	kube    kubernetes.Interface
	objects dynamic.Interface
	format  output.Format
}

func newTuning(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "tuning",
		Short: "Show how nodes of a hosted cluster are tuned, and what a change would do",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(newTuningStatus(streams), newTuningPlan(streams))
	return command
}

func (c *tuningCommand) flags(command *cobra.Command) {
	c.config = genericclioptions.NewConfigFlags(true)
	c.config.Namespace = nil // it is always the same
	c.config.AddFlags(command.Flags())
	c.format.Flag(command)
}

func (c *tuningCommand) connect() error {
	if c.kube != nil {
		return nil
	}
	config, err := c.config.ToRESTConfig()
	if err != nil {
		return err
	}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	c.kube, err = kubernetes.NewForConfig(config)
	return err
}

// tuningObjects lists the objects of a resource of the operand's namespace.
func tuningObjects[T any](ctx context.Context, c *tuningCommand, resource string) ([]T, error) {
	list, err := c.objects.Resource(tunedv1.GroupVersion.WithResource(resource)).Namespace(tunedv1.Namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("this cluster has no %s.%s: is it the hosted cluster, and is tuning installed there?", resource, tunedv1.GroupVersion.Group)
	}
	if err != nil {
		return nil, err
	}
	items := make([]T, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &items[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", resource, list.Items[i].GetName(), err)
		}
	}
	return items, nil
}

type tuningStatus struct {
	metav1.TypeMeta `json:",inline"`
	Nodes           []tunedNode  `json:"nodes"`
	Faults          []tunedFault `json:"faults,omitempty"`
}

// tunedNode is how a node is tuned.
type tunedNode struct {
	Node     string `json:"node"`
	NodePool string `json:"nodePool,omitempty"`
	Profile  string `json:"profile"`
	// Tuned has the recommendation, and ConfigMap is where the management cluster has that, in the control-plane namespace.
	Tuned     string `json:"tuned,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	Tie       string `json:"tie,omitempty"`
	// Applied and Degraded are True, False, or Unknown if the operand has not said anything about the present profile.
	Applied  metav1.ConditionStatus `json:"applied"`
	Degraded metav1.ConditionStatus `json:"degraded"`
	Message  string                 `json:"message,omitempty"`
}

// tunedFault is a Tuned that is not what is wanted now.
type tunedFault struct {
	Tuned   string `json:"tuned"`
	Message string `json:"message"`
}

// tuningStatusOptions are of the command status, and tuningPlanOptions of the command plan.
type (
	tuningStatusOptions struct {
		flagsAlone
		tuningCommand
	}
	tuningPlanOptions struct {
		flagsAlone
		tuningCommand
		file, pool string
	}
)

func newTuningStatus(streams genericiooptions.IOStreams) *cobra.Command {
	c := &tuningStatusOptions{tuningCommand: tuningCommand{streams: streams}}
	command := &cobra.Command{
		Use:   "status",
		Short: "Show for each node which profile it has, why, and what TuneD says",
		Long: `Show for each node of a hosted cluster which TuneD profile it has, from which Tuned and which ConfigMap of
the management cluster, and what TuneD says. You need the rights to list nodes, Profiles and Tuneds.

Exit codes:
  0  all profiles are applied without errors, and all Tuneds are valid
  1  one is not
  2  the cluster cannot be asked`,
		Args: cobra.NoArgs,
		RunE: steps(c),
	}
	c.flags(command)
	return command
}

// Run implements options.
func (c *tuningStatusOptions) Run(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	profiles, err := tuningObjects[tunedv1.Profile](ctx, &c.tuningCommand, "profiles")
	if err != nil {
		return err
	}
	tuneds, err := tuningObjects[tunedv1.Tuned](ctx, &c.tuningCommand, "tuneds")
	if err != nil {
		return err
	}
	status := statusOf(nodes.Items, profiles, tuneds)
	err = c.format.Print(c.streams.Out, status, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		output.Row(table, "NODE", "NODEPOOL", "PROFILE", "TUNED", "CONFIGMAP", "APPLIED", "DEGRADED")
		for _, node := range status.Nodes {
			output.Row(table, node.Node, cmp.Or(node.NodePool, "-"), cmp.Or(node.Profile, "-"), cmp.Or(node.Tuned, "-"), cmp.Or(node.ConfigMap, "-"), node.Applied, node.Degraded)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, node := range status.Nodes {
			if node.Message != "" {
				fmt.Fprintf(w, "\nnode %s: %s\n", output.Printable(node.Node), output.Printable(node.Message))
			}
			if node.Tie != "" {
				fmt.Fprintf(w, "\nnode %s: the profile %s has the same priority, and lost by its Tuned's name or its place\n", output.Printable(node.Node), output.Printable(node.Tie))
			}
		}
		for _, fault := range status.Faults {
			fmt.Fprintf(w, "\nTuned %s: %s\n", output.Printable(fault.Tuned), output.Printable(fault.Message))
		}
		return nil
	})
	if err != nil {
		return err
	}
	bad := func(node tunedNode) bool {
		return node.Applied != metav1.ConditionTrue || node.Degraded != metav1.ConditionFalse
	}
	if len(status.Faults) > 0 || slices.ContainsFunc(status.Nodes, bad) {
		return errFound
	}
	return nil
}

// statusOf says of each node how it is tuned.
func statusOf(nodes []corev1.Node, profiles []tunedv1.Profile, tuneds []tunedv1.Tuned) tuningStatus {
	status := tuningStatus{TypeMeta: output.TypeMeta("TuningStatus"), Nodes: []tunedNode{}}
	pools, byName := map[string]string{}, map[string]*tunedv1.Profile{}
	for _, tuned := range tuneds {
		pools[tuned.Name] = tuned.Labels[tunedv1.NodePoolNameLabel]
		for _, condition := range tuned.Status.Conditions {
			wrong := condition.Type == tunedv1.ConditionValid && condition.Status == metav1.ConditionFalse ||
				condition.Type == tunedv1.ConditionDegraded && condition.Status == metav1.ConditionTrue
			if wrong {
				status.Faults = append(status.Faults, tunedFault{tuned.Name, condition.Message})
			}
		}
	}
	for i := range profiles {
		byName[profiles[i].Name] = &profiles[i]
	}
	for i := range nodes {
		one := tunedNode{Node: nodes[i].Name, NodePool: nodes[i].Labels[tunedv1.NodePoolLabel], Applied: metav1.ConditionUnknown, Degraded: metav1.ConditionUnknown}
		profile, ok := byName[one.Node]
		if !ok {
			one.Message = "it has no Profile yet"
			status.Nodes = append(status.Nodes, one)
			continue
		}
		one.Profile = profile.Spec.Config.TunedProfile
		one.Tuned, one.Tie = profile.Annotations[tuning.TunedAnnotation], profile.Annotations[tuning.TieAnnotation]
		if pool := pools[one.Tuned]; pool != "" {
			one.ConfigMap = "tuned-" + pool
		}
		if profile.Status.ObservedGeneration == profile.Generation {
			if applied := meta.FindStatusCondition(profile.Status.Conditions, tunedv1.ConditionApplied); applied != nil {
				one.Applied = applied.Status
				if applied.Status != metav1.ConditionTrue {
					one.Message = applied.Message
				}
			}
			if degraded := meta.FindStatusCondition(profile.Status.Conditions, tunedv1.ConditionDegraded); degraded != nil {
				one.Degraded = degraded.Status
				if degraded.Status == metav1.ConditionTrue {
					one.Message = degraded.Message
				}
			}
		} else {
			one.Message = "TuneD has not said anything about this profile yet"
		}
		status.Nodes = append(status.Nodes, one)
	}
	return status
}

type tuningPlan struct {
	metav1.TypeMeta `json:",inline"`
	NodePool        string          `json:"nodePool"`
	Nodes           int             `json:"nodes"`
	Changes         []tuning.Change `json:"changes"`
	// Reboots is how many nodes would boot.
	Reboots int `json:"reboots"`
}

func newTuningPlan(streams genericiooptions.IOStreams) *cobra.Command {
	c := &tuningPlanOptions{tuningCommand: tuningCommand{streams: streams}}
	command := &cobra.Command{
		Use:   "plan -f FILE --nodepool POOL",
		Short: "Say what Tuneds would change on the nodes of a NodePool, and write nothing",
		Long: `Say what Tuneds would change on the nodes of a NodePool: profiles, sysctls from and to, kernel arguments and
reboots, node by node. It writes nothing. The file has all that spec.tuningConfig of the NodePool would name: Tuneds, or
ConfigMaps with the key tuning. You need the rights to list the hosted cluster's nodes and Profiles, and its pods if a
Tuned goes by those.

All nodes change within seconds of each other. Sysctls need no reboot. Kernel arguments are reported in the Profile's
status, and this version boots no node for them.

Exit codes:
  0  nothing would change
  1  something would
  2  a Tuned is not valid, or the cluster cannot be asked`,
		Example: `  kubectl partition tuning plan -f tuned.yaml --nodepool pool-a
  kubectl --kubeconfig=management get configmaps -n clusters sysctls -o yaml | kubectl partition tuning plan -f - --nodepool pool-a`,
		Args: cobra.NoArgs,
		RunE: steps(c),
	}
	c.flags(command)
	command.Flags().StringVarP(&c.file, "filename", "f", "", "file of Tuneds, or of ConfigMaps that have them; - is standard input")
	command.Flags().StringVar(&c.pool, "nodepool", "", "name of the NodePool")
	for _, name := range []string{"filename", "nodepool"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // the flag exists
		}
	}
	return command
}

// Run implements options.
func (c *tuningPlanOptions) Run(ctx context.Context) error {
	file, pool := c.file, c.pool
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(c.streams.In)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	tuneds, err := readTuneds(file, data)
	if err != nil {
		return err
	}
	for i := range tuneds {
		tuneds[i] = *tuning.Hosted(&tuneds[i], pool)
	}
	tuneds = append([]tunedv1.Tuned{*tuning.Default()}, tuneds...)
	if err := c.connect(); err != nil {
		return err
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{tunedv1.NodePoolLabel: pool}).String()})
	if err != nil {
		return err
	}
	profiles, err := tuningObjects[tunedv1.Profile](ctx, &c.tuningCommand, "profiles")
	if err != nil {
		return err
	}
	now := map[string]*tunedv1.ProfileSpec{}
	for i := range profiles {
		now[profiles[i].Name] = &profiles[i].Spec
	}
	plan := tuningPlan{TypeMeta: output.TypeMeta("TuningPlan"), NodePool: pool, Nodes: len(nodes.Items), Changes: []tuning.Change{}}
	for _, node := range nodes.Items {
		subject := tuning.Node{Name: node.Name, Labels: node.Labels, ProviderID: node.Spec.ProviderID}
		if tuning.MatchesPods(tuneds) {
			pods, err := c.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()})
			if err != nil {
				return err
			}
			for _, pod := range pods.Items {
				subject.Pods = append(subject.Pods, pod.Labels)
			}
		}
		choice, ok := tuning.Choose(subject, tuneds)
		if !ok {
			continue // the default matches every node
		}
		if change := tuning.ChangeOf(node.Name, now[node.Name], choice, tuning.ProfileOf(subject, choice, tuneds)); change != nil {
			plan.Changes = append(plan.Changes, *change)
		}
	}
	if err := c.format.Print(c.streams.Out, plan, func(w io.Writer, _ bool) error { return printTuningPlan(w, plan) }); err != nil {
		return err
	}
	if len(plan.Changes) > 0 {
		return errFound
	}
	return nil
}

func printTuningPlan(w io.Writer, plan tuningPlan) error {
	fmt.Fprintf(w, "%d of the %d nodes of NodePool %s change, within seconds of each other. %d of them boot.\n", len(plan.Changes), plan.Nodes, output.Printable(plan.NodePool), plan.Reboots)
	deferred := slices.DeleteFunc(slices.Clone(plan.Changes), func(change tuning.Change) bool { return !change.Deferred })
	if len(deferred) > 0 {
		fmt.Fprintf(w, "%d of them change at their next boot, as %s says.\n", len(deferred), tunedv1.DeferredAnnotation)
	}
	if len(plan.Changes) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	output.Row(table, "NODE", "WHAT", "FROM", "TO")
	for _, change := range plan.Changes {
		if change.From != change.To {
			output.Row(table, change.Node, "profile", cmp.Or(change.From, "-"), change.To)
		}
		for _, each := range change.Sysctls {
			output.Row(table, change.Node, each.Name, cmp.Or(each.From, "not set here"), cmp.Or(each.To, "not set here"))
		}
		for _, each := range change.Arguments {
			output.Row(table, change.Node, "kernel arguments, "+each.Name, cmp.Or(each.From, "-"), cmp.Or(each.To, "-"))
		}
		for _, each := range change.Packaged {
			output.Row(table, change.Node, "what TuneD's own profile "+each+" sets", "", "")
		}
		if len(change.Plugins) > 0 {
			output.Row(table, change.Node, "sections "+strings.Join(change.Plugins, ", "), "", "")
		}
	}
	return table.Flush()
}

// readTuneds reads Tuneds, or ConfigMaps that have them.
func readTuneds(name string, data []byte) ([]tunedv1.Tuned, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var texts []string
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		kind := metav1.TypeMeta{}
		if err := yaml.Unmarshal(document, &kind); err != nil || kind.Kind != "ConfigMap" {
			texts = nil
			break
		}
		configMap := &corev1.ConfigMap{}
		if err := yaml.Unmarshal(document, configMap); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text, ok := configMap.Data[tunedv1.TuningKey]
		if !ok {
			return nil, fmt.Errorf("%s: ConfigMap %s: data: the key %s is missing", name, configMap.Name, tunedv1.TuningKey)
		}
		texts = append(texts, strings.TrimRight(text, "\n")+"\n")
	}
	text := string(data)
	if texts != nil {
		text = strings.Join(texts, "---\n")
	}
	tuneds, err := tuning.Parse(name, text)
	if invalid := (*tuning.Invalid)(nil); errors.As(err, &invalid) {
		return nil, fmt.Errorf("%s: %s", name, invalid.Told())
	}
	return tuneds, err
}
