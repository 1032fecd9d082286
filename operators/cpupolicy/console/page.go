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
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/cpupolicy"
)

// cookieName begins with what makes browsers refuse it from elsewhere, and for a part of the console
// (RFC 6265bis, 4.1.3.2).
const cookieName = "__Host-session"

// alert is something that went wrong.
type alert struct{ Title, Text string }

// page is what every page has. Title and Place are those of the page itself.
type page struct {
	Title  string
	Place  string
	User   string
	CSRF   string
	Ends   time.Time
	Alerts []alert
	// Status is what is under way.
	Status []string
	// Next is where the following objects are; empty if these are the last.
	Next string
	Body any
}

// FullTitle says first what has failed: it is what a screen reader reads first.
func (p page) FullTitle() string {
	title := p.Title + " - CPU Manager"
	if len(p.Alerts) > 0 {
		title = "Error: " + title
	}
	return title
}

var templates = func() map[string]*template.Template {
	parsed := map[string]*template.Template{}
	for _, name := range []string{"sign-in", "signed-in", "hosts", "host", "virtual-machines", "error"} {
		parsed[name] = template.Must(template.New("layout.html").
			Funcs(template.FuncMap{"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }}).
			ParseFS(files, "templates/layout.html", "templates/"+name+".html"))
	}
	return parsed
}()

func render(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	var content bytes.Buffer
	if err := templates[name].Execute(&content, p); err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot make a page", "path", r.URL.Path)
		http.Error(w, "The log of partition-controller says what is wrong with this page.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	// If the other side has gone there is nobody to tell.
	_, _ = w.Write(content.Bytes())
}

// addPages adds the pages. Where they are is not an interface.
func (s *server) addPages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.signedIn(func(w http.ResponseWriter, r *http.Request, _ session) error {
		http.Redirect(w, r, "/hosts", http.StatusSeeOther)
		return nil
	}))
	mux.HandleFunc("GET /sign-in", func(w http.ResponseWriter, r *http.Request) { askForToken(w, r, http.StatusOK) })
	mux.HandleFunc("POST /sign-in", s.signIn)
	mux.HandleFunc("POST /sign-out", s.signedIn(s.signOut))
	mux.HandleFunc("GET /hosts", s.signedIn(s.hosts))
	mux.HandleFunc("GET /hosts/{node}", s.signedIn(s.host))
	mux.HandleFunc("POST /hosts/{node}", s.signedIn(s.switchPolicy))
	mux.HandleFunc("GET /virtual-machines", s.signedIn(s.vms))
	mux.HandleFunc("POST /virtual-machines/{namespace}/{name}", s.signedIn(s.pinVM))
}

func askForToken(w http.ResponseWriter, r *http.Request, code int, alerts ...alert) {
	render(w, r, code, "sign-in", page{Title: "Sign in", Alerts: alerts, Body: Audience})
}

// crossOrigin knows forms of other sites by what browsers say of them.
var crossOrigin = http.NewCrossOriginProtection()

// fromHere reports whether a token may have been posted by the console itself, by a program that is
// no browser, or by a page of a program on the user's own host, as kubectl partition console is. A
// page from elsewhere could sign its visitors in as somebody else.
func fromHere(r *http.Request) bool {
	if crossOrigin.Check(r) == nil {
		return true
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil {
		return false
	}
	ip := net.ParseIP(origin.Hostname())
	return origin.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// signIn reviews a token, and drops it.
func (s *server) signIn(w http.ResponseWriter, r *http.Request) {
	if !fromHere(r) {
		askForToken(w, r, http.StatusForbidden, alert{"You are not signed in", "Another site has sent this token. Sign in here."})
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	user, err := s.review(r.Context(), token)
	if err != nil {
		status := statusOf(r, err)
		askForToken(w, r, int(status.Code), alert{"You are not signed in", status.Message})
		return
	}
	end, _ := expiry(token)
	begun := s.sessions.begin(user, end)
	http.SetCookie(w, &http.Cookie{
		Name:     cookieName,
		Value:    begun.id,
		Path:     "/",
		Expires:  begun.expires,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	// A browser that came from another site would not show its cookie after a redirection. It does
	// if this page is where it comes from.
	w.Header().Set("Refresh", "0; url=/hosts")
	render(w, r, http.StatusOK, "signed-in", page{Title: "Signed in", User: user.Username, Ends: begun.expires, CSRF: begun.csrf})
}

func (s *server) signOut(w http.ResponseWriter, r *http.Request, current session) error {
	s.sessions.end(current.id)
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	return nil
}

// signedIn answers who has a session, and what was posted by a form that was made for it.
func (s *server) signedIn(do func(http.ResponseWriter, *http.Request, session) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var current session
		cookie, err := r.Cookie(cookieName)
		is := err == nil
		if is {
			current, is = s.sessions.get(cookie.Value)
		}
		if !is {
			var alerts []alert
			if err == nil {
				alerts = []alert{{"You are not signed in", "Your session has ended. Sign in again."}}
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			askForToken(w, r, http.StatusUnauthorized, alerts...)
			return
		}
		if r.Method == http.MethodPost {
			err := crossOrigin.Check(r)
			if err == nil && !current.owns(r.PostFormValue("csrf")) {
				err = errors.New("the form is not of this session")
			}
			if err != nil {
				s.fail(w, r, current, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "nothing was done: "+err.Error()))
				return
			}
		}
		if err := do(w, r, current); err != nil {
			s.fail(w, r, current, err)
		}
	}
}

// open returns what every page of a session has.
func open(current session, title, place string) page {
	p := page{Title: title, Place: place, User: current.user.Username, CSRF: current.csrf, Ends: current.expires}
	if current.failure != nil {
		p.Alerts = append(p.Alerts, *current.failure)
	}
	return p
}

func (s *server) fail(w http.ResponseWriter, r *http.Request, current session, err error) {
	status := statusOf(r, err)
	p := open(current, http.StatusText(int(status.Code)), "")
	p.Alerts = append(p.Alerts, alert{http.StatusText(int(status.Code)), status.Message})
	render(w, r, int(status.Code), "error", p)
}

// done goes back to a page after a request, which stays in view if it failed.
func (s *server) done(w http.ResponseWriter, r *http.Request, current session, title, back string, err error) {
	var failure *alert
	if err != nil {
		failure = &alert{title, statusOf(r, err).Message}
	}
	s.sessions.setFailure(current.id, failure)
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// next is where the following objects are.
func next(r *http.Request, from string) string {
	if from == "" {
		return ""
	}
	query := r.URL.Query()
	query.Set("from", from)
	return r.URL.Path + "?" + query.Encode()
}

// hostRow is a node with what can be done to it.
type hostRow struct {
	node
	// Attribute is the label cpumanager.
	Attribute string
	// Action is empty if it is not known what makes sense. Why says why it cannot be done now.
	Action action
	Why    string
	// From is the page to come back to, and CSRF what its form has.
	From, CSRF string
}

func rowOf(n node, may error, from, csrf string) hostRow {
	row := hostRow{node: n, Attribute: "unknown", Action: n.next(), From: from, CSRF: csrf}
	if n.CPUManager != nil {
		row.Attribute = fmt.Sprint(*n.CPUManager)
	}
	switch {
	case row.Action == "":
		row.Why = "The node has no label cpumanager yet, and nobody has observed its policy."
	case may != nil:
		row.Why = "You may not do this: " + may.Error()
	default:
		row.Why = n.underWay()
	}
	return row
}

// addNode shows what is under way on a node, and what has failed: that stays until the next request.
func (p *page) addNode(n node) {
	if n.State == cpupolicy.Failed {
		text := n.Message
		if text == "" {
			text = "The node says no more."
		}
		p.Alerts = append(p.Alerts, alert{fmt.Sprintf("%s has failed on %s", actionFor(n.Requested).Label(), n.Name), text})
	}
	if text := n.underWay(); text != "" {
		p.Status = append(p.Status, fmt.Sprintf("%s: %s", n.Name, text))
	}
}

func (s *server) hosts(w http.ResponseWriter, r *http.Request, current session) error {
	list, more, err := s.eachNode(r.Context(), current.user, r.URL.Query().Get("from"))
	if err != nil {
		return err
	}
	p := open(current, "Hosts", "hosts")
	may := s.mayEach(r.Context(), current.user, nodeAccess("update", ""))
	rows := []hostRow{}
	for _, n := range list {
		allowed := may("", n.Name)
		if allowed != nil && !apierrors.IsForbidden(allowed) {
			return allowed
		}
		p.addNode(n)
		rows = append(rows, rowOf(n, allowed, "hosts", current.csrf))
	}
	p.Body, p.Next = rows, next(r, more)
	render(w, r, http.StatusOK, "hosts", p)
	return nil
}

// hostDetail is what the page of one node has.
type hostDetail struct {
	hostRow
	// Checked says whether Findings say what a request would meet, and Unchecked why they do not.
	Checked   bool
	Unchecked string
	Findings  []cpupolicy.Finding
}

func (s *server) host(w http.ResponseWriter, r *http.Request, current session) error {
	found, err := s.getNode(r.Context(), current.user, r.PathValue("node"))
	if err != nil {
		return err
	}
	may := s.may(r.Context(), current.user, nodeAccess("update", found.Name))
	if may != nil && !apierrors.IsForbidden(may) {
		return may
	}
	n := s.show(found)
	p := open(current, "Host "+n.Name, "hosts")
	p.addNode(n)
	detail := hostDetail{hostRow: rowOf(n, may, "host", current.csrf)}
	switch {
	case may != nil:
		// Findings name pods and VMs of all namespaces. Whoever may ask for a policy is
		// told them anyway.
		detail.Unchecked = "Only who may update the node sees what stands in the way of a switch."
	case detail.Action == "":
		detail.Unchecked = "It is not known what could be asked for."
	default:
		s.check(r, &detail, found)
	}
	p.Body = detail
	render(w, r, http.StatusOK, "host", p)
	return nil
}

// check adds what a request would meet, as far as that is known without asking the node.
func (s *server) check(r *http.Request, detail *hostDetail, found *corev1.Node) {
	policy := detail.Action.policy()
	situation, err := s.Situation(r.Context(), found, policy)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot check what stands in the way of a switch", "node", found.Name)
		detail.Unchecked = "It could not be checked; the log of partition-controller says why."
		return
	}
	detail.Checked = true
	detail.Findings = cpupolicy.Preconditions(cpupolicy.Request{Policy: policy}, situation)
}

func (s *server) switchPolicy(w http.ResponseWriter, r *http.Request, current session) error {
	name, do := r.PathValue("node"), action(r.PostFormValue("action"))
	back := "/hosts"
	if r.PostFormValue("from") == "host" {
		back = "/hosts/" + url.PathEscape(name)
	}
	err := s.act(r.Context(), current.user, name, do)
	if apierrors.IsBadRequest(err) {
		return err
	}
	s.done(w, r, current, fmt.Sprintf("%s was refused on %s", do.Label(), name), back, err)
	return nil
}
