// SPDX-License-Identifier: Apache-2.0

// Package inspect asks a cluster about its workload classes with the credentials of the user: what
// each node does and why it is still there, and whether the companion could answer. It writes nothing.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/workloadclasses"
)

// Namespace is where the companion is installed, and its rules are.
const Namespace = "partition-workloadclasses"

// Client asks a cluster.
type Client struct {
	Kube      kubernetes.Interface
	Namespace string
}

// Rules reads the rules that are installed: the key rules.yaml of the ConfigMap rules.
func (c Client) Rules(ctx context.Context) (*workloadclasses.Config, error) {
	object, err := c.Kube.CoreV1().ConfigMaps(c.Namespace).Get(ctx, "rules", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	config, err := workloadclasses.ReadConfig([]byte(object.Data["rules.yaml"]))
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/rules, key rules.yaml: %w", c.Namespace, err)
	}
	return config, nil
}

// Class is a class and its nodes.
type Class struct {
	Name string `json:"name"`
	// Waiting is how many of its pods are Unschedulable.
	Waiting int `json:"waiting"`
	// Missed is how many pods should have the class and have none, since nobody answered the webhook.
	Missed int    `json:"missed"`
	Nodes  []Node `json:"nodes"`
}

// Count returns how many nodes are in a state.
func (c *Class) Count(state string) (n int) {
	for _, node := range c.Nodes {
		if node.State == state {
			n++
		}
	}
	return n
}

// Leaving is the state of a node that is given back, beside those of workloadclasses.State.
const Leaving = "Leaving"

// Node is one node of a class.
type Node struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Since is when it got this state; zero in state None.
	Since     time.Time `json:"since,omitzero"`
	Precluded bool      `json:"precluded,omitempty"`
	// Pods is how many pods hold it.
	Pods int `json:"pods"`
	// HeldBy is the pod that has held it longest, and HeldSince when that was created.
	HeldBy    string    `json:"heldBy,omitempty"`
	HeldSince time.Time `json:"heldSince,omitzero"`
	// Why says why the node is still there.
	Why string `json:"why,omitempty"`
}

