// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/agentpod"
	"workload.openshift.io/operators/drain"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/rollout"
)

// A Job may be lost once the kubelet was stopped. Then nobody but the agent may say that nothing was changed.
func TestAnOperationThatHadAJobIsNotGivenUpUnseen(t *testing.T) {
	drained := &v1alpha1.CPUManagerPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Spec:       v1alpha1.CPUManagerPolicySpec{Policy: v1alpha1.PolicyStatic, Cordon: true, Drain: &v1alpha1.Drain{}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare"}}
	owned := pod.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
	const givenUp = "given up"
	for _, test := range []struct {
		name  string
		begun bool
		group *v1alpha1.CPUManagerPolicy
		pod   *corev1.Pod
		ran   time.Duration
		want  string
	}{
		{"without a group any more, before its Job", false, nil, nil, 0, givenUp},
		{"without a group any more, after its Job", true, nil, nil, 0, "settle"},
		{"with a pod that cannot be drained, before its Job", false, drained, pod, 0, givenUp},
		{"with a pod that cannot be drained, after its Job", true, drained, pod, 0, "run"},
		{"whose drain takes too long, before its Job", false, drained, owned, defaultDrainTimeout, givenUp},
		{"whose drain took long, after its Job", true, drained, owned, defaultDrainTimeout, "run"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status := nodestatus.Status{State: nodestatus.Running, Policy: cpupolicy.Static, ID: "a1", Group: "g", Since: clock().Add(-test.ran), Begun: test.begun}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{nodestatus.StatusAnnotation: status.String()}}}
			objects := []client.Object{node}
			if test.group != nil {
				objects = append(objects, test.group.DeepCopy())
			}
			c, pods := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(objects...).Build(), kubernetesfake.NewClientset()
			if test.pod != nil {
				pods = kubernetesfake.NewClientset(test.pod)
			}
			var settings Settings
			settings.Default()
			nodes := nodeclient.Client{Reader: c, Writer: c}
			r := runner{nodes: nodes, jobs: jobsIn(c, c, agentNamespace), drainer: drain.Drainer{Client: pods, Namespace: "partition-cpupolicy"}, config: settings, now: clock}

			result, err := r.Observe(t.Context(), "n1", "a1")
			if err == nil && result.Seen == rollout.Absent {
				err = r.Start(t.Context(), "n1", "a1")
			}
			if err != nil {
				t.Fatal(err)
			}
			var job batchv1.Job
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: jobName("n1", "a1")}, &job); err != nil {
				t.Fatal(err)
			}
			got := job.Spec.Template.Spec.Containers[0].Args[1]
			if jobsIn(c, c, agentNamespace).NeverRuns(&job) != "" {
				got = givenUp
			}
			if got != test.want {
				t.Errorf("the Job is %q (%v), want %q", got, job.Annotations, test.want)
			}
		})
	}
}

// Between the two writes the controller may end.
func TestAnOperationSaysThatItHasBegunBeforeItsJobIsThere(t *testing.T) {
	status := nodestatus.Status{State: nodestatus.Running, Policy: cpupolicy.Static, ID: "a1", Since: clock()}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{nodestatus.StatusAnnotation: status.String()}}}
	var writes []string
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			status, _ := statusOf(object.(*corev1.Node), "a1")
			writes = append(writes, fmt.Sprintf("begun %t", status.Begun))
			return c.Patch(ctx, object, patch, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes = append(writes, "Job "+object.GetName())
			return c.Create(ctx, object, options...)
		},
	}).Build()
	var settings Settings
	settings.Default()
	r := runner{nodes: nodeclient.Client{Reader: c, Writer: c}, jobs: jobsIn(c, c, agentNamespace), config: settings, now: clock}
	if err := r.Start(t.Context(), "n1", "a1"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"begun true", "Job " + jobName("n1", "a1")}; !slices.Equal(writes, want) {
		t.Errorf("the writes are %q, want %q", writes, want)
	}
}

// An agent that cannot read its journal has no result, and says so.
func TestAJobWithoutAResultHasItsLastReason(t *testing.T) {
	const damaged = "operation a1 may be under way: journal /var/lib/partition-agent/journal.json: unexpected end of JSON input"
	for name, test := range map[string]struct {
		said  string
		waits *corev1.ContainerStateWaiting
		ended bool
		want  rollout.Result
	}{
		"a pod has failed, and another one follows":    {damaged, nil, false, rollout.Result{Seen: rollout.UnderWay, Message: damaged}},
		"all pods have failed":                         {damaged, nil, true, rollout.Result{Seen: rollout.Absent, Message: damaged}},
		"a pod does not start":                         {"", &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}, false, rollout.Result{Seen: rollout.UnderWay, Message: "ImagePullBackOff: not found"}},
		"all pods were lost, and none has said a word": {"", nil, true, rollout.Result{Seen: rollout.Absent, Message: "BackoffLimitExceeded: it has failed 4 times"}},
	} {
		t.Run(name, func(t *testing.T) {
			status := nodestatus.Status{State: nodestatus.Running, Policy: cpupolicy.Static, ID: "a1", Since: clock(), Begun: true}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{nodestatus.StatusAnnotation: status.String()}}}
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: jobName("n1", "a1"), UID: "j1", Annotations: map[string]string{nodeAnnotation: "n1"}}}
			if test.ended {
				job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "BackoffLimitExceeded", Message: "it has failed 4 times"}}
			}
			pod := podOf(job, "p0", 1, test.said)
			if test.waits != nil {
				pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: test.waits}
			}
			c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(node, job, pod).Build()
			r := runner{nodes: nodeclient.Client{Reader: c, Writer: c}, jobs: jobsIn(c, c, agentNamespace), now: clock}
			if got, err := r.Observe(t.Context(), "n1", "a1"); err != nil || got != test.want {
				t.Errorf("it is %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// podOf returns a pod of a Job for the node n1 whose agent has ended.
func podOf(job *batchv1.Job, name string, code int32, said string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: name, Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: agentpod.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: said}},
	}}
	return pod
}
