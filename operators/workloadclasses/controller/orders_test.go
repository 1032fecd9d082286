// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/partition"
)

// managementPod asks for the pool of its node.
func (w *world) managementPod(prefix string) *corev1.Pod {
	pod := w.pod(prefix, "100m")
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	pod.Annotations = map[string]string{"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`}
	return pod
}

// The plugin that partitions pods and the webhook that gives them a class come to the same pod, whichever is first:
// kube-apiserver asks each again after the other has changed something.
func TestPluginAndWebhookInBothOrders(t *testing.T) {
	config, err := newRules(filepath.Join(companiontest.Base(Name), "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	overhead := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}
	plugin := func(pod *corev1.Pod) {
		partition.Mutate(partition.V1(pod), partition.Policy{Gate: partition.AnyType})
	}
	webhook := func(pod *corev1.Pod) {
		config.current.Load().Mutate(pod, "ci-op-x", workloadclasses.Cluster{
			RuntimeClass: func(name string) (corev1.ResourceList, bool) {
				if name == "ci-scheduler-runtime-prowjobs" {
					return nil, true
				}
				return overhead, true
			},
			Precluded: func(string) string { return "n1" },
		})
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		// class is the RuntimeClass.
		class string
	}{
		"a management pod": {func(*corev1.Pod) {}, ""},
		"one that limits its memory": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}, ""},
		"one with an init container": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Resources: *p.Spec.Containers[0].Resources.DeepCopy()}}
		}, ""},
		"a build that asks for the pool": {func(p *corev1.Pod) { p.Labels = map[string]string{"openshift.io/build.name": "b"} }, ""},
		"one that the plugin leaves, and so an ordinary one": {func(p *corev1.Pod) {
			delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceMemory)
		}, "ci-scheduler-runtime-tests"},
		"an ordinary pod": {func(p *corev1.Pod) { p.Annotations = nil }, "ci-scheduler-runtime-tests"},
	} {
		t.Run(name, func(t *testing.T) {
			var results []*corev1.Pod
			for _, order := range [][]func(*corev1.Pod){{plugin, webhook, plugin, webhook}, {webhook, plugin, webhook, plugin}, {webhook, plugin, webhook, plugin, webhook, plugin, plugin}} {
				pod := (&world{}).managementPod("a")
				test.change(pod)
				for _, step := range order {
					step(pod)
				}
				results = append(results, pod)
			}
			for _, pod := range results {
				if !equality.Semantic.DeepEqual(pod, results[0]) {
					t.Errorf("it depends on the order:\n%+v\n%+v", results[0], pod)
				}
				if class := ptr.Deref(pod.Spec.RuntimeClassName, ""); class != test.class {
					t.Errorf("RuntimeClass %q, want %q", class, test.class)
				}
			}
		})
	}
}

// The same in one kube-apiserver, with the real plugin, webhook and RuntimeClass admission.
func TestAPartitionedPodHasAClassAndNoOverhead(t *testing.T) {
	w := newPlane(t)
	for _, name := range []string{"with-a-pool", "with-another"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := w.Client.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Client.Delete(context.Background(), node) })
		node.Status.Capacity = corev1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse("2000")}
		node.Status.Allocatable = node.Status.Capacity
		if err := w.Client.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	namespace := &corev1.Namespace{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "ci-op-x"}, namespace); err != nil {
		t.Fatal(err)
	}
	before := namespace.DeepCopy()
	namespace.Annotations = map[string]string{"workload.openshift.io/allowed": "management"}
	if err := w.Client.Patch(t.Context(), namespace, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after := namespace.DeepCopy()
		after.Annotations = nil
		_ = w.Client.Patch(context.Background(), after, client.MergeFrom(namespace))
	})
	cores := corev1.ResourceName("management.workload.openshift.io/cores")
	w.eventually(func() error { // the type becomes active
		pod := w.managementPod("management")
		if err := w.Client.Create(t.Context(), pod); err != nil {
			return err
		}
		requests := pod.Spec.Containers[0].Resources.Requests
		if _, ok := requests[cores]; !ok {
			return fmt.Errorf("the pod is not partitioned: %v %v", requests, pod.Annotations)
		}
		if !requests.Cpu().IsZero() || pod.Spec.RuntimeClassName != nil || pod.Spec.Overhead != nil {
			t.Errorf("a partitioned pod asks for %v, RuntimeClass %v, overhead %v", requests, pod.Spec.RuntimeClassName, pod.Spec.Overhead)
		}
		if pod.Labels[workloadclasses.ClassLabel] != "tests" || pod.Spec.NodeSelector["ci-workload"] != "tests" || len(pod.Spec.Tolerations) == 0 {
			t.Errorf("a partitioned pod has labels %v, selector %v and tolerations %v", pod.Labels, pod.Spec.NodeSelector, pod.Spec.Tolerations)
		}
		return nil
	})
	// A pod beside it that asks for no pool has the whole class, and so has one that the plugin leaves: without its
	// CPU request it would have none.
	left := w.managementPod("left")
	delete(left.Spec.Containers[0].Resources.Requests, corev1.ResourceMemory)
	for _, pod := range []*corev1.Pod{w.pod("ordinary", "100m"), left} {
		if err := w.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.hasWholeClass(pod)
	}
}

