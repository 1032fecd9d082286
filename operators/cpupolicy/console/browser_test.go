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
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// browser does what a browser without scripts does.
type browser struct {
	f      *fixture
	t      *testing.T
	client *http.Client
	// path, code and page are what is shown, and headers how it came.
	path    string
	code    int
	headers http.Header
	page    *html.Node
}

// signIn returns a browser in which an account has signed in.
func (f *fixture) signIn(t *testing.T, name string) *browser {
	t.Helper()
	b := &browser{f: f, t: t, client: f.httpClient()}
	b.open("/sign-in")
	b.submit(b.form("/sign-in"), url.Values{"token": {f.token(name, Audience)}})
	if b.code != http.StatusOK {
		t.Fatalf("sign-in is answered with %d: %s", b.code, text(b.page))
	}
	b.open(strings.TrimPrefix(b.headers.Get("Refresh"), "0; url="))
	return b
}

func (b *browser) open(path string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.f.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.show(b.f.do(b.client, request))
}

func (b *browser) show(response *http.Response, body []byte) {
	b.t.Helper()
	page, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	b.path, b.code, b.headers, b.page = response.Request.URL.Path, response.StatusCode, response.Header, page
	for _, problem := range problems(page) {
		b.t.Errorf("%s: %s", b.path, problem)
	}
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Cache-Control":           "no-store",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff",
	} {
		if got := b.headers.Get(name); got != want {
			b.t.Errorf("%s: the header %s is %q, want %q", b.path, name, got, want)
		}
	}
}

// form returns the form that is sent to a path; nil if there is none.
func (b *browser) form(action string) *html.Node {
	forms := all(b.page, func(n *html.Node) bool { return n.Data == "form" && attribute(n, "action") == action })
	if len(forms) != 1 {
		return nil
	}
	return forms[0]
}

// values are what a form has before anybody changes it, with its first button.
func values(form *html.Node) url.Values {
	values := url.Values{}
	for _, field := range all(form, func(n *html.Node) bool { return n.Data == "input" || n.Data == "button" }) {
		name := attribute(field, "name")
		if name == "" || attribute(field, "type") == "checkbox" && !has(field, "checked") {
			continue
		}
		values.Set(name, attribute(field, "value"))
	}
	return values
}

// submit presses the button of a form. An empty list of values unchecks a checkbox.
func (b *browser) submit(form *html.Node, change url.Values) {
	b.t.Helper()
	if form == nil {
		b.t.Fatalf("%s has no such form: %s", b.path, text(b.page))
	}
	if buttons := all(form, func(n *html.Node) bool { return n.Data == "button" }); len(buttons) != 1 || has(buttons[0], "disabled") {
		b.t.Fatalf("%s: the form has no button to press", b.path)
	}
	sent := values(form)
	for name, value := range change {
		sent[name] = value
	}
	b.show(b.f.post(b.client, attribute(form, "action"), sent, map[string]string{"Sec-Fetch-Site": "same-origin"}))
}

// button returns what the button of a form says, and why it cannot be pressed.
func (b *browser) button(action string) (label, why string) {
	form := b.form(action)
	if form == nil {
		return "", ""
	}
	button := all(form, func(n *html.Node) bool { return n.Data == "button" })[0]
	if has(button, "disabled") {
		why = text(byID(b.page, attribute(button, "aria-describedby")))
	}
	return text(button), why
}

// alerts are the errors that are shown.
func (b *browser) alerts() []string {
	var alerts []string
	for _, n := range all(b.page, func(n *html.Node) bool { return attribute(n, "role") == "alert" }) {
		alerts = append(alerts, text(n))
	}
	return alerts
}

// status is what is told to people who do not see the page as it changes.
func (b *browser) status() string {
	return text(all(b.page, func(n *html.Node) bool { return attribute(n, "role") == "status" })[0])
}

// cells are what a row of a table says, by its header.
func (b *browser) cells(header string) []string {
	for _, row := range all(b.page, func(n *html.Node) bool { return n.Data == "tr" }) {
		var cells []string
		is := false
		for _, cell := range all(row, func(n *html.Node) bool { return n.Data == "td" || n.Data == "th" }) {
			is = is || cell.Data == "th" && attribute(cell, "scope") == "row" && text(cell) == header
			cells = append(cells, text(cell))
		}
		if is {
			return cells
		}
	}
	return nil
}

func all(n *html.Node, is func(*html.Node) bool) (found []*html.Node) {
	for each := range n.Descendants() {
		if each.Type == html.ElementNode && is(each) {
			found = append(found, each)
		}
	}
	return found
}

