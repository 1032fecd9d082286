// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/crio"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/explain"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/partition"
)

func newExplain(streams genericiooptions.IOStreams) *cobra.Command {
	e := &explainOptions{cluster: genericclioptions.NewConfigFlags(true), streams: streams}
	command := &cobra.Command{
		Use:   "explain (POD | TYPE/NAME | -f FILE)...",
		Short: "Show what becomes of a pod, and why",
		Long: `Show what a pod asked for, what became of it and why, what to change to have it
partitioned, and which nodes have room for it.

A pod is explained as it is. For a workload, such as deployment/web, and for files, admission
is simulated: the answer is what would become of a pod that is created now. Namespaces, LimitRanges and ResourceQuotas in the same files stand for those of the
cluster with the same names. With --local no cluster is asked: every type counts as active,
and a namespace that is not in the files allows all of them.

For a pod that waits and needs CPUs, memory or devices of one NUMA node, each node that has reported
its NUMA nodes is listed, with the zone that lacks least, and what of.

Other limits on where a pod may run, such as selectors, taints or memory, are up to the
scheduler and not checked.

Exit codes:
  0  all pods that ask are, or would be, partitioned
  1  some that ask are not, or would not be, or no node has room for them, or the
     node of one has no pool of its type any more, or no NUMA node has room for one that waits
  2  an object cannot be read, or the answer depends on something unknown`,
		Example: `  # Why is this pod ordinary?
  kubectl partition explain -n my-operator operator-5b5f5bb99d-95s82

  # What would become of the pods of a Deployment?
  kubectl partition explain -n my-operator deployment/operator

  # The same, before it is applied
  kubectl partition explain -f operator.yaml

  # Without a cluster
  kubectl partition explain --local -f manifests/ -R`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(e),
	}
	e.format.Flag(command)
	command.Flags().StringSliceVarP(&e.files.Filenames, "filename", "f", nil, "explain the objects in files, directories, URLs or standard input (-)")
	command.Flags().BoolVarP(&e.files.Recursive, "recursive", "R", false, "read directories with all that is below them")
	command.Flags().StringVarP(&e.files.Kustomize, "kustomize", "k", "", "explain the objects that a kustomization directory makes")
	command.Flags().BoolVar(&e.local, "local", false, "ask no cluster; only with -f or -k")
	e.cluster.AddFlags(command.Flags())
	return command
}

type explainOptions struct {
	arguments
	cluster *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	format  output.Format
	files   resource.FilenameOptions
	local   bool

	// sources are the files in which objects are.
	sources map[runtime.Object]string
	client  kubernetes.Interface
	status  *status.Status
	// fromFiles is what the files say of namespaces; namespaces also has what the cluster does.
	fromFiles, namespaces map[string]simulate.Namespace
	unknown               []status.Unknown
	// reports are those of NUMA nodes, read for the first pod that needs them.
	reports     []v1alpha2.NodeResourceTopology
	reportsRead bool
}

// explanations is what -o json prints.
type explanations struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*explain.Explanation `json:"items"`
	// Unknown is what could not be read.
	Unknown []status.Unknown `json:"unknown"`
}

func (e *explainOptions) Validate() error {
	files := e.files.RequireFilenameOrKustomize() == nil
	switch {
	case len(e.args) == 0 && !files:
		return errors.New("name a pod or a TYPE/NAME, or give a file with -f")
	case len(e.args) > 0 && files:
		return errors.New("name objects or files, and not both")
	case e.local && len(e.args) > 0:
		return errors.New("with --local there is no cluster to ask for objects; name files with -f")
	}
	return nil
}

func (e *explainOptions) Run(ctx context.Context) error {
	objects, err := e.objects()
	if err != nil {
		return err
	}
	e.namespaces = map[string]simulate.Namespace{}
	if err := e.connect(ctx); err != nil {
		return err
	}
	fromFiles := len(e.args) == 0
	if fromFiles {
		e.fromFiles = namespacesOf(objects)
	}
	result := explanations{TypeMeta: output.TypeMeta("Explanations"), Items: []*explain.Explanation{}, Unknown: []status.Unknown{}}
	for _, object := range objects {
		explanation, err := e.explain(ctx, object, fromFiles)
		if err != nil {
			return err
		}
		if explanation != nil {
			result.Items = append(result.Items, explanation)
		}
	}
	if len(result.Items) == 0 {
		return errors.New("the objects contain no pod and no workload")
	}
	result.Unknown = append(result.Unknown, e.unknown...)
	if err := e.format.Print(e.streams.Out, result, func(w io.Writer, wide bool) error { return printExplanations(w, result, wide) }); err != nil {
		return err
	}
	for _, item := range result.Items {
		if !item.Well() {
			return errFound
		}
	}
	if len(result.Unknown) > 0 {
		return errors.New("some information is missing; it is named above")
	}
	return nil
}

