// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

// namespace is that of the companion, and of its identity in the hosted cluster; controlPlane has the ConfigMaps.
const namespace, controlPlane = "partition-tuning", "clusters-hosted"

// pair is a management cluster and a hosted one, with the manifests, and the companion between them.
type pair struct {
	*testing.T
	home, hosted *companiontest.Installed
	process      *testenv.Process
}

func newPair(t *testing.T) *pair {
	p := &pair{T: t, home: &companiontest.Installed{ControlPlane: testenv.Start(t), Name: Name, Namespace: namespace}, hosted: &companiontest.Installed{ControlPlane: testenv.StartHosted(t), Name: Name, Namespace: namespace}}
	p.empty()
	p.home.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", companiontest.Base(Name))
	p.home.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(companiontest.Base("sample"), "management.yaml"))
	p.hosted.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(companiontest.Base(Name), "hosted"))
	return p
}

// ordinary reports whether both are one cluster.
func (p *pair) ordinary() bool { return p.home == p.hosted }

// empty removes what the tests before have left, without the policies.
func (p *pair) empty() {
	t := p.T
	t.Helper()
	p.hosted.Kubectl(t, "delete", "validatingadmissionpolicybindings", "--ignore-not-found", "--selector=app.kubernetes.io/name="+Name)
	for _, each := range []struct {
		c       client.Client
		objects []client.Object
	}{
		{p.home.Client, []client.Object{&corev1.ConfigMap{}}},
		{p.hosted.Client, []client.Object{&tunedv1.Tuned{}, &tunedv1.Profile{}, &appsv1.DaemonSet{}}},
	} {
		for _, object := range each.objects {
			testenv.Eventually(t, 20*time.Second, func() error {
				in := client.InNamespace(tunedv1.Namespace)
				if _, ok := object.(*corev1.ConfigMap); ok {
					return each.c.DeleteAllOf(t.Context(), object, client.InNamespace(controlPlane), client.HasLabels{tunedv1.TunedConfigLabel})
				}
				return each.c.DeleteAllOf(t.Context(), object, in)
			})
		}
	}
	p.do(p.hosted.Client.DeleteAllOf(t.Context(), &corev1.Node{}))
}

// start starts the companion, with the rights of its ServiceAccounts.
func (p *pair) start() {
	p.Helper()
	p.process = p.replica()
}

func (p *pair) replica() *testenv.Process {
	p.Helper()
	t := p.T
	base, settings := Name, Settings{ControlPlaneNamespace: controlPlane}
	if p.ordinary() {
		base, settings = "tuning-ordinary", Settings{Resync: metav1.Duration{Duration: 2 * time.Second}}
	}
	settings.OperandImage = "registry.example.com/partition-tuned"
	settings.Patience.Duration, settings.PodPeriod.Duration = 3*time.Second, time.Second
	installed := &companiontest.Installed{ControlPlane: p.home.ControlPlane, Name: base, Namespace: namespace}
	if !p.ordinary() {
		installed.Hosted = p.hosted
	}
	config := installed.Configuration(t)
	raw, err := json.Marshal(settings)
	p.do(err)
	config.Settings.Raw = raw
	process := installed.Run(t, config)
	t.Cleanup(func() { p.home.FreeLease(t) })
	return process
}

func (p *pair) do(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// tunedText is a Tuned that recommends its own profile for all nodes of its pool.
func tunedText(name, value string) string {
	return fmt.Sprintf(`apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: %[1]s
spec:
  profile:
  - name: %[1]s
    data: |
      [main]
      summary=test
      [sysctl]
      kernel.msgmnb=%[2]s
  recommend:
  - profile: %[1]s
    priority: 20
`, name, value)
}

// configure gives a pool a ConfigMap with these documents.
func (p *pair) configure(pool string, documents ...string) {
	p.Helper()
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-" + pool, Labels: map[string]string{tunedv1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: pool}},
		Data:       map[string]string{tunedv1.TuningKey: strings.Join(documents, "---\n")},
	}
	err := p.home.Client.Create(p.Context(), configMap)
	if apierrors.IsAlreadyExists(err) {
		err = p.home.Client.Update(p.Context(), configMap)
	}
	p.do(err)
}

func (p *pair) node(name, pool string, labels ...string) {
	p.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if pool != "" {
		node.Labels[tunedv1.NodePoolLabel] = pool
	}
	for _, label := range labels {
		node.Labels[label] = ""
	}
	p.do(p.hosted.Client.Create(p.Context(), node))
}

