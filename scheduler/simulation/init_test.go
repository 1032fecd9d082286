// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/operators/numaresources/alignment"
)

// Upstream's static policy leaves CPUs to init containers that have ended, and podresources says nothing of these (kubernetes/kubernetes
// issue 112228). There are never more than the scheduler assumes, and none where it assumes none.
func TestWhatInitContainersKeepIsForetold(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 23))
	keep, none := 0, 0
	for i := range 600 {
		m := machine{
			zones: 2, cpus: 8 + 4*random.IntN(3), memory: 64, threads: random.IntN(2) == 0,
			policy: []string{"none", "best-effort", "restricted", "single-numa-node"}[random.IntN(4)], scope: []string{"container", "pod"}[random.IntN(2)],
		}
		c := newCluster(t, uint64(i), []machine{m})
		n := c.nodes[0]
		node, err := alignment.Read(n.written)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 8 {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(j), UID: types.UID(fmt.Sprint(j))}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}}
			container := func(name string) corev1.Container {
				list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(1+random.IntN(4)), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Mi")}
				return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
			}
			for k := range random.IntN(4) {
				init := container(fmt.Sprint("init-", k))
				if random.IntN(4) == 0 {
					always := corev1.ContainerRestartPolicyAlways
					init.RestartPolicy = &always
				}
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
			}
			for k := range 1 + random.IntN(2) {
				pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("c-", k)))
			}
			if n.admit(t.Context(), pod) != "" {
				continue
			}
			kept, runs := cpuset.New(), cpuset.New()
			for _, of := range pod.Spec.InitContainers {
				if set, _ := n.kubelet.cpus.GetCPUSet(string(pod.UID), of.Name); of.RestartPolicy == nil {
					kept = kept.Union(set)
				} else {
					runs = runs.Union(set)
				}
			}
			for _, of := range pod.Spec.Containers {
				set, _ := n.kubelet.cpus.GetCPUSet(string(pod.UID), of.Name)
				runs = runs.Union(set)
			}
			foretold := int64(0)
			for _, item := range node.Hidden(node.Needed(pod), true, time.Time{}) {
				foretold += item.Amounts[corev1.ResourceCPU]
			}
			is := kept.Difference(runs)
			if int64(is.Size()) > foretold {
				t.Errorf("%s: init containers of %s keep CPUs %s, and %d are foretold", m, describe(pod), is, foretold)
			}
			if !is.IsEmpty() {
				keep++
			} else if len(pod.Spec.InitContainers) > 0 && foretold == 0 {
				none++
			}
			if random.IntN(3) == 0 {
				n.kubelet.end(pod)
			}
		}
	}
	t.Logf("init containers of %d pods keep CPUs; of %d they keep none, as foretold", keep, none)
	if keep == 0 || none == 0 {
		t.Error("the pods show nothing")
	}
}
