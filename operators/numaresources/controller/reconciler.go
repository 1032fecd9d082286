// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodegroup"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/operand"
)

// reconciler has exporters run on the groups of the NUMAResourcesOperator, and says what they report.
type reconciler struct {
	// client writes, and reads from the cache; live reads from the API.
	client   client.Client
	live     client.Reader
	operand  *operand.Operand
	settings *Settings
	now      func() time.Time
}

// problem is why something is not as the spec says.
type problem struct{ reason, message string }

// The reasons of conditions.
const (
	reasonAsExpected           = "AsExpected"
	reasonInvalidGroup         = "InvalidGroup"
	reasonGroupsOverlap        = "GroupsOverlap"
	reasonKubeletConfigInvalid = "KubeletConfigInvalid"
	reasonNotReadable          = "KubeletConfigsNotReadable"
	reasonFailed               = "Failed"
	reasonNodes                = "NodesAffected"
	reasonNoNodes              = "NoNodes"
	reasonPaused               = "Paused"
	reasonNotReported          = "NotReported"
)

// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesoperators,verbs=list;watch
// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesoperators/status,verbs=update
// +kubebuilder:rbac:groups=nodetopology.openshift.io,resources=numaresourcesoperators/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=topology.node.k8s.io,resources=noderesourcetopologies,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,namespace=exporter,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,namespace=exporter,verbs=list;watch;create;patch;delete

// Reconcile makes everything as the spec says. There is one object, so the request says nothing.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	owner := &nodetopologyv1.NUMAResourcesOperator{}
	err := r.client.Get(ctx, client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}, owner)
	if apierrors.IsNotFound(err) || err == nil && owner.DeletionTimestamp != nil {
		left, pruneErr := r.prune(ctx, nil)
		return r.again(left, errors.Join(r.operand.Apply(ctx), pruneErr))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	before := owner.DeepCopy()
	status := &owner.Status
	status.ObservedGeneration = owner.Generation
	if nodegroup.Paused(owner) {
		set(owner, nodetopologyv1.ConditionPaused, metav1.ConditionTrue, reasonPaused, "the object has the annotation "+nodegroup.PausedAnnotation)
		return r.again(false, r.updateStatus(ctx, before, owner))
	}
	set(owner, nodetopologyv1.ConditionPaused, metav1.ConditionFalse, reasonAsExpected, "")

	left, err := r.act(ctx, owner)
	if err != nil {
		set(owner, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, reasonFailed, short([]string{err.Error()}))
	}
	return r.again(left, errors.Join(err, r.updateStatus(ctx, before, owner)))
}

// again says when to look again.
func (r *reconciler) again(left bool, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: behind}, nil
	case err != nil:
		return reconcile.Result{}, err
	case left:
		return reconcile.Result{RequeueAfter: r.settings.soon()}, nil
	}
	return reconcile.Result{RequeueAfter: r.settings.Period.Duration}, nil
}

// behind is how long the cache is behind what was written, about.
const behind = 200 * time.Millisecond

// act makes everything as the spec says, and writes into the status, in memory, what has become of it. left says that something
// may have to be removed again.
func (r *reconciler) act(ctx context.Context, owner *nodetopologyv1.NUMAResourcesOperator) (left bool, err error) {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes); err != nil {
		return false, err
	}
	groups, problems, err := r.resolve(ctx, owner.Spec, nodes.Items)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(problems, func(p problem) bool { return p.reason == reasonInvalidGroup }) {
		// Which nodes an invalid group would have is not known, so nothing that runs is touched.
		degraded(owner, problems)
		return false, nil
	}
	var objects []*unstructured.Unstructured
	for _, g := range groups {
		of, err := r.operands(owner, g)
		if err != nil {
			return false, fmt.Errorf("group %s: %w", g.name, err)
		}
		objects = append(objects, of...)
	}
	if err := r.operand.Apply(ctx, objects...); err != nil {
		return false, err
	}
	if left, err = r.prune(ctx, groups); err != nil {
		return left, err
	}
	more, err := r.observe(ctx, owner, groups)
	degraded(owner, append(problems, more...))
	return left, err
}

func degraded(owner *nodetopologyv1.NUMAResourcesOperator, problems []problem) {
	if len(problems) == 0 {
		set(owner, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse, reasonAsExpected, "")
		return
	}
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.message)
	}
	set(owner, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, problems[0].reason, short(messages))
}

