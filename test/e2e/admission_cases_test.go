// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// ways are the ways in which send creates pods.
var ways = []string{"create", "dry run", "generateName", "apply"}

// A new pod becomes what its case says, whichever way a client creates it. The core and the
// plugin run the same cases.
func TestNewPodsBecomeWhatTheCasesSay(t *testing.T) {
	in(t, core)
	c := apiServer(t)
	reportingNode(t, c, "reporting", partitiontest.Type)
	namespaces := map[string]string{}
	for _, n := range partitiontest.Namespaces() {
		namespaces[n.Name] = fixture.Namespace(t, c.Client, n.Annotations[partition.AllowedAnnotation])
	}
	open, plain := namespaces[partitiontest.Open], namespaces[partitiontest.Plain]
	awaitActive(t, creating(t, c, open), true)
	for _, test := range slices.Concat(partitiontest.Cases(), furtherCases()) {
		t.Run(test.Name, func(t *testing.T) {
			if gate := test.FeatureGate; gate != "" && !featureEnabled(t, c, gate) {
				t.Skipf("the feature gate %s is off in this release, so kube-apiserver drops what the case is about", gate)
			}
			for _, variant := range variants(test) {
				for _, how := range ways {
					t.Run(variant.Name+"/"+how, func(t *testing.T) { expectCase(t, c, namespaces[variant.Namespace], variant, how) })
				}
			}
		})
	}
	t.Run("the audit log has each warning", func(t *testing.T) {
		p, _, err := send(t, plain, fixture.Pod("audited", asks, fixture.Container("c", "true", "", "")), "create")
		if err != nil {
			t.Fatal(err)
		}
		want := p.Annotations[partition.WarningAnnotation]
		if got := auditedAnnotations(t, c, plain, p.Name)[partition.WarningAnnotation]; want == "" || got != want {
			t.Errorf("the audit log has the warning %q, and the pod %q", got, want)
		}
	})
	for name, test := range map[string]struct {
		annotations map[string]string
		path, says  string
	}{
		"two targets":            {map[string]string{managementTarget: "", partition.TargetAnnotation("other"): ""}, "metadata.annotations", "a pod may ask for one workload type"},
		"not JSON":               {map[string]string{managementTarget: "yes"}, "metadata.annotations[" + managementTarget + "]", "must be a JSON object"},
		"a list":                 {map[string]string{managementTarget: "[]"}, "metadata.annotations[" + managementTarget + "]", "must be a JSON object"},
		"an unknown effect":      {map[string]string{managementTarget: `{"effect": "Sometimes"}`}, "metadata.annotations[" + managementTarget + "]", "unknown effect"},
		"an unknown key":         {map[string]string{managementTarget: `{"cpuset": "0"}`}, "metadata.annotations[" + managementTarget + "]", "unknown key"},
		"a key in other letters": {map[string]string{managementTarget: `{"Effect": "PreferredDuringScheduling"}`}, "metadata.annotations[" + managementTarget + "]", "unknown key"},
		"a key twice":            {map[string]string{managementTarget: `{"effect": "", "effect": ""}`}, "metadata.annotations[" + managementTarget + "]", "more than once"},
		"a type in capitals":     {map[string]string{partition.TargetPrefix + "Management": ""}, "metadata.annotations[" + partition.TargetPrefix + "Management]", "workload type"},
	} {
		t.Run("an invalid target: "+name, func(t *testing.T) {
			_, _, err := send(t, open, fixture.Pod("", test.annotations, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), "create")
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.path) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the answer is %v, want 422 with %s and %q", err, test.path, test.says)
			}
		})
	}
}

