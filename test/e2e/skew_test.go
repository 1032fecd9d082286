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
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// survivors are pods that run through every change of kubelet and server.
type survivors struct {
	c         *host.Cluster
	namespace string
	before    []*v1.Pod
}

func survive(t *testing.T, c *host.Cluster) survivors {
	t.Helper()
	s := survivors{c: c, namespace: fixture.Namespace(t, c.Client, "management")}
	s.before = start(t, c, s.namespace,
		fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=32Mi")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	return s
}

// withExclusive adds a pod that has a CPU of its own: the only one that is in no pool.
func (s survivors) withExclusive(t *testing.T) survivors {
	t.Helper()
	pods := s.c.Client.CoreV1().Pods(s.namespace)
	waitFor(t, time.Minute, "there is a CPU that no earlier test's container holds", func() error {
		p, err := pods.Get(t.Context(), "exclusive", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = pods.Create(t.Context(), fixture.Exclusive("exclusive", 1), metav1.CreateOptions{})
			if err == nil {
				err = errors.New("it was just created")
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

// expect checks that the same containers run as before, and returns their pods.
func (s survivors) expect(t *testing.T) []*v1.Pod {
	t.Helper()
	var pods []*v1.Pod
	for _, before := range s.before {
		p, err := s.c.Client.CoreV1().Pods(s.namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, is := before.Status.ContainerStatuses[0], p.Status.ContainerStatuses[0]
		if is.ContainerID != was.ContainerID || is.State.Running == nil {
			t.Errorf("container of pod %s was %s, and is %s: %v", p.Name, was.ContainerID, is.ContainerID, is.State)
		}
		pods = append(pods, p)
	}
	return pods
}

// expectPlaced checks in addition that each has its CPUs, weight and exclusive CPU.
func (s survivors) expectPlaced(t *testing.T) {
	t.Helper()
	pods := s.expect(t)
	// As long as it takes the CPU manager to reconcile.
	waitFor(t, 10*time.Second, "all containers have their CPUs", func() error {
		for _, p := range pods {
			want := allowed(t, p).String()
			if usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID); err != nil || usage.CPUs != want {
				return fmt.Errorf("container of pod %s has CPUs %s (%v), want %s", p.Name, usage.CPUs, err, want)
			}
		}
		return nil
	})
	for _, p := range pods {
		expectNoLeak(t, p)
	}
	isPartitioned := func(p *v1.Pod) bool { return p.Name == "partitioned" }
	if usage, err := host.PodUsage(pods[slices.IndexFunc(pods, isPartitioned)]); err != nil || usage.Weight != weight(409) || usage.Quota != 0.5 {
		t.Errorf("the partitioned pod has weight %d and quota %v (%v), want %d and 0.5", usage.Weight, usage.Quota, err, weight(409))
	}
}

// expectNew checks that a new pod that asks is partitioned, and confined. It names its
// node, since the scheduler of this release does not start under an older server.
func (s survivors) expectNew(t *testing.T) {
	t.Helper()
	fresh := fixture.Pod("", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", ""))
	fresh.GenerateName, fresh.Spec.NodeName = "new-", host.NodeName
	p := start(t, s.c, s.namespace, fresh)[0]
	if _, ok := partition.PartitionedType(p); !ok {
		t.Errorf("a new pod is not partitioned: %v", p.Annotations)
	}
	expectNoLeak(t, p)
	deleteNow(t, s.c, p)
}

func expectKubelet(t *testing.T, c *host.Cluster, version string) {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, version) {
		t.Fatalf("the kubelet is %s (%v), want %s", node.Status.NodeInfo.KubeletVersion, err, version)
	}
}

// Kubelets of up to three minor versions before work with a server: those of older
// releases of this project keep pools as the present one does, and a node goes from one
// to the other and back with its pods running.
func TestKubeletsOfOlderReleases(t *testing.T) {
	in(t)
	if olderBin == "" {
		t.Skip("no binaries of older releases were given; make test-all and make e2e build them")
	}
	c := partitioned(t)
	s := survive(t, c).withExclusive(t)
	t.Cleanup(func() {
		c.UseKubelet("")
		restart(t, c, pinning)
	})
	s.expectPlaced(t)
	for _, dir := range filepath.SplitList(olderBin) {
		release := filepath.Base(filepath.Dir(dir))
		t.Run(release, func(t *testing.T) {
			c.UseKubelet(filepath.Join(dir, "kubelet"))
			restart(t, c, pinning)
			expectKubelet(t, c, release+"+wp.")
			s.expectPlaced(t)
			s.expectNew(t)
			restart(t, c, "") // off
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
		// Down: kubelets first. Up: the server first.
		t.Run("the server, too, down to "+release+" and up", func(t *testing.T) {
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

// A node goes from an unpatched kubelet to a patched one and back with its pods
// running, in the order that docs/user/upgrade.md gives.
func TestUnpatchedKubelet(t *testing.T) {
	in(t)
	needsUpstream(t)
	c := partitioned(t)
	s := survive(t, c).withExclusive(t)
	t.Cleanup(func() {
		c.UseKubelet("")
		restart(t, c, pinning)
	})
	s.expectPlaced(t)
	t.Run("the file goes first", func(t *testing.T) {
		restart(t, c, "")
		s.expect(t)
	})
	t.Run("then the patched kubelet", func(t *testing.T) {
		c.UseKubelet(upstreamKubelet)
		restart(t, c, "")
		s.expect(t)
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if quantity, ok := node.Status.Allocatable[cores]; ok && !quantity.IsZero() {
			t.Errorf("the node still offers %v cores", quantity.String())
		}
		// The type stays active: what asks for it waits for a node that has it.
		if _, err := c.Client.CoreV1().Pods(s.namespace).Create(t.Context(), fixture.Pod("waits", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitUnschedulable(t, c, s.namespace, "waits", string(cores))
	})
	t.Run("a patched one without the file", func(t *testing.T) {
		c.UseKubelet("")
		restart(t, c, "")
		s.expect(t)
	})
	t.Run("and with it", func(t *testing.T) {
		restart(t, c, pinning)
		s.expectPlaced(t)
		expectNoLeak(t, awaitRunning(t, c, s.namespace, "waits"))
		s.expectNew(t)
	})
	t.Run("an unpatched kubelet beside the file does not start, and harms nothing", func(t *testing.T) {
		c.UseKubelet(upstreamKubelet)
		fails(t, c, pinning, "please drain node and remove policy state file")
		c.UseKubelet("")
		restart(t, c, pinning)
		s.expectPlaced(t)
	})
}

// An unpatched kube-apiserver partitions nothing: what asks runs as an ordinary pod,
// off the pool. What was partitioned runs on.
func TestUnpatchedServer(t *testing.T) {
	in(t)
	needsUpstream(t)
	c := partitioned(t)
	s := survive(t, c)
	t.Cleanup(func() { useAPIServer(t, c, "") })
	useAPIServer(t, c, filepath.Join(upstreamBin, "kube-apiserver"))
	p := start(t, c, s.namespace, fixture.Pod("asks", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")))[0]
	if _, has := p.Spec.Containers[0].Resources.Requests[cores]; has {
		t.Errorf("the pod requests %v", p.Spec.Containers[0].Resources.Requests)
	}
	expectNoLeak(t, p)
	s.expectPlaced(t)
	t.Run("the kubelet starts again", func(t *testing.T) {
		restart(t, c, pinning)
		s.expectPlaced(t)
	})
	t.Run("and the server is a patched one again", func(t *testing.T) {
		useAPIServer(t, c, "")
		s.expectPlaced(t)
		waitFor(t, 20*time.Second, "new pods are partitioned", func() error {
			dry, err := c.Client.CoreV1().Pods(s.namespace).Create(t.Context(), fixture.Pod("dry", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				if _, ok := partition.PartitionedType(dry); !ok {
					err = fmt.Errorf("one has the annotations %v", dry.Annotations)
				}
			}
			return err
		})
		s.expectNew(t)
	})
}