// prune deletes what exporters of ours have written of nodes that are in no group now. left says that some was there: an
// exporter that has not ended yet may write it again. With a Node, Kubernetes' garbage collector deletes it.
func (r *reconciler) prune(ctx context.Context, groups []*group) (left bool, err error) {
	served := map[string]bool{}
	for _, g := range groups {
		for _, node := range g.nodes {
			served[node.Name] = true
		}
	}
	var written v1alpha2.NodeResourceTopologyList
	if err := r.client.List(ctx, &written, client.MatchingLabels{companion.OwnerLabel: Name}); err != nil {
		return false, err
	}
	var errs []error
	for i := range written.Items {
		object := &written.Items[i]
		if served[object.Name] {
			continue
		}
		node := &corev1.Node{}
		switch err := r.live.Get(ctx, client.ObjectKey{Name: object.Name}, node); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		case slices.ContainsFunc(groups, func(g *group) bool {
			return numaresources.Has(g.selectors, node) && !slices.Contains(g.without, node.Name)
		}):
			continue // the cache is behind
		}
		left = true
		if err := client.IgnoreNotFound(r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID})); err != nil {
			errs = append(errs, fmt.Errorf("NodeResourceTopology %s: %w", object.Name, err))
			continue
		}
		klog.FromContext(ctx).Info("Deleted the NodeResourceTopology of a node that is in no group", "node", object.Name)
	}
	return left, errors.Join(errs...)
}

// observe writes into the status what exporters report and how far they are. Problems are what Degraded says besides.
func (r *reconciler) observe(ctx context.Context, owner *nodetopologyv1.NUMAResourcesOperator, groups []*group) (problems []problem, err error) {
	var sets appsv1.DaemonSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(r.settings.ExporterNamespace)); err != nil {
		return nil, err
	}
	var written v1alpha2.NodeResourceTopologyList
	if err := r.client.List(ctx, &written); err != nil {
		return nil, err
	}
	of := map[string]*v1alpha2.NodeResourceTopology{}
	for i := range written.Items {
		of[written.Items[i].Name] = &written.Items[i]
	}
	wanted, readable, invalid, err := r.wanted(ctx)
	drift := metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonAsExpected}
	switch {
	case err != nil:
		return nil, err
	case !readable:
		drift = metav1.Condition{Status: metav1.ConditionUnknown, Reason: reasonNotReadable, Message: "the ConfigMaps of the namespace " + numaresources.KubeletConfigNamespace + " may not be read; a cluster with KubeletConfigs there needs the manifests of deploy/numaresources/hosted"}
	}

	status := &owner.Status
	status.NodeGroups = nil
	now := r.now()
	var rolling, unknown, drifting, odd, driven, stale []string
	nodes := 0
	for _, g := range groups {
		in := nodetopologyv1.NodeGroupStatus{
			Name:      g.name,
			DaemonSet: nodetopologyv1.NamespacedName{Namespace: r.settings.ExporterNamespace, Name: objectName(g.name)},
			ConfigMap: nodetopologyv1.NamespacedName{Namespace: r.settings.ExporterNamespace, Name: objectName(g.name)},
			Nodes:     int32(len(g.nodes)),
		}
		nodes += len(g.nodes)
		kubelets := map[string]numaresources.Kubelet{}
		for _, node := range g.nodes {
			report := of[node.Name]
			if report == nil || numaresources.IsStale(report.Annotations, now) {
				if !g.config.Paused {
					stale = append(stale, fmt.Sprintf("node %s has no report that is new enough", node.Name))
				}
				continue
			}
			in.Reported++
			if driver := numaresources.CPUDriverOf(report.Attributes); driver != "" {
				driven = append(driven, fmt.Sprintf("node %s: the DRA driver %s gives its CPUs, and the kubelet does not know which, so its zones offer none", node.Name, driver))
			}
			kubelet, known := numaresources.KubeletOf(report.Attributes)
			if !known {
				unknown = append(unknown, fmt.Sprintf("node %s: %s", node.Name, explain(kubelet.Unknown)))
				continue
			}
			kubelets[node.Name] = kubelet
			if want, ok := wanted[node.Labels[numaresources.NodePoolLabel]]; ok {
				for _, difference := range numaresources.Drift(node.Name, want, kubelet) {
					drifting = append(drifting, difference.String())
				}
			}
		}
		for _, difference := range numaresources.Odd(kubelets) {
			odd = append(odd, fmt.Sprintf("group %s: node %s has %s %s, most of the group have %s", g.name, difference.Node, difference.Attribute, difference.Is, difference.Want))
		}
		progress := operand.Progress{Reason: operand.NotSeen, Message: "DaemonSet " + objectName(g.name) + " has just been made"}
		for i := range sets.Items {
			if sets.Items[i].Name == objectName(g.name) {
				progress = operand.OfDaemonSet(&sets.Items[i])
			}
		}
		if !progress.Done {
			rolling = append(rolling, progress.Message)
		}
		status.NodeGroups = append(status.NodeGroups, in)
	}
	setNodes(owner, nodetopologyv1.ConditionPolicyUnknown, unknown)
	setNodes(owner, nodetopologyv1.ConditionNodesDiffer, odd)
	setNodes(owner, nodetopologyv1.ConditionCPUDriver, driven)
	setNodes(owner, nodetopologyv1.ConditionStale, stale)
	if since := meta.FindStatusCondition(status.Conditions, nodetopologyv1.ConditionStale).LastTransitionTime; len(stale) > 0 && len(rolling) == 0 && now.Sub(since.Time) >= r.settings.Period.Duration {
		// An exporter that has just started reports in a moment. One that still has not may not get to the kubelet's socket.
		invalid = append(invalid, problem{reasonNotReported, "exporters run and do not report, and their logs say why: " + short(stale)})
	}
	if len(drifting) > 0 {
		drift = metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonNodes, Message: short(drifting)}
	}
	set(owner, nodetopologyv1.ConditionKubeletConfigDrift, drift.Status, drift.Reason, drift.Message)
	if len(rolling) > 0 {
		set(owner, nodetopologyv1.ConditionProgressing, metav1.ConditionTrue, operand.RollingOut, short(rolling))
	} else {
		set(owner, nodetopologyv1.ConditionProgressing, metav1.ConditionFalse, reasonAsExpected, "")
	}
	switch {
	case nodes == 0:
		set(owner, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, reasonNoNodes, "no group has a node")
	case len(stale) > 0 || len(rolling) > 0:
		set(owner, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, reasonNotReported, short(append(rolling, stale...)))
	default:
		set(owner, nodetopologyv1.ConditionAvailable, metav1.ConditionTrue, reasonAsExpected, "")
	}
	return invalid, nil
}

