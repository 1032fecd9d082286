// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
)

// image is the operand's.
const image = "registry.example.com/partition-tuned"

// argumentsText is a Tuned whose profile has a section [bootloader].
func argumentsText(name, cmdline string) string {
	return strings.Replace(tunedText(name, "1"), "      [sysctl]", "      [bootloader]\n      cmdline="+cmdline+"\n      [sysctl]", 1)
}

// operand is the pod of a node's operand, with an image.
func (p *pair) operand(node, image string) {
	p.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "tuned-" + node, Labels: operandLabels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "tuned", Image: image}}, TerminationGracePeriodSeconds: new(int64)},
	}
	p.do(client.IgnoreNotFound(p.hosted.Client.Delete(p.Context(), pod, client.GracePeriodSeconds(0))))
	pod.ResourceVersion, pod.UID = "", ""
	p.do(p.hosted.Client.Create(p.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	p.do(p.hosted.Client.Status().Update(p.Context(), pod))
	p.Cleanup(func() { _ = p.hosted.Client.Delete(p.Context(), pod, client.GracePeriodSeconds(0)) })
}

// reports is what a node's operand says once it has applied what the Profile has now. The policy lets an operand alone write it.
func (p *pair) reports(node, cmdline string) {
	p.Helper()
	p.hosted.Kubectl(p.T, "delete", "validatingadmissionpolicybinding", "status.tuning.workload.openshift.io", "--ignore-not-found")
	testenv.Eventually(p.T, 10*time.Second, func() error {
		profile := &tunedv1.Profile{}
		if err := p.hosted.Client.Get(p.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: node}, profile); err != nil {
			return err
		}
		profile.Status = tunedv1.ProfileStatus{
			TunedProfile: profile.Spec.Config.TunedProfile, Bootcmdline: cmdline, ObservedGeneration: profile.Generation,
			Conditions: []metav1.Condition{{Type: tunedv1.ConditionApplied, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()}},
		}
		return p.hosted.Client.Status().Update(p.Context(), profile)
	})
}