// tuneds are those of the hosted cluster, as name=value of the first profile.
func (p *pair) tuneds() map[string]string {
	p.Helper()
	var list tunedv1.TunedList
	p.do(p.hosted.Client.List(p.Context(), &list, client.InNamespace(tunedv1.Namespace)))
	got := map[string]string{}
	for _, tuned := range list.Items {
		got[tuned.Name] = ""
		if len(tuned.Spec.Profile) > 0 {
			_, got[tuned.Name], _ = strings.Cut(strings.TrimSpace(tuned.Spec.Profile[0].Data), "msgmnb=")
		}
	}
	return got
}

func (p *pair) eventuallyTuneds(within time.Duration, want map[string]string) {
	p.Helper()
	begin := time.Now()
	testenv.Eventually(p.T, within, func() error {
		if got := p.tuneds(); !maps.Equal(got, want) {
			return fmt.Errorf("the Tuneds are %v, want %v", got, want)
		}
		return nil
	})
	p.Logf("%v after %s", want, time.Since(begin).Round(10*time.Millisecond))
}

// profile is what a node gets: the profile and the values of all that it has.
func (p *pair) profile(node string) string {
	p.Helper()
	profile := &tunedv1.Profile{}
	err := p.hosted.Client.Get(p.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: node}, profile)
	if apierrors.IsNotFound(err) {
		return "none"
	}
	p.do(err)
	values := []string{profile.Spec.Config.TunedProfile}
	for _, each := range profile.Spec.Profile {
		_, value, _ := strings.Cut(strings.TrimSpace(each.Data), "msgmnb=")
		values = append(values, each.Name+"="+value)
	}
	return strings.Join(values, " ")
}

func (p *pair) eventuallyProfile(within time.Duration, node, want string) {
	p.Helper()
	begin := time.Now()
	testenv.Eventually(p.T, within, func() error {
		if got := p.profile(node); got != want {
			return fmt.Errorf("node %s gets %q, want %q", node, got, want)
		}
		return nil
	})
	p.Logf("%s: %s after %s", node, want, time.Since(begin).Round(10*time.Millisecond))
}

// condition waits for a condition of a Tuned, as Status/Reason, and returns its message.
func (p *pair) condition(tuned, kind, want string) string {
	p.Helper()
	message := ""
	testenv.Eventually(p.T, 10*time.Second, func() error {
		object := &tunedv1.Tuned{}
		if err := p.hosted.Client.Get(p.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: tuned}, object); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(object.Status.Conditions, kind)
		if condition == nil || string(condition.Status)+"/"+condition.Reason != want {
			return fmt.Errorf("the condition %s of %s is %v, want %s", kind, tuned, condition, want)
		}
		message = condition.Message
		return nil
	})
	return message
}

