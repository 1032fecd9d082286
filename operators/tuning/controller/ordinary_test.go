// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
)

// newOrdinary is one cluster with the manifests for an ordinary one. It is not the one that is a hosted cluster in other tests:
// kube-apiserver goes on with the identity that it knew there, once the policies have gone and come back.
func newOrdinary(t *testing.T) *pair {
	cluster := &companiontest.Installed{ControlPlane: testenv.Start(t), Name: Name, Namespace: namespace}
	p := &pair{T: t, home: cluster, hosted: cluster}
	p.empty()
	cluster.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", companiontest.Base("tuning-ordinary"))
	return p
}

// tuned writes a Tuned as a user does.
func (p *pair) tuned(text string) *tunedv1.Tuned {
	p.Helper()
	tuned := &tunedv1.Tuned{}
	p.do(yaml.UnmarshalStrict([]byte(text), tuned))
	tuned.Namespace = tunedv1.Namespace
	standing := &tunedv1.Tuned{}
	err := p.home.Client.Get(p.Context(), client.ObjectKeyFromObject(tuned), standing)
	if apierrors.IsNotFound(err) {
		p.do(p.home.Client.Create(p.Context(), tuned))
		return tuned
	}
	p.do(err)
	before := standing.DeepCopy()
	standing.Spec = tuned.Spec
	p.do(p.home.Client.Patch(p.Context(), standing, client.MergeFrom(before)))
	return standing
}

// foretell is what a node gets once a person applies this.
func (p *pair) foretell(node, text string) tunedv1.ProfileSpec {
	p.Helper()
	more, err := tuning.Parse("file", text)
	p.do(err)
	var standing tunedv1.TunedList
	p.do(p.home.Client.List(p.Context(), &standing, client.InNamespace(tunedv1.Namespace)))
	tuneds, state, err := tuning.Applied(standing.Items, more)
	p.do(err)
	subject := tuning.Node{Name: node}
	choice, found := tuning.Choose(subject, tuneds)
	if !found || state != tunedv1.Managed {
		p.Fatalf("node %s gets anything: %t, in the state %s", node, found, state)
	}
	return tuning.ProfileOf(subject, choice, tuneds)
}

func at(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: name}
}

func merge(text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(text))
}