func TestWhatANodeSaysOfItsKernelArguments(t *testing.T) {
	applied := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: tunedv1.ConditionApplied, Status: status, Reason: reason}}
	}
	const literal, computed = "audit=0 quiet", "audit=0 cpus=${f:exec:nproc}"
	for name, test := range map[string]struct {
		cmdline string
		change  func(*seenNode)
		// want are the arguments, or a part of why it is waited for; silent is that the node has no say.
		want   string
		silent bool
	}{
		"a profile that is applied has what TuneD computed": {cmdline: computed, change: func(n *seenNode) { n.profile.Status.Bootcmdline = "audit=0 cpus=4" }, want: "audit=0 cpus=4"},
		"a deferred one has what no node has to compute: it is applied at the boot that these bring": {
			cmdline: literal, change: func(n *seenNode) {
				n.profile.Status.Conditions, n.profile.Status.Bootcmdline = applied(metav1.ConditionFalse, tunedv1.ReasonDeferred), "old=1"
			}, want: "audit=0 quiet"},
		"a deferred one whose arguments are computed is waited for, and says what to do": {
			cmdline: computed, change: func(n *seenNode) {
				n.profile.Status.Conditions = applied(metav1.ConditionFalse, tunedv1.ReasonDeferred)
			},
			want: "waits for its next boot, and TuneD computes kernel arguments only then; boot it, or remove the annotation tuned.openshift.io/deferred of the Tuned"},
		"one that TuneD cannot apply is waited for": {
			cmdline: literal, change: func(n *seenNode) { n.profile.Status.Conditions = applied(metav1.ConditionFalse, "Failed") }, want: "TuneD has not applied the profile p (Failed)"},
		"a status of an older generation says nothing":      {cmdline: literal, change: func(n *seenNode) { n.profile.Generation++ }, want: "its operand has not seen the Profile yet"},
		"nor does the operand of another version":           {cmdline: literal, change: func(n *seenNode) { n.own = false }, want: "the operand of this version does not run there"},
		"nor a Profile for another configuration":           {cmdline: literal, change: func(n *seenNode) { n.profile.Annotations = nil }, want: "it has no Profile for this configuration yet"},
		"a node without a Profile is waited for":            {cmdline: literal, change: func(n *seenNode) { n.profile = nil }, want: "it has no Profile for this configuration yet"},
		"a node with another profile by its labels is none": {cmdline: literal, change: func(n *seenNode) { n.profile.Spec.Config.TunedProfile = "q" }, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "p"}, Profile: []tunedv1.TunedProfile{{Name: "p", Data: "[bootloader]\ncmdline=+" + test.cmdline + "\n"}}}
			node := seenNode{name: "n1", own: true, profile: &tunedv1.Profile{
				ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: map[string]string{v1beta1.InputAnnotation: "x"}}, Spec: spec,
				Status: tunedv1.ProfileStatus{ObservedGeneration: 3, Bootcmdline: test.cmdline, Conditions: applied(metav1.ConditionTrue, "AsExpected")},
			}}
			test.change(&node)
			report, counts := reportOf(node, "x", "p", tuning.RequestedBy(spec))
			if counts == test.silent || len(report.Refused) > 0 {
				t.Errorf("it counts: %t, and refused are %v", counts, report.Refused)
			}
			if got := strings.Join(report.Arguments, " ") + report.Waits; got != test.want && (report.Waits == "" || !strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What is generated follows what was read of a pool, and not only the ConfigMap: a look at that may be late.
func TestEachLookAtPoolsIsFollowed(t *testing.T) {
	pools := newPools()
	r := &generatedReconciler{pools: pools}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := r.follow(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pools.set(nil, nil, nil, nil)
		testenv.Eventually(t, 10*time.Second, func() error {
			if queue.Len() == 0 {
				return errors.New("nothing is asked for")
			}
			return nil
		})
		request, _ := queue.Get()
		queue.Done(request)
	}
}

// generated is what stands for a pool: its Generated, and the kernel arguments of its MachineConfig, or none.
func (p *pair) generated(pool string) (g v1beta1.Generated, arguments string) {
	p.Helper()
	there := &corev1.ConfigMap{}
	err := p.home.Client.Get(p.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.GeneratedName(pool)}, there)
	if apierrors.IsNotFound(err) {
		return g, "none"
	}
	p.do(err)
	g, err = v1beta1.ReadGenerated(there)
	p.do(err)
	mc := &corev1.ConfigMap{}
	err = p.home.Client.Get(p.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.MachineConfigMapName(pool)}, mc)
	if apierrors.IsNotFound(err) {
		return g, "none"
	}
	p.do(err)
	var m struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			KernelArguments []string `json:"kernelArguments"`
		} `json:"spec"`
	}
	p.do(yaml.Unmarshal([]byte(mc.Data["config"]), &m))
	if m.Metadata.Name != "50-nto-"+pool || mc.Labels["hypershift.openshift.io/nto-generated-machine-config"] != "true" || mc.Labels["hypershift.openshift.io/nodePool"] != pool {
		p.Errorf("the MachineConfig is %s, and its ConfigMap has the labels %v", m.Metadata.Name, mc.Labels)
	}
	return g, strings.Join(m.Spec.KernelArguments, " ")
}

// awaitGenerated waits until a pool has these kernel arguments, and its condition KernelArgumentsAgree the reason.
func (p *pair) awaitGenerated(pool, want, reason string, messages ...string) {
	p.Helper()
	begin := time.Now()
	testenv.Eventually(p.T, 10*time.Second, func() error {
		g, got := p.generated(pool)
		if got != want {
			return fmt.Errorf("the arguments of %s are %q, want %q: %+v", pool, got, want, g)
		}
		for _, c := range g.Conditions {
			if c.Type != v1beta1.ConditionKernelArgumentsAgree {
				continue
			}
			if c.Reason != reason {
				return fmt.Errorf("the condition is %+v, want %s", c, reason)
			}
			for _, message := range messages {
				if !strings.Contains(c.Message, message) {
					return fmt.Errorf("the message is %q, without %q", c.Message, message)
				}
			}
			return nil
		}
		return fmt.Errorf("there is no condition in %+v", g)
	})
	p.Logf("%s: %s (%s) after %s", pool, want, reason, time.Since(begin).Round(10*time.Millisecond))
}

// stays makes sure that the arguments of a pool do not change for a moment.
func (p *pair) stays(pool, want string) {
	p.Helper()
	testenv.Always(p.T, 1500*time.Millisecond, func() error {
		if _, got := p.generated(pool); got != want {
			return fmt.Errorf("the arguments are %q, want %q", got, want)
		}
		return nil
	})
}

