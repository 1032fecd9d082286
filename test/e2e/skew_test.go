// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// survivors are pods that run on while kubelets and kube-apiservers are replaced.
type survivors struct {
	c         *host.Cluster
	namespace string
	// before are the pods as they were at first.
	before []*v1.Pod
	// used is what each container, by its ID, had used of each CPU when it came back to its
	// CPUs. It counts from there.
	used map[string][]time.Duration
}

// survive starts a partitioned pod and an ordinary one.
func survive(t *testing.T, c *host.Cluster) survivors {
	t.Helper()
	s := survivors{c: c, namespace: fixture.Namespace(t, c.Client, "management"), used: map[string][]time.Duration{}}
	s.before = start(t, c, s.namespace,
		onNode(fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))),
		onNode(fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))))
	return s
}

// onNode names the node of a pod: the scheduler of a newer release does not start with an older
// kube-apiserver.
func onNode(p *v1.Pod) *v1.Pod {
	p.Spec.NodeName = host.NodeName
	return p
}

// withStatic adds partitioned static pods, one of them with a UID in its manifest.
func (s survivors) withStatic(t *testing.T) survivors {
	t.Helper()
	const request = "cpu=100m memory=16Mi"
	static, withUID := staticPod("static", asks, fixture.Awake, request, ""), staticPod("static-with-uid", asks, fixture.Awake, request, "")
	withUID.UID = "fedcba9876543210fedcba9876543210"
	writeStaticPods(t, s.c, static, withUID)
	for _, p := range []*v1.Pod{static, withUID} {
		s.before = append(s.before, awaitRunning(t, s.c, p.Namespace, p.Name+"-"+host.NodeName))
	}
	return s
}

