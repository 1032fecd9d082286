// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// More pods come than there is room for, and none ends. In the end as many CPUs must be taken as at best, but for a twentieth. If all pods
// are alike, the best is known. Else the CPUs of all zones are an upper bound, and no more is claimed of them.
func TestFill(t *testing.T) {
	for _, test := range []struct {
		name string
		// sizes are those of pods, which come at random.
		sizes []int
		// best are the CPUs that are taken at best in a zone of so many.
		best  func(zone int) int
		bound bool
	}{
		{"all of one CPU", []int{1}, func(zone int) int { return zone }, false},
		{"all of three CPUs", []int{3}, func(zone int) int { return zone / 3 * 3 }, false},
		{"all as large as a zone", []int{16}, func(zone int) int { return zone / 16 * 16 }, false},
		{"one to four CPUs", []int{1, 2, 3, 4}, func(zone int) int { return zone }, true},
		{"one to sixteen CPUs", []int{1, 2, 4, 8, 16}, func(zone int) int { return zone }, true},
	} {
		for _, policy := range []string{"restricted", "single-numa-node"} {
			t.Run(test.name+", "+policy, func(t *testing.T) {
				var kinds []machine
				for _, scope := range []string{"container", "pod"} {
					kinds = append(kinds, machine{zones: 2, cpus: 16, memory: 64, policy: policy, scope: scope}, machine{zones: 4, cpus: 16, memory: 64, policy: policy, scope: scope})
				}
				c := newCluster(t, *seed, kinds)
				var waiting []*corev1.Pod
				for i := range 400 {
					waiting = append(waiting, plain(fmt.Sprintf("pod-%d", i), test.sizes[c.random.IntN(len(test.sizes))]))
				}
				best, taken := 0, 0
				for _, kind := range kinds {
					best += kind.zones * test.best(kind.cpus)
				}
				for range 200 {
					var still []*corev1.Pod
					for _, pod := range waiting {
						if !c.schedule(pod) {
							still = append(still, pod)
						}
					}
					waiting = still
					for _, n := range c.nodes {
						c.admit(n)
						c.look(n)
					}
					c.now = c.now.Add(1200 * time.Millisecond)
					c.deliver()
				}
				for _, n := range c.nodes {
					for _, pod := range n.running {
						taken += int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
					}
				}
				what := "the best"
				if test.bound {
					what = "an upper bound of the best"
				}
				fill := float64(taken) / float64(best)
				t.Logf("%d CPUs of %d are taken, %.1f %% of %s", taken, best, 100*fill, what)
				if fill < 0.95 {
					t.Errorf("only %.1f %% of %s are taken", 100*fill, what)
				}
				for name, of := range c.counts {
					if of.refused > 0 {
						t.Errorf("%d pods of %s were refused: %s", of.refused, name, c.example[name])
					}
				}
			})
		}
	}
}

// plain is a Guaranteed pod of one container with so many CPUs.
func plain(name string, cpus int) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
		Status:     corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed},
	}
}
