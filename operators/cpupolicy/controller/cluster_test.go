// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

const (
	agentNamespace = "partition-cpupolicy-agent"
	patience       = time.Minute
)

// cluster is a control plane with the companion, and nodes that the test plays: there is no kubelet,
// no scheduler and no controller of Jobs.
type cluster struct {
	*companiontest.Installed
	*agents
	t testing.TB
}

// agents play the hosts.
type agents struct {
	// owner is the test that ends them.
	owner testing.TB
	// process is the replica that runs.
	process *testenv.Process

	mu    sync.Mutex
	hosts map[string]*host
}

// host is what a test plays of a node.
type host struct {
	policy operation.Policy
	// refused is why the agent would refuse a policy.
	refused map[operation.Policy]operation.Refusals
	// run, if set, says how a request ends, and when: it may block. Otherwise it succeeds.
	run func(operation.Request) operation.Result
	// runs counts how often each operation was begun: it has a journal, as the agent has, and a lock.
	runs    map[string]int
	results map[string]operation.Result
	busy    sync.Mutex
}

// hold keeps the agents of a host from going on, until it is told to let them or the test ends: the end of
// the cluster waits for them.
func (h *host) hold(t *testing.T) (goOn func()) {
	waits := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(waits) })
	t.Cleanup(goOn)
	h.run = func(request operation.Request) operation.Result {
		<-waits
		return operation.Result{ID: request.ID, Outcome: operation.Succeeded, Step: "report", Policy: request.Policy}
	}
	return goOn
}

// startCluster returns a cluster whose agents answer until the test ends, and starts the controllers.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{companiontest.Install(t, Name), &agents{owner: t, hosts: map[string]*host{}}, t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.playJobs(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	c.start()
	c.awaitWebhooks()
	return c
}

// awaitWebhooks waits until kube-apiserver can call the webhooks of a replica: it learns of their CA
// after the replica has written that, and their installation began without one.
func (c *cluster) awaitWebhooks() {
	c.t.Helper()
	const name = "asked-for-nothing"
	if err := c.Client.Create(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually(func() error {
		// A refusal is an answer, too.
		if err := (&user{Client: c.Client}).ask(name, requested, client.DryRunAll); apierrors.IsInternalError(err) {
			return err
		}
		return nil
	})
	if err := c.Client.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		c.t.Fatal(err)
	}
	c.cleanUp(c.t)
}

// in returns the cluster for a part of its test, whose nodes, Jobs and pods go with the part.
func (c *cluster) in(t *testing.T) *cluster {
	t.Cleanup(func() { c.cleanUp(t) })
	return &cluster{c.Installed, c.agents, t}
}

// start starts another replica, to which the webhooks go.
func (c *cluster) start() {
	c.t.Helper()
	c.process = c.Start(c.owner, nil)
	c.RouteWebhooks(c.t)
}

// kill kills the replica that runs, and starts another one.
func (c *cluster) kill() {
	c.t.Helper()
	c.process.Kill()
	c.FreeLease(c.t)
	c.start()
}

// cleanUp removes nodes, Jobs and pods, as their controllers would.
func (c *cluster) cleanUp(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.hosts {
		if err := client.IgnoreNotFound(c.Client.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})); err != nil {
			t.Error(err)
		}
	}
	clear(c.hosts)
	for _, object := range []client.Object{&batchv1.Job{}, &corev1.Pod{}} {
		if err := c.Client.DeleteAllOf(context.Background(), object, client.InNamespace(agentNamespace), client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Error(err)
		}
	}
}

