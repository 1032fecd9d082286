// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// soon is how long a change may take to arrive.
const soon = 5 * time.Second

// management is a management cluster with NodePools of one namespace.
type management struct {
	client.Client
	t *testing.T
	*companiontest.Installed
	// namespace has NodePools and their ConfigMaps, controlPlane the copies.
	namespace, controlPlane string
}

// newManagement has a control plane's namespace of the cluster hosted. The controllers are not started.
func newManagement(t *testing.T) *management {
	t.Helper()
	plane := companiontest.Install(t, Name)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "clusters-"}}
	m := &management{Client: plane.Client, Installed: plane, t: t}
	m.do(m.Create(t.Context(), namespace))
	m.namespace = namespace.Name
	m.controlPlane = v1beta1.ControlPlaneNamespace(namespace.Name, "hosted")
	t.Cleanup(func() {
		_ = m.DeleteAllOf(context.Background(), &v1beta1.NodePool{}, client.InNamespace(m.namespace))
		_ = m.DeleteAllOf(context.Background(), &corev1.ConfigMap{}, client.InNamespace(m.controlPlane))
		_ = m.DeleteAllOf(context.Background(), &corev1.Secret{}, client.InNamespace(m.controlPlane))
	})
	return m
}

func (m *management) do(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *management) withControlPlane() *management {
	m.t.Helper()
	m.do(m.Create(m.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.controlPlane, Annotations: map[string]string{v1beta1.HostedClusterAnnotation: m.namespace + "/hosted"}}}))
	return m
}

// start starts the companion as partition-controller does, with its rights, until the function that it returns is called.
func (m *management) start() (stop func()) {
	m.t.Helper()
	own := rest.AnonymousClientConfig(m.Config)
	own.BearerToken = m.Token(m.t, m.Installed.Namespace, "partition-controller", nil)
	cached := map[client.Object]cache.ByObject{}
	maps.Copy(cached, (&Companion{}).Needs(nil).Home.Cache)
	mgr, err := manager.New(own, manager.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: cached, ReaderFailOnMissingInformer: true},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	m.do(err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reconciler{Client: client.WithFieldOwner(mgr.GetClient(), companion.FieldOwner(Name)), Reader: mgr.GetAPIReader(), Recorder: companion.Recorder(mgr, Name)}
	m.do(r.Add(ctx, mgr))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	}
	m.t.Cleanup(stop)
	return stop
}

// configMap creates or changes a ConfigMap of the user's.
func (m *management) configMap(name, key, value string) {
	m.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}, Data: map[string]string{key: value}}
	if err := m.Update(m.t.Context(), object); err != nil {
		m.do(m.Create(m.t.Context(), object))
	}
}

func (m *management) remove(name string) {
	m.t.Helper()
	m.do(m.Delete(m.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}))
}

// pool creates or changes a NodePool that names ConfigMaps.
func (m *management) pool(name string, tuning, config []string) *v1beta1.NodePool {
	m.t.Helper()
	pool := &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}, Spec: v1beta1.NodePoolSpec{ClusterName: "hosted"}}
	if err := m.Create(m.t.Context(), pool); err != nil && !apierrors.IsAlreadyExists(err) {
		m.t.Fatal(err)
	}
	m.change(pool, func(pool *v1beta1.NodePool) {
		pool.Spec.TuningConfig, pool.Spec.Config = nil, nil
		for _, name := range tuning {
			pool.Spec.TuningConfig = append(pool.Spec.TuningConfig, corev1.LocalObjectReference{Name: name})
		}
		for _, name := range config {
			pool.Spec.Config = append(pool.Spec.Config, corev1.LocalObjectReference{Name: name})
		}
	})
	return pool
}

// change changes a NodePool, of which the companion writes the status meanwhile.
func (m *management) change(pool *v1beta1.NodePool, change func(*v1beta1.NodePool)) {
	m.t.Helper()
	m.do(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := m.Get(m.t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		change(pool)
		return m.Update(m.t.Context(), pool)
	}))
}