func (w *world) hasWholeClass(pod *corev1.Pod) {
	w.t.Helper()
	if pod.Spec.RuntimeClassName == nil || pod.Spec.Overhead.Cpu().String() != "300m" || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
		w.t.Errorf("an ordinary pod has RuntimeClass %v, overhead %v, requests %v", pod.Spec.RuntimeClassName, pod.Spec.Overhead, pod.Spec.Containers[0].Resources.Requests)
	}
}

// Two replicas of the webhook, of which the second has just started, answer alike about the precluded node, too.
func TestReplicasAnswerAlike(t *testing.T) {
	w := newPlane(t)
	first := w.Webhooks()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "precluded", Labels: map[string]string{"ci-workload": "tests"}, Annotations: map[string]string{workloadclasses.PrecludeAnnotation: "tests"}}}
	// The controller would take the annotation away: its class has one node.
	node.Annotations["workload.openshift.io/paused"] = ""
	if err := w.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), node) })
	w.FreeLease(t)
	w.start(func(s *Settings) { s.Machines = NoMachines })
	second := w.Webhooks()
	if first == second {
		t.Fatal("there is one replica")
	}
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(address string, pod *corev1.Pod) string {
		t.Helper()
		response, err := caller.Post(address+webhookPath, "application/json", bytes.NewReader(review(t, pod)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer admissionv1.AdmissionReview
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return string(answer.Response.Patch)
	}
	w.eventually(func() error { // both have seen the node
		for _, address := range []string{first, second} {
			if patch := ask(address, w.pod("a", "100m")); !bytes.Contains([]byte(patch), []byte(`"precluded"`)) {
				return fmt.Errorf("%s answers %s", address, patch)
			}
		}
		return nil
	})
	for name, change := range map[string]func(*corev1.Pod){
		"a pod":            func(*corev1.Pod) {},
		"a build":          func(p *corev1.Pod) { p.Labels = map[string]string{"openshift.io/build.name": "b"} },
		"a long test":      func(p *corev1.Pod) { p.GenerateName = "e2e-upgrade-" },
		"a management pod": func(p *corev1.Pod) { p.Annotations = w.managementPod("a").Annotations },
		"one with a class": func(p *corev1.Pod) { p.Labels = map[string]string{"ci-workload": "builds"} },
	} {
		pod := w.pod("e2e", "100m")
		change(pod)
		var answers []string
		for range 5 {
			answers = append(answers, ask(first, pod), ask(second, pod))
		}
		for _, answer := range answers[1:] {
			if answer != answers[0] {
				t.Errorf("%s: one replica answers %s, and the other %s", name, answers[0], answer)
			}
		}
	}
}

// review is what kube-apiserver posts about a pod that is created in ci-op-x.
func review(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "a", Namespace: "ci-op-x", Operation: admissionv1.Create,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object: runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
