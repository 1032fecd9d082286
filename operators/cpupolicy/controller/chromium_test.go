// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/e2e/browser"
	"workload.openshift.io/operators/internal/testenv"
)

// chromium is the program; without it these tests are skipped.
var chromium = os.Getenv("TEST_ASSET_CHROMIUM")

// visitor is a browser at the console of a user.
type visitor struct {
	*cluster
	*browser.Browser
	// base is the URL that the pages are below.
	base string
}

// visit opens the console of a token in a browser of its own.
func (c *cluster) visit(t *testing.T, token string) *visitor {
	t.Helper()
	v := &visitor{&cluster{c.Installed, c.agents, t}, browser.Start(t, chromium, patience), c.openConsole(t, token)}
	v.open("hosts")
	return v
}

// open shows a page of the console.
func (v *visitor) open(page string) {
	v.t.Helper()
	v.Open(v.base + page)
}

// awaitRow shows the hosts again until the row of one has all these texts.
func (v *visitor) awaitRow(name string, parts ...string) {
	v.t.Helper()
	v.eventually(func() error {
		v.open("hosts")
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
	v.open("virtual-machines")
	v.mustSay("without KubeVirt", v.Text(), "KubeVirt is not installed")
	testenv.KubeVirt(t, v.ControlPlane)
	admin := hooks{v.Installed}.admin(t)
	admin.create(t, newVM(t, "stopped", "{domain: {cpu: {cores: 2}, devices: {}}}"))
	busy := newVM(t, "busy", "{domain: {cpu: {cores: 2}, devices: {}}}")
	admin.create(t, busy)
	v.Kubectl(t, "patch", "virtualmachines.kubevirt.io", "busy", "--subresource=status", "--type=merge", "--patch", `{"status": {"created": true, "printableStatus": "<script>document.title='run'</script>"}}`)
	v.eventually(func() error {
		v.open("virtual-machines")
		if text := v.Text(); !strings.Contains(text, "stopped") {
			return fmt.Errorf("the machine is not shown: %s", text)
		}
		return nil
	})
	v.mustBeInert("the virtual machines")
	if disabled := v.Ask("[...document.querySelectorAll('input[type=checkbox]')].map(box => box.labels[0].textContent + box.disabled).sort()"); disabled != "cpu-pinning of default/busytrue,cpu-pinning of default/stoppedfalse" {
		t.Errorf("the checkboxes are %s", disabled)
	}
	v.TabTo("cpu-pinning of default/stopped")
	v.Type(" ")
	v.Press("Save cpu-pinning of default/stopped")
	if !v.isPinned(t, "stopped") {
		t.Errorf("after the box is checked the machine is not pinned: %s", v.Text())
	}
}

// mustBeInert checks that nothing of what others have written has become a part of the page.
func (v *visitor) mustBeInert(what string) {
	v.t.Helper()
	if found := v.Ask("document.querySelectorAll('script, img, iframe, main style').length + document.title"); !strings.HasPrefix(found, "0") || strings.HasSuffix(found, "run") {
		v.t.Errorf("%s: the page has %s", what, found)
	}
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
	token := c.account(t, "anna", whoUsesTheConsole())
	v := c.visit(t, token)
	v.awaitRow("worker-1", "none")

	v.mustSay("before anything is asked", v.Row("worker-1"), "none", "false", "none yet", "Enable CPU Manager")
	v.mustSay("who asks", v.Text(), "system:serviceaccount:default:anna")
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
		v.open("host?name=worker-1")
		if !strings.Contains(v.Text(), "default/database") {
			return fmt.Errorf("the page does not name the pod: %s", v.Text())
		}
		return nil
	})
	v.Press("Disable CPU Manager on worker-1")
	v.mustSay("a refusal", v.Alert(), "Disable CPU Manager", "default/database")
	v.open("hosts")
	v.mustSay("a refusal on the next page", v.Alert(), "default/database")
	if err := c.Client.Delete(t.Context(), exclusive, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	// A failure stays until somebody asks again, also for others.
	v.eventually(func() error {
		v.open("host?name=worker-1")
		if text := v.Ask("document.querySelector('main ul')?.innerText"); strings.Contains(text, "database") {
			return fmt.Errorf("in the way still is %q", text)
		}
		return nil
	})
	v.Press("Disable CPU Manager on worker-1")
	const hostile = "<img src=x onerror=\"document.title='run'\"> no such option"
	goOn <- operation.Result{Outcome: operation.RolledBack, Step: "healthy", Policy: operation.Static, Message: "the kubelet ended 3 times", KubeletError: hostile}
	v.awaitRow("worker-1", "none: failed")
	v.mustSay("a failure", v.Alert(), "Disable CPU Manager", hostile)
	v.mustBeInert("a failure")
	t.Run("who may only look sees why", func(t *testing.T) {
		viewer := c.visit(t, c.account(t, "otto", mayNodes("get,list")))
		viewer.eventually(func() error {
			viewer.open("hosts")
			if alert := viewer.Alert(); !strings.Contains(alert, "no such option") {
				return fmt.Errorf("a failure says %q to somebody else", alert)
			}
			return nil
		})
		viewer.Press("Enable CPU Manager on worker-2")
		viewer.mustSay("a request", viewer.Alert(), `User "system:serviceaccount:default:otto" cannot patch resource "nodes"`)
	})
	v.Press("Disable CPU Manager on worker-1")
	goOn <- operation.Result{Outcome: operation.Succeeded, Step: "report", Policy: operation.None}
	v.awaitRow("worker-1", "none: complete", "false", "Enable CPU Manager")
	if alert := v.Alert(); alert != "" {
		t.Errorf("the failure is over, and the page still says %q", alert)
	}

	t.Run("nothing is stored", func(t *testing.T) {
		if cookies := v.Cookies(); len(cookies) > 0 {
			t.Errorf("the cookies are %+v", cookies)
		}
		if stored := v.Ask("localStorage.length + sessionStorage.length"); stored != "0" {
			t.Errorf("the browser stores %s things", stored)
		}
		if strings.Contains(v.Ask("document.documentElement.outerHTML"), token) {
			t.Error("the page has the token")
		}
	})
	t.Run("a form of another site does nothing", func(t *testing.T) {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<form method="post" action="%shost"><input type="hidden" name="name" value="worker-2"><button name="policy" value="static">Win</button></form>`, v.base)
		}))
		defer other.Close()
		v.Open(other.URL)
		v.Press("Win")
		v.mustSay("the answer", v.Text(), "nothing was done", "cross-origin")
		if status := c.node("worker-2").Annotations[nodestatus.StatusAnnotation]; status != "" {
			t.Errorf("it has written %s", status)
		}
	})
	t.Run("virtual machines are pinned while they are stopped", func(t *testing.T) { v.vms(t) })
}