// copies returns what the companion has copied, as NAME=VALUE.
func (m *management) copies() (copies []string) {
	m.t.Helper()
	var list corev1.ConfigMapList
	m.do(m.List(m.t.Context(), &list, client.InNamespace(m.controlPlane), client.MatchingLabels{companion.OwnerLabel: Name}))
	for _, copied := range list.Items {
		for _, value := range copied.Data {
			copies = append(copies, copied.Name+"="+value)
		}
	}
	slices.Sort(copies)
	return copies
}

// awaitCopies waits until these are all copies.
func (m *management) awaitCopies(want ...string) {
	m.t.Helper()
	started := time.Now()
	testenv.Eventually(m.t, soon, func() error {
		if got := m.copies(); !slices.Equal(got, want) {
			return fmt.Errorf("the copies are\n%q\nwant\n%q", got, want)
		}
		return nil
	})
	m.t.Logf("after %s there are %d copies", time.Since(started).Round(time.Millisecond), len(want))
}

// awaitCondition waits until a pool's condition is True, or False with a message that has all of these texts.
func (m *management) awaitCondition(pool, condition string, want ...string) {
	m.t.Helper()
	testenv.Eventually(m.t, soon, func() error {
		var found v1beta1.NodePool
		if err := m.Get(m.t.Context(), client.ObjectKey{Namespace: m.namespace, Name: pool}, &found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type != condition {
				continue
			}
			if (c.Status == corev1.ConditionTrue) != (want == nil) || c.ObservedGeneration != found.Generation {
				return fmt.Errorf("it is %+v at generation %d", c, found.Generation)
			}
			for _, text := range want {
				if !strings.Contains(c.Message, text) {
					return fmt.Errorf("its message is\n%s\nwithout\n%s", c.Message, text)
				}
			}
			return nil
		}
		return fmt.Errorf("there is no condition %s: %+v", condition, found.Status)
	})
}

func aTuned(name, value string) string {
	return fmt.Sprintf("apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata:\n  name: %[1]s\nspec:\n  profile:\n  - name: %[1]s\n    data: |\n      [sysctl]\n      vm.swappiness=%[2]s\n  recommend:\n  - profile: %[1]s\n    priority: 20\n", name, value)
}

func aKubeletConfig(name, policy string) string {
	return fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata:\n  name: %s\nspec:\n  kubeletConfig:\n    topologyManagerPolicy: %s\n", name, policy)
}

func TestTuningConfigOfAPool(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	m.pool("pool-a", []string{"sysctls"}, nil)
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "10"))
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig)
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig)
	var copied corev1.ConfigMap
	m.do(m.Get(t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: "tuned-pool-a"}, &copied))
	if got := copied.Labels; got["hypershift.openshift.io/tuned-config"] != "true" || got["hypershift.openshift.io/nodePool"] != "pool-a" || copied.Immutable != nil {
		t.Errorf("the copy has the labels %v, and is immutable: %v", got, ptr.Deref(copied.Immutable, false))
	}

	m.configMap("sysctls", "tuning", aTuned("swap", "20"))
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "20"))

	// A typo changes nothing.
	m.configMap("sysctls", "tuning", aTuned("other", "1")+"---\n"+strings.Replace(aTuned("swap", "30"), "  recommend:", " recommend:", 1))
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig, "ConfigMap "+m.namespace+"/sysctls, key tuning, document 2, line 25")
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "20"))
	m.configMap("sysctls", "tuning", aTuned("swap", "30"))
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "30"))
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig)

	// Nor does a source that is missing; to take it off the pool deletes the copy.
	m.remove("sysctls")
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig, "there is no ConfigMap "+m.namespace+"/sysctls")
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "30"))
	m.pool("pool-a", nil, nil)
	m.awaitCopies()
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig)
}

// kube-apiserver refuses an Event whose note is longer than 1024 bytes.
func TestALongFaultHasAnEvent(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	var names []string
	for i := range 9 {
		names = append(names, fmt.Sprintf("%s-%d", strings.Repeat("missing-", 10), i))
	}
	m.pool("pool-a", names, nil)
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig, names...)
	testenv.Eventually(t, 4*soon, func() error {
		if got := m.Kubectl(t, "get", "events", "--namespace="+m.namespace); !strings.Contains(got, "ValidTuningConfig is False: spec.tuningConfig[0]: there is no ConfigMap") {
			return fmt.Errorf("the Events are %s", got)
		}
		return nil
	})
}

