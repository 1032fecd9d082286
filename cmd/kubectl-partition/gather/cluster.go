// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
	"workload.openshift.io/operators/api/nodegroup"
)

// What an archive has at most: objects of a kind, pods of a namespace whose logs are read, and bytes and lines of each log.
const (
	mostObjects  = 10_000
	mostPods     = 50
	mostLogBytes = 1 << 20
	mostLogLines = 5000
)

// errRest ends a list of which enough was read.
var errRest = errors.New("enough was read")

// kind is a kind of objects that is read.
type kind struct {
	schema.GroupVersionResource
	// namespace and the selectors say which of them; empty means all.
	namespace, labels, fields string
	// file is its name in the archive if that of the resource would not do.
	file string
	// wanted says which are kept; nil means all.
	wanted func(*unstructured.Unstructured) bool
	// keep are the paths of the fields that are kept, besides the metadata. Nil means all.
	keep [][]string
}

func kindOf(group, version, name string) kind {
	return kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name}}
}

const partOf = "app.kubernetes.io/part-of=workload-partitioning"

// ofCluster are the kinds of the whole cluster. One that the cluster does not serve is passed over.
func ofCluster() []kind {
	nodes, namespaces, lock := kindOf("", "v1", "nodes"), kindOf("", "v1", "namespaces"), kindOf("coordination.k8s.io", "v1", "leases")
	nodes.keep = [][]string{{"spec", "taints"}, {"spec", "unschedulable"}, {"status", "capacity"}, {"status", "allocatable"}, {"status", "conditions"},
		{"status", "nodeInfo", "bootID"}, {"status", "nodeInfo", "kernelVersion"}, {"status", "nodeInfo", "osImage"}, {"status", "nodeInfo", "containerRuntimeVersion"},
		{"status", "nodeInfo", "kubeletVersion"}, {"status", "nodeInfo", "architecture"}, {"status", "runtimeHandlers"}}
	namespaces.wanted = func(o *unstructured.Unstructured) bool { return len(ours(o.GetAnnotations())) > 0 }
	namespaces.keep = [][]string{{"status", "phase"}}
	lock.file, lock.namespace, lock.fields = "lock-of-control-plane", nodegroup.ControlPlaneLock.Namespace, "metadata.name="+nodegroup.ControlPlaneLock.Name
	events, latch := kindOf("", "v1", "events"), kindOf("", "v1", "events")
	events.file, events.fields = "events-of-nodes", "involvedObject.kind=Node"
	latch.file, latch.fields = "events-of-kube-system", "involvedObject.kind=Namespace,involvedObject.name="+metav1.NamespaceSystem
	infrastructures, pools := kindOf("config.openshift.io", "v1", "infrastructures"), kindOf("hypershift.openshift.io", "v1beta1", "nodepools")
	infrastructures.keep = [][]string{{"status", "cpuPartitioning"}, {"status", "controlPlaneTopology"}, {"status", "infrastructureTopology"}}
	pools.keep = [][]string{{"spec", "clusterName"}, {"spec", "config"}, {"spec", "tuningConfig"}, {"spec", "replicas"}, {"spec", "management"}, {"status"}}
	validating, mutating := kindOf("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"), kindOf("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
	validating.labels, mutating.labels = partOf, partOf
	return []kind{
		nodes, events, namespaces, latch, lock, validating, mutating, infrastructures,
		kindOf("cpupolicy.workload.openshift.io", "v1alpha1", "cpumanagerpolicies"),
		kindOf("nodetopology.openshift.io", "v1", "numaresourcesoperators"),
		kindOf("nodetopology.openshift.io", "v1", "numaresourcesschedulers"),
		kindOf("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies"),
		kindOf("tuned.openshift.io", "v1", "tuneds"),
		kindOf("tuned.openshift.io", "v1", "profiles"),
		kindOf("performance.openshift.io", "v2", "performanceprofiles"),
		pools,
	}
}

// ofCompanion are the kinds of a companion's namespace.
func ofCompanion(namespace string) []kind {
	kinds := []kind{
		kindOf("", "v1", "configmaps"), kindOf("", "v1", "events"), kindOf("", "v1", "pods"), kindOf("apps", "v1", "daemonsets"),
		kindOf("apps", "v1", "deployments"), kindOf("batch", "v1", "jobs"), kindOf("coordination.k8s.io", "v1", "leases"),
	}
	for i := range kinds {
		kinds[i].namespace = namespace
	}
	// Kubernetes and OpenShift put certificates of authorities into each namespace.
	kinds[0].wanted = func(o *unstructured.Unstructured) bool {
		return o.GetName() != "kube-root-ca.crt" && o.GetName() != "openshift-service-ca.crt"
	}
	return kinds
}

// domains are those of annotations that are kept: ours, and of the kinds of others that companions read.
var domains = []string{"workload.openshift.io", "cpupolicy.openshift.io", "hypershift.openshift.io", "nodetopology.openshift.io", "performance.openshift.io", "tuned.openshift.io"}

// isOurs reports whether an annotation is kept.
func isOurs(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// ours returns the annotations that are kept.
func ours(annotations map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !isOurs(key) })
	return kept
}