func TestKernelArgumentsOfAPool(t *testing.T) {
	p := newPair(t)
	for _, node := range []string{"a1", "a2"} {
		p.node(node, "pool-a")
		p.operand(node, image)
	}
	p.node("b1", "pool-b")
	p.operand("b1", image)
	p.configure("pool-a", argumentsText("boot", "isolcpus=${f:cpulist_online:1-2} audit=0"))
	p.configure("pool-b", argumentsText("boot", "quiet"))
	p.start()

	// All nodes must agree.
	p.awaitGenerated("pool-a", "none", "WaitingForNodes", "node a1", "node a2")
	p.reports("a1", "isolcpus=1 audit=0")
	p.awaitGenerated("pool-a", "none", "WaitingForNodes", "node a2: its operand has not seen the Profile yet")
	p.reports("a2", "isolcpus=2 audit=0")
	p.awaitGenerated("pool-a", "none", "NodesDisagree", "node a2 computes isolcpus=2 audit=0, and others compute isolcpus=1 audit=0; different kernel arguments need different NodePools")
	p.reports("a2", "isolcpus=1 audit=0")
	p.awaitGenerated("pool-a", "isolcpus=1 audit=0", "AsExpected")

	// The other pool has its own.
	p.reports("b1", "quiet")
	p.awaitGenerated("pool-b", "quiet", "AsExpected")

	// A sysctl only: the same arguments, for a new input once the nodes have applied it.
	before, _ := p.generated("pool-a")
	p.configure("pool-a", strings.Replace(argumentsText("boot", "isolcpus=${f:cpulist_online:1-2} audit=0"), "msgmnb=1", "msgmnb=2", 1))
	p.awaitGenerated("pool-a", "isolcpus=1 audit=0", "WaitingForNodes")
	p.reports("a1", "isolcpus=1 audit=0")
	p.reports("a2", "isolcpus=1 audit=0")
	p.awaitGenerated("pool-a", "isolcpus=1 audit=0", "AsExpected")
	after, _ := p.generated("pool-a")
	if before.Input == after.Input || !maps.Equal(before.Parts, after.Parts) {
		t.Errorf("the input was %s and is %s; the parts were %v and are %v", before.Input, after.Input, before.Parts, after.Parts)
	}

	// An upgrade of the operand computes others: nothing changes by itself.
	for _, node := range []string{"a1", "a2"} {
		p.operand(node, "registry.example.com/older")
		p.reports(node, "isolcpus=2 audit=0")
	}
	p.stays("pool-a", "isolcpus=1 audit=0")
	p.operand("a1", image)
	p.operand("a2", image)
	outdated := func() error {
		g, _ := p.generated("pool-a")
		if strings.Join(g.Outdated, " ") != "isolcpus=2 audit=0" || !slices.ContainsFunc(g.Conditions, func(c v1beta1.GeneratedCondition) bool {
			return c.Type == v1beta1.ConditionKernelArgumentsOutdated && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "compute isolcpus=2 audit=0 now, and boot with isolcpus=1 audit=0")
		}) {
			return fmt.Errorf("it is %+v", g)
		}
		return nil
	}
	testenv.Eventually(t, 10*time.Second, outdated)
	p.stays("pool-a", "isolcpus=1 audit=0")
	// A node that joins changes nothing either.
	p.node("a3", "pool-a")
	p.stays("pool-a", "isolcpus=1 audit=0")
	p.operand("a3", image)
	p.reports("a3", "isolcpus=2 audit=0")
	testenv.Eventually(t, 10*time.Second, outdated)
	// Until a person says so, for what was shown.
	apply := func(hash string) {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: v1beta1.GeneratedName("pool-a")}}
		p.do(p.home.Client.Patch(t.Context(), configMap, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.ApplyArgumentsAnnotation, hash))))
	}
	apply(tuning.ArgumentsHash([]string{"something=else"}))
	p.stays("pool-a", "isolcpus=1 audit=0")
	apply(tuning.ArgumentsHash([]string{"isolcpus=2", "audit=0"}))
	p.awaitGenerated("pool-a", "isolcpus=2 audit=0", "AsExpected")

	// That was for once: after another change of the pool, the same asks again.
	p.configure("pool-a", strings.Replace(argumentsText("boot", "isolcpus=${f:cpulist_online:1-2} audit=0"), "msgmnb=1", "msgmnb=3", 1))
	for _, node := range []string{"a1", "a2", "a3"} {
		p.reports(node, "isolcpus=1 audit=0")
	}
	p.awaitGenerated("pool-a", "isolcpus=1 audit=0", "AsExpected")
	for _, node := range []string{"a1", "a2", "a3"} {
		p.reports(node, "isolcpus=2 audit=0")
	}
	testenv.Eventually(t, 10*time.Second, outdated)
	p.stays("pool-a", "isolcpus=1 audit=0")
	apply(tuning.ArgumentsHash([]string{"isolcpus=2", "audit=0"}))
	p.awaitGenerated("pool-a", "isolcpus=2 audit=0", "AsExpected")

	// What somebody changes at home is put right, and nobody else's ConfigMap is touched.
	mc := &corev1.ConfigMap{}
	p.do(p.home.Client.Get(t.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.MachineConfigMapName("pool-a")}, mc))
	mc.Data["config"] = strings.Replace(mc.Data["config"], "audit=0", "init=/bin/sh", 1)
	p.do(p.home.Client.Update(t.Context(), mc))
	p.awaitGenerated("pool-a", "isolcpus=2 audit=0", "AsExpected")

	// Nothing is wanted any more: the MachineConfig goes. Then the pool goes, with all of it.
	p.configure("pool-a", tunedText("queues", "3"))
	for _, node := range []string{"a1", "a2", "a3"} {
		p.reports(node, "")
	}
	p.awaitGenerated("pool-a", "none", "AsExpected")
	p.do(p.home.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-pool-a"}}))
	testenv.Eventually(t, 20*time.Second, func() error {
		var list corev1.ConfigMapList
		p.do(p.home.Client.List(t.Context(), &list, client.InNamespace(controlPlane), client.MatchingLabels{companion.OwnerLabel: Name, v1beta1.PoolLabel: "pool-a"}))
		if len(list.Items) > 0 {
			return fmt.Errorf("%d ConfigMaps are left", len(list.Items))
		}
		return nil
	})
	p.awaitGenerated("pool-b", "quiet", "AsExpected")
}