// objects reads the objects that are named, or that are in files, as far as the client knows
// their kinds.
func (e *explainOptions) objects() (objects []runtime.Object, err error) {
	namespace, enforce, err := e.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	// What is in files need not be of a kind that the cluster has.
	fromFiles := len(e.args) == 0
	builder := resource.NewBuilder(e.cluster).Unstructured().LocalParam(fromFiles).NamespaceParam(namespace).DefaultNamespace().FilenameParam(enforce, &e.files).Flatten()
	if !fromFiles {
		builder = builder.ResourceNames("pods", e.args...)
	}
	infos, err := builder.Do().Infos()
	if err != nil {
		return nil, err
	}
	e.sources = map[runtime.Object]string{}
	for _, info := range infos {
		content := info.Object.(*unstructured.Unstructured)
		object, err := scheme.Scheme.New(content.GroupVersionKind())
		if runtime.IsNotRegisteredError(err) {
			continue
		}
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.String(), err)
		}
		if fromFiles {
			inNamespace(object, namespace) // The builder leaves it to the server, and none is asked.
		}
		objects = append(objects, object)
		e.sources[object] = info.Source
	}
	return objects, nil
}

// inNamespace gives an object of which explain has use a namespace, unless it has one.
func inNamespace(object runtime.Object, namespace string) {
	is := explain.NamespaceOf(object) != ""
	switch object.(type) {
	case *v1.LimitRange, *v1.ResourceQuota:
		is = true
	}
	if meta, err := meta.Accessor(object); err == nil && is && meta.GetNamespace() == "" {
		meta.SetNamespace(namespace)
	}
}

// connect reads what does not depend on the objects.
func (e *explainOptions) connect(ctx context.Context) error {
	if e.local {
		return nil
	}
	config, err := e.cluster.ToRESTConfig()
	if err != nil {
		return err
	}
	if e.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if e.status, err = status.Read(ctx, config, status.Options{Placement: true}); err != nil {
		return err
	}
	e.unknown = e.status.Unknown
	for _, server := range e.status.Servers {
		told := func(of status.Unknown) bool { return of.Error == server.Error }
		if server.Plugin == status.Unreachable && !slices.ContainsFunc(e.unknown, told) {
			e.unknown = append(e.unknown, status.Unknown{What: "which types are active", Error: server.Error})
		}
	}
	return nil
}

func (e *explainOptions) explain(ctx context.Context, object runtime.Object, fromFile bool) (*explain.Explanation, error) {
	name := explain.NamespaceOf(object)
	if name == "" {
		return nil, nil
	}
	if pod, ok := object.(*v1.Pod); ok && fromFile && simulate.IsStatic(&pod.ObjectMeta, e.sources[object]) {
		return explain.StaticPod(pod, explain.Cluster{Status: e.status})
	}
	namespace, known := e.namespaces[name]
	switch {
	case e.local:
		namespace = e.fromFiles[name]
	case !known:
		var err error
		if namespace, err = explain.Read(ctx, e.client, name, e.fromFiles[name], &e.unknown); err != nil {
			return nil, err
		}
		e.namespaces[name] = namespace
	}
	about := explain.Cluster{Namespace: namespace, Status: e.status}
	if pod, ok := object.(*v1.Pod); ok && !fromFile {
		var err error
		if about.Runtime, err = e.runtime(ctx, pod); err != nil {
			return nil, err
		}
		explanation, err := explain.Pod(pod, about)
		if err == nil && explain.Waits(pod) {
			explanation.Zones, err = e.zones(ctx, pod)
		}
		return explanation, err
	}
	return explain.Template(object, about)
}

// runtime returns the container runtime of a pod's node, if the pod has annotations that one reads.
func (e *explainOptions) runtime(ctx context.Context, pod *v1.Pod) (string, error) {
	if pod.Spec.NodeName == "" || len(crio.Annotations(pod, false, "")) == 0 {
		return "", nil
	}
	node, err := e.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err := status.Note(&e.unknown, "get nodes, of the name "+pod.Spec.NodeName, "which container runtime the node has", err); err != nil {
		return "", err
	}
	if err != nil {
		return "", nil
	}
	return node.Status.NodeInfo.ContainerRuntimeVersion, nil
}

// zones says where a pod that waits has a NUMA node with room.
func (e *explainOptions) zones(ctx context.Context, pod *v1.Pod) ([]explain.Zone, error) {
	if !e.reportsRead {
		var err error
		if e.reports, err = explain.ReadReports(ctx, e.client, &e.unknown); err != nil {
			return nil, err
		}
		e.reportsRead = true
	}
	return explain.Zones(pod, e.reports, time.Now()), nil
}

