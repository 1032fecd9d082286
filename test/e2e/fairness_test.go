// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// Busy pods share a pool of one CPU in proportion to their original requests, and stay within
// their original limits. A resize of memory and a restart of the kubelet do not change that.
func TestFairness(t *testing.T) {
	in(t, core, vm, long)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	names := []string{"four", "one", "besteffort", "limited", "inside"}
	start(t, c, namespace,
		fixture.Pod("four", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "memory=32Mi")),
		fixture.Pod("one", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")),
		fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Busy, "", "")),
		// Its weight would give it more than its limit.
		fixture.Pod("limited", asks, fixture.Container("c", fixture.Busy, "cpu=200m memory=16Mi", "cpu=200m")),
		// Small, so that it takes little from the others.
		fixture.Pod("inside", asks, fixture.Container("c", fixture.Busy, "cpu=40m memory=16Mi", ""), fixture.Container("d", fixture.Busy, "cpu=10m memory=16Mi", "")),
	)
	// The kubelet sets the weight of a QoS class once a minute, and for new pods.
	waitFor(t, 90*time.Second, "the QoS class Burstable has the weight of its pods", func() error {
		class, err := host.QoSUsage(v1.PodQOSBurstable)
		if err == nil && class.Weight < weight(409+102+204+51) {
			err = fmt.Errorf("its weight is %d", class.Weight)
		}
		return err
	})
	const window = 20 * time.Second
	measure := func(t *testing.T) {
		var pods []*v1.Pod
		for _, name := range names {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pods = append(pods, p)
		}
		used := func() (all []time.Duration) {
			for _, p := range pods {
				for i := range p.Spec.Containers {
					var sum time.Duration
					for _, onCPU := range containerUsage(t, p, i).Used {
						sum += onCPU
					}
					all = append(all, sum)
				}
			}
			return all
		}
		before, began := used(), time.Now()
		time.Sleep(window) // the period over which CPU time is compared
		after, took := used(), time.Since(began)
		for i := range after {
			after[i] -= before[i]
		}
		four, one, bestEffort, limited, insideFour, insideOne := after[0], after[1], after[2], after[3], after[4], after[5]
		ratio, inside := float64(four)/float64(one), float64(insideFour)/float64(insideOne)
		share, quota := float64(bestEffort)/float64(took), float64(limited)/float64(took)
		t.Logf("in %s: pods of 400m and 100m used %.2f to 1 (%s, %s), containers of 40m and 10m in one pod %.2f to 1, a BestEffort pod %.2f%%, a pod with a limit of 200m %.1fm",
			took.Round(time.Millisecond), ratio, four, one, inside, share*100, quota*1000)
		const tolerance = 0.05
		if math.Abs(ratio/4-1) > tolerance {
			t.Errorf("the pods of 400m and 100m used %s and %s, which is %.2f to 1, want 4 to 1", four, one, ratio)
		}
		// On cgroup v2, a runtime converts shares to weights in its own way.
		if host.CgroupV1() && math.Abs(inside/4-1) > tolerance {
			t.Errorf("the containers of 40m and 10m in one pod used %s and %s, which is %.2f to 1, want 4 to 1", insideFour, insideOne, inside)
		}
		if bestEffort == 0 || share > tolerance {
			t.Errorf("the BestEffort pod used %s in %s, want more than nothing and less than %.0f%%", bestEffort, took, tolerance*100)
		}
		if math.Abs(quota/0.2-1) > tolerance {
			t.Errorf("the pod with a limit of 200m used %s in %s, which is %.0fm, want 200m", limited, took, quota*1000)
		}
	}
	measure(t)
	t.Run("after a resize of memory and a restart of the kubelet", func(t *testing.T) {
		if err := resizeMemory(t, c, namespace, "four", "24Mi", "64Mi"); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		measure(t)
	})
}
