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
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/partition/partitiontest/podtest"
)

func TestWhoCanSignIn(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("list", "nodes"))
	for name, test := range map[string]struct {
		token   string
		headers map[string]string
		code    int
		// want is part of the alert.
		want string
	}{
		"a token for the console":                   {f.token("admin", Audience), nil, 200, ""},
		"a token with spaces around it":             {" " + f.token("admin", Audience) + "\n", nil, 200, ""},
		"a token from the console's page":           {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": f.base}, 200, ""},
		"a token from a program on the user's host": {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:12345"}, 200, ""},
		"a token from localhost":                    {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:12345"}, 200, ""},
		"a token from another site":                 {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"}, 403, "Another site"},
		"a token from a site named like localhost":  {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://localhost.example.com"}, 403, "Another site"},
		"a token from nowhere":                      {f.token("admin", Audience), map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403, "Another site"},
		"a token for kube-apiserver":                {f.token("admin", ""), nil, 401, Audience},
		"a token for both":                          {f.tokenFor("admin", append(f.tokenFor("admin").Spec.Audiences, Audience)...).Status.Token, nil, 401, "for kube-apiserver as well"},
		"a token for another audience":              {f.token("admin", "other"), nil, 401, Audience},
		"no token":                                  {"", nil, 401, "there is no token"},
		"what is no token":                          {"abc", nil, 401, "invalid bearer token"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &browser{f: f, t: t, client: f.httpClient()}
			before := len(f.server.sessions.byID)
			b.show(f.post(b.client, "/sign-in", url.Values{"token": {test.token}}, test.headers))
			if b.code != test.code || test.want != "" && !strings.Contains(strings.Join(b.alerts(), " "), test.want) {
				t.Fatalf("the answer is %d, want %d with %q: %s", b.code, test.code, test.want, text(b.page))
			}
			cookie := b.headers.Get("Set-Cookie")
			if test.code != http.StatusOK {
				if cookie != "" || len(f.server.sessions.byID) != before {
					t.Errorf("there is a session: %s", cookie)
				}
				return
			}
			for _, want := range []string{"__Host-session=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Expires="} {
				if !strings.Contains(cookie, want) {
					t.Errorf("the cookie has no %q: %s", want, cookie)
				}
			}
			if strings.Contains(cookie, "Domain") {
				t.Errorf("the cookie is %s", cookie)
			}
			if remembered := fmt.Sprintf("%+v", f.server.sessions); strings.Contains(remembered, strings.TrimSpace(test.token)) {
				t.Error("the token is stored")
			}
			if b.open("/"); b.path != "/hosts" || b.code != http.StatusOK || !strings.Contains(text(b.page), f.user("admin")) {
				t.Errorf("%s is answered with %d: %s", b.path, b.code, text(b.page))
			}
		})
	}
}

func TestASessionEnds(t *testing.T) {
	f := newFixture(t)
	binding := f.account("admin", rule("list", "nodes"))
	signedIn := func(b *browser) bool {
		t.Helper()
		b.open("/hosts")
		if b.code == http.StatusUnauthorized && b.form("/sign-in") == nil {
			t.Errorf("nobody can sign in again: %s", text(b.page))
		}
		return b.code == http.StatusOK
	}
	t.Run("never begins by itself", func(t *testing.T) {
		b := &browser{f: f, t: t, client: f.httpClient()}
		if signedIn(b) || len(b.alerts()) > 0 {
			t.Errorf("it is answered with %d: %s", b.code, text(b.page))
		}
	})
	t.Run("when somebody signs out", func(t *testing.T) {
		b, other := f.signIn(t, "admin"), f.signIn(t, "admin")
		b.submit(b.form("/sign-out"), nil)
		if b.path != "/sign-in" || signedIn(b) {
			t.Errorf("%s is answered with %d", b.path, b.code)
		}
		if !signedIn(other) {
			t.Error("another session has ended, too")
		}
	})
	t.Run("when the token does", func(t *testing.T) {
		b := f.signIn(t, "admin")
		defer f.clock.Store(0)
		f.clock.Store(int64(9 * time.Minute))
		if !signedIn(b) {
			t.Error("it has ended before")
		}
		f.clock.Store(int64(10 * time.Minute))
		if signedIn(b) || !strings.Contains(strings.Join(b.alerts(), ""), "Your session has ended") {
			t.Errorf("it has not ended: %s", text(b.page))
		}
	})
	t.Run("when somebody begins many", func(t *testing.T) {
		first := f.signIn(t, "admin")
		for range sessionsOfUser {
			f.signIn(t, "admin")
		}
		if signedIn(first) {
			t.Error("the oldest has not ended")
		}
	})
	t.Run("its rights with those of the user", func(t *testing.T) {
		b := f.signIn(t, "admin")
		if err := f.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, 20*time.Second, func() error {
			if b.open("/hosts"); b.code != http.StatusForbidden || !strings.Contains(text(b.page), `cannot list resource "nodes"`) {
				return fmt.Errorf("the answer is %d", b.code)
			}
			return nil
		})
	})
	t.Run("with the replica", func(t *testing.T) {
		b := f.signIn(t, "admin")
		f.stop()
		if err := <-f.ended; err != nil {
			t.Fatal(err)
		}
		f.server.sessions = newSessions(time.Now)
		f.serve()
		if signedIn(b) {
			t.Error("it has not ended")
		}
	})
}

func TestASessionIsNeverLongerThanAnHour(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	s := newSessions(func() time.Time { return now })
	for _, end := range []time.Time{{}, now.Add(24 * time.Hour)} {
		if got := s.begin(authenticatedAs("a"), end).expires; !got.Equal(now.Add(time.Hour)) {
			t.Errorf("with a token until %s it ends at %s", end, got)
		}
	}
	s.begin(authenticatedAs("b"), now.Add(time.Minute))
	now = now.Add(2 * time.Hour)
	s.begin(authenticatedAs("c"), time.Time{})
	if len(s.byID) != 1 {
		t.Errorf("%d sessions are left in memory", len(s.byID))
	}
}

// The hosts page of the seed, section Web UI: a label decides what can be done, and a failure shows.
func TestWhatAHostShows(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.observed = func(node *corev1.Node) cpupolicy.Policy { return cpupolicy.Policy(node.Labels["observed"]) }
	for name, test := range map[string]struct {
		label, observed, status string
		// attribute, request and button are what the page says, and why the button cannot be pressed.
		attribute, request, button, why string
		// alert and under are what has failed, and what is under way.
		alert, under string
	}{
		"not static":         {"false", "", "", "false", "none yet", "Enable CPU Manager", "", "", ""},
		"static":             {"true", "", "", "true", "none yet", "Disable CPU Manager", "", "", ""},
		"complete":           {"true", "static", `{"status":"complete","policy":"static","id":"1"}`, "true", "static: complete", "Disable CPU Manager", "", "", ""},
		"requested":          {"false", "none", `{"status":"requested","policy":"static"}`, "false", "static: requested", "Enable CPU Manager", "The policy static is requested.", "", "The policy static is requested."},
		"running":            {"true", "static", `{"status":"running","policy":"none","id":"1"}`, "true", "none: running", "Disable CPU Manager", "The policy none is running.", "", "The policy none is running."},
		"enable has failed":  {"false", "none", `{"status":"failed","policy":"static","message":"the kubelet ended 3 times"}`, "false", "static: failed", "Enable CPU Manager", "", "Enable CPU Manager has failed on NODE the kubelet ended 3 times", ""},
		"disable has failed": {"true", "static", `{"status":"failed","policy":"none"}`, "true", "none: failed", "Disable CPU Manager", "", "Disable CPU Manager has failed on NODE The node says no more.", ""},
		"no label":           {"", "", "", "unknown", "none yet", "", "", "", ""},
		"no label, static":   {"", "static", "", "unknown", "none yet", "Disable CPU Manager", "", "", ""},
		"no label, none":     {"", "none", "", "unknown", "none yet", "Enable CPU Manager", "", "", ""},
		"a label that lies":  {"false", "static", "", "false", "none yet", "Enable CPU Manager", "", "", ""},
		"no JSON":            {"true", "", "no", "true", "annotation " + cpupolicy.StatusAnnotation, "Disable CPU Manager", "", "", ""},
		"a message of HTML":  {"false", "none", `{"status":"failed","policy":"static","message":"<script>alert(1)</script>"}`, "false", "static: failed", "Enable CPU Manager", "", "<script>alert(1)</script>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodeName := "host-" + strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(name))
			node := f.node(nodeName, test.label, test.status)
			metav1.SetMetaDataLabel(&node.ObjectMeta, "observed", test.observed)
			if err := f.Client.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			b := f.signIn(t, "admin")
			for _, path := range []string{"/hosts", "/hosts/" + nodeName} {
				b.open(path)
				if b.code != http.StatusOK {
					t.Fatalf("%s is answered with %d: %s", path, b.code, text(b.page))
				}
				label, why := b.button("/hosts/" + nodeName)
				if want := test.button; want != "" {
					want += " on " + nodeName
					if label != want || why != test.why {
						t.Errorf("%s: the button is %q, want %q, and cannot be pressed because of %q, want %q", path, label, want, why, test.why)
					}
				} else if label != "" || !strings.Contains(text(b.page), "nobody has observed its policy") {
					t.Errorf("%s: the button is %q", path, label)
				}
				wantAlert := strings.ReplaceAll(test.alert, "NODE", nodeName)
				if alerts := strings.Join(b.alerts(), ";"); (alerts != "") != (wantAlert != "") || !strings.Contains(alerts, wantAlert) {
					t.Errorf("%s: the alerts are %q, want %q", path, alerts, wantAlert)
				}
				if failed := strings.HasPrefix(text(all(b.page, isTitle)[0]), "Error: "); failed != (wantAlert != "") {
					t.Errorf("%s: the title is %q", path, text(all(b.page, isTitle)[0]))
				}
				if status := b.status(); (status != "") != (test.under != "") || !strings.Contains(status, test.under) {
					t.Errorf("%s: the status is %q, want %q", path, status, test.under)
				}
			}
			if terms := b.terms(); terms["cpumanager"] != test.attribute || terms["Ready"] != "yes" || terms["Policy in force"] != orUnknown(test.observed) {
				t.Errorf("the detail is %v", terms)
			}
			b.open("/hosts")
			cells := b.cells(nodeName)
			if len(cells) != 6 || cells[1] != "yes" || cells[2] != orUnknown(test.observed) || cells[3] != test.attribute || !strings.HasPrefix(cells[4], test.request) {
				t.Errorf("the row is %q", cells)
			}
			if err := f.Client.Delete(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAPolicyIsSwitchedByItsButton(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.node("switched", "false", "")
	b := f.signIn(t, "admin")
	b.submit(b.form("/hosts/switched"), nil)
	if b.path != "/hosts" || f.status("switched") != `{"status":"requested","policy":"static"}` {
		t.Errorf("%s is shown, and the status is %s", b.path, f.status("switched"))
	}
	if _, why := b.button("/hosts/switched"); why != "The policy static is requested." || len(b.alerts()) > 0 {
		t.Errorf("the button cannot be pressed because of %q, and the alerts are %q", why, b.alerts())
	}

	// It fails, and that stays in view, whatever is opened, until somebody asks again.
	f.annotate("switched", `{"status":"failed","policy":"static","id":"a1","message":"rolled back"}`)
	for range 2 {
		for _, path := range []string{"/hosts/switched", "/hosts"} {
			if b.open(path); len(b.alerts()) != 1 || !strings.Contains(b.alerts()[0], "Enable CPU Manager has failed on switched rolled back") {
				t.Errorf("%s: the alerts are %q", path, b.alerts())
			}
		}
	}
	b.open("/hosts/switched")
	b.submit(b.form("/hosts/switched"), nil)
	if b.path != "/hosts/switched" || len(b.alerts()) > 0 || !strings.Contains(b.status(), "The policy static is requested.") {
		t.Errorf("%s has the alerts %q, and the status %q", b.path, b.alerts(), b.status())
	}
}

func TestWhyARequestWasRefusedStaysInViewUntilTheNext(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.node("refused", "true", "")
	f.node("other", "false", "")
	f.request = func(context.Context, string, cpupolicy.Policy) error {
		return apierrors.NewConflict(nodes, "refused", errors.New("pod a/b has the exclusive CPUs 2-3; delete it"))
	}
	b := f.signIn(t, "admin")
	b.submit(b.form("/hosts/refused"), nil)
	for range 2 {
		for _, path := range []string{"/hosts", "/hosts/other", "/virtual-machines"} {
			b.open(path)
			if !slices.ContainsFunc(b.alerts(), func(alert string) bool {
				return strings.Contains(alert, "Disable CPU Manager was refused on refused") && strings.Contains(alert, "pod a/b has the exclusive CPUs 2-3; delete it")
			}) {
				t.Errorf("%s: the alerts are %q", path, b.alerts())
			}
		}
	}
	// It is nobody else's.
	if other := f.signIn(t, "admin"); len(other.alerts()) > 0 {
		t.Errorf("another session has the alerts %q", other.alerts())
	}
	f.request = f.write
	b.open("/hosts")
	b.submit(b.form("/hosts/other"), nil)
	if len(b.alerts()) > 0 {
		t.Errorf("the alerts are %q", b.alerts())
	}

	f.request = func(context.Context, string, cpupolicy.Policy) error { return errors.New("secret") }
	b.submit(b.form("/hosts/refused"), nil)
	if alerts := strings.Join(b.alerts(), ""); strings.Contains(alerts, "secret") || !strings.Contains(alerts, "the log of partition-controller says more") {
		t.Errorf("the alerts are %q", alerts)
	}
}

func TestWhoMayNotSwitchSeesWhy(t *testing.T) {
	f := newFixture(t)
	f.account("viewer", rule("get,list", "nodes"))
	f.account("of-one", rule("get,list", "nodes"), rule("update", "nodes", "mine"))
	f.account("blind", rule("get", "nodes"))
	f.node("mine", "false", "")
	f.node("theirs", "false", "")
	for account, test := range map[string]map[string]bool{"viewer": {"mine": false, "theirs": false}, "of-one": {"mine": true, "theirs": false}} {
		b := f.signIn(t, account)
		for node, may := range test {
			for _, path := range []string{"/hosts", "/hosts/" + node} {
				b.open(path)
				_, why := b.button("/hosts/" + node)
				if may && why != "" || !may && !strings.Contains(why, fmt.Sprintf(`You may not do this: nodes %q is forbidden: User %q cannot update resource "nodes"`, node, f.user(account))) {
					t.Errorf("%s, %s: the button of %s cannot be pressed because of %q", account, path, node, why)
				}
			}
			// Findings name pods of all namespaces.
			if got := strings.Contains(text(b.page), "Only who may update the node"); got == may {
				t.Errorf("%s sees of %s: %s", account, node, text(b.page))
			}
		}
		// The form itself is refused, too.
		b.open("/hosts")
		sent := values(b.form("/hosts/theirs"))
		b.show(f.post(b.client, "/hosts/theirs", sent, nil))
		if alerts := strings.Join(b.alerts(), ""); !strings.Contains(alerts, `nodes "theirs" is forbidden`) || f.status("theirs") != "" {
			t.Errorf("%s: the alerts are %q, and the status is %s", account, alerts, f.status("theirs"))
		}
	}
	b := f.signIn(t, "blind")
	if b.code != http.StatusForbidden || !strings.Contains(strings.Join(b.alerts(), ""), `cannot list resource "nodes"`) || strings.Contains(text(b.page), "theirs") {
		t.Errorf("who may not list nodes gets %d: %s", b.code, text(b.page))
	}
	if b.open("/hosts/mine"); b.code != http.StatusOK {
		t.Errorf("who may get nodes gets %d", b.code)
	}
}

func TestNothingIsDoneForAFormThatIsNotOfTheSession(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.node("target", "false", "")
	b, other := f.signIn(t, "admin"), f.signIn(t, "admin")
	form := func(csrf string) url.Values {
		sent := values(b.form("/hosts/target"))
		sent.Set("csrf", csrf)
		return sent
	}
	own := values(b.form("/hosts/target")).Get("csrf")
	for name, test := range map[string]struct {
		client  *http.Client
		form    url.Values
		headers map[string]string
		code    int
	}{
		"without a session":       {f.httpClient(), form(own), nil, 401},
		"without a CSRF token":    {b.client, url.Values{"action": {"enableCPUManager"}}, nil, 403},
		"an empty CSRF token":     {b.client, form(""), nil, 403},
		"a wrong CSRF token":      {b.client, form(own[1:] + "A"), nil, 403},
		"another session's token": {b.client, form(values(other.form("/hosts/target")).Get("csrf")), nil, 403},
		"from another site":       {b.client, form(own), map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"}, 403},
		"from a sibling's page":   {b.client, form(own), map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}, 403},
		"an unknown action":       {b.client, url.Values{"csrf": {own}, "action": {"reboot"}}, nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/hosts/target", "/sign-out", "/virtual-machines/a/b"} {
				if test.code == http.StatusBadRequest && path != "/hosts/target" {
					continue
				}
				answer := &browser{f: f, t: t}
				if answer.show(f.post(test.client, path, test.form, test.headers)); answer.code != test.code {
					t.Errorf("%s is answered with %d, want %d", path, answer.code, test.code)
				}
			}
			if got := f.status("target"); got != "" {
				t.Errorf("the status is %s", got)
			}
			if b.open("/hosts"); b.code != http.StatusOK {
				t.Error("the session has ended")
			}
		})
	}
	// Nor can a link do anything.
	response, _ := f.do(b.client, must(http.NewRequest(http.MethodGet, f.base+"/hosts/target?action=enableCPUManager&csrf="+own, nil)))
	if response.StatusCode != http.StatusOK || f.status("target") != "" {
		t.Errorf("a link is answered with %d, and the status is %s", response.StatusCode, f.status("target"))
	}
}

func TestAHostSaysWhatStandsInTheWay(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.node("found", "true", `{"status":"complete","policy":"static","id":"1","message":"well done","since":"2026-11-23T10:00:00Z"}`)
	b := f.signIn(t, "admin")
	if b.open("/hosts/found"); !strings.Contains(text(b.page), "Nothing, as far as is known") {
		t.Errorf("without findings it says: %s", text(b.page))
	}
	if terms := b.terms(); terms["Since"] != "2026-11-23 10:00:00 UTC" || terms["Message"] != "well done" {
		t.Errorf("the detail is %v", terms)
	}
	f.situation = func(node *corev1.Node, policy cpupolicy.Policy) (cpupolicy.Situation, error) {
		if policy != cpupolicy.None {
			t.Errorf("it looks at %s", policy)
		}
		var whole []corev1.Pod
		for _, name := range []string{"a", "b"} {
			pod := podtest.Pod(nil, podtest.Container("main", "cpu=2 memory=1Gi", "cpu=2 memory=1Gi"))
			pod.Namespace, pod.Name, pod.Status.QOSClass = "default", name, corev1.PodQOSGuaranteed
			whole = append(whole, *pod)
		}
		return cpupolicy.Situation{Node: node, InForce: cpupolicy.Static, Pods: whole}, nil
	}
	b.open("/hosts/found")
	for _, want := range []string{"pod default/a is Guaranteed and asks for whole CPUs (2); delete it", "pod default/b is Guaranteed"} {
		if !strings.Contains(text(b.page), want) {
			t.Errorf("it does not say %q: %s", want, text(b.page))
		}
	}
	f.situation = func(*corev1.Node, cpupolicy.Policy) (cpupolicy.Situation, error) {
		return cpupolicy.Situation{}, errors.New("secret")
	}
	if b.open("/hosts/found"); b.code != http.StatusOK || strings.Contains(text(b.page), "secret") || !strings.Contains(text(b.page), "It could not be checked") {
		t.Errorf("after an error it says: %s", text(b.page))
	}
	for _, path := range []string{"/hosts/gone", "/hosts/a%2Fb"} {
		if b.open(path); b.code != http.StatusNotFound {
			t.Errorf("%s is answered with %d", path, b.code)
		}
	}
}

func TestHostsHavePages(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	for _, name := range []string{"a", "b", "c"} {
		f.node(name, "false", "")
	}
	f.server.pageSize = 2
	b := f.signIn(t, "admin")
	if b.cells("a") == nil || b.cells("b") == nil || b.cells("c") != nil {
		t.Errorf("the first page is %s", text(b.page))
	}
	b.open(b.link("Next page"))
	if b.cells("a") != nil || b.cells("c") == nil || b.link("Next page") != "" {
		t.Errorf("the second page is %s", text(b.page))
	}
}

func TestWhatHasBegunEndsBeforeTheConsoleDoes(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("update", "nodes"))
	f.node("slow", "false", "")
	begun, goOn := make(chan struct{}), make(chan struct{})
	f.request = func(ctx context.Context, node string, policy cpupolicy.Policy) error {
		close(begun)
		<-goOn
		return f.write(ctx, node, policy)
	}
	answered := make(chan int, 1)
	token := f.token("admin", Audience)
	go func() {
		response, _ := f.call("POST", nodesPath+"/slow?action=enableCPUManager", token)
		answered <- response.StatusCode
	}()
	<-begun
	f.stop()
	select {
	case err := <-f.ended:
		t.Fatalf("it has ended: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	close(goOn)
	if code := <-answered; code != http.StatusNoContent {
		t.Errorf("the answer is %d", code)
	}
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	if got := f.status("slow"); got != `{"status":"requested","policy":"static"}` {
		t.Errorf("the status is %s", got)
	}
}

func TestTheConsoleRunsOnAllReplicasAndCanBeSwitchedOff(t *testing.T) {
	s := New(Options{BindAddress: "0"})
	if s.(*server).NeedLeaderElection() {
		t.Error("only the leader has it")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
}
