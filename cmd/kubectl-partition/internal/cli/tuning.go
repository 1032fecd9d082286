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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/performance"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/operators/tuning/inspect"
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
	command.AddCommand(newTuningStatus(streams), newTuningPlan(streams), newTuningApplyArguments(streams))
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
	// Tuned has the recommendation, and ConfigMap is where the management cluster has that: the one that the NodePool names or, if that is
	// not known, its copy in the control-plane namespace.
	Tuned     string `json:"tuned,omitempty"`
	ConfigMap string `json:"configMap,omitempty"`
	// Why is the entry of that Tuned which the node gets: its priority, and what it goes by.
	Why string `json:"why,omitempty"`
	Tie string `json:"tie,omitempty"`
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
		management managementFlags
	}
)

// managementFlags say where the management cluster is. home is made by connect, or by a test.
type managementFlags struct {
	kubeconfig, namespace string
	home                  *inspect.Home
}

func (m *managementFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&m.kubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster")
	command.Flags().StringVar(&m.namespace, "control-plane-namespace", "", "namespace of the hosted cluster's control plane in the management cluster")
	command.MarkFlagsRequiredTogether("management-kubeconfig", "control-plane-namespace")
}

func (m *managementFlags) connect() error {
	if m.home != nil || m.namespace == "" {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		return err
	}
	home := inspect.Home{Namespace: m.namespace}
	if home.Objects, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if home.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	m.home = &home
	return nil
}

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
	bad := func(node tunedNode) bool {
		return node.Applied != metav1.ConditionTrue || node.Degraded != metav1.ConditionFalse
	}
	found := len(status.Faults) > 0 || slices.ContainsFunc(status.Nodes, bad)
	return verdict(found, c.format, c.streams.Out, status, func(w io.Writer, _ bool) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		output.Row(table, "NODE", "NODEPOOL", "PROFILE", "TUNED", "CONFIGMAP", "WHY", "APPLIED", "DEGRADED")
		for _, node := range status.Nodes {
			output.Row(table, node.Node, cmp.Or(node.NodePool, "-"), cmp.Or(node.Profile, "-"), cmp.Or(node.Tuned, "-"), cmp.Or(node.ConfigMap, "-"), cmp.Or(node.Why, "-"), node.Applied, node.Degraded)
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
}

// statusOf says of each node how it is tuned.
func statusOf(nodes []corev1.Node, profiles []tunedv1.Profile, tuneds []tunedv1.Tuned) tuningStatus {
	status := tuningStatus{TypeMeta: output.TypeMeta("TuningStatus"), Nodes: []tunedNode{}}
	tunedOf, byName := map[string]tunedv1.Tuned{}, map[string]*tunedv1.Profile{}
	for _, tuned := range tuneds {
		tunedOf[tuned.Name] = tuned
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
		if tuned, ok := tunedOf[one.Tuned]; ok {
			if pool := tuned.Labels[tunedv1.NodePoolNameLabel]; pool != "" {
				one.ConfigMap = cmp.Or(tuned.Annotations[v1beta1.SourcesAnnotation], v1beta1.TunedConfigMapName(pool))
			}
			one.Why = whyChosen(tuned, nodes[i].Labels, one.Profile)
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

// whyChosen says by which entry of a Tuned a node with these labels gets a profile: with which priority, and what that goes by. It is
// empty if the Tuned has no such entry any more. Of an entry that goes by pods, it is not known here whether they match.
func whyChosen(tuned tunedv1.Tuned, labels map[string]string, profile string) string {
	entry, found := tuning.Choose(tuning.Node{Labels: labels}, []tunedv1.Tuned{tuned})
	why := entry.TunedRecommend
	if !found || why.Profile != profile {
		i := slices.IndexFunc(tuned.Spec.Recommend, func(entry tunedv1.TunedRecommend) bool { return entry.Profile == profile })
		if i < 0 {
			return ""
		}
		why = tuned.Spec.Recommend[i]
	}
	goesBy := make([]string, len(why.Match))
	for i, match := range why.Match {
		by := match.Label
		if match.Value != nil {
			by += "=" + *match.Value
		}
		if match.Type == tunedv1.MatchPod {
			by += " of a pod"
		}
		goesBy[i] = by
	}
	if len(goesBy) == 0 {
		return fmt.Sprintf("priority %d, every node", why.Priority)
	}
	return fmt.Sprintf("priority %d, by %s", why.Priority, strings.Join(goesBy, " or "))
}

type tuningPlan struct {
	metav1.TypeMeta `json:",inline"`
	// NodePool is missing on an ordinary cluster.
	NodePool string `json:"nodePool,omitempty"`
	// ManagementState is Unmanaged or Removed if the operator of an ordinary cluster tunes no node now.
	ManagementState string          `json:"managementState,omitempty"`
	Nodes           int             `json:"nodes"`
	Changes         []tuning.Change `json:"changes"`
	// Boots says which nodes would boot or be replaced, in which order, and Reboots how many would boot. Both are missing if that is not known without
	// the management cluster.
	Boots   *tuning.Boots `json:"boots,omitempty"`
	Reboots *int          `json:"reboots,omitempty"`
}

func newTuningPlan(streams genericiooptions.IOStreams) *cobra.Command {
	c := &tuningPlanOptions{tuningCommand: tuningCommand{streams: streams}}
	command := &cobra.Command{
		Use:   "plan -f FILE [--nodepool POOL]",
		Short: "Say what Tuneds would change on nodes, and write nothing",
		Long: `Say what a configuration would change on nodes: profiles, sysctls from and to, kernel arguments, and which nodes
boot, in which order. It writes nothing.

On a hosted cluster, --nodepool says of which NodePool. The file has all that spec.tuningConfig of the NodePool would name:
Tuneds and a PerformanceProfile, or ConfigMaps with the key tuning. You need the rights to list the hosted cluster's nodes and
Profiles, and its pods if a Tuned goes by those.

On an ordinary cluster, without --nodepool, the file has Tuneds that you would apply. The cluster's other Tuneds stay, so you
need the right to list Tuneds, too. No node boots there: kernel arguments are yours to add to the boot loaders.

Sysctls change on all nodes within seconds of each other, and need no reboot. Kernel arguments and a PerformanceProfile boot
each node of the pool once, or replace it if the NodePool's upgrade type is Replace. Which nodes boot follows from what the management cluster has: --control-plane-namespace
and --management-kubeconfig say where. You need the rights to get its ConfigMaps and the NodePool.

Exit codes:
  0  nothing would change
  1  something would
  2  a Tuned is not valid, or the cluster cannot be asked`,
		Example: `  kubectl partition tuning plan -f tuned.yaml
  kubectl partition tuning plan -f tuned.yaml --nodepool pool-a
  kubectl --kubeconfig=management get configmaps -n clusters sysctls -o yaml | kubectl partition tuning plan -f - --nodepool pool-a`,
		Args: cobra.NoArgs,
		RunE: steps(c),
	}
	c.flags(command)
	command.Flags().StringVarP(&c.file, "filename", "f", "", "file of Tuneds, or of ConfigMaps that have them; - is standard input")
	command.Flags().StringVar(&c.pool, "nodepool", "", "name of the NodePool; an ordinary cluster has none")
	c.management.add(command)
	utilruntime.Must(command.MarkFlagRequired("filename"))
	return command
}

func (c *tuningPlanOptions) Validate() error {
	if c.pool == "" && c.management.namespace != "" {
		return errors.New("--control-plane-namespace is of a hosted cluster: give --nodepool, too")
	}
	return nil
}

func (c *tuningPlanOptions) Run(ctx context.Context) error {
	file, pool := c.file, c.pool
	data, err := readFile(file, c.streams.In)
	if err != nil {
		return err
	}
	read, err := readTuneds(file, data)
	if err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	plan := tuningPlan{TypeMeta: output.TypeMeta("TuningPlan"), NodePool: pool, Changes: []tuning.Change{}}
	var tuneds []tunedv1.Tuned
	selector := labels.Everything()
	if pool == "" {
		tuneds, plan.ManagementState, err = c.ordinary(ctx, read)
	} else {
		selector = labels.SelectorFromSet(labels.Set{tunedv1.NodePoolLabel: pool})
		tuneds, err = read.ofPool(pool)
	}
	if err != nil {
		return err
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	if pool == "" && len(nodes.Items) > 0 && !slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool { return node.Labels[tunedv1.NodePoolLabel] == "" }) {
		first := nodes.Items[0]
		return fmt.Errorf("all nodes are of NodePools, such as %s of %s, so this is a hosted cluster: give --nodepool", first.Name, first.Labels[tunedv1.NodePoolLabel])
	}
	plan.Nodes = len(nodes.Items)
	profiles, err := tuningObjects[tunedv1.Profile](ctx, &c.tuningCommand, "profiles")
	if err != nil {
		return err
	}
	now := map[string]*tunedv1.ProfileSpec{}
	for i := range profiles {
		now[profiles[i].Name] = &profiles[i].Spec
	}
	var names []string
	for _, node := range nodes.Items {
		names = append(names, node.Name)
		if plan.ManagementState != "" {
			continue
		}
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
	if err := c.boots(ctx, &plan, read, names, now); err != nil {
		return err
	}
	return verdict(len(plan.Changes) > 0, c.format, c.streams.Out, plan, func(w io.Writer, _ bool) error { return printTuningPlan(w, plan) })
}

// ordinary returns the Tuneds of an ordinary cluster once those of a file are applied. state is empty if the operator acts by them.
func (c *tuningPlanOptions) ordinary(ctx context.Context, read tuningFile) (tuneds []tunedv1.Tuned, state string, err error) {
	switch {
	case read.profile != nil:
		return nil, "", fmt.Errorf("%s: PerformanceProfile %s is not used on an ordinary cluster: kubectl partition render makes the files of its CPUs; on a hosted cluster, give --nodepool", read.name, read.profile.Name)
	case read.configMaps:
		return nil, "", fmt.Errorf("%s: ConfigMaps are not used on an ordinary cluster: apply the Tuneds themselves; on a hosted cluster, give --nodepool", read.name)
	}
	standing, err := tuningObjects[tunedv1.Tuned](ctx, &c.tuningCommand, "tuneds")
	if err != nil {
		return nil, "", err
	}
	tuneds, managed, err := tuning.Applied(standing, read.tuneds)
	if managed != tunedv1.Managed {
		state = managed
	}
	return tuneds, state, err
}

// boots says which nodes of the plan boot.
func (c *tuningPlanOptions) boots(ctx context.Context, plan *tuningPlan, read tuningFile, nodes []string, now map[string]*tunedv1.ProfileSpec) error {
	if err := c.management.connect(); err != nil {
		return err
	}
	var boots tuning.Boots
	switch {
	case c.pool == "":
		// Nothing boots nodes of an ordinary cluster.
	case c.management.home != nil:
		standing, err := c.management.home.Pool(ctx, c.pool, len(nodes))
		if err != nil {
			return err
		}
		if boots, err = tuning.Foresee(c.pool, standing, read.tuneds, read.profile, nodes); err != nil {
			return err
		}
	default:
		// Without the management cluster it is known only of what has no part in a boot.
		for _, name := range nodes {
			if spec := now[name]; spec != nil && tuning.HasPerformance(*spec) {
				return nil
			}
		}
		if read.profile != nil || slices.ContainsFunc(plan.Changes, changesArguments) {
			return nil
		}
	}
	reboots := len(slices.Concat(boots.Nodes...))
	if boots.Replaced {
		reboots = 0
	}
	plan.Boots, plan.Reboots = &boots, &reboots
	return nil
}

func changesArguments(change tuning.Change) bool { return len(change.Arguments) > 0 }

func printBoots(w io.Writer, boots *tuning.Boots) {
	if boots == nil {
		fmt.Fprintln(w, "Whether nodes boot is not known without the management cluster: give --control-plane-namespace and --management-kubeconfig.")
		return
	}
	does := "boot once"
	if boots.Replaced {
		does = "are replaced by machines that boot with all of it at once"
	}
	if len(boots.Nodes) > 0 {
		fmt.Fprintf(w, "%d of them %s, one line at a time:\n", len(slices.Concat(boots.Nodes...)), does)
		for _, group := range boots.Nodes {
			fmt.Fprintf(w, "  %s\n", output.Printable(strings.Join(group, ", ")))
		}
		fmt.Fprintf(w, "The reasons: %s.\n", output.Printable(strings.Join(boots.Reasons, "; ")))
	} else {
		fmt.Fprintln(w, "None of them boots.")
	}
	if len(boots.Unknown) > 0 {
		fmt.Fprintf(w, "The nodes compute %s. If that is not what it was, this is one more reason, at the same time.\n", output.Printable(strings.Join(boots.Unknown, " ")))
	}
}

func printTuningPlan(w io.Writer, plan tuningPlan) error {
	of := ""
	if plan.NodePool != "" {
		of = " of NodePool " + output.Printable(plan.NodePool)
	}
	fmt.Fprintf(w, "%d of the %d nodes%s change, within seconds of each other.\n", len(plan.Changes), plan.Nodes, of)
	if plan.ManagementState != "" {
		fmt.Fprintf(w, "spec.managementState of the Tuned %s is %s: until it is %s, Tuneds change no node.\n", tunedv1.DefaultName, plan.ManagementState, tunedv1.Managed)
	}
	printBoots(w, plan.Boots)
	if plan.NodePool == "" && slices.ContainsFunc(plan.Changes, changesArguments) {
		fmt.Fprintln(w, "Kernel arguments are reported only on an ordinary cluster: add them to the nodes' boot loaders.")
	}
	deferred := slices.DeleteFunc(slices.Clone(plan.Changes), func(change tuning.Change) bool { return !change.Deferred })
	if len(deferred) > 0 {
		fmt.Fprintf(w, "%d of them change at their next boot, as %s says.\n", len(deferred), tunedv1.DeferredAnnotation)
		if plan.Boots != nil && len(plan.Boots.Unknown) > 0 {
			fmt.Fprintln(w, "They compute kernel arguments only then, and take a second boot for those that are others. One boot does without the annotation.")
		}
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

// tuningFile is what a file has.
type tuningFile struct {
	name   string
	tuneds []tunedv1.Tuned
	// profile is nil if there is no PerformanceProfile.
	profile *performance.Rendered
	// configMaps is true if the file has ConfigMaps that have these.
	configMaps bool
}

// ofPool returns the Tuneds that count for a NodePool's nodes, as the hosted cluster gets them.
func (f tuningFile) ofPool(pool string) (tuneds []tunedv1.Tuned, err error) {
	tuneds = f.tuneds
	if f.profile != nil {
		if tuneds, err = tuning.WithPerformance(f.tuneds, *f.profile); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	tuneds = slices.Clone(tuneds)
	for i := range tuneds {
		tuneds[i] = *tuning.Hosted(&tuneds[i], pool)
	}
	return append([]tunedv1.Tuned{*tuning.Default()}, tuneds...), nil
}

// readTuneds reads Tuneds and a PerformanceProfile, or ConfigMaps that have them.
func readTuneds(name string, data []byte) (file tuningFile, err error) {
	file.name = name
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var values []string
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return file, fmt.Errorf("%s: %w", name, err)
		}
		kind := metav1.TypeMeta{}
		if err := yaml.Unmarshal(document, &kind); err != nil || kind.Kind != "ConfigMap" {
			values = nil
			break
		}
		configMap := &corev1.ConfigMap{}
		if err := yaml.Unmarshal(document, configMap); err != nil {
			return file, fmt.Errorf("%s: %w", name, err)
		}
		text, ok := configMap.Data[tunedv1.TuningKey]
		if !ok {
			return file, fmt.Errorf("%s: ConfigMap %s: data: the key %s is missing", name, configMap.Name, tunedv1.TuningKey)
		}
		values = append(values, strings.TrimRight(text, "\n")+"\n")
	}
	text := string(data)
	if file.configMaps = values != nil; file.configMaps {
		text = strings.Join(values, "---\n")
	}
	file.tuneds, file.profile, err = tuning.ParseAll(name, text)
	if invalid := (*tuning.Invalid)(nil); errors.As(err, &invalid) {
		return file, fmt.Errorf("%s: %s", name, invalid.Told())
	}
	return file, err
}

// tuningApplyOptions are of the command apply-arguments.
type tuningApplyOptions struct {
	arguments
	streams    genericiooptions.IOStreams
	management managementFlags
}

func newTuningApplyArguments(streams genericiooptions.IOStreams) *cobra.Command {
	c := &tuningApplyOptions{streams: streams}
	command := &cobra.Command{
		Use:   "apply-arguments POOL",
		Short: "Have outdated kernel arguments of a NodePool take effect, which boots its nodes",
		Long: `Have outdated kernel arguments of a NodePool take effect. After an upgrade of the operand its nodes may compute other
kernel arguments than they boot with. By itself that boots no node: the NodePool's condition KernelArgumentsOutdated is True,
and the arguments take effect with the next change of the pool. This command has them take effect now, and each node of the pool
boots once. You need the rights to get and patch ConfigMaps of the control plane's namespace.

Exit codes:
  0  the arguments that were printed take effect
  2  none are outdated, or the cluster cannot be asked`,
		Example: `  kubectl partition tuning apply-arguments pool-a --management-kubeconfig management --control-plane-namespace clusters-hosted`,
		Args:    cobra.ExactArgs(1),
		RunE:    steps(c),
	}
	c.management.add(command)
	for _, name := range []string{"management-kubeconfig", "control-plane-namespace"} {
		utilruntime.Must(command.MarkFlagRequired(name))
	}
	return command
}

func (c *tuningApplyOptions) Run(ctx context.Context) error {
	if err := c.management.connect(); err != nil {
		return err
	}
	arguments, err := c.management.home.Apply(ctx, c.args[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.streams.Out, "The nodes of NodePool %s boot with: %s\n", output.Printable(c.args[0]), output.Printable(strings.Join(arguments, " ")))
	return err
}