// withExclusive adds a pod with an exclusive CPU.
func (s survivors) withExclusive(t *testing.T) survivors {
	t.Helper()
	pods := s.c.Client.CoreV1().Pods(s.namespace)
	// A container of an earlier test may still hold the only CPU that is in no pool.
	waitFor(t, time.Minute, "the pod exclusive runs", func() error {
		p, err := pods.Get(t.Context(), "exclusive", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = pods.Create(t.Context(), onNode(fixture.Exclusive("exclusive", 1)), metav1.CreateOptions{})
			if err == nil {
				err = errors.New("it has just been created")
			}
		case err == nil && p.Status.Phase == v1.PodFailed:
			deleteNow(t, s.c, p)
			err = errors.New(p.Status.Message)
		case err == nil && p.Status.Phase != v1.PodRunning:
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	s.before = append(s.before, awaitRunning(t, s.c, s.namespace, "exclusive"))
	return s
}

// expect checks that the same containers run as at first, and returns their pods.
func (s survivors) expect(t *testing.T) []*v1.Pod {
	t.Helper()
	var pods []*v1.Pod
	for _, before := range s.before {
		p, err := s.c.Client.CoreV1().Pods(before.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, is := before.Status.ContainerStatuses[0], p.Status.ContainerStatuses[0]
		if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount || is.State.Running == nil {
			t.Errorf("the container of pod %s was %s, and is %s, with %d restarts since and the state %v", p.Name, was.ContainerID, is.ContainerID, is.RestartCount-was.RestartCount, is.State)
		}
		pods = append(pods, p)
	}
	return pods
}

// may returns the CPUs of one of the pods.
func (s survivors) may(t *testing.T, p *v1.Pod) cpuset.CPUSet {
	t.Helper()
	if p.Name == "ordinary" || p.Name == "exclusive" {
		return offPool(t)
	}
	return onPool
}

// comeBack waits until each container has its CPUs again, after it was rightly elsewhere.
func (s survivors) comeBack(t *testing.T) {
	t.Helper()
	for _, p := range s.awaitPlaced(t) {
		id := p.Status.ContainerStatuses[0].ContainerID
		usage, err := host.ContainerUsage(p, id)
		if err != nil {
			t.Fatal(err)
		}
		s.used[id] = usage.Used
	}
}

// awaitPlaced waits until each container has its CPUs, and returns the pods.
func (s survivors) awaitPlaced(t *testing.T) []*v1.Pod {
	t.Helper()
	pods := s.expect(t)
	// The CPU manager may have to reconcile first.
	waitFor(t, 10*time.Second, "all containers have their CPUs", func() error {
		for _, p := range pods {
			want := s.may(t, p).String()
			if usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID); err != nil || usage.CPUs != want {
				return fmt.Errorf("the container of pod %s has CPUs %s (%v), want %s", p.Name, usage.CPUs, err, want)
			}
		}
		return nil
	})
	return pods
}

// expectPlaced also checks that each container has its CPUs and has used no others, and that the
// partitioned pod has its weight and quota.
func (s survivors) expectPlaced(t *testing.T) {
	t.Helper()
	pods := s.awaitPlaced(t)
	for _, p := range pods {
		expectNoLeakSince(t, p, s.may(t, p), s.used)
	}
	isPartitioned := func(p *v1.Pod) bool { return p.Name == "partitioned" }
	if usage, err := host.PodUsage(pods[slices.IndexFunc(pods, isPartitioned)]); err != nil || usage.Weight != weight(409) || usage.Quota != 0.5 {
		t.Errorf("the partitioned pod has weight %d and quota %v (%v), want %d and 0.5", usage.Weight, usage.Quota, err, weight(409))
	}
}

// expectNew checks that a new pod that asks is partitioned and confined.
func (s survivors) expectNew(t *testing.T) {
	t.Helper()
	fresh := onNode(fixture.Pod("", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")))
	fresh.GenerateName = "new-"
	p := start(t, s.c, s.namespace, fresh)[0]
	expectNoLeak(t, p, onPool)
	deleteNow(t, s.c, p)
}

// expectKubelet checks that the node reports a version of the kubelet that begins like this.
func expectKubelet(t *testing.T, c *host.Cluster, version string) {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, version) {
		t.Fatalf("the kubelet has the version %s (%v), want %s", node.Status.NodeInfo.KubeletVersion, err, version)
	}
}

// Patched kubelets of older releases keep pools as the newest one does. A node goes from one to
// the other and back while its pods run on, and so does kube-apiserver.
func TestKubeletsOfOlderReleasesKeepPools(t *testing.T) {
	in(t, olderBinaries)
	c := partitioned(t)
	s := survive(t, c).withExclusive(t)
	t.Cleanup(func() {
		c.UseKubelet("")
		restart(t, c, pinning)
	})
	s.expectPlaced(t)
	for _, dir := range filepath.SplitList(olderBin) {
		release := filepath.Base(filepath.Dir(dir))
		t.Run("down to "+release, func(t *testing.T) {
			c.UseKubelet(filepath.Join(dir, "kubelet"))
			restart(t, c, pinning)
			expectKubelet(t, c, release+"+wp.")
			s.expectPlaced(t)
			s.expectNew(t)
			restart(t, c, "")
			s.expect(t)
			restart(t, c, pinning)
			s.expectPlaced(t)
		})
		t.Run("up from "+release, func(t *testing.T) {
			c.UseKubelet("")
			restart(t, c, pinning)
			s.expectPlaced(t)
			s.expectNew(t)
		})
		server := filepath.Join(dir, "kube-apiserver")
		if _, err := os.Stat(server); err != nil {
			continue
		}
		// The kubelet goes down first, and up last.
		t.Run("with kube-apiserver down to "+release+" and up", func(t *testing.T) {
			c.UseKubelet(filepath.Join(dir, "kubelet"))
			restart(t, c, pinning)
			useAPIServer(t, c, server)
			t.Cleanup(func() { useAPIServer(t, c, "") })
			s.expectPlaced(t)
			s.expectNew(t)
			useAPIServer(t, c, "")
			s.expectNew(t)
			c.UseKubelet("")
			restart(t, c, pinning)
			s.expectPlaced(t)
		})
	}
}

// A node goes from a patched kubelet to an unpatched one and back while its pods run on, in the
// order of docs/user/upgrade.md.
func TestUnpatchedKubelet(t *testing.T) {
	in(t, long, unpatchedBinaries)
	c := partitioned(t)
	s := survive(t, c).withExclusive(t)
	t.Cleanup(func() {
		c.UseKubelet("")
		restart(t, c, pinning)
	})
	s.expectPlaced(t)
	t.Run("the file goes", func(t *testing.T) {
		restart(t, c, "")
		s.expect(t)
	})
	t.Run("an unpatched kubelet comes", func(t *testing.T) {
		c.UseKubelet(upstreamKubelet)
		restart(t, c, "")
		s.expect(t)
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if quantity, ok := node.Status.Allocatable[cores]; ok && !quantity.IsZero() {
			t.Errorf("the node still reports %s cores, want none", quantity.String())
		}
		// The type stays active, so a pod that asks waits for a node with cores.
		if _, err := c.Client.CoreV1().Pods(s.namespace).Create(t.Context(), fixture.Pod("waits", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitUnschedulable(t, c, s.namespace, "waits", string(cores))
	})
	t.Run("a patched kubelet comes back without the file", func(t *testing.T) {
		c.UseKubelet("")
		restart(t, c, "")
		s.expect(t)
	})
	// The status of the partitioned pod has cpu, as a kubelet without the file reports it. If that
	// counted, the pod with the exclusive CPU would be rejected.
	t.Run("the file comes back", func(t *testing.T) {
		restart(t, c, pinning)
		s.comeBack(t)
		s.expectPlaced(t)
		expectNoLeak(t, awaitRunning(t, c, s.namespace, "waits"), onPool)
		s.expectNew(t)
	})
	t.Run("an unpatched kubelet does not start with the file, and does no harm", func(t *testing.T) {
		c.UseKubelet(upstreamKubelet)
		expectNoStart(t, c, pinning, "please drain node and remove policy state file")
		c.UseKubelet("")
		restart(t, c, pinning)
		s.expectPlaced(t)
	})
}

// An unpatched kube-apiserver partitions no pods: those that ask run as ordinary pods, outside
// the pool. Partitioned pods run on.
func TestUnpatchedServerPartitionsNoPods(t *testing.T) {
	in(t, long, unpatchedBinaries)
	c := partitioned(t)
	s := survive(t, c)
	t.Cleanup(func() { useAPIServer(t, c, "") })
	useAPIServer(t, c, filepath.Join(upstreamBin, "kube-apiserver"))
	p := start(t, c, s.namespace, fixture.Pod("asks", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")))[0]
	if _, has := p.Spec.Containers[0].Resources.Requests[cores]; has {
		t.Errorf("the pod requests %v, want no cores", p.Spec.Containers[0].Resources.Requests)
	}
	expectNoLeak(t, p, offPool(t))
	s.expectPlaced(t)
	t.Run("the kubelet restarts", func(t *testing.T) {
		restart(t, c, pinning)
		s.expectPlaced(t)
	})
	t.Run("a patched kube-apiserver comes back", func(t *testing.T) {
		useAPIServer(t, c, "")
		s.expectPlaced(t)
		waitFor(t, 20*time.Second, "new pods are partitioned", func() error {
			dry, err := c.Client.CoreV1().Pods(s.namespace).Create(t.Context(), fixture.Pod("dry", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				if _, ok := partition.PartitionedType(dry); !ok {
					err = fmt.Errorf("a new pod has the annotations %v", dry.Annotations)
				}
			}
			return err
		})
		s.expectNew(t)
	})
}