func TestAPoolsTunedsReachItsNodes(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	p.node("b1", "pool-b")
	p.node("x1", "")
	p.node("m1", "", "node-role.kubernetes.io/control-plane")
	p.configure("pool-a", tunedText("queues", "32768"))
	p.start()
	a := tuning.HostedName("queues", "pool-a")
	p.eventuallyTuneds(20*time.Second, map[string]string{"default": "", a: "32768"})
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=32768")
	p.eventuallyProfile(5*time.Second, "b1", "openshift-node")
	p.eventuallyProfile(5*time.Second, "x1", "openshift-node")
	p.eventuallyProfile(5*time.Second, "m1", "openshift-control-plane")
	hosted := &tunedv1.Tuned{}
	p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: a}, hosted))
	if hosted.Labels[tunedv1.NodePoolNameLabel] != "pool-a" || hosted.Labels[companion.OwnerLabel] != Name {
		t.Errorf("the hosted Tuned has the labels %v", hosted.Labels)
	}
	p.condition(a, tunedv1.ConditionValid, "True/AsExpected")
	set := &appsv1.DaemonSet{}
	testenv.Eventually(t, 5*time.Second, func() error {
		return p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: "tuned"}, set)
	})
	if got := set.Spec.Template.Spec.Containers[0].Image; got != "registry.example.com/partition-tuned" {
		t.Errorf("the operand's image is %s", got)
	}

	// A changed value, and a second pool with a Tuned of the same name.
	p.configure("pool-a", tunedText("queues", "40000"))
	p.configure("pool-b", tunedText("queues", "50000"))
	p.eventuallyTuneds(5*time.Second, map[string]string{"default": "", a: "40000", tuning.HostedName("queues", "pool-b"): "50000"})
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	p.eventuallyProfile(5*time.Second, "b1", "queues queues=50000")

	// Another name: the successor is there, so the first goes at once.
	p.configure("pool-a", tunedText("other", "40000"))
	p.eventuallyTuneds(2*time.Second, map[string]string{"default": "", tuning.HostedName("other", "pool-a"): "40000", tuning.HostedName("queues", "pool-b"): "50000"})
	p.eventuallyProfile(5*time.Second, "a1", "other other=40000")

	// A node that joins, one that changes its pool, and one that goes.
	p.node("a2", "pool-a")
	p.eventuallyProfile(5*time.Second, "a2", "other other=40000")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a2"}}
	p.do(p.hosted.Client.Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hypershift.openshift.io/nodePool":"pool-b"}}}`))))
	p.eventuallyProfile(5*time.Second, "a2", "queues queues=50000")
	p.do(p.hosted.Client.Delete(t.Context(), node))
	p.eventuallyProfile(5*time.Second, "a2", "none")

	// The ConfigMap goes: its Tuneds stay for the time of the settings, and so does what the node has.
	p.do(p.home.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-pool-b"}}))
	testenv.Always(t, 2*time.Second, func() error {
		if got := p.profile("b1"); got != "queues queues=50000" {
			return fmt.Errorf("node b1 gets %s", got)
		}
		return nil
	})
	p.eventuallyTuneds(10*time.Second, map[string]string{"default": "", tuning.HostedName("other", "pool-a"): "40000"})
	p.eventuallyProfile(5*time.Second, "b1", "openshift-node")
}

func TestWhatIsNotValidChangesNothing(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	p.node("b1", "pool-b")
	p.configure("pool-a", tunedText("queues", "32768"), tunedText("other", "1"))
	p.start()
	a, other := tuning.HostedName("queues", "pool-a"), tuning.HostedName("other", "pool-a")
	want := map[string]string{"default": "", a: "32768", other: "1"}
	p.eventuallyTuneds(20*time.Second, want)
	p.eventuallyProfile(5*time.Second, "a1", "other other=1 queues=32768")

	// One typo in one of two documents: nothing of the pool changes, and its condition names the place.
	p.configure("pool-a", tunedText("queues", "40000"), strings.Replace(tunedText("other", "2"), "recommend:", "recomend:", 1))
	for _, tuned := range []string{a, other} {
		if got, want := p.condition(tuned, tunedv1.ConditionValid, "False/InvalidConfiguration"), `ConfigMap clusters-hosted/tuned-pool-a, key tuning: document 2, line 29: unknown field "spec.recomend"`; !strings.Contains(got, want) {
			t.Errorf("the message is %q, want %q", got, want)
		}
	}
	p.condition("default", tunedv1.ConditionDegraded, "True/InvalidConfiguration")
	testenv.Eventually(t, 10*time.Second, func() error {
		if got := p.home.Kubectl(t, "get", "events", "--namespace="+controlPlane, "--field-selector=reason=InvalidConfiguration"); !strings.Contains(got, "line 29") {
			return fmt.Errorf("the Events are %s", got)
		}
		return nil
	})
	// Another pool is not held up by it.
	p.configure("pool-b", tunedText("queues", "50000"))
	want[tuning.HostedName("queues", "pool-b")] = "50000"
	p.eventuallyTuneds(5*time.Second, want)
	p.eventuallyProfile(5*time.Second, "b1", "queues queues=50000")
	// Somebody who changes a Tuned now does not change what counts.
	p.withoutPolicies()
	p.edit(a, "1000")
	p.eventuallyTuneds(10*time.Second, want)
	if got := p.profile("a1"); got != "other other=1 queues=32768" {
		t.Errorf("node a1 gets %s", got)
	}

	// After a restart it is not known what was valid last: everything stays as it is. A pool that was never valid says so, too.
	p.process.Kill()
	p.home.FreeLease(t)
	p.configure("pool-a", tunedText("queues", "40000"), strings.Replace(tunedText("other", "2"), "recommend:", "recommended:", 1))
	p.configure("pool-c", strings.Replace(tunedText("queues", "1"), "recommend:", "recomend:", 1))
	p.start()
	p.awaitGenerated("pool-a", "none", "InvalidConfiguration", `line 29: unknown field "spec.recommended"`)
	p.awaitGenerated("pool-c", "none", "InvalidConfiguration", `line 13: unknown field "spec.recomend"`)
	p.do(p.home.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-pool-c"}}))
	testenv.Eventually(t, 10*time.Second, func() error {
		if err := p.home.Client.Get(t.Context(), client.ObjectKey{Namespace: controlPlane, Name: v1beta1.GeneratedName("pool-c")}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("what is generated for a pool that is gone: %v", err)
		}
		return nil
	})
	p.node("b2", "pool-b")
	p.eventuallyProfile(20*time.Second, "b2", "queues queues=50000")
	testenv.Always(t, 4*time.Second, func() error {
		if got := p.tuneds(); !maps.Equal(got, want) {
			return fmt.Errorf("the Tuneds are %v, want %v", got, want)
		}
		if got := p.profile("a1"); got != "other other=1 queues=32768" {
			return fmt.Errorf("node a1 gets %s", got)
		}
		return nil
	})

	p.configure("pool-a", tunedText("queues", "40000"))
	p.eventuallyTuneds(5*time.Second, map[string]string{"default": "", a: "40000", tuning.HostedName("queues", "pool-b"): "50000"})
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=40000")
	p.condition(a, tunedv1.ConditionValid, "True/AsExpected")
	p.condition("default", tunedv1.ConditionDegraded, "False/AsExpected")

	// A fault that is taken back changes no spec, and the condition all the same.
	generation := func() int64 {
		tuned := &tunedv1.Tuned{}
		p.do(p.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: a}, tuned))
		return tuned.Generation
	}
	before := generation()
	p.configure("pool-a", strings.Replace(tunedText("queues", "40000"), "recommend:", "recomend:", 1))
	p.condition(a, tunedv1.ConditionValid, "False/InvalidConfiguration")
	p.configure("pool-a", tunedText("queues", "40000"))
	p.condition(a, tunedv1.ConditionValid, "True/AsExpected")
	if after := generation(); after != before {
		t.Errorf("the Tuned went from generation %d to %d", before, after)
	}
}

