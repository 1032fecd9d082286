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

package controller

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/console"
	"workload.openshift.io/operators/cpupolicy/operation"
	"workload.openshift.io/operators/e2e/browser"
	"workload.openshift.io/operators/internal/testenv"
)

// chromium is the program; without it these tests are skipped.
var chromium = os.Getenv("TEST_ASSET_CHROMIUM")

// visitor is a browser at the console of a cluster.
type visitor struct {
	*cluster
	*browser.Browser
}

// visit opens the console in a browser of its own.
func (c *cluster) visit(t *testing.T) *visitor {
	t.Helper()
	v := &visitor{&cluster{c.Installed, c.agents, t}, browser.Start(t, chromium, patience)}
	v.open("/")
	return v
}

// open shows a page of the console.
func (v *visitor) open(path string) {
	v.t.Helper()
	v.Open(v.Console() + path)
}

// signIn types a token.
func (v *visitor) signIn(token string) {
	v.t.Helper()
	v.TabTo("Token")
	v.Type(token)
	v.Press("Sign in")
	// The page that says so leads on by itself.
	v.eventually(func() error {
		if at := v.Ask("location.pathname + ' ' + document.readyState"); at != "/hosts complete" {
			return fmt.Errorf("the browser is at %s: %s", at, v.Text())
		}
		return nil
	})
}

// awaitRow shows the hosts again until the row of one has all these texts.
func (v *visitor) awaitRow(name string, parts ...string) {
	v.t.Helper()
	v.eventually(func() error {
		v.open("/hosts")
		row := v.Row(name)
		for _, part := range parts {
			if !strings.Contains(row, part) {
				return fmt.Errorf("the row of %s is %q, want %q in it", name, row, part)
			}
		}
		return nil
	})
}

func (v *visitor) mustSay(what, text string, parts ...string) {
	v.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			v.t.Errorf("%s: it says %q, want %q in it", what, text, part)
		}
	}
}

// vms goes through the checkbox of virtual machines, without KubeVirt and with it.
func (v *visitor) vms(t *testing.T) {
	v.open("/virtual-machines")
	v.mustSay("without KubeVirt", v.Text(), "KubeVirt is not installed")
	manifests := testenv.Module() + "/deploy/testdata/virtualmachines.yaml"
	v.Kubectl(t, "apply", "-f", manifests)
	t.Cleanup(func() { v.Kubectl(t, "delete", "-f", manifests) })
	v.Kubectl(t, "wait", "--for=condition=Established", "crd/virtualmachines.kubevirt.io", "crd/virtualmachineinstances.kubevirt.io")
	admin := hooks{v.Installed}.admin(t)
	stopped := newVM(t, "stopped", "{domain: {cpu: {cores: 2}}}")
	admin.create(t, stopped)
	admin.create(t, newVM(t, "busy", "{domain: {cpu: {cores: 2}}}"))
	admin.create(t, object(t, "VirtualMachineInstance", "busy", "spec: {domain: {devices: {}}}, status: {phase: Running}"))
	v.eventually(func() error {
		v.open("/virtual-machines")
		if text := v.Text(); !strings.Contains(text, "stopped") {
			return fmt.Errorf("the machine is not shown: %s", text)
		}
		return nil
	})
	if disabled := v.Ask("[...document.querySelectorAll('input[type=checkbox]')].map(box => box.labels[0].textContent + box.disabled).sort()"); disabled != "cpu-pinning of default/busytrue,cpu-pinning of default/stoppedfalse" {
		t.Errorf("the checkboxes are %s", disabled)
	}
	v.TabTo("cpu-pinning of default/stopped")
	v.Type(" ")
	v.Press("Save cpu-pinning of default/stopped")
	if err := v.Client.Get(t.Context(), client.ObjectKeyFromObject(stopped), stopped); err != nil {
		t.Fatal(err)
	}
	if pinned, _, err := unstructured.NestedBool(stopped.Object, "spec", "template", "spec", "domain", "cpu", "dedicatedCpuPlacement"); err != nil || !pinned {
		t.Errorf("after the box is checked the machine is %v (%v): %s", stopped.Object, err, v.Text())
	}
}

// person makes an account with rights to nodes and virtual machines, and returns its token for the console.
func (c *cluster) person(t *testing.T, name string, verbs ...string) string {
	t.Helper()
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{"", "kubevirt.io"}, Resources: []string{"nodes", "virtualmachines"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}},
	} {
		hooks{c.Installed}.admin(t).create(t, object)
	}
	return c.Token(t, "default", name, nil, console.Audience)
}