func byID(n *html.Node, id string) *html.Node {
	for each := range n.Descendants() {
		if id != "" && attribute(each, "id") == id {
			return each
		}
	}
	return nil
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text is what can be read of an element, in one line.
func text(n *html.Node) string {
	if n == nil {
		return ""
	}
	var texts []string
	for each := range n.Descendants() {
		if each.Type == html.TextNode {
			texts = append(texts, each.Data)
		}
	}
	return strings.Join(strings.Fields(strings.Join(texts, "")), " ")
}

// problems are what keeps people from using a page: with a keyboard, with a screen reader, without
// scripts. The rules are those of WCAG 2.2 that can be seen in the text of a page.
func problems(page *html.Node) (problems []string) {
	report := func(problem string, n *html.Node) {
		var rendered bytes.Buffer
		_ = html.Render(&rendered, n)
		problems = append(problems, problem+": "+rendered.String())
	}
	one := func(name string) *html.Node {
		found := all(page, func(n *html.Node) bool { return n.Data == name })
		if len(found) != 1 || text(found[0]) == "" {
			report("there must be one "+name+" that says something", page)
		}
		return found[0]
	}
	if attribute(one("html"), "lang") != "en" {
		report("it has no language", page)
	}
	if title, heading := text(one("title")), text(one("h1")); !strings.Contains(title, heading) {
		report("the title is not that of the page", page)
	}
	one("main")
	ids := map[string]bool{}
	for n := range page.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				report("the id is there twice", n)
			}
			ids[id] = true
		}
		if by := attribute(n, "aria-describedby"); by != "" && text(byID(page, by)) == "" {
			report("it is described by what is not there", n)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "accesskey" || a.Key == "tabindex" && a.Val != "-1" {
				report("it has the attribute "+a.Key, n)
			}
		}
		switch n.Data {
		case "script", "style", "iframe", "img", "marquee":
			report("it must not be there", n)
		case "th":
			if scope := attribute(n, "scope"); scope != "row" && scope != "col" || text(n) == "" {
				report("the header has no scope, or says nothing", n)
			}
		case "table":
			if len(all(n, func(n *html.Node) bool { return n.Data == "caption" })) != 1 {
				report("the table has no caption", n)
			}
		case "a", "button":
			if text(n) == "" || n.Data == "a" && attribute(n, "href") == "" {
				report("it says nothing, or leads nowhere", n)
			}
			if has(n, "disabled") && attribute(n, "aria-describedby") == "" {
				report("it does not say why it cannot be used", n)
			}
		case "input":
			labels := all(page, func(l *html.Node) bool {
				return l.Data == "label" && attribute(l, "for") == attribute(n, "id") && text(l) != ""
			})
			if attribute(n, "type") != "hidden" && (attribute(n, "id") == "" || len(labels) != 1) {
				report("it has no label", n)
			}
		case "form":
			csrf := all(n, func(n *html.Node) bool { return attribute(n, "name") == "csrf" && attribute(n, "value") != "" })
			if attribute(n, "method") == "post" && attribute(n, "action") != "/sign-in" && len(csrf) != 1 {
				report("it has no CSRF token", n)
			}
			if len(all(n, func(n *html.Node) bool { return n.Data == "button" })) != 1 {
				report("it cannot be sent", n)
			}
		}
	}
	// The skip link comes first, and the content is there.
	links := all(page, func(n *html.Node) bool { return n.Data == "a" })
	if len(links) == 0 || attribute(links[0], "href") != "#content" || byID(page, "content") == nil {
		report("the content cannot be reached at once", page)
	}
	return problems
}

// terms are the names and values of a list.
func (b *browser) terms() map[string]string {
	terms, name := map[string]string{}, ""
	for _, n := range all(b.page, func(n *html.Node) bool { return n.Data == "dt" || n.Data == "dd" }) {
		if n.Data == "dt" {
			name = text(n)
		} else {
			terms[name] = text(n)
		}
	}
	return terms
}

// link returns where a link leads; empty if there is none.
func (b *browser) link(label string) string {
	for _, n := range all(b.page, func(n *html.Node) bool { return n.Data == "a" && text(n) == label }) {
		return attribute(n, "href")
	}
	return ""
}

func isTitle(n *html.Node) bool { return n.Data == "title" }

func orUnknown(value string) string { return cmp.Or(value, "unknown") }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func authenticatedAs(name string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name}
}
