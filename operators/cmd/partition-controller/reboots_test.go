// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/cli"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/cmd/partition-controller/app"
	hostedconfig "workload.openshift.io/operators/hostedconfig/controller"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/provider"
	"workload.openshift.io/operators/internal/testenv"
	nodepool "workload.openshift.io/operators/nodepool/controller"
	"workload.openshift.io/operators/performance"
	"workload.openshift.io/operators/tuning"
	tuningcontroller "workload.openshift.io/operators/tuning/controller"
	"workload.openshift.io/operators/tuning/inspect"
)

func TestMain(m *testing.M) {
	testenv.Main(m, testenv.Programs{"partition-controller": func() int {
		command := app.NewCommand(&nodepool.Companion{}, &hostedconfig.Companion{}, &tuningcontroller.Companion{})
		command.SetContext(ctrl.SetupSignalHandler())
		return cli.Run(command)
	}}, v1beta1.AddToScheme, tunedv1.AddToScheme)
}

// site is a management cluster and a hosted one, with nodepool, hostedconfig and tuning as they are installed, a provider of
// machines, and on each node an operand that says what TuneD would compute.
type site struct {
	*testing.T
	home, hosted *testenv.ControlPlane
	provider     *provider.Provider
	// processes are the companions, by their names.
	processes map[string]*testenv.Process
	// image is the operand's, and computes what a version of it makes of a profile's arguments.
	image    string
	computes func(literal []string) string
	// taken is the boot in which each node's operand has taken a Profile last: a deferred one waits for another.
	taken map[string]string
}

func (s *site) do(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	s := &site{T: t, home: testenv.Start(t), hosted: testenv.StartHosted(t), processes: map[string]*testenv.Process{}, image: "registry.example.com/operand:1", taken: map[string]string{}}
	s.computes = func(literal []string) string { return strings.Join(literal, " ") }
	s.provider = &provider.Provider{Home: s.home.Client, Hosted: s.hosted.Client, Pools: ofUsers}
	apply := func(in *testenv.ControlPlane, arguments ...string) {
		(&companiontest.Installed{ControlPlane: in}).Kubectl(t, append([]string{"apply", "--server-side", "--force-conflicts"}, arguments...)...)
	}
	for _, name := range []string{nodepool.Name, hostedconfig.Name, tuningcontroller.Name} {
		apply(s.home, "-k", companiontest.Base(name))
	}
	apply(s.home, "-f", filepath.Join(companiontest.Base("sample"), "management.yaml"))
	for _, name := range []string{hostedconfig.Name, tuningcontroller.Name} {
		apply(s.hosted, "-k", filepath.Join(companiontest.Base(name), "hosted"))
	}
	// The operands of this test write as an administrator.
	(&companiontest.Installed{ControlPlane: s.hosted}).Kubectl(t, "delete", "validatingadmissionpolicybinding", "status.tuning.workload.openshift.io")
	s.start(nodepool.Name, "")
	s.start(hostedconfig.Name, "hostedconfig")
	s.start(tuningcontroller.Name, "tuning")
	return s
}

// start starts a companion with the rights of its ServiceAccounts. The one in the hosted cluster may be empty.
func (s *site) start(name, hosted string) {
	s.Helper()
	installed := &companiontest.Installed{ControlPlane: s.home, Name: name, Namespace: "partition-" + name}
	config := installed.Configuration(s.T)
	if *scale > 0 {
		// What is measured has the periods of the manifests. On a busy host a Lease of those is lost.
		config.LeaderElection.LeaseDuration.Duration, config.LeaderElection.RenewDeadline.Duration, config.LeaderElection.RetryPeriod.Duration = time.Hour, 50*time.Minute, 0
		config.ForeignManagerPeriod.Duration = 0
		configv1alpha1.SetDefaults(config)
	}
	config.Settings.Raw = bytes.ReplaceAll(config.Settings.Raw, []byte("registry.example.com/partition-tuned"), []byte(s.image))
	if hosted != "" {
		config.HostedConnection.Kubeconfig = (&companiontest.Installed{ControlPlane: s.hosted, Namespace: installed.Namespace}).Identity(s.T, hosted)
	}
	s.processes[name] = installed.Run(s.T, config)
}

