// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/console"
	"workload.openshift.io/operators/internal/testenv"
)

// openConsole serves the pages of kubectl partition console with a token until the test ends, and returns the
// URL that they are below.
func (c *cluster) openConsole(t *testing.T, token string) string {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = token
	ctx, cancel := context.WithCancel(t.Context())
	opened, ended := make(chan console.Opened, 1), make(chan error, 1)
	go func() {
		ended <- console.Open(ctx, console.Options{Config: config, Namespace: c.Namespace, Opened: func(is console.Opened) { opened <- is }})
	}()
	select {
	case is := <-opened:
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return strings.TrimSuffix(is.URL, "hosts")
	case err := <-ended:
		cancel()
		t.Fatal(err)
		return ""
	}
}

// visit returns what a page says, after a form was posted to it if there is one.
func visit(t *testing.T, page string, form url.Values) string {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(t.Context(), method, page, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return html.UnescapeString(string(body))
}

// whoUsesTheConsole are rights to all that the pages do.
func whoUsesTheConsole() []rbacv1.PolicyRule {
	return append(mayNodes("get,list,patch"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "list", "patch"}},
	)
}

// isPinned returns whether a virtual machine of the namespace default asks for CPUs of its own.
func (c *cluster) isPinned(t *testing.T, name string) bool {
	t.Helper()
	vm := newVM(t, name, "{}")
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(vm), vm); err != nil {
		t.Fatal(err)
	}
	pinned, _, err := unstructured.NestedBool(vm.Object, "spec", "template", "spec", "domain", "cpu", "dedicatedCpuPlacement")
	if err != nil {
		t.Fatal(err)
	}
	return pinned
}

