// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// browser does what a browser without scripts does.
type browser struct {
	t *testing.T
	// base is the URL that all pages are below.
	base string
	// at, code and page are what is shown.
	at   *url.URL
	code int
	page *html.Node
}

// serve returns a browser for the pages of a server.
func serve(t *testing.T, s *server) *browser {
	t.Helper()
	served := httptest.NewUnstartedServer(nil)
	host := served.Listener.Addr().String()
	handler, path := s.handler(host)
	served.Config.Handler = handler
	served.Start()
	t.Cleanup(served.Close)
	return &browser{t: t, base: "http://" + host + path}
}

// do sends a request, and returns the answer with its body.
func (b *browser) do(method, url, form string, headers map[string]string) (*http.Response, []byte) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, url, strings.NewReader(form))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for key, value := range headers {
		if request.Header.Set(key, value); key == "Host" {
			request.Host = value
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response, body
}

// open follows a link of the page.
func (b *browser) open(link string) {
	b.t.Helper()
	b.show(b.do(http.MethodGet, b.base+link, "", nil))
}

func (b *browser) show(response *http.Response, body []byte) {
	b.t.Helper()
	page, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	b.at, b.code, b.page = response.Request.URL, response.StatusCode, page
	for _, problem := range problems(page) {
		b.t.Errorf("%s: %s", b.at, problem)
	}
	if len(response.Cookies()) > 0 {
		b.t.Errorf("%s: there is a cookie", b.at)
	}
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Cache-Control":           "no-store",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff",
	} {
		if got := response.Header.Get(name); got != want {
			b.t.Errorf("%s: the header %s is %q, want %q", b.at, name, got, want)
		}
	}
}

// form returns the form that posts a name; nil if there is none.
func (b *browser) form(name string) *html.Node {
	forms := all(b.page, func(n *html.Node) bool { return n.Data == "form" && values(n).Get("name") == name })
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

// submit presses the button of the form that posts a name. An empty list of values unchecks a checkbox.
func (b *browser) submit(name string, change url.Values) {
	b.t.Helper()
	form := b.form(name)
	if form == nil {
		b.t.Fatalf("%s has no form of %s: %s", b.at, name, text(b.page))
	}
	if _, why := b.button(name); why != "" {
		b.t.Fatalf("%s: the button of %s cannot be pressed", b.at, name)
	}
	b.send(form, change)
}

// send is submit, whether the button can be pressed or not.
func (b *browser) send(form *html.Node, change url.Values) {
	b.t.Helper()
	sent := values(form)
	for name, value := range change {
		sent[name] = value
	}
	b.show(b.do(http.MethodPost, b.base+attribute(form, "action"), sent.Encode(), map[string]string{"Sec-Fetch-Site": "same-origin"}))
}

// button returns what the button of a form says, and why it cannot be pressed.
func (b *browser) button(name string) (label, why string) {
	form := b.form(name)
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
func (b *browser) alerts() string {
	var alerts []string
	for _, n := range all(b.page, func(n *html.Node) bool { return attribute(n, "role") == "alert" }) {
		alerts = append(alerts, text(n))
	}
	return strings.Join(alerts, ";")
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