// operands has the operand of each node do its part: apply the Profile, and report what it computes.
func (s *site) operands() (done bool) {
	s.Helper()
	for name, machine := range s.provider.Machines {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "tuned-" + name}}
		err := s.hosted.Client.Get(s.Context(), client.ObjectKeyFromObject(pod), pod)
		if client.IgnoreNotFound(err) != nil {
			s.Fatal(err)
		}
		if apierrors.IsNotFound(err) || pod.Spec.Containers[0].Image != s.image {
			if err == nil {
				s.do(s.hosted.Client.Delete(s.Context(), pod, client.GracePeriodSeconds(0)))
			}
			pod = &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "tuned-" + name, Labels: map[string]string{"openshift-app": "tuned"}},
				Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "tuned", Image: s.image}}},
			}
			s.do(s.hosted.Client.Create(s.Context(), pod))
			pod.Status.Phase = corev1.PodRunning
			s.do(s.hosted.Client.Status().Update(s.Context(), pod))
			done = true
		}
		profile := &tunedv1.Profile{}
		if err := s.hosted.Client.Get(s.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: name}, profile); err != nil {
			continue // there is none yet
		}
		literal, _ := tuning.RequestedBy(profile.Spec).Literal()
		cmdline := s.computes(literal)
		if profile.Status.ObservedGeneration == profile.Generation && profile.Status.Bootcmdline == cmdline && meta.IsStatusConditionTrue(profile.Status.Conditions, tunedv1.ConditionApplied) {
			s.taken[name] = machine.BootID
			continue
		}
		applied := metav1.Condition{Type: tunedv1.ConditionApplied, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()}
		spec := profile.Spec.Config.TunedProfile
		if boot := machine.BootID; s.taken[name] == boot && tuning.Deferred(profile.Annotations[tunedv1.DeferredAnnotation], profile.Status.TunedProfile, spec) {
			if profile.Status.ObservedGeneration == profile.Generation {
				continue
			}
			applied.Status, applied.Reason = metav1.ConditionFalse, tunedv1.ReasonDeferred
			cmdline, spec = profile.Status.Bootcmdline, profile.Status.TunedProfile
		} else {
			s.taken[name] = boot
		}
		profile.Status = tunedv1.ProfileStatus{TunedProfile: spec, Bootcmdline: cmdline, ObservedGeneration: profile.Generation, Conditions: []metav1.Condition{applied}}
		if err := s.hosted.Client.Status().Update(s.Context(), profile); err != nil && !apierrors.IsConflict(err) {
			s.Fatal(err)
		}
		done = true
	}
	return done
}

// settle has everybody do their part until nothing happens for a while, and the pools have what they ask for.
func (s *site) settle(pools ...string) {
	s.Helper()
	quiet := time.Now()
	testenv.Eventually(s.T, 2*time.Minute, func() error {
		operands := s.operands()
		machines, err := s.provider.Step(s.Context())
		if err != nil && !apierrors.IsConflict(err) {
			s.Fatal(err)
		}
		if operands || machines || err != nil {
			quiet = time.Now()
		}
		for _, name := range pools {
			pool := s.pool(name)
			target := pool.Annotations[v1beta1.TargetConfigAnnotation]
			rendered := conditionOf(pool, v1beta1.ConditionRendered)
			if target == "" || pool.Annotations[v1beta1.CurrentConfigAnnotation] != target || rendered == nil || rendered.Status != corev1.ConditionTrue || rendered.ObservedGeneration != pool.Generation {
				quiet = time.Now()
				return fmt.Errorf("NodePool %s has the annotations %v and the conditions %+v", name, pool.Annotations, pool.Status.Conditions)
			}
		}
		for name, m := range s.provider.Machines {
			profile, generated := &tunedv1.Profile{}, &corev1.ConfigMap{}
			s.do(client.IgnoreNotFound(s.hosted.Client.Get(s.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: name}, profile)))
			s.do(s.home.Client.Get(s.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.GeneratedName(m.Pool)}, generated))
			now, err := v1beta1.ReadGenerated(generated)
			s.do(err)
			if input := profile.Annotations[v1beta1.InputAnnotation]; input == "" || input != now.Input {
				quiet = time.Now()
				return fmt.Errorf("the Profile of %s is for %q, and its pool has %q", name, input, now.Input)
			}
		}
		if time.Since(quiet) < 3*time.Second {
			return fmt.Errorf("something has happened %s ago", time.Since(quiet))
		}
		return nil
	})
}

func (s *site) pool(name string) *v1beta1.NodePool {
	s.Helper()
	pool := &v1beta1.NodePool{}
	s.do(s.home.Client.Get(s.Context(), client.ObjectKey{Namespace: ofUsers, Name: name}, pool))
	return pool
}