// namespacesOf returns what objects say of namespaces, by name.
func namespacesOf(objects []runtime.Object) map[string]simulate.Namespace {
	all := map[string]simulate.Namespace{}
	for _, object := range objects {
		switch o := object.(type) {
		case *v1.Namespace:
			n := all[o.Name]
			if n.Annotations = o.Annotations; n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			all[o.Name] = n
		case *v1.LimitRange:
			name := cmp.Or(o.Namespace, metav1.NamespaceDefault)
			n := all[name]
			n.LimitRanges = append(n.LimitRanges, o)
			all[name] = n
		case *v1.ResourceQuota:
			name := cmp.Or(o.Namespace, metav1.NamespaceDefault)
			n := all[name]
			n.Quotas = append(n.Quotas, o)
			all[name] = n
		}
	}
	return all
}

func printExplanations(w io.Writer, result explanations, wide bool) error {
	most := mostRows
	if wide {
		most = math.MaxInt
	}
	for i, item := range result.Items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printExplanation(w, item, most)
	}
	printSentences(w, "NOT KNOWN", missingRights(result.Unknown))
	return nil
}

func printExplanation(w io.Writer, e *explain.Explanation, most int) {
	line := func(heading, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s%s\n", heading+":", output.Printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(w, "%s\n", output.Printable(fmt.Sprintf("%s %s/%s", e.Kind, e.Namespace, e.Name)))
	if e.Type != "" {
		asked := "type " + e.Type
		if e.Effect != "" {
			asked += ", " + string(e.Effect)
		}
		line("Asked", "%s", asked)
	}
	outcome := string(e.Outcome)
	switch {
	case e.Outcome == partition.Ordinary:
		outcome = "ordinary"
	case e.Reason != partition.NoReason:
		outcome += ", " + string(e.Reason)
	}
	if e.Simulated {
		outcome += " (if it were created now)"
	}
	line("Outcome", "%s", outcome)
	if e.Why != "" {
		line("Why", "%s", e.Why)
	}
	for _, change := range e.Change {
		line("Change", "%s", change)
	}
	for _, annotation := range e.Runtime {
		line("Runtime", "%s", annotation)
	}
	for _, c := range e.Containers {
		text := "no request"
		if c.RequestMillicores > 0 {
			text = millicores(c.RequestMillicores)
		}
		if c.LimitMillicores > 0 {
			text += ", limit " + millicores(c.LimitMillicores)
		}
		line("Container", "%s originally asked for cpu: %s", c.Name, text)
	}
	for i, zone := range e.Zones {
		if i >= most {
			line("NUMA nodes", "and %d more nodes; -o wide lists all", len(e.Zones)-i)
			break
		}
		switch {
		case zone.Enough:
			line("NUMA nodes", "node %s has a zone with room", zone.Node)
		case zone.Zone != "":
			line("NUMA nodes", "node %s: zone %s lacks %s of %s", zone.Node, zone.Zone, zone.Missing, zone.Resource)
		default:
			line("NUMA nodes", "node %s: %s", zone.Node, zone.Why)
		}
	}
	if e.Outcome != partition.Partitioned {
		return
	}
	line("Requests", "%s of %s", millicores(e.CoresMillicores), partition.CoresResource(e.Type))
	switch {
	case e.Node != "":
		heading, what := "Runs on", ""
		if e.Ended {
			heading = "Ran on"
		}
		switch {
		case e.NodeReports == nil:
		case *e.NodeReports:
			what = ", which reports the type"
		default:
			what = ", which has no pool of the type"
		}
		line(heading, "node %s%s", e.Node, what)
	case e.Room != nil:
		var enough []string
		for _, room := range e.Room {
			if room.Enough {
				enough = append(enough, fmt.Sprintf("%s (%s free)", room.Node, millicores(room.FreeMillicores)))
			}
		}
		if len(e.Room) == 0 {
			line("May run on", "no node: none reports the type")
			return
		}
		if len(enough) == 0 {
			line("May run on", "no node: %s has the most free cores of the type, %s", e.Room[0].Node, millicores(e.Room[0].FreeMillicores))
			return
		}
		line("May run on", "%d of %s that report the type: %s", len(enough), counted(len(e.Room), "node"), listed(enough, most))
	}
}

// missingRights says in sentences what is not known, and for want of which rights.
func missingRights(unknown []status.Unknown) (sentences []string) {
	for _, of := range unknown {
		if of.Right == "" {
			sentences = append(sentences, fmt.Sprintf("%s: %s", of.What, strings.TrimSpace(of.Error)))
			continue
		}
		sentences = append(sentences, fmt.Sprintf("%s. This needs the right to %s (%s)", of.What, of.Right, strings.TrimSpace(of.Error)))
	}
	return sentences
}
