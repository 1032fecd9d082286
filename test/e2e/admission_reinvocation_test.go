// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// webhookLabel is the prefix of labels by which webhooks and policies select namespaces: the
// label of a namespace ends in the name of what changes its pods.
const webhookLabel = "e2e.workload.openshift.io/"

// patches are what webhooks do to pods, by their names.
var patches = map[string]func(*v1.Pod) []map[string]any{
	"annotate": func(p *v1.Pod) []map[string]any {
		if p.Annotations["webhook"] != "" {
			return nil
		}
		return []map[string]any{{"op": "add", "path": "/metadata/annotations/webhook", "value": "was here"}}
	},
	"inject": func(p *v1.Pod) []map[string]any {
		if slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == "injected" }) {
			return nil
		}
		injected := fixture.Container("injected", "true", "cpu=100m memory=16Mi", "")
		return []map[string]any{{"op": "add", "path": "/spec/containers/-", "value": injected}}
	},
	// It fills in what is absent, in every run, as Kyverno's default requests do.
	"fill": func(p *v1.Pod) (patch []map[string]any) {
		for i, of := range p.Spec.Containers {
			if _, has := of.Resources.Requests[v1.ResourceCPU]; !has {
				patch = append(patch, addRequest(i, of, v1.ResourceCPU, "100m"))
			}
		}
		return patch
	},
	// It injects a container without resources.
	"inject-bare": func(p *v1.Pod) []map[string]any {
		if slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == "bare" }) {
			return nil
		}
		return []map[string]any{{"op": "add", "path": "/spec/containers/-", "value": fixture.Container("bare", "true", "", "")}}
	},
	// It forges a partitioned pod, and has the last word.
	"forge": func(p *v1.Pod) []map[string]any {
		p = p.DeepCopy()
		p.Annotations = asks
		p = fixture.Partitioned(p)
		return []map[string]any{{"op": "add", "path": "/metadata/annotations", "value": p.Annotations}, {"op": "add", "path": "/spec/containers", "value": p.Spec.Containers}}
	},
	// An autoscaler does this, and the next.
	"recommend-memory": func(p *v1.Pod) []map[string]any {
		return []map[string]any{addRequest(0, p.Spec.Containers[0], v1.ResourceMemory, "48Mi")}
	},
	"recommend-cpu": func(p *v1.Pod) []map[string]any {
		return []map[string]any{addRequest(0, p.Spec.Containers[0], v1.ResourceCPU, "800m")}
	},
	// It has the last word about cpu.
	"cpu": func(*v1.Pod) []map[string]any {
		return []map[string]any{{"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "50m"}}
	},
}

// once lists the webhooks that are never run again.
var once = []string{"recommend-memory", "recommend-cpu"}

// addRequest returns the patch that adds a request to a container, by its index in the pod.
func addRequest(i int, of v1.Container, name v1.ResourceName, value string) map[string]any {
	requests := of.Resources.Requests.DeepCopy()
	if requests == nil {
		requests = v1.ResourceList{}
	}
	requests[name] = resource.MustParse(value)
	return map[string]any{"op": "add", "path": fmt.Sprintf("/spec/containers/%d/resources/requests", i), "value": requests}
}

// serveWebhooks serves and registers all webhooks, and creates the policies. It reports whether
// the release serves MutatingAdmissionPolicies.
func serveWebhooks(t *testing.T, c *host.Cluster) (hasPolicies bool) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		var p v1.Pod
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, &p)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if patch := patches[strings.TrimPrefix(request.URL.Path, "/")](&p); patch != nil {
			kind := admissionv1.PatchTypeJSONPatch
			review.Response.PatchType = &kind
			review.Response.Patch, _ = json.Marshal(patch)
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	none, again, never := admissionregistration.SideEffectClassNone, admissionregistration.IfNeededReinvocationPolicy, admissionregistration.NeverReinvocationPolicy
	configuration := &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}}
	for _, name := range slices.Sorted(maps.Keys(patches)) {
		url := server.URL + "/" + name
		policy := &again
		if slices.Contains(once, name) {
			policy = &never
		}
		configuration.Webhooks = append(configuration.Webhooks, admissionregistration.MutatingWebhook{
			Name: name + ".e2e.workload.openshift.io", ClientConfig: admissionregistration.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionregistration.RuleWithOperations{{Operations: []admissionregistration.OperationType{admissionregistration.Create},
				Rule: admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{webhookLabel + name: ""}},
			SideEffects:       &none, ReinvocationPolicy: policy, AdmissionReviewVersions: []string{"v1"},
		})
	}
	webhooks := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := webhooks.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies, bindings := c.Client.AdmissionregistrationV1().MutatingAdmissionPolicies(), c.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	policy := &admissionregistration.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}, Spec: admissionregistration.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistration.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{webhookLabel + "policy": ""}}, ObjectSelector: &metav1.LabelSelector{},
			ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: configuration.Webhooks[0].Rules[0]}},
		},
		ReinvocationPolicy: again,
		// Without it the policy would put its cpu back in the second run.
		MatchConditions: []admissionregistration.MatchCondition{{Name: "not-injected-yet", Expression: `!object.spec.?initContainers.orValue([]).exists(c, c.name == "by-policy")`}},
		Mutations: []admissionregistration.Mutation{{PatchType: admissionregistration.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistration.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{annotations: {"policy": "was here"}}, spec: Object.spec{initContainers: [Object.spec.initContainers{name: "by-policy", image: "` +
				image.Busybox + `", restartPolicy: "Always", resources: Object.spec.initContainers.resources{requests: {"cpu": "70m", "memory": "8Mi"}}}]}}`}}},
	}}
	// It fills in what is absent, in every run, without a condition.
	fill := policy.DeepCopy()
	fill.Name, fill.Spec.MatchConditions = "e2e-fill", nil
	fill.Spec.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{webhookLabel + "fill-policy": ""}
	fill.Spec.Mutations[0].ApplyConfiguration.Expression = `Object{spec: Object.spec{containers: object.spec.containers.filter(c, !(has(c.resources.requests) && "cpu" in c.resources.requests))` +
		`.map(c, Object.spec.containers{name: c.name, resources: Object.spec.containers.resources{requests: {"cpu": "100m"}}})}}`
	t.Cleanup(func() {
		if err := webhooks.Delete(cleanup(t), "e2e", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, policy := range []*admissionregistration.MutatingAdmissionPolicy{policy, fill} {
		if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); apierrors.IsNotFound(err) {
			t.Log("this release serves no MutatingAdmissionPolicy by default, so policies are not tested")
			return false
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := cleanup(t)
			for _, err := range []error{bindings.Delete(ctx, policy.Name, metav1.DeleteOptions{}), policies.Delete(ctx, policy.Name, metav1.DeleteOptions{})} {
				if err != nil {
					t.Error(err)
				}
			}
		})
		if _, err := bindings.Create(t.Context(), &admissionregistration.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
			Spec: admissionregistration.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// Webhooks and policies run after the plugin, and it then runs again. Pods are partitioned as
// they would be without them, with what was injected, or they are refused.
func TestWebhooksDoNotUndoPartitioning(t *testing.T) {
	in(t)
	c := apiServer(t)
	reportingNode(t, c, "reporting", "management")
	hasPolicies := serveWebhooks(t, c)
	base := fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, base), true)
	defaults := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{Type: v1.LimitTypeContainer,
		Default:        fixture.Resources("cpu=2 memory=1Gi"),
		DefaultRequest: fixture.Resources("cpu=25m memory=32Mi")}}}}
	build := func() *v1.Pod {
		return fixture.Pod("p", map[string]string{managementTarget: "", "mine": "kept"}, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""), fixture.Container("d", "true", "memory=16Mi", ""))
	}
	// The resources annotations of the two containers, without a LimitRange and with its defaults.
	plain := map[string]string{"c": `{"cpushares":400}`, "d": `{"cpushares":2}`}
	defaulted := map[string]string{"c": `{"cpushares":400,"cpulimit":2000}`, "d": `{"cpushares":25,"cpulimit":2000}`}
	with := func(base map[string]string, more ...string) map[string]string {
		all := maps.Clone(base)
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	for _, test := range []struct {
		labels  []string
		limited bool
		want    map[string]string
	}{
		{nil, false, plain},
		{[]string{"annotate"}, false, plain},
		{[]string{"inject"}, false, with(plain, "injected", `{"cpushares":100}`)},
		{[]string{"policy"}, false, with(plain, "by-policy", `{"cpushares":70}`)},
		{nil, true, defaulted},
		{[]string{"annotate"}, true, defaulted},
		{[]string{"fill"}, false, with(plain, "d", `{"cpushares":100}`)},
		{[]string{"fill", "inject-bare"}, false, with(plain, "d", `{"cpushares":100}`, "bare", `{"cpushares":2}`)},
		{[]string{"fill"}, true, defaulted},
		{[]string{"fill-policy"}, false, with(plain, "d", `{"cpushares":100}`)},
		{[]string{"fill-policy", "inject-bare"}, false, with(plain, "d", `{"cpushares":100}`, "bare", `{"cpushares":2}`)},
		{[]string{"annotate", "inject", "policy"}, false, with(plain, "injected", `{"cpushares":100}`, "by-policy", `{"cpushares":70}`)},
		{[]string{"annotate", "inject", "policy"}, true, with(defaulted, "injected", `{"cpushares":100,"cpulimit":2000}`, "by-policy", `{"cpushares":70,"cpulimit":2000}`)},
	} {
		if slices.Contains(test.labels, "fill-policy") && !hasPolicies {
			continue
		}
		if !hasPolicies {
			test.labels = slices.DeleteFunc(test.labels, func(label string) bool { return label == "policy" })
			delete(test.want, "by-policy")
		}
		t.Run(fmt.Sprintf("%v, with a LimitRange: %v", test.labels, test.limited), func(t *testing.T) {
			namespace := fixture.Namespace(t, c.Client, "management")
			labelNamespace(t, c, namespace, test.labels)
			if test.limited {
				if _, err := c.Client.CoreV1().LimitRanges(namespace).Create(t.Context(), defaults, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			var p *v1.Pod
			// kube-apiserver takes a moment to see labels, policies and LimitRanges.
			waitFor(t, 20*time.Second, "webhooks, policies and LimitRange have changed the pod", func() (err error) {
				if p, err = creating(t, c, namespace)(build(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					return err
				}
				if got := len(p.Spec.Containers) + len(p.Spec.InitContainers); got != len(test.want) || (slices.Contains(test.labels, "annotate") && p.Annotations["webhook"] == "") ||
					(test.limited && p.Spec.Containers[0].Resources.Limits.Memory().IsZero()) {
					return fmt.Errorf("it has %d containers, want %d, and the annotations %v", got, len(test.want), p.Annotations)
				}
				return nil
			})
			for name, want := range test.want {
				if got := p.Annotations[partition.ResourcesAnnotation(name)]; got != want {
					t.Errorf("container %s has the annotation %s, want %s", name, got, want)
				}
			}
			for _, of := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				// Later runs of the plugin leave zeros.
				if !of.Resources.Requests.Cpu().IsZero() || !of.Resources.Limits.Cpu().IsZero() {
					t.Errorf("container %s has %v, want no cpu", of.Name, of.Resources)
				}
			}
			if p.Annotations["mine"] != "kept" || p.Annotations[partition.WarningAnnotation] != "" {
				t.Errorf("the pod has the annotations %v, want its own and no warning", p.Annotations)
			}
		})
	}
	t.Run("a webhook forges a partitioned pod", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "")
		labelNamespace(t, c, namespace, []string{"forge"})
		for _, p := range []*v1.Pod{fixture.Pod("p", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", "")), fixture.Pod("p", nil, fixture.Container("c", "true", "", ""))} {
			waitFor(t, 20*time.Second, "the pod is refused", func() error {
				_, err := creating(t, c, namespace)(p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "namespace is not annotated with workload.openshift.io/allowed") {
					return fmt.Errorf("the answer is %v", err)
				}
				return nil
			})
		}
	})
	t.Run("a webhook makes a Guaranteed pod Burstable", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		labelNamespace(t, c, namespace, []string{"inject"})
		waitFor(t, 20*time.Second, "both containers are partitioned", func() error {
			p, warned, err := send(t, namespace, fixture.Pod("", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=400m memory=16Mi")), "dry run")
			if err != nil {
				return err
			}
			if _, is := partition.PartitionedType(p); !is || len(p.Spec.Containers) != 2 || len(warned) > 0 || p.Annotations[partition.ResourcesAnnotation("c")] != `{"cpushares":400,"cpulimit":400}` {
				return fmt.Errorf("the pod has %d containers and the annotations %v, and its author was warned with %q", len(p.Spec.Containers), p.Annotations, warned)
			}
			return nil
		})
	})
	for recommended, want := range map[string]string{"recommend-memory": "", "recommend-cpu": `the cpu that was set in container "c" after the pod had been partitioned is ignored`} {
		t.Run("an autoscaler's webhook, "+recommended, func(t *testing.T) {
			namespace := fixture.Namespace(t, c.Client, "management")
			labelNamespace(t, c, namespace, []string{recommended, "annotate"})
			waitFor(t, 20*time.Second, "memory is as recommended, and cpu is not", func() error {
				p, warned, err := send(t, namespace, fixture.Pod("", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "")), "dry run")
				if err != nil {
					return err
				}
				requests := p.Spec.Containers[0].Resources.Requests
				request := requests[cores]
				if _, is := partition.PartitionedType(p); !is || request.Value() != 400 || (requests.Memory().String() == "48Mi") != (want == "") || !strings.Contains(strings.Join(warned, ""), want) || (want == "") != (len(warned) == 0) {
					return fmt.Errorf("the pod requests %v, and its author was warned with %q", requests, warned)
				}
				return nil
			})
		})
	}
	t.Run("a policy requires a cpu request", func(t *testing.T) { requiresKey(t, c) })
	t.Run("a webhook has the last word about cpu", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		labelNamespace(t, c, namespace, []string{"cpu"})
		waitFor(t, 20*time.Second, "the pod is refused", func() error {
			_, err := creating(t, c, namespace)(build(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `annotations of workload.openshift.io: container "c" has requests.`) {
				return fmt.Errorf("the answer is %v", err)
			}
			return nil
		})
	})
}

// requiresKey creates a policy that refuses containers without a cpu request. A request of zero
// satisfies it, which the plugin writes when it runs again.
func requiresKey(t *testing.T, c *host.Cluster) {
	policies, bindings := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := policies.Create(t.Context(), &admissionregistration.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}, Spec: admissionregistration.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistration.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{webhookLabel + "require-key": ""}},
			ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: admissionregistration.RuleWithOperations{Operations: []admissionregistration.OperationType{admissionregistration.Create},
				Rule: admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}},
		},
		Validations: []admissionregistration.Validation{{Expression: `object.spec.containers.all(c, has(c.resources.requests) && "cpu" in c.resources.requests)`, Message: "write a cpu request"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistration.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}, Spec: admissionregistration.ValidatingAdmissionPolicyBindingSpec{PolicyName: "e2e",
		ValidationActions: []admissionregistration.ValidationAction{admissionregistration.Deny}}}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := cleanup(t)
		for _, err := range []error{bindings.Delete(ctx, "e2e", metav1.DeleteOptions{}), policies.Delete(ctx, "e2e", metav1.DeleteOptions{})} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	namespace := fixture.Namespace(t, c.Client, "management")
	labelNamespace(t, c, namespace, []string{"require-key"})
	build := func() *v1.Pod {
		return fixture.Pod("p", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""))
	}
	create := func(p *v1.Pod) (*v1.Pod, error) {
		return creating(t, c, namespace)(p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	waitFor(t, 20*time.Second, "the policy is in force", func() error {
		if _, err := create(build()); err == nil || !strings.Contains(err.Error(), "write a cpu request") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	labelNamespace(t, c, namespace, []string{"annotate"})
	waitFor(t, 20*time.Second, "a pod with a request of zero is created", func() error {
		p, err := create(build())
		if err == nil {
			if _, is := partition.PartitionedType(p); !is {
				err = fmt.Errorf("the pod has the annotations %v", p.Annotations)
			}
		}
		return err
	})
}

// labelNamespace has webhooks and policies, by their names, change the pods of a namespace.
func labelNamespace(t *testing.T, c *host.Cluster, namespace string, labels []string) {
	t.Helper()
	object, err := c.Client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range labels {
		object.Labels[webhookLabel+label] = ""
	}
	if _, err := c.Client.CoreV1().Namespaces().Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
