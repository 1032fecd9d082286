/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partitioning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

var infrastructures = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}

// infrastructure is OpenShift's object, with a status or, if that is nil, with none.
func infrastructure(status map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"}}}
	if status != nil {
		object.Object["status"] = status
	}
	return object
}

// serving returns a client of a server that has these objects.
func serving(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{infrastructures: "InfrastructureList"}, objects...)
}

// failing returns a client of a server that does not list the kind.
func failing(err error) *dynamicfake.FakeDynamicClient {
	client := serving()
	client.PrependReactor("list", "infrastructures", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return client
}

// startByInfrastructure runs a plugin with that source in a cluster whose nodes have pools.
func startByInfrastructure(t *testing.T, client dynamic.Interface) *plugin {
	t.Helper()
	p, _ := startWith(t, config.Configuration{Activation: config.Activation{Source: config.SourceInfrastructure, Types: []string{"management"}}}, client,
		partitiontest.Node("a", "management", "other"), partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("plain", "", ""),
		partitiontest.Namespace("open", partition.AllowedAnnotation, "management, other"), partitiontest.Namespace("others", partition.AllowedAnnotation, "other"))
	return p
}

// awaitReason waits until the plugin's types say this of the type management.
func awaitReason(t *testing.T, p *plugin, want partition.Reason, awaits string) {
	t.Helper()
	partitiontest.Eventually(t, fmt.Sprintf("the reason is %q, awaiting %q", want, awaits), func() bool {
		reason, says := p.activation.Reason("management")
		return reason == want && strings.Contains(says, awaits) && (says == "") == (awaits == "")
	})
}

// deployment has a template that asks as the pod does.
func deployment(pod *core.Pod) *apps.Deployment {
	return &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
}

// audited records what the audit log would have of a request.
type audited struct {
	admission.Attributes
	entries map[string]string
}

func (a audited) AddAnnotation(key, value string) error {
	a.entries[key] = value
	return nil
}

// expectTemplates checks what the author of a Deployment is told at its creation and update.
func expectTemplates(t *testing.T, p *plugin, namespace string, pod *core.Pod, want string) {
	t.Helper()
	for operation, old := range map[admission.Operation]runtime.Object{admission.Create: nil, admission.Update: deployment(newPod(nil))} {
		template, entries := deployment(pod), map[string]string{}
		before := template.DeepCopy()
		var r recorder
		ctx, a := warning.WithWarningRecorder(t.Context(), &r), audited{attributes(template, old, namespace, "", operation), entries}
		if err := errors.Join(p.Admit(ctx, a, nil), p.Validate(ctx, a, nil)); err != nil || len(entries) > 0 || fmt.Sprint(before) != fmt.Sprint(template) {
			t.Errorf("%s of a Deployment in %s: %v, audit entries %v, template %v", operation, namespace, err, entries, template)
		}
		if got := strings.Join(r.warnings, "; "); got != want {
			t.Errorf("%s of a Deployment in %s: told %q, want %q", operation, namespace, got, want)
		}
	}
}

// A payload asks on every cluster. On one whose installer has decided against the type, its
// owner is told of nothing, wherever the pod is.
func TestNobodyIsToldOfATypeThatWasDecidedAgainst(t *testing.T) {
	const refused = `workload type "management" refused: the cluster's Infrastructure object has decided against it`
	nothing := func(*core.Pod) {}
	for value, status := range map[string]map[string]any{"none": {}, "empty": {"cpuPartitioning": ""}, "None": {"cpuPartitioning": "None"}} {
		p := startByInfrastructure(t, serving(infrastructure(status)))
		awaitReason(t, p, partition.ReasonDecidedAgainst, "")
		for _, namespace := range []string{"open", "plain", "others", "nowhere"} {
			for runs, webhooks := range map[string][]func(*core.Pod){
				"one run":              nil,
				"two runs":             {nothing},
				"a webhook that asks":  {func(pod *core.Pod) { pod.Annotations = map[string]string{"mine": "1", managementTarget: ""} }},
				"a webhook that warns": {func(pod *core.Pod) { pod.Annotations[partition.WarningAnnotation] = "x" }},
			} {
				t.Run(fmt.Sprintf("value %s, namespace %s, %s", value, namespace, runs), func(t *testing.T) {
					legacyregistry.Reset()
					pod := newPod(map[string]string{"mine": "1", managementTarget: "", partition.WarningAnnotation: "x", partition.ResourcesPrefix + "c": `{"cpuset":"0"}`})
					if runs == "a webhook that asks" {
						pod.Annotations = nil
					}
					want := newPod(map[string]string{"mine": "1"})
					told, err := createAs(t, p, pod, namespace, nil, webhooks...)
					if err != nil || len(told) > 0 || fmt.Sprint(pod) != fmt.Sprint(want) {
						t.Errorf("got %v, told %q, the pod is %v", err, told, pod)
					}
					if got := counted(t); len(got) != 1 || got["management skipped decided_against"] != 1 {
						t.Errorf("counted %v", got)
					}
				})
			}
			t.Run(fmt.Sprintf("value %s, namespace %s, the audit log", value, namespace), func(t *testing.T) {
				pod, entries := newPod(map[string]string{managementTarget: ""}), map[string]string{}
				a := audited{attributes(pod, nil, namespace, "", admission.Create), entries}
				if err := errors.Join(p.Admit(t.Context(), a, nil), p.Validate(t.Context(), a, nil)); err != nil || len(entries) > 0 {
					t.Errorf("got %v, entries %v", err, entries)
				}
			})
			t.Run(fmt.Sprintf("value %s, namespace %s, a hard effect", value, namespace), func(t *testing.T) {
				legacyregistry.Reset()
				pod := newPod(map[string]string{managementTarget: `{"effect": "RequiredDuringScheduling"}`})
				if _, err := create(t, p, pod, namespace); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused) {
					t.Errorf("got %v, want 403 with %s", err, refused)
				}
				if got := counted(t); len(got) != 1 || got["management refused decided_against"] != 1 {
					t.Errorf("counted %v", got)
				}
			})
			t.Run(fmt.Sprintf("value %s, namespace %s, templates", value, namespace), func(t *testing.T) {
				expectTemplates(t, p, namespace, newPod(map[string]string{managementTarget: ""}), "")
				expectTemplates(t, p, namespace, newPod(map[string]string{managementTarget: `{"effect": "RequiredDuringScheduling"}`}),
					"pods of this template: "+refused+" (status.cpuPartitioning is not AllNodes)")
			})
		}
		t.Run("value "+value+", a webhook that comes last and partitions", func(t *testing.T) {
			forge := func(pod *core.Pod) {
				pod.Annotations = map[string]string{managementTarget: ""}
				partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
			}
			if _, err := createAs(t, p, newPod(nil), "open", nil, nothing, forge); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused) {
				t.Errorf("got %v", err)
			}
		})
		t.Run("value "+value+", a dry run", func(t *testing.T) {
			legacyregistry.Reset()
			dry := admission.NewAttributesRecord(newPod(map[string]string{managementTarget: ""}), nil, core.Kind("Pod").WithVersion("version"), "open", "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, true, nil)
			if err := p.Admit(t.Context(), dry, nil); err != nil || len(counted(t)) > 0 {
				t.Errorf("got %v, counted %v", err, counted(t))
			}
		})
		t.Run("value "+value+", a type that the nodes decide", func(t *testing.T) {
			pod := newPod(map[string]string{partition.TargetAnnotation("other"): ""})
			if told, err := create(t, p, pod, "open"); err != nil || len(told) > 0 || !internalpod.CarriesCores(pod) {
				t.Errorf("got %v, told %q, %v", err, told, pod)
			}
			if told, err := create(t, p, newPod(map[string]string{partition.TargetAnnotation("absent"): ""}), "plain"); err != nil || len(told) != 1 {
				t.Errorf("an unknown type got %v, told %q", err, told)
			}
		})
	}
}