func TestTheTunedsOfAnOrdinaryClusterReachItsNodes(t *testing.T) {
	p := newOrdinary(t)
	p.node("a1", "")
	p.node("a2", "pool-a") // which means nothing here
	p.node("m1", "", "node-role.kubernetes.io/control-plane")
	p.tuned(tunedText("queues", "32768") + "    match: [{label: fast}]\n")
	p.node("f1", "", "fast")
	p.start()
	for node, want := range map[string]string{"a1": "openshift-node queues=32768", "a2": "openshift-node queues=32768", "m1": "openshift-control-plane queues=32768", "f1": "queues queues=32768"} {
		p.eventuallyProfile(20*time.Second, node, want)
	}
	p.condition("queues", tunedv1.ConditionValid, "True/AsExpected")
	p.condition("default", tunedv1.ConditionDegraded, "False/AsExpected")
	testenv.Eventually(t, 5*time.Second, func() error {
		return p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "tuned"}, &appsv1.DaemonSet{})
	})

	// A user's edit, which is foretold as kubectl partition tuning plan does; a Profile is nobody's to edit.
	foretold := p.foretell("a1", tunedText("queues", "40000"))
	p.tuned(tunedText("queues", "40000"))
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	made := &tunedv1.Profile{}
	p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "a1"}, made))
	if !equality.Semantic.DeepEqual(made.Spec, foretold) {
		t.Errorf("the Profile of a1 is\n%+v\nand foretold was\n%+v", made.Spec, foretold)
	}
	profile := &tunedv1.Profile{ObjectMeta: at("a1")}
	testenv.Eventually(t, 20*time.Second, func() error {
		if err := p.hosted.Client.Patch(t.Context(), profile, merge(`{"spec":{"config":{"tunedProfile":"powersave"}}}`)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "as the Tuneds say") {
			return fmt.Errorf("a Profile's choice: %v", err)
		}
		return nil
	})
	p.withoutPolicies()
	testenv.Eventually(t, 20*time.Second, func() error {
		return p.hosted.Client.Patch(t.Context(), profile, merge(`{"spec":{"config":{"tunedProfile":"powersave"}}}`))
	})
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	p.do(p.hosted.Client.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at("default")}, merge(`{"spec":{"recommend":[{"profile":"powersave","priority":0}]}}`)))
	testenv.Eventually(t, 5*time.Second, func() error {
		tuned := &tunedv1.Tuned{}
		if err := p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "default"}, tuned); err != nil || len(tuned.Spec.Recommend) != 2 {
			return fmt.Errorf("the default has %v: %v", tuned.Spec.Recommend, err)
		}
		return nil
	})

	// A fault: nothing changes, also after a restart; both Tuneds say why.
	other := p.tuned(strings.Replace(tunedText("queues", "50000"), "  name: queues\n", "  name: other\n", 1))
	for _, name := range []string{"queues", "other"} {
		if got := p.condition(name, tunedv1.ConditionValid, "False/InvalidConfiguration"); !strings.Contains(got, "the profile queues differs between the Tuneds other and queues") {
			t.Errorf("the message is %q", got)
		}
	}
	p.condition("default", tunedv1.ConditionDegraded, "True/InvalidConfiguration")
	p.node("a3", "")
	p.eventuallyProfile(5*time.Second, "a3", "queues queues=40000")
	p.process.Kill()
	p.home.FreeLease(t)
	p.start()
	p.condition("default", tunedv1.ConditionDegraded, "True/InvalidConfiguration")
	testenv.Always(t, 3*time.Second, func() error {
		if got := p.profile("a1"); got != "queues queues=40000" {
			return fmt.Errorf("node a1 gets %s", got)
		}
		return nil
	})
	p.do(p.hosted.Client.Delete(t.Context(), other))
	p.condition("queues", tunedv1.ConditionValid, "True/AsExpected")
	p.condition("default", tunedv1.ConditionDegraded, "False/AsExpected")

	p.do(p.hosted.Client.Delete(t.Context(), &tunedv1.Tuned{ObjectMeta: at("queues")}))
	p.eventuallyProfile(5*time.Second, "a1", "openshift-node")
	p.do(p.hosted.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a2"}}))
	p.eventuallyProfile(5*time.Second, "a2", "none")
}

func TestAnOrdinaryClustersStateIsItsUsersToChoose(t *testing.T) {
	p := newOrdinary(t)
	p.node("a1", "")
	p.tuned(tunedText("queues", "32768"))
	p.start()
	p.eventuallyProfile(20*time.Second, "a1", "queues queues=32768")
	state := func(value string) {
		t.Helper()
		p.do(p.hosted.Client.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at("default")}, merge(fmt.Sprintf(`{"spec":{"managementState":%q}}`, value))))
	}
	set := &appsv1.DaemonSet{ObjectMeta: at("tuned")}
	has := func(want bool) func() error {
		return func() error {
			if err := p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("the DaemonSet: %v, want one: %t", err, want)
			}
			return nil
		}
	}
	testenv.Eventually(t, 10*time.Second, has(true))
	state(tunedv1.Unmanaged)
	time.Sleep(time.Second) // the cache has it
	p.tuned(tunedText("queues", "40000"))
	testenv.Always(t, 3*time.Second, func() error {
		if got := p.profile("a1"); got != "queues queues=32768" {
			return fmt.Errorf("node a1 gets %s", got)
		}
		return nil
	})
	state(tunedv1.Force)
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	state(tunedv1.Removed)
	p.eventuallyProfile(5*time.Second, "a1", "none")
	testenv.Eventually(t, 5*time.Second, has(false))
	testenv.Always(t, 3*time.Second, has(false))
	state(tunedv1.Managed)
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	testenv.Eventually(t, 5*time.Second, has(true))
}

