// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy"
)

// fieldManager is in whose name everything is written.
const fieldManager = "kubectl-partition"

// Client reads and writes with the rights of its user.
type Client struct {
	Kube kubernetes.Interface
	// Namespace is that of the companion's Leases.
	Namespace string
}

// Installed returns an error if the companion is not on the cluster: nobody would take a request up.
// A user who may not read webhook configurations is told by the kinds that kube-apiserver serves.
func (c Client) Installed(ctx context.Context) error {
	missing := func(what string) error {
		return fmt.Errorf("the companion cpupolicy is not on this cluster: there is no %s %s; make install OPERATOR=cpupolicy installs it", what, Group)
	}
	if _, err := c.Kube.Discovery().ServerResourcesForGroupVersion(Group + "/v1alpha1"); apierrors.IsNotFound(err) {
		return missing("API group")
	} else if err != nil {
		return err
	}
	_, err := c.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, Group, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return missing("ValidatingWebhookConfiguration")
	case apierrors.IsForbidden(err):
		return nil
	}
	return err
}

// Nodes returns what is shown of all nodes.
func (c Client) Nodes(ctx context.Context) ([]Node, error) {
	list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes := []Node{}
	for i := range list.Items {
		nodes = append(nodes, NodeOf(&list.Items[i]))
	}
	return nodes, nil
}

// Node returns a Node. The error names it.
func (c Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no node %q", name)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	return node, nil
}

// LastWarning returns why a node could not be observed, by the newest Event of the companion that says so; empty if none
// does.
func (c Client) LastWarning(ctx context.Context, node *corev1.Node) (string, error) {
	list, err := c.Kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.SelectorFromSet(fields.Set{
		"involvedObject.kind": "Node", "involvedObject.name": node.Name, "involvedObject.uid": string(node.UID),
		"reportingComponent": Group, "type": corev1.EventTypeWarning, "reason": nodestatus.NotObserved,
	}).String()})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	last := func(e corev1.Event) time.Time {
		if e.Series != nil {
			return e.Series.LastObservedTime.Time
		}
		return e.EventTime.Time
	}
	return slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return last(a).Compare(last(b)) }).Message, nil
}

// Request is what is asked of a node.
type Request struct {
	Node   string
	Policy cpupolicy.Policy
	// AllowEvicted accepts that pods end because they no longer fit.
	AllowEvicted bool
	// DryRun has everything checked, and writes nothing.
	DryRun bool
}

// RefusedError says why a request was refused.
type RefusedError struct {
	Request Request
	Reasons []Reason
}

// Reason is one reason for a refusal.
type Reason struct {
	// Code is a code of operators/cpupolicy, or nodestatus.CauseObserved; empty if another webhook or policy refuses.
	Code metav1.CauseType
	// Object is what stands against it: a pod, a virtual machine or a node; it may be empty.
	Object string
	// Text is a sentence of one line.
	Text string
}

// Texts returns the sentences.
func (e *RefusedError) Texts() (texts []string) {
	for _, reason := range e.Reasons {
		texts = append(texts, reason.Text)
	}
	return texts
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("node %s: policy %s is refused: %s", e.Request.Node, e.Request.Policy, strings.Join(e.Texts(), "\n"))
}

// Ask asks for a policy, and returns the Node as it was written. If the cluster refuses, the error is
// a RefusedError. Warnings go to the handler of the client's configuration. An Event of the Node names the user, if that
// user may create Events.
func (c Client) Ask(ctx context.Context, r Request) (*corev1.Node, error) {
	if !slices.Contains(operation.Policies(), r.Policy) {
		return nil, fmt.Errorf("policy %q must be %s or %s", r.Policy, operation.Static, operation.None)
	}
	if err := c.Installed(ctx); err != nil {
		return nil, err
	}
	before, err := c.Node(ctx, r.Node)
	if err != nil {
		return nil, err
	}
	node, err := c.request(ctx, before, r)
	if err == nil && !r.DryRun {
		c.Say(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, nodestatus.PolicyRequested, nodestatus.RequestPolicy,
			fmt.Sprintf("has asked for the policy %s", r.Policy))
	}
	return node, err
}

// request is Ask for a Node as it was read, where the companion is installed.
func (c Client) request(ctx context.Context, before *corev1.Node, r Request) (*corev1.Node, error) {
	value := nodestatus.Status{State: nodestatus.Requested, Policy: r.Policy, AllowEvicted: r.AllowEvicted}.String()
	if before.Annotations[nodestatus.StatusAnnotation] == value {
		// Such a write changes nothing, so kube-apiserver would ask no webhook.
		return nil, &RefusedError{r, []Reason{{Text: "it is requested already"}}}
	}
	node, err := c.annotate(ctx, before, nodestatus.StatusAnnotation, &value, r.DryRun)
	if apierrors.IsConflict(err) && !isOutdated(err) {
		return nil, &RefusedError{r, reasons(err)}
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: policy %s was not requested: %w", r.Node, r.Policy, err)
	}
	return node, nil
}