// Each page and each form is a request of the user, to RBAC, admission and webhooks.
func TestThePagesActAsTheirUser(t *testing.T) {
	c := startCluster(t).in(t)
	testenv.KubeVirt(t, c.ControlPlane)
	c.addNode("free", nil)
	broken := c.addNode("broken", map[string]string{"kubernetes.io/os": "windows"}) // that is not observed
	c.awaitObserved("free")
	c.mu.Lock()
	broken.policy = operation.Policy("no such policy")
	c.mu.Unlock()
	c.Kubectl(t, "label", "node", "broken", "kubernetes.io/os-")
	for _, name := range []string{"web", "running"} {
		hooks{c.Installed}.admin(t).create(t, newVM(t, name, "{domain: {cpu: {cores: 2}, devices: {}}}"))
	}
	hooks{c.Installed}.admin(t).create(t, object(t, "VirtualMachineInstance", "running", "spec: {domain: {devices: {}}}, status: {phase: Running}"))
	barred := c.account(t, "barred", whoUsesTheConsole())
	pages := map[string]string{
		"anna":   c.openConsole(t, c.account(t, "anna", whoUsesTheConsole())),
		"barred": c.openConsole(t, barred),
		"otto":   c.openConsole(t, c.account(t, "otto", mayNodes("get,list"))),
	}
	c.forbid(t, "barred", "", "nodes", "false", "tenants leave nodes alone")
	c.forbid(t, "barred", "kubevirt.io", "virtualmachines", "!object.spec.template.spec.domain.cpu.dedicatedCpuPlacement", "tenants share their CPUs")
	// Before the policy is in force, the machine would be pinned for good.
	c.eventually(func() error {
		const pinned = `{"spec":{"template":{"spec":{"domain":{"cpu":{"dedicatedCpuPlacement":true}}}}}}`
		err := c.As(t, barred).Patch(t.Context(), newVM(t, "web", "{}"), client.RawPatch("application/merge-patch+json", []byte(pinned)), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "tenants share their CPUs") {
			return fmt.Errorf("the policy about machines is not in force: %w", errors.Join(err))
		}
		return nil
	})

	node, pin := url.Values{"name": {"free"}, "policy": {"static"}}, url.Values{"namespace": {"default"}, "name": {"web"}, "pinned": {"true"}}
	started := url.Values{"namespace": {"default"}, "name": {"running"}, "pinned": {"true"}}
	for _, test := range []struct {
		name, who, page string
		form            url.Values
		want            []string
	}{
		{"a policy about users, where a node is shown", "barred", "host?name=free", nil, []string{"ValidatingAdmissionPolicy 'barred.nodes'", "tenants leave nodes alone"}},
		{"a policy about users, and a node", "barred", "host", node, []string{"Enable CPU Manager was refused on free", "tenants leave nodes alone"}},
		{"a policy about users, and a virtual machine", "barred", "virtual-machines", pin, []string{"The cpu-pinning of default/web was not changed", "tenants share their CPUs"}},
		{"who may only look, at a node", "otto", "host?name=free", nil, []string{`nodes "free" is forbidden: User "system:serviceaccount:default:otto" cannot patch resource "nodes" in API group "" at the cluster scope`}},
		{"who may only look, and a node", "otto", "host", node, []string{"Enable CPU Manager was refused on free", `User "system:serviceaccount:default:otto" cannot patch resource "nodes"`}},
		{"who may only look, and a virtual machine", "otto", "virtual-machines", pin, []string{"The cpu-pinning of default/web was not changed", `User "system:serviceaccount:default:otto" cannot get resource "virtualmachines" in API group "kubevirt.io" in the namespace "default"`}},
		{"who may not list virtual machines", "otto", "virtual-machines", nil, []string{"of all namespaces cannot be listed", `cannot list resource "virtualmachines"`}},
		{"who may not see why a node was not observed", "otto", "host?name=broken", nil, []string{`cannot list resource "events" in API group "" in the namespace "default"`}},
		{"why a node was not observed", "anna", "host?name=broken", nil, []string{"node broken could not be observed", `no such policy`}},
		{"a machine that was started meanwhile", "anna", "virtual-machines", started, []string{"The cpu-pinning of default/running was not changed", "VirtualMachineInstance"}},
		{"nothing in the way", "anna", "host?name=free", nil, []string{"Nothing prevents it", "system:serviceaccount:default:anna"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.eventually(func() error { // rights, policies and Events may be new to kube-apiserver
				said := visit(t, pages[test.who]+test.page, test.form)
				for _, want := range test.want {
					if !strings.Contains(said, want) {
						return fmt.Errorf("it does not say %q: %s", want, said)
					}
				}
				return nil
			})
			if status := c.node("free").Annotations[nodestatus.StatusAnnotation]; status != "" || c.isPinned(t, "web") || c.isPinned(t, "running") {
				t.Errorf("the node has the status %q, and one of the machines may be pinned", status)
			}
		})
	}
	if err := c.annotate("free", "workload.openshift.io/paused", ""); err != nil {
		t.Fatal(err)
	}
	if said := visit(t, pages["anna"]+"host?name=free", nil); !strings.Contains(said, "Warning: node free is paused") {
		t.Errorf("of a node that is paused it says: %s", said)
	}
	visit(t, pages["anna"]+"host", node)
	if status := c.status("free"); status.State != nodestatus.Requested || status.Policy != cpupolicy.Static {
		t.Errorf("asked by who may, the status is %s", status)
	}
	visit(t, pages["anna"]+"virtual-machines", pin)
	if !c.isPinned(t, "web") {
		t.Error("pinned by who may, the machine is not")
	}
	const anna = `User "system:serviceaccount:default:anna" has `
	if err := errors.Join(c.says("free", nodestatus.PolicyRequested, anna+"asked for the policy static"), c.says("web", "CPUPinningChanged", anna+"set cpu-pinning to true")); err != nil {
		t.Error(err)
	}
	if c.says("free", nodestatus.PolicyRequested, "otto") == nil || c.says("running", "CPUPinningChanged", "") == nil {
		t.Error("an Event names the user of what was refused")
	}
}
