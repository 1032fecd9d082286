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
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/console"
	"workload.openshift.io/operators/cpupolicy/operation"
	"workload.openshift.io/operators/internal/testenv"
)

// chromium is the program; without it these tests are skipped.
var chromium = os.Getenv("TEST_ASSET_CHROMIUM")

// browser is Chromium without a screen. A person at it has a keyboard, and no mouse.
type browser struct {
	*cluster
	ctx context.Context
}

// browse opens the console in a browser of its own.
func (c *cluster) browse(t *testing.T) *browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium),
		chromedp.NoSandbox,        // as root there is none
		chromedp.IgnoreCertErrors, // the browser does not know the CA
	)
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &browser{&cluster{c.Installed, c.agents, t}, ctx}
	// The browser ends with the context that it is first used with.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	return b
}

// run does something in a page.
func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// ask evaluates an expression in the page.
func (b *browser) ask(expression string) string {
	b.t.Helper()
	return run(b, chromedp.Evaluate[string]("String("+expression+")"))
}

// text is what the page says.
func (b *browser) text() string { return b.ask("document.body.innerText") }

// open shows a page of the console.
func (b *browser) open(path string) {
	b.t.Helper()
	run(b, chromedp.Navigate(b.Console()+path))
}

// tabTo presses the tabulator until an element has the focus that a person would call by this name.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	const focused = `(document.activeElement.labels?.[0]?.textContent || document.activeElement.textContent).trim()`
	var seen []string
	for range 40 {
		run(b, chromedp.KeyEvent(kb.Tab))
		now := strings.Join(strings.Fields(b.ask(focused)), " ")
		if now == name {
			return
		}
		seen = append(seen, now)
	}
	b.t.Fatalf("no element named %q can be reached by the tabulator, only %q", name, seen)
}

// press presses a button or follows a link, by the keyboard, and waits until the next page is there.
func (b *browser) press(name string) {
	b.t.Helper()
	b.tabTo(name)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
}

// signIn types a token.
func (b *browser) signIn(token string) {
	b.t.Helper()
	b.tabTo("Token")
	run(b, chromedp.KeyEvent(token))
	b.press("Sign in")
	// The page that says so leads on by itself.
	b.eventually(func() error {
		if at := b.ask("location.pathname"); at != "/hosts" {
			return fmt.Errorf("the browser is at %s: %s", at, b.text())
		}
		return nil
	})
}

// row is what the row of a host says.
func (b *browser) row(name string) string {
	b.t.Helper()
	return b.ask(fmt.Sprintf("[...document.querySelectorAll('tr')].find(row => row.querySelector('th[scope=row]')?.textContent == %q)?.innerText.replace(/\\s+/g, ' ')", name))
}

// awaitRow shows the hosts again until the row of one has all these texts.
func (b *browser) awaitRow(name string, parts ...string) {
	b.t.Helper()
	b.eventually(func() error {
		b.open("/hosts")
		row := b.row(name)
		for _, part := range parts {
			if !strings.Contains(row, part) {
				return fmt.Errorf("the row of %s is %q, want %q in it", name, row, part)
			}
		}
		return nil
	})
}

// alert is the error that is shown.
func (b *browser) alert() string {
	b.t.Helper()
	return b.ask("[...document.querySelectorAll('[role=alert]')].map(alert => alert.innerText).join(' ')")
}

func (b *browser) mustSay(what, text string, parts ...string) {
	b.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			b.t.Errorf("%s: it says %q, want %q in it", what, text, part)
		}
	}
}

