// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
)

var (
	admissions = flag.Int("admissions", 1000, "how many pods real kubelets are to decide about")
	seed       = flag.Uint64("seed", 1, "the seed of the pods that they are sent")
)

const (
	exporters        = "partition-numaresources-exporter"
	exportersAccount = "partition-topology"
	// initContainer is the name of one that ends at once.
	initContainer = "init"
)

// TestARealKubeletRefusesNoPod sends pods to twelve imagined machines, each with a real kubelet and a real exporter: one for each policy, scope
// and number of NUMA nodes. Their runtimes only record. Then some pods come by the default scheduler.
func TestARealKubeletRefusesNoPod(t *testing.T) {
	file, exporter := program(t, "TEST_ASSET_SCHEDULER"), program(t, "TEST_ASSET_PARTITION_NODE")
	plane := testenv.Start(t)
	t.Setenv("TMPDIR", plane.Directory()) // nothing is left of a test that is killed
	k := &kubelets{t: t, client: plane.Client}
	k.clear()
	t.Cleanup(k.clear)
	plane.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(testenv.Module(), "deploy", "numaresources"))
	t.Cleanup(func() {
		k.must(k.client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(exporters), client.GracePeriodSeconds(0)))
	})
	var machines []*machine
	for _, policy := range []string{"best-effort", "restricted", "single-numa-node"} {
		for _, scope := range []string{"container", "pod"} {
			for _, shape := range []machine{{zones: 2, cpus: 8, memory: 17}, {zones: 4, cpus: 6, memory: 11}} {
				shape.name, shape.policy, shape.scope = fmt.Sprintf("%s-%s-%d", policy, scope, shape.zones), policy, scope
				machines = append(machines, &shape)
			}
		}
	}
	began := time.Now()
	for _, m := range machines {
		m.start(t, plane)
	}
	for _, m := range machines {
		m.join(t, plane, exporter)
	}
	for _, m := range machines {
		m.reported(t, plane)
	}
	t.Logf("%d kubelets are ready after %s", len(machines), time.Since(began).Round(time.Second))
	for _, by := range []struct {
		scheduler string
		pods      int
		start     func(t *testing.T)
	}{
		{schedulerName, *admissions, func(t *testing.T) {
			testenv.RunFile(t, file, "--config="+configuration(t, plane.Kubeconfig), "--secure-port=0")
		}},
		// It shows that these kubelets refuse what does not fit.
		{corev1.DefaultSchedulerName, *admissions / 4, func(t *testing.T) {
			testenv.RunBeside(t, "kube-scheduler", "--config="+plainConfiguration(t, plane.Kubeconfig), "--secure-port=0")
		}},
	} {
		t.Run(by.scheduler, func(t *testing.T) {
			by.start(t)
			s := &stream{t: t, client: plane.Client, scheduler: by.scheduler, random: rand.New(rand.NewPCG(*seed, 69)), machines: map[string]*machine{}, sent: map[string]*sent{}, counts: map[string]*count{}}
			for _, m := range machines {
				s.machines[m.name], s.counts[m.name] = m, &count{}
			}
			began := time.Now()
			s.run(by.pods)
			total := count{}
			for _, m := range machines {
				c := s.counts[m.name]
				judged, faults := m.judge(s.pods())
				t.Logf("%-42s %5d admitted with %d containers, %d refused", m, c.admitted, judged, c.refused)
				total.admitted, total.refused = total.admitted+c.admitted, total.refused+c.refused
				for _, fault := range faults {
					t.Errorf("%s: %s", m, fault)
				}
			}
			t.Logf("%-42s %5d admitted, %d refused, in %s; %d found no room", "all", total.admitted, total.refused, time.Since(began).Round(time.Second), s.withdrawn)
			switch {
			case by.scheduler != schedulerName && total.refused == 0:
				t.Error("these kubelets refuse nothing, not even what does not fit")
			case by.scheduler != schedulerName:
				t.Logf("such as: %s", s.refusals[0])
			default:
				for _, why := range s.refusals {
					t.Error(why)
				}
			}
		})
	}
}

// stream is one of pods that come in bursts, and end at any time.
type stream struct {
	t         *testing.T
	client    client.Client
	scheduler string
	random    *rand.Rand
	// machines, sent and counts are by the names of nodes, pods and nodes.
	machines map[string]*machine
	sent     map[string]*sent
	counts   map[string]*count
	refusals []string
	// withdrawn is how many pods were on no node for too long.
	withdrawn int
}

type sent struct {
	pod *corev1.Pod
	at  time.Time
	// decided says that a kubelet has, ends is when the pod is to end, and told that it knows.
	decided, told bool
	ends          time.Time
}

