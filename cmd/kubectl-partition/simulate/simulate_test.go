// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// The cases that all callers of the core share.
func TestCases(t *testing.T) {
	namespaces := map[string]Namespace{}
	for _, n := range partitiontest.Namespaces() {
		namespaces[n.Name] = Namespace{Annotations: map[string]string{}}
		for key, value := range n.Annotations {
			namespaces[n.Name].Annotations[key] = value
		}
	}
	for _, c := range partitiontest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			got, err := Pod(c.Pod, namespaces[c.Namespace], Active(partitiontest.Type))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, c.Want)
			static, ok := c.OfStaticPod()
			if !ok {
				return
			}
			if got, err = StaticPod(c.Pod, Active(partitiontest.Type)); err != nil {
				t.Fatal(err)
			}
			compare(t, got, static)
		})
	}
}

func compare(t *testing.T, got Result, want partitiontest.Want) {
	t.Helper()
	if got.Decision.Outcome != want.Outcome || got.Decision.Reason != want.Reason {
		t.Errorf("got %s %s, want %s %s", got.Decision.Outcome, got.Decision.Reason, want.Outcome, want.Reason)
	}
	if message := strings.Join(got.Messages, "\n"); !strings.Contains(message, want.Text()) || (message == "") != (want.Reason == partition.NoReason) {
		t.Errorf("the messages are %q, want %q", message, want.Text())
	}
	if want.Pod != nil {
		if difference := want.Diff(got.Pod); difference != "" {
			t.Error(difference)
		}
	}
}

func TestNamespaceAndTypesDecideWhetherAPodIsPartitioned(t *testing.T) {
	limitRange := func(item v1.LimitRangeItem) Namespace {
		item.Type = v1.LimitTypeContainer
		return Namespace{LimitRanges: []*v1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}}}
	}
	quota := func(hard string, scopes ...v1.ResourceQuotaScope) Namespace {
		return Namespace{Quotas: []*v1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu"}, Spec: v1.ResourceQuotaSpec{Hard: podtest.List(hard), Scopes: scopes}}}}
	}
	for name, test := range map[string]struct {
		requests, limits string
		namespace        Namespace
		types            Types
		reason           partition.Reason
		// message is part of what the author is told.
		message string
	}{
		"nothing is known":                                   {requests: "cpu=400m memory=1Mi"},
		"the namespace has no annotations":                   {requests: "cpu=400m memory=1Mi", namespace: Namespace{Annotations: map[string]string{}}, reason: partition.ReasonNamespaceNotAnnotated},
		"the namespace allows another type":                  {requests: "cpu=400m memory=1Mi", namespace: Namespace{Annotations: map[string]string{partition.AllowedAnnotation: "infra"}}, reason: partition.ReasonNamespaceOtherTypes},
		"another type is active":                             {requests: "cpu=400m memory=1Mi", types: Active("infra"), reason: partition.ReasonTypeInactive},
		"a namespace that allows nothing hides inactivity":   {requests: "cpu=400m memory=1Mi", namespace: Namespace{Annotations: map[string]string{}}, types: Active(), reason: partition.ReasonNamespaceNotAnnotated},
		"an installer's decision hides the namespace":        {requests: "cpu=400m memory=1Mi", namespace: Namespace{Annotations: map[string]string{}}, types: partition.Always(partition.ReasonDecidedAgainst), reason: partition.ReasonDecidedAgainst},
		"limits alone make a pod Guaranteed":                 {limits: "cpu=1 memory=1Mi", reason: partition.ReasonGuaranteed},
		"limits alone of cpu leave nothing without it":       {limits: "cpu=1", reason: partition.ReasonQoSChange},
		"defaults of a LimitRange make a pod Guaranteed":     {requests: "memory=1Mi", limits: "memory=1Mi", namespace: limitRange(v1.LimitRangeItem{Default: podtest.List("cpu=1"), DefaultRequest: podtest.List("cpu=1")}), reason: partition.ReasonGuaranteed},
		"a maximum, which is a default, does so too":         {requests: "memory=1Mi", limits: "memory=1Mi", namespace: limitRange(v1.LimitRangeItem{Max: podtest.List("cpu=1")}), reason: partition.ReasonGuaranteed},
		"a LimitRange with a minimum constrains cpu":         {requests: "cpu=400m memory=1Mi", namespace: limitRange(v1.LimitRangeItem{Min: podtest.List("cpu=50m")}), reason: partition.ReasonNamespaceConstrainsCPU, message: `LimitRange "of-cpu": minimum cpu usage per Container is 50m`},
		"a quota on limits.cpu constrains it by its spec":    {requests: "cpu=400m memory=1Mi", limits: "cpu=1", namespace: quota("limits.cpu=10"), reason: partition.ReasonNamespaceConstrainsCPU, message: `ResourceQuota "of-cpu": must specify limits.cpu`},
		"a quota on requests.cpu is content with a zero":     {requests: "cpu=400m memory=1Mi", namespace: quota("requests.cpu=10")},
		"a quota for other pods constrains nothing":          {requests: "cpu=400m memory=1Mi", limits: "cpu=1", namespace: quota("limits.cpu=10", v1.ResourceQuotaScopeBestEffort)},
		"a LimitRange that refuses the pod anyhow is silent": {requests: "cpu=400m memory=1Mi", namespace: limitRange(v1.LimitRangeItem{Min: podtest.List("cpu=3")})},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod(map[string]string{partition.TargetAnnotation("management"): ""}, podtest.Container("c", test.requests, test.limits))
			before := pod.DeepCopy()
			got, err := Pod(pod, test.namespace, test.types)
			if err != nil {
				t.Fatal(err)
			}
			want := partition.Skipped
			switch test.reason {
			case partition.NoReason:
				want = partition.Partitioned
			case partition.ReasonNamespaceOtherTypes:
				want = partition.Refused
			}
			if got.Decision.Outcome != want || got.Decision.Reason != test.reason {
				t.Errorf("got %s %s, want %s %s", got.Decision.Outcome, got.Decision.Reason, want, test.reason)
			}
			if message := strings.Join(got.Messages, "\n"); !strings.Contains(message, test.message) {
				t.Errorf("the messages are %q, want %q", message, test.message)
			}
			if pod.String() != before.String() {
				t.Errorf("the given pod is now %s", pod)
			}
		})
	}
}

func TestPodsOfATemplateHaveNoWarningOfItsAuthor(t *testing.T) {
	template := &v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{partition.TargetAnnotation("management"): "", partition.WarningAnnotation: "of its author"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{podtest.Container("c", "cpu=400m memory=1Mi", "cpu=500m")}},
	}
	got, err := Template(template, Namespace{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, warned := got.Pod.Annotations[partition.WarningAnnotation]; warned || got.Decision.Outcome != partition.Partitioned || len(got.Messages) > 0 {
		t.Errorf("got %+v, want a partitioned pod without a warning", got)
	}
	if workloadType, ok := partition.PartitionedType(got.Pod); !ok || workloadType != "management" {
		t.Errorf("the kubelet would take the pod for one of type %q, %v", workloadType, ok)
	}
}

// A manifest that lacks everything is no reason to fail: lint reads such templates.
func TestAnEmptyPodIsOrdinary(t *testing.T) {
	got, err := Pod(&v1.Pod{}, Namespace{}, nil)
	if err != nil || got.Decision.Outcome != partition.Ordinary || got.Messages != nil {
		t.Errorf("got %+v, %v, want an ordinary pod", got, err)
	}
}