// machines goes through the checkbox of virtual machines, without KubeVirt and with it.
func (b *browser) machines(t *testing.T) {
	b.open("/virtual-machines")
	b.mustSay("without KubeVirt", b.text(), "KubeVirt is not installed")
	manifests := testenv.Module() + "/deploy/testdata/virtualmachines.yaml"
	b.Kubectl(t, "apply", "-f", manifests)
	t.Cleanup(func() { b.Kubectl(t, "delete", "-f", manifests) })
	b.Kubectl(t, "wait", "--for=condition=Established", "crd/virtualmachines.kubevirt.io", "crd/virtualmachineinstances.kubevirt.io")
	admin := hooks{b.Installed}.admin(t)
	stopped := machine(t, "stopped", "{domain: {cpu: {cores: 2}}}")
	admin.create(t, stopped)
	admin.create(t, machine(t, "busy", "{domain: {cpu: {cores: 2}}}"))
	admin.create(t, object(t, "VirtualMachineInstance", "busy", "spec: {domain: {devices: {}}}, status: {phase: Running}"))
	b.eventually(func() error {
		b.open("/virtual-machines")
		if text := b.text(); !strings.Contains(text, "stopped") {
			return fmt.Errorf("the machine is not shown: %s", text)
		}
		return nil
	})
	if disabled := b.ask("[...document.querySelectorAll('input[type=checkbox]')].map(box => box.labels[0].textContent + box.disabled).sort()"); disabled != "cpu-pinning of default/busytrue,cpu-pinning of default/stoppedfalse" {
		t.Errorf("the checkboxes are %s", disabled)
	}
	b.tabTo("cpu-pinning of default/stopped")
	run(b, chromedp.KeyEvent(" "))
	b.press("Save cpu-pinning of default/stopped")
	if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(stopped), stopped); err != nil {
		t.Fatal(err)
	}
	if pinned, _, err := unstructured.NestedBool(stopped.Object, "spec", "template", "spec", "domain", "cpu", "dedicatedCpuPlacement"); err != nil || !pinned {
		t.Errorf("after the box is checked the machine is %v (%v): %s", stopped.Object, err, b.text())
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
		result := <-goOn
		result.ID = request.ID
		return result
	}
	token := c.person(t, "anna", "list", "get", "update")
	b := c.browse(t)
	b.signIn(token)

	b.mustSay("before anything is asked", b.row("worker-1"), "none", "false", "none yet", "Enable CPU Manager")
	b.press("Enable CPU Manager on worker-1")
	b.awaitRow("worker-1", "static: running")
	if why := b.ask("document.getElementById('why-worker-1').innerText"); why == "" {
		t.Error("a button that cannot be pressed while a switch is under way does not say why")
	}
	goOn <- operation.Result{Outcome: operation.Succeeded, Step: "report", Policy: operation.Static}
	b.awaitRow("worker-1", "static: complete", "true", "Disable CPU Manager")
	b.press("worker-1")
	b.mustSay("the page of the host", b.text(), "Policy in force\nstatic", "cpumanager\ntrue")

	// A refusal stays until the next request.
	exclusive := pod("database", "worker-1", "1")
	hooks{c.Installed}.admin(t).create(t, exclusive)
	b.eventually(func() error {
		b.open("/hosts/worker-1")
		if !strings.Contains(b.text(), "default/database") {
			return fmt.Errorf("the page does not say what stands in the way: %s", b.text())
		}
		return nil
	})
	b.press("Disable CPU Manager on worker-1")
	b.mustSay("a refusal", b.alert(), "Disable CPU Manager", "default/database")
	b.open("/hosts")
	b.mustSay("a refusal on the next page", b.alert(), "default/database")
	if err := c.Client.Delete(t.Context(), exclusive, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	// A failure stays until somebody asks again, also for who signs in later.
	b.eventually(func() error {
		b.open("/hosts/worker-1")
		if text := b.ask("document.querySelector('main ul')?.innerText"); strings.Contains(text, "database") {
			return fmt.Errorf("in the way still is %q", text)
		}
		return nil
	})
	b.press("Disable CPU Manager on worker-1")
	goOn <- operation.Result{Outcome: operation.RolledBack, Step: "healthy", Policy: operation.Static, Message: "the kubelet ended 3 times", KubeletError: "no such option"}
	b.awaitRow("worker-1", "none: failed")
	b.mustSay("a failure", b.alert(), "Disable CPU Manager", "no such option")
	b.press("Sign out")
	b.signIn(token)
	b.mustSay("a failure, signed in again", b.alert(), "no such option")
	b.press("Disable CPU Manager on worker-1")
	goOn <- operation.Result{Outcome: operation.Succeeded, Step: "report", Policy: operation.None}
	b.awaitRow("worker-1", "none: complete", "false", "Enable CPU Manager")
	if alert := b.alert(); alert != "" {
		t.Errorf("the failure is over, and the page still says %q", alert)
	}

	t.Run("nothing is stored but the session", func(t *testing.T) {
		cookies := run(b, func(ctx context.Context, t *chromedp.Target) (network.GetCookiesResult, error) {
			return cdp.Call(ctx, t, network.GetCookies, network.GetCookiesParams{})
		}).Cookies
		if len(cookies) != 1 || !cookies[0].HTTPOnly || !cookies[0].Secure || cookies[0].SameSite != network.CookieSameSiteStrict || strings.Contains(token, cookies[0].Value) {
			t.Errorf("the cookies are %+v", cookies)
		}
		if stored := b.ask("localStorage.length + sessionStorage.length"); stored != "0" {
			t.Errorf("the browser stores %s things", stored)
		}
		if strings.Contains(b.ask("document.documentElement.outerHTML"), token) {
			t.Error("the page has the token")
		}
	})
	t.Run("a form without the token of its session does nothing", func(t *testing.T) {
		b.ask("document.querySelectorAll('[name=csrf]').forEach(field => field.value = 'other')")
		b.press("Enable CPU Manager on worker-2")
		b.mustSay("a forged form", b.alert(), "nothing was done")
		if status := c.node("worker-2").Annotations[cpupolicy.StatusAnnotation]; status != "" {
			t.Errorf("it has written %s", status)
		}
	})
	t.Run("who may only look sees why", func(t *testing.T) {
		viewer := c.browse(t)
		viewer.signIn(c.person(t, "otto", "list", "get"))
		viewer.mustSay("a host", viewer.row("worker-2"), "Enable CPU Manager")
		if disabled := viewer.ask("document.querySelector('[aria-describedby=why-worker-2]').disabled"); disabled != "true" {
			t.Error("the button can be pressed")
		}
		viewer.mustSay("why", viewer.ask("document.getElementById('why-worker-2').innerText"), "update")
	})
	t.Run("virtual machines are pinned while they are stopped", func(t *testing.T) { b.machines(t) })
}