// addNode adds a Ready node with four CPUs and the policy none.
func (c *cluster) addNode(name string, labels map[string]string) *host {
	c.t.Helper()
	h := &host{policy: operation.None, refused: map[operation.Policy]operation.Refusals{}, runs: map[string]int{}, results: map[string]operation.Result{}}
	c.mu.Lock()
	c.hosts[name] = h
	c.mu.Unlock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := c.Client.Create(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	node.Status.Capacity, node.Status.Allocatable = all, all.DeepCopy()
	node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3500m")
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Client.Status().Update(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	return h
}

// playJobs is the controller of Jobs, the scheduler, the kubelets and the agents.
func (c *cluster) playJobs(ctx context.Context) {
	begun := map[string]bool{}
	var running sync.WaitGroup
	defer running.Wait()
	for ctx.Err() == nil {
		var jobs batchv1.JobList
		if err := c.Client.List(ctx, &jobs, client.InNamespace(agentNamespace)); err == nil {
			for i := range jobs.Items {
				job := &jobs.Items[i]
				if begun[string(job.UID)] {
					continue
				}
				begun[string(job.UID)] = true
				running.Add(1)
				go func() {
					defer running.Done()
					if err := c.playJob(ctx, job); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
						c.owner.Errorf("Job %s: %v", job.Name, err)
					}
				}()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// playJob runs the pod of a Job, if that is to have one.
func (c *cluster) playJob(ctx context.Context, job *batchv1.Job) error {
	if *job.Spec.Completions == 0 {
		return c.complete(ctx, job)
	}
	node := job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, GenerateName: job.Name + "-", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: job.Spec.Template.Spec,
	}
	pod.Spec.NodeName = node
	if err := c.Client.Create(ctx, pod); err != nil {
		return err
	}
	text, ok := c.playAgent(node, job.Spec.Template.Spec.Containers[0].Args)
	if !ok {
		return nil // it runs on
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  pod.Spec.Containers[0].Name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text, FinishedAt: metav1.Now()}},
	}}
	if err := c.Client.Status().Update(ctx, pod); err != nil {
		return err
	}
	job.Status.Succeeded = 1
	return c.complete(ctx, job)
}

func (c *cluster) complete(ctx context.Context, job *batchv1.Job) error {
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime = &now, &now
	job.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	return c.Client.Status().Update(ctx, job)
}

// playAgent returns the termination message of partition-agent with these arguments; false if the
// node is gone.
func (c *cluster) playAgent(node string, args []string) (text string, ok bool) {
	c.mu.Lock()
	h := c.hosts[node]
	c.mu.Unlock()
	if h == nil {
		return "", false
	}
	if args[1] == "observe" {
		c.mu.Lock()
		defer c.mu.Unlock()
		data, err := json.Marshal(operation.Observation{
			Policy: h.policy, Refused: h.refused,
			Kubelet: &operation.Kubelet{Reserved: resource.MustParse("500m")},
		})
		return string(data), err == nil
	}
	var request operation.Request
	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, "--request="); is {
			var err error
			if request, err = operation.ParseRequest([]byte(value)); err != nil {
				return err.Error(), true
			}
		}
		if id, is := strings.CutPrefix(arg, "--operation="); is {
			request.ID = id
		}
	}
	h.busy.Lock()
	defer h.busy.Unlock()
	c.mu.Lock()
	result, known := h.results[request.ID]
	run := h.run
	c.mu.Unlock()
	switch {
	case known:
	case args[1] == "settle":
		result = operation.Result{ID: request.ID, Outcome: operation.Failed, Step: operation.StepValidate, Message: "it was given up before its first step"}
		c.mu.Lock()
		h.results[request.ID] = result
		c.mu.Unlock()
	default:
		result = operation.Result{ID: request.ID, Outcome: operation.Succeeded, Step: "report", Policy: request.Policy}
		if run != nil {
			result = run(request)
		}
		c.mu.Lock()
		h.runs[request.ID]++
		h.results[request.ID], h.policy = result, result.Policy
		c.mu.Unlock()
	}
	data, err := result.Encode()
	return string(data), err == nil
}

// ask writes a request, as a person does.
func (c *cluster) ask(node string, policy cpupolicy.Policy) error {
	return c.annotate(node, nodestatus.StatusAnnotation, fmt.Sprintf(`{"status":"requested","policy":%q}`, policy))
}

func (c *cluster) annotate(node, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	return c.Client.Patch(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch("application/merge-patch+json", patch))
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	var node corev1.Node
	if err := c.Client.Get(c.t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		c.t.Fatal(err)
	}
	return &node
}

func (c *cluster) status(name string) nodestatus.Status {
	c.t.Helper()
	status, _, err := nodestatus.ReadStatus(c.node(name).Annotations)
	if err != nil {
		c.t.Fatal(err)
	}
	return status
}

// awaitObserved waits until a node was observed in its present boot.
func (c *cluster) awaitObserved(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.eventually(func() error {
			if nodestatus.InForce(c.node(name)) == "" {
				return fmt.Errorf("node %s was not observed: %v", name, c.node(name).Annotations)
			}
			return nil
		})
	}
}

// awaitStatus waits until the operation of a node has a state, and its claim is gone if it has ended.
func (c *cluster) awaitStatus(name string, state nodestatus.State) nodestatus.Status {
	c.t.Helper()
	c.eventually(func() error {
		node, status := c.node(name), c.status(name)
		if status.State != state {
			return fmt.Errorf("node %s: the status is %s, want %s", name, status, state)
		}
		if !status.UnderWay() && node.Annotations["nodegroup.workload.openshift.io/claim"] != "" {
			return fmt.Errorf("node %s: the claim is still %s", name, node.Annotations["nodegroup.workload.openshift.io/claim"])
		}
		return nil
	})
	return c.status(name)
}

// says returns an error until an Event of a node has the reason, and the text in its message.
func (c *cluster) says(node, reason, text string) error {
	var events corev1.EventList
	if err := c.Client.List(c.t.Context(), &events); err != nil {
		return err
	}
	for _, event := range events.Items {
		if event.InvolvedObject.Name == node && event.Reason == reason && strings.Contains(event.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no Event %s of node %s has %q in its message", reason, node, text)
}

func (c *cluster) eventually(condition func() error) {
	c.t.Helper()
	testenv.Eventually(c.t, patience, condition)
}

// nodeAnnotation is on a Job, with the name of its node.
var nodeAnnotation = jobsIn(nil, nil, "").NodeAnnotation()