func TestReadNamesWhatIsWrongWithAPoolsConfigMaps(t *testing.T) {
	configMap := func(name, pool, text string) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: name, UID: types.UID(name), Labels: map[string]string{tunedv1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: pool}}, Data: map[string]string{tunedv1.TuningKey: text}}
	}
	fine := configMap("tuned-b", "pool-b", tunedText("queues", "1"))
	for name, test := range map[string]struct {
		configMaps []corev1.ConfigMap
		want       string
		faulty     int
	}{
		"two ConfigMaps of one pool, in one order":          {[]corev1.ConfigMap{configMap("x", "pool-a", tunedText("queues", "1")), configMap("y", "pool-a", tunedText("other", "1"))}, "NodePool pool-a has the ConfigMaps clusters-hosted/x and clusters-hosted/y", 2},
		"two ConfigMaps of one pool, in the other":          {[]corev1.ConfigMap{configMap("y", "pool-a", tunedText("queues", "1")), configMap("x", "pool-a", tunedText("queues", "2"))}, "NodePool pool-a has the ConfigMaps clusters-hosted/x and clusters-hosted/y", 2},
		"a ConfigMap without the key":                       {[]corev1.ConfigMap{{ObjectMeta: configMap("x", "pool-a", "").ObjectMeta}}, "ConfigMap clusters-hosted/x: data: the key tuning is missing", 1},
		"two Tuneds of one name in a pool":                  {[]corev1.ConfigMap{configMap("x", "pool-a", tunedText("queues", "1")+"---\n"+tunedText("queues", "2"))}, "two Tuneds of the NodePool have this name", 1},
		"a ConfigMap that does not name its pool":           {[]corev1.ConfigMap{configMap("x", "", tunedText("queues", "1"))}, "", 1},
		"a PerformanceProfile, which has another ConfigMap": {[]corev1.ConfigMap{configMap("x", "pool-a", "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: edge}\n")}, `kind: "PerformanceProfile" of apiVersion "performance.openshift.io/v2" cannot be used here`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := read(append(test.configMaps, fine))
			if err := seen.broken["pool-a"]; test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			if len(seen.faulty) != test.faulty || len(seen.valid["pool-a"]) != 0 || len(seen.valid["pool-b"]) != 1 {
				t.Errorf("%d ConfigMaps are told of, and valid are %v", len(seen.faulty), seen.valid)
			}
		})
	}
}