// explain says what to do about a policy that is not known.
func explain(code numaresources.PolicyUnknown) string {
	switch code {
	case numaresources.CertificateNotVerified:
		return string(code) + ": no CA vouches for the kubelet's serving certificate; set kubeletCA or kubeletCertificate in the settings"
	case numaresources.ConfigzForbidden:
		return string(code) + ": the kubelet does not let the exporter get nodes/configz"
	case numaresources.ConfigzNotServed:
		return string(code) + ": the kubelet serves no configz; it may have enableDebuggingHandlers: false"
	case "":
		return "another exporter wrote its NodeResourceTopology"
	}
	return string(code)
}

func setNodes(owner *nodetopologyv1.NUMAResourcesOperator, kind string, messages []string) {
	if len(messages) == 0 {
		set(owner, kind, metav1.ConditionFalse, reasonAsExpected, "")
		return
	}
	set(owner, kind, metav1.ConditionTrue, reasonNodes, short(messages))
}

// mostMessages and longestMessage bound what a condition says; the API takes 32768 bytes.
const (
	mostMessages   = 10
	longestMessage = 4096
)

func short(messages []string) string {
	return untrusted.Abbreviate(strings.Join(untrusted.First(messages, mostMessages), "; "), longestMessage)
}

func set(owner *nodetopologyv1.NUMAResourcesOperator, kind string, status metav1.ConditionStatus, reason, message string) {
	setCondition(&owner.Status.Conditions, owner.Generation, kind, status, reason, message)
}

func setCondition(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation})
}

// updateStatus writes the status of an object if it is another one than before. The rest of the object is as before.
func (r *reconciler) updateStatus(ctx context.Context, before, owner client.Object) error {
	if equality.Semantic.DeepEqual(before, owner) {
		return nil
	}
	return r.client.Status().Update(ctx, owner)
}
