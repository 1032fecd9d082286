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
	"cmp"
	"crypto/rand"
	_ "embed"
	"html/template"
	"net/http"
	"sync/atomic"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is the page from which a browser posts a token to the console. Whoever opens it gets the token,
// so it is at a path that nobody guesses, for this host alone.
type page struct {
	path  string
	token TokenSource
	is    atomic.Pointer[Opened]
}

func newPage(is Opened, token TokenSource) *page {
	p := &page{path: "/" + rand.Text(), token: token}
	p.now(is)
	return p
}

// now says which console is open.
func (p *page) now(is Opened) { p.is.Store(&is) }

// ServeHTTP implements http.Handler. The token is a new one each time.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; form-action "+p.is.Load().Console+"; frame-ancestors 'none'; base-uri 'none'")
	// The console asks where a form is from, and nobody needs the path.
	header.Set("Referrer-Policy", "origin")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path != p.path {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		header.Set("Allow", http.MethodGet)
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	token, err := p.token(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	var content bytes.Buffer
	if err := pageTemplate.Execute(&content, struct {
		Opened
		User, Token string
	}{*p.is.Load(), cmp.Or(claimsOf(token).Subject, "the user of your token"), token}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	// If the other side has gone there is nobody to tell.
	_, _ = w.Write(content.Bytes())
}
