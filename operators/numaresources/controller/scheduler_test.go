// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// theScheduler is the name of all of the scheduler's objects.
var theScheduler = client.ObjectKey{Namespace: "partition-numaresources-scheduler", Name: "topo-aware-scheduler"}

func aScheduler(spec nodetopologyv1.NUMAResourcesSchedulerSpec) *nodetopologyv1.NUMAResourcesScheduler {
	return &nodetopologyv1.NUMAResourcesScheduler{ObjectMeta: metav1.ObjectMeta{Name: nodetopologyv1.NUMAResourcesSchedulerName}, Spec: spec}
}

func TestWhatASchedulerMayBe(t *testing.T) {
	plane := testenv.Start(t)
	for name, test := range map[string]struct {
		change func(*nodetopologyv1.NUMAResourcesScheduler)
		err    string
	}{
		"one that says nothing": {change: func(*nodetopologyv1.NUMAResourcesScheduler) {}},
		"one of another name":   {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.SchedulerName = "by-numa.example.com" }, ""},
		"no replica":            {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.Replicas = ptr.To[int32](0) }, ""},
		"a strategy of its own": {func(s *nodetopologyv1.NUMAResourcesScheduler) {
			s.Spec.ScoringStrategy = &nodetopologyv1.ScoringStrategy{Type: "LeastNUMANodes", Resources: []nodetopologyv1.ScoredResource{{Name: "cpu", Weight: 2}}}
		}, ""},
		"a second one":                       {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Name = "second" }, "metadata.name must be numaresourcesscheduler"},
		"the cluster's own name":             {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.SchedulerName = "default-scheduler" }, "is the name of the cluster's own scheduler"},
		"what is no name":                    {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.SchedulerName = "A b" }, "spec.schedulerName: Invalid value"},
		"less than no replica":               {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.Replicas = ptr.To[int32](-1) }, "spec.replicas: Invalid value"},
		"an unknown answer to unknown nodes": {func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.UnknownNodes = "Guess" }, `Unsupported value: "Guess"`},
		"an unknown strategy": {func(s *nodetopologyv1.NUMAResourcesScheduler) {
			s.Spec.ScoringStrategy = &nodetopologyv1.ScoringStrategy{Type: "Best"}
		}, `Unsupported value: "Best"`},
		"one resource twice": {func(s *nodetopologyv1.NUMAResourcesScheduler) {
			s.Spec.ScoringStrategy = &nodetopologyv1.ScoringStrategy{Resources: []nodetopologyv1.ScoredResource{{Name: "cpu"}, {Name: "cpu"}}}
		}, "Duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			object := aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{})
			test.change(object)
			err := plane.Client.Create(t.Context(), object, client.DryRunAll)
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want %q", err, test.err)
			}
		})
	}
}

// schedulerSays waits until a condition of the scheduler has a status and a reason, and its message a part.
func schedulerSays(t *testing.T, i *companiontest.Installed, kind string, status metav1.ConditionStatus, reason, part string) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		object := aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{})
		if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		now := meta.FindStatusCondition(object.Status.Conditions, kind)
		if now == nil || now.Status != status || now.Reason != reason || !strings.Contains(now.Message, part) || now.ObservedGeneration != object.Generation {
			return fmt.Errorf("%s is %+v, want %s, %s, %q", kind, now, status, reason, part)
		}
		return nil
	})
}

// worker creates a Node, and makes it ready.
func worker(t *testing.T, i *companiontest.Installed, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	create(t, i, object)
	ready(t, i, object, corev1.ConditionTrue)
	return object
}

