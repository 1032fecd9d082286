// SPDX-License-Identifier: Apache-2.0

// Package browser is Chromium without a screen, for tests of a console. A person at it has a keyboard,
// and no mouse.
package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Browser has one page. What cannot be done within the limit ends its test.
type Browser struct {
	t     testing.TB
	ctx   context.Context
	limit time.Duration
}

// Start starts a program that is Chromium, with no memory of earlier ones. It ends with the test. The
// limit is for each step.
func Start(t testing.TB, program string, limit time.Duration) *Browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program),
		chromedp.NoSandbox, // as root there is none
	)
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	// The browser ends with the context that it is first used with.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return &Browser{t, ctx, limit}
}

func run[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, b.limit)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// Ask evaluates an expression in the page.
func (b *Browser) Ask(expression string) string {
	b.t.Helper()
	return run(b, chromedp.Evaluate[string]("String("+expression+")"))
}

// Text is what the page says; empty before it has come.
func (b *Browser) Text() string {
	b.t.Helper()
	return b.Ask("document.body?.innerText ?? ''")
}

// Alert is the error that the page shows.
func (b *Browser) Alert() string {
	b.t.Helper()
	return b.Ask("[...document.querySelectorAll('[role=alert]')].map(alert => alert.innerText).join(' ')")
}

// Row is what the row of a name says in a table.
func (b *Browser) Row(name string) string {
	b.t.Helper()
	return b.Ask(fmt.Sprintf("[...document.querySelectorAll('tr')].find(row => row.querySelector('th[scope=row]')?.textContent == %q)?.innerText.replace(/\\s+/g, ' ')", name))
}

// Cookies are those of the page's site.
func (b *Browser) Cookies() []*network.Cookie {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (network.GetCookiesResult, error) {
		return cdp.Call(ctx, t, network.GetCookies, network.GetCookiesParams{})
	}).Cookies
}

// Open shows the page of a URL.
func (b *Browser) Open(url string) {
	b.t.Helper()
	run(b, chromedp.Navigate(url))
}

// Type types a text where the focus is.
func (b *Browser) Type(text string) {
	b.t.Helper()
	run(b, chromedp.KeyEvent(text))
}

// TabTo presses the tabulator until an element has the focus that a person would call by this name.
func (b *Browser) TabTo(name string) {
	b.t.Helper()
	const focused = `(document.activeElement.labels?.[0]?.textContent || document.activeElement.textContent).trim()`
	var seen []string
	for range 40 {
		b.Type(kb.Tab)
		now := strings.Join(strings.Fields(b.Ask(focused)), " ")
		if now == name {
			return
		}
		seen = append(seen, now)
	}
	b.t.Fatalf("no element named %q can be reached by the tabulator, only %q", name, seen)
}

// Press presses a button or follows a link, and waits until the next page is there.
func (b *Browser) Press(name string) {
	b.t.Helper()
	b.TabTo(name)
	ctx, cancel := context.WithTimeout(b.ctx, b.limit)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
}