// hidden are fields of a pod that an archive never has: of its specification, and its and its node's addresses.
var hidden = []string{"env", "envFrom", "imagePullSecrets", "volumes", "volumeMounts", "volumeDevices", "hostIP", "hostIPs", "podIP", "podIPs"}

// withoutHidden removes these fields wherever they are, and annotations of others.
func withoutHidden(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range hidden {
			delete(value, name)
		}
		if metadata, is := value["metadata"].(map[string]any); is {
			annotations, _ := metadata["annotations"].(map[string]any)
			maps.DeleteFunc(annotations, func(key string, _ any) bool { return !isOurs(key) })
		}
		for _, below := range value {
			withoutHidden(below)
		}
	case []any:
		for _, below := range value {
			withoutHidden(below)
		}
	}
}

// reduced returns what an archive has of an object.
func (k kind) reduced(o *unstructured.Unstructured) map[string]any {
	metadata := map[string]any{}
	of, _, _ := unstructured.NestedMap(o.Object, "metadata")
	for _, name := range []string{"name", "namespace", "uid", "labels", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp", "finalizers", "ownerReferences"} {
		if value, ok := of[name]; ok {
			metadata[name] = value
		}
	}
	if annotations := ours(o.GetAnnotations()); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	kept := map[string]any{}
	if k.keep == nil {
		kept = maps.Clone(o.Object)
	}
	for _, path := range k.keep {
		if value, ok, err := unstructured.NestedFieldNoCopy(o.Object, path...); ok && err == nil {
			// The path has none but maps, which this makes itself.
			_ = unstructured.SetNestedField(kept, runtime.DeepCopyJSONValue(value), path...)
		}
	}
	withoutHidden(kept)
	kept["metadata"] = metadata
	return kept
}

// read returns the objects of a kind, reduced, in the order of their names. What could not be read is noted.
func (g *gatherer) read(ctx context.Context, k kind) (objects []map[string]any, ok bool) {
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector, options.FieldSelector = k.labels, k.fields
		return g.dynamic.Resource(k.GroupVersionResource).Namespace(k.namespace).List(ctx, options)
	})
	p.PageBufferSize = 1
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		o := item.(*unstructured.Unstructured)
		if k.wanted != nil && !k.wanted(o) {
			return nil
		}
		if len(objects) == mostObjects {
			return errRest
		}
		objects = append(objects, k.reduced(o))
		return nil
	})
	what := k.GroupResource().String()
	if k.namespace != "" {
		what += " of namespace " + k.namespace
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, false // this cluster has no such kind
	case errors.Is(err, errRest):
		g.archive.lacks(what, fmt.Errorf("there are more than %d, of which the first are here", mostObjects))
	case err != nil:
		g.archive.lacks(what, err)
		return nil, false
	}
	return objects, true
}