func conditionOf(pool *v1beta1.NodePool, kind string) *v1beta1.NodePoolCondition {
	for i := range pool.Status.Conditions {
		if pool.Status.Conditions[i].Type == kind {
			return &pool.Status.Conditions[i]
		}
	}
	return nil
}

// aBoot is a Tuned that sets a sysctl and kernel arguments.
func aBoot(sysctl, arguments string) string {
	return fmt.Sprintf("apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata: {name: boot}\nspec:\n  profile:\n  - name: boot\n    data: |\n      [sysctl]\n      kernel.msgmnb=%s\n      [bootloader]\n      cmdline=%s\n  recommend: [{profile: boot, priority: 30}]\n", sysctl, arguments)
}

func aPerformanceProfile(spec string) string {
	return "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: edge}\nspec: " + spec + "\n"
}

// change gives a pool this configuration, and compares the boots with what was foretold, in the same order.
func (s *site) change(what, pool, tuned, profile string, want []int, arguments string) {
	s.Helper()
	foretold := s.foresee(pool, tuned, profile)
	before := len(s.provider.Order)
	s.configure(pool, tuned, profile)
	s.settle("pool-a", "pool-b")
	s.expect(what, pool, want, arguments)
	if got := s.provider.Order[before:]; !slices.Equal(got, slices.Concat(foretold.Nodes...)) {
		s.Errorf("%s: booted were %q, and foretold was %+v", what, got, foretold)
	}
	if replaces := s.pool(pool).Spec.Management.UpgradeType == v1beta1.UpgradeTypeReplace; foretold.Replaced != (replaces && len(foretold.Nodes) > 0) {
		s.Errorf("%s: the pool's machines are replaced: %t, and foretold was %+v", what, replaces, foretold)
	}
	s.Logf("%s: foretold was %+v", what, foretold)
}

// foresee is what kubectl partition tuning plan says of a change.
func (s *site) foresee(pool, tuned, profile string) tuning.Boots {
	s.Helper()
	kube, err := kubernetes.NewForConfig(s.home.Config)
	s.do(err)
	objects, err := dynamic.NewForConfig(s.home.Config)
	s.do(err)
	var nodes []string
	for name, m := range s.provider.Machines {
		if m.Pool == pool {
			nodes = append(nodes, name)
		}
	}
	standing, err := inspect.Home{Kube: kube, Objects: objects, Namespace: controlPlane}.Pool(s.Context(), pool, len(nodes))
	s.do(err)
	tuneds, err := tuning.Parse("file", tuned)
	s.do(err)
	var rendered *performance.Rendered
	if profile != "" {
		p, err := tuning.ParsePerformanceProfile("file", profile)
		s.do(err)
		rendered = &p
	}
	boots, err := tuning.Foresee(pool, standing, tuneds, rendered, nodes)
	s.do(err)
	return boots
}

// configure writes a pool's sources, and has it name them.
func (s *site) configure(pool, tuned, profile string) {
	s.Helper()
	s.source("tuned-of-"+pool, tuned)
	names := []string{"tuned-of-" + pool}
	if profile != "" {
		s.source("perf-of-"+pool, profile)
		names = append(names, "perf-of-"+pool)
	}
	s.names(pool, names...)
}

func (s *site) source(name, text string) {
	s.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ofUsers, Name: name}, Data: map[string]string{"tuning": text}}
	err := s.home.Client.Update(s.Context(), configMap)
	if apierrors.IsNotFound(err) {
		err = s.home.Client.Create(s.Context(), configMap)
	}
	s.do(err)
}

// names has a pool name its ConfigMaps.
func (s *site) names(pool string, configMaps ...string) {
	s.Helper()
	object := &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: ofUsers, Name: pool}, Spec: v1beta1.NodePoolSpec{ClusterName: "hosted", Management: v1beta1.NodePoolManagement{UpgradeType: v1beta1.UpgradeTypeInPlace}}}
	if err := s.home.Client.Create(s.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
	references := []corev1.LocalObjectReference{}
	for _, name := range configMaps {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"tuningConfig": references}})
	s.do(err)
	s.do(s.home.Client.Patch(s.Context(), object, client.RawPatch("application/merge-patch+json", patch)))
}

