// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// Pools that grow take cpu from allocatable, and a kubelet that starts rejects what no longer
// fits, running or not. The log says so beforehand, and an Event names the pods.
func TestPodsThatNoLongerFitAreNamed(t *testing.T) {
	in(t, long)
	c := partitioned(t)
	quietNode(t, c)
	restart(t, c, "")
	t.Cleanup(func() { restart(t, c, pinning) })
	// Both fit with the 500m of kubeReserved, but not with a CPU for the pool.
	request := fmt.Sprintf("cpu=%dm memory=16Mi", (runtime.NumCPU()*1000-500)/2-50)
	namespace := fixture.Namespace(t, c.Client, "management")
	first := start(t, c, namespace, fixture.Pod("first", nil, fixture.Container("c", fixture.Awake, request, "")))[0]
	time.Sleep(2 * time.Second) // the kubelet goes by the time of creation, in seconds
	last := start(t, c, namespace, fixture.Pod("last", nil, fixture.Container("c", fixture.Awake, request, "")))[0]
	// The kubelet frees the cgroups of the classes once a minute, and when a pod starts.
	waitFor(t, 2*time.Minute, "the record of the pool is removed", func() error {
		_, err := os.Stat(filepath.Join(c.KubeletDir(), "workload_partitioning_state"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
	get := func(t *testing.T, p *v1.Pod) *v1.Pod {
		t.Helper()
		now, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	said, err := os.ReadFile(c.Kubelet.Log())
	if err != nil {
		t.Fatal(err)
	}
	restart(t, c, pinning)
	log, err := os.ReadFile(c.Kubelet.Log())
	if err != nil {
		t.Fatal(err)
	}
	const line = "The pools leave less cpu than the pods of this node request"
	for _, p := range []*v1.Pod{first, last} {
		if name := namespace + "/" + p.Name; !containsLine(string(log[len(said):]), line, name) {
			t.Errorf("the log has no line %q with %s", line, name)
		}
	}
	// The kubelet may have gone by the Node's previous status.
	restart(t, c, pinning)
	waitFor(t, time.Minute, "the last pod is rejected", func() error {
		// Its phase is then that of its container, which may have ended well.
		if phase := get(t, last).Status.Phase; phase != v1.PodFailed && phase != v1.PodSucceeded {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	if now := get(t, first); now.Status.Phase != v1.PodRunning || fixture.ContainerID(now.Status.ContainerStatuses[0]) != fixture.ContainerID(first.Status.ContainerStatuses[0]) {
		t.Errorf("the first pod is %s, and its container was %s and is %s", now.Status.Phase, fixture.ContainerID(first.Status.ContainerStatuses[0]), fixture.ContainerID(now.Status.ContainerStatuses[0]))
	}
	fixture.AwaitEvent(t, c.Client, eventLimit, "PodsNoLongerFit", fmt.Sprintf(`went from the CPUs "" to "0" and leave too little cpu. Rejected when the kubelet started (OutOfcpu): %s/last`, namespace))
	t.Run("it is reported once", func(t *testing.T) {
		before := countEvents(t, c, "PodsNoLongerFit")
		restart(t, c, pinning)
		time.Sleep(15 * time.Second) // the kubelet looks for ten seconds
		if after := countEvents(t, c, "PodsNoLongerFit"); after != before {
			t.Errorf("there were %d such Events, and %d after another start", before, after)
		}
	})
}

// containsLine reports whether a line of a log has all the texts.
func containsLine(log string, texts ...string) bool {
	for line := range strings.Lines(log) {
		found := 0
		for _, text := range texts {
			if strings.Contains(line, text) {
				found++
			}
		}
		if found == len(texts) {
			return true
		}
	}
	return false
}

// countEvents returns how often an Event on the Node was sent.
func countEvents(t *testing.T, c *host.Cluster, reason string) (count int32) {
	t.Helper()
	events, err := c.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		count += event.Count
	}
	return count
}