func TestKubeletConfigOfAPool(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	m.configMap("numa", "config", aKubeletConfig("numa", "single-numa-node"))
	m.pool("pool-a", nil, []string{"numa"})
	m.awaitCopies("numa-pool-a=" + aKubeletConfig("numa", "single-numa-node"))
	var copied corev1.ConfigMap
	m.do(m.Get(t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: "numa-pool-a"}, &copied))
	if value, has := copied.Labels["hypershift.openshift.io/kubeletconfig-config"]; !has || value != "" || copied.Labels["hypershift.openshift.io/nodePool"] != "pool-a" {
		t.Errorf("the copy has the labels %v", copied.Labels)
	}

	// A second one changes nothing, and is named; to take it off heals that.
	m.configMap("more", "config", aKubeletConfig("more", "none"))
	m.pool("pool-a", nil, []string{"more", "numa"})
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig, "ConfigMap "+m.namespace+"/more", "KubeletConfig numa", "remove more")
	m.awaitCopies("numa-pool-a=" + aKubeletConfig("numa", "single-numa-node"))
	m.pool("pool-a", nil, []string{"numa"})
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig)
	m.pool("pool-a", nil, []string{"more", "numa"})
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig, "remove more")
	// What is in it may go as well.
	m.configMap("more", "config", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-x}\n")
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig)

	// The pool that has another one in its place loses the old copy in the same look.
	m.configMap("renamed", "config", aKubeletConfig("numa", "restricted"))
	m.pool("pool-a", nil, []string{"renamed"})
	m.awaitCopies("renamed-pool-a=" + aKubeletConfig("numa", "restricted"))
	m.pool("pool-a", nil, nil)
	m.awaitCopies()
}

func TestEndsOfAPool(t *testing.T) {
	m := newManagement(t).withControlPlane()
	stop := m.start()
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	m.pool("a", []string{"sysctls"}, nil)
	m.pool("b", []string{"sysctls"}, nil)
	m.awaitCopies("tuned-a="+aTuned("swap", "10"), "tuned-b="+aTuned("swap", "10"))
	// Both have gone at once: the pool's end is certain, and the source's does not matter.
	m.remove("sysctls")
	m.do(m.Delete(t.Context(), &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "a"}}))
	m.awaitCopies("tuned-b=" + aTuned("swap", "10"))
	// While nothing runs.
	stop()
	m.do(m.Delete(t.Context(), &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "b"}}))
	m.start()
	m.awaitCopies()
}

