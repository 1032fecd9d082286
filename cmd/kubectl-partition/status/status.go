// SPDX-License-Identifier: Apache-2.0

// Package status reads how workload partitioning stands in a live cluster.
//
// It needs no right but to read, keeps no pods, and decodes only those that have to do with
// workload partitioning. What becomes of pods and why, the core decides
// (workload.openshift.io/partition); the package knows no command line.
package status

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/partition"
)

// Options say what to ask.
type Options struct {
	// Placement reads only types, nodes and what pods request: no kube-apiserver but the
	// configured one, no autoscaler, and not what namespaces allow.
	Placement bool
	// Pools asks each kubelet for the sizes of its pools, through kube-apiserver. This needs
	// the right to get nodes/proxy, which is more than a right to read.
	Pools bool
}

// mostNamed is how many pods of a group are named.
const mostNamed = 10

// pageSize is how many objects are asked for at once: few enough that pages of large objects
// need little memory, and many enough that requests cost little.
const pageSize = 1000

// Read asks the cluster. Its error means that the cluster does not answer; what the user may
// not read is in [Status.Unknown].
func Read(ctx context.Context, config *rest.Config, options Options) (*Status, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the requests are few, and one after another
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, err
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := newReader()
	r.client, r.custom = client, custom
	if err := r.latch(ctx); err != nil {
		return nil, err
	}
	var servers []Server
	var unasked []Unknown
	var failed error
	var asking sync.WaitGroup
	asking.Go(func() { servers, unasked, failed = readServers(ctx, client, config, !options.Placement) })
	if !options.Placement {
		err = r.readNamespaces(ctx)
	}
	err = errors.Join(err, r.readNodes(ctx), r.readPods(ctx))
	if err == nil && !options.Placement {
		err = errors.Join(r.judgeAgain(ctx), r.readQuotas(ctx), r.readAutoscalers(ctx))
	}
	asking.Wait()
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if options.Pools {
		r.readPools(ctx)
	}
	r.unknown = append(unasked, r.unknown...)
	return r.status(servers), nil
}

// reader collects what the lists say.
type reader struct {
	client kubernetes.Interface
	custom dynamic.Interface

	types     map[string]*Type
	nodes     map[nodeType]*Node
	counting  []string // the nodes that count
	skipped   map[skip]*Pods
	undecided Pods
	// allowed are the allowed annotations of the namespaces that have one; nil if they are not known.
	allowed    map[string]string
	notAllowed []PodNotAllowed
	unbounded  []Unbounded
	// workloads are those that have partitioned pods, with the names of their containers.
	workloads    map[workload][]string
	autoscalers  []Autoscaler
	nodesUnknown bool
	podsUnknown  bool
	unknown      []Unknown
}

func newReader() *reader {
	return &reader{types: map[string]*Type{}, nodes: map[nodeType]*Node{}, skipped: map[skip]*Pods{}, workloads: map[workload][]string{}}
}

type nodeType struct{ node, workloadType string }

type skip struct {
	workloadType string
	reason       partition.Reason
}

func (r *reader) typeOf(name string) *Type {
	if r.types[name] == nil {
		r.types[name] = &Type{Name: name}
	}
	return r.types[name]
}

func (r *reader) nodeOf(node, workloadType string) *Node {
	key := nodeType{node, workloadType}
	if r.nodes[key] == nil {
		r.nodes[key] = &Node{Name: node, Type: workloadType}
		r.typeOf(workloadType)
	}
	return r.nodes[key]
}

// Note adds a request that was answered with an error to what is unknown, and names the right
// if that is what is missing. It returns the error of a cluster that does not answer, or does not know the user.
func Note(unknown *[]Unknown, right, what string, err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || apierrors.IsUnauthorized(err) {
		return err
	}
	if !apierrors.IsForbidden(err) {
		right = ""
	}
	*unknown = append(*unknown, Unknown{Right: right, What: what, Error: err.Error()})
	return nil
}

// latch reads the enabled annotation of kube-system.
func (r *reader) latch(ctx context.Context) error {
	namespace, err := r.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return Note(&r.unknown, "get namespaces, of the name "+metav1.NamespaceSystem, "which types are latched, and since when", err)
	}
	since := written(namespace)
	for _, workloadType := range partition.ParseTypes(namespace.Annotations[partition.EnabledAnnotation]) {
		t := r.typeOf(workloadType)
		t.Latched, t.Since = true, since
	}
	return nil
}