func ready(t *testing.T, i *companiontest.Installed, object *corev1.Node, is corev1.ConditionStatus) {
	t.Helper()
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	if err := i.Client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// TestASchedulerHasAsManyReplicasAsTheClusterIsLarge also plays the Deployment controller, which is not there.
func TestASchedulerHasAsManyReplicasAsTheClusterIsLarge(t *testing.T) {
	i := start(t)
	worker(t, i, "master", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	create(t, i, aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{}))
	deployment := &appsv1.Deployment{}
	replicas := func(want int32) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			if err := i.Client.Get(t.Context(), theScheduler, deployment); err != nil {
				return err
			}
			if *deployment.Spec.Replicas != want {
				return fmt.Errorf("there are to be %d replicas, want %d", *deployment.Spec.Replicas, want)
			}
			return nil
		})
	}
	schedulerSays(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "NoWorkers", "set spec.replicas")
	schedulerSays(t, i, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, "NotAvailable", "is not there yet")
	first := worker(t, i, "worker1", nil)
	replicas(1)
	schedulerSays(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
	schedulerSays(t, i, nodetopologyv1.ConditionProgressing, metav1.ConditionTrue, "NotSeen", "has not seen generation 1")
	status := func(available int32) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			if err := i.Client.Get(t.Context(), theScheduler, deployment); err != nil {
				return err
			}
			all := *deployment.Spec.Replicas
			deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: all, UpdatedReplicas: all, ReadyReplicas: available, AvailableReplicas: available, UnavailableReplicas: all - available}
			return i.Client.Status().Update(t.Context(), deployment)
		})
	}
	status(0)
	schedulerSays(t, i, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, "NotAvailable", "has no pod that is available")
	schedulerSays(t, i, nodetopologyv1.ConditionProgressing, metav1.ConditionTrue, "RollingOut", "of 1 pods 1 are its newest, and 0 available")
	status(1)
	schedulerSays(t, i, nodetopologyv1.ConditionAvailable, metav1.ConditionTrue, "AsExpected", "")
	schedulerSays(t, i, nodetopologyv1.ConditionProgressing, metav1.ConditionFalse, "AsExpected", "")

	second := worker(t, i, "worker2", nil)
	third := worker(t, i, "worker3", nil)
	replicas(3)
	ready(t, i, third, corev1.ConditionUnknown)
	replicas(1)
	ready(t, i, third, corev1.ConditionTrue)
	replicas(3)
	cordon := second.DeepCopy()
	cordon.Spec.Unschedulable = true
	if err := i.Client.Patch(t.Context(), cordon, client.MergeFrom(second)); err != nil {
		t.Fatal(err)
	}
	replicas(1)
	// What runs goes on where nothing says how many there are to be.
	for _, object := range []*corev1.Node{first, second, third} {
		gone(t, i, object)
	}
	schedulerSays(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "NoWorkers", "")
	replicas(1)
	changeScheduler(t, i, func(s *nodetopologyv1.NUMAResourcesScheduler) { s.Spec.Replicas = ptr.To[int32](2) })
	replicas(2)
	schedulerSays(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
}