type count struct{ admitted, refused int }

const (
	// waitsAtMost is how long a pod may wait for a node, and livesAtMost how long it then runs.
	waitsAtMost = 20 * time.Second
	livesAtMost = 4 * time.Second
	// mostWaiting is how many pods may wait at a time.
	mostWaiting = 20
)

// run sends pods until kubelets have decided about so many, and then has all of them end.
func (s *stream) run(decisions int) {
	s.t.Helper()
	const within = time.Hour
	for deadline, decided := time.Now().Add(within), 0; decided < decisions; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("kubelets have decided about %d of %d pods within %s", decided, decisions, within)
		}
		waiting := 0
		for _, pod := range s.list() {
			if s.look(&pod) {
				waiting++
			}
		}
		decided = 0
		for _, c := range s.counts {
			decided += c.admitted + c.refused
		}
		if waiting < mostWaiting && s.random.IntN(3) == 0 {
			for range 1 + s.random.IntN(20) {
				s.send()
			}
		}
	}
	for _, pod := range s.list() {
		s.delete(&pod)
	}
	testenv.Eventually(s.t, patience, func() error {
		if left := s.list(); len(left) > 0 {
			return fmt.Errorf("%d pods are left, such as %s on %s", len(left), left[0].Name, left[0].Spec.NodeName)
		}
		return nil
	})
}

// look counts a pod about which a kubelet has decided, and ends it in time. It reports whether the pod is on no node.
func (s *stream) look(pod *corev1.Pod) (waits bool) {
	s.t.Helper()
	of, at, now := s.sent[pod.Name], pod.Spec.NodeName, time.Now()
	if !of.decided {
		switch pod.Status.Phase {
		case corev1.PodFailed:
			of.decided, of.ends = true, now
			s.counts[at].refused++
			s.refusals = append(s.refusals, fmt.Sprintf("%s refused pod %s: %s: %s", at, pod.Name, pod.Status.Reason, pod.Status.Message))
		case corev1.PodRunning, corev1.PodSucceeded:
			of.decided, of.ends = true, now.Add(time.Duration(s.random.Int64N(int64(livesAtMost))))
			s.counts[at].admitted++
		}
	}
	runs := pod.Status.Phase == corev1.PodRunning
	switch {
	case pod.DeletionTimestamp != nil:
	case at == "":
		if now.Sub(of.at) < waitsAtMost {
			return true
		}
		s.withdrawn++
		s.delete(pod)
	case !of.decided || now.Before(of.ends) || runs && of.told:
	case runs && s.random.IntN(2) == 0:
		of.told = true
		s.machines[at].runtime.finish(pod.Name)
	default:
		s.delete(pod)
	}
	return false
}

func (s *stream) list() []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	if err := s.client.List(s.t.Context(), &pods, client.InNamespace(namespace)); err != nil {
		s.t.Fatal(err)
	}
	return pods.Items
}

// pods are all so far, by their names, as they were created.
func (s *stream) pods() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for name, of := range s.sent {
		pods[name] = of.pod
	}
	return pods
}

func (s *stream) delete(pod *corev1.Pod) {
	s.t.Helper()
	if err := client.IgnoreNotFound(s.client.Delete(s.t.Context(), pod)); err != nil {
		s.t.Fatal(err)
	}
}

// send creates a pod at random.
func (s *stream) send() {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", s.scheduler, len(s.sent))},
		Spec: corev1.PodSpec{
			SchedulerName: s.scheduler, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		},
	}
	container := func(name string, most int) corev1.Container {
		list := corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(1+s.random.IntN(most)), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(int64(1+s.random.IntN(4))<<30, resource.BinarySI),
		}
		if s.random.IntN(10) == 0 {
			list[corev1.ResourceCPU] = resource.MustParse("500m")
		}
		if s.random.IntN(30) == 0 {
			list[corev1.ResourceMemory] = *resource.NewQuantity(int64(8+s.random.IntN(10))<<30, resource.BinarySI)
		}
		return corev1.Container{Name: name, Image: "app", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
	}
	most := []int{2, 4, 8}[s.random.IntN(3)]
	for i := range 1 + s.random.IntN(6)/4 {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprintf("app-%d", i), most))
	}
	if s.random.IntN(6) == 0 {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container(initContainer, most))
	}
	if s.random.IntN(12) == 0 {
		sidecar := container("sidecar", 2)
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, sidecar)
	}
	if s.random.IntN(12) == 0 { // Burstable
		pod.Spec.Containers[0].Resources.Limits = nil
	}
	if err := s.client.Create(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	s.sent[pod.Name] = &sent{pod: pod, at: time.Now()}
}
