// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/nodes"
	"workload.openshift.io/kubernetes/node/plan"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// foresee returns the plan of the node, from its files and the API, as kubectl partition plan
// --on-host NODE makes it. The empty file means that there will be none.
func foresee(t *testing.T, c *host.Cluster, file string) plan.NodePlan {
	t.Helper()
	read, err := nodes.Reader{Client: c.Client}.Nodes(t.Context(), []string{host.NodeName}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.OnHost(c.KubeletDir(), filepath.Join(host.Dir, "kubelet.yaml")).Read(&read[0]); err != nil {
		t.Fatal(err)
	}
	wanted := plan.Absent()
	if file != "" {
		wanted = plan.There([]byte(file))
	}
	return read[0].Plan(wanted)
}

// expectVerdict checks the verdict, and which objects the errors are about.
func expectVerdict(t *testing.T, p plan.NodePlan, verdict plan.Verdict, errors ...string) {
	t.Helper()
	var found []string
	for _, problem := range p.Problems {
		if problem.Severity == plan.Error {
			found = append(found, strings.TrimSpace(problem.Code+" "+problem.Object))
		}
	}
	if p.Verdict != verdict || !slices.Equal(found, errors) {
		t.Errorf("the plan is %s with the errors %q, want %s with %q: %+v", p.Verdict, found, verdict, errors, p)
	}
}

// What kubectl partition plan says of a node before its pinning file changes is what the kubelet
// then does.
func TestPlanForetellsWhatTheKubeletDoes(t *testing.T) {
	in(t, long)
	c := partitioned(t)
	t.Cleanup(func() { restart(t, c, pinning) })
	// Without a file, a partitioned pod that already runs counts as its container weighs.
	alone := func(t *testing.T) (namespace string) {
		t.Helper()
		quietNode(t, c)
		return fixture.Namespace(t, c.Client, "management")
	}
	t.Run("containers move", func(t *testing.T) {
		namespace := alone(t)
		pods := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "")),
			fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
		const moved = `{"management": {"cpuset": "1"}}`
		p := foresee(t, c, moved)
		expectVerdict(t, p, plan.Safe)
		restart(t, c, moved)
		for _, pod := range pods {
			i := slices.IndexFunc(p.Actions, func(a plan.Action) bool {
				return a.Kind == plan.Move && slices.Contains(a.Pods, namespace+"/"+pod.Name)
			})
			if i < 0 {
				t.Fatalf("the plan does not move pod %s: %+v", pod.Name, p)
			}
			expectPlaced(t, pod, fixture.CPUs(t, p.Actions[i].To))
		}
		again := foresee(t, c, moved)
		if expectVerdict(t, again, plan.Safe); len(again.Actions)+len(again.Problems) > 0 {
			t.Errorf("the plan of the file that the node has is %+v, want an empty one", again)
		}
	})
	t.Run("a pool takes an exclusive CPU", func(t *testing.T) {
		namespace := alone(t)
		restart(t, c, "")
		holder := start(t, c, namespace, fixture.Exclusive("exclusive", 1))[0]
		t.Cleanup(func() {
			restart(t, c, "")
			releaseExclusive(t, c, holder)
		})
		has := containerUsage(t, holder, 0).CPUs
		taken := fmt.Sprintf(`{"management": {"cpuset": %q}}`, has)
		p := foresee(t, c, taken)
		expectVerdict(t, p, plan.Unsafe, plan.CodeExclusiveTaken+" "+namespace+"/exclusive", plan.CodeNoStart)
		expectNoStart(t, c, taken, "exclusively holds CPU "+has+", which")
	})
	t.Run("a pod no longer fits", func(t *testing.T) {
		namespace := alone(t)
		restart(t, c, "")
		// As in TestPodsThatNoLongerFitAreNamed.
		request := fmt.Sprintf("cpu=%dm memory=16Mi", (runtime.NumCPU()*1000-500)/2-50)
		first := start(t, c, namespace, fixture.Pod("first", nil, fixture.Container("c", fixture.Awake, request, "")))[0]
		time.Sleep(2 * time.Second) // the kubelet goes by the time of creation, in seconds
		last := start(t, c, namespace, fixture.Pod("last", nil, fixture.Container("c", fixture.Awake, request, "")))[0]
		expectVerdict(t, foresee(t, c, pinning), plan.Unsafe, plan.CodeFallsOut+" "+namespace+"/last")
		restart(t, c, pinning)
		restart(t, c, pinning) // the kubelet may have gone by the Node's previous status
		get := func(p *v1.Pod) (*v1.Pod, error) {
			return c.Client.CoreV1().Pods(namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		}
		waitFor(t, time.Minute, "the last pod is rejected", func() error {
			now, err := get(last)
			// Its phase is then that of its container, which may have ended well.
			if err == nil && now.Status.Phase != v1.PodFailed && now.Status.Phase != v1.PodSucceeded {
				err = fmt.Errorf("it is %s", now.Status.Phase)
			}
			return err
		})
		if now, err := get(first); err != nil || now.Status.Phase != v1.PodRunning {
			t.Errorf("the first pod is %v (%v)", now.Status.Phase, err)
		}
	})
}