// Until the object has decided, pods that ask for the type are not created, and no other pod
// notices.
func TestPodsWaitForTheObjectThatDecides(t *testing.T) {
	const name = `infrastructures.config.openshift.io "cluster" `
	for what, test := range map[string]struct {
		client dynamic.Interface
		lacks  string
	}{
		"the server fails":       {failing(errors.New("connection refused")), name + "has not been read"},
		"the kind is not served": {failing(apierrors.NewNotFound(infrastructures.GroupResource(), "")), name + "does not exist, because its kind is not served"},
		"the object is absent":   {serving(), name + "does not exist"},
		"it has no status":       {serving(infrastructure(nil)), name + "has no status"},
	} {
		t.Run(what, func(t *testing.T) {
			p := startByInfrastructure(t, test.client)
			awaitReason(t, p, partition.ReasonTypeInactive, test.lacks)
			legacyregistry.Reset()
			want := `workload.openshift.io/Partitioning cannot decide on the workload type "management" yet: ` + test.lacks + "; try again"
			expectUnavailable := func(err error) {
				t.Helper()
				if !apierrors.IsServiceUnavailable(err) || err.Error() != want {
					t.Errorf("got %v, want 503 with %s", err, want)
				}
			}
			soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			forged := newPod(map[string]string{managementTarget: ""})
			partition.Mutate(internalpod.View(forged), partition.Policy{Gate: partition.AnyType})
			expectUnavailable(p.Validate(soon, attributes(forged, nil, "open", "", admission.Create), nil))
			for _, namespace := range []string{"open", "plain", "others"} {
				for _, effect := range []string{"", `{"effect": "RequiredDuringScheduling"}`} {
					expectUnavailable(p.Admit(soon, attributes(newPod(map[string]string{managementTarget: effect}), nil, namespace, "", admission.Create), nil))
					expectTemplates(t, p, namespace, newPod(map[string]string{managementTarget: effect}), "")
				}
			}
			again := attributes(newPod(map[string]string{managementTarget: ""}), nil, "open", "", admission.Create)
			again.GetReinvocationContext().SetIsReinvoke()
			expectUnavailable(p.Admit(soon, again, nil))
			if got := counted(t); len(got) > 0 {
				t.Errorf("counted %v, though nothing was decided", got)
			}
			for passes, pod := range map[string]*core.Pod{"a pod that does not ask": newPod(nil), "a pod of another type": newPod(map[string]string{partition.TargetAnnotation("other"): ""})} {
				if told, err := create(t, p, pod, "open"); err != nil || len(told) > 0 {
					t.Errorf("%s got %v, told %q", passes, err, told)
				}
			}
			if _, err := create(t, p, newPod(map[string]string{managementTarget: "x"}), "open"); !apierrors.IsInvalid(err) {
				t.Errorf("a pod that asks wrongly got %v, want 422", err)
			}
		})
	}
}