func TestATunedNamesTheConfigMapOfItsUser(t *testing.T) {
	labels := func(kind string) map[string]string {
		return map[string]string{kind: "true", tunedv1.NodePoolLabel: "pool-a"}
	}
	seen := read([]corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "tuned-pool-a", Labels: labels(tunedv1.TunedConfigLabel), Annotations: map[string]string{v1beta1.SourcesAnnotation: "other=more,queues=sysctls"}},
			Data: map[string]string{"tuning": strings.ReplaceAll(tunedText("other", "1")+"---\n"+tunedText("queues", "1"), "priority: 20", "priority: 30")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "perfprofile-pool-a", Labels: labels(v1beta1.PerformanceProfileLabel), Annotations: map[string]string{v1beta1.SourcesAnnotation: "cpus"}},
			Data: map[string]string{"tuning": "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: edge}\nspec: {cpu: {reserved: '0', isolated: '1'}}\n"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "tuned-pool-b", Labels: map[string]string{tunedv1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: "pool-b"}}, // HyperShift's
			Data: map[string]string{"tuning": tunedText("queues", "1")}},
	})
	got := map[string]string{}
	for _, tuneds := range seen.valid {
		for _, tuned := range tuneds {
			got[tuned.Name] = tuned.Annotations[v1beta1.SourcesAnnotation]
		}
	}
	want := map[string]string{
		tuning.HostedName("other", "pool-a"): "more", tuning.HostedName("queues", "pool-a"): "sysctls", tuning.HostedName("openshift-node-performance-edge", "pool-a"): "cpus",
		tuning.HostedName("queues", "pool-b"): "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("they come from %v, want %v: %v", got, want, seen.broken)
	}
}

