// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/lint"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/activation"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
)

// namespaced are the resources that lint reads besides namespaces and nodes.
var namespaced = []schema.GroupResource{
	{Resource: "limitranges"},
	{Resource: "resourcequotas"},
	{Resource: "pods"},
	{Resource: "podtemplates"},
	{Resource: "replicationcontrollers"},
	{Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "daemonsets"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "apps", Resource: "replicasets"},
	{Group: "batch", Resource: "jobs"},
	{Group: "batch", Resource: "cronjobs"},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	{Group: "autoscaling.k8s.io", Resource: "verticalpodautoscalers"},
	{Group: "keda.sh", Resource: "scaledobjects"},
}

// readCluster reads what lint needs, of one namespace if one is given. What may not be read is
// a problem. The error is that of a cluster that cannot be reached.
func (l *lintOptions) readCluster(ctx context.Context) (sources []lint.Source, problems []lint.Problem, err error) {
	mapper, err := l.config.ToRESTMapper()
	if err != nil {
		return nil, nil, err
	}
	mirrors := false
	add := func(object runtime.Object) {
		metadata, err := meta.Accessor(object)
		if err != nil {
			problems = append(problems, lint.Problem{Message: err.Error()})
			return
		}
		// All that is kept stays in memory until it is linted.
		if lint.IsOwned(metadata) {
			return
		}
		metadata.SetManagedFields(nil)
		mirrors = mirrors || metadata.GetAnnotations()[v1.MirrorPodAnnotationKey] != ""
		data, err := json.Marshal(object)
		if err != nil {
			problems = append(problems, lint.Problem{Message: err.Error()})
			return
		}
		sources = append(sources, lint.Source{Data: data})
	}
	list := func(what schema.GroupResource, visit func(runtime.Object), names ...string) {
		if err := l.visit(what, visit, names...); err != nil {
			problems = append(problems, lint.Problem{Message: fmt.Sprintf("%s: %v", what, err)})
		}
	}
	var names []string
	if l.options.Namespace != "" {
		names = []string{l.options.Namespace}
	}
	list(schema.GroupResource{Resource: "namespaces"}, add, names...)
	given := l.options.Types != nil
	if !given {
		rest, err := l.config.ToRESTConfig()
		if err != nil {
			return nil, nil, err
		}
		server, err := status.ReadServer(ctx, rest)
		if err != nil {
			return nil, nil, err
		}
		switch server.Plugin {
		case status.Absent:
			l.options.WithoutPlugin = server.URL
			l.options.Types = partition.AnyType // One finding says it all.
		case status.Present:
			var active []string
			for name, state := range server.Types {
				if state.Active {
					active = append(active, name)
				}
			}
			l.options.Types = simulate.Active(active...)
		default:
			problems = append(problems, lint.Problem{Message: fmt.Sprintf("whether %s has the admission plugin, and which types are active there: %s; the nodes and kube-system are taken to decide, and --active-types overrides them", server.URL, server.Error)})
		}
	}
	tracker := activation.New(config.Activation{Source: config.SourceNodes})
	listNodes := func() {
		l.options.Nodes = map[string]simulate.Types{}
		list(schema.GroupResource{Resource: "nodes"}, func(object runtime.Object) {
			node := &v1.Node{}
			if convert(object, node) == nil {
				tracker.NodeChanged(nil, node)
				l.options.Nodes[node.Name] = simulate.Active(reported.Types(node)...)
			}
		})
	}
	// Where kube-apiserver does not say which types are active, the nodes are taken to decide.
	if l.options.Types == nil {
		before := len(problems)
		listNodes()
		list(schema.GroupResource{Resource: "namespaces"}, func(object runtime.Object) {
			namespace := &v1.Namespace{}
			if convert(object, namespace) == nil {
				tracker.LatchChanged(namespace)
			}
		}, metav1.NamespaceSystem)
		// Where these may not be read, it is not known which types are active.
		if len(problems) == before {
			l.options.Types = func(workloadType string) partition.Reason {
				reason, _ := tracker.Reason(workloadType)
				return reason
			}
		}
	}
	for _, what := range namespaced {
		if _, err := mapper.ResourceFor(what.WithVersion("")); meta.IsNoMatchError(err) {
			continue // The cluster does not have the autoscaler.
		} else if err != nil {
			return nil, nil, err
		}
		list(what, add)
	}
	// Static pods are their kubelet's to decide, whatever kube-apiserver says.
	if mirrors && !given && l.options.Nodes == nil {
		listNodes()
	}
	return sources, problems, nil
}

// visit lists objects by pages, or gets those of the names.
func (l *lintOptions) visit(what schema.GroupResource, visit func(runtime.Object), names ...string) error {
	arguments := append([]string{what.String()}, names...)
	return resource.NewBuilder(l.config).
		Unstructured().
		NamespaceParam(l.options.Namespace).DefaultNamespace().
		AllNamespaces(l.options.Namespace == "").
		ResourceTypeOrNameArgs(true, arguments...).
		RequestChunksOf(500).
		ContinueOnError().
		Flatten().
		Do().
		Visit(func(info *resource.Info, err error) error {
			if err == nil {
				visit(info.Object)
			}
			return err
		})
}

func convert(object runtime.Object, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, into)
}
