// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"errors"
	"html/template"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// alert is something that went wrong.
type alert struct{ Title, Text string }

// page is what every page has. Title and Place are those of the page itself.
type page struct {
	Title, Place string
	// User asks Cluster.
	User, Cluster string
	Alerts        []alert
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
	for _, name := range []string{"hosts", "host", "virtual-machines", "error"} {
		parsed[name] = template.Must(template.New("layout.html").
			Funcs(template.FuncMap{
				"label": label,
				"time":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
			}).
			ParseFS(files, "templates/layout.html", "templates/"+name+".html"))
	}
	return parsed
}()

// render writes a page. All links of pages are relative: they know the path that nobody guesses.
func render(w http.ResponseWriter, code int, name string, p page) {
	var content bytes.Buffer
	if err := templates[name].Execute(&content, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	// If the other side has gone there is nobody to tell.
	_, _ = w.Write(content.Bytes())
}

// addPages adds the pages below a path. Where they are is not an interface.
func (s *server) addPages(mux *http.ServeMux, path string) {
	add := func(method, name string, answer func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(method+" "+path+name, func(w http.ResponseWriter, r *http.Request) {
			if err := answer(w, r); err != nil {
				code := codeOf(err)
				p := s.open(http.StatusText(code), "")
				p.Alerts = append(p.Alerts, alert{p.Title, err.Error()})
				render(w, code, "error", p)
			}
		})
	}
	add(http.MethodGet, "hosts", s.hosts)
	add(http.MethodGet, "host", s.host)
	add(http.MethodPost, "host", s.switchPolicy)
	add(http.MethodGet, "virtual-machines", s.vms)
	add(http.MethodPost, "virtual-machines", s.pinVM)
}

// codeOf returns the HTTP code of an error: that of kube-apiserver's answer, or 502 if it gave none.
func codeOf(err error) int {
	var known apierrors.APIStatus
	if errors.As(err, &known) && known.Status().Code >= http.StatusBadRequest {
		return int(known.Status().Code)
	}
	return http.StatusBadGateway
}

// open returns what every page has.
func (s *server) open(title, place string) page {
	p := page{Title: title, Place: place, User: s.user, Cluster: s.cluster}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		p.Alerts = append(p.Alerts, *s.failure)
	}
	return p
}

// done goes back to a page after a request, which stays in view if it failed.
func (s *server) done(w http.ResponseWriter, r *http.Request, title, back string, err error) {
	var failure *alert
	if err != nil {
		failure = &alert{title, err.Error()}
	}
	s.mu.Lock()
	s.failure = failure
	s.mu.Unlock()
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// next is where the following objects are.
func next(r *http.Request, from string) string {
	if from == "" {
		return ""
	}
	query := r.URL.Query()
	query.Set("from", from)
	return "?" + query.Encode()
}
