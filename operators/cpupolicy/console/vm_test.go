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

package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
)

// kubeVirt brings as much of KubeVirt as its objects need, and returns a client for them.
func (f *fixture) kubeVirt() client.Client {
	f.t.Helper()
	for plural, kind := range map[string]string{"virtualmachines": "VirtualMachine", "virtualmachineinstances": "VirtualMachineInstance"} {
		f.create(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".kubevirt.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "kubevirt.io",
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
				Scope: apiextensionsv1.NamespaceScoped,
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true),
					}},
				}},
			},
		})
	}
	scheme := runtime.NewScheme()
	if err := virtv1.AddToScheme(scheme); err != nil {
		f.t.Fatal(err)
	}
	c, err := client.New(f.Config, client.Options{Scheme: scheme})
	if err != nil {
		f.t.Fatal(err)
	}
	testenv.Eventually(f.t, 20*time.Second, func() error {
		if err := c.List(f.t.Context(), &virtv1.VirtualMachineList{}); err != nil {
			return err
		}
		return c.List(f.t.Context(), &virtv1.VirtualMachineInstanceList{})
	})
	return c
}

func TestVirtualMachinesArePinnedByTheirCheckbox(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list", "nodes"), rule("list,update", "virtualmachines"))
	f.account("viewer", rule("get,list", "nodes"), rule("list", "virtualmachines"))
	f.account("of-one", rule("get,list", "nodes"), rule("list", "virtualmachines"), rule("update", "virtualmachines", "stopped"))
	f.account("stranger", rule("get,list", "nodes"))

	b := f.signIn(t, "admin")
	if b.open("/virtual-machines"); b.code != http.StatusOK || !strings.Contains(text(b.page), "KubeVirt is not installed") {
		t.Errorf("without KubeVirt it is answered with %d: %s", b.code, text(b.page))
	}

	c := f.kubeVirt()
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
	f.create(other)
	create := func(namespace, name string, template *virtv1.VirtualMachineInstanceTemplateSpec) {
		t.Helper()
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		vm.Spec.Template, vm.Status.PrintableStatus = template, virtv1.VirtualMachineStatusStopped
		if err := c.Create(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	template := func(cpu *virtv1.CPU) *virtv1.VirtualMachineInstanceTemplateSpec {
		return &virtv1.VirtualMachineInstanceTemplateSpec{Spec: virtv1.VirtualMachineInstanceSpec{Domain: virtv1.DomainSpec{CPU: cpu}}}
	}
	create(f.namespace, "stopped", template(&virtv1.CPU{Cores: 2}))
	create(f.namespace, "plain", template(nil))
	create(f.namespace, "pinned", template(&virtv1.CPU{Cores: 2, DedicatedCPUPlacement: true}))
	create(f.namespace, "running", template(&virtv1.CPU{Cores: 2, DedicatedCPUPlacement: true}))
	create(f.namespace, "empty", nil)
	create(other.Name, "stopped", template(nil))
	if err := c.Create(t.Context(), &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "running"}}); err != nil {
		t.Fatal(err)
	}
	cpu := func(name string) string {
		t.Helper()
		var vm virtv1.VirtualMachine
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, &vm); err != nil {
			t.Fatal(err)
		}
		if vm.Spec.Template == nil || vm.Spec.Template.Spec.Domain.CPU == nil {
			return "none"
		}
		return fmt.Sprintf("%d %t", vm.Spec.Template.Spec.Domain.CPU.Cores, vm.Spec.Template.Spec.Domain.CPU.DedicatedCPUPlacement)
	}
	action := func(name string) string { return "/virtual-machines/" + f.namespace + "/" + name }
	checked := func(b *browser, name string) bool {
		t.Helper()
		form := b.form(action(name))
		if form == nil {
			t.Fatalf("%s is not there: %s", name, text(b.page))
		}
		return values(form).Get("pinned") == "true"
	}

	t.Run("all that a user may list are there", func(t *testing.T) {
		b.open("/virtual-machines")
		if cells := b.cells("pinned"); len(cells) != 4 || cells[0] != f.namespace || cells[2] != "Stopped" || b.form("/virtual-machines/"+other.Name+"/stopped") == nil {
			t.Errorf("the page is %s", text(b.page))
		}
		b.open("/virtual-machines?namespace=" + f.namespace)
		if b.form("/virtual-machines/"+other.Name+"/stopped") != nil {
			t.Errorf("the page of one namespace is %s", text(b.page))
		}
	})
	t.Run("a stopped one is changed", func(t *testing.T) {
		b.open("/virtual-machines?namespace=" + f.namespace)
		for _, step := range []struct {
			name  string
			check bool
			want  string
		}{{"stopped", true, "2 true"}, {"stopped", true, "2 true"}, {"stopped", false, "2 false"}, {"plain", true, "0 true"}, {"pinned", false, "2 false"}} {
			change := url.Values{"pinned": nil}
			if step.check {
				change = url.Values{"pinned": {"true"}}
			}
			b.submit(b.form(action(step.name)), change)
			if b.path != "/virtual-machines" || len(b.alerts()) > 0 || cpu(step.name) != step.want || checked(b, step.name) != step.check {
				t.Errorf("%+v: %s has the alerts %q, and the machine the CPU %s", step, b.path, b.alerts(), cpu(step.name))
			}
			// The page is still that of the namespace.
			if b.form("/virtual-machines/"+other.Name+"/stopped") != nil {
				t.Errorf("the page is %s", text(b.page))
			}
		}
	})
	t.Run("another is not", func(t *testing.T) {
		for name, why := range map[string]string{"running": "It has a VirtualMachineInstance; stop it first.", "empty": "It has no spec.template."} {
			b.open("/virtual-machines")
			if _, got := b.button(action(name)); got != why {
				t.Errorf("%s cannot be changed because of %q", name, got)
			}
			before := cpu(name)
			sent := values(b.form(action(name)))
			if sent.Has("pinned") {
				sent.Del("pinned")
			} else {
				sent.Set("pinned", "true")
			}
			b.show(f.post(b.client, action(name), sent, nil))
			if alerts := strings.Join(b.alerts(), ""); !strings.Contains(alerts, why) || cpu(name) != before {
				t.Errorf("%s: the alerts are %q, and the CPU is %s", name, alerts, cpu(name))
			}
		}
		b.open("/virtual-machines")
		if len(b.alerts()) != 1 {
			t.Errorf("the error does not stay: %q", b.alerts())
		}
	})
	t.Run("one that is gone", func(t *testing.T) {
		for _, path := range []string{action("gone"), "/virtual-machines/a%2Fb/c"} {
			b.show(f.post(b.client, path, url.Values{"csrf": values(b.form("/sign-out"))["csrf"]}, nil))
			if alerts := strings.Join(b.alerts(), ""); !strings.Contains(alerts, "not found") {
				t.Errorf("%s: the alerts are %q", path, alerts)
			}
		}
	})
	t.Run("without the right", func(t *testing.T) {
		for account, may := range map[string]string{"viewer": "", "of-one": "stopped"} {
			b := f.signIn(t, account)
			b.open("/virtual-machines")
			for _, name := range []string{"stopped", "plain"} {
				_, why := b.button(action(name))
				if (why == "") != (name == may) || why != "" && !strings.Contains(why, `cannot update resource "virtualmachines" in API group "kubevirt.io" in the namespace "`+f.namespace) {
					t.Errorf("%s: %s cannot be changed because of %q", account, name, why)
				}
			}
			before := cpu("plain")
			b.show(f.post(b.client, action("plain"), values(b.form(action("plain"))), nil))
			if alerts := strings.Join(b.alerts(), ""); !strings.Contains(alerts, "is forbidden") || cpu("plain") != before {
				t.Errorf("%s: the alerts are %q, and the CPU is %s", account, alerts, cpu("plain"))
			}
		}
		b := f.signIn(t, "stranger")
		for path, want := range map[string]string{"": "Choose a namespace", "?namespace=" + f.namespace: "You may not see the virtual machines of the namespace " + f.namespace} {
			if b.open("/virtual-machines" + path); b.code != http.StatusForbidden || !strings.Contains(strings.Join(b.alerts(), ""), want) || strings.Contains(text(b.page), "pinned") {
				t.Errorf("%q is answered with %d: %s", path, b.code, text(b.page))
			}
		}
		if b.open("/virtual-machines?namespace=A"); b.code != http.StatusBadRequest || !strings.Contains(strings.Join(b.alerts(), ""), `namespace "A"`) {
			t.Errorf("a wrong name is answered with %d: %s", b.code, text(b.page))
		}
	})
}