// withoutPolicies deletes the policies, as a hosted administrator can.
func (p *pair) withoutPolicies() {
	p.Helper()
	p.do(p.hosted.Client.DeleteAllOf(p.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}))
	// kube-apiserver learns it a little later.
	testenv.Eventually(p.T, 20*time.Second, func() error {
		tuned := &tunedv1.Tuned{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "default"}}
		return p.hosted.Client.Patch(p.Context(), tuned, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"tried":"x"}}}`)))
	})
}

// edit gives a Tuned's first profile another value.
func (p *pair) edit(name, value string) {
	p.Helper()
	tuned := &tunedv1.Tuned{}
	testenv.Eventually(p.T, 5*time.Second, func() error {
		if err := p.hosted.Client.Get(p.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: name}, tuned); err != nil {
			return err
		}
		tuned.Spec.Profile[0].Data = "[sysctl]\nkernel.msgmnb=" + value
		return p.hosted.Client.Update(p.Context(), tuned)
	})
}

func TestAHostedAdministratorChangesNothing(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	p.configure("pool-a", tunedText("queues", "32768"))
	p.start()
	a := tuning.HostedName("queues", "pool-a")
	p.eventuallyTuneds(20*time.Second, map[string]string{"default": "", a: "32768"})
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=32768")
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: name}
	}
	merge := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	attempts := map[string]func(c client.Client) error{
		"a Tuned's content": func(c client.Client) error {
			return c.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at(a)}, merge(`{"spec":{"profile":[{"name":"queues","data":"[sysctl]\nkernel.msgmnb=1"}]}}`))
		},
		"a Tuned's labels": func(c client.Client) error {
			return c.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at(a)}, merge(`{"metadata":{"labels":{"hypershift.openshift.io/nodePoolName":"pool-b","workload.openshift.io/companion":null}}}`))
		},
		"a Tuned goes": func(c client.Client) error { return c.Delete(t.Context(), &tunedv1.Tuned{ObjectMeta: at(a)}) },
		"the default's recommendation": func(c client.Client) error {
			return c.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at("default")}, merge(`{"spec":{"recommend":[{"profile":"powersave","priority":0}]}}`))
		},
		"a Tuned of their own": func(c client.Client) error {
			return c.Create(t.Context(), &tunedv1.Tuned{ObjectMeta: at("theirs"), Spec: tunedv1.TunedSpec{Recommend: []tunedv1.TunedRecommend{{Profile: "powersave"}}}})
		},
		"a Profile's choice": func(c client.Client) error {
			return c.Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at("a1")}, merge(`{"spec":{"config":{"tunedProfile":"powersave"}}}`))
		},
		"a Profile's content": func(c client.Client) error {
			return c.Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at("a1")}, merge(`{"spec":{"profile":[{"name":"queues","data":"[sysctl]\nkernel.msgmnb=1"}]}}`))
		},
		"a Profile goes": func(c client.Client) error { return c.Delete(t.Context(), &tunedv1.Profile{ObjectMeta: at("a1")}) },
	}
	for name, attempt := range attempts {
		testenv.Eventually(t, 20*time.Second, func() error {
			if err := attempt(p.hosted.Client); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is what the management cluster decides") {
				return fmt.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
	p.withoutPolicies()
	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		before := &tunedv1.Profile{ObjectMeta: at("a1")}
		p.do(p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(before), before))
		p.do(attempts[name](p.hosted.Client))
		begin := time.Now()
		testenv.Eventually(t, 10*time.Second, func() error {
			if got, want := p.tuneds(), map[string]string{"default": "", a: "32768"}; !maps.Equal(got, want) {
				return fmt.Errorf("the Tuneds are %v, want %v", got, want)
			}
			if got := p.profile("a1"); got != "queues queues=32768" {
				return fmt.Errorf("node a1 gets %s", got)
			}
			tuned := &tunedv1.Tuned{ObjectMeta: at(a)}
			if err := p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(tuned), tuned); err != nil || tuned.Labels[tunedv1.NodePoolNameLabel] != "pool-a" || tuned.Labels[companion.OwnerLabel] != Name {
				return fmt.Errorf("the Tuned has %v: %v", tuned.Labels, err)
			}
			tuned = &tunedv1.Tuned{ObjectMeta: at("default")}
			if err := p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(tuned), tuned); err != nil || len(tuned.Spec.Recommend) != 2 {
				return fmt.Errorf("the default has %v: %v", tuned.Spec, err)
			}
			return nil
		})
		after := time.Since(begin)
		now := &tunedv1.Profile{ObjectMeta: at("a1")}
		p.do(p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(now), now))
		t.Logf("%-30s not refused, undone within %4d ms, the Profile went from generation %d to %d", name, after.Milliseconds(), before.Generation, now.Generation)
		if strings.Contains(name, "Tuned") && now.Generation != before.Generation {
			t.Errorf("%s changed the Profile", name)
		}
	}
}

// Those who act in the operator's name are not refused.
func TestWhatIsWrittenInTheOperatorsNameIsUndone(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	p.configure("pool-a", tunedText("queues", "32768"))
	p.start()
	a := tuning.HostedName("queues", "pool-a")
	want := map[string]string{"default": "", a: "32768"}
	p.eventuallyTuneds(20*time.Second, want)
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=32768")
	const user = "system:serviceaccount:partition-tuning:tuning"
	impersonated, minted := rest.CopyConfig(p.hosted.Config), rest.AnonymousClientConfig(p.hosted.Config)
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: user}
	minted.BearerToken = p.hosted.Token(t, namespace, "tuning", nil)
	for name, config := range map[string]*rest.Config{
		"a minted token":       minted,
		"a signed certificate": p.hosted.Certified(t, user),
		"--as":                 impersonated,
	} {
		c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
		p.do(err)
		for what, write := range map[string]func() error{
			"a Tuned": func() error {
				tuned := &tunedv1.Tuned{}
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: a}, tuned); err != nil {
					return err
				}
				tuned.Spec.Profile[0].Data = "[sysctl]\nkernel.msgmnb=1"
				return c.Update(t.Context(), tuned)
			},
			"a Profile": func() error {
				list := &tunedv1.ProfileList{} // it may not get one
				if err := c.List(t.Context(), list, client.InNamespace(tunedv1.Namespace)); err != nil || len(list.Items) != 1 {
					return fmt.Errorf("%d Profiles: %w", len(list.Items), err)
				}
				list.Items[0].Spec.Profile[0].Data = "[sysctl]\nkernel.msgmnb=1"
				return c.Update(t.Context(), &list.Items[0])
			},
		} {
			testenv.Eventually(t, 5*time.Second, write) // the operator may write meanwhile
			begin := time.Now()
			testenv.Eventually(t, 10*time.Second, func() error {
				if got := p.tuneds(); !maps.Equal(got, want) || p.profile("a1") != "queues queues=32768" {
					return fmt.Errorf("the Tuneds are %v, and node a1 gets %s", got, p.profile("a1"))
				}
				return nil
			})
			t.Logf("%-22s%-10s not refused, undone within %4d ms", name, what, time.Since(begin).Milliseconds())
		}
	}
}

func TestADeferralReachesTheProfileAndStaysThere(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	text := tunedText("queues", "32768")
	p.configure("pool-a", strings.Replace(text, "  name: queues\n", "  name: queues\n  annotations: {tuned.openshift.io/deferred: update}\n", 1))
	p.start()
	tuned := &tunedv1.Tuned{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: tuning.HostedName("queues", "pool-a")}}
	profile := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "a1"}}
	deferred := func(within time.Duration, want string) {
		t.Helper()
		testenv.Eventually(t, within, func() error {
			for _, object := range []client.Object{tuned, profile} {
				if err := p.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					return err
				}
				if got := object.GetAnnotations()[tunedv1.DeferredAnnotation]; got != want {
					return fmt.Errorf("%T is deferred %q, want %q", object, got, want)
				}
			}
			return nil
		})
	}
	deferred(20*time.Second, tunedv1.DeferUpdate)
	p.withoutPolicies()
	for _, value := range []string{"null", `"never"`} {
		for _, object := range []client.Object{tuned, profile} {
			p.do(p.hosted.Client.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, tunedv1.DeferredAnnotation, value))))
		}
		deferred(10*time.Second, tunedv1.DeferUpdate)
	}
	p.configure("pool-a", text)
	deferred(10*time.Second, tunedv1.DeferNever)
}

func TestAtRestNothingIsWritten(t *testing.T) {
	p := newPair(t)
	for i := range 20 {
		p.node(fmt.Sprintf("a%d", i), "pool-a")
	}
	p.configure("pool-a", tunedText("queues", "32768"))
	p.start()
	for i := range 20 {
		p.eventuallyProfile(20*time.Second, fmt.Sprintf("a%d", i), "queues queues=32768")
	}
	p.condition(tuning.HostedName("queues", "pool-a"), tunedv1.ConditionValid, "True/AsExpected")
	time.Sleep(2 * time.Second)
	writes := func() (found []string) {
		data, err := os.ReadFile(p.hosted.AuditLog())
		p.do(err)
		for line := range strings.Lines(string(data)) {
			var event struct{ Verb, RequestURI string }
			p.do(json.Unmarshal([]byte(line), &event))
			if !slices.Contains([]string{"get", "list", "watch"}, event.Verb) && !strings.Contains(event.RequestURI, "subjectaccessreviews") {
				found = append(found, event.Verb+" "+event.RequestURI)
			}
		}
		return found
	}
	before := writes()
	// A node's heartbeat is no reason.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}
	p.do(p.hosted.Client.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"x","message":"x"}]}}`))))
	time.Sleep(5 * time.Second)
	if now := writes(); len(now) != len(before) {
		t.Errorf("written was %v", now[len(before):])
	}
}