// furtherCases returns cases that need defaults of the API, and others that only this test has.
func furtherCases() []partitiontest.Case {
	limited := fixture.Pod("", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m memory=32Mi"))
	partitionedLimited := fixture.Pod("", map[string]string{managementTarget: softNormal, partition.ResourcesAnnotation("c"): `{"cpushares":400,"cpulimit":500}`},
		fixture.Container("c", "true", string(cores)+"=400 memory=16Mi", string(cores)+"=400 memory=32Mi"))

	emptyEffect := limited.DeepCopy()
	emptyEffect.Annotations[managementTarget] = `{"effect": ""}`

	many, partitionedMany := fixture.Pod("", asks), fixture.Pod("", map[string]string{managementTarget: softNormal})
	for i := range 40 {
		name := fmt.Sprintf("c-%d", i)
		many.Spec.Containers = append(many.Spec.Containers, fixture.Container(name, "true", fmt.Sprintf("cpu=%dm memory=1Mi", i+1), ""))
		amount := fmt.Sprintf("%s=%d", cores, i+1)
		partitionedMany.Spec.Containers = append(partitionedMany.Spec.Containers, fixture.Container(name, "true", amount+" memory=1Mi", amount))
		partitionedMany.Annotations[partition.ResourcesAnnotation(name)] = fmt.Sprintf(`{"cpushares":%d}`, max(i+1, 2))
	}

	const guaranteed = "cpu=400m memory=16Mi"
	podLevel := fixture.Pod("", asks, fixture.Container("c", "true", guaranteed, guaranteed))
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: fixture.Resources("memory=1Gi"), Limits: fixture.Resources("memory=1Gi")}

	cases := []partitiontest.Case{{
		Name: "a memory limit stays",
		Pod:  limited, Want: partitiontest.Want{Outcome: partition.Partitioned, Pod: partitionedLimited},
	}, {
		Name: "an empty effect is the soft one",
		Pod:  emptyEffect, Want: partitiontest.Want{Outcome: partition.Partitioned, Pod: partitionedLimited},
	}, {
		Name: "each of forty containers is partitioned",
		Pod:  many, Want: partitiontest.Want{Outcome: partition.Partitioned, Pod: partitionedMany},
	}, {
		Name: "a pod that only defaults make Guaranteed",
		Pod:  fixture.Pod("", asks, fixture.Container("c", "true", "", guaranteed)),
		Want: partitiontest.Want{Outcome: partition.Skipped, Reason: partition.ReasonGuaranteed, Pod: ordinary(fixture.Pod("", nil, fixture.Container("c", "true", "", guaranteed)))},
	}, {
		Name:        "CPU of the pod as a whole that only defaults give it",
		FeatureGate: "PodLevelResources",
		Pod:         podLevel, Want: partitiontest.Want{Outcome: partition.Skipped, Reason: partition.ReasonPodLevelCPU, Pod: ordinary(podLevel)},
	}}
	for i := range cases {
		cases[i].Namespace = partitiontest.Open
	}
	return cases
}

// ordinary returns the pod without annotations of ours, and with the requests that the API
// derives from limits.
func ordinary(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return partition.OwnsAnnotation(key) })
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			requests := maps.Clone(containers[i].Resources.Limits)
			if requests == nil {
				requests = v1.ResourceList{}
			}
			maps.Copy(requests, containers[i].Resources.Requests)
			containers[i].Resources.Requests = requests
		}
	}
	return p
}

// variants returns the case itself. If its pod asks with the soft effect, there are more: the
// same pod with the hard effect, with an inactive type, and in namespaces that do not allow the
// type. Then the namespace or the type decides, whatever the pod is like.
func variants(test partitiontest.Case) []partitiontest.Case {
	itself := test
	itself.Name = "as it is"
	value, asks := test.Pod.Annotations[managementTarget]
	hasCores := slices.ContainsFunc(test.Pod.Spec.Containers, func(of v1.Container) bool { return partition.CarriesCores(of.Resources.Requests) })
	if !asks || value != "" && value != softNormal || test.Want.Outcome == partition.Refused || test.Namespace != partitiontest.Open || test.Want.NoRoom || hasCores {
		return []partitiontest.Case{itself}
	}
	// with returns the case with another target and namespace, and the reason that then decides.
	with := func(name, namespace string, target partition.Target, reason partition.Reason) partitiontest.Case {
		p := test.Pod.DeepCopy()
		delete(p.Annotations, managementTarget)
		p.Annotations[partition.TargetAnnotation(target.Type)] = target.AnnotationValue()
		return partitiontest.Case{Name: fmt.Sprintf("%s, %s", name, target.Effect), Namespace: namespace, Pod: p, Want: partitiontest.NotPartitioned(reason, target.Effect, ordinary(p))}
	}
	hardened := with("as it is", test.Namespace, partition.Target{Type: partitiontest.Type, Effect: partition.Required}, test.Want.Reason)
	if test.Want.Outcome == partition.Partitioned {
		hardened.Want = partitiontest.Want{Outcome: partition.Partitioned, Pod: test.Want.Pod.DeepCopy()}
		hardened.Want.Pod.Annotations[managementTarget] = hardened.Pod.Annotations[managementTarget]
	}
	all := []partitiontest.Case{itself, hardened}
	for _, effect := range []partition.Effect{partition.Preferred, partition.Required} {
		all = append(all,
			with("of an inactive type", test.Namespace, partition.Target{Type: partitiontest.InactiveType, Effect: effect}, partition.ReasonTypeInactive),
			with("in a namespace without annotation", partitiontest.Plain, partition.Target{Type: partitiontest.Type, Effect: effect}, partition.ReasonNamespaceNotAnnotated),
			with("in a namespace with other types only", partitiontest.Others, partition.Target{Type: partitiontest.Type, Effect: effect}, partition.ReasonNamespaceOtherTypes))
	}
	return all
}