// TestTheSchedulerDoesWithTheRightsOfItsManifests runs the real scheduler as its Deployment would: with that configuration, as that
// ServiceAccount. TEST_ASSET_SCHEDULER names the program, which make scheduler builds.
func TestTheSchedulerDoesWithTheRightsOfItsManifests(t *testing.T) {
	program := os.Getenv("TEST_ASSET_SCHEDULER")
	if program == "" {
		t.Skip("TEST_ASSET_SCHEDULER names no program; make scheduler-test does")
	}
	i := start(t)
	create(t, i, aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{Replicas: ptr.To[int32](1)}))
	deployment, told := &appsv1.Deployment{}, &corev1.ConfigMap{}
	testenv.Eventually(t, patience, func() error {
		return errors.Join(i.Client.Get(t.Context(), theScheduler, deployment), i.Client.Get(t.Context(), theScheduler, told))
	})
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: i.Config.Host, CertificateAuthorityData: i.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: i.Token(t, theScheduler.Namespace, deployment.Spec.Template.Spec.ServiceAccountName, nil)}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	// Only where it runs it finds its credentials by itself.
	if err := os.WriteFile(file, []byte(told.Data["config.yaml"]+"clientConnection: {kubeconfig: "+kubeconfig+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Of a node in no group the companion deletes the report.
	write(t, i, nodetopologyv1.NodeGroup{NodeSelector: &metav1.LabelSelector{}})
	has := worker(t, i, "two-zones", nil)
	has.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
	has.Status.Capacity = has.Status.Allocatable
	if err := i.Client.Status().Update(t.Context(), has); err != nil {
		t.Fatal(err)
	}
	has.Spec.Taints = nil // kube-apiserver has put one there
	if err := i.Client.Update(t.Context(), has); err != nil {
		t.Fatal(err)
	}
	report(t, i, has.Name, time.Now(), running("single-numa-node", "container")...)
	zones := &v1alpha2.NodeResourceTopology{}
	if err := i.Client.Get(t.Context(), client.ObjectKey{Name: has.Name}, zones); err != nil {
		t.Fatal(err)
	}
	four := v1alpha2.ResourceInfo{Name: "cpu", Capacity: resource.MustParse("4"), Allocatable: resource.MustParse("4"), Available: resource.MustParse("4")}
	zones.Zones = v1alpha2.ZoneList{{Name: "node-0", Type: "Node", Resources: v1alpha2.ResourceInfoList{four}}, {Name: "node-1", Type: "Node", Resources: v1alpha2.ResourceInfoList{four}}}
	if err := i.Client.Update(t.Context(), zones); err != nil {
		t.Fatal(err)
	}
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	process := testenv.RunFile(t, program, append([]string{
		"--config=" + file, fmt.Sprintf("--secure-port=%d", ports[0]), "--bind-address=127.0.0.1", "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}, deployment.Spec.Template.Spec.Containers[0].Args[1:]...)...)
	pod := func(name, cpus string) *corev1.Pod {
		all := corev1.ResourceList{"cpu": resource.MustParse(cpus), "memory": resource.MustParse("1Gi")}
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
			SchedulerName: "topo-aware-scheduler",
			Containers:    []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: all, Limits: all}}},
		}}
		create(t, i, object)
		t.Cleanup(func() {
			_ = i.Client.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0))
		})
		return object
	}
	now := func(object *corev1.Pod, check func() error) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			return check()
		})
	}
	began := time.Now()
	// The node has room for both, and no zone for the second.
	fits, wide := pod("fits", "2"), pod("wide", "5")
	now(fits, func() error {
		if fits.Spec.NodeName != has.Name {
			return fmt.Errorf("it is on node %q: %v", fits.Spec.NodeName, fits.Status.Conditions)
		}
		return nil
	})
	t.Logf("bound after %s", time.Since(began).Round(time.Millisecond))
	now(wide, func() error {
		if conditions := wide.Status.Conditions; len(conditions) == 0 || conditions[0].Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("the conditions are %v", conditions)
		}
		return nil
	})
	t.Logf("the other one waits: %s", wide.Status.Conditions[0].Message)
	for right := range i.Missing(t, theScheduler.Namespace, theScheduler.Name) {
		t.Errorf("the scheduler may not %s, and has tried to", right)
	}
	if err := process.Terminate(t, 10*time.Second); err != nil {
		t.Logf("it ended with %v", err)
	}
}

func changeScheduler(t *testing.T, i *companiontest.Installed, change func(*nodetopologyv1.NUMAResourcesScheduler)) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		now := aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{})
		if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			return err
		}
		change(now)
		return i.Client.Update(t.Context(), now)
	})
}