func TestWhatStandsInTheWayOfACopy(t *testing.T) {
	m := newManagement(t)
	m.start()
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	pool := m.pool("pool-a", []string{"sysctls"}, nil)
	testenv.Eventually(t, soon, func() error {
		m.do(m.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		if got := fmt.Sprint(pool.Status.Conditions); !strings.Contains(got, "ControlPlaneNamespaceMissing") || !strings.Contains(got, m.controlPlane) {
			return fmt.Errorf("the conditions are %s", got)
		}
		return nil
	})
	m.withControlPlane()
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.controlPlane, Name: "tuned-pool-a"}, Data: map[string]string{"theirs": "x"}}
	m.do(m.Create(t.Context(), foreign))
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig, m.controlPlane+"/tuned-pool-a", "is somebody else's")
	m.do(m.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if foreign.Data["theirs"] != "x" || len(foreign.Labels) > 0 {
		t.Errorf("it was changed: %+v", foreign)
	}
	m.do(m.Delete(t.Context(), foreign))
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "10"))
	m.awaitCondition("pool-a", v1beta1.ConditionValidTuningConfig)

	// Those of an older version: under these names, with those labels, and immutable. Both pools have one source.
	m.configMap("numa", "config", aKubeletConfig("numa", "none"))
	both := []string{"numa-pool-a=" + aKubeletConfig("numa", "none"), "numa-pool-b=" + aKubeletConfig("numa", "none"), "tuned-pool-a=" + aTuned("swap", "10")}
	for _, pool := range []string{"pool-a", "pool-b"} {
		m.do(m.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.controlPlane, Name: "numa-" + pool, Labels: map[string]string{"hypershift.openshift.io/kubeletconfig-config": "true", "hypershift.openshift.io/nodePool": pool}},
			Data:       map[string]string{"config": "old"}, Immutable: ptr.To(true),
		}))
	}
	m.pool("pool-b", nil, []string{"numa"})
	m.pool("pool-a", []string{"sysctls"}, []string{"numa"})
	m.awaitCopies(both...)

	// Somebody edits a copy, or deletes it.
	copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.controlPlane, Name: "tuned-pool-a"}}
	m.do(m.Patch(t.Context(), copied, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"tuning":"theirs"}}`))))
	m.awaitCopies(both...)
	m.do(m.Delete(t.Context(), copied))
	m.awaitCopies(both...)
	m.do(m.Patch(t.Context(), copied, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))))
	m.awaitCopies(both...)
}

// TestTwoPoolsWhoseCopiesHaveOneName: a-b of the pool c, and a of the pool b-c.
func TestTwoPoolsWhoseCopiesHaveOneName(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	m.configMap("a-b", "config", aKubeletConfig("first", "none"))
	m.configMap("a", "config", aKubeletConfig("second", "restricted"))
	m.pool("c", nil, []string{"a-b"})
	m.awaitCopies("a-b-c=" + aKubeletConfig("first", "none"))
	m.pool("b-c", nil, []string{"a"})
	for _, pool := range []string{"c", "b-c"} {
		m.awaitCondition(pool, v1beta1.ConditionValidMachineConfig, "a-b-c")
	}
	m.configMap("a-b", "config", aKubeletConfig("first", "best-effort"))
	m.configMap("a", "config", aKubeletConfig("second", "best-effort"))
	testenv.Always(t, 2*time.Second, func() error {
		var copied corev1.ConfigMap
		if err := m.Get(t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: "a-b-c"}, &copied); err != nil || copied.Data["config"] != aKubeletConfig("first", "none") {
			return fmt.Errorf("it is %q: %w", copied.Data, err)
		}
		return nil
	})
	m.pool("b-c", nil, nil)
	m.awaitCopies("a-b-c=" + aKubeletConfig("first", "best-effort"))
	m.awaitCondition("c", v1beta1.ConditionValidMachineConfig)
	m.awaitCondition("b-c", v1beta1.ConditionValidMachineConfig)
}

func TestAPoolThatIsPaused(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	pool := m.pool("pool-a", []string{"sysctls"}, nil)
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "10"))
	for name, pause := range map[string]func(*v1beta1.NodePool){
		"the annotation":   func(p *v1beta1.NodePool) { p.Annotations = map[string]string{nodegroup.PausedAnnotation: "true"} },
		"spec.pausedUntil": func(p *v1beta1.NodePool) { p.Spec.PausedUntil = ptr.To("true") },
	} {
		m.change(pool, pause)
		before := m.copies()
		m.configMap("sysctls", "tuning", aTuned("swap", name))
		time.Sleep(time.Second)
		if got := m.copies(); !slices.Equal(got, before) {
			t.Errorf("with %s, the copies became %q", name, got)
		}
		m.change(pool, func(p *v1beta1.NodePool) { p.Annotations, p.Spec.PausedUntil = nil, nil })
		m.awaitCopies("tuned-pool-a=" + aTuned("swap", name))
	}
	// A pause that ends by itself.
	m.change(pool, func(p *v1beta1.NodePool) {
		p.Spec.PausedUntil = ptr.To(time.Now().Add(2 * time.Second).Format(time.RFC3339))
	})
	m.configMap("sysctls", "tuning", aTuned("swap", "60"))
	m.awaitCopies("tuned-pool-a=" + aTuned("swap", "60"))
}