// reasons returns why a request was refused: the causes of the companion's webhook, or what another has said.
func reasons(err error) (reasons []Reason) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []Reason{{Text: err.Error()}}
	}
	for _, cause := range status.Status().Details.Causes {
		reasons = append(reasons, Reason{cause.Type, cause.Field, cause.Message})
	}
	return reasons
}

// isOutdated reports whether a conflict is about the resource version. The refusal of a webhook is a
// conflict, too, and does not name the object.
func isOutdated(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// annotate writes an annotation of a Node, or removes it, as long as it is as it was before. The node
// itself may have been written meanwhile, which kubelets do all the time.
func (c Client) annotate(ctx context.Context, before *corev1.Node, key string, value *string, dryRun bool) (node *corev1.Node, err error) {
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	was, had := before.Annotations[key]
	at := before
	return node, retry.OnError(retry.DefaultBackoff, isOutdated, func() (err error) {
		if node, err = c.Kube.CoreV1().Nodes().Patch(ctx, at.Name, types.MergePatchType, patch(at.ResourceVersion, map[string]any{"annotations": map[string]*string{key: value}}, nil), options); !isOutdated(err) {
			return err
		}
		outdated := err
		if at, err = c.Node(ctx, before.Name); err != nil {
			return err
		}
		if is, has := at.Annotations[key]; is != was || has != had {
			return fmt.Errorf("the annotation %s was %q, and is %q now; nothing was written", key, was, is)
		}
		return outdated
	})
}

// patch returns a merge patch that is about one resource version.
func patch(resourceVersion string, metadata map[string]any, spec map[string]any) []byte {
	metadata["resourceVersion"] = resourceVersion
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	data, err := json.Marshal(change)
	if err != nil {
		panic(err) // texts alone
	}
	return data
}

// again is the pause before a node is watched again.
const again = time.Second

// Follow follows a request from the Node as Ask returned it, until it has ended, and calls seen with
// each state. It goes on where the connection breaks: kube-apiserver may be on the node. The error is
// the context's if that ends first. In any case the node is as it was seen last.
func (c Client) Follow(ctx context.Context, object *corev1.Node, seen func(Node)) (Node, error) {
	f := following{asked: NodeOf(object), seen: seen}
	done, err := f.look(object)
	for !done && err == nil {
		if done, err = c.watch(ctx, &f, object); done || err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return f.last, ctx.Err()
		case <-time.After(again):
		}
		node, failed := c.Kube.CoreV1().Nodes().Get(ctx, object.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(failed):
			err = f.gone()
		case isFinal(failed):
			err = fmt.Errorf("node %s: %w", object.Name, failed)
		case failed == nil:
			object = node
			done, err = f.look(object)
		}
	}
	return f.last, err
}

// watch looks at a node each time it changes, until the request or the connection has ended.
func (c Client) watch(ctx context.Context, f *following, from *corev1.Node) (done bool, err error) {
	changes, err := c.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", from.Name).String(), ResourceVersion: from.ResourceVersion,
	})
	if isFinal(err) {
		return false, fmt.Errorf("node %s: %w", from.Name, err)
	}
	if err != nil {
		return false, nil
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil // the caller says so
		case change, open := <-changes.ResultChan():
			node, is := change.Object.(*corev1.Node)
			switch {
			case !open || !is:
				return false, nil // what is no node is an error, and the last event
			case node.Name != from.Name:
			case change.Type == watch.Deleted:
				return false, f.gone()
			default:
				if done, err := f.look(node); done || err != nil {
					return done, err
				}
			}
		}
	}
}

// isFinal reports whether another try would get the same answer.
func isFinal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// following is a request, and what was seen of it.
type following struct {
	asked, last Node
	seen        func(Node)
}

// look reports whether the request has ended. The error says that the node is about another one.
func (f *following) look(object *corev1.Node) (done bool, err error) {
	now := NodeOf(object)
	f.asked.Operation = cmp.Or(f.asked.Operation, now.Operation)
	switch {
	case len(now.Unreadable) > 0 && now.State == "":
		return false, fmt.Errorf("node %s: %s", now.Name, now.Unreadable[0])
	case now.State == "":
		return false, fmt.Errorf("node %s: the request for the policy %s was withdrawn", now.Name, f.asked.Requested)
	case now.Operation != f.asked.Operation || now.Requested != f.asked.Requested:
		return false, fmt.Errorf("node %s: another request has followed, for the policy %s", now.Name, now.Requested)
	}
	f.last = now
	f.seen(now)
	return !now.UnderWay(), nil
}

func (f *following) gone() error { return fmt.Errorf("node %s was deleted", f.asked.Name) }