// A compromised operand in a pool of one: it agrees with itself.
func TestKernelArgumentsThatTheProfileDoesNotHave(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	p.operand("a1", image)
	p.configure("pool-a", argumentsText("boot", "audit=0 cpus=${f:exec:nproc}"))
	p.start()
	p.reports("a1", "audit=0 cpus=4")
	p.awaitGenerated("pool-a", "audit=0 cpus=4", "AsExpected")
	for report, message := range map[string]string{
		"audit=0 cpus=4 init=/bin/sh": "node a1: init=/bin/sh: no [bootloader] section of the profile boot",
		"audit=1 cpus=4":              "node a1: audit=1: the profile boot has audit=0",
		"audit=0 cpus=/bin/sh":        "node a1: cpus=/bin/sh: the profile boot has cpus=${f:exec:nproc}, and what is computed can have only digits",
		"cpus=4":                      "node a1: audit=0: the profile boot has it, and the node does not report it",
		// As much as a status takes, and each named in more than an annotation does.
		strings.Repeat("q ", 2048): "node a1: audit=0: the profile boot has it, and the node does not report it",
	} {
		// Another input, so that only the refusal holds it back.
		p.configure("pool-a", strings.Replace(argumentsText("boot", "audit=0 cpus=${f:exec:nproc}"), "msgmnb=1", fmt.Sprintf("msgmnb=%d", len(report)), 1))
		p.reports("a1", report)
		p.awaitGenerated("pool-a", "audit=0 cpus=4", "KernelArgumentsRefused", message)
		testenv.Eventually(t, 5*time.Second, func() error {
			profile := &tunedv1.Profile{}
			p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "a1"}, profile))
			if got := profile.Annotations[tuning.RefusedAnnotation]; !strings.Contains(got, strings.TrimPrefix(message, "node a1: ")) {
				return fmt.Errorf("the Profile says %q", got)
			}
			return nil
		})
	}
	saysNothing := func() {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, func() error {
			profile := &tunedv1.Profile{}
			p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "a1"}, profile))
			if got, ok := profile.Annotations[tuning.RefusedAnnotation]; ok {
				return fmt.Errorf("the Profile says %q", got)
			}
			return nil
		})
	}
	p.reports("a1", "audit=0 cpus=8")
	p.awaitGenerated("pool-a", "audit=0 cpus=8", "AsExpected")
	saysNothing()
	// The user takes the Tuned off the NodePool.
	p.reports("a1", "audit=0 cpus=/bin/sh")
	p.awaitGenerated("pool-a", "audit=0 cpus=8", "KernelArgumentsRefused")
	p.do(p.home.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-pool-a"}}))
	saysNothing()
}