// What is created while the installer fills the object in gets through, as it decides.
func TestRequestsThatWaitGetThrough(t *testing.T) {
	for value, wants := range map[string]partition.Reason{"AllNodes": partition.NoReason, "None": partition.ReasonDecidedAgainst, "": partition.ReasonDecidedAgainst} {
		t.Run("filled in with "+value, func(t *testing.T) {
			client := serving(infrastructure(nil))
			p := startByInfrastructure(t, client)
			awaitReason(t, p, partition.ReasonTypeInactive, "has no status")
			legacyregistry.Reset()
			const requests = 5
			type answer struct {
				pod  *core.Pod
				told []string
				err  error
			}
			answers := make(chan answer, requests)
			for range requests {
				go func() {
					pod := newPod(map[string]string{managementTarget: ""})
					told, err := create(t, p, pod, "open")
					answers <- answer{pod, told, err}
				}()
			}
			time.Sleep(100 * time.Millisecond)
			if len(answers) > 0 {
				t.Fatal("a request did not wait")
			}
			if _, err := client.Resource(infrastructures).Update(t.Context(), infrastructure(map[string]any{"cpuPartitioning": value}), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			for range requests {
				if got := <-answers; got.err != nil || len(got.told) > 0 || internalpod.CarriesCores(got.pod) != (wants == partition.NoReason) {
					t.Errorf("got %v, told %q, %v", got.err, got.told, got.pod)
				}
			}
			want := "management partitioned "
			if wants != partition.NoReason {
				want = "management skipped " + string(wants)
			}
			if got := counted(t); len(got) != 1 || got[want] != requests {
				t.Errorf("counted %v, want %d of %q", got, requests, want)
			}
		})
	}
}