// written returns when the enabled annotation was last written, or nil if managed fields do
// not say. They have one time for all fields of a writer, so it may have been earlier.
func written(namespace *v1.Namespace) (last *metav1.Time) {
	path := fieldpath.MakePathOrDie("metadata", "annotations", partition.EnabledAnnotation)
	for _, entry := range namespace.ManagedFields {
		if entry.FieldsV1 == nil || entry.Time == nil {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil || !fields.Has(path) {
			continue
		}
		if last == nil || last.Before(entry.Time) {
			last = entry.Time
		}
	}
	return last
}

// readNodes lists the nodes, page by page.
func (r *reader) readNodes(ctx context.Context) error {
	list := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.CoreV1().Nodes().List(ctx, options)
	})
	err := list(ctx, func(object runtime.Object) error {
		r.addNode(object.(*v1.Node))
		return nil
	})
	r.nodesUnknown = err != nil
	return Note(&r.unknown, "list nodes", "which nodes report the types, their cores, and their reserved CPUs", err)
}

func (r *reader) addNode(node *v1.Node) {
	counts := partition.NodeCounts(node.Labels)
	if counts {
		r.counting = append(r.counting, node.Name)
	}
	for _, workloadType := range reported.Types(node) {
		row := r.nodeOf(node.Name, workloadType)
		row.reports = true
		allocatable := node.Status.Allocatable[v1.ResourceName(partition.CoresResource(workloadType))]
		row.CoresMillicores = allocatable.Value()
		reserved := node.Status.Capacity.Cpu().DeepCopy()
		reserved.Sub(*node.Status.Allocatable.Cpu())
		row.ReservedMillicores = reserved.MilliValue()
		t := r.typeOf(workloadType)
		t.CoresMillicores += row.CoresMillicores
		if counts {
			t.NodesReporting++
		}
	}
}

// pages returns a function that calls another for each item of a list.
func pages(list pager.ListPageFunc) func(context.Context, func(runtime.Object) error) error {
	p := pager.New(list)
	p.PageSize, p.PageBufferSize = pageSize, 1
	return func(ctx context.Context, item func(runtime.Object) error) error {
		return p.EachListItem(ctx, metav1.ListOptions{}, item)
	}
}

// status puts together what was collected.
func (r *reader) status(servers []Server) *Status {
	for _, server := range servers {
		for name := range server.Types {
			r.typeOf(name)
		}
	}
	s := &Status{
		TypeMeta: output.TypeMeta("Status"), Servers: servers,
		Types: []Type{}, Nodes: []Node{}, NodesUnknown: r.nodesUnknown, PodsUnknown: r.podsUnknown, Skipped: []Skipped{}, NotAllowed: []PodNotAllowed{}, Unbounded: []Unbounded{}, Autoscalers: []Autoscaler{}, Unknown: []Unknown{},
	}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		t := *r.types[name]
		t.Active, t.Disagree = active(t, servers)
		for _, node := range r.counting {
			if row := r.nodes[nodeType{node, name}]; row == nil || !row.reports {
				t.Missing = append(t.Missing, node)
			}
		}
		s.Types = append(s.Types, t)
	}
	for _, node := range r.nodes {
		s.Nodes = append(s.Nodes, *node)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int {
		ofA, _ := a.Overcommitment()
		ofB, _ := b.Overcommitment()
		return cmp.Or(cmp.Compare(ofB, ofA), cmp.Compare(b.RequestedMillicores, a.RequestedMillicores), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	for group, pods := range r.skipped {
		rule, _ := partition.RuleOf(group.reason)
		s.Skipped = append(s.Skipped, Skipped{Type: group.workloadType, Reason: group.reason, Text: rule.Text, Pods: *pods})
	}
	slices.SortFunc(s.Skipped, func(a, b Skipped) int {
		return cmp.Or(newer(a.Newest[0], b.Newest[0]), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Reason, b.Reason))
	})
	if r.undecided.Count > 0 {
		s.Undecided = &r.undecided
	}
	s.NotAllowed = append(s.NotAllowed, r.notAllowed...)
	s.Unbounded = append(s.Unbounded, r.unbounded...)
	s.Autoscalers = append(s.Autoscalers, r.autoscalers...)
	s.Unknown = append(s.Unknown, r.unknown...)
	return s
}

// active returns what the kube-apiservers say of a type. One that does not know the type
// partitions no pod as it.
func active(t Type, servers []Server) (active *bool, disagree bool) {
	for _, server := range servers {
		if server.Plugin != Present {
			continue
		}
		says := server.Types[t.Name].Active
		if active != nil && *active != says {
			return nil, true
		}
		active = &says
	}
	if active == nil && t.Latched {
		active = &t.Latched
	}
	return active, false
}