func TestKernelArgumentsOfAnOrdinaryClusterAreReported(t *testing.T) {
	p := newOrdinary(t)
	for _, name := range []string{"a1", "a2", "a3"} {
		p.node(name, "")
	}
	p.tuned(tunedText("queues", "32768"))
	p.start()
	for _, name := range []string{"a1", "a2", "a3"} {
		p.eventuallyProfile(20*time.Second, name, "queues queues=32768")
	}
	p.withoutPolicies()
	says := func(node, line string) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, func() error {
			return p.hosted.Client.Status().Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, merge(fmt.Sprintf(`{"status":{"tunedProfile":"queues","bootcmdline":%q}}`, line)))
		})
	}
	says("a1", "isolcpus=1")
	says("a3", "isolcpus=1")
	says("a2", strings.Repeat("x", 4000))
	testenv.Eventually(t, 5*time.Second, func() error {
		got := p.condition("queues", ConditionKernelArguments, "True/OrdinaryCluster")
		if !strings.Contains(got, `Node a1 and 1 more: "isolcpus=1".`) || !strings.Contains(got, "Node a2: ") || len(got) > 1000 {
			return fmt.Errorf("the message is %q", got)
		}
		return nil
	})
	for _, name := range []string{"a1", "a2", "a3"} {
		says(name, "")
	}
	testenv.Eventually(t, 5*time.Second, func() error {
		tuned := &tunedv1.Tuned{}
		p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "queues"}, tuned))
		if condition := meta.FindStatusCondition(tuned.Status.Conditions, ConditionKernelArguments); condition != nil {
			return fmt.Errorf("the condition is still %v", condition)
		}
		return nil
	})
}

func TestAPerformanceProfileOfAnOrdinaryClusterIsRefusedByName(t *testing.T) {
	p := newOrdinary(t)
	p.node("a1", "")
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "performanceprofiles.performance.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: performanceProfileKind.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "performanceprofiles", Kind: performanceProfileKind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: performanceProfileKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	p.start()
	p.condition("default", tunedv1.ConditionDegraded, "False/AsExpected")
	p.do(p.hosted.Client.Create(t.Context(), definition))
	t.Cleanup(func() { p.hosted.Kubectl(t, "delete", "crd", definition.Name) })
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(performanceProfileKind)
	object.SetName("low-latency")
	testenv.Eventually(t, 20*time.Second, func() error { return p.hosted.Client.Create(t.Context(), object) })
	if got := p.condition("default", tunedv1.ConditionDegraded, "True/NotSupported"); !strings.Contains(got, "PerformanceProfile low-latency is not used") {
		t.Errorf("the message is %q", got)
	}
	testenv.Eventually(t, 10*time.Second, func() error {
		if got := p.hosted.Kubectl(t, "get", "events", "--all-namespaces", "--field-selector=reason=NotSupported"); !strings.Contains(got, "low-latency") {
			return fmt.Errorf("the Events are %s", got)
		}
		return nil
	})
	p.do(p.hosted.Client.Delete(t.Context(), object))
	p.condition("default", tunedv1.ConditionDegraded, "False/AsExpected")
}

func TestArgumentsOfAreBounded(t *testing.T) {
	var profiles []tunedv1.Profile
	for i := range 50 {
		profiles = append(profiles, tunedv1.Profile{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Annotations: map[string]string{tuning.TunedAnnotation: "a"}},
			Status:     tunedv1.ProfileStatus{Bootcmdline: fmt.Sprintf("%d%s\x1b", i, strings.Repeat("y", 4000))},
		})
	}
	got := argumentsOf(profiles)["a"]
	if len(got) > 4*argumentsLength || !strings.HasSuffix(got, "And 47 other lines.") || strings.Contains(got, "\x1b") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestAHostedClusterNeedsItsKubeconfig(t *testing.T) {
	t.Setenv(hyperShift, "true")
	settings := Settings{OperandImage: "registry.example.com/partition-tuned"}
	settings.Default()
	config := &configv1alpha1.ControllerConfiguration{Namespace: "clusters-hosted"}
	if errs := settings.Validate(nil, config); len(errs) != 1 || !strings.Contains(errs[0].Error(), "hostedConnection.kubeconfig: Required value") {
		t.Errorf("the errors are %v", errs)
	}
	config.HostedConnection.Kubeconfig = "/etc/hosted/kubeconfig"
	if errs := settings.Validate(nil, config); len(errs) != 0 {
		t.Errorf("the errors are %v", errs)
	}
}