// addKind adds the objects of a kind.
func (g *gatherer) addKind(ctx context.Context, dir string, k kind) {
	if objects, ok := g.read(ctx, k); ok {
		g.archive.addJSON(dir+"/"+cmp.Or(k.file, k.Resource)+".json", map[string]any{"apiVersion": "v1", "kind": "List", "items": slices.Concat([]map[string]any{}, objects)})
	}
}

func (g *gatherer) addCluster(ctx context.Context) {
	for _, k := range ofCluster() {
		g.addKind(ctx, "cluster", k)
	}
}

// addCompanions adds what there is of companions in the namespaces that are theirs.
func (g *gatherer) addCompanions(ctx context.Context) {
	namespaces, err := g.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: partOf})
	if err != nil {
		g.archive.lacks("which companions there are", err)
		return
	}
	for _, namespace := range namespaces.Items {
		g.Say("reading namespace %s", namespace.Name)
		dir := "companions/" + namespace.Name
		for _, k := range ofCompanion(namespace.Name) {
			g.addKind(ctx, dir, k)
		}
		g.addLogs(ctx, dir+"/logs", namespace.Name)
	}
}

// addLogs adds the ends of the logs of a namespace's pods. Those that are not ready come first.
func (g *gatherer) addLogs(ctx context.Context, dir, namespace string) {
	list, err := g.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // addKind has noted it
	}
	pods := list.Items
	slices.SortStableFunc(pods, func(a, b v1.Pod) int { return cmp.Compare(readiness(&a), readiness(&b)) })
	if len(pods) > mostPods {
		g.archive.lacks("logs of namespace "+namespace, fmt.Errorf("there are %d pods, of which %d are here, those first that are not ready", len(pods), mostPods))
		pods = pods[:mostPods]
	}
	for _, pod := range pods {
		for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if container.State.Waiting != nil && container.RestartCount == 0 {
				continue // it has not started yet
			}
			file := fmt.Sprintf("%s/%s/%s", dir, pod.Name, container.Name)
			g.addLog(ctx, file+".log", &pod, v1.PodLogOptions{Container: container.Name})
			if container.RestartCount > 0 {
				g.addLog(ctx, file+".previous.log", &pod, v1.PodLogOptions{Container: container.Name, Previous: true})
			}
		}
	}
}

func (g *gatherer) addLog(ctx context.Context, file string, pod *v1.Pod, options v1.PodLogOptions) {
	options.TailLines, options.LimitBytes, options.Timestamps = ptr.To[int64](mostLogLines), ptr.To[int64](mostLogBytes), true
	data, err := g.log(ctx, pod, &options)
	g.archive.lacks(file, err)
	if err == nil {
		g.archive.add(file, data)
	}
}

// log reads as much of a log as the options allow, even if the kubelet sends more.
func (g *gatherer) log(ctx context.Context, pod *v1.Pod, options *v1.PodLogOptions) ([]byte, error) {
	stream, err := g.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return io.ReadAll(io.LimitReader(stream, *options.LimitBytes))
}

// readiness sorts pods by whether they are ready.
func readiness(pod *v1.Pod) int {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady && condition.Status == v1.ConditionTrue {
			return 1
		}
	}
	return 0
}

// admissionFlags returns the flags of a kube-apiserver that say which plugins it has, and where their
// configuration is.
func admissionFlags(pod *v1.Pod) []string {
	flags := []string{}
	for _, container := range pod.Spec.Containers {
		for _, flag := range slices.Concat(container.Command, container.Args) {
			for _, of := range []string{"--enable-admission-plugins=", "--disable-admission-plugins=", "--admission-control-config-file=", "--feature-gates="} {
				if strings.HasPrefix(flag, of) {
					flags = append(flags, flag)
				}
			}
		}
	}
	return flags
}