// A person goes through every state of a switch in a browser, with the keyboard alone.
func TestTheConsoleInABrowser(t *testing.T) {
	if chromium == "" {
		t.Skip("TEST_ASSET_CHROMIUM names no browser; make operators-browser installs one and sets it")
	}
	c := startCluster(t).in(t)
	h := c.addNode("worker-1", nil)
	c.addNode("worker-2", nil)
	c.awaitObserved("worker-1", "worker-2")
	goOn := make(chan operation.Result)
	h.run = func(request operation.Request) operation.Result {
		select {
		case result := <-goOn:
			result.ID = request.ID
			return result
		case <-t.Context().Done(): // the test has failed
			return operation.Result{ID: request.ID, Outcome: operation.Failed}
		}
	}
	token := c.person(t, "anna", "list", "get", "update")
	v := c.visit(t)
	v.signIn(token)

	v.mustSay("before anything is asked", v.Row("worker-1"), "none", "false", "none yet", "Enable CPU Manager")
	v.Press("Enable CPU Manager on worker-1")
	v.awaitRow("worker-1", "static: running")
	if why := v.Ask("document.getElementById('why-worker-1').innerText"); why == "" {
		t.Error("a button that cannot be pressed while a switch is under way does not say why")
	}
	goOn <- operation.Result{Outcome: operation.Succeeded, Step: "report", Policy: operation.Static}
	v.awaitRow("worker-1", "static: complete", "true", "Disable CPU Manager")
	v.Press("worker-1")
	v.mustSay("the page of the host", v.Text(), "Policy in force\nstatic", "cpumanager\ntrue")

	// A refusal stays until the next request.
	exclusive := pod("database", "worker-1", "1")
	hooks{c.Installed}.admin(t).create(t, exclusive)
	v.eventually(func() error {
		v.open("/hosts/worker-1")
		if !strings.Contains(v.Text(), "default/database") {
			return fmt.Errorf("the page does not say what stands in the way: %s", v.Text())
		}
		return nil
	})
	v.Press("Disable CPU Manager on worker-1")
	v.mustSay("a refusal", v.Alert(), "Disable CPU Manager", "default/database")
	v.open("/hosts")
	v.mustSay("a refusal on the next page", v.Alert(), "default/database")
	if err := c.Client.Delete(t.Context(), exclusive, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	// A failure stays until somebody asks again, also for who signs in later.
	v.eventually(func() error {
		v.open("/hosts/worker-1")
		if text := v.Ask("document.querySelector('main ul')?.innerText"); strings.Contains(text, "database") {
			return fmt.Errorf("in the way still is %q", text)
		}
		return nil
	})
	v.Press("Disable CPU Manager on worker-1")
	goOn <- operation.Result{Outcome: operation.RolledBack, Step: "healthy", Policy: operation.Static, Message: "the kubelet ended 3 times", KubeletError: "no such option"}
	v.awaitRow("worker-1", "none: failed")
	v.mustSay("a failure", v.Alert(), "Disable CPU Manager", "no such option")
	v.Press("Sign out")
	v.signIn(token)
	v.mustSay("a failure, signed in again", v.Alert(), "no such option")
	v.Press("Disable CPU Manager on worker-1")
	goOn <- operation.Result{Outcome: operation.Succeeded, Step: "report", Policy: operation.None}
	v.awaitRow("worker-1", "none: complete", "false", "Enable CPU Manager")
	if alert := v.Alert(); alert != "" {
		t.Errorf("the failure is over, and the page still says %q", alert)
	}

	t.Run("nothing is stored but the session", func(t *testing.T) {
		cookies := v.Cookies()
		if len(cookies) != 1 || !cookies[0].HTTPOnly || !cookies[0].Secure || cookies[0].SameSite != network.CookieSameSiteStrict || strings.Contains(token, cookies[0].Value) {
			t.Errorf("the cookies are %+v", cookies)
		}
		if stored := v.Ask("localStorage.length + sessionStorage.length"); stored != "0" {
			t.Errorf("the browser stores %s things", stored)
		}
		if strings.Contains(v.Ask("document.documentElement.outerHTML"), token) {
			t.Error("the page has the token")
		}
	})
	t.Run("a form without the token of its session does nothing", func(t *testing.T) {
		v.Ask("document.querySelectorAll('[name=csrf]').forEach(field => field.value = 'other')")
		v.Press("Enable CPU Manager on worker-2")
		v.mustSay("a forged form", v.Alert(), "nothing was done")
		if status := c.node("worker-2").Annotations[cpupolicy.StatusAnnotation]; status != "" {
			t.Errorf("it has written %s", status)
		}
	})
	t.Run("who may only look sees why", func(t *testing.T) {
		viewer := c.visit(t)
		viewer.signIn(c.person(t, "otto", "list", "get"))
		viewer.mustSay("a host", viewer.Row("worker-2"), "Enable CPU Manager")
		if disabled := viewer.Ask("document.querySelector('[aria-describedby=why-worker-2]').disabled"); disabled != "true" {
			t.Error("the button can be pressed")
		}
		viewer.mustSay("why", viewer.Ask("document.getElementById('why-worker-2').innerText"), "update")
	})
	t.Run("virtual machines are pinned while they are stopped", func(t *testing.T) { v.vms(t) })
}