// boots are those of the machines of a pool, after their first, in the order of their names; each with the arguments.
func (s *site) boots(pool string) (counts []int, arguments []string) {
	var names []string
	for name, m := range s.provider.Machines {
		if m.Pool == pool {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		counts = append(counts, s.provider.Machines[name].Boots)
		arguments = append(arguments, strings.Join(s.provider.Machines[name].Arguments, " "))
	}
	return counts, arguments
}

// expect compares boots since the beginning, and the arguments that all machines of a pool have.
func (s *site) expect(what, pool string, want []int, arguments string) {
	s.Helper()
	counts, got := s.boots(pool)
	if !slices.Equal(counts, want) || slices.ContainsFunc(got, func(a string) bool { return a != arguments }) {
		s.Errorf("%s: the machines of %s have booted %v times with %q, want %v times with %q", what, pool, counts, got, want, arguments)
		return
	}
	s.Logf("%s: boots of %s %v, %q", what, pool, counts, arguments)
}

// Reboots are counted by boot id: one for each change of what a machine boots with, however many parts it has, and none for all others.
func TestAChangeCostsANodeAtMostOneReboot(t *testing.T) {
	s := newSite(t)
	s.configure("pool-a", aBoot("10000", "audit=0"), "")
	s.configure("pool-b", aBoot("10000", "quiet"), "")
	// Pools without nodes: their arguments are literal, so the first machines boot with them.
	s.settle("pool-a", "pool-b")
	for name, pool := range map[string]string{"a1": "pool-a", "a2": "pool-a", "b1": "pool-b"} {
		s.do(s.provider.Join(t.Context(), name, pool))
	}
	s.settle("pool-a", "pool-b")
	s.expect("a new pool", "pool-a", []int{0, 0}, "audit=0")
	s.expect("a new pool", "pool-b", []int{0}, "quiet")
	bare := maps.Clone(s.provider.Machines["a1"].Files)

	s.change("a sysctl", "pool-a", aBoot("20000", "audit=0"), "", []int{0, 0}, "audit=0")
	both := aBoot("20000", "audit=0 skew_tick=1")
	s.change("an argument", "pool-a", both, "", []int{1, 1}, "audit=0 skew_tick=1")
	s.expect("an argument of another pool", "pool-b", []int{0}, "quiet")
	if s.provider.MostDown != 1 {
		t.Errorf("%d machines were down at once, want 1", s.provider.MostDown)
	}

	// Arguments, pinning file, CRI-O's drop-in and the kubelet's configuration at once.
	const partitioned = "irqaffinity=0-1 isolcpus=managed_irq,2-7 rcu_nocbs=2-7 nohz_full=2-7 nosoftlockup tsc=reliable"
	s.change("a PerformanceProfile", "pool-a", both, aPerformanceProfile("{cpu: {reserved: 0-1, isolated: 2-7}, numa: {topologyPolicy: restricted}}"), []int{2, 2}, partitioned)
	for _, want := range []struct{ path, text string }{
		{"/etc/kubernetes/openshift-workload-pinning", `"cpuset": "0-1"`},
		{"/etc/crio/crio.conf.d/01-workload-partitioning", `infra_ctr_cpuset = "0-1"`},
		{"/etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf", "reservedSystemCPUs: 0-1\n"},
		{"/etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf", "topologyManagerPolicy: restricted\n"},
	} {
		if got := s.provider.Machines["a1"].Files[want.path]; !strings.Contains(got, want.text) {
			t.Errorf("%s is\n%s\nwithout %s", want.path, got, want.text)
		}
	}
	for _, kind := range []string{"Available", "Upgradeable"} {
		if c := conditionOf(s.pool("pool-a"), v1beta1.PerformanceConditionPrefix+kind); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("the condition %s is %+v", kind, c)
		}
	}

	// Changed: other CPUs everywhere, with one boot. Then the kubelet's configuration alone, two machines at once.
	four := strings.NewReplacer("0-1", "0-3", "2-7", "4-7").Replace(partitioned)
	s.change("a changed PerformanceProfile", "pool-a", both, aPerformanceProfile("{cpu: {reserved: 0-3, isolated: 4-7}}"), []int{3, 3}, four)
	if got := s.provider.Machines["a2"].Files["/etc/kubernetes/openshift-workload-pinning"]; !strings.Contains(got, `"cpuset": "0-3"`) {
		t.Errorf("the pinning file is %s", got)
	}
	s.do(s.home.Client.Patch(t.Context(), s.pool("pool-a"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"management":{"inPlace":{"maxUnavailable":"100%"}}}}`))))
	profile := aPerformanceProfile("{cpu: {reserved: 0-3, isolated: 4-7}, numa: {topologyPolicy: single-numa-node}}")
	s.change("a topology policy", "pool-a", both, profile, []int{4, 4}, four)
	if s.provider.MostDown != 2 {
		t.Errorf("%d machines were down at once, want 2", s.provider.MostDown)
	}

	// A new node of the pool boots with all of it at once, and no other boots for it.
	s.do(s.provider.Join(t.Context(), "a3", "pool-a"))
	s.settle("pool-a", "pool-b")
	s.expect("a node that joins", "pool-a", []int{4, 4, 0}, four)

	// An upgrade of the operator, whose operand computes other arguments.
	s.do(s.processes[tuningcontroller.Name].Terminate(t, 30*time.Second))
	s.image = "registry.example.com/operand:2"
	s.computes = func(literal []string) string {
		first := min(1, len(literal))
		return strings.Join(slices.Concat(literal[first:], literal[:first]), " ")
	}
	s.start(tuningcontroller.Name, "tuning")
	s.settle("pool-a", "pool-b")
	s.expect("an upgrade", "pool-a", []int{4, 4, 0}, four)
	testenv.Eventually(t, 20*time.Second, func() error {
		if c := conditionOf(s.pool("pool-a"), v1beta1.ConditionKernelArgumentsOutdated); c == nil || c.Status != corev1.ConditionTrue {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	kube, err := kubernetes.NewForConfig(s.home.Config)
	s.do(err)
	applied, err := inspect.Home{Kube: kube, Namespace: controlPlane}.Apply(t.Context(), "pool-a")
	s.do(err)
	testenv.Eventually(t, 20*time.Second, func() error {
		if c := conditionOf(s.pool("pool-a"), v1beta1.ConditionKernelArgumentsOutdated); c == nil || c.Status != corev1.ConditionFalse {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	s.settle("pool-a", "pool-b")
	s.expect("arguments that a person applies", "pool-a", []int{5, 5, 1}, strings.Join(applied, " "))

	// Removed: the machines are as they were before, with one boot.
	s.computes = func(literal []string) string { return strings.Join(literal, " ") }
	s.change("no PerformanceProfile any more", "pool-a", both, "", []int{6, 6, 2}, "audit=0 skew_tick=1")
	if files := s.provider.Machines["a1"].Files; !maps.Equal(files, bare) {
		t.Errorf("it has the files %v, and had %v", files, bare)
	}
	if c := conditionOf(s.pool("pool-a"), v1beta1.PerformanceConditionPrefix+"Available"); c != nil {
		t.Errorf("the condition %+v is left", c)
	}
	s.expect("all of that", "pool-b", []int{0}, "quiet")

	// Deferred: a sysctl waits for a boot, and brings none. Arguments bring one, at which both are applied.
	deferred := func(text string) string {
		return strings.Replace(text, "{name: boot}", "{name: boot, annotations: {tuned.openshift.io/deferred: always}}", 1)
	}
	isApplied := func(want metav1.ConditionStatus) {
		t.Helper()
		for _, name := range []string{"a1", "a2", "a3"} {
			profile := &tunedv1.Profile{}
			s.do(s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: name}, profile))
			if c := meta.FindStatusCondition(profile.Status.Conditions, tunedv1.ConditionApplied); c == nil || c.Status != want || profile.Status.ObservedGeneration != profile.Generation {
				t.Errorf("the Profile of %s has generation %d and %+v, want Applied %s", name, profile.Generation, profile.Status, want)
			}
		}
	}
	s.change("a deferred sysctl", "pool-a", deferred(aBoot("30000", "audit=0 skew_tick=1")), "", []int{6, 6, 2}, "audit=0 skew_tick=1")
	isApplied(metav1.ConditionFalse)
	s.change("a deferred argument", "pool-a", deferred(aBoot("40000", "audit=0 quiet")), "", []int{7, 7, 3}, "audit=0 quiet")
	isApplied(metav1.ConditionTrue)

	// Machines that are replaced boot once, with all of it.
	s.do(s.home.Client.Patch(t.Context(), s.pool("pool-b"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"management":{"upgradeType":"Replace"}}}`))))
	s.change("a sysctl of machines that are replaced", "pool-b", aBoot("20000", "quiet"), "", []int{0}, "quiet")
	s.change("an argument of machines that are replaced", "pool-b", aBoot("20000", "quiet audit=0"), "", []int{0}, "quiet audit=0")
	if _, ok := s.provider.Machines["b1"]; ok {
		t.Error("b1 was not replaced")
	}
}