func TestASchedulerIsAsItsObjectSays(t *testing.T) {
	i := start(t)
	object := aScheduler(nodetopologyv1.NUMAResourcesSchedulerSpec{Replicas: ptr.To[int32](1)})
	create(t, i, object)
	deployment, config := &appsv1.Deployment{}, &corev1.ConfigMap{}
	has := func(check func() error) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			if err := i.Client.Get(t.Context(), theScheduler, deployment); err != nil {
				return err
			}
			if err := i.Client.Get(t.Context(), theScheduler, config); err != nil {
				return err
			}
			return check()
		})
	}
	has(func() error {
		// Those of an earlier test may still be there.
		if !metav1.IsControlledBy(deployment, object) || !metav1.IsControlledBy(config, object) {
			return fmt.Errorf("the owners are %v and %v", deployment.OwnerReferences, config.OwnerReferences)
		}
		return nil
	})
	t.Run("with only what a scheduler needs", func(t *testing.T) {
		pod := deployment.Spec.Template.Spec
		container := pod.Containers[0]
		if pod.ServiceAccountName != "topo-aware-scheduler" || pod.HostNetwork || !*pod.SecurityContext.RunAsNonRoot || container.Image != "registry.example.com/topo-aware-scheduler" {
			t.Errorf("the pod is %+v", pod)
		}
		// The namespace's own judge.
		trial := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: theScheduler.Namespace, Name: "trial"}, Spec: pod}
		if err := i.Client.Create(t.Context(), trial, client.DryRunAll); err != nil {
			t.Errorf("Pod Security refuses its pods: %v", err)
		}
		if !strings.Contains(config.Data["config.yaml"], "schedulerName: topo-aware-scheduler") {
			t.Errorf("the configuration is %s", config.Data["config.yaml"])
		}
		if args := fmt.Sprint(container.Args); args != "[--config=/etc/topo-aware-scheduler/config.yaml -v=2]" {
			t.Errorf("the arguments are %s", args)
		}
	})
	t.Run("started again with another configuration", func(t *testing.T) {
		const hash = "nodetopology.openshift.io/configuration"
		before := deployment.Spec.Template.Annotations[hash]
		changeScheduler(t, i, func(s *nodetopologyv1.NUMAResourcesScheduler) {
			s.Spec.SchedulerName, s.Spec.LogLevel = "by-numa", nodetopologyv1.LogTrace
			s.Spec.UnknownNodes = nodetopologyv1.UnknownNodesAllow
			s.Spec.ScoringStrategy = &nodetopologyv1.ScoringStrategy{Type: nodetopologyv1.ScoringMostAllocated}
		})
		has(func() error {
			for _, part := range []string{"schedulerName: by-numa", "type: MostAllocated"} {
				if !strings.Contains(config.Data["config.yaml"], part) {
					return fmt.Errorf("the configuration has no %q: %s", part, config.Data["config.yaml"])
				}
			}
			if after := deployment.Spec.Template.Annotations[hash]; after == before || after == "" {
				return fmt.Errorf("the pods have %s %q, as before", hash, after)
			}
			return nil
		})
		if args := fmt.Sprint(deployment.Spec.Template.Spec.Containers[0].Args); !strings.Contains(args, "-v=6 --unknown-nodes=Allow") {
			t.Errorf("the arguments are %s", args)
		}
	})
	want, wantConfig := deployment.Spec.DeepCopy(), config.Data["config.yaml"]
	for name, tamper := range map[string]func() error{
		"a configuration that is edited": func() error {
			config.Data["config.yaml"] = "theirs"
			return i.Client.Update(t.Context(), config)
		},
		"a configuration that is deleted": func() error { return i.Client.Delete(t.Context(), config) },
		"a Deployment that is edited": func() error {
			deployment.Spec.Template.Spec.Containers[0].Image, deployment.Spec.Replicas = "theirs", ptr.To[int32](7)
			return i.Client.Update(t.Context(), deployment)
		},
		"a Deployment that is deleted": func() error { return i.Client.Delete(t.Context(), deployment) },
		"a label that is taken off": func() error {
			delete(deployment.Labels, "workload.openshift.io/companion")
			return i.Client.Update(t.Context(), deployment)
		},
	} {
		t.Run(name+" is put back", func(t *testing.T) {
			has(func() error { return nil })
			began := time.Now()
			if err := tamper(); err != nil {
				t.Fatal(err)
			}
			has(func() error {
				container := deployment.Spec.Template.Spec.Containers[0]
				if config.Data["config.yaml"] != wantConfig || container.Image != want.Template.Spec.Containers[0].Image || *deployment.Spec.Replicas != *want.Replicas || deployment.Labels["workload.openshift.io/companion"] != Name {
					return fmt.Errorf("the Deployment has %v and %d replicas of %s, and the configuration is %q", deployment.Labels, *deployment.Spec.Replicas, container.Image, config.Data)
				}
				return nil
			})
			t.Logf("put back after %s", time.Since(began).Round(time.Millisecond))
		})
	}
	t.Run("nothing is left once the object is gone", func(t *testing.T) {
		gone(t, i, object)
		testenv.Eventually(t, patience, func() error {
			for _, left := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}} {
				if err := i.Client.Get(t.Context(), theScheduler, left); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%T is still there: %v", left, err)
				}
			}
			return nil
		})
	})
}