// featureEnabled reports whether a feature gate of kube-apiserver is on.
func featureEnabled(t *testing.T, c *host.Cluster, gate string) bool {
	t.Helper()
	for line := range strings.Lines(scrape(t, c)) {
		if strings.HasPrefix(line, fmt.Sprintf("kubernetes_feature_enabled{name=%q,", gate)) {
			return strings.HasSuffix(line, " 1\n")
		}
	}
	t.Fatalf("kube-apiserver has no metric of the feature gate %s", gate)
	return false
}

// expectCase creates a case's pod. It compares what is stored, and what the client is warned
// of, with what the case wants.
func expectCase(t *testing.T, c *host.Cluster, namespace string, test partitiontest.Case, how string) {
	t.Helper()
	got, warned, err := send(t, namespace, withImages(test.Pod), how)
	if test.Want.Outcome == partition.Refused {
		asked := partitiontest.Type
		if test.Want.Reason == partition.ReasonTypeInactive {
			asked = partitiontest.InactiveType
		}
		if !test.Want.RefusedWith(err) || !strings.Contains(err.Error(), asked) {
			t.Errorf("the answer is %v, want a refusal of workload type %s with %q", err, asked, test.Want.Text())
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	test.Want.Pod = rounded(test.Want.Pod)
	if difference := test.Want.Diff(got); difference != "" {
		t.Error(difference)
	}
	warning := got.Annotations[partition.WarningAnnotation]
	delete(got.Annotations, partition.WarningAnnotation)
	if !maps.Equal(got.Annotations, test.Want.Pod.Annotations) {
		t.Errorf("the pod has the annotations %v, want %v", slices.Sorted(maps.Keys(got.Annotations)), slices.Sorted(maps.Keys(test.Want.Pod.Annotations)))
	}
	switch {
	case test.Want.Reason == partition.NoReason:
		if len(warned) > 0 {
			t.Errorf("the client was warned with %q, want no warning", warned)
		}
	case test.Want.NoRoom:
		if len(warned) != 1 || !strings.Contains(warned[0], test.Want.Text()) {
			t.Errorf("the client was warned with %q, want %q", warned, test.Want.Text())
		}
	case !slices.Equal(warned, []string{warning}):
		t.Errorf("the client was warned with %q, and the annotation says %q", warned, warning)
	}
	expectSpecOf(t, c, namespace, got, test.Want)
}

// rounded returns a copy of a pod whose quantities are rounded up to thousandths, as kube-apiserver
// does before admission (k8s.io/kubernetes/pkg/apis/core/v1, SetDefaults_ResourceList).
func rounded(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, list := range []v1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name, quantity := range list {
					quantity.RoundUp(resource.Milli)
					list[name] = quantity
				}
			}
		}
	}
	return p
}

// withImages returns a copy of a pod whose containers have images, which the API requires.
func withImages(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			containers[i].Image = image.Busybox
		}
	}
	return p
}

// expectSpecOf checks that a pod has the spec that the wanted pod would get without asking. If it is partitioned, it
// has the wanted resources instead. In these namespaces no quota counts cpu, and the plugin runs once, so a
// partitioned container has no cpu of zero.
func expectSpecOf(t *testing.T, c *host.Cluster, namespace string, got *v1.Pod, wanted partitiontest.Want) {
	t.Helper()
	other := withImages(wanted.Pod)
	other.Name = "other"
	all := func(p *v1.Pod) (containers []*v1.Container) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				containers = append(containers, &list[i])
			}
		}
		return containers
	}
	if wanted.Outcome == partition.Partitioned {
		other.Annotations = nil
		for _, of := range all(other) {
			of.Resources = v1.ResourceRequirements{}
		}
	}
	want, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), other, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	// The volume with the service account's token has a random name.
	for _, p := range []*v1.Pod{got, want} {
		p.Spec.Volumes = nil
		for _, of := range all(p) {
			of.VolumeMounts = nil
		}
	}
	if wanted.Outcome == partition.Partitioned {
		for i, of := range all(wanted.Pod) {
			all(want)[i].Resources = of.Resources
		}
	}
	if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
		t.Errorf("the pod has the spec\n%v\nand one that does not ask has\n%v", got.Spec, want.Spec)
	}
}