func TestPodsOnTheNodeCount(t *testing.T) {
	p := newPair(t)
	p.node("a1", "pool-a")
	text := tunedText("queues", "32768") + "    match:\n    - label: app\n      value: db\n      type: pod\n"
	p.configure("pool-a", text)
	p.start()
	p.eventuallyProfile(20*time.Second, "a1", "openshift-node queues=32768")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{NodeName: "a1", Containers: []corev1.Container{{Name: "db", Image: "db"}}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	if err := p.hosted.Client.Create(t.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	p.do(p.hosted.Client.Create(t.Context(), pod))
	t.Cleanup(func() { _ = p.hosted.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=32768")
	p.do(p.hosted.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	p.eventuallyProfile(5*time.Second, "a1", "openshift-node queues=32768")
}

// B7: a node that replaces another one joins without the labels that people had put on that.
func TestANodeIsMatchedAsSoonAsItHasItsLabels(t *testing.T) {
	p := newPair(t)
	p.configure("pool-a", tunedText("queues", "32768")+"    match:\n    - label: database\n")
	p.start()
	p.node("a1", "pool-a")
	p.eventuallyProfile(20*time.Second, "a1", "openshift-node queues=32768")
	label := func(value string) {
		t.Helper()
		p.do(p.hosted.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"database":`+value+`}}}`))))
	}
	label(`""`)
	p.eventuallyProfile(5*time.Second, "a1", "queues queues=32768")
	label("null")
	p.eventuallyProfile(5*time.Second, "a1", "openshift-node queues=32768")
}