// Classes returns all classes with their nodes, by name.
func (c Client) Classes(ctx context.Context, config *workloadclasses.Config, now time.Time) ([]Class, error) {
	nodes, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	byNode, waiting, missed := map[string][]corev1.Pod{}, map[string]int{}, map[string]int{}
	options := metav1.ListOptions{Limit: 500}
	for {
		pods, err := c.Kube.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			if class := config.Missed(&pod); class != nil {
				missed[class.Name]++
			}
			if pod.Spec.NodeName != "" {
				byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
			} else if workloadclasses.Unschedulable(&pod, now) {
				waiting[pod.Labels[workloadclasses.ClassLabel]]++
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			break
		}
	}
	var classes []Class
	for _, of := range config.Classes {
		class := Class{Name: of.Name, Waiting: waiting[of.Name], Missed: missed[of.Name]}
		for i := range nodes.Items {
			if in := config.ClassOfNode(nodes.Items[i].Labels); in != nil && in.Name == of.Name {
				class.Nodes = append(class.Nodes, nodeOf(&nodes.Items[i], byNode[nodes.Items[i].Name], class.Waiting, now))
			}
		}
		slices.SortFunc(class.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
		classes = append(classes, class)
	}
	slices.SortFunc(classes, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	return classes, nil
}

// nodeOf tells what stands on a node. It does not decide again: the controller knows more.
func nodeOf(node *corev1.Node, pods []corev1.Pod, waiting int, now time.Time) Node {
	record, _ := workloadclasses.RecordOf(node)
	n := Node{Name: node.Name, State: string(record.State), Since: record.Since}
	if n.State == "" || n.State == string(workloadclasses.None) {
		n.State, n.Since = string(workloadclasses.None), time.Time{}
	}
	_, n.Precluded = node.Annotations[workloadclasses.PrecludeAnnotation]
	for i := range pods {
		pod := &pods[i]
		if !workloadclasses.Holds(pod, now) {
			continue
		}
		if n.Pods++; n.HeldBy == "" || pod.CreationTimestamp.Time.Before(n.HeldSince) {
			n.HeldBy, n.HeldSince = pod.Namespace+"/"+pod.Name, pod.CreationTimestamp.Time
		}
	}
	o, err := workloadclasses.OperationOf(node)
	held := workloadclasses.Held(node)
	switch {
	case err == nil && o.ID != "":
		n.State, n.Since = Leaving, o.Since
		n.Why = fmt.Sprintf("it is given back: %s", o.Phase)
		if o.Reason != "" {
			n.Why = fmt.Sprintf("it is not given back: %s", o.Reason)
		}
	case held != "":
		n.Why = held
	case n.Pods > 0:
		n.Why = fmt.Sprintf("pod %s runs on it", n.HeldBy)
		if n.Pods > 1 {
			n.Why = fmt.Sprintf("pod %s and %d more run on it", n.HeldBy, n.Pods-1)
		}
	case waiting > 0:
		n.Why = "pods of the class wait"
	case n.State == string(workloadclasses.NoSchedule):
		n.Why = "it is empty, and is the next to go; an Event of the node says what keeps it"
	default:
		n.Why = "it is empty; it is too young, kept by the minimum, or others go first"
	}
	return n
}

// Check is one thing that must be so before the webhook is installed.
type Check struct {
	// Name is a stable code.
	Name   string `json:"name"`
	Object string `json:"object"`
	OK     bool   `json:"ok"`
	// Detail is a sentence.
	Detail string `json:"detail"`
}

// Verify returns what must hold between the Deployments and the webhook: whether the companion could
// answer, whether its rules can be read, and whether each class has what its pods would ask for.
func (c Client) Verify(ctx context.Context) ([]Check, error) {
	var checks []Check
	add := func(name, object string, problem string, detail string) {
		if problem != "" {
			detail = problem
		}
		checks = append(checks, Check{name, object, problem == "", detail})
	}
	for _, name := range []string{"partition-controller", "partition-webhooks"} {
		deployment, err := c.Kube.AppsV1().Deployments(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		problem := "it is not there: apply deployment.yaml"
		if err == nil {
			problem = unavailable(deployment)
		}
		add("DeploymentAvailable", "Deployment "+c.Namespace+"/"+name, problem, "it is available")
	}
	endpoints, err := c.Kube.DiscoveryV1().EndpointSlices(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=partition-webhooks"})
	if err != nil {
		return nil, err
	}
	ready := 0
	for _, slice := range endpoints.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	problem := ""
	if ready == 0 {
		problem = "no pod of it is ready: kube-apiserver could not call the webhook"
	}
	add("EndpointsReady", "Service "+c.Namespace+"/partition-webhooks", problem, fmt.Sprintf("%d endpoints are ready", ready))

	config, err := c.Rules(ctx)
	if err != nil {
		add("RulesValid", "ConfigMap "+c.Namespace+"/rules", err.Error(), "")
		return checks, nil
	}
	add("RulesValid", "ConfigMap "+c.Namespace+"/rules", "", fmt.Sprintf("%d classes and %d rules", len(config.Classes), len(config.Rules)))
	nodes, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range config.Classes {
		class := &config.Classes[i]
		if class.RuntimeClassName != "" {
			problem, err := c.runtimeClass(ctx, class)
			if err != nil {
				return nil, err
			}
			add("RuntimeClassFits", "RuntimeClass "+class.RuntimeClassName, problem, "its scheduling is that of class "+class.Name)
		}
		object, problem, usable := "class "+class.Name, "", 0
		for j := range nodes.Items {
			node := &nodes.Items[j]
			if of := config.ClassOfNode(node.Labels); of == nil || of.Name != class.Name || !nodegroup.IsReady(node) {
				continue
			}
			if taint := untolerated(class, node); taint != "" {
				problem = fmt.Sprintf("node %s has the taint %s, which pods of the class do not tolerate", node.Name, taint)
				continue
			}
			usable++
		}
		if usable == 0 && problem == "" {
			problem = fmt.Sprintf("no node that is Ready has the labels %v: scale its set up to one", class.NodeSelector)
		}
		add("NodesReady", object, problem, fmt.Sprintf("%d nodes are Ready", usable))
	}
	return checks, nil
}

// unavailable returns why a Deployment cannot be relied on.
func unavailable(d *appsv1.Deployment) string {
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status == corev1.ConditionTrue && d.Status.ObservedGeneration >= d.Generation {
			return ""
		}
	}
	return fmt.Sprintf("%d of its %d replicas are available", d.Status.AvailableReplicas, *d.Spec.Replicas)
}

// runtimeClass returns why the RuntimeClass of a class does not suit it: kube-apiserver would refuse
// its pods.
func (c Client) runtimeClass(ctx context.Context, class *workloadclasses.Class) (string, error) {
	object, err := c.Kube.NodeV1().RuntimeClasses().Get(ctx, class.RuntimeClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "it is not there: pods of class " + class.Name + " get no overhead; apply admin.yaml", nil
	}
	if err != nil {
		return "", err
	}
	if object.Scheduling == nil {
		return "", nil
	}
	for _, key := range slices.Sorted(maps.Keys(object.Scheduling.NodeSelector)) {
		if value := object.Scheduling.NodeSelector[key]; class.NodeSelector[key] != value {
			return fmt.Sprintf("its scheduling.nodeSelector[%s] is %q, and that of class %s is %q: its pods would be refused, or find no node", key, value, class.Name, class.NodeSelector[key]), nil
		}
	}
	return "", nil
}

// untolerated returns a taint of a node, not one of ours or of its condition, that keeps off pods of a class.
func untolerated(class *workloadclasses.Class, node *corev1.Node) string {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule, taint.Key == workloadclasses.BlockTaint, taint.Key == workloadclasses.EvictTaint, taint.Key == corev1.TaintNodeUnschedulable:
			continue
		}
		if !slices.ContainsFunc(class.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) }) {
			return taint.ToString()
		}
	}
	return ""
}
