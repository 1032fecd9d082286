// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/partition"
)

// TestOnlyPodsThatHaveNotEndedAreRead is about what kube-apiserver makes of the selector.
func TestOnlyPodsThatHaveNotEndedAreRead(t *testing.T) {
	i := companiontest.Install(t, Name)
	admin := hooks{i}.admin(t)
	for n, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed} {
		p := pod(fmt.Sprintf("read-%d", n), "read", "1")
		admin.create(t, p)
		p.Status.Phase = phase
		if err := admin.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	admin.create(t, pod("elsewhere", "other", "1"))
	situation := cpupolicy.Situation{Node: worker("read")}
	if err := (situations{reader: i.Client}).addPods(t.Context(), &situation); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range situation.Pods {
		names = append(names, p.Name)
	}
	if fmt.Sprint(names) != "[read-0 read-1]" || situation.MorePods {
		t.Errorf("the pods are %v, and more: %v", names, situation.MorePods)
	}
}

// TestPodsAreReadInPages plays a kube-apiserver with more pods of a node than are looked at.
func TestPodsAreReadInPages(t *testing.T) {
	for _, all := range []int{0, podsOfAPage, mostPods, mostPods + 1, 10 * mostPods} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			read := 0
			reader := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					var asked client.ListOptions
					asked.ApplyOptions(options)
					pods := list.(*corev1.PodList)
					for ; read < all && len(pods.Items) < int(asked.Limit); read++ {
						p := pod(fmt.Sprint("p", read), "n1", "1")
						p.Annotations = map[string]string{"large": "x", corev1.MirrorPodAnnotationKey: "m"}
						p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
						p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE"}}
						pods.Items = append(pods.Items, *p)
					}
					if read < all {
						pods.Continue = fmt.Sprint(read)
					}
					return nil
				},
			}).Build()
			situation := cpupolicy.Situation{Node: worker("n1")}
			if err := (situations{reader: reader}).addPods(t.Context(), &situation); err != nil {
				t.Fatal(err)
			}
			if len(situation.Pods) != min(all, mostPods) || situation.MorePods != (all > mostPods) || read > mostPods+podsOfAPage {
				t.Errorf("of %d pods, %d were read and %d are there; more: %v", all, read, len(situation.Pods), situation.MorePods)
			}
			for _, p := range situation.Pods {
				if len(p.Annotations) != 1 || len(p.ManagedFields)+len(p.Spec.Containers[0].Env) > 0 || p.Spec.Containers[0].Resources.Requests.Cpu().Value() != 1 {
					t.Fatalf("a pod is kept as %+v", p)
				}
			}
		})
	}
}

// What a partitioned pod requests is read elsewhere than what others request.
func TestAStrippedPodIsStillPartitioned(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"as the plugin writes it":          {"target.workload.openshift.io/management": strings.Repeat("x", 1000), "resources.workload.openshift.io/c": "{}", "other": "x"},
		"as OpenShift's kubelet writes it": {"target.workload.openshift.io/management": "", "other": "x"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse("100")}}}}}}
		stripPod(pod)
		if workloadType, is := partition.PartitionedType(pod); !is || workloadType != "management" || len(pod.Annotations) > 2 {
			t.Errorf("%s: it is of the type %q (%t), with %v", name, workloadType, is, pod.Annotations)
		}
	}
}
